"""Fetching public data files. Bytes are verified before they get their final name."""

import os
import tempfile
import threading
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import IO

from plench.data.sources import find_source
from plench.data.sources.base import RemoteFile
from plench.errors import DataError
from plench.plain_files import read_plain

TIMEOUT_SECONDS = 60  # without a single byte
MAX_SECONDS = 3_600  # for a file: the largest has 170 MB
MAX_BYTES = 2**30  # a server that never stops sending must not fill the disk
CHUNK_BYTES = 2**20


def download_dataset(name: str, data_dir: str | Path) -> list[Path]:
    """Fetch the public files of a dataset into `data_dir` and return their paths.

    A file that is already there and right is left alone. One that is there and differs is never overwritten.
    """
    source = find_source(name)
    if not source.files:
        reason = source.obtain or "it is built in or given by path"
        raise DataError(f"{source.card.name} cannot be downloaded: {reason}")
    return [download_file(remote, Path(data_dir) / remote.path) for remote in source.files]


def download_file(remote: RemoteFile, path: Path) -> Path:
    """Fetch one file, verify it and move it to `path`; nothing is left behind where that fails."""
    try:
        if os.path.lexists(path):
            if remote.explain_mismatch(read_plain(path, MAX_BYTES)) is None:
                return path
            raise DataError(f"{path} exists and is not the public file; move it away first")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                _fetch_in_time(remote.url, file)
            mismatch = remote.explain_mismatch(read_plain(temporary, MAX_BYTES))
            if mismatch is not None:
                raise DataError(
                    f"{remote.url} did not give the file that is known: {mismatch}; nothing was kept"
                )
            os.chmod(temporary, 0o644)  # mkstemp's files are for the owner only; data folders are shared
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except (OSError, HTTPException, ValueError) as error:  # ValueError: an address that is none
        raise DataError(f"{remote.url} could not be fetched to {path} ({error})") from None
    return path


def _fetch_in_time(url: str, file: IO[bytes]) -> None:
    """Fetch within MAX_SECONDS.

    The work is done in a thread that is left behind where it takes longer: a server that sends a byte a
    minute can stretch every single step, the head of its answer among them.
    """
    failure: list[BaseException] = []
    late = threading.Event()

    def fetch() -> None:
        try:
            _fetch(url, file, late)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(MAX_SECONDS)
    if thread.is_alive():
        late.set()
        raise DataError(f"{url} was not fetched within {MAX_SECONDS:,} seconds; nothing was kept")
    if failure:
        raise failure[0]


def _fetch(url: str, file: IO[bytes], late: threading.Event) -> None:
    """Write what the address gives to an open file, at most MAX_BYTES."""
    size = 0
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
        while not late.is_set() and (chunk := response.read1(CHUNK_BYTES)):
            size += len(chunk)
            if size > MAX_BYTES:
                raise DataError(f"{url} sends more than {MAX_BYTES:,} bytes; nothing was kept")
            file.write(chunk)
        if response.length:
            raise HTTPException(f"{response.length:,} bytes are missing")
