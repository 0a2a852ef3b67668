"""The loop of a stack: runs trained together, each with its own folder, records, checkpoint and end."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms import AlgorithmEntry
from plench.algorithms.base import LossAlgorithm
from plench.data import Dataset
from plench.errors import BusyError, PlenchError, StorageError
from plench.runs.folder import RunStore
from plench.training.callbacks import Callback, StopRequest
from plench.training.checkpoint import read_whole
from plench.training.config import RunConfig
from plench.training.data import EvaluationSet, PreparedData
from plench.training.environment import compute_threads, flush_denormals
from plench.training.evaluate import Totals, choose_chunk, measure
from plench.training.outcome import RunOutcome, Status, find_fault, leave_finished
from plench.training.run import TrainingRun, run_training, take_up
from plench.training.stack import StackedBatches, StackedRuns, StackError, stack_runs

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


def run_fleet(tasks: Sequence[FleetTask], dataset: Dataset, patience: float = 0.0) -> None:
    """Carry out runs as one, or continue them; each tells how it ended, or the error that ended it.

    A run that diverges, fails, is finished or stays locked by another process (for longer than `patience`
    seconds) does not disturb the others. If code that serves all of them raises, the remaining ones continue
    alone, from their checkpoints.
    """
    with compute_threads(tasks[0].config.threads), flush_denormals(), StopRequest() as stop:
        for left in train_together(tasks, dataset, patience, stop):
            if stop.asked:
                folder = left.task.store.folder
                left.task.ended(RunOutcome("interrupted", folder, 0, "the same command continues it"))
            else:
                carry_out_alone(left.task, dataset, left.reasons)


def train_together(
    tasks: Sequence[FleetTask], dataset: Dataset, patience: float, stop: StopRequest
) -> list[Left]:
    """Train what can be trained as one; return what is left to be carried out alone."""
    until = time.monotonic() + patience
    members: list[Member] = []
    alone: list[Left] = []
    try:
        for task in tasks:
            try:
                member = open_member(task, dataset, until)
            except (Exception, SystemExit) as error:
                alone.append(set_aside(task, error))
            else:
                members += [] if member is None else [member]
        for group in align(members, alone):
            alone += Fleet(group, stop).carry_out()
    finally:  # unlock all folders, whatever happened
        for member in members:
            member.held.close()
    return alone


def carry_out_alone(task: FleetTask, dataset: Dataset, notices: Sequence[str]) -> None:
    """Carry out a run by itself, from its last checkpoint."""
    try:
        folder = task.store.folder.parent
        outcome = run_training(
            task.config, dataset, task.entry, folder, task.callback, task.prepare(), task.store, notices
        )
    except Exception as error:
        task.ended(error)
    else:
        task.ended(outcome)


class Fleet:
    """Members at the same step, trained as one until they end."""

    def __init__(self, members: Sequence[Member], stop: StopRequest) -> None:
        self.members = list(members)
        self.stop = stop
        self.config = members[0].run.config
        self.updates = members[0].run.updates
        self.totals = Totals()
        self.window_begun = 0.0

    def carry_out(self) -> list[Left]:
        """Train to the end; return the runs, with their folders free, that have to continue alone."""
        if self.stop.asked:
            self.conclude("interrupted")
            return []
        try:
            if len(self.members) > 1:
                self.train()
            return self.give_up()
        except (BusyError, StorageError) as error:  # alone they would meet it as well
            self.close_all(error)
        except StackError as error:
            return self.give_up(f"trained alone, not with others as one: {error}", error)
        except Exception as error:  # of code for all of them: by itself each may do well
            what = f"{type(error).__name__}: {error}"
            return self.give_up(f"runs trained as one, this one among them, stopped ({what})", error)
        return []

    def give_up(self, reason: str | None = None, error: Exception | None = None) -> list[Left]:
        """Unlock the remaining members; they continue one by one."""
        left, self.members = self.members, []
        for member in left:
            member.held.close()
        if reason is None:
            return [Left(member.task) for member in left]
        logger.warning(
            "%s: %d runs continue one by one: %s", self.config.algorithm, len(left), reason, exc_info=error
        )
        return [Left(member.task, (reason,)) for member in left]

    def close_all(self, error: Exception) -> None:
        """End every member that is left with an error that is not its own."""
        left, self.members = self.members, []
        for member in left:
            member.end(error)

    def train(self) -> None:
        """Make the remaining updates; the stack is made anew when a member has left."""
        while len(self.members) > 1 and self.updates < self.config.steps:
            # No name holds a stack while the next one is made.
            if self.work(self.gather(), self.gather_batches()):
                return
        if len(self.members) == 1 and self.updates < self.config.steps:
            self.members[0].run.write_checkpoint()  # the last one continues alone from here

    def gather(self) -> StackedRuns:
        """Make the stack, and the sums of what has been logged since the last records."""
        runs = [member.run for member in self.members]
        together = stack_runs([member.algorithm for member in self.members], [run.streams for run in runs])
        self.totals = Totals()
        first = runs[0].totals
        if any((run.totals.count, run.totals.counts) != (first.count, first.counts) for run in runs):
            raise StackError("they have logged at different steps")
        self.totals.count, self.totals.counts = first.count, dict(first.counts)
        for name in first.sums:
            self.totals.sums[name] = torch.stack([torch.as_tensor(run.totals.sums[name]) for run in runs])
        for run in runs:
            run.fleet_size, run.fleet = len(runs), name_fleet(self.members)
        return together

    def gather_batches(self) -> StackedBatches:
        """Make the batches of the stack."""
        return StackedBatches([member.run.training_set for member in self.members])

    def work(self, together: StackedRuns, batches: StackedBatches) -> bool:
        """Update until a member leaves; say True if all have ended."""
        config = self.config
        saved_at = told_at = self.window_begun = time.perf_counter()
        if self.totals.count and self.members[0].run.is_recorded(self.updates - 1):
            # They were stopped within an evaluation, each by itself.
            if self.evaluate(self.updates - 1, together) and self.updates < config.steps:
                return False
            self.window_begun = time.perf_counter()
        while self.updates < config.steps:
            self.totals.add(together.update(batches.next()))
            step = self.updates
            self.updates += 1
            now = time.perf_counter()
            if self.members[0].run.is_recorded(step):
                left = self.evaluate(step, together)
                self.window_begun = now = time.perf_counter()
                if left and self.updates < config.steps:
                    return False
            due = self.updates % config.save_steps == 0 if config.save_steps else False
            if (due or now - saved_at >= config.save_seconds) and self.updates < config.steps:
                self.hand_out(together)
                for member in self.members:
                    member.run.write_checkpoint()
                saved_at = self.window_begun = now = time.perf_counter()
            if self.stop.asked and self.updates < config.steps:
                self.hand_out(together)
                self.conclude("interrupted")
                return True
            if self.totals.count and now - told_at >= 0.25:
                self.tell()
                told_at = now
        self.conclude("done")  # the last update has been evaluated, so all is handed out
        return True

    def hand_out(self, together: StackedRuns) -> None:
        """Let every run have what is its own, as it would be alone: state, counts, sums, time."""
        together.hand_out()
        now = time.perf_counter()
        share, self.window_begun = (now - self.window_begun) / len(self.members), now
        for number, member in enumerate(self.members):
            run = member.run
            run.updates_made += self.updates - run.updates
            run.updates = self.updates
            run.window_seconds += share
            run.totals = take_totals(self.totals, number)

    def evaluate(self, step: int, together: StackedRuns) -> bool:
        """Write every member's record; say whether one has left because it diverged or failed."""
        self.hand_out(together)
        begun = time.perf_counter()
        validation, test = (
            predict_together(together, [getattr(member.run.data, part) for member in self.members])
            for part in ("validation", "test")
        )
        there = list(self.members)
        share = (time.perf_counter() - begun) / len(there)
        for number, member in enumerate(there):
            try:
                ended = record_member(member.run, step, validation[number], test[number], share)
            except (BusyError, StorageError):
                raise
            except Exception as error:  # a third party's criterion, say
                self.members.remove(member)
                member.end(member.run.fail(error))
                continue
            if ended is not None:
                self.members.remove(member)
                member.conclude(ended)
        self.totals = Totals()
        return len(self.members) < len(there)

    def tell(self) -> None:
        """Tell how far the members are."""
        losses = (torch.as_tensor(self.totals.sums["loss"]) / self.totals.counts["loss"]).tolist()
        for member, loss in zip(self.members, losses, strict=True):
            member.run.callback.advanced(self.updates, loss)

    def conclude(self, status: Status) -> None:
        """End all members."""
        left, self.members = self.members, []
        for member in left:
            member.conclude(status)


def record_member(
    run: TrainingRun, step: int, validation: np.ndarray, test: np.ndarray, spent: float
) -> Status | None:
    """Write one run's record from its logits, which took `spent` seconds; say so if it has diverged."""
    begun = time.perf_counter() - spent
    with run.streams.ambient("evaluation"):
        figures = measure(validation, test, run.data, run.more_criteria)
    return run.record(step, run.totals.means(), figures, run.window_seconds, begun)


def take_totals(totals: Totals, number: int) -> Totals:
    """Return one run's share of the sums of all."""
    own = Totals()
    own.count, own.counts = totals.count, dict(totals.counts)
    for name, value in totals.sums.items():
        stacked = isinstance(value, Tensor) and value.dim() > 0
        own.sums[name] = value[number].clone() if stacked else value  # type: ignore[index]
    return own


def predict_together(together: StackedRuns, sets: Sequence[EvaluationSet]) -> list[np.ndarray]:
    """Return the logits (n, K) of each run on its own examples; runs of equal numbers in one pass."""
    stored = [each.stored for each in sets]
    sizes = {len(rows) for rows in stored}
    if len(sizes) > 1 or not all(isinstance(rows, Tensor) for rows in stored):
        raise StackError("their evaluation sets differ in size")
    (size,) = sizes
    if size == 0:  # the runs leave this part out
        return [np.empty((0, together.num_classes))] * len(stored)
    same = all(rows is stored[0] for rows in stored)
    chunk = max(1, choose_chunk(stored[0]) // len(stored))
    parts = []
    with torch.no_grad():
        for start in range(0, size, chunk):
            rows = [each[start : start + chunk] for each in (stored[:1] if same else stored)]
            inputs = rows[0].expand(len(stored), *rows[0].shape) if same else torch.stack(rows)
            parts.append(together.predict(inputs))
        return list(torch.cat(parts, 1).cpu().double().numpy())
