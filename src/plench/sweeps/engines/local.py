"""The local engine: a pool of worker processes on this machine, each with one run or stack at a time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import ClassVar

import torch

from plench.errors import PlenchError, UsageError
from plench.settings import Settings
from plench.sweeps.executor import Order, SharedDataset
from plench.sweeps.scheduler import Assignment, Crash, Job, Message, Scheduler, count_cores
from plench.training.loop import StopRequest

STARTS_ALLOWED = 3
_OUTPUT_SHOWN = 2000
# On Linux the kernel kills a worker when the driver's thread that started it ends, even while the worker is
# importing torch (PR_SET_PDEATHSIG is 1). Elsewhere the closed socket ends it, as soon as it reads that.
_WORKER = """
import ctypes, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
from plench.sweeps.executor import main
main()
"""


class WorkerStartError(PlenchError):
    """Worker processes exit before they are ready."""


class LocalEngine:
    """Runs on this machine, in processes that stay warm."""

    name: ClassVar[str] = "local"
    aliases: ClassVar[tuple[str, ...]] = ("multi_gpu",)
    waits: ClassVar[bool] = True
    writes: ClassVar[bool] = True
    gpus_per_run: ClassVar[float] = 0.0

    def __init__(self, workers: int | None = None, stop: StopRequest | None = None) -> None:
        """`stop` says when to stop; without it, Ctrl-C and SIGTERM do."""
        if workers is not None and workers < 1:
            raise UsageError(f"workers must be at least 1, not {workers}")
        self.workers = workers
        self.stop = stop

    def count_slots(self, settings: Settings) -> int:
        """Return the number of parallel runs: as requested, else one per GPU, else one per core."""
        if self.workers is not None:
            return self.workers
        devices = choose_devices(settings.device)
        if len(devices) > 1 or devices[0].startswith("cuda"):
            return len(devices)
        return max(count_cores() // settings.threads, 1)

    def run(self, assignment: Assignment) -> None:
        """Run all runs, `workers` at a time."""
        if not assignment.todo:
            return
        if os.name == "nt":
            raise UsageError(
                "the local engine needs Linux or macOS (on Windows: WSL); the launcher dummy prints a "
                "command for every run, which works everywhere"
            )
        slots = min(self.count_slots(assignment.settings), len(assignment.tasks()))
        assignment.callback.planned(assignment.todo, assignment.finished, slots)
        with nullcontext(self.stop) if self.stop is not None else StopRequest() as stop:
            backend = LocalBackend(assignment, slots, stop)
            try:
                Scheduler(assignment, backend, stop).run()
            finally:
                backend.close()


def choose_devices(asked: str) -> list[str]:
    """Return the devices to distribute among workers: every GPU if there are any."""
    if asked == "auto" and torch.cuda.is_available():
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [asked]


class LocalBackend:
    """Worker processes, one per slot, and the datasets that they share."""

    def __init__(self, assignment: Assignment, slots: int, stop: StopRequest) -> None:
        self.assignment = assignment
        self.stop = stop
        devices = choose_devices(assignment.settings.device)
        self.devices = [devices[number % len(devices)] for number in range(slots)]
        self.workers: list[WorkerProcess | None] = [None] * slots
        self.shared: dict[str, SharedDataset] = {}
        self.failed_starts = 0

    def has_room(self) -> bool:
        """Return True if a worker is idle; start workers in empty slots."""
        for slot, worker in enumerate(self.workers):
            if worker is None:
                self.workers[slot] = WorkerProcess(self.assignment.settings.threads)
        return any(worker is not None and worker.is_idle for worker in self.workers)

    def start(self, job: Job) -> None:
        """Send a job to an idle worker, and its dataset first if the worker does not have it."""
        slot = next(i for i, worker in enumerate(self.workers) if worker is not None and worker.is_idle)
        worker = self.workers[slot]
        assert worker is not None
        task = tuple(replace(run, config=replace(run.config, device=self.devices[slot])) for run in job.task)
        name = task[0].dataset
        if name not in self.shared:
            self.shared[name] = SharedDataset(name, self.assignment.datasets.get(name))
        limit = self.assignment.limits.memory_limit_gb
        order = Order(task, self.assignment.output_dir, limit, self.stop.ends_at)
        worker.start(job, order, self.shared[name])

    def poll(self, timeout: float) -> list[tuple[Job, Message]]:
        """Return messages of workers; workers that sent nothing for too long are killed."""
        messages: list[tuple[Job, Message]] = []
        silence = self.assignment.limits.worker_silence
        workers = {worker.connection: worker for worker in self.workers if worker is not None}
        ready = wait(list(workers), timeout)
        for connection, worker in workers.items():
            if connection in ready:
                try:
                    message = connection.recv()
                except (EOFError, OSError):
                    messages += self._handle_exit(worker)
                    continue
                worker.heard_at = time.monotonic()
                if message == "ready":
                    worker.ready = True
                    self.failed_starts = 0
                elif message != "alive" and worker.job is not None:
                    messages.append((worker.job, message))
            elif worker.job is not None and time.monotonic() - worker.heard_at > silence:
                reason = f"its worker process was silent for {silence:g} s (--worker-silence)"
                messages += self._handle_exit(worker, reason)
        return messages

    def _handle_exit(self, worker: WorkerProcess, reason: str | None = None) -> list[tuple[Job, Message]]:
        """Return the crash of the worker's job; without a job, raise if workers keep failing to start."""
        reason, found = reason or worker.explain_exit(), worker.job
        self._remove(worker)
        if found is not None:
            return [(found, Crash(reason))]
        if not worker.ready:
            self.failed_starts += 1
            if self.failed_starts >= STARTS_ALLOWED:
                raise WorkerStartError(f"worker processes cannot start: {reason}")
        return []

    def finish(self, job: Job) -> None:
        """Make a worker idle, or replace it after a failure, so that nothing leaks into the next run."""
        for worker in self.workers:
            if worker is not None and worker.job is job:
                worker.job = None
                if job.failed:
                    self._remove(worker)

    def kill(self, job: Job) -> None:
        """Kill the worker that has a job."""
        job.failed = True
        self.finish(job)

    def ask_to_stop(self) -> None:
        """Ask busy workers to write checkpoints and stop."""
        for worker in self.workers:
            if worker is not None and worker.job is not None:
                worker.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Kill every worker."""
        for worker in self.workers:
            if worker is not None:
                worker.kill()

    def _remove(self, worker: WorkerProcess) -> None:
        """Kill a worker; another one is started when a task waits."""
        worker.kill()
        self.workers[self.workers.index(worker)] = None


class WorkerProcess:
    """A worker process, the connection to it, and its job."""

    def __init__(self, threads: int) -> None:
        ours, theirs = socket.socketpair()
        # Output is kept until the next job starts, to be shown if the process crashes.
        self.output = tempfile.TemporaryFile(mode="a+b", prefix="plench-")  # noqa: SIM115
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _WORKER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path, **dict.fromkeys(names, str(threads))},
                process_group=0,  # Ctrl-C is for the driver, which asks its workers to stop
            )
        self.socket = ours
        self.connection = Connection(os.dup(ours.fileno()))
        self.ready = False
        self.job: Job | None = None
        self.heard_at = time.monotonic()
        self.datasets: set[str] = set()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a job."""
        return self.ready and self.job is None

    def start(self, job: Job, order: Order, shared: SharedDataset) -> None:
        """Send a job, and its dataset if the process does not have it."""
        self.job = job
        job.started_at = self.heard_at = time.monotonic()
        os.ftruncate(self.output.fileno(), 0)
        name = order.task[0].dataset
        try:
            if name not in self.datasets:
                self.connection.send(shared.message)
                socket.send_fds(self.socket, [b"d"], [shared.file.fileno()])
                self.datasets.add(name)
            self.connection.send(order)
        except OSError:
            return  # it has exited; the closed connection is handled by `poll`

    def explain_exit(self) -> str:
        """Wait until the process has exited; return how, with its last output."""
        code = self.process.wait()
        size = os.fstat(self.output.fileno()).st_size
        tail = os.pread(self.output.fileno(), _OUTPUT_SHOWN, max(size - _OUTPUT_SHOWN, 0))
        output = tail.decode("utf-8", errors="replace").strip()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"its worker process crashed ({how})" + (f"; last output: {output}" if output else "")

    def kill(self) -> None:
        """End the process at once; a second call does nothing."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
        self.socket.close()
        self.output.close()
