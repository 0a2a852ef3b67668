"""SIGKILL to workers, to the driver and to both: the same command ends the sweep with the same records."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sweep.driving import (
    find_workers,
    finish,
    grid_arguments,
    is_alive,
    odd,
    read_outcomes,
    start,
    sweep,
    wait_for,
)

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds worker processes in /proc"),
]

GRID = grid_arguments(n_hparams=5, n_trials=4, steps=300, checkpoint_freq=100)
N_RUNS = 60


def count_done(output_dir: Path) -> int:
    return len(list(output_dir.glob("*/done")))


def kill(*processes: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def disturb(driver: subprocess.Popen[str], output_dir: Path, rng: random.Random, kind: str) -> None:
    """Let a few runs end, kill two workers one after the other, then the driver, its workers or both."""
    before = count_done(output_dir)
    for more in (3, 6):
        wait_for(lambda more=more: count_done(output_dir) >= before + more or driver.poll() is not None)
        workers = find_workers(driver.pid)
        if workers:
            time.sleep(rng.uniform(0, 0.3))
            kill(rng.choice(workers))
    time.sleep(rng.uniform(0, 0.3))
    workers = find_workers(driver.pid)
    if kind == "driver":
        kill(driver.pid)
    elif kind == "driver and workers":
        kill(driver.pid, *workers)
    elif kind == "workers and driver":
        kill(*workers, driver.pid)
    driver.communicate()
    wait_for(lambda: not any(map(is_alive, workers)), timeout=10, what="workers without a driver to end")


@pytest.mark.parametrize("fleet", ["off", "4"])
def test_killed_sweep_ends_as_an_undisturbed_one(tmp_path: Path, fleet: str) -> None:
    """Alone, runs have the same bits; in fleets, whose members may be others after a kill, to rounding."""
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    options = ["--workers", "2", "--save_steps", "50", "--skip_model_save", "--fleet", fleet]
    code, output = sweep("launch", *GRID, *options, "--output_dir", str(calm))
    assert code == 0, output

    rng = random.Random(5)
    command = ["launch", *GRID, *options, "--output_dir", str(rough)]
    for kind in ("driver", "driver and workers", "workers and driver"):
        driver = start(*command)
        disturb(driver, rough, rng, kind)
    killed_at = count_done(rough)
    assert 0 < killed_at < N_RUNS
    code, output = finish(start(*command))
    assert code == 0, output

    expected, found = read_outcomes(calm), read_outcomes(rough)
    assert len(expected) == N_RUNS
    assert all(status == "done" and done for status, done, _ in expected.values())
    if fleet == "off":
        assert found == expected
    else:
        assert_close(found, expected)
    leftovers = [path.name for path in rough.glob("*/*") if path.name.startswith("checkpoint")]
    assert leftovers == []


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Every run ended alike, with records at the same steps and of the same numbers, to rounding."""
    assert found.keys() == expected.keys()
    for name, (status, done, records) in expected.items():
        assert found[name][:2] == (status, done)
        assert [record["step"] for record in found[name][2]] == [record["step"] for record in records]
        for one, other in zip(found[name][2], records, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
            assert one["test_acc"] == pytest.approx(other["test_acc"], abs=0.03)
            assert one["hparams"] == other["hparams"]


def test_interrupted_runs_resume_from_their_checkpoint(tmp_path: Path) -> None:
    steps, every, kills = 300, 40, 3
    counted = tmp_path / "count"
    counted.touch()
    folder = tmp_path / "runs"
    command = [
        *("launch", *grid_arguments([odd("Counting")], n_hparams=1, n_trials=1, steps=steps)),
        *("--workers", "1", "--save_steps", str(every), "--output_dir", str(folder)),
    ]
    killed = []
    for number in range(kills):
        driver = start(*command, PLENCH_TEST_COUNT=str(counted))
        target = counted.stat().st_size + every + 20
        wait_for(lambda target=target: counted.stat().st_size >= target, what="updates")
        workers = find_workers(driver.pid)
        kill(driver.pid, *(workers if number % 2 else []))
        driver.communicate()
        wait_for(lambda workers=workers: not any(map(is_alive, workers)), timeout=10)
        killed.append(counted.stat().st_size)
    code, output = sweep(*command, PLENCH_TEST_COUNT=str(counted))
    assert code == 0, output
    repeated = counted.stat().st_size - steps
    # Each kill costs what was done since the last checkpoint, and nothing before it.
    assert 0 < repeated <= kills * (every + 1), f"{repeated} updates were repeated after {killed}"
    assert len(list(folder.glob("*/done"))) == 1


def test_ctrl_c_saves_and_the_same_command_continues(tmp_path: Path) -> None:
    counted = tmp_path / "count"
    counted.touch()
    command = [
        *("launch", *grid_arguments([odd("Counting")], n_hparams=2, n_trials=1, steps=200)),
        *("--workers", "2", "--output_dir", str(tmp_path / "runs")),
    ]
    driver = start(*command, PLENCH_TEST_COUNT=str(counted))
    wait_for(lambda: counted.stat().st_size >= 100, what="updates")
    driver.send_signal(signal.SIGINT)
    code, output = finish(driver, timeout=30)
    assert code == 130
    assert output.splitlines()[-1] == "2 runs are not finished: repeat the command to continue"
    code, output = sweep(*command, PLENCH_TEST_COUNT=str(counted))
    assert code == 0, output
    assert counted.stat().st_size == 2 * 200  # not one update was repeated
