"""Between a Ray task and the output folder: the writer, and a store that calls it. Needs no torch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from plench.errors import StorageError
from plench.runs.folder import RunStore
from plench.sweeps.progress import RunProgress

CRASHED = "the process that writes the results has crashed"
_SECONDS_BETWEEN_WRITES = 1.0
_SENT_AT_MOST = 16


class Opened(NamedTuple):
    """A token for an attempt to write with, and what its folder holds, newest checkpoint first."""

    token: int
    finished: bool
    run: dict[str, Any] | None
    checkpoints: list[tuple[str, bytes]]


@dataclass
class OpenRun:
    """A run that an attempt is working on."""

    store: RunStore
    held: ExitStack = field(default_factory=ExitStack)
    token: int = 0


class Writer:
    """Writes the results of all runs, one call at a time. Runs as an actor on the driver's machine."""

    def __init__(self) -> None:
        self._open: dict[str, OpenRun] = {}
        self._events: list[str | RunProgress] = []
        self._tokens = 0

    def open(self, folder: Path) -> Opened:
        """Open a run for a new attempt; what an earlier one still sends has an old token and is refused."""
        if folder.name not in self._open:
            opened = OpenRun(RunStore(folder))
            opened.held.enter_context(opened.store.locked())
            self._open[folder.name] = opened
        self._tokens += 1
        self._open[folder.name].token = self._tokens
        self._events.append(folder.name)
        store = self._open[folder.name].store
        return Opened(self._tokens, store.finished, store.read_run(), list(store.read_checkpoints()))

    def write(self, name: str, token: int, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        """Call writing methods of the store for the attempt that has locked the run."""
        opened = self._open.get(name)
        if opened is None or opened.token != token:
            raise StorageError(f"{name} belongs to another attempt")
        for method, arguments in calls:
            getattr(opened.store, method)(*arguments)

    def read_model(self, name: str, model: str) -> bytes | None:
        """Return the content of a model's file."""
        return self._open[name].store.read_model(model)

    def release(self, name: str, token: int | None = None) -> None:
        """Unlock a run at the end of the attempt with this token, or of any."""
        if name in self._open and token in (None, self._open[name].token):
            self._open.pop(name).held.close()

    def report(self, progress: RunProgress) -> None:
        """Keep progress for the driver."""
        self._events.append(progress)

    def take_events(self) -> list[str | RunProgress]:
        """Return what happened since the last call: names of opened runs, and progress."""
        events, self._events = self._events, []
        return events


class RemoteStore(RunStore):
    """A run's folder on the driver's machine, as a task sees it: `folder` may not exist on the task's node.

    Writes are sent in order without waiting for each, and writes within a second are sent together.
    Checkpoints, `done` and the end of the attempt wait until everything before them is on disk. What a
    process has not sent when it crashes is written again by the attempt that resumes from the checkpoint.
    """

    def __init__(self, writer: Any, folder: Path) -> None:
        super().__init__(folder)
        self._writer = writer
        self._opened = Opened(0, False, None, [])
        self._kept: list[tuple[str, tuple[Any, ...]]] = []
        self._sent: list[Any] = []
        self._sent_at = -math.inf

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run and fetch what is in its folder."""
        self._opened = self._wait(self._writer.open.remote(self.folder))
        try:
            yield
            self._flush()
        finally:
            self._writer.release.remote(self.folder.name, self._opened.token)
            self._opened, self._kept, self._sent = Opened(0, False, None, []), [], []

    @property
    def finished(self) -> bool:
        """Whether the run had ended when it was locked (before that it is not known)."""
        return self._opened.finished

    def check_integrity(self, steps: int) -> str | None:
        """Return None: finished runs were checked before the task was submitted."""
        return None

    @property
    def has_checkpoint(self) -> bool:
        """Whether there was a checkpoint when the run was locked."""
        return bool(self._opened.checkpoints)

    def read_run(self) -> dict[str, Any] | None:
        """Return run.json as it was when the run was locked."""
        return self._opened.run

    def read_checkpoints(self) -> Iterator[tuple[str, bytes]]:
        """Yield the checkpoints that were there when the run was locked, the newest first."""
        yield from self._opened.checkpoints

    def read_model(self, name: str) -> bytes | None:
        """Return the content of a model's file, after all that was written."""
        self._flush()
        content: bytes | None = self._wait(self._writer.read_model.remote(self.folder.name, name))
        return content

    def write_file(self, name: str, content: bytes) -> None:
        """Write a file."""
        self._send("write_file", name, content)

    def append_record(self, line: str) -> None:
        """Add one record."""
        self._send("append_record", line)

    def discard(self, name: str) -> None:
        """Remove a file that is no longer needed."""
        self._send("discard", name)

    def discard_models(self) -> None:
        """Remove all models."""
        self._send("discard_models")

    def write_checkpoint(self, content: bytes) -> None:
        """Write a checkpoint, keeping the one before it."""
        self._send("write_checkpoint", content)
        self._flush()

    def finish(self) -> None:
        """Mark the run as ended, after all it wrote."""
        self._send("finish")
        self._flush()

    def _send(self, method: str, *arguments: Any) -> None:
        self._kept.append((method, arguments))
        if time.monotonic() - self._sent_at > _SECONDS_BETWEEN_WRITES:
            self._flush(wait=len(self._sent) + 1 >= _SENT_AT_MOST)

    def _flush(self, wait: bool = True) -> None:
        """Send what was kept back; wait until everything is on disk."""
        if self._kept:
            calls, self._kept = self._kept, []
            self._sent.append(self._writer.write.remote(self.folder.name, self._opened.token, calls))
            self._sent_at = time.monotonic()
        if wait:
            sent, self._sent = self._sent, []
            self._wait(sent)

    def _wait(self, answers: Any) -> Any:
        import ray

        try:
            return ray.get(answers)
        except ray.exceptions.RayActorError as error:
            raise StorageError(CRASHED) from error
