"""The Slurm engine: runs are array jobs, submitted through submitit; jobs that lose their place are requeued.

Inside a job the local engine does the work, with one worker, so that time limits, memory limits and dying
processes are treated as on one machine. Data and output folders must be on a shared file system.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from plench.errors import PlenchError, UsageError
from plench.results.files import write_text
from plench.sweep.engines.base import Assignment, Attempt, Limits, SweepSilence
from plench.sweep.engines.local import LocalEngine
from plench.sweep.plan import DataShelf, PlannedRun
from plench.sweep.state import PENDING, read_states
from plench.training.run import RunOptions

FOLDER = ".slurm"
# States of squeue in which a job still waits for its turn; in all others that it lists the job is at work.
WAITING_STATES = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
# Time that a job has left when Slurm warns it: enough for a checkpoint, at most a third of all it has.
WARNING_SECONDS = 90

logger = logging.getLogger("plench")


class SlurmError(PlenchError):
    """A command of Slurm's that failed."""


def import_submitit() -> Any:
    """Return the module submitit; without it, say how to get it."""
    try:
        import submitit
    except ImportError as error:
        raise UsageError("the Slurm engine needs the package submitit: install plench[slurm]") from error
    return submitit


class SlurmEngine:
    """Hands runs to Slurm and leaves; `plench sweep status` shows how they get on."""

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

    def carry_out(self, assignment: Assignment) -> None:
        """Submit every run that Slurm does not have yet."""
        import_submitit()
        queue = read_queue(assignment.output_dir)
        todo = [run for run in assignment.todo if run.folder not in queue]
        if len(todo) < len(assignment.todo):
            known = len(assignment.todo) - len(todo)
            assignment.listener.noticed(f"{known} runs are in Slurm's queue already; they stay there")
        if not todo:
            return
        assignment.listener.planned(todo, assignment.finished, self.max_jobs or 0)
        shares = [todo[i : i + self.runs_per_job] for i in range(0, len(todo), self.runs_per_job)]
        largest = read_array_size()
        for first in range(0, len(shares), largest):
            self._submit(shares[first : first + largest], assignment)

    def _submit(self, shares: Sequence[list[PlannedRun]], assignment: Assignment) -> None:
        """Submit one array. What it holds is written down first, so that no job is without a name."""
        submitit = import_submitit()
        folder = assignment.output_dir / FOLDER
        name = f"plench-{uuid.uuid4().hex[:12]}"
        write_text(folder / f"{name}.json", json.dumps([[run.folder for run in share] for share in shares]))
        data_dir = assignment.shelf.data_dir
        jobs = [
            SlurmJob(
                share,
                assignment.output_dir,
                None if data_dir is None else Path(data_dir).absolute(),
                assignment.options,
                assignment.limits,
            )
            for share in shares
        ]
        try:
            executor = submitit.SlurmExecutor(folder / "jobs", max_num_timeout=10**9)
            executor.update_parameters(**self._parameters(name, assignment.options.threads))
            with executor.batch():
                for job in jobs:
                    executor.submit(job)
        except (RuntimeError, submitit.core.utils.FailedJobError) as error:
            (folder / f"{name}.json").unlink(missing_ok=True)
            raise SlurmError(f"Slurm did not take the jobs: {error}") from error
        assignment.listener.noticed(f"submitted {len(jobs)} jobs named {name}")

    def _parameters(self, name: str, threads: int) -> dict[str, Any]:
        """Return the parameters of the array in submitit's names."""
        parameters: dict[str, Any] = {
            "job_name": name,
            "time": self.minutes,
            "cpus_per_task": threads,
            "signal_delay_s": min(WARNING_SECONDS, self.minutes * 60 // 3),
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
    """What one job does: its share of the runs, one after the other."""

    share: list[PlannedRun]
    output_dir: Path
    data_dir: Path | None
    options: RunOptions
    limits: Limits

    def __call__(self) -> None:
        """Carry out the share; if Slurm takes the place away before the end, ask for another turn."""
        warned: list[int] = []

        def take_warning(number: int, frame: FrameType | None) -> None:
            warned.append(number)
            os.kill(os.getpid(), signal.SIGTERM)  # the local engine's signal to save and stop

        signal.signal(signal.SIGUSR2, take_warning)
        todo = self._unfinished()
        assignment = Assignment(
            todo=todo,
            finished=len(self.share) - len(todo),
            output_dir=self.output_dir,
            shelf=DataShelf(self.data_dir),
            options=self.options,
            limits=self.limits,
            listener=JobLog(),
        )
        if not warned:
            LocalEngine(workers=1).carry_out(assignment)
        if warned and self._unfinished():
            requeue()

    def _unfinished(self) -> list[PlannedRun]:
        """Return the runs of the share that are to be done; those that failed stay failed."""
        states = read_states(self.share, self.output_dir)
        return [entry.run for entry in states if entry.state in PENDING]

    def checkpoint(self) -> Any:
        """Say how to go on if the warning comes before this job is ready to take it."""
        return import_submitit().helpers.DelayedSubmission(self)


class JobLog(SweepSilence):
    """Writes what happens into the job's log."""

    def ended(self, run: PlannedRun, attempt: Attempt) -> None:
        """Log how an attempt ended."""
        logger.warning("%s %s %s", attempt.status, run.label, attempt.message)

    def noticed(self, text: str) -> None:
        """Log a notice."""
        logger.warning("%s", text)


def requeue() -> None:
    """Put this job back into the queue."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{array}_{index}" if array else os.environ["SLURM_JOB_ID"]
    run_command("scontrol", "requeue", job)


def read_queue(output_dir: Path) -> dict[str, str]:
    """Return, by folder, which runs Slurm has: `queued` or `running`. Accounting is not needed."""
    submissions = {path.stem: path for path in (output_dir / FOLDER).glob("plench-*.json")}
    if not submissions:
        return {}
    # The name stands last: other jobs of the user may have names with spaces.
    text = run_command("squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%K %T %j")
    shares: dict[str, list[list[str]]] = {}
    queue: dict[str, str] = {}
    for line in text.splitlines():
        index, state, name = (*line.split(maxsplit=2), "", "", "")[:3]
        if name not in submissions:
            continue
        if name not in shares:
            shares[name] = json.loads(submissions[name].read_text(encoding="utf-8"))
        share = shares[name][int(index) if index.isdigit() else 0]
        queue.update(dict.fromkeys(share, "queued" if state in WAITING_STATES else "running"))
    return queue


def read_array_size() -> int:
    """Return how many jobs an array may have here."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", run_command("scontrol", "show", "config"), re.MULTILINE)
    return max(int(found.group(1)) - 1, 1) if found else 1000


def run_command(*words: str) -> str:
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
