"""A run's files belong to it: what is another run's, changed or no file is told, never used silently."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import plench
from plench.errors import DataError, ResumeError, StorageError
from plench.runs.folder import RunStore, read_done
from plench.sweeps.executor import SharedDataset
from plench.training.checkpoint import SEAL, dump, parse
from plench.training.loop import StopRequest
from tests.training.harness import (
    Crash,
    CrashAt,
    assert_same_run,
    load_digits,
    only_folder,
    read_description,
    run,
)


def crash(output: Path, **changes: Any) -> Path:
    with pytest.raises(Crash):
        run(output, callback=CrashAt(40), **changes)
    return only_folder(output)


@pytest.fixture
def undisturbed(tmp_path: Path) -> Path:
    return run(tmp_path / "undisturbed").folder


def forge_checkpoint(folder: Path, **changes: Any) -> None:
    """Change what a checkpoint holds, in a file that is sound; None takes a key out."""
    payload = {**parse((folder / "checkpoint.pt").read_bytes()), **changes}
    payload = {key: value for key, value in payload.items() if value is not None}
    (folder / "checkpoint.pt").write_bytes(dump(payload))


# Checkpoints.


@pytest.mark.parametrize("changes", [{"seed": 1}, {"hparams": {"lr": 0.01}}])
def test_a_checkpoint_of_another_run_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    other, folder = crash(tmp_path / "a", **changes), crash(tmp_path / "b")
    (folder / "checkpoint.pt").write_bytes((other / "checkpoint.pt").read_bytes())
    before = (folder / "results.jsonl").read_bytes()
    with pytest.raises(ResumeError, match="belongs to another run"):
        run(tmp_path / "b")
    assert (folder / "results.jsonl").read_bytes() == before
    assert (folder / "checkpoint.pt").exists()


def test_a_checkpoint_that_was_changed_is_not_used(undisturbed: Path, tmp_path: Path) -> None:
    folder = crash(tmp_path / "b")
    content = (folder / "checkpoint.pt").read_bytes()
    assert content[-len(SEAL) - 64 :].startswith(SEAL)
    payload = parse(content)
    payload["updates"] -= 1
    changed = dump(payload)[: -len(SEAL) - 64] + content[-len(SEAL) - 64 :]
    with pytest.raises(ValueError, match="it was changed since it was written"):
        parse(changed)
    (folder / "checkpoint.pt").write_bytes(changed)
    assert run(tmp_path / "b").status == "done"  # from the checkpoint before it
    assert_same_run(undisturbed, folder)


def test_a_state_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = crash(tmp_path / "b")
    forge_checkpoint(folder, data={"x": torch.zeros(3)})
    with pytest.raises(ResumeError, match="cannot be restored"):
        run(tmp_path / "b")
    assert (folder / "checkpoint.pt").exists()


def test_a_folder_in_place_of_a_checkpoint(tmp_path: Path) -> None:
    folder = crash(tmp_path / "b")
    (folder / "checkpoint.pt").unlink()
    (folder / "checkpoint.pt").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*checkpoint"):
        run(tmp_path / "b")


# What ends a run.


def test_done_knows_records_and_models(undisturbed: Path) -> None:
    known = read_done(str(undisturbed / "done"))
    assert set(known) == {"results.jsonl", "model_AA.pt", "model_CR.pt", "model_last.pt"}
    assert RunStore(undisturbed).check_integrity(60) is None


def damage(folder: Path, how: str) -> None:
    records = folder / "results.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    if how == "empty":
        records.write_bytes(b"")
    elif how == "cut":
        records.write_text("".join(lines)[:-20])
    elif how == "missing":
        records.unlink()
    elif how == "middle":
        records.write_text("".join(lines[:2] + lines[3:]))
    elif how == "altered":
        records.write_text("".join(lines).replace('"loss": 0', '"loss": 1').replace('"loss": 2', '"loss": 1'))
    elif how == "model":
        (folder / "model_CR.pt").unlink()
    elif how == "model altered":
        content = bytearray((folder / "model_CR.pt").read_bytes())
        content[1000] ^= 1
        (folder / "model_CR.pt").write_bytes(content)
    elif how == "description":
        (folder / "run.json").write_text("garbage")
    elif how == "done":
        (folder / "done").write_text("done\n{")


DAMAGES = ["empty", "cut", "missing", "middle", "altered", "model", "model altered", "description", "done"]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_finished_run_that_is_not_whole_is_told(how: str, undisturbed: Path) -> None:
    damage(undisturbed, how)
    before = {path.name: path.read_bytes() for path in undisturbed.iterdir()}
    with pytest.raises(ResumeError, match=r"is marked as finished, but .* no checkpoint to repair it from"):
        run(undisturbed.parent)
    assert {path.name: path.read_bytes() for path in undisturbed.iterdir()} == before


@pytest.mark.parametrize("how", DAMAGES)
def test_a_finished_run_that_is_not_whole_is_repaired_from_its_checkpoint(
    how: str, undisturbed: Path, tmp_path: Path
) -> None:
    folder = crash(tmp_path / "b")
    kept = (folder / "checkpoint.pt").read_bytes()
    run(tmp_path / "b")
    (folder / "checkpoint.pt").write_bytes(kept)
    damage(folder, how)
    outcome = run(tmp_path / "b")
    assert (outcome.status, outcome.updates_made) == ("done", 60 - 35)
    assert_same_run(undisturbed, folder)
    assert RunStore(folder).check_integrity(60) is None


def test_a_premature_done_deletes_nothing(undisturbed: Path, tmp_path: Path) -> None:
    folder = crash(tmp_path / "b")
    (folder / "done").write_bytes(b"done\n")
    assert run(tmp_path / "b").updates_made == 60 - 35
    assert_same_run(undisturbed, folder)


def test_runs_ended_by_older_versions_are_finished(undisturbed: Path) -> None:
    (undisturbed / "done").write_bytes(b"done\n")
    assert run(undisturbed.parent).message == "already finished"
    damage(undisturbed, "cut")
    with pytest.raises(ResumeError, match="does not end with the last record"):
        run(undisturbed.parent)


def test_another_run_s_description(tmp_path: Path) -> None:
    other, folder = run(tmp_path / "a", seed=1).folder, crash(tmp_path / "b")
    (folder / "run.json").write_bytes((other / "run.json").read_bytes())
    with pytest.raises(ResumeError, match="contains another run"):
        run(tmp_path / "b")
    finished = run(tmp_path / "c").folder
    (finished / "run.json").write_bytes((other / "run.json").read_bytes())
    with pytest.raises(ResumeError, match="contains another run"):
        run(tmp_path / "c")


def test_a_finished_run_where_nothing_can_be_written(
    undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (undisturbed / "checkpoint.pt").write_bytes(b"left over")

    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(30, "Read-only file system")

    for name in ("unlink", "open", "mkdir", "replace"):
        real = getattr(os, name)
        if name == "open":
            monkeypatch.setattr(
                os,
                name,
                lambda path, flags, *a, real=real, **k: (
                    real(path, flags, *a, **k) if not flags & (os.O_WRONLY | os.O_RDWR) else refuse()
                ),
            )
        else:
            monkeypatch.setattr(os, name, refuse)
    assert run(undisturbed.parent).message == "already finished"


# Written files.


def test_written_files_can_be_read_by_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = RunStore(tmp_path)
        store.write_file("x", b"abc")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


# Models.


def test_models_that_do_not_fit_their_description(undisturbed: Path, tmp_path: Path) -> None:
    description = read_description(undisturbed)
    assert plench.load(undisturbed).updates == 60

    def write(**changes: Any) -> None:
        (undisturbed / "run.json").write_text(json.dumps({**description, **changes}))

    for changes in (
        {"dataset": 5},
        {"dataset": {**description["dataset"], "n_classes": "x"}},
        {"dataset": {**description["dataset"], "input_shape": [1, 2**40]}},
        {"dataset": {**description["dataset"], "kind": []}},
        {"config": None},
        {"config": {**description["config"], "hparams": {}}},
        {"config": {**description["config"], "hparams": {**description["config"]["hparams"], "lr": "x"}}},
        {"algorithm_spec": 7},
        {"run_id": "other"},
    ):
        write(**changes)
        with pytest.raises(DataError, match="cannot be used"):
            plench.load(undisturbed)
    write()
    other = run(tmp_path / "other", seed=1).folder
    (undisturbed / "model_last.pt").write_bytes((other / "model_last.pt").read_bytes())
    with pytest.raises(DataError, match="the model of another run"):
        plench.load(undisturbed)


# Conditions.


@pytest.mark.parametrize("name", ["MKL_CBWR", "ONEDNN_MAX_CPU_ISA"])
def test_other_arithmetic_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = crash(tmp_path)
    assert read_description(folder)["versions"]["arithmetic"] == torch.backends.cpu.get_cpu_capability()
    assert read_description(folder)["versions"]["processor"]
    monkeypatch.setenv(name, "COMPATIBLE")
    with pytest.raises(ResumeError, match=f"arithmetic .* → .*{name}=COMPATIBLE"):
        run(tmp_path)
    monkeypatch.delenv(name)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "OTHER")
    with pytest.raises(ResumeError, match=r"arithmetic .* → OTHER"):
        run(tmp_path)
    forge_checkpoint(folder, environment={"plench": plench.__version__})  # older: nothing to compare
    assert run(tmp_path).status == "done"


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


def test_a_full_folder_of_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*arguments: Any, **options: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(
        StorageError, match=rf"needs 0.. MB in the folder of temporary files, {tmp_path}: No space"
    ):
        SharedDataset("Digits_USS", load_digits())
