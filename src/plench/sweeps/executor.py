"""Runs the tasks of a sweep inside a process that stays warm between them; also the local engine's worker.

A worker receives orders through a socket and reports progress. It exits as soon as the socket is closed, and
so with the process that started it.
"""

from __future__ import annotations

import math
import mmap
import os
import pickle
import queue
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from plench.algorithms import AlgorithmEntry, find_algorithm
from plench.callbacks import CALLBACKS, Callback
from plench.criteria import find_criteria
from plench.data import Dataset
from plench.errors import BusyError, StorageError
from plench.networks import find_network
from plench.runs.folder import RunStore
from plench.sweeps.plan import PlannedRun, Task
from plench.sweeps.progress import RunReporter
from plench.training.config import RunConfig, RunOutcome, describe_run
from plench.training.data import PreparedData, preparation_key, prepare_data
from plench.training.environment import choose_device
from plench.training.loop import RunTask, train_runs
from plench.training.run import Observers

# Runs of one split of one dataset are neighbours in a sweep; two leave room for the change.
PREPARED_KEPT = 2
# A process that has just been killed may hold the lock of a run's folder a moment longer.
BUSY_PATIENCE_SECONDS = 10.0
SECONDS_BETWEEN_HEARTBEATS = 1.0

# How an attempt ended: the statuses of a run, `busy` (another process holds the run's lock) and `unwritable`
# (the output folder is full or read-only).
AttemptStatus = Literal["done", "diverged", "failed", "interrupted", "busy", "unwritable"]


@dataclass(frozen=True)
class RunAttempt:
    """How an attempt at a run ended, the updates it made, and errors of the user's callbacks.

    `out_of_time`: interrupted because the time left is too short for another round.
    """

    status: AttemptStatus
    message: str = ""
    updates_made: int = 0
    seconds: float = 0.0
    out_of_time: bool = False
    callback_errors: tuple[str, ...] = ()


class RunExecutor:
    """Runs tasks one after the other; prepared data are kept for the next task.

    `ends_at`, by the monotonic clock, is when the time of this process ends.
    """

    def __init__(self) -> None:
        self.ends_at = math.inf
        self._prepared: dict[tuple[object, ...], PreparedData] = {}

    def run_task(
        self,
        task: Task,
        dataset: Dataset,
        stores: Sequence[RunStore],
        callbacks: Sequence[Callback],
        ended: Callable[[PlannedRun, RunAttempt], None],
    ) -> None:
        """Run or resume the runs of a task, several as a stack; `ended` is called once per run, at its end.

        Whatever goes wrong with a run becomes an attempt with its reason; its failure is recorded.
        """
        begun = time.perf_counter()
        running: dict[str, partial[None]] = {}
        errors: dict[str, list[str]] = {}

        def prepare(config: RunConfig) -> PreparedData:
            key = preparation_key(dataset, config)
            data = self._prepared.pop(key, None)
            while len(self._prepared) >= PREPARED_KEPT:
                del self._prepared[next(iter(self._prepared))]  # the one that was not used for longest
            self._prepared[key] = data or prepare_data(dataset, config, choose_device(config.device))
            return self._prepared[key]

        def end(run: PlannedRun, store: RunStore, outcome: RunOutcome | BaseException) -> None:
            del running[run.folder]
            seconds = (time.perf_counter() - begun) / len(task)
            if isinstance(outcome, RunOutcome):
                made, out_of_time = outcome.updates_made, outcome.out_of_time
                attempt = RunAttempt(outcome.status, outcome.message, made, seconds, out_of_time)
            else:
                kind, error = type(outcome).__name__, outcome
                attempt = RunAttempt("failed", f"{kind}: {error}", 0, seconds)
                if not isinstance(error, BusyError | StorageError):
                    trace = "".join(traceback.format_exception(error))
                    try:
                        record_failure(store, run, dataset, kind, str(error), trace)
                    except (BusyError, StorageError) as worse:
                        error = worse
                if isinstance(error, BusyError | StorageError):
                    status: AttemptStatus = "busy" if isinstance(error, BusyError) else "unwritable"
                    attempt = RunAttempt(status, str(error), 0, seconds)
            ended(run, replace(attempt, callback_errors=tuple(errors.get(run.folder, ()))))

        tasks = []
        for run, store, callback in zip(task, stores, callbacks, strict=True):
            end_run = running[run.folder] = partial(end, run, store)
            data = partial(prepare, run.config)
            if run.callbacks:
                own = [CALLBACKS.find(spec).member() for spec in run.callbacks]
                callback = observers = Observers([callback, *own])
                errors[run.folder] = observers.errors
            tasks.append(RunTask(run.config, load_parts(run), store, callback, data, end_run))
        try:
            train_runs(tasks, dataset, patience=BUSY_PATIENCE_SECONDS, ends_at=self.ends_at)
        except (Exception, SystemExit) as error:
            for end_run in list(running.values()):
                end_run(error)


def load_parts(run: PlannedRun) -> AlgorithmEntry:
    """Return a run's algorithm, with third-party network and criteria loaded in this process."""
    if run.network:
        find_network(run.network)
    find_criteria(run.criteria)
    return find_algorithm(run.algorithm)


def limit_memory(gigabytes: float | None) -> None:
    """Limit the memory of this process; allocating more raises an error."""
    if gigabytes is not None:
        import resource  # does not exist on Windows

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (int(gigabytes * 2**30), hard))


def record_failure(
    store: RunStore, run: PlannedRun, dataset: Dataset, kind: str, message: str, trace: str = ""
) -> None:
    """Write into run.json that a run failed and why; its checkpoint is kept for a retry."""
    described = describe_run(run.config, dataset, load_parts(run))
    with store.locked():
        if store.finished:
            return
        before = store.read_run() or described
        error = {"type": kind, "message": message, "traceback": trace}
        store.write_run({**before, "status": "failed", "error": error})


@dataclass(frozen=True)
class DatasetMessage:
    """A dataset for a worker: everything but its arrays, and where these are in the file that follows."""

    name: str
    header: bytes
    spans: list[tuple[int, int]]


class SharedDataset:
    """A dataset in one unnamed file that all workers map: one copy, gone when the last of them exits."""

    def __init__(self, name: str, dataset: Dataset) -> None:
        arrays: list[pickle.PickleBuffer] = []
        header = pickle.dumps(dataset, protocol=5, buffer_callback=arrays.append)
        spans: list[tuple[int, int]] = []
        try:
            self.file = tempfile.TemporaryFile(prefix="plench-")  # noqa: SIM115 - lives as long as its owner
            for array in arrays:
                start = -(-self.file.tell() // mmap.PAGESIZE) * mmap.PAGESIZE
                self.file.seek(start)
                self.file.write(array.raw())
                spans.append((start, self.file.tell()))
            self.file.flush()
        except OSError as error:
            needed = sum(array.raw().nbytes for array in arrays) / 2**20
            raise StorageError(
                f"the workers' copy of {dataset.card.name} needs {needed:,.1f} MB in the folder of temporary "
                f"files, {tempfile.gettempdir()}: {error.strerror or error}; free some space there, or set "
                "the environment variable TMPDIR to another folder"
            ) from error
        self.message = DatasetMessage(name, header, spans)


def map_dataset(message: DatasetMessage, descriptor: int) -> Dataset:
    """Rebuild a dataset on top of the mapped file, with read-only arrays. Closes the descriptor."""
    try:
        mapped = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)
    dataset = pickle.loads(message.header, buffers=[mapped[start:stop] for start, stop in message.spans])
    assert isinstance(dataset, Dataset)
    return dataset


@dataclass(frozen=True)
class Order:
    """A task for a worker; `ends_at`, by the monotonic clock, is when its time ends."""

    task: Task
    output_dir: Path
    memory_limit_gb: float | None = None
    ends_at: float = math.inf


@dataclass(frozen=True)
class RunEnded:
    """The end of an attempt at a run."""

    folder: str
    attempt: RunAttempt


class Worker:
    """Runs orders from a socket, whose other end is the driver, until it is closed."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self.socket = socket.socket(fileno=descriptor)
        self.connection = Connection(os.dup(descriptor))
        self.sending = threading.Lock()
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.datasets: dict[str, Dataset] = {}
        self.executor = RunExecutor()

    def work(self) -> None:
        """Run orders."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # between runs the driver handles Ctrl-C
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # and Slurm's warning, which reaches every process
        threading.Thread(target=self.receive, daemon=True).start()
        threading.Thread(target=self.send_heartbeats, daemon=True).start()
        self.send("ready")
        while True:
            message = self.messages.get()
            if not isinstance(message, Order):
                data, descriptor = message
                self.datasets[data.name] = map_dataset(data, descriptor)
                continue
            limit_memory(message.memory_limit_gb)
            self.executor.ends_at = message.ends_at
            self.executor.run_task(
                message.task,
                self.datasets[message.task[0].dataset],
                [RunStore(message.output_dir / run.folder) for run in message.task],
                [RunReporter(self.send, run.folder) for run in message.task],
                lambda run, attempt: self.send(RunEnded(run.folder, attempt)),
            )

    def receive(self) -> None:
        """Receive messages during runs; exit as soon as the driver has exited."""
        while True:
            try:
                message = self.connection.recv()
                if isinstance(message, DatasetMessage):
                    _, descriptors, _, _ = socket.recv_fds(self.socket, 1, 1)
                    message = (message, descriptors[0])
            except (EOFError, OSError):
                os._exit(1)
            self.messages.put(message)

    def send(self, message: object) -> None:
        """Send a message; exit if the driver has exited."""
        try:
            with self.sending:
                self.connection.send(message)
        except OSError:
            os._exit(1)

    def send_heartbeats(self) -> None:
        """Send a sign of life every second, whatever the run is doing."""
        while True:
            self.send("alive")
            time.sleep(SECONDS_BETWEEN_HEARTBEATS)


def main() -> None:
    """Work for the process at the other end of the inherited socket that the command line names."""
    Worker(int(sys.argv[1])).work()
