"""The Slurm engine on a real Slurm of one node: cancelled, requeued and timed-out jobs lose nothing."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT, skip_without
from tests.sweep.driving import (
    STACKS,
    compare_stacks,
    count,
    grid_of,
    launch,
    odd,
    read_outcomes,
    start,
    succeed,
    wait_for,
)

pytestmark = pytest.mark.real

# Runs of LR_EM, which is fitted in rounds, come first and are the longest: forty rounds, each with a record.
GRID = grid_of(["LR_EM", "PRODEN"], n_hparams=2, n_trials=2, steps=600, checkpoint_freq=200)
N_RUNS = 8
SLURM = ("--command_launcher", "slurm", "--slurm_memory_gb", 2, "--slurm_max_jobs", 2)


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def is_up() -> bool:
    try:
        return any(state in run("sinfo", "--noheader") for state in ("idle", "mix"))
    except (OSError, subprocess.SubprocessError):
        return False


@pytest.fixture(scope="module", autouse=True)
def slurm() -> Iterator[None]:
    """Start a Slurm of one node, unless there is one."""
    if not (shutil.which("sbatch") and shutil.which("munged")):
        skip_without("slurm", "Debian's packages slurm-wlm and munge are not installed")
    if is_up():
        yield
        return
    if os.geteuid() != 0:
        skip_without("slurm", "starting it needs root")
    script = str(ROOT / "tests" / "support" / "slurm-up")
    started = subprocess.run([script], stdout=subprocess.DEVNULL, check=False, timeout=300)
    if started.returncode != 0 or not is_up():
        subprocess.run([script, "--down"], check=False)
        skip_without("slurm", "it cannot be started here")
    yield
    subprocess.run([script, "--down"], check=True)


def read_jobs() -> dict[str, str]:
    """Return the states of all jobs in the queue."""
    lines = run("squeue", "--noheader", "--array", "--me", "--format=%i %T").splitlines()
    return dict(line.split() for line in lines)


def find_running(*others: str) -> str | None:
    return next((job for job, state in read_jobs().items() if state == "RUNNING" and job not in others), None)


def start_now(requeued: str) -> None:
    """Start a requeued job, which Slurm makes wait for two minutes, after two seconds.

    Not at once: Slurm counts in seconds, and kills a job that starts in the second in which it was stopped
    ("Job credential revoked").
    """
    wait_for(lambda: read_jobs().get(requeued) == "PENDING", what="the requeued job to be back")
    time.sleep(2)
    run("scontrol", "update", f"JobId={requeued}", "StartTime=now")


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """If something does not happen in time, show what Slurm and the jobs say."""
    try:
        yield
    except AssertionError as error:
        details = [run("squeue", "--long"), run("sinfo", "--long"), run("sinfo", "--list-reasons")]
        details += [path.read_text()[-4000:] for path in folder.glob(".slurm/jobs/*.out")]
        raise AssertionError("\n".join([str(error), *details])) from None


def wait_for_queue(folder: Path) -> None:
    with explained(folder):
        wait_for(lambda: not read_jobs(), 300, "an empty queue")


def test_cancelled_and_requeued_jobs(tmp_path: Path) -> None:
    folder = tmp_path / "slurm"
    calm = launch(GRID, tmp_path / "calm")
    command = ["launch", *GRID, *SLURM, "--output_dir", folder]
    output = succeed(start(*command))
    assert f"submitted {N_RUNS} jobs" in output
    assert f"{N_RUNS} runs are in the queue" in output.splitlines()[-1]

    wait_for(lambda: list(folder.glob("*LR_EM*/results.jsonl")), what="a run to start")
    requeued = wait_for(find_running, what="a job to run")
    run("scontrol", "requeue", requeued)
    cancelled = wait_for(lambda: find_running(requeued), what="another job to run")
    run("scancel", cancelled)
    output = succeed(start("status", "--output_dir", folder))
    assert "in Slurm's queue: " in output
    assert "queued" in output.splitlines()[-1]
    start_now(requeued)

    assert "runs are in Slurm's queue already" in succeed(start(*command))
    wait_for_queue(folder)
    succeed(start(*command))  # what was cancelled
    wait_for_queue(folder)
    assert f"done {N_RUNS}" in succeed(start("status", "--output_dir", folder))
    assert read_outcomes(folder) == calm


def test_stacks_are_cancelled_and_requeued(tmp_path: Path) -> None:
    folder = tmp_path / "slurm"
    calm = launch(STACKS, tmp_path / "calm")
    separate = launch(STACKS, tmp_path / "separate", "--stack", "off")
    command = ["launch", *STACKS, *SLURM, "--save_steps", 100, "--output_dir", folder]
    assert "submitted 2 jobs" in succeed(start(*command))
    wait_for(lambda: count(folder, "checkpoint.pt"), 120, "a stack to be in progress")
    requeued = wait_for(find_running, what="a job to run")
    run("scontrol", "requeue", requeued)
    cancelled = wait_for(lambda: find_running(requeued), what="another job to run")
    wait_for(lambda: count(folder, "checkpoint.pt") > 4, 120, "the other stack to be in progress")
    run("scancel", cancelled)
    start_now(requeued)
    wait_for_queue(folder)
    assert "submitted 1 job" in succeed(start(*command))  # what was cancelled
    wait_for_queue(folder)
    compare_stacks(folder, calm, separate)


def test_jobs_that_run_out_of_time_continue(counted: Path, tmp_path: Path) -> None:
    rounds, folder, steps = tmp_path / "rounds", tmp_path / "runs", 4000
    rounds.touch()
    grid = grid_of([odd("Counting"), odd("CountingRounds")], 1, 1, steps)
    command = ["launch", *grid, *SLURM, "--slurm_minutes", 1, "--output_dir", folder]
    succeed(start(*command, PLENCH_TEST_ROUNDS=rounds))
    turns = set()

    def is_done() -> bool:
        for job, state in read_jobs().items():
            waits = run("squeue", "--noheader", f"--jobs={job}", "--format=%r").strip() == "BeginTime"
            if state == "PENDING" and waits:
                turns.add(job)
                start_now(job)
        return count(folder) == 2

    with explained(folder):
        wait_for(is_done, timeout=400, what="the end of the runs after several turns")
    wait_for_queue(folder)
    assert len(turns) == 2
    # Every turn resumed exactly where the one before it stopped, and started no round that it could not end.
    assert counted.stat().st_size == steps
    assert rounds.stat().st_size == 5
    assert any("too short for another round" in path.read_text() for path in folder.glob(".slurm/jobs/*.out"))
