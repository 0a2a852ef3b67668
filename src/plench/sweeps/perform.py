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
from plench.training.callbacks import Callback, StopRequest
from plench.training.data import PreparedData, preparation_key, prepare_data
from plench.training.environment import choose_device
from plench.training.outcome import RunOutcome
from plench.training.run import run_training
from plench.training.stack_loop import FleetTask, run_fleet

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
        """Carry out a run or continue it; whatever happens becomes an attempt with its reason.

        A process that has just been killed may hold the run's folder a moment longer, so a busy run is tried
        again for a while.
        """
        until = time.monotonic() + BUSY_PATIENCE_SECONDS
        while True:
            attempt = self._try_once(run, dataset, store, callback)
            if attempt.status != "busy" or time.monotonic() > until:
                return attempt
            time.sleep(0.1)

    def perform_fleet(
        self,
        runs: Task,
        dataset: Dataset,
        stores: Sequence[RunStore],
        callbacks: Sequence[Callback],
        ended: Callable[[PlannedRun, RunAttempt], None],
    ) -> None:
        """Carry out runs as one, or continue them; `ended` is called for each, as soon as it ends."""
        if len(runs) == 1:
            ended(runs[0], self.perform(runs[0], dataset, stores[0], callbacks[0]))
            return
        begun = time.perf_counter()
        parts = zip(runs, stores, callbacks, strict=True)
        left = {run.folder: (run, store, callback) for run, store, callback in parts}

        def end(run: PlannedRun, outcome: RunOutcome | BaseException) -> None:
            _, store, _ = left.pop(run.folder)
            seconds = (time.perf_counter() - begun) / len(runs)
            ended(run, make_attempt(run, dataset, store, outcome, seconds))

        with StopRequest() as stop:
            try:
                tasks = [
                    FleetTask(
                        run.config,
                        load_parts(run),
                        store,
                        callback,
                        partial(self._prepare, run, dataset),
                        partial(end, run),
                    )
                    for run, store, callback in left.values()
                ]
                run_fleet(tasks, dataset, BUSY_PATIENCE_SECONDS)
            except (Exception, SystemExit):  # each by itself will tell what is wrong
                logger.warning(
                    "%s: a fleet stopped, its runs continue one by one", runs[0].label, exc_info=True
                )
            for run, store, callback in list(left.values()):
                if stop.asked:
                    ended(run, RunAttempt("interrupted", "the same command continues it"))
                else:
                    ended(run, self.perform(run, dataset, store, callback))

    def _try_once(self, run: PlannedRun, dataset: Dataset, store: RunStore, callback: Callback) -> RunAttempt:
        begun = time.perf_counter()
        outcome: RunOutcome | BaseException
        try:
            outcome = self._train(run, dataset, store, callback)
        except (Exception, SystemExit) as error:
            outcome = error
        return make_attempt(run, dataset, store, outcome, time.perf_counter() - begun)

    def _train(self, run: PlannedRun, dataset: Dataset, store: RunStore, callback: Callback) -> RunOutcome:
        entry = load_parts(run)
        prepared = self._prepare(run, dataset)
        folder = store.folder.parent
        return run_training(
            run.config, dataset, entry, folder, callback, prepared, store, ends_at=self.ends_at
        )

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
