"""Tar archives, read in memory: nothing is unpacked to disk, and what could leave a folder is refused."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from plench.errors import DataError

MAX_MEMBERS = 10_000
MAX_MEMBER_BYTES = 2**28


def read_members(path: Path, wanted: Iterable[str], name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the wanted members of an archive, one at a time, in the order of `wanted`.

    Every entry of the archive is checked before the first is read: a path out of the folder, a link, a
    device, a damaged or an oversized entry refuses the whole archive.
    """
    try:
        with tarfile.open(path) as archive:
            checked = check_members(archive, path, name)
            members = {str(PurePosixPath(member.name)): member for member in checked}  # "./a" is "a"
            for member_name in wanted:
                member = members.get(member_name)
                stream = None if member is None else archive.extractfile(member)
                if member is None or stream is None:
                    raise DataError(f"{name}: {path} has no file {member_name}")
                content = stream.read()
                if len(content) != member.size:
                    raise DataError(f"{name}: {path} is truncated within {member_name}")
                yield member_name, content
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{name}: {path} is damaged or no tar archive ({error})") from None


def check_members(archive: tarfile.TarFile, path: Path, name: str) -> list[tarfile.TarInfo]:
    """Return the entries of an archive if all of them are plain files and folders that stay inside."""
    members: list[tarfile.TarInfo] = []
    for member in archive:
        place = PurePosixPath(member.name.replace("\\", "/"))
        if place.is_absolute() or ".." in place.parts or ":" in str(place).partition("/")[0]:
            raise DataError(f"{name}: {path} is refused: {member.name!r} points out of its folder")
        if not (member.isfile() or member.isdir()):
            raise DataError(f"{name}: {path} is refused: {member.name!r} is a link or a device")
        if member.size > MAX_MEMBER_BYTES:
            raise DataError(f"{name}: {path} is refused: {member.name!r} has {member.size:,} bytes")
        members.append(member)
        if len(members) > MAX_MEMBERS:
            raise DataError(f"{name}: {path} is refused: it has more than {MAX_MEMBERS:,} entries")
    return members
