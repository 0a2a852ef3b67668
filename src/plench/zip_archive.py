"""Zip archives, read without trust: the list of entries, and the bytes of one of them.

Python's own reader takes memory for whatever an archive's directory claims and raises many kinds of errors.
Arrays, checkpoints and models need little of the format: entries that are stored or deflated, no two of
which share bytes. Anything else is a DataError.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from plench.errors import DataError
from plench.text import short_repr

STORED, DEFLATED = 0, 8
MAX_ENTRIES = 2**16
MAX_DIRECTORY_BYTES = 2**24
PIECE_BYTES = 2**18
END_MARK, END = b"PK\x05\x06", struct.Struct("<4s4H2IH")
FAR_MARK, FAR = b"PK\x06\x07", struct.Struct("<4sIQI")  # where the large end is, in archives beyond 4 GiB
LARGE_END_MARK, LARGE_END = b"PK\x06\x06", struct.Struct("<4sQ2H2I4Q")
ENTRY_MARK, ENTRY = b"PK\x01\x02", struct.Struct("<4s6H3I5H2I")
LOCAL_MARK, LOCAL = b"PK\x03\x04", struct.Struct("<4s5H3I2H")
TEXT_FLAG, REFUSED_FLAGS = 0x0800, 0x2061  # encrypted, patched, strongly encrypted, masked


@dataclass(frozen=True)
class ZipEntry:
    """One entry: sizes and checksum as the directory states them, and where its bytes begin and end."""

    name: str
    method: int
    packed_bytes: int
    size: int
    checksum: int
    head: int


def list_entries(file: BinaryIO) -> list[ZipEntry]:
    """Return the entries of an archive in their order on disk; raise DataError if it is not a sound one."""
    start, size = _find_directory(file)
    if size > MAX_DIRECTORY_BYTES:
        raise DataError(f"its directory has {size:,} bytes; allowed are {MAX_DIRECTORY_BYTES:,}")
    file.seek(start)
    directory = file.read(size)
    entries: list[ZipEntry] = []
    place = 0
    while place < len(directory):
        entry, place = _parse_entry(directory, place)
        entries.append(entry)
        if len(entries) > MAX_ENTRIES:
            raise DataError(f"it has more than {MAX_ENTRIES:,} entries")
    names = {entry.name for entry in entries}
    if len(names) != len(entries):
        raise DataError("two of its entries have one name")
    entries.sort(key=lambda entry: entry.head)
    ends = [*(entry.head for entry in entries), start][1:]
    for entry, end in zip(entries, ends, strict=True):
        if entry.head + LOCAL.size + entry.packed_bytes > end:
            raise DataError(f"its entry {short_repr(entry.name)} shares bytes with another or is truncated")
    return entries


def read_entry(file: BinaryIO, entry: ZipEntry) -> Iterator[bytes]:
    """Yield the bytes of an entry in pieces; raise DataError unless they are as many as stated, and whole."""
    file.seek(entry.head)
    head = file.read(LOCAL.size)
    if len(head) < LOCAL.size or not head.startswith(LOCAL_MARK):
        raise DataError(f"its entry {short_repr(entry.name)} does not begin where it should")
    name_bytes, extra_bytes = LOCAL.unpack(head)[-2:]
    file.seek(name_bytes + extra_bytes, os.SEEK_CUR)
    checksum, total = 0, 0
    for piece in _inflate(file, entry) if entry.method == DEFLATED else _copy(file, entry.packed_bytes):
        checksum, total = zlib.crc32(piece, checksum), total + len(piece)
        if total > entry.size:
            break
        yield piece
    if total != entry.size:
        raise DataError(
            f"its entry {short_repr(entry.name)} does not have the {entry.size:,} bytes it states"
        )
    if checksum != entry.checksum:
        raise DataError(f"the checksum of its entry {short_repr(entry.name)} is wrong")


def _copy(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(size, PIECE_BYTES))):
        size -= len(piece)
        yield piece


def _inflate(file: BinaryIO, entry: ZipEntry) -> Iterator[bytes]:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for packed in _copy(file, entry.packed_bytes):
            while packed and not stream.eof:
                piece = stream.decompress(packed, PIECE_BYTES)
                packed = stream.unconsumed_tail
                if piece:
                    yield piece
        if not stream.eof:
            yield stream.flush()
    except zlib.error as error:
        raise DataError(f"its entry {short_repr(entry.name)} cannot be unpacked ({error})") from None


def _find_directory(file: BinaryIO) -> tuple[int, int]:
    """Return where the directory begins and how long it is."""
    file_bytes = file.seek(0, os.SEEK_END)
    tail_start = max(0, file_bytes - END.size - 0xFFFF)
    file.seek(tail_start)
    tail = file.read(END.size + 0xFFFF)
    place = tail.rfind(END_MARK, 0, len(tail) - END.size + len(END_MARK))
    if place < 0:
        raise DataError("it is truncated or no zip archive")
    _, disk, first_disk, _, _, size, start, _ = END.unpack_from(tail, place)
    end = tail_start + place
    if place >= FAR.size and tail.startswith(FAR_MARK, place - FAR.size):
        _, _, far, _ = FAR.unpack_from(tail, place - FAR.size)
        file.seek(min(far, file_bytes))
        large = file.read(LARGE_END.size)
        if len(large) < LARGE_END.size or not large.startswith(LARGE_END_MARK):
            raise DataError("the end of its directory is broken")
        disk, first_disk, size, start = (LARGE_END.unpack(large)[index] for index in (4, 5, 8, 9))
        end = far
    if disk or first_disk:
        raise DataError("it is one of several parts of an archive")
    if start + size > end:
        raise DataError("its directory is not where it should be")
    return start, size


def _parse_entry(directory: bytes, place: int) -> tuple[ZipEntry, int]:
    """Return the entry at a place of the directory, and where the next one begins."""
    if place + ENTRY.size > len(directory) or not directory.startswith(ENTRY_MARK, place):
        raise DataError("its directory is broken")
    fields = ENTRY.unpack_from(directory, place)
    flags, method, checksum = fields[3], fields[4], fields[7]
    name_bytes, extra_bytes, comment_bytes = fields[10:13]
    name_end = place + ENTRY.size + name_bytes
    extra_end = name_end + extra_bytes
    if extra_end + comment_bytes > len(directory):
        raise DataError("its directory is broken")
    raw_name = directory[place + ENTRY.size : name_end]
    name = raw_name.decode("utf-8" if flags & TEXT_FLAG else "cp437", "replace")
    if flags & REFUSED_FLAGS:
        raise DataError(f"its entry {short_repr(name)} is encrypted or a patch")
    if method not in (STORED, DEFLATED):
        raise DataError(f"its entry {short_repr(name)} is packed by method {method}; allowed are 0 and 8")
    size, packed_bytes, head = _widen(directory[name_end:extra_end], fields[9], fields[8], fields[16])
    if method == STORED and size != packed_bytes:
        raise DataError(f"its entry {short_repr(name)} states two different sizes")
    return ZipEntry(name, method, packed_bytes, size, checksum, head), extra_end + comment_bytes


def _widen(extra: bytes, *fields: int) -> list[int]:
    """Replace the fields that were too large for four bytes by those of eight, which stand in their order."""
    wide = b""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        if kind == 1:
            wide = extra[4 : 4 + length]
        extra = extra[4 + length :]
    found = []
    for field in fields:
        if field == 0xFFFFFFFF:
            if len(wide) < 8:
                raise DataError("its directory is broken")
            field = int.from_bytes(wide[:8], "little")
            wide = wide[8:]
        found.append(field)
    return found
