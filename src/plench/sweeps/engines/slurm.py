"""The Slurm engine: runs are array jobs, submitted through submitit; pre-empted jobs are requeued.

Inside a job the local engine does the work, with one worker, so that time limits, memory limits and dying
processes are treated as on one machine. Data and output folders must be on a shared file system.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from plench.errors import PlenchError, UsageError, missing_package
from plench.plain_files import read_plain
from plench.runs.files import write_text
from plench.settings import Settings
from plench.sweeps.engines.base import Assignment, Limits, NoSweepCallback, RunAttempt, Task
from plench.sweeps.engines.local import LocalEngine
from plench.sweeps.plan import DataShelf, PlannedRun
from plench.sweeps.run_states import PENDING, read_states
from plench.training.callbacks import StopRequest

FOLDER = ".slurm"
MAX_BYTES = 2**24  # of what a submission writes down
# States of squeue in which a job still waits for its turn; in all others that it lists the job is at work.
WAITING_STATES = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
# Time that a job keeps back for its last checkpoint, at most a third of all it has.
MARGIN_SECONDS = 90
# Slurm's warning ends a process that does not expect it, so a job ignores it until it is ready to listen.
PYTHON = 'sh -c \'trap "" USR2; exec "$0" "$@"\' ' + shlex.quote(sys.executable)

logger = logging.getLogger("plench")


class SlurmError(PlenchError):
    """A command of Slurm's that failed."""


def import_submitit() -> Any:
    """Return the module submitit; without it, say how to get it."""
    try:
        import submitit
    except ImportError as error:
        raise missing_package("the Slurm engine", "submitit", "slurm") from error
    return submitit


class SlurmEngine:
    """Submits runs to Slurm and returns; `plench sweep status` shows their progress."""

    name: ClassVar[str] = "slurm"
    waits: ClassVar[bool] = False
    writes: ClassVar[bool] = True

    def __init__(
        self,
        partition: str | None = None,
        minutes: int = 60,
        memory_gb: float | None = None,
        gpus: int = 0,
        max_jobs: int | None = None,
        runs_per_job: int = 1,
        more: Mapping[str, str] | None = None,
    ) -> None:
        bounded = {"minutes": (minutes, 1), "gpus": (gpus, 0), "runs_per_job": (runs_per_job, 1)}
        if max_jobs is not None:
            bounded["max_jobs"] = (max_jobs, 1)
        for name, (value, least) in bounded.items():
            if value < least:
                raise UsageError(f"{name} must be at least {least}, not {value}")
        self.partition = partition
        self.minutes = minutes
        self.memory_gb = memory_gb
        self.gpus = gpus
        self.max_jobs = max_jobs
        self.runs_per_job = runs_per_job
        self.more = dict(more or {})

    @property
    def gpus_per_run(self) -> float:
        """The GPUs of a job, which its runs have one after the other."""
        return self.gpus

    def count_slots(self, settings: Settings) -> int | None:
        """Return how many jobs may run at once; without a cap the cluster decides."""
        return self.max_jobs

    @property
    def margin(self) -> int:
        """Return how many seconds before its end a job stops to write its checkpoint."""
        return min(MARGIN_SECONDS, self.minutes * 60 // 3)

    def carry_out(self, assignment: Assignment) -> None:
        """Submit every run that Slurm does not have yet."""
        import_submitit()
        queue = read_slurm_queue(assignment.output_dir)
        todo = [run for run in assignment.todo if run.folder not in queue]
        if len(todo) < len(assignment.todo):
            known = len(assignment.todo) - len(todo)
            assignment.callback.noticed(f"{known} runs are in Slurm's queue already; they stay there")
        if not todo:
            return
        assignment.callback.planned(todo, assignment.finished, self.max_jobs or 0)
        tasks = assignment.tasks(todo)
        shares = [tasks[i : i + self.runs_per_job] for i in range(0, len(tasks), self.runs_per_job)]
        largest = read_array_size()
        for first in range(0, len(shares), largest):
            self._submit(shares[first : first + largest], assignment)

    def _submit(self, shares: Sequence[list[Task]], assignment: Assignment) -> None:
        """Submit one array. What it holds is written down first, so that no job is without a name."""
        submitit = import_submitit()
        folder = assignment.output_dir / FOLDER
        name = f"plench-{uuid.uuid4().hex[:12]}"
        listed = [[run.folder for fleet in share for run in fleet] for share in shares]
        write_text(folder / f"{name}.json", json.dumps(listed))
        data_dir = assignment.shelf.data_dir
        jobs = [
            SlurmJob(
                share,
                assignment.output_dir,
                None if data_dir is None else Path(data_dir).absolute(),
                assignment.limits,
                self.margin,
            )
            for share in shares
        ]
        try:
            executor = submitit.SlurmExecutor(folder / "jobs", max_num_timeout=10**9, python=PYTHON)
            executor.update_parameters(**self._parameters(name, assignment.settings.threads))
            with executor.batch():
                for job in jobs:
                    executor.submit(job)
        except (RuntimeError, submitit.core.utils.FailedJobError) as error:
            (folder / f"{name}.json").unlink(missing_ok=True)
            raise SlurmError(f"Slurm did not take the jobs: {error}") from error
        assignment.callback.noticed(f"submitted {len(jobs)} jobs named {name}")

    def _parameters(self, name: str, threads: int) -> dict[str, Any]:
        """Return the parameters of the array in submitit's names."""
        parameters: dict[str, Any] = {
            "job_name": name,
            "time": self.minutes,
            "cpus_per_task": threads,
            "signal_delay_s": self.margin,
            "stderr_to_stdout": True,
            "additional_parameters": {"requeue": True, **self.more},
        }
        if self.max_jobs is not None:
            parameters["array_parallelism"] = self.max_jobs
        if self.partition is not None:
            parameters["partition"] = self.partition
        if self.memory_gb is not None:
            parameters["mem"] = f"{int(self.memory_gb * 1024)}MB"
        if self.gpus:
            parameters["gpus_per_node"] = self.gpus
        return parameters


@dataclass
class SlurmJob:
    """What one job does: its share of the runs, one fleet after the other."""

    share: list[Task]
    output_dir: Path
    data_dir: Path | None
    limits: Limits
    margin: int

    def __call__(self) -> None:
        """Carry out the share; requeue the job if Slurm ends it before that."""
        with StopRequest() as request:
            warnings: queue.SimpleQueue[int] = queue.SimpleQueue()  # its put may interrupt itself
            signal.signal(signal.SIGUSR2, lambda number, frame: warnings.put(number))
            watch = threading.Thread(target=stop_in_time, args=(request, self.margin, warnings), daemon=True)
            watch.start()
            todo = self._unfinished()
            assignment = Assignment(
                todo=todo,
                finished=len(self._runs()) - len(todo),
                output_dir=self.output_dir,
                shelf=DataShelf(self.data_dir),
                limits=self.limits,
                callback=JobLog(),
                fleets=self.share,
            )
            LocalEngine(workers=1, request=request).carry_out(assignment)
        # A job that its owner cancelled is asked to stop as well, but is not running any more.
        if request.asked and self._unfinished() and ask_queue("%T") == "RUNNING":
            requeue()

    def _runs(self) -> list[PlannedRun]:
        """Return the runs of the share."""
        return [run for fleet in self.share for run in fleet]

    def _unfinished(self) -> list[PlannedRun]:
        """Return the runs of the share that are to be done; those that failed stay failed."""
        states = read_states(self._runs(), self.output_dir)
        return [entry.run for entry in states if entry.state in PENDING]

    def checkpoint(self) -> Any:
        """Say how to requeue if the warning comes before this job is ready for it."""
        return import_submitit().helpers.DelayedSubmission(self)


class JobLog(NoSweepCallback):
    """Writes events to the job's log."""

    def ended(self, run: PlannedRun, attempt: RunAttempt) -> None:
        """Log how an attempt ended."""
        logger.warning("%s %s %s", attempt.status, run.label, attempt.message)

    def noticed(self, text: str) -> None:
        """Log a notice."""
        logger.warning("%s", text)


def stop_in_time(request: StopRequest, margin: int, warnings: queue.SimpleQueue[int]) -> None:
    """Ask for a stop when this job has no more than `margin` seconds left; note when that will be.

    Slurm's own warning may come a minute early, and comes early for good if the job is pre-empted, which
    shortens its time; so a warning is a reason to ask Slurm again how much is left.
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
    """Return the seconds of a time that squeue writes as [[days-]hours:]minutes:seconds; else None."""
    found = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(number or 0) for number in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def requeue() -> None:
    """Put this job back into the queue."""
    call_slurm("scontrol", "requeue", own_job())


def ask_queue(what: str) -> str:
    """Return what squeue says of this job, by one of its format letters."""
    return call_slurm("squeue", "--noheader", f"--jobs={own_job()}", f"--format={what}").strip()


def own_job() -> str:
    """Return the id of the job that this process is in."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{index}" if array else os.environ["SLURM_JOB_ID"]


def read_slurm_queue(output_dir: Path) -> dict[str, str]:
    """Return, by folder, which runs Slurm has: `queued` or `running`. Accounting is not needed."""
    submissions = {path.stem: path for path in (output_dir / FOLDER).glob("plench-*.json")}
    if not submissions:
        return {}
    # The name stands last: other jobs of the user may have names with spaces.
    text = call_slurm("squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%K %T %j")
    shares: dict[str, list[list[str]]] = {}
    queue: dict[str, str] = {}
    for line in text.splitlines():
        index, state, name = (*line.split(maxsplit=2), "", "", "")[:3]
        if name not in submissions:
            continue
        if name not in shares:
            shares[name] = read_shares(submissions[name])
        place = int(index) if index.isdigit() else 0
        share = shares[name][place] if place < len(shares[name]) else []
        queue.update(dict.fromkeys(share, "queued" if state in WAITING_STATES else "running"))
    return queue


def read_shares(path: Path) -> list[list[str]]:
    """Return the runs of each job of an array; a file that cannot be used is reported and counts as empty."""
    try:
        shares = json.loads(read_plain(path, MAX_BYTES))
        if all(isinstance(share, list) and all(isinstance(run, str) for run in share) for share in shares):
            return list(shares)
        reason: object = "not a list of lists of names"
    except (OSError, ValueError, TypeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
    logger.warning("%s cannot be used (%s)", path, reason)
    return []


def read_array_size() -> int:
    """Return how many jobs an array may have here."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", call_slurm("scontrol", "show", "config"), re.MULTILINE)
    return max(int(found.group(1)) - 1, 1) if found else 1000


def call_slurm(*words: str) -> str:
    """Run a command of Slurm's and return what it prints."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    except FileNotFoundError as error:
        raise SlurmError(f"there is no command {words[0]}: is this a machine of a Slurm cluster?") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{words[0]} did not answer within 120 s") from error
    except subprocess.CalledProcessError as error:
        raise SlurmError(f"{' '.join(words)} failed: {error.stderr.strip()}") from error
    return done.stdout
