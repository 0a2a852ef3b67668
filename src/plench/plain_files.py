"""Opening files that others may have written: plain files only, and at most a given number of bytes.

A named pipe in the place of a file would stop the process for ever, and a device may never end. Every reader
of data files, run folders and sweep files opens through here. Nothing of this module needs more than Python.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


_FLAGS = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_BINARY", "O_CLOEXEC"):
    _FLAGS |= getattr(os, _name, 0)


class NotPlainError(OSError):
    """What has a file's name is no plain file, or a larger one than allowed; `strerror` says which."""

    def __init__(self, code: int, reason: str, path: str | os.PathLike[str]) -> None:
        super().__init__(code, reason, os.fspath(path))


def open_plain(path: str | os.PathLike[str], *, follow_links: bool = True) -> BufferedReader:
    """Open a plain file for reading bytes; raise NotPlainError, an OSError, for a pipe, device or folder.

    A link to a plain file is read like the file, unless `follow_links` is false.
    """
    descriptor, _ = _open(path, follow_links)
    try:
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_plain(path: str | os.PathLike[str], limit: int, *, follow_links: bool = True) -> bytes:
    """Return the content of a plain file of at most `limit` bytes; raise NotPlainError, an OSError, else."""
    descriptor, size = _open(path, follow_links)
    try:
        # One byte more than it says it has: memory is taken for what is there, not for what is allowed.
        pieces = [os.read(descriptor, min(size, limit) + 1)]
        total = len(pieces[0])
        # Fewer bytes than asked for are all there is, if they are as many as it says; else it is read on, as
        # of a file that grows meanwhile.
        while pieces[-1] and total != size and total <= limit:
            pieces.append(os.read(descriptor, min(total, limit + 1 - total)))
            total += len(pieces[-1])
    finally:
        os.close(descriptor)
    if total > limit:
        raise NotPlainError(errno.EFBIG, f"it holds more than {limit:,} bytes, which are allowed", path)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _open(path: str | os.PathLike[str], follow_links: bool) -> tuple[int, int]:
    """Open a plain file for reading; return its descriptor and size."""
    try:
        # Looked at before it is opened, as opening alone can have effects on a device; and once more after,
        # as another file may have taken the name in between. Without O_NONBLOCK a pipe would block here.
        _check_kind(os.stat(path, follow_symlinks=follow_links), path)
        descriptor = os.open(path, _FLAGS if follow_links else _FLAGS | getattr(os, "O_NOFOLLOW", 0))
    except ValueError as error:  # a name with a zero byte in it
        raise NotPlainError(errno.EINVAL, str(error), path) from None
    try:
        found = os.fstat(descriptor)
        _check_kind(found, path)
        return descriptor, found.st_size
    except BaseException:
        os.close(descriptor)
        raise


def is_plain(path: str | os.PathLike[str]) -> bool:
    """Say whether there is a plain file, or a link to one; a name that cannot be one is no error."""
    return _find_mode(path, stat.S_ISREG)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Say whether there is a folder, or a link to one; a name that cannot be one is no error."""
    return _find_mode(path, stat.S_ISDIR)


def _find_mode(path: str | os.PathLike[str], wanted: Callable[[int], bool]) -> bool:
    try:
        return wanted(os.stat(path).st_mode)
    except (OSError, ValueError):  # not there, too long a name, a zero byte in it
        return False


def _check_kind(found: os.stat_result, path: str | os.PathLike[str]) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    kind = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
    code = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
    raise NotPlainError(code, f"it is {kind}, not a file", Path(path))
