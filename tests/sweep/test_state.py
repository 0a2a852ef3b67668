"""The state of runs as their folders tell it, failures recorded, and the command's text."""

import json
import re
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from plench.cli import main
from plench.runs.folder import RunStore
from plench.runs.sweep_spec import Grid, SweepSpec, read_sweeps
from plench.sweeps.engines.base import DeathTolls
from plench.sweeps.engines.dummy import DummyEngine
from plench.sweeps.launch import launch_sweep
from plench.sweeps.perform import Performer, fail_run, record_failure
from plench.sweeps.plan import DataShelf, PlannedRun, expand, settle
from plench.sweeps.run_states import read_state, read_states
from plench.sweeps.sharing import SharedDataset, map_dataset
from plench.training.callbacks import NoCallback
from tests.sweep.driving import odd, read_outcomes

SHELF = DataShelf(None)


def plan_one(algorithm: str = "CC", steps: int = 20) -> PlannedRun:
    grid = Grid((algorithm,), ("Digits_USS",), n_hparams=1, n_trials=1, steps=steps, checkpoint_freq=10)
    (run,) = expand(settle(SweepSpec((grid,)), SHELF))
    return run


def perform(run: PlannedRun, output_dir: Path) -> str:
    store = RunStore(output_dir / run.folder)
    run = replace(run, config=replace(run.config, device="cpu", skip_model_save=True))
    return Performer().perform(run, SHELF.get(run.dataset), store, NoCallback()).status


@pytest.fixture
def done(tmp_path: Path) -> tuple[PlannedRun, Path]:
    run = plan_one()
    assert perform(run, tmp_path) == "done"
    return run, tmp_path / run.folder


def test_missing_done_and_interrupted(done: tuple[PlannedRun, Path], tmp_path: Path) -> None:
    run, folder = done
    assert [entry.state for entry in read_states([run], tmp_path)] == ["done"]
    assert [entry.state for entry in read_states([run], tmp_path / "nowhere")] == ["missing"]
    (folder / "done").unlink()
    assert read_state(run, str(folder)).state == "interrupted"
    with RunStore(folder).locked():
        assert read_state(run, str(folder)).state == "running"


@pytest.mark.parametrize("cut", [1, 40, 10**6])
def test_cut_records_are_damage(done: tuple[PlannedRun, Path], cut: int) -> None:
    run, folder = done
    content = (folder / "results.jsonl").read_bytes()
    (folder / "results.jsonl").write_bytes(content[: max(len(content) - cut, 0)])
    assert read_state(run, str(folder)).state == "damaged"


def test_broken_or_foreign_run_json(done: tuple[PlannedRun, Path]) -> None:
    run, folder = done
    content = json.loads((folder / "run.json").read_text())
    for changes, state in (
        ({"protocol": 2}, "foreign"),
        ({"run_id": "0" * 32}, "foreign"),
        ({"status": "failed", "error": {"type": "A", "message": "b"}}, "damaged"),
    ):
        (folder / "run.json").write_text(json.dumps({**content, **changes}))
        assert read_state(run, str(folder)).state == state
    for text in ("{", "[1]", "[" * 100_000):
        (folder / "run.json").write_text(text)
        assert read_state(run, str(folder)).state == "damaged"
    (folder / "done").unlink()
    for error, message in (("disk on fire", "error: disk on fire"), ({"type": "A", "message": "b"}, "A: b")):
        (folder / "run.json").write_text(json.dumps({**content, "status": "failed", "error": error}))
        assert read_state(run, str(folder)).message == message


def test_a_run_that_leaves_no_trace_is_recorded_all_the_same(tmp_path: Path) -> None:
    run = plan_one()
    store = RunStore(tmp_path / run.folder)
    record_failure(store, run, SHELF.get(run.dataset), "WorkerDied", "signal 9")
    found = read_state(run, str(store.folder))
    assert (found.state, found.message) == ("failed", "WorkerDied: signal 9")
    assert perform(run, tmp_path) == "done"
    assert read_state(run, str(store.folder)).state == "done"


def test_a_failure_does_not_overwrite_a_finished_run(done: tuple[PlannedRun, Path]) -> None:
    run, folder = done
    record_failure(RunStore(folder), run, SHELF.get(run.dataset), "Timeout", "too late")
    assert read_state(run, str(folder)).state == "done"


@pytest.mark.parametrize(("name", "status"), [("Raising", "failed"), ("Leaving", "failed")])
def test_what_an_algorithm_does_becomes_an_attempt(tmp_path: Path, name: str, status: str) -> None:
    assert perform(plan_one(odd(name)), tmp_path) == status


def test_deaths_count_only_while_a_run_gets_no_further() -> None:
    run, tolls = plan_one(), DeathTolls()
    counts = []
    for updates in (0, 0, 50, 50, 50, 80):
        tolls.begin(run.folder, updates)
        counts.append(tolls.count((run,)))
    assert counts == [1, 2, 1, 2, 3, 1]


def test_a_shared_dataset_is_the_same_dataset() -> None:
    import os

    dataset = SHELF.get("Digits_USS")
    shared = SharedDataset(dataset)
    mapped = map_dataset(shared.layout, os.dup(shared.fileno()))
    assert mapped.fingerprint == dataset.fingerprint
    assert (mapped.features == dataset.features).all()
    assert (mapped.candidates == dataset.candidates).all()
    assert not mapped.features.flags.writeable
    assert not mapped.features.flags.owndata


def test_the_dummy_engines_commands_do_the_same_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = Grid(
        ("CC", "LWS"),
        ("Digits_FPS",),
        n_hparams=2,
        n_trials=1,
        steps=15,
        checkpoint_freq=5,
        fps_rate=0.2,
    )
    shown: list[str] = []
    outcome = launch_sweep(SweepSpec((grid,)), tmp_path / "nothing", engine=DummyEngine(shown.append))
    assert len(shown) == 4
    assert not (tmp_path / "nothing").exists()
    for line in shown:
        words = shlex.split(line.replace(str(tmp_path / "nothing"), str(tmp_path / "runs")))
        assert words[:3] == ["python", "-m", "plench.train"]
        assert main(["train", *words[3:]]) == 0
    assert set(read_outcomes(tmp_path / "runs")) == {entry.run.folder for entry in outcome.states}


def test_the_dummy_engine_names_the_arithmetic(tmp_path: Path) -> None:
    grid = Grid(("CC",), ("Digits_USS",), n_hparams=1, n_trials=1, precision="bf16", compile=True)
    shown: list[str] = []
    launch_sweep(SweepSpec((grid,)), tmp_path, engine=DummyEngine(shown.append))
    words = shlex.split(shown[0])
    assert words[words.index("--precision") + 1] == "bf16"
    assert "--compile" in words


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["launch"], "holds no sweep: say what to run"),
        (["launch", "--steps", "5"], "--steps needs --suite"),
        (["launch", "--datasets", "Lost"], "give both --datasets and --algorithms"),
        (["launch", "--suite", "lite", "--datasets", "Lost"], "unknown dataset of the suite lite 'Lost'"),
        (["launch", "--suite", "lite", "--ray_address", "auto"], "--ray_address belongs to the launcher ray"),
        (["launch", "--suite", "lite", "--run_timeout", "0"], "--run_timeout must be above 0"),
        (["launch", "--suite", "lite", "--workers", "0"], "workers must be at least 1"),
        (
            ["plan", "--suite", "lite", "--slurm_minutes", "9"],
            "--slurm_minutes belongs to the launcher slurm",
        ),
        (["plan", "--suite", "lite", "--memory_limit_gb", "-1"], "--memory_limit_gb must be above 0"),
        (["launch", "--suite", "lite", "--command_launcher", "ray", "--workers", "0"], "workers must be at"),
        (["plan", "--file", "/nowhere.toml"], "cannot read the sweep file"),
        (["status", "--suite", "lite", "--output_dir", "/nowhere"], "there is no folder /nowhere"),
    ],
)
def test_bad_usage_is_an_error_with_its_reason(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_plan_and_status_tell_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["--algorithms", "CC", "--datasets", "Digits_USS", "--n_hparams", "2", "--n_trials", "1"]
    folder = str(tmp_path / "runs")
    assert perform(plan_one(steps=20), tmp_path / "runs") == "done"
    options = ["--steps", "20", "--checkpoint_freq", "10", "--output_dir", folder, "--json"]
    assert main(["sweep", "plan", *grid, *options, "--probe_seconds", "1", "--workers", "2"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["states"] == {"done": 1, "missing": 1}
    assert (plan["runs"], plan["to_do"], plan["workers"]) == (2, 1, 2)
    assert plan["hours"] > 0
    assert plan["gigabytes"] > 0
    assert (plan["measured_pairs"], plan["pairs"]) == (1, 1)
    slurm = ["--command_launcher", "slurm", "--probe_seconds", "0"]
    assert main(["sweep", "plan", *grid, *options, *slurm, "--slurm_max_jobs", "7"]) == 0
    assert json.loads(capsys.readouterr().out)["workers"] == 7
    assert main(["sweep", "plan", *grid, *options, *slurm]) == 0
    assert json.loads(capsys.readouterr().out)["workers"] is None
    assert main(["sweep", "status", *grid, *options]) == 0
    assert json.loads(capsys.readouterr().out)["states"] == {"done": 1, "missing": 1}


def test_a_plan_tells_fleets_and_measures_them_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ["--algorithms", "CC", "--datasets", "Digits_USS", "--n_hparams", "1", "--n_trials", "4"]
    words = ["sweep", "plan", *grid, "--steps", "20", "--workers", "1", "--output_dir", str(tmp_path)]
    for fleet, sizes in (("3", [2, 2]), ("off", [])):
        assert main([*words, "--fleet", fleet, "--probe_seconds", "1", "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)
        assert (plan["to_do"], plan["fleets"], plan["fleets_measured"]) == (4, sizes, bool(sizes))
        assert (plan["fleet_gigabytes"] > 0) is bool(sizes)
        assert plan["hours"] > 0
    assert main([*words, "--fleet", "3", "--probe_seconds", "1"]) == 0
    told = capsys.readouterr().out
    assert re.search(
        "trained as one: 4 runs in 2 fleets of up to 2, about [1-9] MB of memory each at most", told
    )
    assert told.endswith(" s, fleets as one\n")


def test_the_plan_of_a_finished_sweep_needs_neither_torch_nor_numpy(tmp_path: Path) -> None:
    words = ["--algorithms", "CC", "--datasets", "Digits_USS", "--n_hparams", "1", "--n_trials", "1"]
    output = ["--output_dir", str(tmp_path)]
    assert main(["sweep", "launch", *words, "--steps", "3", "--workers", "1", "--quiet", *output]) == 0
    code = (
        f"import sys; from plench.cli import main; main(['sweep', 'plan', *{output!r}]); "
        "sys.exit(', '.join({'torch', 'numpy'} & {*sys.modules}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["done 1", "to do: 0"])


def test_a_launch_command_becomes_delete_incomplete_by_its_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left, held, finished = plan_one(), plan_one("PRODEN"), plan_one("LWS")
    assert perform(finished, tmp_path) == "done"
    for run in (left, held):
        record_failure(RunStore(tmp_path / run.folder), run, SHELF.get(run.dataset), "Timeout", "too long")
    names = ["--algorithms", "CC", "PRODEN", "LWS", "--datasets", "Digits_USS"]
    numbers = ["--n_hparams", "1", "--n_trials", "1", "--steps", "20", "--checkpoint_freq", "10"]
    how = ["--command_launcher", "local", "--skip_confirmation", "--skip_model_save"]
    with RunStore(tmp_path / held.folder).locked():  # a process takes it up after its state was read
        assert (
            main(["sweep", "delete_incomplete", *names, *numbers, *how, "--output_dir", str(tmp_path)]) == 0
        )
    said = capsys.readouterr().out
    assert "deleted 1 folder\n" in said
    assert "left 1 that" in said
    assert not (tmp_path / left.folder).exists()
    assert (tmp_path / held.folder / "run.json").exists()
    assert (tmp_path / finished.folder / "done").exists()


def test_slurms_queue_is_read_whatever_other_jobs_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plench.sweeps.engines import slurm

    (tmp_path / ".slurm").mkdir()
    (tmp_path / ".slurm" / "plench-1.json").write_text(json.dumps([["a"], ["b", "c"], ["d"]]))
    lines = ["N/A RUNNING my other job", "N/A PENDING ", "0 RUNNING plench-1", "1 PENDING plench-1"]
    asked = []

    def answer(*words: str) -> str:
        asked.append(words)
        return "\n".join([*lines, "0 RUNNING plench-2"]) + "\n"

    monkeypatch.setattr(slurm, "call_slurm", answer)
    assert slurm.read_slurm_queue(tmp_path) == {"a": "running", "b": "queued", "c": "queued"}
    assert asked[0][0] == "squeue"
    assert "--format=%K %T %j" in asked[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:05", 5), ("12:34", 754), ("1:00:00", 3600), ("2-03:00:01", 183_601), ("UNLIMITED", None)],
)
def test_slurms_durations(text: str, seconds: int | None) -> None:
    from plench.sweeps.engines.slurm import parse_duration

    assert parse_duration(text) == seconds


def test_a_slurm_job_stops_when_its_time_is_up_and_not_when_it_is_warned_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import queue

    from plench.sweeps.engines import slurm
    from plench.training.callbacks import StopRequest

    answers = iter(["2:00", "1:30", "0:50"])
    asked: list[bool] = []
    request = StopRequest()

    def answer(*words: str) -> str:
        asked.append(request.asked)
        return next(answers)

    monkeypatch.setattr(slurm, "call_slurm", answer)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    warnings: queue.SimpleQueue[int] = queue.SimpleQueue()
    warnings.put(12)  # one warning comes a minute early, one when a pre-emption has cut the time short
    warnings.put(12)
    slurm.stop_in_time(request, 60, warnings)
    assert asked == [False, False, False]
    assert request.asked
    assert -15 < request.ends_at - time.monotonic() < -9  # known to workers: 50 s are left, 60 s must be


def test_a_sweep_stops_between_rounds_when_the_time_left_does_not_hold_another(tmp_path: Path) -> None:
    from plench.sweeps.engines.base import Assignment, Limits, NoSweepCallback, RunAttempt
    from plench.sweeps.engines.local import LocalEngine
    from plench.training.callbacks import StopRequest

    heard: list[tuple[str, str, int]] = []

    class Callback(NoSweepCallback):
        def ended(self, run: PlannedRun, attempt: RunAttempt) -> None:
            heard.append((run.algorithm, attempt.status, attempt.updates_made))

    runs = [plan_one("PL_KNN"), plan_one("LR_EM"), plan_one("CC")]
    assignment = Assignment(runs, 0, tmp_path, SHELF, Limits(), Callback())
    request = StopRequest(ends_at=0.0)
    LocalEngine(workers=1, request=request).carry_out(assignment)
    assert request.asked
    assert heard == [("PL_KNN", "done", 2), ("LR_EM", "interrupted", 2)]
    states = [entry.state for entry in read_states(runs, tmp_path)]
    assert states == ["done", "interrupted", "missing"]


def test_a_slurm_job_that_cannot_ask_believes_the_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    import queue

    from plench.sweeps.engines import slurm
    from plench.training.callbacks import StopRequest

    def fail(*words: str) -> str:
        raise slurm.SlurmError("there is no command squeue")

    monkeypatch.setattr(slurm, "call_slurm", fail)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    warnings: queue.SimpleQueue[int] = queue.SimpleQueue()
    warnings.put(12)
    request = StopRequest()
    slurm.stop_in_time(request, 60, warnings)
    assert request.asked


def test_a_run_that_cannot_be_recorded_as_failed_does_not_end_the_sweep(tmp_path: Path) -> None:
    from plench.sweeps.engines.base import Assignment, Limits, NoSweepCallback, RunAttempt

    heard: list[RunAttempt] = []

    class Callback(NoSweepCallback):
        def ended(self, run: PlannedRun, attempt: RunAttempt) -> None:
            heard.append(attempt)

    run = plan_one()
    assignment = Assignment([run], 0, tmp_path, SHELF, Limits(), Callback())
    with RunStore(tmp_path / run.folder).locked():  # by a child of the run, say, that was not killed with it
        fail_run(assignment, run, "Timeout", "did not end")
    fail_run(assignment, run, "Timeout", "did not end")
    assert [attempt.status for attempt in heard] == ["busy", "failed"]


def test_what_keeps_an_early_ray_from_starting_is_raised_where_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from plench.sweeps.engines import ray_start

    def fail(*arguments: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(ray_start, "connect", fail)
    early = ray_start.EarlyRay(2, 1.0)
    with pytest.raises(OSError, match="no more processes"):
        early.wait()
    early.close()


def test_a_look_needs_neither_torch_nor_a_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--algorithms",
        "CC",
        "PRODEN",
        "--datasets",
        "Digits_USS",
        "--n_hparams",
        "1",
        "--n_trials",
        "1",
    ]
    output = ["--output_dir", str(tmp_path)]
    assert main(["sweep", "launch", *words, "--steps", "3", "--workers", "1", "--quiet", *output]) == 0
    assert main(["sweep", "status", *output, "--json"]) == 0
    content = capsys.readouterr().out
    code = (
        f"import sys; from plench.cli import main; main(['sweep', 'status', '--json', *{output!r}]); "
        "sys.exit(', '.join({'torch', 'numpy'} & {*sys.modules}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, content)
    assert json.loads(content)["states"] == {"done": 2}
    (plan,) = tmp_path.glob(".plan-*.json")
    plan.unlink()
    assert main(["sweep", "status", *output, "--json"]) == 0
    assert capsys.readouterr().out == content  # the long way says the same
    for forged in ('{"runs": [["../x", "CC", "Digits_USS", 0, 0, 3]]}', "[]", '{"runs": [[1]]}', "{"):
        plan.write_text(forged)
        assert main(["sweep", "status", *output, "--json"]) == 0
        assert capsys.readouterr().out == content
    assert main(["sweep", "launch", *words, "--steps", "3", "--workers", "1", "--quiet", *output]) == 0
    assert len(json.loads(plan.read_text())["runs"]) == 2  # a launch writes a torn one anew
    described = next(tmp_path.glob("*/run.json"))
    text = re.sub('"protocol": [0-9]+', '"protocol": 01', described.read_text())
    described.write_text(text)
    assert main(["sweep", "status", *output, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["states"] == {"done": 1, "damaged": 1}


def test_a_look_and_a_launch_compare_records_by_hash(tmp_path: Path) -> None:
    words = ["--algorithms", "CC", "--datasets", "Digits_USS", "--n_hparams", "1", "--n_trials", "1"]
    output = ["--output_dir", str(tmp_path), "--workers", "1", "--quiet"]
    assert main(["sweep", "launch", *words, "--steps", "3", *output]) == 0
    (spec,) = read_sweeps(tmp_path)
    (run,) = expand(spec)
    records = tmp_path / run.folder / "results.jsonl"
    content = records.read_bytes()
    altered = content.replace(b"1", b"2", 1), "changed since"
    for changed, why in (altered, (content[:-5], "last record"), (content[1:], "another size")):
        records.write_bytes(changed)
        (state,) = read_states([run], tmp_path)
        assert state.state == "damaged"
        assert why in state.message
    records.unlink()
    assert "is missing" in read_states([run], tmp_path)[0].message
    records.write_bytes(content)
    described = tmp_path / run.folder / "run.json"
    whole = described.read_bytes()
    zeroed = whole.replace(b'"config": {', b'"config": \0\0')
    for torn in (whole[:-3], zeroed, whole.replace(b'"error": null', b'"error": null, "status": "failed"')):
        described.write_bytes(torn)
        (state,) = read_states([run], tmp_path)
        assert state.state == "damaged"
