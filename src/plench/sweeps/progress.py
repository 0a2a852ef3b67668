"""How a sweep is shown: a live view on a terminal and in a notebook, a line for each run in a log."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from plench.callbacks import Callback, watch_in_notebook
from plench.sweeps.status import Likeness, Paces
from plench.text import clean_text, counted

if TYPE_CHECKING:  # these import torch, and every command imports this module
    from plench.sweeps.executor import RunAttempt
    from plench.sweeps.plan import PlannedRun
    from plench.training.config import RunConfig

_RUNS_SHOWN = 16
_MESSAGES_SHOWN = 5


@contextmanager
def watch_sweep() -> Iterator[SweepCallback]:
    """Show a sweep on standard error while the block lasts."""
    console = Console(stderr=True)
    view = LiveView()
    if console.is_jupyter:
        with watch_in_notebook(view, view.render) as shown:
            yield shown
        return
    if not console.is_terminal:
        yield SweepLog(lambda line: print(clean_text(line), file=sys.stderr, flush=True))
        return
    with Live(get_renderable=view.render, console=console, refresh_per_second=4):
        yield view


@dataclass(frozen=True)
class RunProgress:
    """A message of a worker: the updates of a run so far; `started` when training starts or resumes."""

    folder: str
    updates: int
    started: bool = False


@dataclass(frozen=True)
class RunReporter(Callback):
    """The callback of a run in a worker: sends its progress to the driver."""

    send: Callable[[RunProgress], object]
    folder: str

    def started(self, config: RunConfig, updates: int) -> None:
        """Training starts."""
        self.send(RunProgress(self.folder, updates, started=True))

    def advanced(self, updates: int, loss: float) -> None:
        """Some updates were made."""
        self.send(RunProgress(self.folder, updates))


class SweepCallback:
    """Observes a sweep; every method does nothing unless a subclass overrides it."""

    def planned(self, todo: Sequence[PlannedRun], finished: int, slots: int) -> None:
        """These runs will be run, `slots` at a time (0: unknown); `finished` have finished before."""

    def started(self, run: PlannedRun, updates: int) -> None:
        """Training starts, or resumes after `updates` updates."""

    def advanced(self, run: PlannedRun, updates: int) -> None:
        """Some updates were made."""

    def ended(self, run: PlannedRun, attempt: RunAttempt) -> None:
        """An attempt ended."""

    def message(self, text: str) -> None:
        """There is a message for the user."""


class Tally(SweepCallback):
    """Counts ended and running runs, and estimates rate and time left.

    Updates are counted by `Likeness` and weighted by `Paces`: a round of a fitted method is not like a step.
    """

    def __init__(self) -> None:
        self.todo = 0
        self.finished_before = 0
        self.slots = 0
        self.updates_left: Counter[Likeness] = Counter()
        self.updates_made: Counter[Likeness] = Counter()
        self.paces = Paces()
        self.ended_runs: Counter[str] = Counter()
        self.current: dict[str, tuple[PlannedRun, int, int]] = {}
        self.launched_at = time.monotonic()

    def planned(self, todo: Sequence[PlannedRun], finished: int, slots: int) -> None:
        """Start counting."""
        self.todo, self.finished_before, self.slots = len(todo), finished, slots
        self.updates_left.clear()
        for run in todo:
            self.updates_left[Paces.likeness(run.config)] += run.config.steps
        self.launched_at = time.monotonic()

    def started(self, run: PlannedRun, updates: int) -> None:
        """A run starts after `updates` updates of an earlier attempt."""
        self.current[run.folder] = (run, updates, updates)

    def advanced(self, run: PlannedRun, updates: int) -> None:
        """A run got further."""
        if run.folder in self.current:
            self.current[run.folder] = (run, self.current[run.folder][1], updates)

    def ended(self, run: PlannedRun, attempt: RunAttempt) -> None:
        """An attempt ended; an interrupted run is still to do."""
        _, first, last = self.current.pop(run.folder, (run, 0, 0))
        likeness = Paces.likeness(run.config)
        if attempt.status == "done":
            last = run.config.steps
        self.updates_made[likeness] += last - first
        if attempt.updates_made and attempt.seconds:
            self.paces.add(likeness, attempt.updates_made, attempt.seconds)
        if attempt.status != "interrupted":
            self.ended_runs[attempt.status] += 1
            self.updates_left[likeness] -= run.config.steps

    @property
    def n_ended(self) -> int:
        """How many runs have ended in this launch."""
        return self.ended_runs.total()

    def seconds_left(self) -> float | None:
        """Estimate the time left from the updates made so far; None while too little is known.

        Before any attempt has ended, all updates weigh the same if they are of one kind.
        """
        made, left = self.updates_made.copy(), self.updates_left.copy()
        for run, first, now in self.current.values():
            made[Paces.likeness(run.config)] += now - first
            left[Paces.likeness(run.config)] -= now
        kinds = {kind for _, _, kind in (*made, *left)}
        unknown = 1.0 if len(kinds) == 1 and not self.paces.totals else None
        paces = {key: self.paces.find(key) or unknown for key in {*made, *left}}
        # Updates of failed runs, whose pace is unknown, do not count.
        work = sum(count * (paces[key] or 0.0) for key, count in made.items())
        rest = [(count, paces[key]) for key, count in left.items() if count > 0]
        if work <= 0 or any(pace is None for _, pace in rest):
            return None
        return (
            sum(count * (pace or 0.0) for count, pace in rest) * (time.monotonic() - self.launched_at) / work
        )

    def summary(self) -> str:
        """Return all figures in one line."""
        failed = sum(self.ended_runs[status] for status in ("failed", "busy"))
        rate = 60 * self.n_ended / max(time.monotonic() - self.launched_at, 1e-9)
        left = self.seconds_left()
        remaining = "" if left is None else f", {format_duration(left)} left"
        return (
            f"{self.n_ended}/{self.todo} ended, {len(self.current)} running, {failed} failed, "
            f"{rate:.1f} runs/min{remaining}"
        )


class SweepLog(Tally):
    """Writes a line for each run that ends."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self.write = write

    def message(self, text: str) -> None:
        """Write a message."""
        self.write(text)

    def planned(self, todo: Sequence[PlannedRun], finished: int, slots: int) -> None:
        """Write how many runs there are to do."""
        super().planned(todo, finished, slots)
        at_once = f", {slots} at a time" if slots else ""
        self.write(f"{counted(len(todo), 'run')} to do{at_once}; {finished} finished before")

    def ended(self, run: PlannedRun, attempt: RunAttempt) -> None:
        """Write how a run ended."""
        super().ended(run, attempt)
        reason = f": {attempt.message}" if attempt.message and attempt.status != "done" else ""
        self.write(f"{attempt.status} {run.label} ({attempt.seconds:.1f} s){reason} · {self.summary()}")


class LiveView(Tally):
    """Totals, a bar, the runs in progress and the latest messages, redrawn four times a second."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def ended(self, run: PlannedRun, attempt: RunAttempt) -> None:
        """Count a run; a failure is shown below."""
        super().ended(run, attempt)
        if attempt.status not in ("done", "interrupted"):
            self.message(f"{attempt.status} {run.label}: {attempt.message}")

    def message(self, text: str) -> None:
        """Keep the latest messages."""
        first = next(iter(text.splitlines()), "")
        self.messages = [*self.messages, clean_text(first)][-_MESSAGES_SHOWN:]

    def render(self) -> Group:
        """Draw the view."""
        if not self.todo:
            return Group(Text("preparing …"))
        total = Table.grid()  # a bar alone does not end its line
        total.add_row(ProgressBar(total=max(self.todo, 1), completed=self.n_ended, width=60))
        runs = Table.grid(padding=(0, 2))
        for run, _, updates in list(self.current.values())[:_RUNS_SHOWN]:
            bar = ProgressBar(total=run.config.steps, completed=updates, width=24)
            runs.add_row(run.label, bar, f"{updates:,}/{run.config.steps:,}")
        if len(self.current) > _RUNS_SHOWN:
            runs.add_row(f"… and {len(self.current) - _RUNS_SHOWN} more")
        return Group(
            Text(f"{self.summary()} (finished before: {self.finished_before})"),
            total,
            runs,
            *(Text(text, overflow="ellipsis", no_wrap=True, style="yellow") for text in self.messages),
        )


def format_duration(seconds: float) -> str:
    """Format a duration: 45 s, 12 min, 3.5 h, 2.1 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
