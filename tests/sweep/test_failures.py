"""Runs that raise, eat all memory, die, never end or turn NaN: each is recorded with its reason."""

from pathlib import Path

import pytest

from tests.sweep.driving import grid_arguments, odd, read_run_json, sweep

pytestmark = pytest.mark.real

ODD_ONES = ("Raising", "Leaving", "Hungry", "Dying", "Endless", "TurningNaN", "Plain")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    folder = tmp_path_factory.mktemp("odd")
    arguments = grid_arguments([odd(name) for name in ODD_ONES], n_hparams=1, n_trials=1, steps=60)
    code, output = sweep(
        *("launch", *arguments, "--output_dir", str(folder), "--workers", "2"),
        *("--run_timeout", "25", "--memory_limit_gb", "3"),
    )
    return folder, code, output


def test_every_kind_of_failure_is_recorded_with_its_reason(swept: tuple[Path, int, str]) -> None:
    folder, _, _ = swept
    found = read_run_json(folder)
    assert {name: entry["status"] for name, entry in found.items()} == {
        "Raising": "failed",
        "Leaving": "failed",
        "Hungry": "failed",
        "Dying": "failed",
        "Endless": "failed",
        "TurningNaN": "diverged",
        "Plain": "done",
    }
    errors = {name: entry["error"] for name, entry in found.items()}
    assert errors["Raising"]["type"] == "ZeroDivisionError"
    assert "odd_algorithms.py" in errors["Raising"]["traceback"]
    assert errors["Leaving"]["message"] == "the algorithm wants to leave"
    assert "memory" in errors["Hungry"]["message"].lower()
    assert errors["Dying"]["type"] == "WorkerDied"
    assert "signal 9" in errors["Dying"]["message"]
    assert errors["Endless"]["type"] == "Timeout"
    assert "25 s" in errors["Endless"]["message"]
    assert found["TurningNaN"]["diverged_after_step"] == 0


def test_exit_code_and_last_lines_say_so(swept: tuple[Path, int, str]) -> None:
    _, code, output = swept
    assert code == 1
    lines = output.splitlines()
    assert lines[-1] == "5 runs failed: `plench sweep retry` runs them again"
    for name in ("Raising", "Leaving", "Hungry", "Dying", "Endless"):
        assert any(line.startswith(f"failed: {name}@") for line in lines[-6:]), name
    assert "diverged 1, done 1, failed 5" in output


def test_failed_runs_are_shown_and_left_alone_until_a_retry(swept: tuple[Path, int, str]) -> None:
    folder, _, _ = swept
    before = read_run_json(folder)
    code, output = sweep("launch", "--output_dir", str(folder), "--workers", "1")
    assert code == 1
    assert "ZeroDivisionError: nothing can be divided by zero" in output
    assert read_run_json(folder) == before
    code, output = sweep("status", "--output_dir", str(folder))
    assert code == 0
    assert "Timeout: did not end within 25 s" in output
    code, output = sweep(
        *("retry", "--output_dir", str(folder), "--workers", "2"),
        *("--run_timeout", "5", "--memory_limit_gb", "3"),
    )
    assert code == 1
    after = read_run_json(folder)
    assert "5 s" in after["Endless"]["error"]["message"]
    assert after["Plain"] == before["Plain"]
    assert after["TurningNaN"] == before["TurningNaN"]


def test_delete_incomplete_leaves_finished_runs(swept: tuple[Path, int, str]) -> None:
    folder, _, _ = swept
    code, output = sweep("delete_incomplete", "--output_dir", str(folder))
    assert code == 2
    assert "--skip-confirmation" in output
    code, output = sweep("delete_incomplete", "--output_dir", str(folder), "--skip_confirmation")
    assert code == 0, output
    assert {name: entry["status"] for name, entry in read_run_json(folder).items()} == {
        "TurningNaN": "diverged",
        "Plain": "done",
    }
