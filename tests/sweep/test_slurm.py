"""The Slurm engine on a real Slurm of one node: cancelled, requeued and timed-out jobs lose nothing."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.sweep.driving import (
    compare_stacks,
    fitted_arguments,
    grid_arguments,
    launch_calmly,
    odd,
    read_outcomes,
    stack_arguments,
    sweep,
    wait_for,
)

pytest.importorskip("submitit", reason="submitit is not installed (plench[slurm])")

pytestmark = pytest.mark.real

GRID = grid_arguments(["PRODEN", "CC"], n_hparams=2, n_trials=2, steps=600, checkpoint_freq=200)
N_RUNS = 8
SLURM = ("--command_launcher", "slurm", "--slurm_memory_gb", "2", "--slurm_max_jobs", "2")


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def is_up() -> bool:
    try:
        return "idle" in run("sinfo", "--noheader") or "mix" in run("sinfo", "--noheader")
    except (OSError, subprocess.SubprocessError):
        return False


@pytest.fixture(scope="module", autouse=True)
def slurm() -> Iterator[None]:
    """Start a Slurm of one node, unless there is one."""
    if not (shutil.which("sbatch") and shutil.which("munged")):
        pytest.skip("Slurm is not installed (Debian packages slurm-wlm and munge)")
    if is_up():
        yield
        return
    if os.geteuid() != 0:
        pytest.skip("starting Slurm needs root")
    script = str(ROOT / "tests" / "support" / "slurm-up")
    started = subprocess.run([script], stdout=subprocess.DEVNULL, check=False, timeout=300)
    if started.returncode != 0 or not is_up():
        subprocess.run([script, "--down"], check=False)
        pytest.skip("Slurm cannot be started here")
    yield
    subprocess.run([script, "--down"], check=True)


def read_jobs() -> dict[str, str]:
    """Return the states of all jobs in the queue."""
    lines = run("squeue", "--noheader", "--array", "--me", "--format=%i %T").splitlines()
    return dict(line.split() for line in lines)


def find_running(*others: str) -> str | None:
    return next((job for job, state in read_jobs().items() if state == "RUNNING" and job not in others), None)


def end_wait(requeued: str) -> None:
    """Start a requeued job, which Slurm makes wait for two minutes, after two seconds.

    Not at once: Slurm counts in seconds, and kills a job that starts in the second in which it was stopped
    ("Job credential revoked").
    """
    time.sleep(2)
    run("scontrol", "update", f"JobId={requeued}", "StartTime=now")


def wait_for_queue(timeout: float = 300) -> None:
    wait_for(lambda: not read_jobs(), timeout, "Slurm's queue to empty")


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """If what is waited for does not come, show what Slurm and the jobs say."""
    try:
        yield
    except AssertionError as error:
        told = [run("squeue", "--long"), run("sinfo", "--long"), run("sinfo", "--list-reasons")]
        told += [path.read_text()[-4000:] for path in folder.glob(".slurm/jobs/*.out")]
        raise AssertionError("\n".join([str(error), *told])) from None


def test_cancelled_and_requeued_jobs(tmp_path: Path) -> None:
    calm, folder = tmp_path / "calm", tmp_path / "slurm"
    assert sweep("launch", *GRID, "--output_dir", str(calm), "--workers", "2")[0] == 0

    command = ["launch", *GRID, *SLURM, "--output_dir", str(folder)]
    code, output = sweep(*command)
    assert code == 0, output
    assert f"submitted {N_RUNS} jobs" in output
    assert f"{N_RUNS} runs are in the queue" in output.splitlines()[-1]

    cancelled = wait_for(find_running, what="a job to run")
    run("scancel", cancelled)
    requeued = wait_for(lambda: find_running(cancelled), what="another job to run")
    run("scontrol", "requeue", requeued)
    code, output = sweep("status", "--output_dir", str(folder))
    assert code == 0
    assert "in Slurm's queue: " in output
    assert "queued" in output.splitlines()[-1]
    wait_for(lambda: read_jobs().get(requeued) == "PENDING", what="the requeued job to be back")
    end_wait(requeued)

    code, output = sweep(*command)
    assert code == 0
    assert "runs are in Slurm's queue already" in output
    with explained(folder):
        wait_for_queue()
    code, output = sweep(*command)
    assert code == 0, output
    with explained(folder):
        wait_for_queue()
    code, output = sweep("status", "--output_dir", str(folder))
    assert f"done {N_RUNS}" in output
    assert read_outcomes(folder) == read_outcomes(calm)


def test_methods_fitted_in_rounds_are_requeued_between_rounds(tmp_path: Path) -> None:
    calm, folder = tmp_path / "calm", tmp_path / "slurm"
    grid = fitted_arguments()
    assert sweep("launch", *grid, "--output_dir", str(calm), "--workers", "2")[0] == 0
    code, output = sweep("launch", *grid, *SLURM, "--output_dir", str(folder))
    assert code == 0, output
    # Runs of LR_EM are the longest: forty rounds, each with a record.
    wait_for(lambda: list(folder.glob("*LR_EM*/results.jsonl")), what="a run to begin")
    requeued = wait_for(find_running, what="a job to run")
    run("scontrol", "requeue", requeued)
    wait_for(lambda: read_jobs().get(requeued) == "PENDING", what="the requeued job to be back")
    end_wait(requeued)
    with explained(folder):
        wait_for_queue()
    assert "done 6" in sweep("status", "--output_dir", str(folder))[1]
    assert read_outcomes(folder) == read_outcomes(calm)


def test_fleets_are_cancelled_and_requeued(tmp_path: Path) -> None:
    grid, folder = stack_arguments(2000), tmp_path / "slurm"
    calm = launch_calmly(grid, tmp_path / "calm")
    alone = launch_calmly(grid, tmp_path / "alone", "--stack", "off")
    command = ["launch", *grid, *SLURM, "--save_steps", "100", "--output_dir", str(folder)]
    code, output = sweep(*command)
    assert code == 0, output
    assert "submitted 2 jobs" in output
    wait_for(lambda: list(folder.glob("*/checkpoint.pt")), 120, "a fleet to be on its way")
    requeued = wait_for(find_running, what="a job to run")
    run("scontrol", "requeue", requeued)
    cancelled = wait_for(lambda: find_running(requeued), what="another job to run")
    wait_for(lambda: len(list(folder.glob("*/checkpoint.pt"))) > 4, 120, "the other fleet to be on its way")
    run("scancel", cancelled)
    wait_for(lambda: read_jobs().get(requeued) == "PENDING", what="the requeued job to be back")
    end_wait(requeued)
    with explained(folder):
        wait_for_queue()
    code, output = sweep(*command)  # what was cancelled
    assert code == 0, output
    assert "submitted 1 job" in output
    with explained(folder):
        wait_for_queue()
    compare_stacks(folder, calm, alone)


def test_jobs_that_run_out_of_time_continue(tmp_path: Path) -> None:
    counted, rounds = tmp_path / "count", tmp_path / "rounds"
    counted.touch()
    rounds.touch()
    steps = 4000
    folder = tmp_path / "runs"
    code, output = sweep(
        *("launch", *grid_arguments([odd("Counting"), odd("CountingRounds")], 1, 1, steps)),
        *(*SLURM, "--slurm_minutes", "1", "--output_dir", str(folder)),
        PLENCH_TEST_COUNT=str(counted),
        PLENCH_TEST_ROUNDS=str(rounds),
    )
    assert code == 0, output
    turns = set()

    def is_done() -> bool:
        for job, state in read_jobs().items():
            waits = run("squeue", "--noheader", f"--jobs={job}", "--format=%r").strip() == "BeginTime"
            if state == "PENDING" and waits:
                turns.add(job)
                end_wait(job)
        return len(list(folder.glob("*/done"))) == 2

    with explained(folder):
        wait_for(is_done, timeout=400, what="the runs to end after several turns")
        wait_for_queue()
    assert len(turns) == 2
    # Every turn went on exactly where the one before it stopped, and began no round that it could not end.
    assert counted.stat().st_size == steps
    assert rounds.stat().st_size == 5
    assert any("too short for another round" in path.read_text() for path in folder.glob(".slurm/jobs/*.out"))
