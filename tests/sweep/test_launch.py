"""Commands of sweeps: usage, plans, launches, deletion; the executor; the dummy and Slurm engines."""

import json
import os
import queue
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plench.callbacks import Callback
from plench.cli import main
from plench.errors import StorageError, UsageError
from plench.runs.folder import RunStore
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.sweeps.engines import slurm
from plench.sweeps.engines.dummy import DummyEngine
from plench.sweeps.engines.ray import RayBackend, RayEngine
from plench.sweeps.engines.ray_writer import RemoteStore, Writer
from plench.sweeps.executor import RunExecutor, SharedDataset, map_dataset, record_failure
from plench.sweeps.launch import launch_sweep, prepare_folders
from plench.sweeps.plan import resolve_names
from plench.sweeps.status import RunState
from plench.training.loop import StopRequest
from tests.conftest import ROOT
from tests.sweep.driving import DATASETS, odd, plan_one, plan_runs, read_outcomes, run_here

GRID = ["--algorithms", "CC", "--datasets", "Digits_USS"]
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("launch", "has no sweep file: say what to run"),
        ("launch --steps 5", "--steps needs --suite"),
        ("launch --datasets Lost", "give both --datasets and --algorithms"),
        ("launch --suite lite --datasets Lost", "unknown dataset of the suite lite 'Lost'"),
        (
            "launch --suite lite --ray_address auto",
            "--ray-address is an option of the launcher ray",
        ),
        ("launch --suite lite --run_timeout 0", "--run-timeout must be above 0"),
        ("launch --suite lite --workers 0", "workers must be at least 1"),
        ("launch --suite lite --command_launcher ray --workers 0", "workers must be at least 1"),
        ("plan --suite lite --slurm_minutes 9", "--slurm-minutes is an option of the launcher slurm"),
        ("plan --suite lite --memory_limit_gb -1", "--memory-limit-gb must be above 0"),
        ("plan --suite lite --fleet x", "stack must be off, auto or a number"),
        ("plan --file /nowhere.toml", "cannot read the sweep file"),
        ("status --suite lite --output_dir /nowhere", "there is no folder /nowhere"),
        (f"status --output_dir {'x' * 300}", "there is no folder"),
    ],
)
def test_bad_usage_is_an_error_with_its_reason(
    arguments: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert reason in cli("sweep", *arguments.split(), code=2).err


def test_plan_and_status_count_runs(tmp_path: Path, cli: Any) -> None:
    grid = [*GRID, "--n_hparams", "2", "--n_trials", "1", "--steps", "20", "--checkpoint_freq", "10"]
    assert run_here(plan_one(steps=20), tmp_path) == "done"
    options = ["--output_dir", str(tmp_path), "--json"]
    plan = json.loads(cli("sweep", "plan", *grid, *options, "--probe_seconds", "1", "--workers", "2").out)
    assert plan["states"] == {"done": 1, "missing": 1}
    assert (plan["runs"], plan["to_do"], plan["workers"]) == (2, 1, 2)
    assert plan["hours"] > 0
    assert plan["gigabytes"] > 0
    assert (plan["measured_pairs"], plan["pairs"]) == (1, 1)
    on_slurm = ["--command_launcher", "slurm", "--probe_seconds", "0"]
    for more, workers in ((["--slurm_max_jobs", "7"], 7), ([], None)):
        assert json.loads(cli("sweep", "plan", *grid, *options, *on_slurm, *more).out)["workers"] == workers
    assert json.loads(cli("sweep", "status", *grid, *options).out)["states"] == {"done": 1, "missing": 1}


def test_a_plan_names_stacks_and_measures_them(tmp_path: Path, cli: Any) -> None:
    words = ["sweep", "plan", *GRID, "--n_hparams", "1", "--n_trials", "4", "--steps", "20", "--workers", "1"]
    words += ["--output_dir", str(tmp_path), "--probe_seconds", "1"]
    for flag, size, sizes in (("--stack", "3", [2, 2]), ("--fleet", "3", [2, 2]), ("--stack", "off", [])):
        plan = json.loads(cli(*words, flag, size, "--json").out)
        assert (plan["to_do"], plan["fleets"], plan["fleets_measured"]) == (4, sizes, bool(sizes))
        assert (plan["fleet_gigabytes"] > 0) is bool(sizes)
        assert plan["hours"] > 0
    text = cli(*words, "--stack", "3").out
    assert re.search("stacked: 4 runs in 2 stacks of up to 2, about [1-9] MB of memory each at most", text)
    assert text.endswith("dataset, in stacks\n")


def test_a_launch_can_be_quiet_or_print_json(tmp_path: Path, cli: Any) -> None:
    words = ["sweep", "launch", *GRID, "--n_hparams", "1", "--n_trials", "1", "--steps", "4"]
    words += ["--output_dir", str(tmp_path), "--workers", "1"]
    assert cli(*words, "--quiet") == ("", "")
    captured = cli(*words, "--json", "--no-progress")
    expected = {"runs": 1, "states": {"done": 1}, "failures": [], "left_alone": {}, "exit_code": 0}
    assert json.loads(captured.out) == expected
    assert captured.err == ""


def test_a_launch_command_becomes_delete_incomplete_by_its_verb(
    tmp_path: Path, capsys: Capture, cli: Any
) -> None:
    left, held, finished = plan_one(), plan_one("PRODEN"), plan_one("LWS")
    assert run_here(finished, tmp_path) == "done"
    for run in (left, held):
        record_failure(RunStore(tmp_path / run.folder), run, DATASETS.get(run.dataset), "Timeout", "too long")
    names = ["--algorithms", "CC", "PRODEN", "LWS", "--datasets", "Digits_USS"]
    numbers = ["--n_hparams", "1", "--n_trials", "1", "--steps", "20", "--checkpoint_freq", "10"]
    how = ["--command_launcher", "local", "--skip_confirmation", "--skip_model_save"]
    words = ["sweep", "delete_incomplete", *names, *numbers, *how, "--output_dir", str(tmp_path)]
    with RunStore(tmp_path / held.folder).locked():  # a process resumes it after its state was read
        assert main(words) == 0
    output = capsys.readouterr().out
    assert "deleted 1 folder\n" in output
    assert "kept 1 that" in output
    assert not (tmp_path / left.folder).exists()
    assert (tmp_path / held.folder / "run.json").exists()
    assert (tmp_path / finished.folder / "done").exists()


def write_sweep_file(folder: Path) -> None:
    grid = Grid(("CC",), ("Digits_USS",), 0, 1, 0, 1, steps=20, checkpoint_freq=10)
    (folder / "sweep-0.toml").write_text(resolve_names(SweepSpec((grid,)), DATASETS).to_toml())


def test_a_linked_folder_is_not_deleted(tmp_path: Path, capsys: Capture, cli: Any) -> None:
    output, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    output.mkdir()
    run = plan_one()
    run_here(run, elsewhere)
    (elsewhere / run.folder / "done").unlink()
    (output / run.folder).symlink_to(elsewhere / run.folder)
    write_sweep_file(output)
    assert main(["sweep", "delete-incomplete", "--output_dir", str(output), "--skip_confirmation"]) == 0
    assert (elsewhere / run.folder / "run.json").exists()
    assert "is a link and is kept" in capsys.readouterr().err


def test_escapes_do_not_reach_the_terminal(tmp_path: Path, capsys: Capture, cli: Any) -> None:
    run = plan_one()
    run_here(run, tmp_path)
    store = RunStore(tmp_path / run.folder)
    store.discard("done")
    hostile = "\x1b]0;owned\x07\x1b[2J\u202e"
    error = {"type": hostile, "message": hostile}
    described: Any = store.read_run()
    store.write_run({**described, "status": "failed", "error": error, "algorithm_class": hostile})
    write_sweep_file(tmp_path)
    for command in (["status"], ["status", "--json"], ["plan", "--probe_seconds", "0"]):
        main(["sweep", *command, "--output_dir", str(tmp_path)])
        shown = capsys.readouterr()
        assert not {"\x1b", "\u202e"} & {*shown.out, *shown.err}
    assert "\x1b" not in cli("train", "-a", hostile, "-d", "Digits_FPS", code=2).err


def test_a_launch_removes_checkpoints_of_finished_runs(tmp_path: Path) -> None:
    """A kill at the end of a run leaves one; unfinished runs and runs with a changed model keep theirs."""
    runs = plan_runs("CC", n_hparams=3, n_trials=1)
    for run in runs:
        store = RunStore(tmp_path / run.folder)
        store.folder.mkdir()
        store.write_run({"status": "done"})
        store.append_record(json.dumps({"step": run.config.steps - 1}))
        store.write_model("last", b"weights")
        store.finish()
        (store.folder / "checkpoint.pt").write_bytes(b"left")
    (tmp_path / runs[2].folder / "model_last.pt").write_bytes(b"changed")
    states = [RunState(run, "interrupted" if run is runs[1] else "done") for run in runs]
    prepare_folders(states, tmp_path, retry=False)
    assert [(tmp_path / run.folder / "checkpoint.pt").exists() for run in runs] == [False, True, True]


@pytest.mark.parametrize("name", ["Raising", "Leaving"])
def test_whatever_an_algorithm_raises_becomes_an_attempt(name: str, tmp_path: Path) -> None:
    assert run_here(plan_one(odd(name)), tmp_path) == "failed"


def test_an_error_of_the_loop_itself_fails_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: Any, **__: Any) -> None:
        raise RuntimeError("no stack")

    monkeypatch.setattr("plench.sweeps.executor.train_runs", give_up)
    runs = tuple(plan_runs("CC", n_hparams=3, n_trials=1, steps=20, device="cpu"))
    stores = [RunStore(tmp_path / run.folder) for run in runs]
    ends: list[str] = []
    dataset = DATASETS.get("Digits_USS")
    RunExecutor().run_task(
        runs, dataset, stores, [Callback()] * 3, lambda run, attempt: ends.append(attempt.message)
    )
    assert ends == ["RuntimeError: no stack"] * 3


def test_a_shared_dataset_is_the_same_dataset() -> None:
    dataset = DATASETS.get("Digits_USS")
    shared = SharedDataset("Digits_USS", dataset)
    mapped = map_dataset(shared.message, os.dup(shared.file.fileno()))
    assert mapped.fingerprint == dataset.fingerprint
    assert (mapped.features == dataset.features).all()
    assert (mapped.candidates == dataset.candidates).all()
    assert not mapped.features.flags.writeable
    assert not mapped.features.flags.owndata


def test_a_full_folder_of_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*arguments: Any, **options: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(StorageError, match=rf"MB in the folder of temporary files, {tmp_path}: No space"):
        SharedDataset("Digits_USS", DATASETS.get("Digits_USS"))


def test_commands_of_the_dummy_engine_train_the_same_runs(tmp_path: Path) -> None:
    numbers = {"n_hparams": 2, "n_trials": 1, "steps": 15, "checkpoint_freq": 5, "fps_rate": 0.2}
    shown: list[str] = []
    spec = SweepSpec((Grid(("CC", "LWS"), ("Digits_FPS",), **numbers),))  # type: ignore[arg-type]
    outcome = launch_sweep(spec, tmp_path / "nothing", engine=DummyEngine(shown.append))
    assert len(shown) == 4
    assert not (tmp_path / "nothing").exists()
    for line in shown:
        words = shlex.split(line.replace(str(tmp_path / "nothing"), str(tmp_path / "runs")))
        assert words[:3] == ["python", "-m", "plench.train"]
        assert main(["train", *words[3:]]) == 0
    assert set(read_outcomes(tmp_path / "runs")) == {entry.run.folder for entry in outcome.states}
    shown.clear()
    grid = Grid(("CC",), ("Digits_USS",), n_hparams=1, n_trials=1, precision="bf16", compile=True)
    launch_sweep(SweepSpec((grid,)), tmp_path, engine=DummyEngine(shown.append))
    assert "--precision bf16 --compile" in shown[0]


def test_a_run_on_ray_removes_files_where_the_writer_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = SimpleNamespace(get=lambda answers: answers, exceptions=SimpleNamespace(RayActorError=KeyError))
    monkeypatch.setitem(sys.modules, "ray", ray)
    there, node = tmp_path / "there" / "run", tmp_path / "node" / "run"
    writer = Writer()
    calls = {name: getattr(writer, name) for name in ("write", "read_model", "release")}
    calls["open"] = lambda folder: writer.open(
        there.parent / folder.name
    )  # the driver's machine has it there
    remote = {name: SimpleNamespace(remote=call) for name, call in calls.items()}
    store = RemoteStore(SimpleNamespace(**remote), node)
    kept = ["results.jsonl", "run.json"]
    with store.locked():
        for name in ("checkpoint.pt", "model_CR.pt", "done", *kept):
            store.write_file(name, b"{}")
    with store.locked():
        assert [name for name, _ in store.read_checkpoints()] == ["checkpoint.pt"]
        assert store.finished
        store.tidy()
        store.discard("done")
        store.discard_models()
    assert sorted(path.name for path in there.iterdir() if path.name != ".lock") == kept
    assert not node.exists()
    with store.locked():
        assert not store.has_checkpoint
        assert not store.finished


def test_slurms_queue_is_read_whatever_other_jobs_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".slurm").mkdir()
    (tmp_path / ".slurm" / "plench-1.json").write_text(json.dumps([["a"], ["b", "c"], ["d"]]))
    lines = ["N/A RUNNING my other job", "N/A PENDING ", "0 RUNNING plench-1", "1 PENDING plench-1"]
    asked: list[tuple[str, ...]] = []

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
    assert slurm.parse_duration(text) == seconds


@pytest.mark.parametrize("answers", [["2:00", "1:30", "0:50"], []])
def test_a_slurm_job_stops_when_its_time_is_up(answers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two warnings one comes early; if Slurm does not answer, a warning is enough."""
    left, asked, request = iter(answers), [], StopRequest()

    def answer(*words: str) -> str:
        asked.append(request.asked)
        if not answers:
            raise slurm.SlurmError("command squeue not found")
        return next(left)

    monkeypatch.setattr(slurm, "call_slurm", answer)
    monkeypatch.setattr(slurm, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    warnings: queue.SimpleQueue[int] = queue.SimpleQueue()
    warnings.put(12)
    warnings.put(12)
    slurm.stop_in_time(request, 60, warnings)
    assert request.asked
    assert not any(asked)
    if answers:
        assert request.ends_at == 1000 - 10  # 50 s are left, 60 s must be


@pytest.mark.parametrize(
    "command",
    [
        "train -a CC -d Digits_FPS --steps 2 --output-dir s3://bucket/runs",
        "sweep launch --algorithms CC --datasets Digits_FPS --output-dir gs://bucket",
        "sweep pilot --algorithms CC --datasets Digits_FPS --output-dir file:///tmp/x",
        "results export runs -o s3://bucket/results.parquet",
        "report nowhere --paper s3://bucket/paper",
        "fit nowhere.csv -o model.plench --report s3://bucket/page.html",
        "bench step --output s3://bucket/costs.json",
        "data download Lost --data-dir s3://bucket/data",
    ],
)
def test_urls_are_refused_with_advice(command, tmp_path, monkeypatch, cli) -> None:
    monkeypatch.chdir(tmp_path)
    command = command.replace(" runs ", f" {ROOT / 'tests' / 'golden' / 'folders' / 'sweep'} ")
    said = cli(*command.split(), code=2).err
    assert "is a URL; plench writes to folders of this machine" in said
    assert list(tmp_path.iterdir()) == []


def test_a_run_on_ray_has_room_where_one_node_has_all_that_it_takes() -> None:
    gb = 2**30
    nodes = [
        {"Alive": True, "Resources": {"CPU": 4.0, "memory": 3.0 * gb}},
        {"Alive": True, "Resources": {"CPU": 1.0, "memory": 9.0 * gb}},
        {"Alive": True, "Resources": {"memory": 9.0 * gb}},
        {"Alive": False, "Resources": {"CPU": 8.0, "memory": 64.0 * gb}},
    ]
    backend = object.__new__(RayBackend)
    backend.ray = SimpleNamespace(nodes=lambda: nodes)
    for options, slots in (({}, 5), ({"memory_gb_per_run": 2.0}, 2), ({"memory_gb_per_run": 10.0}, 0)):
        backend.engine = RayEngine(**options)
        assert backend.count_slots() == slots
    with pytest.raises(UsageError, match="memory_gb_per_run must be at least 0, not -1"):
        RayEngine(memory_gb_per_run=-1)
