"""A reader of MATLAB files (versions 5 to 7) for numeric matrices, dense or sparse, and nothing else.

SciPy's reader trusts the type codes in a file and crashes the process on a forged one. Here every code, size
and index is checked before it is used, so that any bytes at all give matrices or a DataError.
"""

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plench.data.unpack import allowed_bytes
from plench.errors import DataError
from plench.text import clean_text

HEADER_BYTES = 128
PREFIX_BYTES = 4_096  # of a compressed variable: room for its flags, sizes and name
MAX_CELLS = 2**27  # of one matrix, twelve times the largest known: 1 GiB of doubles
MAX_BYTES = 8 * MAX_CELLS + PREFIX_BYTES
MAX_VARIABLES = 1_000
MAX_SHOWN_AXES = 8
MAX_NAME_BYTES = 63  # as in MATLAB
FREE_CELLS = 2**24  # a sparse matrix may have that many, twice the largest known,
CELLS_PER_BYTE = 64  # or else so many for each byte of the file

NUMBER_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX_TYPE, COMPRESSED_TYPE = 14, 15
SPARSE_CLASS = 5
NUMBER_CLASSES = range(6, 16)  # double, single, and integers of 8 to 64 bits
OTHER_CLASSES = {
    1: "a cell array",
    2: "a struct",
    3: "an object",
    4: "text",
    16: "a function",
    17: "an object",
}
COMPLEX_FLAG = 0x0800


@dataclass(frozen=True)
class Element:
    """A piece of the file: its type code, its bytes (fewer than declared in a prefix), and where it ends."""

    code: int
    data: memoryview
    end: int


@dataclass(frozen=True)
class Head:
    """What stands before a variable's values: name, class, sizes and where the values begin."""

    name: str
    class_code: int
    is_complex: bool
    shape: tuple[int, ...]
    end: int


def read_matrices(content: bytes, wanted: Collection[str]) -> dict[str, NDArray[Any] | None]:
    """Read the wanted variables as two-dimensional arrays of real numbers, the types as they are stored.

    Variables not asked for are named in the result with None: they are neither unpacked nor read.
    """
    found: dict[str, NDArray[Any] | None] = {}
    order = _read_byte_order(content)
    for packed, data in _iterate_variables(memoryview(content), order):
        prefix = _unpack(data, PREFIX_BYTES, whole=False) if packed else data
        matrix = _take_element(prefix, 0, order, whole=False) if packed else Element(MATRIX_TYPE, data, 0)
        if matrix.code != MATRIX_TYPE:
            raise DataError(f"a packed element has type code {matrix.code}; expected is a matrix")
        head = _read_head(matrix.data, order)
        if head.name in found:
            raise DataError(f"the file has two variables `{head.name}`")
        found[head.name] = None
        if len(found) > MAX_VARIABLES:
            raise DataError(f"the file has more than {MAX_VARIABLES:,} variables")
        if head.name in wanted:
            _check_head(head, len(content))
            if packed:
                matrix = _take_element(_unpack(data, matrix.end, whole=True), 0, order)
            found[head.name] = _read_values(head, matrix.data, order)
    return found


def _read_byte_order(content: bytes) -> str:
    mark = content[126:128]
    if len(content) < HEADER_BYTES or mark not in (b"IM", b"MI"):
        raise DataError("not a MATLAB file of version 5 to 7")
    order = "<" if mark == b"IM" else ">"
    version = struct.unpack(f"{order}H", content[124:126])[0]
    if version == 0x0200:
        raise DataError("a MATLAB file of version 7.3 (HDF5), which is not read; save it with the option -v7")
    if version != 0x0100:
        raise DataError(f"a MATLAB file of unknown version {version:#06x}; versions 5 to 7 are read")
    return order


def _iterate_variables(content: memoryview, order: str) -> Iterator[tuple[bool, memoryview]]:
    """Every top-level element with its bytes, and whether these are compressed."""
    offset = HEADER_BYTES
    while offset < len(content):
        element = _take_element(content, offset, order)
        if element.code not in (MATRIX_TYPE, COMPRESSED_TYPE):
            raise DataError(f"an element has type code {element.code}; expected is a matrix")
        yield element.code == COMPRESSED_TYPE, element.data
        offset = element.end


def _take_element(data: memoryview, offset: int, order: str, *, whole: bool = True) -> Element:
    """The element at `offset`. With `whole` false its bytes may be cut off, but not its tag."""
    if offset + 8 > len(data):
        raise DataError("the file is truncated")
    code, size = struct.unpack_from(f"{order}II", data, offset)
    if code >> 16:  # a small element: size and type share four bytes, the data are the next four
        code, size = code & 0xFFFF, code >> 16
        if size > 4:
            raise DataError(f"a small element declares {size} bytes; allowed are 4")
        return Element(code, data[offset + 4 : offset + 4 + size], offset + 8)
    start, end = offset + 8, offset + 8 + size
    if whole and end > len(data):
        raise DataError("the file is truncated")
    padding = 0 if code == COMPRESSED_TYPE else -size % 8
    return Element(code, data[start:end], end + padding)


def _unpack(data: memoryview, limit: int, *, whole: bool) -> memoryview:
    """Decompress at most `limit` bytes; with `whole` the stream must end there and its checksum hold."""
    allowed = min(MAX_BYTES, allowed_bytes(len(data)))
    if limit > allowed:
        raise DataError(
            f"a variable of {len(data):,} packed bytes declares {limit:,}; allowed are at most {allowed:,}"
        )
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(data, limit)
        if whole and not stream.eof:
            unpacked += stream.decompress(stream.unconsumed_tail, 1)  # a stream's end may need one more step
    except (zlib.error, MemoryError) as error:
        raise DataError(f"the compressed data are broken ({error})") from None
    if whole and (not stream.eof or len(unpacked) > limit):
        raise DataError("the compressed data are truncated, or longer than declared")
    return memoryview(unpacked)


def _read_head(data: memoryview, order: str) -> Head:
    flags = _take_element(data, 0, order)
    sizes = _take_element(data, flags.end, order)
    name = _take_element(data, sizes.end, order)
    if len(flags.data) != 8 or len(sizes.data) % 4:
        raise DataError("the head of a variable is broken")
    bits = struct.unpack_from(f"{order}I", flags.data)[0]
    shape = struct.unpack(f"{order}{len(sizes.data) // 4}i", sizes.data)
    if len(name.data) > MAX_NAME_BYTES:
        raise DataError(f"a variable's name has {len(name.data):,} letters; allowed are {MAX_NAME_BYTES}")
    text = clean_text(bytes(name.data).decode("ascii", errors="replace"), keep="")
    return Head(text, bits & 0xFF, bool(bits & COMPLEX_FLAG), shape, name.end)


def _check_head(head: Head, file_bytes: int) -> None:
    if head.class_code != SPARSE_CLASS and head.class_code not in NUMBER_CLASSES:
        kind = OTHER_CLASSES.get(head.class_code, f"of unknown class {head.class_code}")
        raise DataError(f"`{head.name}` is {kind}; allowed are numeric matrices")
    if head.is_complex:
        raise DataError(f"`{head.name}` is complex; allowed are real numbers")
    if len(head.shape) != 2 or min(head.shape) < 1:
        more = " …" if len(head.shape) > MAX_SHOWN_AXES else ""
        shape = f"{head.shape[:MAX_SHOWN_AXES]}{more}"
        raise DataError(f"`{head.name}` has shape {shape}; allowed are matrices that are not empty")
    allowed = MAX_CELLS
    if head.class_code == SPARSE_CLASS:
        allowed = min(allowed, max(FREE_CELLS, CELLS_PER_BYTE * file_bytes))
    if math.prod(head.shape) > allowed:
        rows, columns = head.shape
        raise DataError(f"`{head.name}` declares {rows}×{columns} entries; allowed are at most {allowed:,}")


def _read_values(head: Head, data: memoryview, order: str) -> NDArray[Any]:
    rows, columns = head.shape
    if head.class_code != SPARSE_CLASS:
        numbers, _ = _read_numbers(head, data, head.end, order)
        if len(numbers) != rows * columns:
            raise DataError(f"`{head.name}` declares {rows}×{columns} numbers and holds {len(numbers):,}")
        return numbers.reshape((rows, columns), order="F")
    row_index, end = _read_numbers(head, data, head.end, order)
    starts, end = _read_numbers(head, data, end, order)
    numbers, _ = _read_numbers(head, data, end, order)
    return _expand_sparse(head, row_index, starts, numbers)


def _read_numbers(head: Head, data: memoryview, offset: int, order: str) -> tuple[NDArray[Any], int]:
    element = _take_element(data, offset, order)
    if element.code not in NUMBER_TYPES:
        raise DataError(f"`{head.name}` holds values of type code {element.code}; expected are numbers")
    dtype = np.dtype(order + NUMBER_TYPES[element.code])
    if len(element.data) % dtype.itemsize:
        raise DataError(f"`{head.name}` holds {len(element.data):,} bytes, which are no whole numbers")
    return np.frombuffer(element.data, dtype), element.end


def _expand_sparse(
    head: Head, row_index: NDArray[Any], starts: NDArray[Any], numbers: NDArray[Any]
) -> NDArray[Any]:
    """A dense matrix from compressed columns: column j has the rows `row_index[starts[j]:starts[j + 1]]`."""
    rows, columns = head.shape
    broken = f"the sparse `{head.name}` is broken"
    if row_index.dtype.kind not in "iu" or starts.dtype.kind not in "iu":
        raise DataError(f"{broken}: its indices are not integers")
    row_index, starts = row_index.astype(np.int64), starts.astype(np.int64)
    if len(starts) != columns + 1 or starts[0] != 0 or starts.min() < 0 or (np.diff(starts) < 0).any():
        raise DataError(f"{broken}: its columns do not follow one another")
    n_stored = int(starts[-1])
    if n_stored > min(len(row_index), len(numbers)):
        raise DataError(f"{broken}: it declares {n_stored:,} entries and holds fewer")
    row_index, numbers = row_index[:n_stored], numbers[:n_stored]
    if ((row_index < 0) | (row_index >= rows)).any():
        raise DataError(f"{broken}: a row index is outside 0…{rows - 1}")
    position = np.repeat(np.arange(columns), np.diff(starts)) * rows + row_index
    if (np.diff(position) <= 0).any():
        raise DataError(f"{broken}: the rows of a column do not ascend")
    dense = np.zeros(rows * columns, dtype=numbers.dtype)
    dense[position] = numbers
    return dense.reshape((rows, columns), order="F")
