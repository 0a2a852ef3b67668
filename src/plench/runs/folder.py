"""The folder of one run: records, checkpoint, description. Every write is whole or not at all."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from plench.errors import BusyError, StorageError
from plench.plain_files import is_plain, read_plain
from plench.runs.description import DescriptionError, read_description
from plench.runs.ended import DONE, RESULTS, find_breach, make_done
from plench.runs.files import make_temporary

RUN = "run.json"
ALGORITHM = "algorithm.py"
NETWORK = "network.py"
CHECKPOINT = "checkpoint.pt"
PREVIOUS_CHECKPOINT = "checkpoint.previous.pt"
NEW_CHECKPOINT = "checkpoint.new.pt"
CHECKPOINTS = (NEW_CHECKPOINT, CHECKPOINT, PREVIOUS_CHECKPOINT)  # the newest first
MODEL = "model_{}.pt"
LOCK = ".lock"
MAX_CHECKPOINT_BYTES = 2**36
MAX_SOURCE_BYTES = 2**20


logger = logging.getLogger("plench")


class RunStore:
    """Reads and writes one run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run against a second process. The lock dies with its process."""
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(parents=True, exist_ok=True)
                _sync_folder(self.folder.parent)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise StorageError(f"cannot write to {self.folder}: {reason}") from error
        with hold(self.folder / LOCK, 0, f"another process is working on {self.folder}"):
            self._sweep_up()
            yield

    @property
    def finished(self) -> bool:
        """Whether the run has ended (diverged counts as ended)."""
        return is_plain(self.folder / DONE)

    def find_breach(self, steps: int) -> str | None:
        """Say what is wrong with a run that has ended after so many steps; None if it is whole."""
        return find_breach(os.fspath(self.folder), self.read_run(), steps, thorough=True)

    def read_run(self) -> dict[str, Any] | None:
        """Return run.json, or None if there is none or it is broken."""
        try:
            return read_description(os.fspath(self.folder / RUN))
        except (FileNotFoundError, DescriptionError):
            return None

    def write_run(self, content: Mapping[str, Any]) -> None:
        """Write run.json."""
        text = json.dumps(content, indent=1, allow_nan=False)
        self.write_file(RUN, text.encode("utf-8") + b"\n")

    def write_file(self, name: str, content: bytes) -> None:
        """Write a file under a temporary name, then give it its own."""
        path = self.folder / name
        temporary = None
        try:
            descriptor, temporary = make_temporary(path)
            _write_whole(descriptor, content)
            os.replace(temporary, path)
            _sync_folder(self.folder)
        except OSError as error:
            if temporary is not None:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)  # what is half written only takes room on a full disk
            raise StorageError(f"cannot write {path}: {error.strerror}") from error

    def append_record(self, line: str) -> None:
        """Add one record; it is on disk when this returns."""
        path = self.folder / RESULTS
        flags = (
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        )
        try:
            _write_whole(os.open(path, flags, 0o666), line.encode("utf-8") + b"\n")
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}") from error

    def rewrite_records(self, lines: Sequence[str]) -> None:
        """Replace all records."""
        self.write_file(RESULTS, "".join(line + "\n" for line in lines).encode("utf-8"))

    def read_checkpoints(self) -> Iterator[tuple[str, bytes]]:
        """Yield the checkpoints there are, the newest first; what cannot be read is passed over."""
        for name in CHECKPOINTS:
            try:
                yield name, read_plain(self.folder / name, MAX_CHECKPOINT_BYTES)
            except FileNotFoundError:
                continue
            except OSError as error:
                logger.warning("%s in %s cannot be read (%s)", name, self.folder, error.strerror or error)

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return any(is_plain(self.folder / name) for name in CHECKPOINTS)

    def write_checkpoint(self, content: bytes) -> None:
        """Write a checkpoint, keeping the one before it."""
        self.write_file(NEW_CHECKPOINT, content)
        current = self.folder / CHECKPOINT
        try:
            if current.exists():
                os.replace(current, self.folder / PREVIOUS_CHECKPOINT)
            os.replace(self.folder / NEW_CHECKPOINT, current)
            _sync_folder(self.folder)
        except OSError as error:
            raise StorageError(f"cannot write {current}: {error.strerror}") from error

    def discard(self, name: str) -> None:
        """Remove a file that is of no use."""
        path = self.folder / name
        try:
            if os.path.lexists(path):  # on a read-only disk, removing what is not there is an error too
                path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot remove {path}: {error.strerror}") from error

    def finish(self) -> None:
        """Mark the run as ended, with hashes of its records and models; remove what only resuming needs."""
        names = [RESULTS, *(MODEL.format(name) for name in self.list_models())]
        try:
            content = make_done(self.folder, names)
        except OSError as error:
            raise StorageError(f"cannot read {error.filename}: {error.strerror}") from error
        self.write_file(DONE, content)
        self.tidy()

    def tidy(self) -> None:
        """Remove from a finished run what only resuming needs."""
        for name in CHECKPOINTS:
            self.discard(name)

    def write_model(self, name: str, content: bytes) -> None:
        """Keep a model under the name of a criterion, `last` or a step."""
        self.write_file(MODEL.format(name), content)

    def model_path(self, name: str) -> Path:
        """Return where a model is kept."""
        return self.folder / MODEL.format(name)

    def read_model(self, name: str) -> bytes | None:
        """Return the content of a model's file, None if it cannot be read."""
        try:
            return read_plain(self.model_path(name), MAX_CHECKPOINT_BYTES)
        except OSError:
            return None

    def list_models(self) -> list[str]:
        """Return the names of the models that are kept."""
        before, after = MODEL.split("{}")
        return [path.name[len(before) : -len(after)] for path in self.folder.glob(MODEL.format("*"))]

    def read_sources(self) -> dict[str, bytes]:
        """Return the code of third parties that the run keeps, by file name."""
        names = [name for name in (ALGORITHM, NETWORK) if is_plain(self.folder / name)]
        return {name: read_plain(self.folder / name, MAX_SOURCE_BYTES) for name in names}

    def discard_models(self) -> None:
        """Remove the models of a run that is to keep none."""
        for name in self.list_models():
            self.discard(MODEL.format(name))

    def _sweep_up(self) -> None:
        """Remove temporary files that a killed process has left; nobody else writes here meanwhile."""
        for path in self.folder.glob(".*.tmp"):
            if not path.is_dir() or path.is_symlink():
                with suppress(OSError):
                    path.unlink(missing_ok=True)


@contextmanager
def hold(lock: Path, patience: float, busy: str) -> Iterator[None]:
    """Hold a lock file; raise BusyError with the given text if another process holds it."""
    try:
        if lock.is_symlink():  # opening it would empty the file that it points to
            raise OSError(errno.ELOOP, f"{lock.name} is a link")
        held = FileLock(lock, timeout=patience)
        held.acquire()
    except Timeout:
        raise BusyError(busy) from None
    except OSError as error:
        raise StorageError(f"cannot write to {lock.parent}: {error.strerror}") from error
    try:
        yield
    finally:
        held.release()


def _write_whole(descriptor: int, content: bytes) -> None:
    """Write to an open file and close it; the content is on disk when this returns."""
    with os.fdopen(descriptor, "wb") as file:
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
