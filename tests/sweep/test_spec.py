"""Sweep files: what was asked comes back exactly; what is not understood is an error that says so."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from plench.cli import main
from plench.errors import UsageError
from plench.runs.sweep_spec import Grid, SweepSpec, read_sweep, read_sweeps
from tests.sweep.driving import plan_one, run_here

NAMES = (
    *("CC", "a b", "a.b-c_d", "0", "\"quoted\" 'twice'", "C:\\data\\x.npz", "[x] # = {"),
    *("größe 漢字 😀", "a line\u2028separator"),
)
VALUES = (-5, 0, True, False, 0.1, 1e-300, -1.7976931348623157e308, 1e16, 5e-324, *NAMES)


@pytest.mark.parametrize("rate", [None, 0.0, 1 / 3, 1])
@pytest.mark.parametrize("steps", [None, 1, 10**6])
def test_toml_gives_back_what_was_written(tmp_path: Path, steps: int | None, rate: float | None) -> None:
    numbers = {"n_hparams_from": 3, "n_hparams": 5, "steps": steps, "drop_true_rate": rate}
    hparams = {f"{name}{number}": value for name in NAMES for number, value in enumerate(VALUES)}
    grid = Grid(NAMES, NAMES[::-1], **numbers, hparams=hparams)  # type: ignore[arg-type]
    spec = SweepSpec((grid, Grid(("CC",), ("Lost",))), dict(zip(NAMES, NAMES[::-1], strict=True)))
    path = tmp_path / "round_trip.toml"
    spec.write(path)
    assert read_sweep(path) == spec
    assert tomllib.loads(path.read_text(encoding="utf-8"))["schema"] == 1


def test_ranges_are_ends_not_counts() -> None:
    grid = Grid(("CC",), ("Lost",), n_hparams_from=3, n_hparams=5, n_trials_from=1, n_trials=2)
    assert list(grid.hparams_seeds) == [3, 4]
    assert list(grid.trial_seeds) == [1]


def test_sweeps_of_a_folder_have_files_of_their_own(tmp_path: Path) -> None:
    one = SweepSpec((Grid(("CC",), ("Lost",)),))
    two = SweepSpec((Grid(("CC",), ("Lost",), steps=5),))
    for spec in (one, two, one):
        spec.write(tmp_path / spec.file_name)
    assert one.file_name != two.file_name
    assert {spec.identity for spec in read_sweeps(tmp_path)} == {one.identity, two.identity}
    assert len(list(tmp_path.iterdir())) == 2


GRID = "[[grid]]\nalgorithms = ['CC']\ndatasets = ['Digits_USS']\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("grid = 3", "grids are written as"),
        ("schema = 7", "schema 7, this version"),
        ("[[grid]]\nalgorithms = ['CC']\n", "has no datasets"),
        ("[[grid]]\nalgorithms = [1]\ndatasets = ['Digits_USS']\n", "algorithms must be a list"),
        ("[[grid]]\nalgorithms = ['CC']\ndatasets = 'Lost'\n", "datasets must be a list"),
        (GRID + "speed = 3", "unknown key 'speed'"),
        (GRID + "steps = 0", "steps must be a whole number"),
        (GRID + "n_trials = 0", "n_trials must be a whole"),
        (GRID + "n_hparams = 1000\nn_trials = 1000", "a grid of 1,000,000 runs per pair is too large"),
        (GRID + "pl_type = 'x'", "pl_type must be one of real, uss"),
        (GRID + "[grid.hparams]\nlr = [[1]]", "hyperparameter lr must be a number or text"),
        (GRID + "[fingerprints]\nDigits_USS = 1", "fingerprints are written as"),
        ("colour = 1", "unknown key 'colour'"),
        ("", "at least one grid"),
        ("= what", "not a TOML file"),
        ("\xff", "not a TOML file"),
    ],
)
def test_bad_files_are_errors_that_name_the_file(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "sweep-0.toml"
    path.write_text(text, encoding="latin1")
    with pytest.raises(UsageError, match=reason) as caught:
        read_sweep(path)
    assert str(path) in str(caught.value)
    assert main(["sweep", "status", "--output_dir", str(tmp_path)]) == 2


def test_runs_next_to_a_bad_file_are_collected(tmp_path: Path, cli) -> None:
    (tmp_path / "sweep-0.toml").write_text("grid = 3")
    run_here(plan_one(), tmp_path)
    shown = cli("collect", tmp_path)
    assert "CC" in shown.out
    assert "sweep-0.toml" in shown.out + shown.err


@pytest.mark.parametrize("module", ["runs.sweep_spec", "sweeps.status", "sweeps.engines.ray_writer"])
def test_sweep_files_status_and_the_writer_of_ray_need_no_torch(module: str) -> None:
    code = f"import sys, plench.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
