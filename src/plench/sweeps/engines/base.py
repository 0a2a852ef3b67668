"""What a sweep hands to an engine, and the callbacks of an engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from plench.settings import Settings
from plench.sweeps.plan import DataShelf, PlannedRun

# How an attempt at a run ended. Beside the statuses of a run itself: `busy` (another process has it) and
# `unwritable` (the output folder is full or read-only).
AttemptStatus = Literal["done", "diverged", "failed", "interrupted", "busy", "unwritable"]

# Runs that are trained as one, or a single run.
Task = tuple[PlannedRun, ...]

# A run whose process died this often without getting any further is recorded as failed.
DEATHS_ALLOWED = 3


@dataclass(frozen=True)
class RunAttempt:
    """How an attempt at a run ended, and the updates it made.

    `out_of_time`: it is interrupted because the time left would not hold another round.
    """

    status: AttemptStatus
    message: str = ""
    updates_made: int = 0
    seconds: float = 0.0
    out_of_time: bool = False


@dataclass(frozen=True)
class Limits:
    """Limits of a single run: seconds of wall time per attempt, and gigabytes of memory.

    A local worker process that is silent for `worker_silence` seconds is replaced.
    """

    run_timeout: float | None = None
    memory_limit_gb: float | None = None
    worker_silence: float = 120.0


class DeathTolls:
    """Counts how often the process of a task died without the task getting any further.

    A fleet's deaths are its own: none of its runs is to blame for them, so each begins alone with none.
    """

    def __init__(self) -> None:
        self._updates_at_begin: dict[str, int] = {}
        self._deaths: dict[tuple[str, bool], tuple[int, int]] = {}

    def begin(self, folder: str, updates: int = 0) -> None:
        """Note after how many updates a run has begun."""
        self._updates_at_begin[folder] = updates

    def count(self, task: Task) -> int:
        """Count one more death; start over if the task had got further than at the one before."""
        folder = task[0].folder
        key, updates = (folder, len(task) > 1), self._updates_at_begin.get(folder, 0)
        deaths, before = self._deaths.get(key, (0, -1))
        deaths = deaths + 1 if updates <= before else 1
        self._deaths[key] = deaths, updates
        return deaths


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SweepCallback(Protocol):
    """Observes a sweep: a live view, a log."""

    def planned(self, todo: Sequence[PlannedRun], finished: int, slots: int) -> None:
        """These runs will be carried out, `slots` at a time (0: the engine does not say)."""

    def begun(self, run: PlannedRun, updates: int) -> None:
        """Training starts, or continues after `updates` updates."""

    def advanced(self, run: PlannedRun, updates: int) -> None:
        """Some updates were made."""

    def ended(self, run: PlannedRun, attempt: RunAttempt) -> None:
        """An attempt ended."""

    def noticed(self, text: str) -> None:
        """There is a notice for the user."""


class NoSweepCallback:
    """A callback that does nothing."""

    def planned(self, todo: Sequence[PlannedRun], finished: int, slots: int) -> None:
        """Do nothing."""

    def begun(self, run: PlannedRun, updates: int) -> None:
        """Do nothing."""

    def advanced(self, run: PlannedRun, updates: int) -> None:
        """Do nothing."""

    def ended(self, run: PlannedRun, attempt: RunAttempt) -> None:
        """Do nothing."""

    def noticed(self, text: str) -> None:
        """Do nothing."""


@dataclass
class Assignment:
    """Work for an engine: runs that are not finished, their output folder, and how to carry them out."""

    todo: list[PlannedRun]
    finished: int
    output_dir: Path
    shelf: DataShelf
    limits: Limits
    callback: SweepCallback = field(default_factory=NoSweepCallback)
    # The runs of the sweep, finished ones too, in fleets; without any, each run is carried out by itself.
    fleets: Sequence[Task] = ()

    def tasks(self, todo: Sequence[PlannedRun] | None = None) -> list[Task]:
        """Return what is to be done in pieces for one process each: fleets without what is finished."""
        left = {run.folder: run for run in (self.todo if todo is None else todo)}
        found = (tuple(left.pop(run.folder) for run in fleet if run.folder in left) for fleet in self.fleets)
        tasks = [fleet for fleet in found if fleet]
        return tasks + [(run,) for run in left.values()]

    @property
    def settings(self) -> Settings:
        """How the runs are carried out; all runs of a launch have the same device and threads."""
        return self.todo[0].config if self.todo else Settings()


class Engine(Protocol):
    """Carries out an assignment.

    `carry_out` returns when nothing is left to do, or when it was asked to stop (Ctrl-C, SIGTERM). It raises
    StorageError if the output folder cannot be written to. How the runs ended is in their folders.
    """

    name: ClassVar[str]
    # Whether runs have ended when `carry_out` returns; False for engines that hand them to a queue.
    waits: ClassVar[bool]
    # Whether anything is written to the output folder; False for an engine that only shows what it would do.
    writes: ClassVar[bool]

    @property
    def gpus_per_run(self) -> float:
        """How many GPUs the engine gives a run; 0 where it gives none, or a run takes what it finds."""

    def count_slots(self, settings: Settings) -> int | None:
        """Return the number of parallel runs; None where only the cluster knows."""

    def carry_out(self, assignment: Assignment) -> None:
        """Carry out the runs of an assignment."""
