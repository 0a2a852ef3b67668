"""The Slurm engine: runs are array jobs, submitted through submitit; pre-empted jobs are requeued.

Inside a job the local engine runs the share of the job with one worker, so that time limits, memory limits
and crashes are handled as on one machine. Data and output folders must be on a shared file system.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from plench.errors import PlenchError, UsageError, needs_package
from plench.files import write_text
from plench.settings import Settings
from plench.sweeps.engines.local import LocalEngine
from plench.sweeps.plan import DatasetCache, PlannedRun, Task
from plench.sweeps.progress import SweepLog
from plench.sweeps.scheduler import Assignment, Limits
from plench.sweeps.status import PENDING, read_states
from plench.training.loop import StopRequest

FOLDER = ".slurm"
# States of squeue in which a job waits; in all other states it runs.
WAITING_STATES = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
# Time that a job reserves for its last checkpoint, at most a third of its time.
MARGIN_SECONDS = 90
# Slurm's warning ends a process that does not handle it, so a job ignores it until it does.
PYTHON = 'sh -c \'trap "" USR2; exec "$0" "$@"\' ' + shlex.quote(sys.executable)

logger = logging.getLogger("plench")


class SlurmError(PlenchError):
    """A Slurm command failed."""


def import_submitit() -> Any:
    """Return the module submitit; raise an error that says how to install it."""
    with needs_package("the Slurm engine", "submitit", "slurm"):
        import submitit
    return submitit


@dataclass(frozen=True)
class SlurmEngine:
    """Submits runs to Slurm and returns; `plench sweep status` shows their progress."""

    name: ClassVar[str] = "slurm"
    waits: ClassVar[bool] = False
    writes: ClassVar[bool] = True

    partition: str | None = None
    minutes: int = 60
    memory_gb: float | None = None
    gpus: int = 0
    max_jobs: int | None = None
    runs_per_job: int = 1
    more: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("minutes", 1), ("gpus", 0), ("runs_per_job", 1), ("max_jobs", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} must be at least {least}, not {value}")

    @property
    def gpus_per_run(self) -> float:
        """The GPUs of a job, which its runs use one after the other."""
        return self.gpus

    def count_slots(self, settings: Settings) -> int | None:
        """Return how many jobs may run at once; without a cap the cluster decides."""
        return self.max_jobs

    def run(self, assignment: Assignment) -> None:
        """Submit every run that Slurm does not have yet."""
        import_submitit()
        queue = read_slurm_queue(assignment.output_dir)
        todo = [run for run in assignment.todo if run.folder not in queue]
        if len(todo) < len(assignment.todo):
            known = len(assignment.todo) - len(todo)
            assignment.callback.message(f"{known} runs are in Slurm's queue already; they stay there")
        if not todo:
            return
        assignment.callback.planned(todo, assignment.finished, self.max_jobs or 0)
        tasks = assignment.tasks(todo)
        shares = [tasks[i : i + self.runs_per_job] for i in range(0, len(tasks), self.runs_per_job)]
        config = call_slurm("scontrol", "show", "config")
        found = re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE)
        largest = max(int(found.group(1)) - 1, 1) if found else 1000
        for first in range(0, len(shares), largest):
            self._submit(shares[first : first + largest], assignment)

    def _submit(self, shares: Sequence[list[Task]], assignment: Assignment) -> None:
        """Submit one array; the runs of its jobs are written to a file first, by the name of the array."""
        submitit = import_submitit()
        folder = assignment.output_dir / FOLDER
        name = f"plench-{uuid.uuid4().hex[:12]}"
        listed = [[run.folder for stack in share for run in stack] for share in shares]
        write_text(folder / f"{name}.json", json.dumps(listed))
        data_dir = assignment.datasets.data_dir
        data_dir = None if data_dir is None else Path(data_dir).absolute()
        margin = min(MARGIN_SECONDS, self.minutes * 60 // 3)
        output_dir, limits = assignment.output_dir, assignment.limits
        jobs = [SlurmJob(share, output_dir, data_dir, limits, margin) for share in shares]
        options: dict[str, Any] = {
            "job_name": name,
            "time": self.minutes,
            "cpus_per_task": assignment.settings.threads,
            "signal_delay_s": margin,
            "stderr_to_stdout": True,
            "additional_parameters": {"requeue": True, **self.more},
            "array_parallelism": self.max_jobs,
            "partition": self.partition,
            "mem": None if self.memory_gb is None else f"{int(self.memory_gb * 1024)}MB",
            "gpus_per_node": self.gpus or None,
        }
        try:
            executor = submitit.SlurmExecutor(folder / "jobs", max_num_timeout=10**9, python=PYTHON)
            executor.update_parameters(**{key: value for key, value in options.items() if value is not None})
            with executor.batch():
                for job in jobs:
                    executor.submit(job)
        except (RuntimeError, submitit.core.utils.FailedJobError) as error:
            (folder / f"{name}.json").unlink(missing_ok=True)
            raise SlurmError(f"Slurm rejected the jobs: {error}") from error
        assignment.callback.message(f"submitted {len(jobs)} jobs named {name}")


@dataclass
class SlurmJob:
    """What one job does: its share of the runs, one stack after the other."""

    share: list[Task]
    output_dir: Path
    data_dir: Path | None
    limits: Limits
    margin: int

    def __call__(self) -> None:
        """Run the share; requeue the job if Slurm ends it before that."""
        with StopRequest() as request:
            warnings: queue.SimpleQueue[int] = queue.SimpleQueue()  # its put may interrupt itself
            signal.signal(signal.SIGUSR2, lambda number, frame: warnings.put(number))
            watch = threading.Thread(target=stop_in_time, args=(request, self.margin, warnings), daemon=True)
            watch.start()
            todo = self._unfinished()
            assignment = Assignment(
                todo=todo,
                finished=sum(map(len, self.share)) - len(todo),
                output_dir=self.output_dir,
                datasets=DatasetCache(self.data_dir),
                limits=self.limits,
                callback=SweepLog(lambda line: logger.warning("%s", line)),
                stacks=self.share,
            )
            LocalEngine(workers=1, stop=request).run(assignment)
        # A cancelled job is asked to stop as well, but is no longer running.
        if request.asked and self._unfinished() and ask_queue("%T") == "RUNNING":
            call_slurm("scontrol", "requeue", own_job())

    def _unfinished(self) -> list[PlannedRun]:
        """Return the runs of the share that are left; failed runs stay failed."""
        states = read_states([run for stack in self.share for run in stack], self.output_dir)
        return [entry.run for entry in states if entry.state in PENDING]

    def checkpoint(self) -> Any:
        """Return how submitit requeues the job if the warning comes before `__call__` handles it."""
        return import_submitit().helpers.DelayedSubmission(self)


def stop_in_time(request: StopRequest, margin: int, warnings: queue.SimpleQueue[int]) -> None:
    """Request a stop when this job has no more than `margin` seconds left; set when that will be.

    Slurm's warning may come a minute early, or because a pre-emption has shortened the time, so after a
    warning Slurm is asked again how much time is left.
    """
    warned = False
    while not request.asked:
        try:
            left = parse_duration(ask_queue("%L"))
        except SlurmError as error:
            logger.warning("%s", error)
            left = 0 if warned else None
        if left is not None:
            request.ends_at = time.monotonic() + left - margin
            if left <= margin:
                request.asked = True
                return
        try:
            warnings.get(timeout=None if left is None else left - margin)
            warned = True
        except queue.Empty:
            pass


def parse_duration(text: str) -> int | None:
    """Return the seconds of squeue's [[days-]hours:]minutes:seconds; None for anything else."""
    found = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(number or 0) for number in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def ask_queue(what: str) -> str:
    """Return a field of this job from squeue, by its format letter."""
    return call_slurm("squeue", "--noheader", f"--jobs={own_job()}", f"--format={what}").strip()


def own_job() -> str:
    """Return the id of the job of this process."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{index}" if array else os.environ["SLURM_JOB_ID"]


def read_slurm_queue(output_dir: Path) -> dict[str, str]:
    """Return the runs that Slurm has, by folder, as `queued` or `running`. Does not need accounting."""
    submissions = {path.stem: path for path in (output_dir / FOLDER).glob("plench-*.json")}
    if not submissions:
        return {}
    # The name comes last: other jobs of the user may have names with spaces.
    text = call_slurm("squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%K %T %j")
    shares: dict[str, list[list[str]]] = {}
    queue: dict[str, str] = {}
    for line in text.splitlines():
        index, state, name = (*line.split(maxsplit=2), "", "", "")[:3]
        if name not in submissions:
            continue
        if name not in shares:
            try:
                shares[name] = json.loads(submissions[name].read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                logger.warning("%s cannot be read (%s)", submissions[name], error)
                shares[name] = []
        place = int(index) if index.isdigit() else 0
        share = shares[name][place] if place < len(shares[name]) else []
        queue.update(dict.fromkeys(share, "queued" if state in WAITING_STATES else "running"))
    return queue


def call_slurm(*words: str) -> str:
    """Run a Slurm command and return its output."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    except FileNotFoundError as error:
        raise SlurmError(f"command {words[0]} not found: is this a machine of a Slurm cluster?") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{words[0]} did not answer within 120 s") from error
    except subprocess.CalledProcessError as error:
        raise SlurmError(f"{' '.join(words)} failed: {error.stderr.strip()}") from error
    return done.stdout
