"""Arrays of numbers or texts in numpy's own file formats, `.npz` and `.npy`, read without trust."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from plench.errors import DataError
from plench.plain_files import open_plain
from plench.text import short_repr
from plench.zip_archive import ZipEntry, read_entry

MARK = b"\x93NUMPY"
LENGTH_BYTES = {1: 2, 2: 4, 3: 4}  # by version: of the number that says how long the head is
MAX_HEAD_BYTES = 10_000
MAX_AXES = 32
NUMBER_TYPE = re.compile(r"[|<>=]?[biuf][0-9]{1,2}|[|<>=]?[US][0-9]{1,4}")  # numbers, and short texts
# The head is written like a Python dict: 'descr' a text, 'fortran_order' a truth value, 'shape' numbers.
PAIR = re.compile(r"\s*(['\"])(\w+)\1\s*:\s*('[^']*'|\"[^\"]*\"|True|False|\([\d\sL,]*\))\s*(,|$)")


def read_array(file: BinaryIO, entry: ZipEntry) -> np.ndarray:
    """Return the array in an entry of an `.npz` file; raise DataError unless it is one of plain numbers."""
    pieces = read_entry(file, entry)
    start = b""
    for piece in pieces:
        start += piece
        if len(start) >= len(MARK) + 6 + MAX_HEAD_BYTES:
            break
    dtype, by_columns, shape, head_bytes = parse_npy_head(start)
    n_bytes = math.prod(shape) * dtype.itemsize
    if head_bytes + n_bytes != entry.size:
        raise DataError(
            f"{short_repr(entry.name)} has {entry.size - head_bytes:,} bytes for an array of shape {shape} "
            f"and type {dtype}"
        )
    raw = gather(start[head_bytes:], pieces, n_bytes)
    return raw.view(dtype).reshape(shape, order="F" if by_columns else "C")


def read_npy(path: Path) -> np.ndarray:
    """Return the array of an `.npy` file; raise DataError unless it is one of plain numbers or texts."""
    return np.array(map_npy(path))


def map_npy(path: Path) -> np.ndarray:
    """Return the array of an `.npy` file, which stays on disk; raise DataError unless it is a plain one."""
    with open_plain(path) as file:
        dtype, by_columns, shape, start = parse_npy_head(file.read(MAX_HEAD_BYTES + 16))
        size = os.fstat(file.fileno()).st_size
        n_bytes = math.prod(shape) * dtype.itemsize
        if start + n_bytes != size:
            raise DataError(f"it has {size - start:,} bytes for an array of shape {shape} and type {dtype}")
        order: Literal["C", "F"] = "F" if by_columns else "C"
        if n_bytes == 0:
            return np.empty(shape, dtype, order)
        return np.memmap(file, dtype, "r", start, shape, order)


def parse_npy(content: bytes) -> np.ndarray:
    """Return the array that the bytes of an `.npy` file hold; raise DataError unless it is a plain one."""
    dtype, by_columns, shape, start = parse_npy_head(content)
    if start + math.prod(shape) * dtype.itemsize != len(content):
        raise DataError(
            f"it has {len(content) - start:,} bytes for an array of shape {shape} and type {dtype}"
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape, order="F" if by_columns else "C")


def gather(first: bytes, pieces: Iterator[bytes], n_bytes: int) -> np.ndarray:
    """Return bytes that come in pieces as one array."""
    raw = np.empty(n_bytes, np.uint8)
    place = 0
    for piece in chain((first,), pieces):  # to the end, where size and checksum are looked at
        raw[place : place + len(piece)] = np.frombuffer(piece, np.uint8)
        place += len(piece)
    return raw


def parse_npy_head(content: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    """Return type, order, shape of an `.npy` file, and where its values begin."""
    width = LENGTH_BYTES.get(content[6]) if len(content) > 8 and content.startswith(MARK) else None
    if width is None:
        raise DataError("an entry is no .npy file")
    start = 8 + width
    length = int.from_bytes(content[8:start], "little")
    if length > MAX_HEAD_BYTES or start + length > len(content):
        raise DataError(f"the head of an array has {length:,} bytes; allowed are {MAX_HEAD_BYTES:,}")
    pairs = parse_pairs(content[start : start + length].decode("latin1").strip())
    if set(pairs) != {"descr", "fortran_order", "shape"}:
        raise DataError("the head of an array is broken, or its values are no plain numbers")
    text = pairs["descr"][1:-1]
    sides = re.findall(r"\d+", pairs["shape"])
    if NUMBER_TYPE.fullmatch(text) is None:
        raise DataError(f"an array has values of type {short_repr(text)}; allowed are numbers")
    if pairs["fortran_order"] not in ("True", "False") or not pairs["shape"].startswith("("):
        raise DataError("the head of an array is broken")
    if len(sides) > MAX_AXES or any(len(side) > 18 for side in sides):
        raise DataError("an array has too many or too long axes")
    try:
        dtype = np.dtype(text)
    except TypeError:
        raise DataError(f"an array has values of type {short_repr(text)}; allowed are numbers") from None
    return dtype, pairs["fortran_order"] == "True", tuple(map(int, sides)), start + length


def parse_pairs(text: str) -> dict[str, str]:
    """Return the names and values of a head as they are written; nothing of it is evaluated."""
    if not (text.startswith("{") and text.endswith("}")):
        return {}
    inner = text[1:-1].rstrip()
    pairs: dict[str, str] = {}
    place = 0
    while place < len(inner):
        match = PAIR.match(inner, place)
        if match is None or match[2] in pairs:
            return {}
        pairs[match[2]] = match[3]
        place = match.end()
    return pairs
