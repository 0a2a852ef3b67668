"""The two ends of the line between a Ray task and the output folder: the writer and a store that calls it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plench.errors import BusyError, StorageError
from plench.results.store import RunStore
from plench.training.config import RunConfig

_SECONDS_BETWEEN_EVENTS = 0.5


@dataclass
class OpenRun:
    """A run that an attempt has in hand."""

    token: int
    store: RunStore
    held: ExitStack = field(default_factory=ExitStack)


class Writer:
    """Writes the results of all runs, one call at a time. Runs as an actor on the driver's machine."""

    def __init__(self) -> None:
        self._open: dict[str, OpenRun] = {}
        self._events: list[tuple[str, int, str]] = []
        self._tokens = 0

    def peek(self, folder: Path) -> tuple[bool, dict[str, Any] | None]:
        """Return whether a run is finished, and its run.json."""
        store = RunStore(folder)
        return store.finished, store.read_run()

    def tidy(self, folder: Path) -> None:
        """Remove from a finished run what only resuming needs."""
        RunStore(folder).tidy()

    def open(self, folder: Path) -> tuple[int, list[tuple[str, bytes]]]:
        """Give a run to a new attempt: a token to write with, and the checkpoints there are, newest first.

        What an earlier attempt still sends bears an old token and is refused.
        """
        self._tokens += 1
        name = folder.name
        if name in self._open:
            self._open[name].token = self._tokens
        else:
            opened = OpenRun(self._tokens, RunStore(folder))
            opened.held.enter_context(opened.store.locked())
            self._open[name] = opened
        self._events.append((name, 0, "opened"))
        return self._tokens, list(self._open[name].store.read_checkpoints())

    def write(self, name: str, token: int, method: str, *arguments: Any) -> None:
        """Carry out one of the store's writing methods for the attempt that has the run in hand."""
        opened = self._open.get(name)
        if opened is None or opened.token != token:
            raise BusyError(f"{name} was given to another attempt")
        getattr(opened.store, method)(*arguments)

    def close(self, name: str, token: int) -> None:
        """Let go of a run at the end of an attempt."""
        if name in self._open and self._open[name].token == token:
            self.release(name)

    def release(self, name: str) -> None:
        """Let go of a run whose attempt is gone."""
        opened = self._open.pop(name, None)
        if opened is not None:
            opened.held.close()

    def tell(self, name: str, updates: int, kind: str) -> None:
        """Take a note for the driver."""
        self._events.append((name, updates, kind))

    def take_events(self) -> list[tuple[str, int, str]]:
        """Hand the notes to the driver."""
        events, self._events = self._events, []
        return events


class RemoteStore(RunStore):
    """A run's folder on the driver's machine, as a task sees it; a write returns when it is on disk there."""

    def __init__(self, writer: Any, folder: Path) -> None:
        super().__init__(folder)
        self._writer = writer
        self._token = 0
        self._checkpoints: list[tuple[str, bytes]] = []

    def _ask(self, method: str, *arguments: Any) -> Any:
        import ray

        try:
            return ray.get(getattr(self._writer, method).remote(*arguments))
        except ray.exceptions.RayActorError as error:
            raise StorageError("the process that writes the results has died") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run and fetch its checkpoints."""
        self._token, self._checkpoints = self._ask("open", self.folder)
        try:
            yield
        finally:
            self._checkpoints = []
            with suppress(StorageError):
                self._ask("close", self.folder.name, self._token)

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        finished: bool = self._ask("peek", self.folder)[0]
        return finished

    def read_run(self) -> dict[str, Any] | None:
        """Return run.json, or None if there is none or it is broken."""
        run: dict[str, Any] | None = self._ask("peek", self.folder)[1]
        return run

    def _write(self, method: str, *arguments: Any) -> None:
        self._ask("write", self.folder.name, self._token, method, *arguments)

    def write_file(self, name: str, content: bytes) -> None:
        """Write a file."""
        self._write("write_file", name, content)

    def discard(self, name: str) -> None:
        """Remove a file that is of no use."""
        self._write("discard", name)

    def discard_models(self) -> None:
        """Remove the models of a run that is to keep none."""
        self._write("discard_models")

    def tidy(self) -> None:
        """Remove from a finished run what only resuming needs."""
        self._ask("tidy", self.folder)

    def append_record(self, line: str) -> None:
        """Add one record."""
        self._write("append_record", line)

    def rewrite_records(self, lines: Sequence[str]) -> None:
        """Replace all records."""
        self._write("rewrite_records", list(lines))

    def read_checkpoints(self) -> Iterator[tuple[str, bytes]]:
        """Yield the checkpoints that were there when the run was taken in hand, the newest first."""
        yield from self._checkpoints

    def write_checkpoint(self, content: bytes) -> None:
        """Write a checkpoint, keeping the one before it."""
        self._write("write_checkpoint", content)

    def finish(self) -> None:
        """Mark the run as ended."""
        self._write("finish")


class RemoteReporter:
    """Tells the driver, through the writer, how the run goes on; nothing waits for it."""

    def __init__(self, writer: Any, name: str) -> None:
        self._writer = writer
        self._name = name
        self._told_at = 0.0

    def started(self, config: RunConfig, updates: int) -> None:
        """Training starts."""
        self._writer.tell.remote(self._name, updates, "begun")

    def advanced(self, updates: int, loss: float) -> None:
        """Some updates were made."""
        now = time.monotonic()
        if now - self._told_at >= _SECONDS_BETWEEN_EVENTS:
            self._told_at = now
            self._writer.tell.remote(self._name, updates, "advanced")

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Records have a way of their own."""
