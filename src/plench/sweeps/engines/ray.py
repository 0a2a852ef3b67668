"""The Ray engine: runs are tasks of a Ray cluster; records and checkpoints come back to one writer.

The writer is an actor on the driver's machine and the only process that touches the output folder, so no
file system has to be shared. A worker waits until the writer has what it sends, so nothing is left behind in
a worker that may die. A run that is started again elsewhere gets its checkpoint from the writer.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

from plench.errors import StorageError, UsageError
from plench.settings import Settings
from plench.sweeps.engines.base import DEATHS_ALLOWED, Assignment, DeathTolls, RunAttempt, Task, count_cores
from plench.sweeps.engines.ray_run import carry_out_runs, read_given_files
from plench.sweeps.engines.ray_start import EarlyRay, connect, import_ray, keep_to_loopback, start_writer
from plench.sweeps.engines.ray_writer import SECONDS_BETWEEN_EVENTS
from plench.sweeps.perform import fail_run
from plench.training.callbacks import StopRequest

GRACE_SECONDS = 30.0


class RayEngine:
    """Runs on a Ray cluster: one that exists (`address`), or one of its own on this machine."""

    name: ClassVar[str] = "ray"
    waits: ClassVar[bool] = True
    writes: ClassVar[bool] = True

    def __init__(
        self,
        address: str | None = None,
        cpus_per_run: float = 1.0,
        gpus_per_run: float = 0.0,
        workers: int | None = None,
        started: EarlyRay | None = None,
    ) -> None:
        """`started` is a Ray that is starting already; the caller ends it."""
        if cpus_per_run < 0 or gpus_per_run < 0 or cpus_per_run + gpus_per_run == 0:
            raise UsageError("a run needs some CPU or GPU: cpus_per_run and gpus_per_run are too small")
        if address is not None and workers is not None:
            raise UsageError("the size of an existing Ray cluster is given; workers is for a Ray of its own")
        if workers is not None and workers < 1:
            raise UsageError(f"workers must be at least 1, not {workers}")
        self.address = address
        self.cpus_per_run = cpus_per_run
        self.gpus_per_run = gpus_per_run
        self.workers = workers
        self.started = started

    def count_slots(self, settings: Settings) -> int | None:
        """Return the number of parallel runs; that of an existing cluster is known once it is joined."""
        if self.address is not None:
            return None
        return self.workers or max(int(count_cores() / max(self.cpus_per_run, 1e-9)), 1)

    def carry_out(self, assignment: Assignment) -> None:
        """Carry out all runs as Ray tasks."""
        if not assignment.todo:
            return
        if self.address is None and "ray" not in sys.modules:
            keep_to_loopback(True)
        ray = import_ray()
        if self.started is not None:
            self.started.wait()
        joined = ray.is_initialized()
        if not joined:
            connect(self.address, self.workers, self.cpus_per_run)
        try:
            with StopRequest() as stop:
                RayDriver(ray, self, assignment).work(stop)
        finally:
            if not joined:
                ray.shutdown()


class RayDriver:
    """Hands runs to the cluster and handles what comes back."""

    def __init__(self, ray: Any, engine: RayEngine, assignment: Assignment) -> None:
        self.ray = ray
        self.engine = engine
        self.assignment = assignment
        self.callback = assignment.callback
        self.waiting = deque(assignment.tasks())
        self.runs = {run.folder: run for run in assignment.todo}
        self.flying: dict[Any, Task] = {}
        self.opened_at: dict[str, float] = {}
        self.data: dict[str, Any] = {}
        self.tolls = DeathTolls()
        self.slots = 0
        self.counted_at = self.heard_at = -math.inf
        self.writer = start_writer(ray) if engine.started is None else engine.started.writer
        self.task = ray.remote(
            num_cpus=engine.cpus_per_run, num_gpus=engine.gpus_per_run, max_retries=0, max_calls=0
        )(carry_out_runs)

    def work(self, stop: StopRequest) -> None:
        """Carry out runs until none is left or a stop is requested."""
        slots = self.count_slots()
        self.callback.planned(self.assignment.todo, self.assignment.finished, slots)
        if slots < 1:
            demand = f"{self.engine.cpus_per_run:g} CPUs, {self.engine.gpus_per_run:g} GPUs"
            self.callback.noticed(f"no node has room for a run ({demand}); waiting for a node that has it")
        while self.waiting or self.flying:
            if stop.asked:
                self.interrupt()
                return
            # No more tasks than there is room for: where tasks wait, Ray starts processes that are not warm.
            while self.waiting and len(self.flying) < max(self.count_slots(), 1):
                self.submit(self.waiting.popleft())
            self.take_in(timeout=0.5)
            self.check_timeouts()

    def count_slots(self) -> int:
        """Return how many runs the cluster has room for; nodes come and go, so it is asked now and then."""
        if time.monotonic() - self.counted_at < 2.0:
            return self.slots
        self.counted_at = time.monotonic()
        total = self.ray.cluster_resources()
        rooms = [
            int(total.get(kind, 0) / demand)
            for kind, demand in (("CPU", self.engine.cpus_per_run), ("GPU", self.engine.gpus_per_run))
            if demand > 0
        ]
        self.slots = min(rooms if self.engine.workers is None else [*rooms, self.engine.workers])
        return self.slots

    def submit(self, runs: Task) -> None:
        """Hand runs to Ray; their dataset goes into the object store once."""
        name = runs[0].dataset
        if name not in self.data:
            self.data[name] = self.ray.put(self.assignment.shelf.get(name))
        reference = self.task.remote(
            runs,
            self.data[name],
            read_given_files(runs[0]),
            self.writer,
            self.assignment.output_dir,
            self.assignment.limits.memory_limit_gb,
        )
        self.flying[reference] = runs

    def take_in(self, timeout: float) -> None:
        """Handle tasks that have ended, and messages of the others."""
        ready, _ = self.ray.wait(list(self.flying), num_returns=1, timeout=timeout)
        if not ready or time.monotonic() - self.heard_at > SECONDS_BETWEEN_EVENTS:
            self.pass_on_events()
        for reference in ready:
            runs = self.flying.pop(reference)
            for run in runs:
                self.opened_at.pop(run.folder, None)
            try:
                attempts = self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                self.bury(runs, error)
            else:
                self.end(runs, attempts)

    def pass_on_events(self) -> None:
        """Tell the callback what runs say through the writer."""
        self.heard_at = time.monotonic()
        try:
            events = self.ray.get(self.writer.take_events.remote())
        except self.ray.exceptions.RayActorError as error:
            raise StorageError("the process that writes the results has died") from error
        for folder, updates, kind in events:
            if kind == "opened":
                self.opened_at[folder] = time.monotonic()
                self.tolls.begin(folder)
            elif kind == "begun":
                self.tolls.begin(folder, updates)
                self.callback.begun(self.runs[folder], updates)
            else:
                self.callback.advanced(self.runs[folder], updates)

    def end(self, runs: Task, attempts: Mapping[str, RunAttempt]) -> None:
        """Handle the end of attempts."""
        for run in runs:
            self.callback.ended(run, attempts[run.folder])
        again = tuple(run for run in runs if attempts[run.folder].status == "interrupted")
        if again:
            self.waiting.appendleft(again)
        for attempt in attempts.values():
            if attempt.status == "unwritable":
                raise StorageError(attempt.message)

    def bury(self, runs: Task, error: Exception) -> None:
        """Handle a dead process or node; a run that keeps killing it is recorded as failed."""
        self.pass_on_events()
        self.release(runs)
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        deaths = self.tolls.count(runs)
        if len(runs) > 1:
            self.start_again(runs, f"their process died ({reason})", together=deaths == 1)
        elif deaths < DEATHS_ALLOWED:
            self.callback.noticed(f"{runs[0].label}: its process died ({reason}); it is started again")
            self.waiting.appendleft(runs)
        else:
            message = f"its process died {deaths} times without getting any further: {reason}"
            fail_run(self.assignment, runs[0], "WorkerDied", message)

    def start_again(self, runs: Task, reason: str, together: bool) -> None:
        """Put the runs of a fleet back into the queue: as one, or one by one, to find the one to blame.

        Those that had finished before are looked at and left as they are; those that had failed try again.
        """
        how = "they are started again" if together else "they are carried out one by one"
        self.callback.noticed(f"{runs[0].label} and {len(runs) - 1} more: {reason}; {how}")
        self.waiting.extendleft([runs] if together else [(run,) for run in reversed(runs)])

    def check_timeouts(self) -> None:
        """Stop runs that take longer than they may."""
        limit = self.assignment.limits.run_timeout
        if limit is None:
            return
        for reference, runs in list(self.flying.items()):
            opened = min((self.opened_at.get(run.folder, math.inf) for run in runs), default=math.inf)
            if time.monotonic() - opened > limit * len(runs):
                del self.flying[reference]
                for run in runs:
                    self.opened_at.pop(run.folder, None)
                self.ray.cancel(reference, force=True)
                self.release(runs)
                reason = f"did not end within {limit:g} s (--run-timeout)"
                if len(runs) > 1:
                    self.start_again(runs, f"{reason} each", together=False)
                else:
                    fail_run(self.assignment, runs[0], "Timeout", reason)

    def release(self, runs: Task) -> None:
        """Let the writer forget attempts; what they may still send is refused."""
        self.ray.get([self.writer.release.remote(run.folder) for run in runs])

    def interrupt(self) -> None:
        """Let every run write a checkpoint and stop."""
        self.waiting.clear()
        for reference in self.flying:
            with suppress(self.ray.exceptions.RayError):
                self.ray.cancel(reference, force=False, recursive=False)
        until = time.monotonic() + GRACE_SECONDS
        while self.flying and time.monotonic() < until:
            self.take_in(timeout=0.2)
            self.waiting.clear()
