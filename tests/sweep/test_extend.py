"""Extending published results: runs of a results file count as finished, and merged files agree."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import plench
from plench.cli import main
from plench.runs.results import read_results_file

GRID = ["--algorithms", "PRODEN", "CC", "--datasets", "Digits_FPS", "--steps", "4", "--checkpoint_freq", "2"]
OPTIONS: dict[str, Any] = {"n_hparams": 2, "n_trials": 1, "steps": 4, "checkpoint_freq": 2, "workers": 1}
OPTIONS |= {"progress": False}


def sweep(cli: Any, verb: str, folder: Path, *more: str) -> Any:
    return json.loads(cli("sweep", verb, *GRID, "--output_dir", folder, "--json", *more).out)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("published")
    plench.sweep(["PRODEN", "CC"], "Digits_FPS", root / "runs", **OPTIONS)
    file = root / "results.parquet"
    assert main(["export", str(root / "runs"), "-o", str(file)]) == 0
    return file


def test_runs_of_the_file_are_finished_and_the_rest_is_run(published: Path, tmp_path: Path, cli: Any) -> None:
    extend = ["--extend", str(published)]
    more = ["--n_hparams", "3", "--n_trials", "1"]
    plan = sweep(cli, "plan", tmp_path, *more, *extend, "--probe_seconds", "0")
    assert plan["states"] == {"done": 4, "missing": 2}
    assert plan["to_do"] == 2
    assert sweep(cli, "plan", tmp_path, *more, "--probe_seconds", "0")["to_do"] == 6
    ended = sweep(cli, "launch", tmp_path, *more, *extend, "--workers", "1", "--no_progress")
    assert ended["states"] == {"done": 6}
    folders = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert sorted(name.split("-t0-")[0] for name in folders) == ["Digits_FPS-CC-h2", "Digits_FPS-PRODEN-h2"]
    said = cli("sweep", "status", "--output_dir", tmp_path, *extend).out
    assert "done 6 (4 runs in the extended results)" in said
    merged = tmp_path / "merged.parquet"
    assert main(["export", str(tmp_path), str(published), "-o", str(merged)]) == 0
    runs = read_results_file(merged).runs
    assert len({run.info["run_id"] for run in runs}) == len(runs) == 6


def change_column(file: Path, name: str, change: Callable[[dict[str, Any]], Any], target: Path) -> None:
    """Write a results file with another value of a column in each row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    column = table.schema.get_field_index(name)
    values = pa.array([change(row) for row in table.select(["algorithm", "step", name]).to_pylist()])
    pq.write_table(table.set_column(column, table.schema.field(column), values), target)


def test_failed_runs_of_the_file_are_run(published: Path, tmp_path: Path) -> None:
    failed = tmp_path / "failed.parquet"
    change_column(published, "status", lambda row: "failed" if row["algorithm"] == "CC" else "done", failed)
    outcome = plench.sweep(["PRODEN", "CC"], "Digits_FPS", tmp_path / "runs", extend=failed, **OPTIONS)
    assert {entry.state for entry in outcome.states} == {"done"}
    run_here = {entry.run.config.algorithm for entry in outcome.states if not entry.in_extended}
    assert run_here == {"CC"}


def test_conflicting_records_are_refused(published: Path, tmp_path: Path, cli: Any) -> None:
    other, merged = tmp_path / "other.parquet", tmp_path / "merged.parquet"
    change_column(published, "loss", lambda row: row["loss"] + (row["step"] == 0), other)
    said = cli("export", published, other, "-o", merged, code=2).err
    assert "are the same run with different records" in said
    assert not merged.exists()
    assert main(["export", str(published), str(published.parent / "runs"), "-o", str(merged)]) == 0


def test_a_missing_file_is_refused_before_anything_is_written(tmp_path: Path, cli: Any) -> None:
    command = ["sweep", "launch", *GRID, "--output_dir", str(tmp_path / "runs"), "--extend", "x.parquet"]
    assert "x.parquet" in cli(*command, code=2).err
    assert not (tmp_path / "runs").exists()
