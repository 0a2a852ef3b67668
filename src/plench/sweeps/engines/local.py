"""The local engine: a pool of worker processes on this machine, each with one run or fleet at a time."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.connection import wait
from typing import ClassVar

import torch

from plench.errors import PlenchError, StorageError, UsageError
from plench.settings import Settings
from plench.sweeps.engines.base import DEATHS_ALLOWED, Assignment, DeathTolls, RunAttempt, Task, count_cores
from plench.sweeps.engines.process import WorkerProcess
from plench.sweeps.perform import fail_run
from plench.sweeps.plan import PlannedRun
from plench.sweeps.sharing import SharedDataset
from plench.sweeps.worker import ALIVE, Data, Order, RunProgress
from plench.training.callbacks import StopRequest

# Time for runs to write their checkpoints when the sweep is interrupted.
GRACE_SECONDS = 30.0
STARTS_ALLOWED = 3


class WorkerStartError(PlenchError):
    """Worker processes that end before they are ready."""


def choose_devices(asked: str) -> list[str]:
    """Return the devices to share out among workers: every GPU where there are any."""
    if asked == "auto" and torch.cuda.is_available():
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [asked]


class LocalEngine:
    """Runs on this machine, in processes that stay warm."""

    name: ClassVar[str] = "local"
    aliases: ClassVar[tuple[str, ...]] = ("multi_gpu",)
    waits: ClassVar[bool] = True
    writes: ClassVar[bool] = True
    gpus_per_run: ClassVar[float] = 0.0

    def __init__(
        self,
        workers: int | None = None,
        started: Sequence[WorkerProcess] = (),
        request: StopRequest | None = None,
    ) -> None:
        """`started` are workers that are starting already; the caller ends them.

        `request` says when to stop; without one, Ctrl-C and SIGTERM do.
        """
        if workers is not None and workers < 1:
            raise UsageError(f"workers must be at least 1, not {workers}")
        self.workers = workers
        self.started = started
        self.request = request

    def count_slots(self, settings: Settings) -> int:
        """Return the number of parallel runs: as asked, else one per GPU, else one per core."""
        if self.workers is not None:
            return self.workers
        devices = choose_devices(settings.device)
        if len(devices) > 1 or devices[0].startswith("cuda"):
            return len(devices)
        return max(count_cores() // settings.threads, 1)

    def carry_out(self, assignment: Assignment) -> None:
        """Carry out all runs, `workers` at a time."""
        if not assignment.todo:
            return
        if os.name == "nt":
            raise UsageError(
                "the local engine needs Linux or macOS (on Windows: WSL); the launcher dummy prints a "
                "command for every run, which works everywhere"
            )
        devices = choose_devices(assignment.settings.device)
        slots = min(self.count_slots(assignment.settings), len(assignment.tasks()))
        assignment.callback.planned(assignment.todo, assignment.finished, slots)
        with nullcontext(self.request) if self.request is not None else StopRequest() as stop:
            pool = Pool(
                assignment, [devices[number % len(devices)] for number in range(slots)], stop, self.started
            )
            try:
                pool.work()
            finally:
                pool.close()


class Pool:
    """Worker processes, the runs they have, and the runs that wait."""

    def __init__(
        self,
        assignment: Assignment,
        devices: list[str],
        stop: StopRequest,
        started: Sequence[WorkerProcess] = (),
    ) -> None:
        self.assignment = assignment
        self.stop = stop
        self.callback = assignment.callback
        self.waiting = deque(assignment.tasks())
        self.devices = devices
        missing = [None] * max(len(devices) - len(started), 0)
        self.workers: list[WorkerProcess | None] = [*started[: len(devices)], *missing]
        self.shared: dict[str, SharedDataset] = {}
        self.tolls = DeathTolls()
        self.failed_starts = 0
        self.stopping = False

    def work(self) -> None:
        """Carry out runs until none is left or a stop is requested."""
        while self.waiting or self.busy():
            if self.stop.asked:
                self.interrupt()
                return
            self.fill()
            self.hear(timeout=0.2)
            self.check_timeouts()
            self.check_silence()

    def busy(self) -> list[WorkerProcess]:
        """Return the workers that have a run."""
        return [worker for worker in self.workers if worker is not None and worker.runs]

    def fill(self) -> None:
        """Give every idle worker a run; start workers where there are none."""
        for slot, worker in enumerate(self.workers):
            if not self.waiting:
                return
            if worker is None:
                self.workers[slot] = worker = WorkerProcess(self.assignment.settings.threads)
            if worker.ready and not worker.runs:
                self.give(worker, self.waiting.popleft(), self.devices[slot])

    def give(self, worker: WorkerProcess, task: Task, device: str) -> None:
        """Hand runs to a worker, and their dataset first if the worker does not have it."""
        name = task[0].dataset
        placed = tuple(replace(run, config=replace(run.config, device=device)) for run in task)
        limits = self.assignment.limits
        order = Order(placed, self.assignment.output_dir, limits.memory_limit_gb, self.stop.ends_at)
        worker.take(task)
        for run in task:
            self.tolls.begin(run.folder)
        if name not in self.shared:
            self.shared[name] = SharedDataset(self.assignment.shelf.get(name))
        try:
            if name not in worker.datasets:
                worker.send_dataset(Data(name, self.shared[name].layout), self.shared[name].fileno())
            worker.connection.send(order)
        except OSError:
            return  # it has died; its closed connection is noticed later

    def hear(self, timeout: float) -> None:
        """Handle messages of workers."""
        by_connection = {worker.connection: worker for worker in self.workers if worker is not None}
        for connection in wait(list(by_connection), timeout):
            worker = by_connection[connection]  # type: ignore[index]
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                self.bury(worker)
                continue
            worker.heard_at = time.monotonic()
            if message == ALIVE:
                continue
            if message == "ready":
                worker.ready = True
                self.failed_starts = 0
            elif isinstance(message, RunProgress):
                self.note_progress(worker, message)
            else:
                self.end(worker, worker.runs.pop(message.folder), message.attempt)

    def note_progress(self, worker: WorkerProcess, progress: RunProgress) -> None:
        """Pass on the progress of a run."""
        run = worker.runs[progress.folder]
        if progress.begun:
            self.tolls.begin(run.folder, progress.updates)
            self.callback.begun(run, progress.updates)
        else:
            self.callback.advanced(run, progress.updates)

    def end(self, worker: WorkerProcess, run: PlannedRun, attempt: RunAttempt) -> None:
        """Handle the end of an attempt."""
        self.callback.ended(run, attempt)
        if attempt.out_of_time:
            self.stop.asked = True
        elif attempt.status == "interrupted":
            worker.again.append(run)  # this process alone was stopped; the sweep continues
        elif attempt.status == "failed":
            worker.failed = True
        elif attempt.status == "unwritable":
            raise StorageError(attempt.message)
        if worker.runs:
            return
        if worker.again:
            self.waiting.appendleft(tuple(worker.again))
        if worker.failed:
            self.replace(worker)  # nothing of the failure can leak into the next run

    def bury(self, worker: WorkerProcess, why: str | None = None) -> None:
        """Handle a dead worker process; a run that keeps killing it is recorded as failed."""
        reason = worker.reap()
        reason = why or reason
        self.replace(worker)
        if not worker.runs:
            if not worker.ready:
                self.failed_starts += 1
                if self.failed_starts >= STARTS_ALLOWED:
                    raise WorkerStartError(f"worker processes cannot start: {reason}")
            return
        if self.stopping:  # it was between two runs, or has been killed; its runs stay to be done
            for run in worker.runs.values():
                self.callback.ended(run, RunAttempt("interrupted", reason))
            worker.runs = {}
            return
        runs = worker.give_back()
        deaths = self.tolls.count(runs)
        if len(runs) > 1:
            self.start_again(runs, f"its {reason}", together=deaths == 1)
        elif deaths < DEATHS_ALLOWED:
            self.callback.noticed(f"{runs[0].label}: its {reason}; it is started again")
            self.waiting.appendleft(runs)
        else:
            fail_run(
                self.assignment,
                runs[0],
                "WorkerDied",
                f"its {reason}, {deaths} times without getting any further",
            )

    def start_again(self, runs: Task, reason: str, together: bool) -> None:
        """Put the runs of a fleet back into the queue: as one, or one by one, to find the one to blame."""
        how = "they are started again" if together else "they are carried out one by one"
        self.callback.noticed(f"{runs[0].label} and {len(runs) - 1} more: {reason}; {how}")
        self.waiting.extendleft([runs] if together else [(run,) for run in reversed(runs)])

    def check_timeouts(self) -> None:
        """Stop runs that take longer than they may."""
        limit = self.assignment.limits.run_timeout
        if limit is None:
            return
        for worker in self.busy():
            if time.monotonic() - worker.taken_at > limit * len(worker.task):
                runs = worker.give_back()
                self.replace(worker)
                reason = f"did not end within {limit:g} s (--run-timeout)"
                if len(runs) > 1:
                    self.start_again(runs, f"{reason} each", together=False)
                else:
                    fail_run(self.assignment, runs[0], "Timeout", reason)

    def check_silence(self) -> None:
        """Replace workers that have been silent for too long."""
        limit = self.assignment.limits.worker_silence
        for worker in self.busy():
            if time.monotonic() - worker.heard_at > limit:
                worker.process.kill()  # one that is stopped ends by this too
                self.bury(worker, f"worker process was silent for {limit:g} s (--worker-silence)")

    def replace(self, worker: WorkerProcess) -> None:
        """End a worker; a new one is started when there is a run for it."""
        worker.kill()
        self.workers[self.workers.index(worker)] = None

    def interrupt(self) -> None:
        """Let every run write a checkpoint and stop."""
        self.stopping = True
        self.waiting.clear()
        for worker in self.busy():
            worker.ask_to_stop()
        until = time.monotonic() + GRACE_SECONDS
        while self.busy() and time.monotonic() < until:
            self.hear(timeout=0.2)
            self.waiting.clear()

    def close(self) -> None:
        """End every worker."""
        for worker in self.workers:
            if worker is not None:
                worker.kill()
