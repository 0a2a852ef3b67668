"""Tar archives, read in memory: nothing is unpacked to disk, and what could leave a folder is refused.

Python's reader takes as much memory for a name as an archive says it needs, and its stack for names in front
of names. A tar archive is simple enough to be read here: blocks of 512 bytes, a head in front of each
file, and heads that only carry a long name for the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from plench.data.unpack import Unpacker
from plench.errors import DataError
from plench.plain_files import open_plain
from plench.text import short_repr

BLOCK_BYTES = 512
MAX_MEMBERS = 10_000
MAX_MEMBER_BYTES = 2**28
MAX_NAME_BYTES = 2**16  # of the entries that carry names
FILES, FOLDER = "0\0" + "7", "5"
GNU_NAME, GNU_LINK, PAX, PAX_FOR_ALL = "L", "K", "xX", "g"


@dataclass(frozen=True)
class TarEntry:
    """An entry of an archive: name and type as they stand there, its size and where its content begins."""

    name: str
    kind: str
    size: int
    start: int

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder; in the oldest archives only the name's end tells."""
        return self.kind == FOLDER or (self.kind in FILES and self.name.endswith("/"))


def read_members(path: Path, wanted: Iterable[str], name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the wanted members of an archive, one at a time, in the order of `wanted`.

    Every entry of the archive is checked before the first is read: a path out of the folder, a link, a
    device, a damaged or an oversized entry refuses the whole archive.
    """
    where = f"{name}: {path}"
    try:
        with open_plain(path) as file:
            checked = [check_member(member) for member in list_members(Unpacker(file))]
            members = {str(PurePosixPath(member.name)): member for member in checked}  # "./a" is "a"
            archive = Unpacker(file)
            for member_name in wanted:
                member = members.get(member_name)
                if member is None or member.is_folder:
                    raise DataError(f"it has no file {member_name}")
                if member.start < archive.place:
                    archive = Unpacker(file)
                archive.skip_to(member.start)
                yield member_name, archive.read(member.size)
    except DataError as error:
        raise DataError(f"{where} is refused: {error}") from None
    except OSError as error:
        raise DataError(f"{where} cannot be read ({error.strerror or error})") from None


def check_member(member: TarEntry) -> TarEntry:
    """Return an entry if it is a plain file or a folder and stays inside."""
    shown = short_repr(member.name)
    place = PurePosixPath(member.name.replace("\\", "/"))
    if place.is_absolute() or ".." in place.parts or ":" in str(place).partition("/")[0]:
        raise DataError(f"{shown} points out of its folder")
    if member.kind not in FILES and member.kind != FOLDER:
        raise DataError(f"{shown} is a link or a device")
    if member.size > MAX_MEMBER_BYTES:
        raise DataError(f"{shown} has {member.size:,} bytes; allowed are {MAX_MEMBER_BYTES:,}")
    return member


def list_members(archive: Unpacker) -> Iterator[TarEntry]:
    """Yield the entries of an archive up to its end, each with its full name."""
    carried: dict[str, str] = {}  # what heads before the next one say of it
    for _ in range(MAX_MEMBERS):
        head = archive.read(BLOCK_BYTES)
        if not head.strip(b"\0"):
            if not head and not archive.place:
                raise DataError("it is damaged or no tar archive: it is empty")
            return  # two blocks of zeros end an archive; one, or the file's end, does as well
        member = parse_tar_head(head, archive.place)
        if member.kind in (GNU_NAME, GNU_LINK, *PAX, PAX_FOR_ALL):
            if member.size > MAX_NAME_BYTES:
                raise DataError(f"a name has {member.size:,} bytes; allowed are {MAX_NAME_BYTES:,}")
            content = archive.read(member.size)
            if member.kind == GNU_NAME:
                carried["path"] = decode_name(content.partition(b"\0")[0])
            elif member.kind in PAX:
                carried |= parse_pax(content)
        else:
            if "size" in carried:
                member = TarEntry(member.name, member.kind, parse_in_base(carried["size"], 10), member.start)
            yield TarEntry(carried.get("path", member.name), member.kind, member.size, member.start)
            carried = {}
        archive.skip_to(member.start + member.size)
        archive.read(-member.size % BLOCK_BYTES)
    raise DataError(f"it has more than {MAX_MEMBERS:,} entries")


def parse_tar_head(head: bytes, start: int) -> TarEntry:
    """Return the entry that a block describes, if its checksum holds."""
    if len(head) < BLOCK_BYTES:
        raise DataError("it is damaged or no tar archive: it ends within an entry")
    expected = 256 + sum(head[:148]) + sum(head[156:])  # the checksum itself counts as eight spaces
    if parse_field(head[148:156]) != expected:
        raise DataError("it is damaged or no tar archive: the checksum of an entry is wrong")
    name = decode_name(head[:100].partition(b"\0")[0])
    prefix = decode_name(head[345:500].partition(b"\0")[0]) if head[257:263] == b"ustar\0" else ""
    kind = chr(head[156])
    size = 0 if kind == FOLDER else parse_field(head[124:136])
    return TarEntry(f"{prefix}/{name}" if prefix else name, kind, size, start)


def parse_field(field: bytes) -> int:
    """Return a number of a head: octal digits, or for large ones bytes after a mark."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    text = decode_name(field.partition(b"\0")[0]).strip()
    return parse_in_base(text, 8) if text else 0


def parse_in_base(text: str, base: int) -> int:
    """Return a number that is not negative."""
    if not 0 < len(text) <= 20 or not text.isascii() or not text.isdigit():
        raise DataError(f"it is damaged: {short_repr(text)} is no number")
    try:
        return int(text, base)
    except ValueError:
        raise DataError(f"it is damaged: {short_repr(text)} is no number") from None


def parse_pax(content: bytes) -> dict[str, str]:
    """Return name and size from lines like `25 path=some/long/name`, whose first number is their length."""
    found: dict[str, str] = {}
    while content.strip(b"\0"):
        digits, _, rest = content.partition(b" ")
        length = parse_in_base(decode_name(digits), 10)
        line = content[len(digits) + 1 : length]
        key, equals, value = line.removesuffix(b"\n").partition(b"=")
        if not equals or len(line) + len(digits) + 1 != length or not rest:
            raise DataError("it is damaged: it describes an entry in an unknown way")
        if key.startswith(b"GNU.sparse"):
            raise DataError("it holds a file with holes; allowed are whole ones")
        if key in (b"path", b"size"):
            found[decode_name(key)] = decode_name(value)
        content = content[length:]
    return found


def decode_name(text: bytes) -> str:
    """Return a name, of which bytes that are no UTF-8 stay what they are."""
    return text.decode("utf-8", "surrogateescape")
