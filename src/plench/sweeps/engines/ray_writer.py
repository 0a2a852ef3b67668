"""Between a Ray task and the output folder: the writer, and a store that calls it. Needs no torch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plench.errors import StorageError
from plench.runs.folder import RunStore

if TYPE_CHECKING:  # imports torch, which the writer's process does not need
    from plench.training.config import RunConfig

SECONDS_BETWEEN_EVENTS = 0.5
_SECONDS_BETWEEN_WRITES = 1.0
_SENT_AT_MOST = 16


@dataclass(frozen=True)
class Opened:
    """A token for an attempt to write with, and what its folder holds, newest checkpoint first."""

    token: int
    finished: bool
    run: dict[str, Any] | None
    checkpoints: list[tuple[str, bytes]]


@dataclass
class OpenRun:
    """A run that an attempt is working on."""

    token: int
    store: RunStore
    held: ExitStack = field(default_factory=ExitStack)


class Writer:
    """Writes the results of all runs, one call at a time. Runs as an actor on the driver's machine."""

    def __init__(self) -> None:
        self._open: dict[str, OpenRun] = {}
        self._events: list[tuple[str, int, str]] = []
        self._tokens = 0

    def open(self, folder: Path) -> Opened:
        """Open a run for a new attempt; what an earlier one still sends has an old token and is refused."""
        self._tokens += 1
        name = folder.name
        if name in self._open:
            self._open[name].token = self._tokens
        else:
            opened = OpenRun(self._tokens, RunStore(folder))
            opened.held.enter_context(opened.store.locked())
            self._open[name] = opened
        self._events.append((name, 0, "opened"))
        store = self._open[name].store
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

    def close(self, name: str, token: int) -> None:
        """Unlock a run at the end of an attempt."""
        if name in self._open and self._open[name].token == token:
            self.release(name)

    def release(self, name: str) -> None:
        """Unlock a run whose attempt is gone."""
        opened = self._open.pop(name, None)
        if opened is not None:
            opened.held.close()

    def tell(self, name: str, updates: int, kind: str) -> None:
        """Keep an event for the driver."""
        self._events.append((name, updates, kind))

    def take_events(self) -> list[tuple[str, int, str]]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events


class RemoteStore(RunStore):
    """A run's folder on the driver's machine, as a task sees it.

    Writes are sent in order without waiting for each, and writes within a second are sent together.
    Checkpoints, `done` and the end of the attempt wait until everything before them is on disk. What a
    process has not sent when it crashes is written again by the attempt that resumes from the checkpoint.
    """

    def __init__(self, writer: Any, folder: Path) -> None:
        super().__init__(folder)
        self._writer = writer
        self._opened: Opened | None = None
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
            self._writer.close.remote(self.folder.name, self._opened.token)
            self._opened, self._kept, self._sent = None, [], []

    @property
    def finished(self) -> bool:
        """Whether the run had ended when it was locked (before that it is not known)."""
        return self._opened is not None and self._opened.finished

    def check_integrity(self, steps: int) -> str | None:
        """Return None: finished runs were checked before the task was submitted."""
        return None

    @property
    def has_checkpoint(self) -> bool:
        """Whether there was a checkpoint when the run was locked."""
        return self._opened is not None and bool(self._opened.checkpoints)

    def read_run(self) -> dict[str, Any] | None:
        """Return run.json as it was when the run was locked."""
        return None if self._opened is None else self._opened.run

    def read_checkpoints(self) -> Iterator[tuple[str, bytes]]:
        """Yield the checkpoints that were there when the run was locked, the newest first."""
        if self._opened is not None:
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
            self._send_kept()
            if len(self._sent) >= _SENT_AT_MOST:
                self._flush()

    def _send_kept(self) -> None:
        """Send what was kept back."""
        assert self._opened is not None
        calls, self._kept = self._kept, []
        if calls:
            self._sent.append(self._writer.write.remote(self.folder.name, self._opened.token, calls))
            self._sent_at = time.monotonic()

    def _flush(self) -> None:
        """Wait until everything is on disk."""
        self._send_kept()
        sent, self._sent = self._sent, []
        self._wait(sent)

    def _wait(self, answers: Any) -> Any:
        import ray

        try:
            return ray.get(answers)
        except ray.exceptions.RayActorError as error:
            raise StorageError("the process that writes the results has crashed") from error


class RemoteReporter:
    """Reports the run's progress to the driver, through the writer, without waiting."""

    def __init__(self, writer: Any, name: str) -> None:
        self._writer = writer
        self._name = name
        self._reported_at = 0.0

    def started(self, config: RunConfig, updates: int) -> None:
        """Training starts."""
        self._writer.tell.remote(self._name, updates, "started")

    def advanced(self, updates: int, loss: float) -> None:
        """Some updates were made."""
        now = time.monotonic()
        if now - self._reported_at >= SECONDS_BETWEEN_EVENTS:
            self._reported_at = now
            self._writer.tell.remote(self._name, updates, "advanced")

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Do nothing: records are sent by the store."""
