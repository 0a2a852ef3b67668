"""The one training loop: R ≥ 1 runs from their configurations to records, exact, resumable, safe to kill.

Several runs are trained as a stack, a single run is a stack of one. Each has its own folder, records,
checkpoint and end: a run that diverges, fails, is finished or locked elsewhere does not disturb the others.
What cannot be stacked is trained separately, one run after the other.
"""

from __future__ import annotations

import hashlib
import logging
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Self

from plench.algorithms import AlgorithmEntry
from plench.callbacks import Callback
from plench.data import Dataset
from plench.errors import BusyError, PlenchError, ResumeError, StorageError
from plench.runs.folder import DONE, RunStore
from plench.training.checkpoint import read_checkpoints
from plench.training.config import RunConfig, RunOutcome, Status
from plench.training.data import PreparedData
from plench.training.environment import compute_threads, flush_denormals
from plench.training.run import RESUMES, Totals, TrainingRun, choose_chunk
from plench.training.stack import StackedStep, StackError
from plench.training.step import SingleStep

# An evaluation that has no more examples left than so many batches have is completed after a stop.
FEW_BATCHES = 4
SECONDS_BETWEEN_REPORTS = 0.25

logger = logging.getLogger("plench")


class StopRequest:
    """A block in which Ctrl-C, SIGTERM and SIGHUP are only noted; a second Ctrl-C stops immediately.

    Signal handlers belong to the main thread; in another one nothing is noted. `acknowledge` is called at
    the first signal. Blocks can be nested: an inner one passes a stop on to the outer one, and starts with
    that one's. `ends_at`, by the monotonic clock, is when the time of this process ends.
    """

    def __init__(self, acknowledge: Callable[[], None] | None = None, ends_at: float = math.inf) -> None:
        self.asked = False
        self.ends_at = ends_at
        self._acknowledge = acknowledge
        self._before: dict[int, Any] = {}
        self._outer: StopRequest | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)  # Windows has no SIGHUP
                if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):
                    continue  # nohup: the run is to outlive its terminal
                self._before[number] = signal.signal(number, self._ask)
        outer = [getattr(handler, "__self__", None) for handler in self._before.values()]
        self._outer = next((found for found in outer if isinstance(found, StopRequest)), None)
        self.asked = self._outer is not None and self._outer.asked
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.asked:
            self.asked = True
            if self._acknowledge is not None:
                self._acknowledge()

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._outer is not None:
            self._outer.asked |= self.asked


@dataclass(frozen=True)
class RunTask:
    """One run to train: what it is, where it is stored, who observes it.

    `ended` is called once, with the outcome of the run or the error that ended it. `prepare` returns its data
    (None: they are prepared from the dataset). `warnings` are kept in run.json with the run's own.
    """

    config: RunConfig
    entry: AlgorithmEntry
    store: RunStore
    callback: Callback
    prepare: Callable[[], PreparedData | None]
    ended: Callable[[RunOutcome | BaseException], None]
    warnings: tuple[str, ...] = ()

    def separately(self, reason: str) -> RunTask:
        """Return the task of training the run on its own, for a reason that run.json names."""
        return replace(self, warnings=(*self.warnings, reason))


def run_training(
    config: RunConfig,
    dataset: Dataset,
    entry: AlgorithmEntry,
    output_dir: str | Path,
    callback: Callback | None = None,
    prepared: PreparedData | None = None,
    store: RunStore | None = None,
    ends_at: float = math.inf,
) -> RunOutcome:
    """Train a run, or resume it from its last checkpoint; a finished run is skipped.

    `prepared` are its data, if they are prepared already; `store` says where the run is stored if not in its
    folder below `output_dir`. `ends_at`, by the monotonic clock, is when the time of this process ends: a
    round of a fitted method that would not be over by then is not started.
    """
    store = store or RunStore(Path(output_dir) / config.folder_name(dataset.fingerprint))
    outcomes: list[RunOutcome | BaseException] = []
    task = RunTask(config, entry, store, callback or Callback(), lambda: prepared, outcomes.append)
    train_runs([task], dataset, ends_at=ends_at)
    (outcome,) = outcomes
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def train_runs(
    tasks: Sequence[RunTask], dataset: Dataset, *, patience: float = 0.0, ends_at: float = math.inf
) -> None:
    """Train runs of one dataset, or resume them: several as a stack, as far as they can be stacked.

    A run whose folder stays locked for longer than `patience` seconds ends with BusyError.
    """
    until = time.monotonic() + patience

    def acknowledge() -> None:
        for task in tasks:
            task.callback.stopping()

    with (
        compute_threads(tasks[0].config.threads),
        flush_denormals(),
        StopRequest(acknowledge, ends_at) as stop,
    ):
        groups = deque([tuple(tasks)])
        while groups:
            group = groups.popleft()
            if not stop.asked:
                groups.extend((task,) for task in train_group(group, dataset, until, stop))
                continue
            for task in group:
                task.ended(RunOutcome("interrupted", task.store.folder, 0, RESUMES))


def train_group(tasks: Sequence[RunTask], dataset: Dataset, until: float, stop: StopRequest) -> list[RunTask]:
    """Train runs as far as they can be trained together; return those that are to be trained separately."""
    members: list[Member] = []
    separate: list[RunTask] = []
    single = len(tasks) == 1

    def fail(task: RunTask, error: BaseException, end: Callable[[BaseException], None]) -> None:
        if single or isinstance(error, PlenchError):
            end(error)
            return
        reason = f"it could not be started in a stack ({type(error).__name__}: {error})"
        logger.warning("%s: %s; it is trained separately", task.config.algorithm, reason, exc_info=error)
        separate.append(task.separately(reason))

    try:
        for task in tasks:
            try:
                opened = open_run(task, dataset, until, newest_only=single)
            except (Exception, SystemExit) as error:
                fail(task, error, task.ended)
            else:
                if isinstance(opened, Member):
                    members.append(opened)
                else:
                    task.ended(opened)
        groups: dict[int, list[Member]] = {}
        for member, updates in choose_starts(members).items():
            try:
                member.start(updates)
            except (Exception, SystemExit) as error:
                fail(member.task, error, member.fail)
                member.held.close()
            else:
                groups.setdefault(updates, []).append(member)
        for updates in sorted(groups):
            separate += Loop(groups[updates], stop).run()
    finally:  # whatever happened, no folder stays locked
        for member in members:
            member.held.close()
    return separate


@dataclass(eq=False)
class Member:
    """A run among those that are trained together, with its folder locked.

    `checkpoints` has the number of updates of each of its checkpoints, with the stack that wrote it. Those of
    a single run are read once; those of several are read again when each run starts, because all of them
    at once would take more memory than the stack.
    """

    task: RunTask
    run: TrainingRun
    held: ExitStack = field(default_factory=ExitStack)
    checkpoints: dict[int, str] = field(default_factory=dict)
    newest: dict[str, Any] | None = None

    def start(self, updates: int) -> None:
        """Build the run, and restore its checkpoint after so many updates."""
        self.run.build()
        checkpoint, self.newest = self.newest, None
        if checkpoint is None and updates in self.checkpoints:
            found = (each for each in read_checkpoints(self.run.store) if each["updates"] == updates)
            checkpoint = next(found, None)
            if checkpoint is None:
                raise StackError(f"its checkpoint after {updates} updates can no longer be read")
        with self.run.streams.ambient("algorithm"):
            self.run.start(checkpoint)

    def conclude(self, status: Status, out_of_time: bool = False) -> bool:
        """End the run; return True if it has to start over instead, because one of its models is lost."""
        outcome: RunOutcome | BaseException
        try:
            lost = None if status == "interrupted" else self.run.find_lost_model()
            if lost:
                folder = self.run.store.folder
                logger.warning("%s in %s is missing or was changed, so the run starts over", lost, folder)
                self.run.store.tidy()
                self.held.close()
                return True
            outcome = self.run.conclude(status, out_of_time)
        except Exception as error:
            outcome = error
        self.end(outcome)
        return False

    def fail(self, error: BaseException) -> None:
        """End the run because of an error; one of the algorithm's is recorded as the failure of the run."""
        outcome: RunOutcome | BaseException = error
        ours = isinstance(error, PlenchError)
        if not isinstance(error, BusyError | StorageError) and (self.run.has_started or not ours):
            try:
                failed = self.run.fail(error)
                outcome = error if ours else failed
            except PlenchError as problem:
                outcome = problem
        self.end(outcome)

    def end(self, outcome: RunOutcome | BaseException) -> None:
        """Unlock the folder and report how the run ended."""
        try:
            self.held.close()
        except PlenchError as error:  # what it wrote has not arrived
            outcome = error
        if self.run.has_started:
            message = f"{type(outcome).__name__}: {outcome}"
            failed = RunOutcome("failed", self.run.store.folder, self.run.updates_made, message)
            self.run.callback.ended(outcome if isinstance(outcome, RunOutcome) else failed)
        self.task.ended(outcome)


def open_run(task: RunTask, dataset: Dataset, until: float, newest_only: bool) -> Member | RunOutcome:
    """Lock the folder of a run and find its checkpoints; return the outcome of a run that is finished.

    Whatever is raised, the folder is not locked afterwards.
    """
    store, config = task.store, task.config
    run_id = config.run_id(dataset.fingerprint)

    def belongs_elsewhere() -> bool:
        return ((store.read_run() or {}).get("run_id") or run_id) != run_id

    def finished_outcome() -> RunOutcome:
        with suppress(StorageError):  # the folder may be read-only
            store.tidy()
        status = (store.read_run() or {}).get("status", "done")
        return RunOutcome(status, store.folder, 0, "already finished")

    if store.finished and not belongs_elsewhere() and store.check_integrity(config.steps) is None:
        return finished_outcome()
    run = TrainingRun(config, dataset, task.entry, store, task.callback, task.prepare())
    run.warnings += task.warnings
    with ExitStack() as held:
        while True:  # a process that has just been killed may hold the lock a moment longer
            try:
                held.enter_context(store.locked())
                break
            except BusyError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        if belongs_elsewhere():
            raise ResumeError(f"{store.folder} contains another run, by its run.json: move it away")
        if store.finished:
            problem = store.check_integrity(config.steps)
            if problem is None:  # another process finished it in the meantime
                return finished_outcome()
            if not store.has_checkpoint:
                raise ResumeError(
                    f"{store.folder} is marked as finished, but {problem}, and there is no checkpoint to "
                    "repair it from; delete the folder to run it again"
                )
            logger.warning(
                "%s was marked as finished, but %s; it resumes from its checkpoint", store.folder, problem
            )
            store.discard(DONE)
        member = Member(task, run)
        for checkpoint in islice(read_checkpoints(store), 1 if newest_only else None):
            try:
                run.check_conditions(checkpoint)
            except PlenchError:
                if not member.checkpoints:  # the newest one must not be used
                    raise
                break
            member.checkpoints.setdefault(checkpoint["updates"], checkpoint.get("stack", ""))
            member.newest = checkpoint if newest_only else None
        member.held = held.pop_all()
        return member


def choose_starts(members: Sequence[Member]) -> dict[Member, int]:
    """Return after how many updates each run resumes.

    A kill may have come while checkpoints were being written, one after the other. Then all go back to the
    newest step that all have, so that the same members continue with the same bits. If there is no such step,
    runs at different steps form different groups.
    """
    newest = {member: max(member.checkpoints, default=0) for member in members}
    if len(set(newest.values())) <= 1:
        return newest
    common = set.intersection(*(set(member.checkpoints) for member in members))
    if common:
        return dict.fromkeys(members, max(common))
    # Just these members may have been killed while they wrote their first checkpoints.
    own = identify_stack(members)
    if all(list(member.checkpoints.values()) == [own] for member in members if member.checkpoints):
        return dict.fromkeys(members, 0)
    return newest


def identify_stack(members: Sequence[Member]) -> str:
    """Return a hash of the runs that a stack consists of."""
    return hashlib.sha256(" ".join(member.run.run_id for member in members).encode()).hexdigest()[:16]


class EvaluationStopped(Exception):
    """Ends an evaluation because of a request to stop."""


class Loop:
    """Runs at the same step, trained together until all have ended."""

    def __init__(self, members: Sequence[Member], stop: StopRequest) -> None:
        self.members = list(members)
        self.stop = stop
        self.config = members[0].run.config  # what is read of it is the same for all
        self.updates = members[0].run.updates
        self.totals = Totals()
        self.window_begun = 0.0
        self.separate: list[RunTask] = []

    def run(self) -> list[RunTask]:
        """Train to the end; return the tasks that are to be trained separately, their folders unlocked."""
        stacked = len(self.members) > 1
        try:
            while self.members:
                if stacked and len(self.members) == 1:
                    self.members[0].run.write_checkpoint()
                    self.set_apart()
                else:
                    self.train()
        except (BusyError, StorageError) as error:  # separately they would meet it as well
            for member in self.members:
                member.end(error)
        except (Exception, SystemExit) as error:
            if not self.members:
                raise
            if not stacked:
                self.members[0].fail(error)
                return self.separate
            reason = f"the stack it belonged to stopped ({type(error).__name__}: {error})"
            cause: BaseException | None = error
            if isinstance(error, StackError):
                reason, cause = f"not stacked: {error}", None
            count = len(self.members)
            logger.warning(
                "%s: %d runs are trained separately: %s", self.config.algorithm, count, reason, exc_info=cause
            )
            self.set_apart(reason)
        return self.separate

    def set_apart(self, reason: str | None = None) -> None:
        """Unlock the remaining runs; they resume separately."""
        members, self.members = self.members, []
        for member in members:
            member.held.close()
            self.separate.append(member.task if reason is None else member.task.separately(reason))

    def train(self) -> None:
        """Make updates until all runs have ended or one has left.

        What the runs have logged since their last records is stacked with them.
        """
        config, size, runs = self.config, len(self.members), [member.run for member in self.members]
        step: SingleStep | StackedStep
        if size == 1:
            step, self.totals = SingleStep(runs[0]), runs[0].totals
        else:
            step = StackedStep(runs)
            try:
                self.totals = Totals.stack([run.totals for run in runs])
            except ValueError as error:
                raise StackError(str(error)) from None
            for run in runs:
                run.stack_size, run.stack_id = size, identify_stack(self.members)
                if size > len(run.stack_members):
                    run.stack_members = [member.run.run_id for member in self.members]
        is_recorded = self.members[0].run.is_recorded
        saved = reported = self.window_begun = time.perf_counter()
        with step.ambient():
            if self.totals.count and is_recorded(self.updates - 1):  # they were stopped within an evaluation
                self.evaluate(step)
            while self.updates < config.steps and len(self.members) == size:
                begun = time.perf_counter()
                self.totals.add(step.update())
                self.updates += 1
                for member in self.members:
                    member.run.updates += 1
                    member.run.updates_made += 1
                now = time.perf_counter()
                if is_recorded(self.updates - 1):
                    self.evaluate(step)
                    now = time.perf_counter()
                    is_round = config.fitted and 1 < self.updates < config.steps
                    if is_round and time.monotonic() + (now - begun) > self.stop.ends_at:
                        self.conclude("interrupted", out_of_time=True)
                if self.updates == config.steps or len(self.members) < size:
                    break
                due = config.save_steps and self.updates % config.save_steps == 0
                if due or now - saved >= config.save_seconds:
                    self.sync(step)
                    for member in self.members:
                        member.run.write_checkpoint()
                    saved = self.window_begun = now = time.perf_counter()
                if self.stop.asked:
                    self.sync(step)
                    self.conclude("interrupted")
                elif self.totals.count and now - reported >= SECONDS_BETWEEN_REPORTS:
                    for number, member in enumerate(self.members):
                        member.run.callback.advanced(self.updates, self.own_totals(number).means()["loss"])
                    reported = now
            if self.updates == config.steps:  # the last update has been evaluated, so all is synchronised
                self.conclude("done")

    def own_totals(self, number: int) -> Totals:
        """Return what one run has logged since its last record."""
        return self.totals if len(self.members) == 1 else self.totals.of_run(number)

    def sync(self, step: SingleStep | StackedStep) -> None:
        """Give every run its part of the stack: state, sums and time."""
        step.sync()
        now = time.perf_counter()
        share, self.window_begun = (now - self.window_begun) / len(self.members), now
        for number, member in enumerate(self.members):
            member.run.window_seconds += share
            member.run.totals = self.own_totals(number)

    def evaluate(self, step: SingleStep | StackedStep) -> None:
        """Write every run's record; a run that diverged or whose record cannot be made leaves."""
        self.sync(step)
        begun, done = time.perf_counter(), 0
        data = self.members[0].run.data
        total = len(data.validation.stored) + len(data.test.stored)
        few = FEW_BATCHES * choose_chunk(data.test.stored) // len(self.members)

        def after_batch(examples: int) -> None:
            nonlocal done
            done += examples
            if self.stop.asked and total - done > few:
                raise EvaluationStopped
            for member in self.members:
                member.run.callback.evaluating(done, total)

        try:
            logits = step.predict(after_batch)
        except EvaluationStopped:  # the totals stay, and the runs resume with this evaluation
            self.conclude("interrupted")
            return
        members = list(self.members)
        share = (time.perf_counter() - begun) / len(members)
        for member, (validation, test) in zip(members, logits, strict=True):
            try:
                status = member.run.record(validation, test, share)
            except (BusyError, StorageError):
                raise
            except Exception as error:  # of a third-party criterion, for example
                if len(members) == 1:
                    raise
                self.members.remove(member)
                member.end(member.run.fail(error))
            else:
                if status is not None:
                    self.conclude(status, members=[member])
        self.totals = Totals()
        self.window_begun = time.perf_counter()

    def conclude(
        self, status: Status, *, members: Sequence[Member] | None = None, out_of_time: bool = False
    ) -> None:
        """End all runs, or some, with a status."""
        for member in list(self.members if members is None else members):
            self.members.remove(member)
            if member.conclude(status, out_of_time):
                self.separate.append(member.task)
