"""A run that was stopped, killed or damaged resumes and ends as if nothing had happened, or is refused."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import plench
from plench.callbacks import Callback
from plench.errors import BusyError, ResumeError, StorageError
from plench.runs.folder import RunStore, read_done
from plench.training.checkpoint import SEAL, dump, parse
from plench.training.loop import StopRequest
from tests.training.harness import (
    RESUMED,
    STEPS,
    AtStep,
    Crash,
    CrashAt,
    Started,
    assert_same_run,
    only_folder,
    read_description,
    read_records,
    run,
    short_name,
    stop_at,
)

INTERVAL = 7
SEAL_BYTES = len(SEAL) + 64


def crash(output: Path, step: int = 40, spec: str = "PRODEN", **others: Any) -> Path:
    """Crash a run right after the record of a step; return its folder."""
    with pytest.raises(Crash):
        run(output, spec, callback=CrashAt(step), **others)
    folder = only_folder(output)
    assert not (folder / "done").exists()
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, for comparing."""
    return run(tmp_path_factory.mktemp("undisturbed")).folder


@pytest.fixture
def finished(undisturbed: Path, tmp_path: Path) -> Path:
    """A finished run, for damaging."""
    return shutil.copytree(undisturbed, tmp_path / "finished" / undisturbed.name)


@pytest.fixture(scope="module")
def crashed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crash(tmp_path_factory.mktemp("crashed"))


@pytest.fixture
def crashed(crashed_once: Path, tmp_path: Path) -> Path:
    """A run that crashed after its 41st update; its checkpoints were written after 28 and 35 updates."""
    return shutil.copytree(crashed_once, tmp_path / crashed_once.name)


def resume(folder: Path) -> int:
    """Train a run to its end; return after how many updates it resumed."""
    started = Started()
    assert run(folder.parent, callback=started).status == "done"
    return started.updates


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Crashes.


@pytest.mark.parametrize(
    ("spec", "options"),
    [*((spec, {}) for spec in RESUMED), ("PRODEN", {"hparams": {"model": "MLP_BN"}})],
    ids=[*map(short_name, RESUMED), "batch normalisation"],
)
@pytest.mark.parametrize("step", [0, 20, 59])
def test_a_crashed_run_resumes_from_its_last_checkpoint(
    spec: str, options: dict[str, Any], step: int, tmp_path: Path
) -> None:
    expected = run(tmp_path / "a", spec, **options).folder
    folder = crash(tmp_path / "b", step, spec, **options)
    outcome = run(tmp_path / "b", spec, **options)
    assert outcome.status == "done"
    assert outcome.updates_made == STEPS - step // INTERVAL * INTERVAL
    assert_same_run(expected, folder)


def change_payload(checkpoint: bytes) -> bytes:
    """Return a sound file with another content under the old hash."""
    payload = parse(checkpoint)
    payload["updates"] -= 1
    return dump(payload)[:-SEAL_BYTES] + checkpoint[-SEAL_BYTES:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda checkpoint: b"",
        lambda checkpoint: b"not a checkpoint",
        lambda checkpoint: checkpoint[: len(checkpoint) // 2],
        lambda checkpoint: checkpoint[:90_000] + bytes([checkpoint[90_000] ^ 0xFF]) + checkpoint[90_001:],
        change_payload,
    ],
    ids=["empty", "garbage", "truncated", "flipped", "changed"],
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    damage: Any, crashed: Path, undisturbed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = crashed / "checkpoint.pt"
    newest.write_bytes(damage(newest.read_bytes()))
    assert resume(crashed) == 28
    assert "checkpoint.pt" in caplog.text
    assert_same_run(undisturbed, crashed)


def damage_both(folder: Path) -> None:
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (folder / name).write_bytes(b"damaged")


def leave_half_files(folder: Path) -> None:
    for name in ("checkpoint.pt", "run.json", "model_last.pt", "done"):
        (folder / f".{name}.tmp").write_bytes(b"half")


def append_record(rest: bytes) -> Callable[[Path], object]:
    def append(folder: Path) -> None:
        with open(folder / "results.jsonl", "ab") as file:
            file.write(rest)

    return append


@pytest.mark.parametrize(
    ("happened", "updates"),
    [
        (damage_both, 0),
        (lambda folder: (folder / "checkpoint.pt").replace(folder / "checkpoint.previous.pt"), 35),
        *((append_record(rest), 35) for rest in (b'{"step": 50, "lo', b"\x00\x00\x00", b'{"step": 50}')),
        *(
            (lambda folder, text=text: (folder / "run.json").write_text(text), 35)
            for text in ("", '{"schema": 1, "run', "[]")
        ),
        (leave_half_files, 35),
    ],
)
def test_whatever_a_crash_leaves_the_run_ends_as_an_undisturbed_one(
    happened: Callable[[Path], object], updates: int, crashed: Path, undisturbed: Path
) -> None:
    happened(crashed)
    assert resume(crashed) == updates
    assert read_description(crashed)["status"] == "done"
    assert_same_run(undisturbed, crashed)
    names = {path.name for path in crashed.iterdir()} - {".lock"}
    assert names == {"done", "results.jsonl", "run.json", "model_AA.pt", "model_CR.pt", "model_last.pt"}


# Conditions and identity.


@pytest.mark.parametrize("changes", [{"seed": 1}, {"hparams": {"lr": 0.01}}])
def test_a_checkpoint_of_another_run_is_refused(
    changes: dict[str, Any], crashed: Path, tmp_path: Path
) -> None:
    other = crash(tmp_path / "other", **changes)
    (crashed / "checkpoint.pt").write_bytes((other / "checkpoint.pt").read_bytes())
    before = (crashed / "results.jsonl").read_bytes()
    with pytest.raises(ResumeError, match="belongs to another run"):
        run(tmp_path)
    assert (crashed / "results.jsonl").read_bytes() == before
    assert (crashed / "checkpoint.pt").exists()


def forge_checkpoint(folder: Path, **changes: Any) -> None:
    """Change the content of a checkpoint, with a right hash."""
    payload = {**parse((folder / "checkpoint.pt").read_bytes()), **changes}
    (folder / "checkpoint.pt").write_bytes(dump(payload))


def test_a_state_that_does_not_fit_is_refused(crashed: Path) -> None:
    forge_checkpoint(crashed, data={"x": torch.zeros(3)})
    with pytest.raises(ResumeError, match="cannot be restored"):
        run(crashed.parent)
    assert (crashed / "checkpoint.pt").exists()


def test_a_folder_in_place_of_a_checkpoint(crashed: Path) -> None:
    (crashed / "checkpoint.pt").unlink()
    (crashed / "checkpoint.pt").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*checkpoint"):
        run(crashed.parent)


def test_the_description_of_another_run_is_refused(crashed: Path, finished: Path, tmp_path: Path) -> None:
    other = run(tmp_path / "other", seed=1).folder
    for folder in (crashed, finished):
        (folder / "run.json").write_bytes((other / "run.json").read_bytes())
        with pytest.raises(ResumeError, match="contains another run"):
            run(folder.parent)


def test_other_threads_are_refused_unless_asked_for(crashed: Path) -> None:
    records = read_records(crashed)
    with pytest.raises(ResumeError, match=r"threads 1 → 2.*--force-resume"):
        run(crashed.parent, threads=2)
    assert read_records(crashed) == records
    assert run(crashed.parent, threads=2, force_resume=True).status == "done"


def test_other_versions_are_refused(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plench.training.environment.np.__version__", "0.0.0")
    with pytest.raises(ResumeError, match=r"numpy .* → 0\.0\.0"):
        run(crashed.parent)


@pytest.mark.parametrize("name", ["MKL_CBWR", "ONEDNN_MAX_CPU_ISA"])
def test_other_arithmetic_is_refused(name: str, crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = read_description(crashed)["versions"]
    assert versions["arithmetic"].split(", ")[0] == torch.backends.cpu.get_cpu_capability()
    assert versions["processor"]
    monkeypatch.setenv(name, "COMPATIBLE")
    with pytest.raises(ResumeError, match=f"arithmetic .* → .*{name}=COMPATIBLE"):
        run(crashed.parent)
    monkeypatch.delenv(name)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "OTHER")
    with pytest.raises(ResumeError, match=r"arithmetic .* → OTHER"):
        run(crashed.parent)
    forge_checkpoint(crashed, environment={"plench": plench.__version__})  # older: nothing to compare
    assert resume(crashed) == 35


# Requests to stop.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_saves_and_says_how_to_resume(
    number: signal.Signals, undisturbed: Path, tmp_path: Path
) -> None:
    handler = signal.getsignal(number)
    outcome = run(tmp_path, callback=stop_at(20, number))
    assert signal.getsignal(number) is handler
    assert (outcome.status, outcome.message) == ("interrupted", "the same command resumes it")
    assert outcome.updates_made == 21
    assert read_description(outcome.folder)["status"] == "interrupted"
    assert resume(outcome.folder) == 21
    assert_same_run(undisturbed, outcome.folder)


def test_a_stop_at_the_last_update_comes_too_late(undisturbed: Path, tmp_path: Path) -> None:
    outcome = run(tmp_path, callback=stop_at(STEPS - 1, signal.SIGINT))
    assert outcome.status == "done"
    assert_same_run(undisturbed, outcome.folder)


class StopInEvaluation(Callback):
    """Sends a signal in the middle of an evaluation, between two of its batches."""

    evaluations = 0

    def __init__(self, chosen: int) -> None:
        self.chosen = chosen

    def evaluating(self, done: int, total: int) -> None:
        """Send the signal in the middle of the chosen evaluation."""
        assert 0 < done <= total
        if done < total and self.evaluations == self.chosen:
            signal.raise_signal(signal.SIGINT)

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Count."""
        self.evaluations += 1


@pytest.mark.parametrize("evaluation", [0, 2, 6])
def test_a_run_stops_between_the_batches_of_an_evaluation(
    evaluation: int, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plench.training.run.CHUNK", 25)
    outcome = run(tmp_path, callback=StopInEvaluation(evaluation))
    assert outcome.status == "interrupted"
    assert len(read_records(outcome.folder)) == evaluation
    monkeypatch.undo()
    again = run(tmp_path)
    assert again.updates_made + outcome.updates_made == STEPS
    assert_same_run(undisturbed, again.folder)


def test_a_stop_is_acknowledged_at_once(tmp_path: Path) -> None:
    heard: list[str] = []

    class Acknowledging(AtStep):
        def evaluated(self, record: Mapping[str, Any]) -> None:
            super().evaluated(record)
            heard.append(f"record {record['step']}")

        def stopping(self) -> None:
            heard.append("stopping")

    run(tmp_path, callback=Acknowledging(10, lambda: signal.raise_signal(signal.SIGTERM)))
    assert heard == ["record 0", "stopping", "record 10"]


def test_a_hangup_stops_like_a_request() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.asked
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with StopRequest() as stop:  # under nohup
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.asked
    finally:
        signal.signal(signal.SIGHUP, before)


# Records and locks.


def test_two_processes_cannot_work_on_one_run(crashed: Path) -> None:
    before = (crashed / "results.jsonl").read_bytes()
    with RunStore(crashed).locked(), pytest.raises(BusyError, match="another process is working on"):
        run(crashed.parent)
    assert (crashed / "results.jsonl").read_bytes() == before
    resume(crashed)


def test_each_record_is_on_disk_when_it_is_reported(tmp_path: Path) -> None:
    told: list[int] = []

    class Reading(Callback):
        def evaluated(self, record: Mapping[str, Any]) -> None:
            lines = (only_folder(tmp_path) / "results.jsonl").read_text(encoding="utf-8").splitlines()
            assert json.loads(lines[-1])["step"] == record["step"]
            told.append(len(lines))

    run(tmp_path, callback=Reading())
    assert told == [1, 2, 3, 4, 5, 6, 7]


def test_written_files_can_be_read_by_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        RunStore(tmp_path).write_file("x", b"abc")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


# Finished runs.


def test_a_finished_run_is_not_run_again(finished: Path) -> None:
    known = read_done(str(finished / "done"))
    assert set(known) == {"results.jsonl", "model_AA.pt", "model_CR.pt", "model_last.pt"}
    before = content(finished)
    outcome = run(finished.parent)
    assert (outcome.status, outcome.updates_made, outcome.message) == ("done", 0, "already finished")
    assert content(finished) == before


def damage(folder: Path, how: str) -> None:
    records, model = folder / "results.jsonl", folder / "model_CR.pt"
    lines = records.read_text().splitlines(keepends=True)
    if how == "cut":
        records.write_text("".join(lines)[:-20])
    elif how == "missing":
        records.unlink()
    elif how == "middle":
        records.write_text("".join(lines[:2] + lines[3:]))
    elif how == "altered":
        records.write_text("".join(lines).replace('"loss": 0', '"loss": 1').replace('"loss": 2', '"loss": 1'))
    elif how == "model":
        model.unlink()
    elif how == "model altered":
        model.write_bytes(model.read_bytes()[:1000] + b"?" + model.read_bytes()[1001:])
    elif how == "description":
        (folder / "run.json").write_text("garbage")
    else:
        (folder / "done").write_text("done\n{")


@pytest.mark.parametrize(
    "how", ["cut", "missing", "middle", "altered", "model", "model altered", "description", "done"]
)
def test_a_finished_run_that_is_damaged_is_repaired_from_its_checkpoint_or_refused(
    how: str, finished: Path, undisturbed: Path, crashed_once: Path
) -> None:
    damage(finished, how)
    before = content(finished)
    with pytest.raises(ResumeError, match=r"is marked as finished, but .* no checkpoint to repair it from"):
        run(finished.parent)
    assert content(finished) == before
    (finished / "checkpoint.pt").write_bytes((crashed_once / "checkpoint.pt").read_bytes())
    assert resume(finished) == 35
    assert_same_run(undisturbed, finished)
    assert RunStore(finished).check_integrity(STEPS) is None


def test_runs_finished_by_older_versions_are_finished(finished: Path) -> None:
    (finished / "done").write_bytes(b"done\n")
    assert run(finished.parent).message == "already finished"
    damage(finished, "cut")
    with pytest.raises(ResumeError, match="does not end with the last record"):
        run(finished.parent)


def test_a_finished_run_in_a_read_only_folder(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finished / "checkpoint.pt").write_bytes(b"left over")

    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(30, "Read-only file system")

    def open_for_reading(path: Any, flags: int, *others: Any, real: Any = os.open, **options: Any) -> int:
        return real(path, flags, *others, **options) if not flags & (os.O_WRONLY | os.O_RDWR) else refuse()

    for name in ("unlink", "mkdir", "replace"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(os, "open", open_for_reading)
    assert run(finished.parent).message == "already finished"
