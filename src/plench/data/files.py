"""Finding and reading data files, with errors that say what was looked for and where."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path

from plench.errors import DataError
from plench.names import normalise

MAX_BYTES = 2**30  # public data files are far smaller


def find_entry(name: str, wanted: Iterable[str], data_dir: Path | None, obtain: str) -> Path:
    """Return the file or folder called as one of `wanted`, in the data folder or in one directly below it.

    Case, spaces and punctuation do not matter; earlier names of `wanted` come first.
    """
    names = tuple(wanted)
    expected = " or ".join(names)
    if data_dir is None:
        raise DataError(f"{name} is read from {expected}: name its folder with --data_dir; {obtain}")
    try:
        top = sorted(data_dir.iterdir())
        below = [entry for folder in top if folder.is_dir() for entry in sorted(folder.iterdir())]
    except OSError as error:
        raise DataError(
            f"{name}: the data folder {data_dir} cannot be read ({error.strerror or error}); "
            f"it should hold {expected}: {obtain}"
        ) from None
    for candidate in names:
        for entry in (data_dir, *top, *below):
            if normalise(entry.name) == normalise(candidate):
                return entry
    raise DataError(
        f"{name}: {expected} is neither in {data_dir} nor in a folder directly below it; "
        f"{obtain}, and put it into {data_dir}"
    )


def read_file(path: Path, name: str) -> bytes:
    """Return a file's content, unpacked if it is a gzip file."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rb") as stream:
            content: bytes = stream.read(MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{name}: {path} is damaged ({error})") from None
    except OSError as error:
        raise DataError(f"{name}: {path} cannot be read ({error.strerror or error})") from None
    if len(content) > MAX_BYTES:
        raise DataError(f"{name}: {path} holds more than {MAX_BYTES:,} bytes; allowed are fewer")
    return content
