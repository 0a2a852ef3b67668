"""Unpacking gzip piece by piece, never more than is in proportion to what was packed."""

from __future__ import annotations

import os
import zlib
from typing import BinaryIO

from plench.errors import DataError

PIECE_BYTES = 2**18
GZIP_MARK = b"\x1f\x8b"
GZIP_FORMAT = 16 + zlib.MAX_WBITS
FREE_BYTES = 2**28  # what anything may unpack to: real files of that size exist that are nearly all zeros
MAX_RATIO = 32  # beyond that, as many times its own size; real data have 2 to 10, forged ones up to 1,000
MAX_PARTS = 2**16  # a gzip file can be many in a row


def allowed_bytes(packed_bytes: int) -> int:
    """Return how many bytes something of a size may unpack to."""
    return max(FREE_BYTES, MAX_RATIO * packed_bytes)


class Unpacker:
    """Reads an open file from its beginning to its end, unpacked if it is gzip; it cannot go back."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.packed_bytes = os.fstat(file.fileno()).st_size
        self.limit = allowed_bytes(self.packed_bytes)
        self.place = 0  # how many bytes have been given out
        file.seek(0)
        self.is_packed = file.read(2) == GZIP_MARK
        file.seek(0)
        self._stream = zlib.decompressobj(GZIP_FORMAT)
        self._parts = 0
        self._rest = b""  # packed bytes that were read and not used

    def read(self, size: int) -> bytes:
        """Return the next bytes: `size`, or fewer where the file ends. Raises DataError for broken ones."""
        pieces = []
        while size > 0:
            piece = self._unpack(min(size, PIECE_BYTES)) if self.is_packed else self._take(size)
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
            self.place += len(piece)
            if self.place > self.limit:
                raise DataError(
                    f"it unpacks to more than {self.limit:,} bytes, which are allowed for its size"
                )
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def skip_to(self, place: int) -> None:
        """Pass over everything before a place that lies ahead; raise DataError where the file ends before."""
        while self.place < place:
            if not self.read(min(place - self.place, PIECE_BYTES)):
                raise DataError("it is truncated")

    def _take(self, size: int) -> bytes:
        return self.file.read(min(size, PIECE_BYTES))

    def _unpack(self, size: int) -> bytes:
        """Return one to `size` bytes, none at the end."""
        while True:
            packed = self._rest or self.file.read(PIECE_BYTES)
            if not packed:
                if self._stream.eof:
                    return b""
                raise DataError("it is truncated")
            if self._stream.eof:
                packed = packed.lstrip(b"\0")  # between gzip files in a row there may be zeros
                if not packed:
                    self._rest = b""
                    continue
                self._start_part()
            try:
                piece = self._stream.decompress(packed, size)
            except zlib.error as error:
                raise DataError(f"it cannot be unpacked ({error})") from None
            self._rest = self._stream.unused_data or self._stream.unconsumed_tail
            if piece:
                return piece

    def _start_part(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise DataError(f"it consists of more than {MAX_PARTS:,} gzip files in a row")
        self._stream = zlib.decompressobj(GZIP_FORMAT)
