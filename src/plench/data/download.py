"""Downloads of public data files, each verified before it gets its name."""

import os
import tempfile
import urllib.request
from http.client import HTTPException
from pathlib import Path

from plench.data.sources import find_source
from plench.data.sources.base import RemoteFile
from plench.errors import DataError

TIMEOUT_SECONDS = 60  # without a single byte
MAX_BYTES = 2**30  # the largest public file has 170 MB


def download_dataset(name: str, data_dir: str | Path) -> list[Path]:
    """Fetch the public files of a dataset into `data_dir` and return their paths.

    A file that already exists and has the known checksum is not fetched again; one that differs is never
    overwritten.
    """
    source = find_source(name)
    if not source.files:
        reason = source.obtain or "it is built in or given by path"
        raise DataError(f"{source.card.name} cannot be downloaded: {reason}")
    return [download_file(remote, Path(data_dir) / remote.path) for remote in source.files]


def download_file(remote: RemoteFile, path: Path) -> Path:
    """Fetch one file, verify it and move it to `path`; a failed download leaves nothing behind."""
    try:
        if path.exists():
            if remote.explain_mismatch(path.read_bytes()) is None:
                return path
            raise DataError(f"{path} exists and is not the public file; move it away first")
        with urllib.request.urlopen(remote.url, timeout=TIMEOUT_SECONDS) as response:
            content = response.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DataError(f"{remote.url} sends more than {MAX_BYTES:,} bytes; nothing was saved")
        mismatch = remote.explain_mismatch(content)
        if mismatch is not None:
            raise DataError(f"{remote.url} is not the known file: {mismatch}; nothing was saved")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)  # files of mkstemp are for the owner only; data folders are shared
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except (OSError, HTTPException, ValueError) as error:  # ValueError: not an address
        raise DataError(f"{remote.url} could not be fetched to {path} ({error})") from None
    return path
