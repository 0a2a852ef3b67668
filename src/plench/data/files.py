"""Finding and reading data files, with errors that say what was looked for and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from plench.data.unpack import Unpacker
from plench.errors import DataError, MissingDataError
from plench.plain_files import is_folder, open_plain, read_plain
from plench.text import normalise

MAX_BYTES = 2**30  # public data files are far smaller


def find_entry(
    name: str,
    wanted: Iterable[str],
    data_dir: Path | None,
    obtain: str,
    accept: Callable[[Path], bool] = Path.exists,
) -> Path:
    """Return the file or folder called as one of `wanted`, in the data folder or in one directly below it.

    Case, spaces and punctuation do not matter; earlier names of `wanted` come first, and upper folders before
    lower ones. Two that are equally near are an error. Hidden files and folders are passed over: some systems
    put a file beside each other one, with nearly its name. What `accept` refuses does not count.
    """
    names = tuple(wanted)
    expected = " or ".join(names)
    if data_dir is None:
        raise MissingDataError(f"{name} is read from {expected}: name its folder with --data-dir; {obtain}")
    try:
        top = sorted(data_dir.iterdir())
        folders = [entry for entry in top if not is_hidden(entry) and is_folder(entry)]
    except (OSError, ValueError) as error:  # ValueError: a zero byte in its name
        reason = getattr(error, "strerror", None) or error
        raise MissingDataError(
            f"{name}: the data folder {data_dir} cannot be read ({reason}); "
            f"it should hold {expected}: {obtain}"
        ) from None
    below, closed = list_folders(folders)
    for candidate in names:
        for entries in ([data_dir], top, below):
            found = [entry for entry in entries if is_called(entry, candidate) and accept(entry)]
            if len(found) > 1:
                places = " or ".join(map(str, found))
                raise DataError(f"{name}: which file is meant? {places}; keep one of them")
            if found:
                return found[0]
    unread = f" ({', '.join(map(str, closed))} cannot be read)" if closed else ""
    raise MissingDataError(
        f"{name}: {expected} is neither in {data_dir} nor in a folder directly below it{unread}; "
        f"{obtain}, and put it into {data_dir}"
    )


def list_folders(folders: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """Return what the folders hold, and those of them that cannot be read."""
    entries: list[Path] = []
    closed: list[Path] = []
    for folder in folders:
        try:
            entries += sorted(folder.iterdir())
        except OSError:
            closed.append(folder)
    return entries, closed


def is_called(entry: Path, name: str) -> bool:
    """Say whether a visible file or folder has a name, regardless of case, spaces and punctuation."""
    return not is_hidden(entry) and normalise(entry.name) == normalise(name)


def is_hidden(entry: Path) -> bool:
    """Say whether a file or folder is one that lists leave out."""
    return entry.name.startswith(".")


def read_file(path: Path, name: str) -> bytes:
    """Return a file's content, that of a gzip file unpacked."""
    try:
        if path.suffix.lower() != ".gz":
            return read_plain(path, MAX_BYTES)
        with open_plain(path) as file:
            content = Unpacker(file).read(MAX_BYTES + 1)
    except DataError as error:
        raise DataError(f"{name}: {path} is damaged: {error}") from None
    except OSError as error:
        raise DataError(f"{name}: {path} cannot be read ({error.strerror or error})") from None
    if len(content) > MAX_BYTES:
        raise DataError(f"{name}: {path} holds more than {MAX_BYTES:,} bytes; allowed are fewer")
    return content
