"""The worker process of the local engine: takes runs from a socket, carries them out, reports progress.

It ends with the process that started it: a closed socket is the signal to leave at once.
"""

from __future__ import annotations

import math
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from plench.runs.folder import RunStore
from plench.sweeps.engines.base import RunAttempt, Task
from plench.sweeps.perform import Performer, limit_memory
from plench.sweeps.sharing import SharedLayout, map_dataset
from plench.training.config import RunConfig

ALIVE = "alive"
SECONDS_BETWEEN_BEATS = 1.0


@dataclass(frozen=True)
class Data:
    """A dataset follows: its descriptor comes through the socket right after this message."""

    name: str
    layout: SharedLayout


@dataclass(frozen=True)
class Order:
    """Carry out this run, or these as one; `ends_at`, by the monotonic clock, the time for it ends."""

    runs: Task
    output_dir: Path
    memory_limit_gb: float | None = None
    ends_at: float = math.inf


@dataclass(frozen=True)
class RunProgress:
    """So many updates have been made of a run; `begun` where training starts or continues."""

    folder: str
    updates: int
    begun: bool = False


@dataclass(frozen=True)
class Ended:
    """An attempt at a run has ended."""

    folder: str
    attempt: RunAttempt


class Reporter:
    """Reports the progress of runs to the driver."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.sending = threading.Lock()

    def tell(self, message: object) -> None:
        """Send a message. Without a driver there is nobody to work for, and no run to blame."""
        try:
            with self.sending:
                self.connection.send(message)
        except OSError:
            os._exit(1)

    def beat(self) -> None:
        """Send a sign of life every second, whatever the run is doing."""
        while True:
            self.tell(ALIVE)
            time.sleep(SECONDS_BETWEEN_BEATS)


class RunReporter:
    """Reports the progress of one run to the driver."""

    def __init__(self, reporter: Reporter, folder: str) -> None:
        self.reporter = reporter
        self.folder = folder

    def started(self, config: RunConfig, updates: int) -> None:
        """Training starts."""
        self.reporter.tell(RunProgress(self.folder, updates, begun=True))

    def advanced(self, updates: int, loss: float) -> None:
        """Some updates were made."""
        self.reporter.tell(RunProgress(self.folder, updates))

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Records are read from the folder, not from here."""


class Worker:
    """Carries out orders until there are no more."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self.socket = socket.socket(fileno=descriptor)
        self.connection = Connection(os.dup(descriptor))
        self.reporter = Reporter(self.connection)
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.datasets: dict[str, Any] = {}
        self.performer = Performer()

    def listen(self) -> None:
        """Receive messages while runs are carried out; exit as soon as the driver is gone."""
        while True:
            try:
                message = self.connection.recv()
                if isinstance(message, Data):
                    _, descriptors, _, _ = socket.recv_fds(self.socket, 1, 1)
                    message = (message, descriptors[0])
            except (EOFError, OSError):
                os._exit(1)
            self.messages.put(message)

    def work(self) -> None:
        """Carry out orders."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # between runs the driver handles Ctrl-C
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # and Slurm's warning, which reaches every process
        threading.Thread(target=self.listen, daemon=True).start()
        threading.Thread(target=self.reporter.beat, daemon=True).start()
        self.reporter.tell("ready")
        while True:
            message = self.messages.get()
            if isinstance(message, Order):
                self.carry_out(message)
            else:
                data, descriptor = message
                self.datasets[data.name] = map_dataset(data.layout, descriptor)

    def carry_out(self, order: Order) -> None:
        """Carry out an order, and tell how each of its runs ended."""
        limit_memory(order.memory_limit_gb)
        self.performer.ends_at = order.ends_at
        runs = order.runs
        self.performer.perform_fleet(
            runs,
            self.datasets[runs[0].dataset],
            [RunStore(order.output_dir / run.folder) for run in runs],
            [RunReporter(self.reporter, run.folder) for run in runs],
            lambda run, attempt: self.reporter.tell(Ended(run.folder, attempt)),
        )


def main() -> None:
    """Work for the process at the other end of the inherited socket that the command line names."""
    Worker(int(sys.argv[1])).work()
