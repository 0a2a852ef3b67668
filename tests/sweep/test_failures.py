"""Runs that raise, use all memory, crash, never end or turn NaN: each is recorded with its reason."""

from pathlib import Path

import pytest

from tests.sweep.driving import grid_of, odd, read_run_json, sweep

pytestmark = pytest.mark.real

FAILING = ("Raising", "Leaving", "Hungry", "Dying", "Endless")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    folder = tmp_path_factory.mktemp("odd")
    grid = grid_of([odd(name) for name in (*FAILING, "TurningNaN", "Plain")], 1, 1, steps=60)
    limits = ["--workers", 2, "--run_timeout", 60, "--memory_limit_gb", 3]
    code, output = sweep("launch", *grid, "--output_dir", folder, *limits)
    return folder, code, output


def test_every_kind_of_failure_is_recorded_with_its_reason(swept: tuple[Path, int, str]) -> None:
    found = read_run_json(swept[0])
    statuses = {name: entry["status"] for name, entry in found.items()}
    assert statuses == {**dict.fromkeys(FAILING, "failed"), "TurningNaN": "diverged", "Plain": "done"}
    errors = {name: entry["error"] for name, entry in found.items()}
    assert errors["Raising"]["type"] == "ZeroDivisionError"
    assert "odd_algorithms.py" in errors["Raising"]["traceback"]
    assert errors["Leaving"]["message"] == "the algorithm wants to leave"
    assert "memory" in errors["Hungry"]["message"].lower()
    assert errors["Dying"]["type"] == "WorkerDied"
    assert "signal 9" in errors["Dying"]["message"]
    assert errors["Endless"]["type"] == "Timeout"
    assert "60 s" in errors["Endless"]["message"]
    assert found["TurningNaN"]["diverged_after_step"] == 0


def test_exit_code_and_last_lines_name_failures(swept: tuple[Path, int, str]) -> None:
    _, code, output = swept
    assert code == 1
    lines = output.splitlines()
    assert lines[-1] == "5 runs failed: `plench sweep retry` runs them again"
    for name in FAILING:
        assert any(line.startswith(f"failed: {name}@") for line in lines[-6:]), name
    assert "diverged 1, done 1, failed 5" in output


def test_failed_runs_are_repeated_by_a_retry_only(swept: tuple[Path, int, str]) -> None:
    folder, _, _ = swept
    before = read_run_json(folder)
    code, output = sweep("launch", "--output_dir", folder, "--workers", 1)
    assert code == 1
    assert "ZeroDivisionError: nothing can be divided by zero" in output
    assert read_run_json(folder) == before
    code, output = sweep("status", "--output_dir", folder)
    assert code == 0
    assert "Timeout: did not end within 60 s" in output
    limits = ["--workers", 2, "--run_timeout", 5, "--memory_limit_gb", 3]
    assert sweep("retry", "--output_dir", folder, *limits)[0] == 1
    after = read_run_json(folder)
    assert "5 s" in after["Endless"]["error"]["message"]
    assert after["Plain"] == before["Plain"]
    assert after["TurningNaN"] == before["TurningNaN"]


def test_delete_incomplete_keeps_finished_runs(swept: tuple[Path, int, str]) -> None:
    folder, _, _ = swept
    code, output = sweep("delete_incomplete", "--output_dir", folder)
    assert code == 2
    assert "--skip-confirmation" in output
    code, output = sweep("delete_incomplete", "--output_dir", folder, "--skip_confirmation")
    assert code == 0, output
    assert read_run_json(folder).keys() == {"TurningNaN", "Plain"}
