"""A run that was broken off, or whose files were damaged, goes on and ends as if nothing had happened."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from plench.errors import BusyError, ResumeError
from plench.runs.folder import RunStore
from plench.training.run import NoCallback
from tests.training.harness import (
    COUNTED,
    RESUMED,
    STEPS,
    Crash,
    CrashAt,
    Started,
    assert_same_run,
    only_folder,
    read_description,
    read_records,
    run,
    short_name,
)

INTERVAL = 7


@pytest.fixture
def undisturbed(tmp_path: Path) -> Path:
    return run(tmp_path / "undisturbed").folder


def crash(output: Path, step: int = 40, spec: str = "PRODEN", **others: Any) -> Path:
    """Crash a run right after the record of a step; return its folder."""
    with pytest.raises(Crash):
        run(output, spec, callback=CrashAt(step), **others)
    folder = only_folder(output)
    assert not (folder / "done").exists()
    return folder


@pytest.mark.parametrize("spec", RESUMED, ids=short_name)
@pytest.mark.parametrize("step", [0, 20, 59])
def test_a_crashed_run_continues_from_its_last_checkpoint(spec: str, step: int, tmp_path: Path) -> None:
    expected = run(tmp_path / "a", spec).folder
    folder = crash(tmp_path / "b", step, spec)
    outcome = run(tmp_path / "b", spec)
    assert outcome.status == "done"
    assert outcome.updates_made == STEPS - step // INTERVAL * INTERVAL
    assert_same_run(expected, folder)


def test_a_crashed_run_with_batch_normalisation_resumes_exactly(tmp_path: Path) -> None:
    options = {"hparams": {"model": "MLP_BN"}}
    expected = run(tmp_path / "a", **options).folder
    folder = crash(tmp_path / "b", 30, **options)
    assert run(tmp_path / "b", **options).status == "done"
    assert_same_run(expected, folder)


def test_a_run_crashed_many_times_repeats_at_most_an_interval_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tmp_path / "count"
    monkeypatch.setenv("PLENCH_TEST_COUNT", str(tmp_path / "undisturbed count"))
    expected = run(tmp_path / "a", COUNTED).folder
    monkeypatch.setenv("PLENCH_TEST_COUNT", str(count))
    crashes = (10, 20, 30, 50)
    for step in crashes:
        crash(tmp_path / "b", step, COUNTED)
    outcome = run(tmp_path / "b", COUNTED)
    assert_same_run(expected, outcome.folder)
    assert STEPS <= count.stat().st_size <= STEPS + len(crashes) * INTERVAL


def test_a_finished_run_is_not_run_again(undisturbed: Path) -> None:
    before = {path.name: path.read_bytes() for path in undisturbed.iterdir()}
    outcome = run(undisturbed.parent)
    assert (outcome.status, outcome.updates_made, outcome.message) == ("done", 0, "already finished")
    assert {path.name: path.read_bytes() for path in undisturbed.iterdir()} == before


def test_a_finished_run_keeps_no_checkpoint_and_no_temporary_file(undisturbed: Path) -> None:
    names = {path.name for path in undisturbed.iterdir()} - {".lock"}
    assert names == {"done", "results.jsonl", "run.json", "model_AA.pt", "model_CR.pt", "model_last.pt"}


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None], ids=["empty", "garbage", "truncated"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    damage: bytes | None, undisturbed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = crash(tmp_path / "b")
    newest = folder / "checkpoint.pt"
    content = newest.read_bytes()
    newest.write_bytes(content[: len(content) // 2] if damage is None else damage)
    started = Started()
    run(tmp_path / "b", callback=started)
    assert started.updates == 28  # checkpoints were written after 28 and 35 updates; step 40 is the 41st
    assert "checkpoint.pt" in caplog.text
    assert_same_run(undisturbed, folder)


def test_a_flipped_byte_in_a_checkpoint_is_noticed(undisturbed: Path, tmp_path: Path) -> None:
    folder = crash(tmp_path / "b")
    newest = folder / "checkpoint.pt"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    newest.write_bytes(content)
    started = Started()
    run(tmp_path / "b", callback=started)
    assert started.updates == 28
    assert_same_run(undisturbed, folder)


def test_without_a_usable_checkpoint_a_run_starts_over(undisturbed: Path, tmp_path: Path) -> None:
    folder = crash(tmp_path / "b")
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (folder / name).write_bytes(b"damaged")
    outcome = run(tmp_path / "b")
    assert outcome.updates_made == STEPS
    assert_same_run(undisturbed, folder)


def test_a_crash_between_the_two_checkpoint_files_loses_nothing(undisturbed: Path, tmp_path: Path) -> None:
    folder = crash(tmp_path / "b")
    (folder / "checkpoint.pt").replace(folder / "checkpoint.previous.pt")
    started = Started()
    run(tmp_path / "b", callback=started)
    assert started.updates == 35
    assert_same_run(undisturbed, folder)


@pytest.mark.parametrize("rest", [b'{"step": 50, "lo', b"\x00\x00\x00", b'{"step": 50}'])
def test_a_half_written_record_is_cut_off(rest: bytes, undisturbed: Path, tmp_path: Path) -> None:
    folder = crash(tmp_path / "b")
    with open(folder / "results.jsonl", "ab") as file:
        file.write(rest)
    run(tmp_path / "b")
    assert_same_run(undisturbed, folder)


@pytest.mark.parametrize("content", ["", '{"schema": 1, "run', "[]"])
def test_a_truncated_description_is_written_anew(content: str, undisturbed: Path, tmp_path: Path) -> None:
    folder = crash(tmp_path / "b")
    (folder / "run.json").write_text(content, encoding="utf-8")
    assert run(tmp_path / "b").status == "done"
    assert read_description(folder)["status"] == "done"
    assert_same_run(undisturbed, folder)


def test_a_run_killed_while_it_writes_leaves_no_half_file(undisturbed: Path, tmp_path: Path) -> None:
    folder = crash(tmp_path / "b")
    for name in ("checkpoint.pt", "run.json", "model_last.pt", "done"):
        (folder / f".{name}.tmp").write_bytes(b"half")
    run(tmp_path / "b")
    assert_same_run(undisturbed, folder)


def test_other_threads_are_refused_unless_asked_for(tmp_path: Path) -> None:
    folder = crash(tmp_path, 50)
    records = read_records(folder)
    with pytest.raises(ResumeError, match=r"threads 1 → 2.*--force-resume"):
        run(tmp_path, threads=2)
    assert read_records(folder) == records
    assert run(tmp_path, threads=2, force_resume=True).status == "done"


def test_other_versions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash(tmp_path)
    monkeypatch.setattr("plench.training.environment.np.__version__", "0.0.0")
    with pytest.raises(ResumeError, match=r"numpy .* → 0\.0\.0"):
        run(tmp_path)


class StopAt(NoCallback):
    """Sends this process a signal when the record of a step has been written."""

    def __init__(self, step: int, number: signal.Signals) -> None:
        self.step = step
        self.number = number

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Send the signal."""
        if record["step"] == self.step:
            signal.raise_signal(self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_saves_and_says_how_to_go_on(
    number: signal.Signals, undisturbed: Path, tmp_path: Path
) -> None:
    handler = signal.getsignal(number)
    outcome = run(tmp_path / "b", callback=StopAt(20, number))
    assert signal.getsignal(number) is handler
    assert outcome.status == "interrupted"
    assert outcome.message == "the same command resumes it"
    assert outcome.updates_made == 21
    assert read_description(outcome.folder)["status"] == "interrupted"
    again = run(tmp_path / "b")
    assert again.updates_made == STEPS - 21
    assert_same_run(undisturbed, again.folder)


def test_a_stop_at_the_last_update_comes_too_late(undisturbed: Path, tmp_path: Path) -> None:
    outcome = run(tmp_path / "b", callback=StopAt(STEPS - 1, signal.SIGINT))
    assert outcome.status == "done"
    assert_same_run(undisturbed, outcome.folder)


class StopInEvaluation(StopAt):
    """Sends a signal within the evaluation after a step, between two of its batches."""

    evaluations = 0

    def evaluating(self, done: int, total: int) -> None:
        """Send the signal in the middle of the chosen evaluation."""
        assert 0 < done <= total
        if done < total and self.evaluations == self.step:
            signal.raise_signal(self.number)

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Count."""
        self.evaluations += 1


@pytest.mark.parametrize("evaluation", [0, 2, 6])
def test_a_stop_is_heard_between_the_batches_of_an_evaluation(
    evaluation: int, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plench.training.evaluate.CHUNK", 25)
    outcome = run(tmp_path / "b", callback=StopInEvaluation(evaluation, signal.SIGINT))
    assert outcome.status == "interrupted"
    assert len(read_records(outcome.folder)) == evaluation
    monkeypatch.undo()
    again = run(tmp_path / "b")
    assert again.updates_made + outcome.updates_made == STEPS
    assert_same_run(undisturbed, again.folder)


def test_a_stop_is_acknowledged_at_once(tmp_path: Path) -> None:
    heard: list[str] = []

    class Acknowledging(StopAt):
        def evaluated(self, record: Mapping[str, Any]) -> None:
            super().evaluated(record)
            heard.append(f"record {record['step']}")

        def stopping(self) -> None:
            heard.append("stopping")

    run(tmp_path, callback=Acknowledging(10, signal.SIGTERM))
    assert heard == ["record 0", "stopping", "record 10"]


def test_two_processes_cannot_work_on_one_run(tmp_path: Path) -> None:
    folder = crash(tmp_path)
    before = (folder / "results.jsonl").read_bytes()
    with RunStore(folder).locked(), pytest.raises(BusyError, match="another process is working on"):
        run(tmp_path)
    assert (folder / "results.jsonl").read_bytes() == before
    assert run(tmp_path).status == "done"


def test_each_record_is_on_disk_when_it_is_told(tmp_path: Path) -> None:
    told: list[int] = []

    class Reading(NoCallback):
        def evaluated(self, record: Mapping[str, Any]) -> None:
            lines = (only_folder(tmp_path) / "results.jsonl").read_text(encoding="utf-8").splitlines()
            assert json.loads(lines[-1])["step"] == record["step"]
            told.append(len(lines))

    run(tmp_path, callback=Reading())
    assert told == [1, 2, 3, 4, 5, 6, 7]
