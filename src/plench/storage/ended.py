"""The file `done`, which ends a run: hashes of its records and models, and whether they still agree.

The `done` of older versions has no hashes; such runs count as complete if description and last record agree.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from plench.plain_files import open_plain, read_plain
from plench.shown import show_value
from plench.storage.description import FINISHED

DONE = "done"
RESULTS = "results.jsonl"
MARK = b"done\n"
MAX_BYTES = 2**20
_TAIL_BYTES = 4096


def make_done(folder: Path, names: Iterable[str]) -> bytes:
    """Return the content of `done`: a word, and a line with size and hash of each file."""
    files = {}
    for name in sorted(names):
        with open_plain(folder / name) as file:
            size = os.fstat(file.fileno()).st_size
            files[name] = {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    return MARK + json.dumps(files).encode("utf-8") + b"\n"


def find_breach(
    folder: str,
    info: dict[str, Any] | None,
    steps: int | None,
    *,
    thorough: bool = False,
    by_size: bool = False,
) -> str | None:
    """Say what is wrong with a run that is marked as ended; None if it is whole.

    `info` is its run.json, `steps` how many updates it was to make. The records are compared by hash, models
    by size, or with `thorough` by hash as well; with `by_size` all of them by size.
    """
    if info is None:
        return "its run.json is missing or broken"
    status = info.get("status")
    if status not in FINISHED:
        return f"it is marked as done, but its status is {show_value(status)}"
    try:
        files = read_done(f"{folder}/{DONE}")
    except (OSError, ValueError) as error:
        return f"its {DONE} cannot be read ({getattr(error, 'strerror', None) or error})"
    if by_size and RESULTS in files:
        found = ((name, _compare_size(f"{folder}/{name}", known)) for name, known in files.items())
        return next((f"its {name} {text}" for name, text in found if text), None)
    last = info.get("diverged_after_step") if status == "diverged" else None if steps is None else steps - 1
    if (steps is not None or status == "diverged") and read_last_step(f"{folder}/{RESULTS}") != last:
        return f"its {RESULTS} does not end with the last record"
    for name, known in files.items():
        wrong = _compare(f"{folder}/{name}", known, by_hash=thorough or name == RESULTS)
        if wrong:
            return f"its {name} {wrong}"
    return None


def read_done(path: str) -> dict[str, dict[str, Any]]:
    """Return what `done` says of each file; nothing where an older version wrote it. Raises ValueError."""
    content = read_plain(path, MAX_BYTES).decode("utf-8", "replace").splitlines()
    if len(content) < 2:
        return {}
    try:
        files = json.loads(content[1])
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(files, dict) or not all(
        isinstance(known, dict) and name and os.path.basename(name) == name for name, known in files.items()
    ):
        raise ValueError("it does not say what belongs to the run")
    return files


def hash_records(content: bytes) -> str:
    """Return the hash by which `done` knows the records."""
    return hashlib.sha256(content).hexdigest()


def read_last_step(path: str) -> Any:
    """Return the step of the last record; None if there is none or the last line is not whole."""
    try:
        with open_plain(path) as file:
            size = file.seek(0, os.SEEK_END)
            for length in (_TAIL_BYTES, size):  # one record is far shorter than the tail, as a rule
                file.seek(max(size - length, 0))
                tail = file.read()
                start = tail.rfind(b"\n", 0, -1) + 1
                if start > 0:
                    break
        return json.loads(tail[start:]).get("step") if tail.endswith(b"\n") else None
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def _compare_size(path: str, known: dict[str, Any]) -> str | None:
    """Say how a file's size differs from what is known of it."""
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    return None if size == known.get("bytes") else "has another size than at the end of the run"


def _compare(path: str, known: dict[str, Any], *, by_hash: bool) -> str | None:
    """Say how a file differs from what is known of it."""
    try:
        with open_plain(path) as file:
            if os.fstat(file.fileno()).st_size != known.get("bytes"):
                return "has another size than at the end of the run"
            if by_hash and hashlib.file_digest(file, "sha256").hexdigest() != known.get("sha256"):
                return "was changed since the end of the run"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    return None
