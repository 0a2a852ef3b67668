"""Silent workers, workers without a driver, a closed terminal."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.sweep.driving import (
    count,
    find_workers,
    finish,
    grid_of,
    is_alive,
    launch,
    read_outcomes,
    start,
    succeed,
    wait_for,
)

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds worker processes in /proc"),
]

GRID = grid_of(["CC"], n_hparams=1, n_trials=2, steps=2000, checkpoint_freq=500)


def command(folder: Path, *more: object) -> list[object]:
    return ["launch", *GRID, "--output_dir", folder, "--workers", 2, "--skip_model_save", *more]


def test_a_stopped_worker_is_replaced(tmp_path: Path) -> None:
    driver = start(*command(tmp_path, "--worker_silence", 4))
    wait_for(lambda: count(tmp_path, "results.jsonl"), timeout=200)
    stopped = find_workers(driver.pid)[0]
    os.kill(stopped, signal.SIGSTOP)
    assert "was silent for 4 s (--worker-silence)" in succeed(driver)
    assert not is_alive(stopped)
    assert read_outcomes(tmp_path) == launch(GRID, tmp_path / "calm", "--skip_model_save")


@pytest.mark.parametrize("moment", [0.0, 0.3, 1.0, 2.0])
def test_workers_exit_with_their_driver(moment: float, tmp_path: Path) -> None:
    """Also while they import torch, when they cannot read their socket."""
    driver = start(*command(tmp_path))
    wait_for(lambda: len(find_workers(driver.pid)) == 2)
    workers = find_workers(driver.pid)
    time.sleep(moment)
    driver.kill()
    wait_for(lambda: not any(map(is_alive, workers)), timeout=10)
    driver.communicate()


def test_a_closed_terminal_saves_and_stops(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # children of nohup inherit that they ignore it
    try:
        driver = start(*command(tmp_path))
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for(lambda: count(tmp_path, "results.jsonl"), timeout=200)
    driver.send_signal(signal.SIGHUP)
    code, output = finish(driver)
    assert code == 130, output
    assert count(tmp_path, "checkpoint.pt")
    succeed(start(*command(tmp_path)))
