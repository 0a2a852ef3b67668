"""Writing files so that a reader never meets half of one, and reading only what is a file."""

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from plench.errors import UsageError


def write_through(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make the file under a temporary name in the same folder, then give it its own."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem[:40]}.", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        # mkstemp makes files that only their owner can read; a table is for sharing.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8, whole or not at all."""
    write_through(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Read a file, but nothing that only looks like one: a pipe would never end."""
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read()


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
