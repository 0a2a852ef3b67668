"""Silent workers, workers whose driver is gone, a closed terminal, a full folder of temporary files."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sweep.driving import (
    find_workers,
    finish,
    grid_arguments,
    is_alive,
    read_outcomes,
    start,
    sweep,
    wait_for,
)

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds worker processes in /proc"),
]

GRID = grid_arguments(algorithms=("CC",), n_hparams=1, n_trials=2, steps=2000, checkpoint_freq=500)


def arguments(folder: Path, *more: str) -> list[str]:
    return ["launch", *GRID, "--output_dir", str(folder), "--workers", "2", "--skip_model_save", *more]


def test_a_stopped_worker_is_replaced(tmp_path: Path) -> None:
    driver = start(*arguments(tmp_path, "--worker_silence", "4"))
    wait_for(lambda: list(tmp_path.glob("*/results.jsonl")), timeout=200)
    stopped = find_workers(driver.pid)[0]
    os.kill(stopped, signal.SIGSTOP)
    code, output = finish(driver)
    assert code == 0, output
    assert not is_alive(stopped)
    assert "was silent for 4 s (--worker-silence)" in output
    code, output = sweep(*arguments(tmp_path / "calm"))
    assert read_outcomes(tmp_path) == read_outcomes(tmp_path / "calm")


@pytest.mark.parametrize("moment", [0.0, 0.3, 1.0, 2.0])
def test_workers_end_with_their_driver(moment: float, tmp_path: Path) -> None:
    """Also while they still import torch, when nothing else of theirs can listen."""
    driver = start(*arguments(tmp_path))
    wait_for(lambda: len(find_workers(driver.pid)) == 2)
    workers = find_workers(driver.pid)
    time.sleep(moment)
    driver.kill()
    begun = time.monotonic()
    wait_for(lambda: not any(map(is_alive, workers)), timeout=10)
    driver.communicate()
    assert time.monotonic() - begun < 10  # a bound for a hang, not a measurement


def test_a_closed_terminal_saves_and_stops(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # children of nohup inherit that they ignore it
    try:
        driver = start(*arguments(tmp_path))
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for(lambda: list(tmp_path.glob("*/results.jsonl")), timeout=200)
    driver.send_signal(signal.SIGHUP)
    code, output = finish(driver)
    assert code == 130, output
    assert list(tmp_path.glob("*/checkpoint.pt"))
    code, output = sweep(*arguments(tmp_path))
    assert code == 0, output


def test_a_full_folder_of_temporary_files_is_an_error(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: writes beyond it fail in the same place."""
    command = [sys.executable, "-m", "plench.sweep", *arguments(tmp_path / "runs")]
    limited = (
        "import resource, signal, sys, runpy; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "
        f"sys.argv = {command[2:]!r}; runpy.run_module('plench.sweep', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "in the folder of temporary files" in done.stderr
