"""Files that are written completely or not at all, locks, hashes and JSON."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
from filelock import FileLock, Timeout

from plench.errors import BusyError, PlenchError, StorageError, UsageError
from plench.text import check_local

TEMPORARY = ".{}.tmp"


def sha256(source: bytes | memoryview | Path) -> str:
    """Return the SHA-256 of bytes, or of the content of a file, as hexadecimal digits."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(source).hexdigest()


def parse_json(text: bytes) -> Any:
    """Return the value of a JSON text, with NaN and infinities as Python writes them; raises ValueError.

    orjson takes a third of the time of Python's parser, but knows neither NaN nor lone surrogates.
    """
    try:
        return orjson.loads(text)
    except ValueError:
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` create a file under a temporary name, sync it to disk, then give it its own name."""
    temporary = path.with_name(TEMPORARY.format(uuid4().hex))
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)  # a partial file only takes space on a full disk


def write_through(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` create the file, completely or not at all; raise UsageError if it cannot be written."""
    check_local(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, write)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8, completely or not at all."""
    write_through(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut; Windows has no call for it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def attempt(what: str, kind: type[PlenchError] = StorageError) -> Iterator[None]:
    """Raise an error of ours that says what could not be done, if the system refuses it."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise kind(f"cannot {what}: {getattr(error, 'strerror', None) or error}") from error


@contextmanager
def hold(lock: Path, patience: float, busy: str) -> Iterator[None]:
    """Hold a lock file, and create its folder; raise BusyError with this text if another process holds it.

    The lock is released when its process exits.
    """
    check_local(lock.parent)
    held, folder = FileLock(lock, timeout=patience), lock.parent
    with attempt(f"write to {folder}"):
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                sync_folder(folder.parent)
            held.acquire()
        except Timeout:
            raise BusyError(busy) from None
    try:
        yield
    finally:
        held.release()
