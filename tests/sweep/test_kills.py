"""Killed, stopped and silent workers and drivers: the same command ends the sweep with the same records."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sweep.driving import (
    Process,
    count,
    find_workers,
    finish,
    grid_of,
    is_alive,
    launch,
    odd,
    read_outcomes,
    start,
    succeed,
    wait_for,
)

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds worker processes in /proc"),
]

N_RUNS = 60


def kill(driver: Process | None, *workers: int, driver_first: bool = True) -> None:
    """Kill processes; then wait until all workers of the driver have exited."""
    processes = [*workers] if driver is None else [driver.pid, *workers]
    for process in processes if driver_first else reversed(processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def disturb(driver: Process, output_dir: Path, rng: random.Random, kind: str) -> None:
    """Let a few runs end, kill two workers one after the other, then the driver, its workers or both."""
    before = count(output_dir)
    for more in (3, 6):
        wait_for(lambda more=more: count(output_dir) >= before + more, driver=driver)
        workers = find_workers(driver.pid)
        if workers:
            time.sleep(rng.uniform(0, 0.3))
            kill(None, rng.choice(workers))
    time.sleep(rng.uniform(0, 0.3))
    workers = find_workers(driver.pid)
    kill(driver, *([] if kind == "driver" else workers), driver_first=kind != "workers and driver")
    driver.communicate()
    wait_for(lambda: not any(map(is_alive, workers)), 60, "the exit of workers without a driver")


@pytest.mark.parametrize("stack", ["off", "4"])
def test_killed_sweep_ends_as_an_undisturbed_one(tmp_path: Path, stack: str) -> None:
    """Separate runs have the same bits; stacks, whose runs may be others after a kill, agree to rounding."""
    rough, rng = tmp_path / "rough", random.Random(5)
    grid = grid_of(n_hparams=5, n_trials=4, steps=300, checkpoint_freq=100, stack=stack)
    options = ["--workers", 2, "--save_steps", 50, "--skip_model_save"]
    expected = launch(grid, tmp_path / "calm", *options)
    command = ["launch", *grid, *options, "--output_dir", rough]
    for kind in ("driver", "driver and workers", "workers and driver"):
        disturb(start(*command), rough, rng, kind)
    assert 0 < count(rough) < N_RUNS
    succeed(start(*command))
    found = read_outcomes(rough)
    assert len(expected) == N_RUNS
    assert all(status == "done" and done for status, done, _ in expected.values())
    if stack == "off":
        assert found == expected
    else:
        assert_close(found, expected)
    assert count(rough, "checkpoint*") == 0


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Every run ended in the same way, with the same records to rounding."""
    assert found.keys() == expected.keys()
    for name, (status, done, records) in expected.items():
        assert found[name][:2] == (status, done)
        for one, other in zip(found[name][2], records, strict=True):
            assert one["step"] == other["step"]
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
            assert one["test_acc"] == pytest.approx(other["test_acc"], abs=0.03)
            assert one["hparams"] == other["hparams"]


def test_interrupted_runs_resume_from_their_checkpoint(counted: Path, tmp_path: Path) -> None:
    steps, every, kills = 300, 40, 3
    grid = grid_of([odd("Counting")], n_hparams=1, n_trials=1, steps=steps)
    command = ["launch", *grid, "--workers", 1, "--save_steps", every, "--output_dir", tmp_path / "runs"]
    killed = []
    for number in range(kills):
        driver = start(*command)
        target = counted.stat().st_size + every + 20
        wait_for(lambda target=target: counted.stat().st_size >= target, what="updates")
        workers = find_workers(driver.pid)
        kill(driver, *(workers if number % 2 else []))
        driver.communicate()
        wait_for(lambda workers=workers: not any(map(is_alive, workers)), timeout=60)
        killed.append(counted.stat().st_size)
    succeed(start(*command))
    repeated = counted.stat().st_size - steps
    # Each kill costs what was done since the last checkpoint, and nothing before it.
    assert 0 < repeated <= kills * (every + 1), f"{repeated} updates were repeated after {killed}"
    assert count(tmp_path / "runs") == 1


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGTERM"])
def test_ctrl_c_and_a_closed_terminal_save_and_the_same_command_resumes(
    name: str, counted: Path, tmp_path: Path
) -> None:
    grid = grid_of([odd("Counting")], n_hparams=2, n_trials=1, steps=200)
    command = ["launch", *grid, "--workers", 2, "--output_dir", tmp_path / "runs"]
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # children of nohup inherit that they ignore it
    try:
        driver = start(*command)
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for(lambda: counted.stat().st_size >= 100, what="updates")
    driver.send_signal(getattr(signal, name))
    code, output = finish(driver, timeout=120)
    assert code == 130
    assert output.splitlines()[-1] == "2 runs are not finished: repeat the command to resume"
    assert count(tmp_path / "runs", "checkpoint.pt") == 2
    succeed(start(*command))
    assert counted.stat().st_size == 2 * 200  # not one update was repeated


GRID = grid_of(["CC"], n_hparams=1, n_trials=2, steps=2000, checkpoint_freq=500)
COMMAND = ["launch", *GRID, "--workers", 2, "--skip_model_save", "--output_dir"]


def test_a_stopped_worker_is_replaced(tmp_path: Path) -> None:
    driver = start(*COMMAND, tmp_path, "--worker_silence", 4)
    wait_for(lambda: count(tmp_path, "results.jsonl"), timeout=200)
    stopped = find_workers(driver.pid)[0]
    os.kill(stopped, signal.SIGSTOP)
    assert "was silent for 4 s (--worker-silence)" in succeed(driver)
    assert not is_alive(stopped)
    assert read_outcomes(tmp_path) == launch(GRID, tmp_path / "calm", "--skip_model_save")


@pytest.mark.parametrize("moment", [0.0, 0.3, 1.0, 2.0])
def test_workers_exit_with_their_driver(moment: float, tmp_path: Path) -> None:
    """Also while they import torch, when they cannot read their socket."""
    driver = start(*COMMAND, tmp_path)
    wait_for(lambda: len(find_workers(driver.pid)) == 2)
    workers = find_workers(driver.pid)
    time.sleep(moment)
    driver.kill()
    wait_for(lambda: not any(map(is_alive, workers)), timeout=60)
    driver.communicate()
