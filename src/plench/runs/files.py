"""Writing files whole or not at all."""

import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from plench.errors import UsageError


@cache
def default_mode() -> int:
    """Return the rights that a new file has; asking for them means changing them for a moment, so once."""
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask


def make_temporary(path: Path, suffix: str = ".tmp") -> tuple[int, Path]:
    """Make a new, empty file beside `path`, and open it: nobody can know its name and be there before.

    It is for as many readers as any new file, not for its owner alone.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.stem[:40]}.", suffix=suffix, dir=path.parent)
    if os.name != "nt":
        os.fchmod(descriptor, default_mode())
    return descriptor, Path(name)


def write_through(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make the file under a temporary name in the same folder, then give it its own."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = make_temporary(path, path.suffix)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error
    os.close(descriptor)
    try:
        write(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8, whole or not at all."""
    write_through(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
