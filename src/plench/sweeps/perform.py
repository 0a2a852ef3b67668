"""Carries out a run or a fleet of a sweep inside a worker process that stays warm between runs."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from plench.algorithms import AlgorithmEntry, find_algorithm
from plench.criteria import find_criteria
from plench.data import Dataset
from plench.errors import BusyError, StorageError
from plench.networks import find_network
from plench.runs.description import describe_run
from plench.runs.folder import RunStore
from plench.sweeps.engines.base import Assignment, AttemptStatus, RunAttempt, Task
from plench.sweeps.plan import PlannedRun
from plench.training.callbacks import Callback
from plench.training.config import RunOutcome
from plench.training.data import PreparedData, preparation_key, prepare_data
from plench.training.environment import choose_device
from plench.training.loop import RunTask, train_runs

# Runs of one split of one dataset stand together in a sweep; two leave room for the change-over.
PREPARED_KEPT = 2

BUSY_PATIENCE_SECONDS = 10.0

logger = logging.getLogger("plench")


class Performer:
    """Carries out runs one after the other; prepared data and loaded algorithms are kept for the next.

    `ends_at`, by the monotonic clock, is when the time of this process ends.
    """

    ends_at = math.inf

    def __init__(self) -> None:
        self._prepared: OrderedDict[tuple[object, ...], PreparedData] = OrderedDict()

    def perform(self, run: PlannedRun, dataset: Dataset, store: RunStore, callback: Callback) -> RunAttempt:
        """Train one run, or resume it; whatever happens becomes an attempt with its reason."""
        attempts: list[RunAttempt] = []
        self.perform_fleet((run,), dataset, [store], [callback], lambda _, attempt: attempts.append(attempt))
        return attempts[0]

    def perform_fleet(
        self,
        runs: Task,
        dataset: Dataset,
        stores: Sequence[RunStore],
        callbacks: Sequence[Callback],
        ended: Callable[[PlannedRun, RunAttempt], None],
    ) -> None:
        """Train runs, or resume them, several as a stack; `ended` is called once per run, when it ends."""
        begun = time.perf_counter()
        waiting: dict[str, partial[None]] = {}
        tasks = []

        def end(run: PlannedRun, store: RunStore, outcome: RunOutcome | BaseException) -> None:
            del waiting[run.folder]
            seconds = (time.perf_counter() - begun) / len(runs)
            ended(run, make_attempt(run, dataset, store, outcome, seconds))

        for run, store, callback in zip(runs, stores, callbacks, strict=True):
            end_run = waiting[run.folder] = partial(end, run, store)
            try:
                prepare = partial(self._prepare, run, dataset)
                tasks.append(RunTask(run.config, load_parts(run), store, callback, prepare, end_run))
            except (Exception, SystemExit) as error:
                end_run(error)
        if tasks:
            try:
                train_runs(tasks, dataset, patience=BUSY_PATIENCE_SECONDS, ends_at=self.ends_at)
            except (Exception, SystemExit) as error:
                for end_run in list(waiting.values()):
                    end_run(error)

    def _prepare(self, run: PlannedRun, dataset: Dataset) -> PreparedData:
        key = preparation_key(dataset, run.config)
        if key not in self._prepared:
            while len(self._prepared) >= PREPARED_KEPT:
                self._prepared.popitem(last=False)
            self._prepared[key] = prepare_data(dataset, run.config, choose_device(run.config.device))
        self._prepared.move_to_end(key)
        return self._prepared[key]


def make_attempt(
    run: PlannedRun,
    dataset: Dataset,
    store: RunStore,
    outcome: RunOutcome | BaseException,
    seconds: float,
) -> RunAttempt:
    """Turn how a run ended, or the error that ended it, into an attempt; a failure is recorded."""
    if isinstance(outcome, RunOutcome):
        return RunAttempt(outcome.status, outcome.message, outcome.updates_made, seconds, outcome.out_of_time)
    error = outcome
    if not isinstance(error, BusyError | StorageError):  # the run is to blame, and the sweep continues
        kind, trace = type(error).__name__, "".join(traceback.format_exception(error))
        try:
            record_failure(store, run, dataset, kind, str(error), trace)
            return RunAttempt("failed", f"{kind}: {error}", 0, seconds)
        except (BusyError, StorageError) as worse:
            error = worse
    status: AttemptStatus = "busy" if isinstance(error, BusyError) else "unwritable"
    return RunAttempt(status, str(error), 0, seconds)


def load_parts(run: PlannedRun) -> AlgorithmEntry:
    """Return a run's algorithm, with third parties' network and criteria loaded in this process."""
    if run.network:
        find_network(run.network)
    find_criteria(run.criteria)
    return find_algorithm(run.algorithm)


def limit_memory(gigabytes: float | None) -> None:
    """Limit the memory of this process; asking for more is an error."""
    if gigabytes is not None:
        import resource  # Windows has none

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (int(gigabytes * 2**30), hard))


def fail_run(assignment: Assignment, run: PlannedRun, kind: str, message: str) -> None:
    """Record in the folder of a run that cannot do it by itself why it failed, and tell the callback."""
    store = RunStore(assignment.output_dir / run.folder)
    try:
        record_failure(store, run, assignment.shelf.get(run.dataset), kind, message)
    except BusyError as error:  # a process that the run had started has outlived it
        assignment.callback.ended(run, RunAttempt("busy", str(error)))
    else:
        assignment.callback.ended(run, RunAttempt("failed", f"{kind}: {message}"))


def record_failure(
    store: RunStore, run: PlannedRun, dataset: Dataset, kind: str, message: str, trace: str = ""
) -> None:
    """Write into run.json that a run failed and why; its checkpoint stays, so that a retry continues."""
    described = describe_run(run.config, dataset, load_parts(run))
    with store.locked():
        if store.finished:
            return
        before = store.read_run() or described
        error = {"type": kind, "message": message, "traceback": trace}
        store.write_run({**before, "status": "failed", "error": error})
