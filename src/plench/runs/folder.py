"""The folder of one run: names of its files, `run.json`, the mark `done`, and the store that writes them.

`done` marks a run as finished and has size and hash of its records and models. Folders of the public
benchmark and of early versions have a `done` without hashes; they are complete if the last record is there.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from plench.files import TEMPORARY, attempt, hold, parse_json, replace_file, sha256, sync_folder
from plench.text import short_repr

RUN = "run.json"
RESULTS = "results.jsonl"
DONE = "done"
ALGORITHM = "algorithm.py"
NETWORK = "network.py"
CHECKPOINT = "checkpoint.pt"
PREVIOUS_CHECKPOINT = "checkpoint.previous.pt"
NEW_CHECKPOINT = "checkpoint.new.pt"
CHECKPOINTS = (NEW_CHECKPOINT, CHECKPOINT, PREVIOUS_CHECKPOINT)  # the newest first
MODEL = "model_{}.pt"
LOCK = ".lock"
# Copies of third-party files that the dataset and further criteria come from.
DATASET = "dataset.py"
CRITERION = "criterion_{}.py"

SCHEMA = 1
STATUSES = ("running", "done", "diverged", "failed", "interrupted")
FINISHED = ("done", "diverged")
NEEDED = {"experiment": dict, "config": dict, "status": str}  # without these a description cannot be used
WARNINGS = "notices"  # key in run.json and in checkpoints
# The end of the warning that a method does not use the weights that it was given.
IGNORES_WEIGHTS = "ignores the weights of candidates"

logger = logging.getLogger("plench")


# The keys of run.json, with their meanings. Another version of plench may have written more.
KEYS = {
    "schema": "version of this list of keys",
    "run_id": "the run's identity: a hash of everything that affects its results",
    "protocol": "version of the protocol the numbers belong to",
    "experiment": "what identifies a cell of a table: runs that differ in it are kept apart",
    "config": "the configuration: algorithm, dataset, hyperparameters, settings",
    "algorithm_card": "the algorithm's card, hyperparameters with default and search",
    "algorithm_class": "name of the algorithm's class",
    "algorithm_spec": "name or path of the algorithm; null if it is in algorithm.py",
    "network": "name of a third-party network in network.py",
    "sources": "names of a third-party dataset and criteria in their files",
    "not_repeatable": "reasons why this folder is not enough to repeat the run",
    "dataset": "the dataset's card, fingerprint, sizes of the split, noise rate",
    "status": "running, done, diverged, failed or interrupted",
    "error": "type, message and traceback of a failed run",
    "diverged_after_step": "step of the last record before divergence",
    "state": "what the algorithm keeps besides its weights, with memory",
    "versions": "versions and conditions that exact numbers may depend on",
    "commit": "commit of plench's own checkout",
    "device": "device",
    "threads": "compute threads",
    "timings": "when the run started and was last written; seconds spent",
    "updates": "updates made so far",
    WARNINGS: "warnings",
    "fleet_size": "number of runs in the stack, where there were several",
    "stack": "run_ids of the runs in the stack, in order",
}


# The description of a run, and the mark of a finished one.


def format_keys() -> str:
    """Return the table of keys in Markdown, for docs/run-folder.md."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in KEYS.items()]
    return "\n".join(["| key of run.json | meaning |", "|---|---|", *rows])


def read_description(path: str) -> dict[str, Any]:
    """Return the content of a run.json.

    Raises FileNotFoundError where there is none, ValueError with the reason where it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            content = parse_json(file.read())
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def make_done(folder: Path, names: Iterable[str]) -> bytes:
    """Return the content of `done`: a word, and a line with size and hash of each file."""
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in sorted(names)
    }
    return b"done\n" + json.dumps(files).encode("utf-8") + b"\n"


def read_done(path: str) -> dict[str, dict[str, Any]]:
    """Return size and hash of each file in `done`; empty if it lists none."""
    with open(path, "rb") as file:
        listed = file.read().partition(b"\n")[2]
    files = parse_json(listed) if listed else {}
    if not isinstance(files, dict) or not all(isinstance(known, dict) for known in files.values()):
        raise ValueError("it does not list the files of the run")
    return files


def check_integrity(
    folder: str, info: Mapping[str, Any] | None, steps: int, *, thorough: bool = False
) -> str | None:
    """Return what is wrong with a run that is marked as finished; None if it is complete.

    `info` is its run.json, `steps` its number of updates. Records are compared by hash, models by size, or
    with `thorough` by hash too.
    """
    if info is None:
        return "its run.json is missing or broken"
    status = info.get("status")
    if status not in FINISHED:
        return f"it is marked as done, but its status is {short_repr(status)}"
    name = DONE
    try:
        files = read_done(f"{folder}/{DONE}")
        name = RESULTS
        with open(f"{folder}/{RESULTS}", "rb") as file:
            content = file.read()
        last = info.get("diverged_after_step") if status == "diverged" else steps - 1
        step = None  # a run that diverges at once has no record
        with suppress(ValueError, AttributeError):
            line = parse_json(content[content.rfind(b"\n", 0, -1) + 1 :])
            step = line.get("step") if content.endswith(b"\n") else None
        if step != last:
            return f"its {RESULTS} does not end with the last record"
        for name, known in files.items():
            if os.stat(f"{folder}/{name}").st_size != known.get("bytes"):
                return f"its {name} has another size than at the end of the run"
            source = content if name == RESULTS else Path(folder, name)
            if (thorough or name == RESULTS) and sha256(source) != known.get("sha256"):
                return f"its {name} was changed since the end of the run"
    except FileNotFoundError:
        return f"its {name} is missing"
    except (OSError, ValueError) as error:
        return f"its {name} cannot be read ({getattr(error, 'strerror', None) or error})"
    return None


class RunStore:
    """Reads and writes one run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run against a second process."""
        with hold(self.folder / LOCK, 0, f"another process is working on {self.folder}"):
            for path in self.folder.glob(TEMPORARY.format("*")):  # of a process that was killed
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            yield

    @property
    def finished(self) -> bool:
        """Whether the run is finished (diverged counts as finished)."""
        return (self.folder / DONE).is_file()

    def check_integrity(self, steps: int) -> str | None:
        """Return what is wrong with a finished run of so many steps; None if it is complete."""
        return check_integrity(os.fspath(self.folder), self.read_run(), steps, thorough=True)

    def read_run(self) -> dict[str, Any] | None:
        """Return run.json, or None if it is missing or broken."""
        try:
            return read_description(os.fspath(self.folder / RUN))
        except (FileNotFoundError, ValueError):
            return None

    def write_run(self, content: Mapping[str, Any]) -> None:
        """Write run.json."""
        text = json.dumps(content, indent=1, allow_nan=False)
        self.write_file(RUN, text.encode("utf-8") + b"\n")

    def write_file(self, name: str, content: bytes) -> None:
        """Write a file, completely or not at all."""
        path = self.folder / name
        with attempt(f"write {path}"):
            replace_file(path, lambda temporary: temporary.write_bytes(content))

    def append_record(self, line: str) -> None:
        """Add one record; it is on disk when this returns."""
        path = self.folder / RESULTS
        with attempt(f"write {path}"), path.open("ab") as file:
            file.write(line.encode("utf-8") + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read_checkpoints(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of each checkpoint, the newest first; one that cannot be read is skipped."""
        for name in CHECKPOINTS:
            try:
                yield name, (self.folder / name).read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                logger.warning("%s in %s cannot be read (%s)", name, self.folder, error.strerror or error)

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return any((self.folder / name).is_file() for name in CHECKPOINTS)

    def write_checkpoint(self, content: bytes) -> None:
        """Write a checkpoint, keeping the one before it."""
        self.write_file(NEW_CHECKPOINT, content)
        current = self.folder / CHECKPOINT
        with attempt(f"write {current}"):
            if current.exists():
                os.replace(current, self.folder / PREVIOUS_CHECKPOINT)
            os.replace(self.folder / NEW_CHECKPOINT, current)
            sync_folder(self.folder)

    def discard(self, name: str) -> None:
        """Remove a file that is no longer needed."""
        path = self.folder / name
        with attempt(f"remove {path}"):
            if path.exists():  # on a read-only disk, removing a missing file is an error too
                path.unlink(missing_ok=True)

    def finish(self) -> None:
        """Mark the run as finished, with hashes of its records and models; remove its checkpoints."""
        names = [RESULTS, *(MODEL.format(name) for name in self.list_models())]
        with attempt(f"read the files of {self.folder}"):
            content = make_done(self.folder, names)
        self.write_file(DONE, content)
        self.tidy()

    def tidy(self) -> None:
        """Remove the checkpoints of a finished run."""
        for name in CHECKPOINTS:
            self.discard(name)

    def model_path(self, name: str) -> Path:
        """Return the path of the model for a criterion, `last` or a step."""
        return self.folder / MODEL.format(name)

    def write_model(self, name: str, content: bytes) -> None:
        """Save a model under the name of a criterion, `last` or a step."""
        self.write_file(MODEL.format(name), content)

    def read_model(self, name: str) -> bytes | None:
        """Return the content of a model's file, None if it cannot be read."""
        try:
            return self.model_path(name).read_bytes()
        except OSError:
            return None

    def list_models(self) -> list[str]:
        """Return the names of the saved models."""
        before, after = MODEL.split("{}")
        return [path.name[len(before) : -len(after)] for path in self.folder.glob(MODEL.format("*"))]

    def discard_models(self) -> None:
        """Remove all models."""
        for name in self.list_models():
            self.discard(MODEL.format(name))
