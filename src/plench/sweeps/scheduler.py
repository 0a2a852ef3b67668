"""The scheduler of the local and the Ray engine: assigns tasks, handles crashes, timeouts and interrupts.

Where and how a task is executed is the business of a back end (`Backend`).
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from plench.errors import BusyError, StorageError
from plench.runs.folder import RunStore
from plench.settings import Settings
from plench.sweeps.executor import RunAttempt, RunEnded, record_failure
from plench.sweeps.plan import DatasetCache, PlannedRun, Task
from plench.sweeps.progress import RunProgress, SweepCallback
from plench.training.loop import StopRequest

# A run whose process crashed this often without progress is recorded as failed.
CRASHES_ALLOWED = 3
# Time for runs to write their checkpoints when the sweep is interrupted.
GRACE_SECONDS = 30.0


@dataclass(frozen=True)
class Limits:
    """Limits of a single run: seconds of wall time per attempt, and gigabytes of memory.

    A local worker process that sends nothing for `worker_silence` seconds is replaced.
    """

    run_timeout: float | None = None
    memory_limit_gb: float | None = None
    worker_silence: float = 120.0


@dataclass
class Assignment:
    """Work for an engine: runs that are not finished, their output folder, and how to run them."""

    todo: list[PlannedRun]
    finished: int
    output_dir: Path
    datasets: DatasetCache
    limits: Limits
    callback: SweepCallback = field(default_factory=SweepCallback)
    # All runs of the sweep, finished ones too, in stacks; runs that are not listed are run separately.
    stacks: Sequence[Task] = ()
    # Runs that another process holds, with the reason.
    busy: dict[str, str] = field(default_factory=dict)
    callback_errors: set[str] = field(default_factory=set)

    def tasks(self, todo: Sequence[PlannedRun] | None = None) -> list[Task]:
        """Return the tasks of single processes: stacks without their finished runs."""
        left = {run.folder: run for run in (self.todo if todo is None else todo)}
        found = (tuple(left.pop(run.folder) for run in stack if run.folder in left) for stack in self.stacks)
        tasks = [stack for stack in found if stack]
        return tasks + [(run,) for run in left.values()]

    @property
    def settings(self) -> Settings:
        """Device and threads, which all runs of a launch share."""
        return self.todo[0].config if self.todo else Settings()

    def report(self, run: PlannedRun, attempt: RunAttempt) -> None:
        """Report the end of an attempt."""
        if attempt.status == "busy":
            self.busy[run.folder] = attempt.message
        for error in set(attempt.callback_errors) - self.callback_errors:
            self.callback.message(f"{run.label}: {error} (shown once for all runs)")
            self.callback_errors.add(error)
        self.callback.ended(run, attempt)

    def fail_run(self, run: PlannedRun, kind: str, message: str) -> None:
        """Record why a run failed whose own process cannot record it."""
        store = RunStore(self.output_dir / run.folder)
        try:
            record_failure(store, run, self.datasets.get(run.dataset), kind, message)
        except BusyError as error:  # a process that the run had started outlives it
            self.report(run, RunAttempt("busy", str(error)))
        else:
            self.report(run, RunAttempt("failed", f"{kind}: {message}"))


@dataclass(eq=False)
class Job:
    """A task in a back end: the runs that have not ended, and those that were interrupted."""

    task: Task
    left: dict[str, PlannedRun] = field(init=False)
    interrupted: set[str] = field(default_factory=set)
    failed: bool = False
    # By the monotonic clock; set by the back end as soon as the task is executed.
    started_at: float = math.inf

    def __post_init__(self) -> None:
        self.left = {run.folder: run for run in self.task}

    @property
    def unfinished(self) -> Task:
        """The runs that have to be run again if the job stops now, in the order of the stack."""
        return tuple(run for run in self.task if run.folder in self.left or run.folder in self.interrupted)


@dataclass(frozen=True)
class Crash:
    """The process of a job has exited by itself."""

    reason: str


Message = RunProgress | RunEnded | Crash


class Backend(Protocol):
    """Executes jobs: in processes of this machine, or as tasks of a Ray cluster."""

    def has_room(self) -> bool:
        """Return True if another job can start now."""

    def start(self, job: Job) -> None:
        """Start a job."""

    def poll(self, timeout: float) -> Iterable[tuple[Job, Message]]:
        """Wait for messages of jobs and return them."""

    def finish(self, job: Job) -> None:
        """Release what a job used whose runs have all ended."""

    def kill(self, job: Job) -> None:
        """End a job at once, or clean up after its crash."""

    def ask_to_stop(self) -> None:
        """Ask all jobs to write checkpoints and to stop."""


class Scheduler:
    """Runs an assignment on a back end."""

    def __init__(self, assignment: Assignment, backend: Backend, stop: StopRequest) -> None:
        self.assignment = assignment
        self.backend = backend
        self.stop = stop
        self.waiting = deque(assignment.tasks())
        self.active: list[Job] = []
        self.resumed_after: dict[str, int] = {}  # updates, by folder
        # Crashes without progress, and the updates before them. Those of a stack count for the stack only.
        self.crashes: dict[tuple[str, bool], tuple[int, int]] = {}
        self.stopping = False

    def run(self) -> None:
        """Run tasks until none is left or a stop is requested."""
        while self.waiting or self.active:
            if self.stop.asked:
                self.interrupt()
                return
            while self.waiting and self.backend.has_room():
                job = Job(self.waiting.popleft())
                self.resumed_after.update(dict.fromkeys(job.left, 0))
                self.active.append(job)
                self.backend.start(job)
            self.handle_messages()
            self.check_timeouts()

    def handle_messages(self) -> None:
        """Handle progress, ends and crashes."""
        callback = self.assignment.callback
        for job, message in self.backend.poll(timeout=0.2):
            if job not in self.active:
                continue  # killed after the message was sent
            if isinstance(message, Crash):
                self.handle_crash(job, message.reason)
            elif isinstance(message, RunEnded):
                self.end_run(job, job.left.pop(message.folder), message.attempt)
            elif message.folder in job.left:
                run = job.left[message.folder]
                if message.started:
                    self.resumed_after[run.folder] = message.updates
                    callback.started(run, message.updates)
                else:
                    callback.advanced(run, message.updates)

    def end_run(self, job: Job, run: PlannedRun, attempt: RunAttempt) -> None:
        """Handle the end of an attempt."""
        self.assignment.report(run, attempt)
        if attempt.out_of_time:
            self.stop.asked = True
        elif attempt.status == "interrupted":
            job.interrupted.add(run.folder)  # only its process was stopped; the sweep continues
        elif attempt.status == "failed":
            job.failed = True
        elif attempt.status == "unwritable":
            raise StorageError(attempt.message)
        if not job.left:
            self.active.remove(job)
            self.backend.finish(job)
            if job.interrupted:
                self.requeue(job.unfinished)

    def handle_crash(self, job: Job, reason: str) -> None:
        """Start the runs of a crashed process again; a run that keeps crashing it is recorded as failed."""
        self.active.remove(job)
        self.backend.kill(job)
        if self.stopping:  # it had nothing to save, or was killed; its runs can be resumed
            for run in job.left.values():
                self.assignment.report(run, RunAttempt("interrupted", reason))
            return
        runs = job.unfinished
        key, updates = (runs[0].folder, len(runs) > 1), self.resumed_after[runs[0].folder]
        crashes, before = self.crashes.get(key, (0, -1))
        crashes = crashes + 1 if updates <= before else 1
        self.crashes[key] = crashes, updates
        if len(runs) > 1:
            self.run_again(runs, reason, separately=crashes > 1)
        elif crashes < CRASHES_ALLOWED:
            self.assignment.callback.message(f"{runs[0].label}: {reason}; it is started again")
            self.requeue(runs)
        else:
            self.assignment.fail_run(runs[0], "WorkerDied", f"{reason}; {crashes} times without progress")

    def check_timeouts(self) -> None:
        """Kill jobs that take too long; a stack has the time of all its runs."""
        limit = self.assignment.limits.run_timeout
        for job in self.active[:]:
            if limit is None or time.monotonic() - job.started_at <= limit * len(job.task):
                continue
            self.active.remove(job)
            self.backend.kill(job)
            runs, reason = job.unfinished, f"did not end within {limit:g} s (--run-timeout)"
            if len(runs) > 1:
                self.run_again(runs, f"{reason} each", separately=True)
            else:
                self.assignment.fail_run(runs[0], "Timeout", reason)

    def run_again(self, runs: Task, reason: str, separately: bool) -> None:
        """Queue the runs of a stack again: together, or separately to find the one that fails."""
        how = "they are run separately" if separately else "they are started again"
        self.assignment.callback.message(f"{runs[0].label} and {len(runs) - 1} more: {reason}; {how}")
        self.requeue(*([(run,) for run in runs] if separately else [runs]))

    def requeue(self, *tasks: Task) -> None:
        """Put tasks at the head of the queue."""
        if not self.stopping:
            self.waiting.extendleft(reversed(tasks))

    def interrupt(self) -> None:
        """Let every run write a checkpoint and stop."""
        self.stopping = True
        self.backend.ask_to_stop()
        until = time.monotonic() + GRACE_SECONDS
        while self.active and time.monotonic() < until:
            self.handle_messages()


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
