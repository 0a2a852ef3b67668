"""Real processes, really killed: the same command goes on and ends like an undisturbed run."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training.harness import (
    COUNTED,
    RESUMED,
    assert_same_run,
    only_folder,
    read_description,
    short_name,
)

pytestmark = pytest.mark.real

STEPS = 2000
INTERVAL = 100
KILLS = 4
PATIENCE = 300.0  # seconds; machines that run tests are busy


def start(output: Path, spec: str) -> subprocess.Popen[str]:
    """Start a training process."""
    command = [sys.executable, "-m", "plench.train", "--algorithm", spec, "--dataset", "Digits_FPS"]
    command += ["--output_dir", str(output), "--steps", str(STEPS), "--checkpoint_freq", "250"]
    command += ["--save_steps", str(INTERVAL), "--device", "cpu"]
    environment = {**os.environ, "PLENCH_TEST_COUNT": str(output.with_suffix(".count"))}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a process; return its exit code and what it wrote."""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def wait_for_checkpoint(output: Path, process: subprocess.Popen[str], patience: float = PATIENCE) -> None:
    """Wait until a process has written a checkpoint of its own or has ended, at most `patience` seconds."""
    begun = time.time()
    while process.poll() is None and time.time() - begun < patience:
        for path in output.glob("*/checkpoint.pt"):
            try:
                if path.stat().st_mtime >= begun:
                    return
            except FileNotFoundError:  # it is just being replaced
                continue
        time.sleep(0.01)


@pytest.mark.parametrize("spec", [*RESUMED, COUNTED], ids=short_name)
def test_killed_at_random_moments(spec: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    moments = random.Random(seed)
    code, _, err = finish(start(tmp_path / "a", spec))
    assert code == 0, err
    continued = []
    for attempt in range(KILLS):
        process = start(tmp_path / "b", spec)
        if attempt == 0:  # while importing, building or training: the first checkpoint is the latest moment
            wait_for_checkpoint(tmp_path / "b", process, patience=moments.uniform(0.5, 4))
        else:
            wait_for_checkpoint(tmp_path / "b", process)
            time.sleep(moments.uniform(0, 0.3))
        process.kill()
        _, _, err = finish(process)
        continued += [int(number) for number in re.findall(r"resumes at update (\d+)", err)]
    code, _, err = finish(start(tmp_path / "b", spec))
    assert code == 0, err
    continued += [int(number) for number in re.findall(r"resumes at update (\d+)", err)]
    assert continued, f"never resumed (seed {seed})"
    assert all(number > 0 and number % INTERVAL == 0 for number in continued)
    assert continued == sorted(continued)
    assert_same_run(only_folder(tmp_path / "a"), only_folder(tmp_path / "b"))
    assert read_description(only_folder(tmp_path / "b"))["updates"] == STEPS
    if spec == COUNTED:
        made = (tmp_path / "b.count").stat().st_size
        assert STEPS <= made <= STEPS + KILLS * (INTERVAL + 1), f"seed {seed}"


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    assert finish(start(tmp_path / "a", "PRODEN"))[0] == 0
    process = start(tmp_path / "b", "PRODEN")
    wait_for_checkpoint(tmp_path / "b", process)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert code == 130, err
    assert out.startswith("interrupted (the same command resumes it): ")
    assert "Traceback" not in err
    stopped_at = read_description(only_folder(tmp_path / "b"))["updates"]
    assert 0 < stopped_at < STEPS
    code, _, err = finish(start(tmp_path / "b", "PRODEN"))
    assert code == 0
    assert f"resumes at update {stopped_at}," in err
    assert_same_run(only_folder(tmp_path / "a"), only_folder(tmp_path / "b"))


def test_two_processes_on_one_run(tmp_path: Path) -> None:
    first = start(tmp_path / "a", "PRODEN")
    wait_for_checkpoint(tmp_path / "a", first)
    first.send_signal(signal.SIGSTOP)  # holds the run while the second one tries
    try:
        code, out, err = finish(start(tmp_path / "a", "PRODEN"))
    finally:
        first.send_signal(signal.SIGCONT)
    assert code == 2
    assert out == ""
    assert "another process is working on" in err
    assert finish(first)[0] == 0
    assert (only_folder(tmp_path / "a") / "done").exists()
