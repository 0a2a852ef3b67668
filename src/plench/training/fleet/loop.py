"""The loop of a fleet: several runs trained as one, each with its own folder, records, checkpoint and end."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from plench.data import Dataset
from plench.errors import BusyError, StorageError
from plench.training.environment import compute_threads, flush_denormals
from plench.training.evaluation import Totals, choose_chunk, measure
from plench.training.fleet.members import (
    FleetTask,
    Left,
    Member,
    align,
    name_fleet,
    open_member,
    set_aside,
)
from plench.training.fleet.stack import StackedRuns, StackError, stack_runs
from plench.training.fleet.stacked_batches import StackedBatches
from plench.training.interrupt import StopRequest
from plench.training.outcome import RunOutcome, Status
from plench.training.prepare import EvaluationSet
from plench.training.run import TrainingRun, run_training

logger = logging.getLogger("plench")


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
