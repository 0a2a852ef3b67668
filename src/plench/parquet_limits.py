"""What a Parquet file may claim to hold, in proportion to its size; looked at before anything is unpacked.

A few hundred bytes can stand for a billion equal cells. The heads of the file and of its pages say how many.
They are read here (Thrift's compact protocol), as pyarrow, asked for a broken column, ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

FREE_BYTES = 2**28  # what any file may unpack to, as everything that is packed may (data/unpack.py)
FREE_VALUES = 2**21  # cells that any file may have; as Python's own values they take some 200 MB
MAX_RATIO = 32  # beyond that, as many bytes and cells as that for every byte of the file
BATCH_BYTES = 2**26  # that texts of one batch may take, if each is as long as all of their dictionary
MOST_ROWS_OF_BATCH = 2**16
MAX_HEAD_BYTES = 2**24
PAGE_HEAD_BYTES = (2**12, 2**20)  # read at first, and where that is not enough
MARK = b"PAR1"
MAX_DEPTH = 16

# Fields by their numbers in the format; a mapping stands for a structure or a list of them.
KIND, N_VALUES, UNPACKED, PACKED, DATA, DICTIONARY = 1, 5, 6, 7, 9, 11  # of a column's chunk
CHUNK = {3: dict.fromkeys((KIND, N_VALUES, UNPACKED, PACKED, DATA, DICTIONARY))}
FILE = {3: None, 4: {1: CHUNK, 2: None, 3: None}}
PAGE = {2: None, 3: None, 5: {1: None}, 7: {1: None}, 8: {1: None}}
TEXTS = (6, 7)  # kinds of values that may be long


@dataclass(frozen=True)
class Claims:
    """What a file says of itself: cells, bytes when unpacked, and the largest dictionary of a column."""

    n_values: int
    n_bytes: int
    dictionary_bytes: int

    @property
    def rows_of_batch(self) -> int:
        """How many rows may be read at once."""
        return max(1, min(MOST_ROWS_OF_BATCH, BATCH_BYTES // max(1, self.dictionary_bytes)))


def check_claims(file: BinaryIO, file_bytes: int) -> Claims:
    """Return what a file claims to hold; raise ValueError if it is broken or its size does not allow that."""
    try:
        claims = read_claims(file, file_bytes)
    except IndexError:
        raise ValueError("its head is cut off") from None
    allowed_values = max(FREE_VALUES, MAX_RATIO * file_bytes)
    if claims.n_bytes > allow_bytes(file_bytes) or claims.n_values > allowed_values:
        raise ValueError(
            f"it is too large: {claims.n_values:,} cells of {claims.n_bytes:,} bytes in a file of "
            f"{file_bytes:,}; allowed are {allowed_values:,} cells of {allow_bytes(file_bytes):,} bytes"
        )
    return claims


def allow_bytes(file_bytes: int) -> int:
    """Return how many bytes a file of a size may unpack to."""
    return max(FREE_BYTES, MAX_RATIO * file_bytes)


def read_claims(file: BinaryIO, file_bytes: int) -> Claims:
    """Return what the heads of a file and of its pages say."""
    file.seek(max(0, file_bytes - 8))
    tail = file.read(8)
    size = int.from_bytes(tail[:4], "little")
    if tail[4:] != MARK or not 0 < size <= min(MAX_HEAD_BYTES, file_bytes - 8):
        raise ValueError("it does not end as a Parquet file")
    file.seek(file_bytes - 8 - size)
    head = Compact(file.read(size)).read_struct(FILE)
    n_rows, n_values, n_bytes, dictionary_bytes, walked = abs(head.get(3, 0)), 0, 0, 0, 0
    for group in head.get(4, []):
        n_rows = max(n_rows, abs(group.get(3, 0)))
        for chunk in (column.get(3, {}) for column in group.get(1, [])):
            values, unpacked = abs(chunk.get(N_VALUES, 0)), abs(chunk.get(UNPACKED, 0))
            pages = list(walk_pages(file, chunk, file_bytes))
            n_values += max(values, sum(page.n_values for page in pages))
            n_bytes += max(unpacked, sum(page.unpacked for page in pages))
            if chunk.get(KIND) in TEXTS:
                known = (page.unpacked for page in pages if page.dictionary)
                dictionary_bytes = max([dictionary_bytes, *known])
            walked += sum(page.packed for page in pages)
            if walked > file_bytes:
                raise ValueError("its columns share bytes")
    return Claims(max(n_rows, n_values), n_bytes, dictionary_bytes)


@dataclass(frozen=True)
class Page:
    """What the head of a page says."""

    packed: int
    unpacked: int
    n_values: int
    dictionary: bool


def walk_pages(file: BinaryIO, chunk: Mapping[int, int], file_bytes: int) -> Iterator[Page]:
    """Yield the pages of a column's chunk."""
    start, first = chunk.get(DATA, 0), chunk.get(DICTIONARY, 0)
    place = first if first > 0 and not 0 < start < first else start  # a chunk without data has no start
    end = place + chunk.get(PACKED, 0)
    if not 0 <= place <= end <= file_bytes:
        raise ValueError("a column lies outside of it")
    while place < end:
        head, size = read_page_head(file, place)
        packed, unpacked = head.get(3, -1), head.get(2, -1)
        if packed < 0 or unpacked < 0:
            raise ValueError("a page has no size")
        counts = [abs(head[kind].get(1, 0)) for kind in (5, 8) if kind in head]
        yield Page(size + packed, unpacked, sum(counts), 7 in head)
        place += size + packed


def read_page_head(file: BinaryIO, place: int) -> tuple[dict[int, Any], int]:
    """Return the head of a page, and how many bytes it takes."""
    for most in PAGE_HEAD_BYTES:
        file.seek(place)
        compact = Compact(file.read(most))
        try:
            return compact.read_struct(PAGE), compact.place
        except IndexError:  # it goes on
            continue
    raise ValueError("the head of a page is broken")


class Compact:
    """Reads values of Thrift's compact protocol from bytes; IndexError where they end too early."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0

    def read_struct(self, wanted: Mapping[int, Any], depth: int = 0) -> dict[int, Any]:
        """Return the whole numbers and structures that are wanted, by field; all else is passed over."""
        found: dict[int, Any] = {}
        field = 0
        while True:
            head = self.take()
            delta, kind = head >> 4, head & 15
            if kind == 0:
                return found
            field = field + delta if delta else self.read_number()
            inner = wanted.get(field)
            if field in wanted and inner is None and kind in (4, 5, 6):
                found[field] = self.read_number()
            elif inner is not None and kind == 12:
                found[field] = self.read_struct(inner, depth + 1)
            elif inner is not None and kind == 9:
                found[field] = self.read_structs(inner, depth + 1)
            elif kind not in (1, 2):  # a truth value is its own head
                self.skip(kind, depth + 1)

    def read_structs(self, wanted: Mapping[int, Any], depth: int) -> list[dict[int, Any]]:
        """Return a list of structures; nothing of a list of something else."""
        kind, count = self.read_list_head()
        if kind == 12:
            return [self.read_struct(wanted, depth) for _ in range(count)]
        for _ in range(count):
            self.skip(kind, depth)
        return []

    def read_list_head(self) -> tuple[int, int]:
        """Return the kind of a list's items, and how many there are: no more than there are bytes."""
        head = self.take()
        count = head >> 4
        if count == 15:
            count = self.read_varint()
        if count > len(self.content) - self.place:
            raise IndexError
        return head & 15, count

    def skip(self, kind: int, depth: int) -> None:
        """Pass over a value."""
        if depth > MAX_DEPTH:
            raise ValueError("its head is nested too deep")
        if kind in (1, 2, 3):  # in lists a truth value takes a byte
            self.take()
        elif kind in (4, 5, 6):
            self.read_varint()
        elif kind == 7:
            self.advance(8)
        elif kind == 8:
            self.advance(self.read_varint())
        elif kind in (9, 10):
            inner, count = self.read_list_head()
            for _ in range(count):
                self.skip(inner, depth + 1)
        elif kind == 11:
            count = self.read_varint()
            kinds = self.take() if count else 0
            for _ in range(min(count, len(self.content))):
                self.skip(kinds >> 4, depth + 1)
                self.skip(kinds & 15, depth + 1)
        elif kind == 12:
            self.read_struct({}, depth)
        else:
            raise ValueError("its head is broken")

    def take(self) -> int:
        """Return the next byte."""
        value = self.content[self.place]
        self.place += 1
        return value

    def advance(self, count: int) -> None:
        """Pass over bytes."""
        self.place += count
        if self.place > len(self.content):
            raise IndexError

    def read_varint(self) -> int:
        """Return a whole number of at least 0."""
        value = shift = 0
        while True:
            byte = self.take()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("its head has a number that is too long")

    def read_number(self) -> int:
        """Return a whole number of either sign."""
        value = self.read_varint()
        return (value >> 1) ^ -(value & 1)
