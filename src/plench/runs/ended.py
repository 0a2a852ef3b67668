"""The file `done`, which ends a run: hashes of its records and models, and whether they still agree.

The `done` of older versions has no hashes; such runs count as complete if description and last record agree.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from plench.plain_files import open_plain, read_plain
from plench.runs.description import FINISHED
from plench.runs.json_text import parse_json
from plench.text import short_repr

DONE = "done"
RESULTS = "results.jsonl"
MARK = b"done\n"
MAX_BYTES = 2**20
MAX_RECORDS_BYTES = 2**28  # of the records of a run: two hundred thousand evaluations
OTHER_SIZE = "has another size than at the end of the run"
CHANGED = "was changed since the end of the run"


def make_done(folder: Path, names: Iterable[str]) -> bytes:
    """Return the content of `done`: a word, and a line with size and hash of each file."""
    files = {}
    for name in sorted(names):
        with open_plain(folder / name) as file:
            size = os.fstat(file.fileno()).st_size
            files[name] = {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    return MARK + json.dumps(files).encode("utf-8") + b"\n"


def find_breach(
    folder: str, info: Mapping[str, Any] | None, steps: int, *, thorough: bool = False
) -> str | None:
    """Say what is wrong with a run that is marked as ended; None if it is whole.

    `info` is its run.json, `steps` how many updates it was to make. The records are compared by hash, models
    by size, or with `thorough` by hash as well.
    """
    if info is None:
        return "its run.json is missing or broken"
    status = info.get("status")
    if status not in FINISHED:
        return f"it is marked as done, but its status is {short_repr(status)}"
    try:
        files = read_done(f"{folder}/{DONE}")
    except (OSError, ValueError) as error:
        return f"its {DONE} cannot be read ({getattr(error, 'strerror', None) or error})"
    last = info.get("diverged_after_step") if status == "diverged" else steps - 1
    wrong = _check_records(f"{folder}/{RESULTS}", files.pop(RESULTS, None), last)
    if wrong:
        return f"its {RESULTS} {wrong}"
    for name, known in files.items():
        wrong = _compare(f"{folder}/{name}", known, by_hash=thorough)
        if wrong:
            return f"its {name} {wrong}"
    return None


def read_done(path: str) -> dict[str, dict[str, Any]]:
    """Return what `done` says of each file; nothing where an older version wrote it. Raises ValueError."""
    content = read_plain(path, MAX_BYTES).split(b"\n", 2)
    if content[1:] in ([], [b""]):
        return {}
    try:
        files = parse_json(content[1])
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(files, dict) or not all(map(_is_entry, files, files.values())):
        raise ValueError("it does not say what belongs to the run")
    return files


def _is_entry(name: str, known: object) -> bool:
    """Say whether a name in `done` is that of a file in the run's own folder."""
    return isinstance(known, dict) and bool(name) and not ("/" in name or os.sep in name)


def _check_records(path: str, known: Mapping[str, Any] | None, last: object) -> str | None:
    """Say what is wrong with records that are to end with the step `last`; `known` is what `done` says."""
    try:
        content = read_plain(path, MAX_RECORDS_BYTES)
    except OSError as error:
        return _tell(error)
    if read_last_step(content) != last:
        return "does not end with the last record"
    if known is not None and not _has_hash(content, known):
        return OTHER_SIZE if len(content) != known.get("bytes") else CHANGED
    return None


def _has_hash(content: bytes, known: Mapping[str, Any]) -> bool:
    return len(content) == known.get("bytes") and hashlib.sha256(content).hexdigest() == known.get("sha256")


def read_last_step(content: bytes) -> Any:
    """Return the step of the last record; None if there is none or the last line is not whole."""
    try:
        last = parse_json(content[content.rfind(b"\n", 0, -1) + 1 :])
        return last.get("step") if content.endswith(b"\n") else None
    except (ValueError, AttributeError, RecursionError):
        return None


def _compare(path: str, known: Mapping[str, Any], *, by_hash: bool) -> str | None:
    """Say how a file differs from what is known of it."""
    try:
        if not by_hash:
            found = os.stat(path)
            same = found.st_size == known.get("bytes") and stat.S_ISREG(found.st_mode)
            return None if same else OTHER_SIZE
        with open_plain(path) as file:
            if os.fstat(file.fileno()).st_size != known.get("bytes"):
                return OTHER_SIZE
            return None if hashlib.file_digest(file, "sha256").hexdigest() == known.get("sha256") else CHANGED
    except (OSError, ValueError) as error:  # a name with a zero byte in it
        return _tell(error)


def _tell(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "is missing"
    return f"cannot be read ({getattr(error, 'strerror', None) or error})"
