"""One worker process as the local engine sees it. Starting one needs no torch in the process that does it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plench.sweeps.engines.base import Task
    from plench.sweeps.plan import PlannedRun
    from plench.sweeps.worker import Data

_OUTPUT_SHOWN = 2000
# The worker is tied to its parent before anything slow is imported.
_COMMAND = "from plench.sweeps.leash import put_on; put_on(); from plench.sweeps.worker import main; main()"


class WorkerProcess:
    """A process, the connection to it, and the runs it has."""

    def __init__(self, threads: int) -> None:
        ours, theirs = socket.socketpair()
        # What a run prints is kept until the next one begins, to be shown if the process dies.
        self.output = tempfile.TemporaryFile(mode="a+b", prefix="plench-")  # noqa: SIM115
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                pass_fds=[theirs.fileno()],
                env=worker_environment(threads),
                process_group=0,  # Ctrl-C is for the driver, which asks its workers to stop
            )
        self.socket = ours
        self.connection = Connection(os.dup(ours.fileno()))
        self.ready = False
        self.task: Task = ()
        # Of its task: the runs that have not ended, and how the others ended.
        self.runs: dict[str, PlannedRun] = {}
        self.again: list[PlannedRun] = []
        self.failed = False
        self.taken_at = 0.0
        self.heard_at = time.monotonic()
        self.datasets: set[str] = set()

    def take(self, task: Task) -> None:
        """Remember which runs the worker has."""
        self.task = task
        self.runs = {run.folder: run for run in task}
        self.again, self.failed = [], False
        self.taken_at = self.heard_at = time.monotonic()
        os.ftruncate(self.output.fileno(), 0)

    def give_back(self) -> Task:
        """Return the runs that are still to be done, interrupted ones too; the worker has none now."""
        runs = (*self.again, *self.runs.values())
        self.runs, self.again = {}, []
        return runs

    def send_dataset(self, message: Data, descriptor: int) -> None:
        """Hand over a shared dataset."""
        self.connection.send(message)
        socket.send_fds(self.socket, [b"d"], [descriptor])
        self.datasets.add(message.name)

    def ask_to_stop(self) -> None:
        """Ask for a checkpoint and an end of the run."""
        self.process.send_signal(signal.SIGTERM)

    def reap(self) -> str:
        """Wait for a process that is ending; return how it ended, with its last output."""
        code = self.process.wait()
        size = os.fstat(self.output.fileno()).st_size
        tail = os.pread(self.output.fileno(), _OUTPUT_SHOWN, max(size - _OUTPUT_SHOWN, 0))
        said = tail.decode("utf-8", errors="replace").strip()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"worker process died ({how})" + (f"; it said: {said}" if said else "")

    def kill(self) -> None:
        """End the process at once; a second time does nothing."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
        self.socket.close()
        self.output.close()


def worker_environment(threads: int) -> dict[str, str]:
    """Return a worker's environment: modules found as here, and no more threads than it may use."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**os.environ, "PYTHONPATH": path, **limits}
