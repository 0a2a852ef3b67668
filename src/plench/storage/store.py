"""The folder of one run: records, checkpoint, description. Every write is whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from plench.errors import BusyError, StorageError
from plench.storage.description import DescriptionError, read_description

RESULTS = "results.jsonl"
RUN = "run.json"
DONE = "done"
ALGORITHM = "algorithm.py"
NETWORK = "network.py"
CHECKPOINT = "checkpoint.pt"
PREVIOUS_CHECKPOINT = "checkpoint.previous.pt"
NEW_CHECKPOINT = "checkpoint.new.pt"
MODEL = "model_{}.pt"
LOCK = ".lock"


class RunStore:
    """Reads and writes one run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run: a second process that wants it is told so. A killed process lets go by itself."""
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(parents=True, exist_ok=True)
                _sync_folder(self.folder.parent)
            lock = FileLock(self.folder / LOCK, timeout=0)
            lock.acquire()
        except Timeout:
            raise BusyError(f"another process is working on {self.folder}") from None
        except OSError as error:
            raise StorageError(f"cannot write to {self.folder}: {error.strerror}") from error
        try:
            yield
        finally:
            lock.release()

    @property
    def finished(self) -> bool:
        """Whether the run has ended (diverged counts as ended)."""
        return (self.folder / DONE).exists()

    def read_run(self) -> dict[str, Any] | None:
        """Return run.json, or None if there is none or it is broken."""
        try:
            return read_description(os.fspath(self.folder / RUN))[0]
        except (FileNotFoundError, DescriptionError):
            return None

    def write_run(self, content: Mapping[str, Any]) -> None:
        """Write run.json."""
        text = json.dumps(content, indent=1, allow_nan=False)
        self.write_file(RUN, text.encode("utf-8") + b"\n")

    def write_file(self, name: str, content: bytes) -> None:
        """Write a file under a temporary name, then give it its own."""
        path = self.folder / name
        temporary = path.with_name(f".{name}.tmp")
        try:
            _write_whole(temporary, "wb", content)
            os.replace(temporary, path)
            _sync_folder(self.folder)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)  # what is half written only takes room on a full disk
            raise StorageError(f"cannot write {path}: {error.strerror}") from error

    def append_record(self, line: str) -> None:
        """Add one record; it is on disk when this returns."""
        path = self.folder / RESULTS
        try:
            _write_whole(path, "ab", line.encode("utf-8") + b"\n")
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}") from error

    def rewrite_records(self, lines: Sequence[str]) -> None:
        """Replace all records."""
        self.write_file(RESULTS, "".join(line + "\n" for line in lines).encode("utf-8"))

    def read_checkpoints(self) -> Iterator[tuple[str, bytes]]:
        """Yield the checkpoints there are, the newest first."""
        for name in (NEW_CHECKPOINT, CHECKPOINT, PREVIOUS_CHECKPOINT):
            path = self.folder / name
            if path.exists():
                yield name, path.read_bytes()

    def write_checkpoint(self, content: bytes) -> None:
        """Write a checkpoint, keeping the one before it."""
        self.write_file(NEW_CHECKPOINT, content)
        current = self.folder / CHECKPOINT
        if current.exists():
            os.replace(current, self.folder / PREVIOUS_CHECKPOINT)
        os.replace(self.folder / NEW_CHECKPOINT, current)
        _sync_folder(self.folder)

    def discard(self, name: str) -> None:
        """Remove a file that is of no use."""
        (self.folder / name).unlink(missing_ok=True)

    def finish(self) -> None:
        """Mark the run as ended and remove what only resuming needs."""
        self.write_file(DONE, b"done\n")
        self.tidy()

    def tidy(self) -> None:
        """Remove from a finished run what only resuming needs."""
        for name in (NEW_CHECKPOINT, CHECKPOINT, PREVIOUS_CHECKPOINT):
            self.discard(name)

    def write_model(self, name: str, content: bytes) -> None:
        """Keep a model under the name of a criterion, `last` or a step."""
        self.write_file(MODEL.format(name), content)

    def model_path(self, name: str) -> Path:
        """Return where a model is kept."""
        return self.folder / MODEL.format(name)

    def list_models(self) -> list[str]:
        """Return the names of the models that are kept."""
        before, after = MODEL.split("{}")
        return [path.name[len(before) : -len(after)] for path in self.folder.glob(MODEL.format("*"))]

    def discard_models(self) -> None:
        """Remove the models of a run that is to keep none."""
        for name in self.list_models():
            self.discard(MODEL.format(name))


def _write_whole(path: Path, mode: str, content: bytes) -> None:
    """Write or append; the content is on disk when this returns."""
    with open(path, mode) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Let the names in a folder survive a power cut; Windows cannot be asked for it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
