"""The runs of a fleet: each is locked and built as if alone, and all start from a common step."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from plench.algorithms import AlgorithmEntry
from plench.algorithms.base import LossAlgorithm
from plench.data import Dataset
from plench.errors import BusyError, PlenchError
from plench.runs.folder import RunStore
from plench.training.callbacks import Callback
from plench.training.checkpoint import read_whole
from plench.training.config import RunConfig
from plench.training.fleet.stack import StackError
from plench.training.outcome import RunOutcome, Status, find_fault, leave_finished
from plench.training.prepare import PreparedData
from plench.training.run import TrainingRun, take_up

logger = logging.getLogger("plench")


@dataclass(frozen=True)
class FleetTask:
    """One run of a fleet: what it is, where it is kept, whom to tell; `ended` is called once, at its end."""

    config: RunConfig
    entry: AlgorithmEntry
    store: RunStore
    callback: Callback
    prepare: Callable[[], PreparedData]
    ended: Callable[[RunOutcome | Exception], None]


@dataclass(frozen=True)
class Left:
    """A run that is to be carried out alone, and why, for its notices."""

    task: FleetTask
    reasons: tuple[str, ...] = ()


def set_aside(task: FleetTask, error: BaseException) -> Left:
    """Leave a run that could not be begun to itself: there it may do well, or tells what is wrong."""
    reason = f"it could not be begun among runs trained as one ({type(error).__name__}: {error})"
    logger.warning("%s: %s; it is carried out alone", task.config.algorithm, reason, exc_info=error)
    return Left(task, (reason,))


class Member:
    """A run of a fleet, with its folder locked and its checkpoints looked at.

    Of these it keeps after how many updates each was written, and by which fleet: the checkpoints of all
    members at once would take more memory than the fleet.
    """

    def __init__(self, task: FleetTask, run: TrainingRun, held: ExitStack) -> None:
        self.task = task
        self.run = run
        self.held = held
        self.checkpoints: dict[int, str] = {}
        for checkpoint in read_whole(run.store):
            try:
                run.check_conditions(checkpoint)
            except PlenchError:
                if not self.checkpoints:
                    raise
                break  # the newest one will do
            self.checkpoints.setdefault(checkpoint["updates"], checkpoint.get("fleet", ""))

    @property
    def algorithm(self) -> LossAlgorithm:
        """The run's algorithm, whose weights and state are slices of the stack."""
        assert isinstance(self.run.algorithm, LossAlgorithm)
        return self.run.algorithm

    def begin(self, updates: int) -> None:
        """Build the run, and continue from its checkpoint after so many updates."""
        self.run.build()
        with self.run.streams.ambient("algorithm"):
            self.run.begin(self.read_checkpoint(updates) if updates in self.checkpoints else None)

    def read_checkpoint(self, updates: int) -> dict[str, Any]:
        """Return the checkpoint that was written after so many updates."""
        for checkpoint in read_whole(self.run.store):
            if checkpoint["updates"] == updates:
                return checkpoint
        raise StackError(f"its checkpoint after {updates} updates can no longer be read")

    def end(self, outcome: RunOutcome | Exception) -> None:
        """Unlock the run and report how it ended."""
        try:
            self.held.close()
        except PlenchError as error:  # what it had written has not arrived
            outcome = error
        self.task.ended(outcome)

    def conclude(self, status: Status) -> None:
        """End the run with a status."""
        try:
            outcome: RunOutcome | Exception = self.run.conclude(status)
        except Exception as error:
            outcome = error
        self.end(outcome)


def open_member(task: FleetTask, dataset: Dataset, until: float) -> Member | None:
    """Lock a run and read its checkpoints; None if it has ended, is locked elsewhere, or cannot continue.

    Whatever else goes wrong is raised, with the run's folder free.
    """
    run_id = task.config.run_id(dataset.fingerprint)
    outcome: RunOutcome | Exception | None
    with ExitStack() as held:
        try:
            if task.store.finished and find_fault(task.store, task.config, run_id) is None:
                outcome = leave_finished(task.store)
            else:
                run = TrainingRun(task.config, dataset, task.entry, task.store, task.callback, task.prepare())
                lock_run(task.store, held, until)
                outcome = take_up(task.store, task.config, run_id)
                if outcome is None:
                    member = Member(task, run, held)
                    member.held = held.pop_all()
                    return member
        except PlenchError as error:
            outcome = error
    task.ended(outcome)
    return None


def lock_run(store: RunStore, held: ExitStack, until: float) -> None:
    """Lock a run's folder; a process that has just been killed may hold it a moment longer."""
    while True:
        try:
            held.enter_context(store.locked())
            return
        except BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def align(members: Sequence[Member], alone: list[Left]) -> list[list[Member]]:
    """Begin members at a common step; return them grouped by step, the earliest first.

    Those that cannot be begun here are added to `alone`.

    A kill may have come while checkpoints were being written, one after the other, so all go back to the
    newest step that all have: then the same members continue with the same bits. If there is none, members
    at different steps form different groups.
    """
    newest = {member: max(member.checkpoints, default=0) for member in members}
    common = set.intersection(*(set(member.checkpoints) for member in members)) if members else set()
    if len(set(newest.values())) > 1:
        if common:
            newest = dict.fromkeys(members, max(common))
        elif killed_at_first_checkpoint(members):
            newest = dict.fromkeys(members, 0)
    groups: dict[int, list[Member]] = {}
    for member, updates in newest.items():
        try:
            member.begin(updates)
        except PlenchError as error:
            member.end(error)
        except (Exception, SystemExit) as error:
            member.held.close()
            alone.append(set_aside(member.task, error))
        else:
            groups.setdefault(updates, []).append(member)
    return [groups[updates] for updates in sorted(groups)]


def killed_at_first_checkpoint(members: Sequence[Member]) -> bool:
    """Say whether just these members were killed while their first checkpoints were being written."""
    own = name_fleet(members)
    return all(list(member.checkpoints.values()) == [own] for member in members if member.checkpoints)


def name_fleet(members: Sequence[Member]) -> str:
    """Return a hash that tells which runs are trained as one."""
    return hashlib.sha256(" ".join(member.run.run_id for member in members).encode()).hexdigest()[:16]
