"""The state of runs from their folders, with and without the plan cache, without third-party code."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from plench.cli import main
from plench.runs.folder import RunStore
from plench.runs.sweep_spec import Grid, SweepSpec, read_sweep
from plench.sweeps.executor import record_failure
from plench.sweeps.plan import DatasetCache, PlannedRun, expand, resolve_names, scan_runs
from plench.sweeps.status import RunState, measure_rates, read_state, read_states, write_plan
from tests.sweep.driving import DATASETS, plan_one, run_here

SMALL = ["--algorithms", "CC", "--datasets", "Digits_USS", "--n_hparams", "1", "--n_trials", "1"]
QUIET = ["--steps", "3", "--workers", "1", "--quiet"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def done(tmp_path: Path) -> tuple[PlannedRun, Path]:
    run = plan_one()
    assert run_here(run, tmp_path) == "done"
    return run, tmp_path / run.folder


def test_missing_done_interrupted_and_running(done: tuple[PlannedRun, Path], tmp_path: Path) -> None:
    run, folder = done
    assert [entry.state for entry in read_states([run], tmp_path)] == ["done"]
    assert [entry.state for entry in read_states([run], tmp_path / "nowhere")] == ["missing"]
    (folder / "done").unlink()
    assert read_state(run, str(folder)).state == "interrupted"
    with RunStore(folder).locked():
        assert read_state(run, str(folder)).state == "running"


def test_foreign_and_failed_runs(done: tuple[PlannedRun, Path]) -> None:
    run, folder = done
    content = json.loads((folder / "run.json").read_text())
    for changes in ({"protocol": 2}, {"run_id": "0" * 32}):
        (folder / "run.json").write_text(json.dumps({**content, **changes}))
        assert read_state(run, str(folder)).state == "foreign"
    (folder / "done").unlink()
    for error, message in (("disk on fire", "error: disk on fire"), ({"type": "A", "message": "b"}, "A: b")):
        (folder / "run.json").write_text(json.dumps({**content, "status": "failed", "error": error}))
        assert read_state(run, str(folder)).message == message


def test_damaged_records_and_run_json(done: tuple[PlannedRun, Path]) -> None:
    run, folder = done
    whole = {name: (folder / name).read_bytes() for name in ("results.jsonl", "run.json")}
    records, described = whole.values()
    for name, changed, why in (
        ("results.jsonl", records.replace(b"1", b"2", 1), "changed since"),
        ("results.jsonl", records[:-5], "last record"),
        ("results.jsonl", records[1:], "another size"),
        ("results.jsonl", b"", ""),
        ("run.json", b"[1]", "run.json"),
        ("run.json", described[:-3], "run.json"),
        ("run.json", described.replace(b'"config": {', b'"config": \0\0'), "run.json"),
        ("run.json", described.replace(b'"error": null', b'"error": null, "status": "failed"'), "status"),
    ):
        (folder / name).write_bytes(changed)
        state = read_state(run, str(folder))
        assert state.state == "damaged", (name, changed)
        assert why in state.message
        (folder / name).write_bytes(whole[name])
    (folder / "results.jsonl").unlink()
    assert "is missing" in read_state(run, str(folder)).message


def test_a_failure_is_recorded_without_a_folder_and_never_over_a_finished_run(tmp_path: Path) -> None:
    run = plan_one()
    store = RunStore(tmp_path / run.folder)
    record_failure(store, run, DATASETS.get(run.dataset), "WorkerDied", "signal 9")
    found = read_state(run, str(store.folder))
    assert (found.state, found.message) == ("failed", "WorkerDied: signal 9")
    assert run_here(run, tmp_path) == "done"
    record_failure(store, run, DATASETS.get(run.dataset), "Timeout", "too late")
    assert read_state(run, str(store.folder)).state == "done"


@pytest.mark.parametrize("verb", ["status", "plan"])
def test_status_and_plan_of_a_finished_sweep_need_neither_torch_nor_numpy(verb: str, tmp_path: Path) -> None:
    output = ["--output_dir", str(tmp_path)]
    assert main(["sweep", "launch", *SMALL, *QUIET, *output]) == 0
    code = (
        f"import sys; from plench.cli import main; main(['sweep', {verb!r}, *{output!r}]); "
        "sys.exit(', '.join({'torch', 'numpy'} & {*sys.modules}) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = ["done 1", "to do: 0"] if verb == "plan" else ["done 1"]
    assert (ended.returncode, ended.stdout.splitlines()[1:]) == (0, expected)


def test_the_plan_cache_changes_no_answer(tmp_path: Path, capsys: Capture, cli: Any) -> None:
    output = ["--output_dir", str(tmp_path)]
    launch = ["sweep", "launch", *SMALL, "--algorithms", "CC", "PRODEN", *QUIET, *output]
    status = ["sweep", "status", *output, "--json"]
    assert main(launch) == 0
    assert main(status) == 0

    def read_output() -> dict[str, object]:
        content = json.loads(capsys.readouterr().out)
        assert content.pop("runs_per_minute") > 0  # depends on the time
        return content

    content = read_output()
    assert content["states"] == {"done": 2}
    assert (content["ended_last_hour"], content["seconds_left"]) == (2, None)
    (cache,) = tmp_path.glob(".plan-*.json")
    cache.unlink()
    assert main(status) == 0
    assert read_output() == content
    for torn in ("[]", '{"runs": [[1]]}', "{"):
        cache.write_text(torn)
        assert main(status) == 0
        assert read_output() == content
    assert main(launch) == 0
    assert len(json.loads(cache.read_text())["runs"]) == 2  # a launch repairs a torn one
    described = next(tmp_path.glob("*/run.json"))
    described.write_text(re.sub('"protocol": [0-9]+', '"protocol": 01', described.read_text()))
    assert json.loads(cli(*status).out)["states"] == {"done": 1, "damaged": 1}


def test_own_runs_are_scanned_as_planned(tmp_path: Path) -> None:
    grid = Grid(("CC", "PRODEN"), ("Digits_USS",), n_hparams=2, n_trials=2, steps=20)
    spec = resolve_names(SweepSpec((grid,)), DATASETS)
    assert scan_runs([spec], DatasetCache(None), tmp_path) == expand(spec)
    assert scan_runs([SweepSpec((grid,))], DATASETS, tmp_path) == expand(spec)
    other = SweepSpec((replace(grid, steps=30),), spec.fingerprints)
    folders = [{run.folder for run in scan_runs([each], DATASETS, tmp_path)} for each in (spec, other)]
    assert not folders[0] & folders[1]


# A Python file that leaves a mark when it is imported.
EVIL = """
from pathlib import Path

from plench.algorithms import LossAlgorithm

Path({mark!r}).touch()


class E(LossAlgorithm):
    def loss(self, logits, batch):
        return -logits.log_softmax(-1).mean()
"""


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A folder with a sweep file that names such a file."""
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "evil.py").write_text(EVIL.format(mark=str(tmp_path / "mark")))
    write_sweep(folder, f"{folder / 'evil.py'}:E", "Digits_USS")
    return folder


def write_sweep(folder: Path, algorithm: str, dataset: str, more: str = "") -> None:
    (folder / "sweep-0.toml").write_text(
        f"schema = 1\n[[grid]]\nalgorithms = [{json.dumps(algorithm)}, 'CC']\n"
        f"datasets = [{json.dumps(dataset)}]\n"
        f"n_hparams = 2\nn_trials = 1\nsteps = 20\ncheckpoint_freq = 10\n{more}"
        f"[fingerprints]\n{json.dumps(dataset)} = {json.dumps(DATASETS.get('Digits_USS').fingerprint)}\n"
    )


def write_third_party(folder: Path, kind: str) -> None:
    """Write a sweep file in which something of this kind is third-party code."""
    spec = json.dumps(f"{folder}/evil.py:E")
    if kind == "dataset":
        write_sweep(folder, "PRODEN", f"{folder / 'evil.py'}:E")
    elif kind == "module":
        write_sweep(folder, "evil:E", "Digits_USS")
    elif kind == "network":
        write_sweep(folder, "PRODEN", "Digits_USS", f"[grid.hparams]\nmodel = {spec}\n")
    elif kind == "criterion":
        write_sweep(folder, "PRODEN", "Digits_USS", f"more_criteria = {spec}\n")


COMMANDS = [
    ["sweep", "status", "--output_dir", "{}"],
    ["sweep", "status", "--output_dir", "{}", "--file", "{}/sweep-0.toml", "--json"],
    ["sweep", "delete-incomplete", "--output_dir", "{}", "--skip_confirmation"],
    ["sweep", "plan", "--output_dir", "{}", "--probe_seconds", "0"],
    ["sweep", "best", "{}"],
    ["collect", "{}"],
    ["stats", "{}"],
    ["plot", "curves", "{}", "--output", "curves.svg"],
    ["report", "{}", "--output", "site"],
    ["export", "{}", "--output", "out.parquet"],
]


@pytest.mark.parametrize("kind", ["algorithm", "dataset", "module", "network", "criterion"])
def test_commands_that_show_results_import_no_third_party_code(
    kind: str, evil: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(evil)
    write_third_party(evil, kind)
    run_here(plan_one(), evil)
    for command in COMMANDS:
        assert main([word.format(evil) for word in command]) == 0, command
        assert not (tmp_path / "mark").exists(), command


@pytest.mark.parametrize("kind", ["network", "criterion"])
def test_a_plan_measures_no_run_that_names_a_third_party(kind: str, evil: Path, tmp_path: Path) -> None:
    write_third_party(evil, kind)
    spec = read_sweep(evil / "sweep-0.toml")
    write_plan(spec, [plan_one("PRODEN")], evil)  # even if the list of a launch says that it is our own
    assert main(["sweep", "plan", "--output_dir", str(evil), "--probe_seconds", "2"]) == 0
    assert not (tmp_path / "mark").exists()


def test_classes_of_one_file_are_distinguished(evil: Path) -> None:
    (evil / "evil.py").write_text((evil / "evil.py").read_text() + "\n\nclass F(E):\n    pass\n")
    both = [f"{evil / 'evil.py'}:{name}" for name in "EF"]
    grid = Grid(tuple(both), ("Digits_USS",), n_hparams=1, n_trials=1, steps=20, checkpoint_freq=10)
    spec = resolve_names(SweepSpec((grid,)), DATASETS)
    run_here(expand(spec)[0], evil)
    write_plan(spec, expand(spec), evil)

    def states(spec: SweepSpec) -> dict[str, str]:
        found = read_states(scan_runs([spec], DATASETS, evil), evil)
        return {entry.run.config.algorithm[0]: entry.state for entry in found}

    assert states(spec) == {"E": "done", "F": "missing"}
    slower = SweepSpec((replace(grid, hparams={"lr": 0.5}),), spec.fingerprints)
    assert states(slower) == {"E": "missing", "F": "missing"}


def test_third_party_runs_are_those_of_the_last_launch(evil: Path, tmp_path: Path, cli: Any) -> None:
    def read_counts() -> dict[str, int]:
        shown = cli("sweep", "status", "--output_dir", evil, "--json")
        assert ("2 runs of third-party code count as missing" in shown.err) is not plan.exists()
        return json.loads(shown.out)["states"]

    spec = read_sweep(evil / "sweep-0.toml")
    runs = expand(resolve_names(spec, DATASETS))
    (theirs, *_) = (run for run in runs if "evil" in run.algorithm)
    assert run_here(theirs, evil) == "done"
    plan = evil / f".plan-{spec.identity}.json"
    assert read_counts() == {"missing": 4}
    write_plan(spec, runs, evil)
    (tmp_path / "mark").unlink()
    assert read_counts() == {"done": 1, "missing": 3}
    listed = json.loads(plan.read_text())
    plan.write_text(json.dumps({**listed, "plench": "another"}))  # our own runs are planned again
    assert read_counts() == {"done": 1, "missing": 3}
    (evil / theirs.folder / "done").unlink()
    assert main(["sweep", "delete-incomplete", "--output_dir", str(evil), "--skip_confirmation"]) == 0
    assert not (evil / theirs.folder).exists()
    assert not (tmp_path / "mark").exists()


def test_rates_and_the_time_left(tmp_path: Path) -> None:
    now = datetime(2026, 1, 2, 12, tzinfo=UTC)
    run = plan_one()

    def ended(begun: int, written: int, seconds: float, run: PlannedRun = run) -> RunState:
        times = {
            key: (now - timedelta(minutes=m)).isoformat()
            for key, m in (("begun", begun), ("written", written))
        }
        return RunState(
            run, "done", timings={**times, "training_seconds": seconds, "evaluation_seconds": 0.0}
        )

    # Ten minutes per run; a run of yesterday says how long one takes, but not how fast it goes now.
    recent = [ended(40, 30, 600.0), ended(40, 30, 600.0), ended(30, 20, 600.0), ended(30, 20, 600.0)]
    states = [ended(1500, 1490, 600.0), *recent, RunState(run, "running"), RunState(run, "missing")]
    rates = measure_rates(states, now)
    assert rates["ended_last_hour"] == 4
    assert rates["runs_per_minute"] == pytest.approx(4 / 40)
    assert rates["seconds_left"] == pytest.approx(2 * 600 / (2400 / 2400))
    assert (
        measure_rates([*recent, RunState(run, "missing")], now)["seconds_left"] is None
    )  # nothing is running
    assert measure_rates(states[:1], now)["runs_per_minute"] is None
    assert measure_rates([RunState(run, "done", timings={"begun": 3})], now)["ended_last_hour"] == 0
    # A round of a fitted method says nothing about the steps of a network.
    fitted = [ended(40, 30, 600.0, plan_one("PL_AKNN"))]
    left = [RunState(run, "running"), RunState(run, "missing")]
    assert measure_rates([*fitted, *left], now)["seconds_left"] is None
    trained = ended(40, 30, 600.0, plan_one("PRODEN"))  # but those of another network do
    assert measure_rates([*fitted, trained, *left], now)["seconds_left"] == pytest.approx(
        1200 / (1200 / 2400)
    )
