"""Runs trained as one: each with its own folder, records, checkpoint and end, killed or not."""

import logging
import math
import signal
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from plench.algorithms import find_algorithm
from plench.algorithms.cc import CC
from plench.errors import BusyError, DataError, PlenchError, StorageError, UsageError
from plench.runs.folder import CHECKPOINT, PREVIOUS_CHECKPOINT, RunStore
from plench.training import RunConfig, RunOutcome, prepare_data, run_training
from plench.training.checkpoint import parse, read_checkpoints
from plench.training.loop import Member, RunTask, StopRequest, train_runs
from plench.training.run import NoCallback
from plench.training.stack import StackedRuns
from tests.training.harness import (
    Crash,
    CrashAt,
    Started,
    describe,
    load_digits,
    read_description,
    read_model,
    read_records,
)

DATASET = load_digits()


def configs(spec: str = "PRODEN", count: int = 3, **changes: Any) -> list[RunConfig]:
    """Return configurations that differ in learning rate, split and seed; the first two share a split."""
    given = {"device": "cpu", "save_steps": 7, **changes}
    return [
        describe(
            spec, DATASET, seed=run, trial_seed=max(run - 1, 0), hparams={"lr": 10.0 ** (-2 - run)}, **given
        )
        for run in range(count)
    ]


def train(
    folder: Path, runs: Sequence[RunConfig], callbacks: Sequence[NoCallback] = (), patience: float = 0.0
) -> list[Any]:
    """Carry out runs as one; return how each ended, in their order."""
    ended: dict[int, Any] = {}
    tasks = [
        RunTask(
            config,
            find_algorithm(config.algorithm),
            store_of(folder, config),
            callbacks[number] if callbacks else NoCallback(),
            lambda config=config: prepare_data(DATASET, config, torch.device("cpu")),
            lambda outcome, number=number: ended.update({number: outcome}),
        )
        for number, config in enumerate(runs)
    ]
    train_runs(tasks, DATASET, patience=patience)
    return [ended[number] for number in range(len(runs))]


def store_of(folder: Path, config: RunConfig) -> RunStore:
    return RunStore(folder / config.folder_name(DATASET.fingerprint))


def statuses(outcomes: Sequence[Any]) -> list[str]:
    return [outcome.status if isinstance(outcome, RunOutcome) else repr(outcome) for outcome in outcomes]


def without_size(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "fleet_size"} for record in records]


def assert_close(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert [record["step"] for record in one] == [record["step"] for record in other]
    for first, second in zip(one, other, strict=True):
        assert first.keys() == second.keys()
        assert first["loss"] == pytest.approx(second["loss"], rel=1e-3)
        assert first["test_acc"] == pytest.approx(second["test_acc"], abs=0.01)
        assert first["hparams"] == second["hparams"]


@pytest.mark.parametrize("name", ["PRODEN", "FREDIS", "RECORDS", "IDGP"])
def test_runs_trained_as_one_are_the_runs_alone(name: str, tmp_path: Path) -> None:
    runs = configs(name)
    outcomes = train(tmp_path / "fleet", runs)
    assert statuses(outcomes) == ["done"] * 3
    assert [outcome.updates_made for outcome in outcomes] == [60] * 3
    for config in runs:
        alone = run_training(config, DATASET, find_algorithm(name), tmp_path / "alone")
        folder = store_of(tmp_path / "fleet", config).folder
        records = read_records(folder)
        assert {record["fleet_size"] for record in records} == {3}
        assert_close(without_size(records), read_records(alone.folder))
        told, expected = read_description(folder), read_description(alone.folder)
        assert told.pop("fleet_size") == 3
        assert told.keys() == expected.keys()
        assert all(told[key] == expected[key] for key in ("run_id", "config", "state", "updates", "dataset"))
        assert (folder / "done").exists()
        assert not (folder / CHECKPOINT).exists()
        model, of_alone = read_model(folder), read_model(alone.folder)
        assert model.keys() == of_alone.keys()
        for place, value in of_alone.items():
            if isinstance(value, torch.Tensor):
                assert model[place].shape == value.shape
                assert model[place].untyped_storage().nbytes() == value.untyped_storage().nbytes()


def same(one: Path, other: Path, runs: Sequence[RunConfig]) -> None:
    """Every record and every number of the last models is the same."""
    for config in runs:
        folders = [store_of(folder, config).folder for folder in (one, other)]
        assert read_records(folders[0]) == read_records(folders[1])
        models = [read_model(folder) for folder in folders]
        for place, value in models[0].items():
            same_value = torch.equal(value, models[1][place]) if isinstance(value, torch.Tensor) else True
            assert same_value, place


@pytest.mark.parametrize("name", ["POP", "RECORDS", "PC"])
def test_a_killed_fleet_continues_with_the_same_bits(name: str, tmp_path: Path) -> None:
    """Killed after a record of one member, with the checkpoints of some of them a round behind."""
    runs = configs(name)
    train(tmp_path / "whole", runs)
    with pytest.raises(Crash):
        train(tmp_path / "killed", runs, [NoCallback(), CrashAt(20), NoCallback()])
    behind = store_of(tmp_path / "killed", runs[2]).folder
    (behind / PREVIOUS_CHECKPOINT).replace(behind / CHECKPOINT)
    newest = [parse((store_of(tmp_path / "killed", run).folder / CHECKPOINT).read_bytes()) for run in runs]
    assert [checkpoint["updates"] for checkpoint in newest] == [14, 14, 7]
    started = [Started(), Started(), Started()]
    assert statuses(train(tmp_path / "killed", runs, started)) == ["done"] * 3
    assert [each.updates for each in started] == [7, 7, 7], "all go back to what all have"
    same(tmp_path / "whole", tmp_path / "killed", runs)


class Kept(dict[str, Any]):
    """A checkpoint that can be referred to weakly."""


def test_checkpoints_of_members_are_not_held_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a fleet take more memory than the fleet."""
    runs = configs()
    with pytest.raises(Crash):
        train(tmp_path, runs, [NoCallback(), CrashAt(20), NoCallback()])
    read: list[weakref.ref[Kept]] = []
    held: list[int] = []
    begin = Member.start

    def read_and_remember(store: RunStore) -> Iterator[Kept]:
        for checkpoint in read_checkpoints(store):
            kept = Kept(checkpoint)
            read.append(weakref.ref(kept))
            yield kept
            del kept

    def look_and_begin(self: Member, updates: int) -> None:
        held.append(sum(reference() is not None for reference in read))
        begin(self, updates)

    monkeypatch.setattr("plench.training.loop.read_checkpoints", read_and_remember)
    monkeypatch.setattr(Member, "start", look_and_begin)
    started = [Started(), Started(), Started()]
    assert statuses(train(tmp_path, runs, started)) == ["done"] * 3
    assert [each.updates for each in started] == [14] * 3
    assert held == [0, 0, 0]


def test_a_member_whose_checkpoint_has_gone_is_carried_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = configs()
    with pytest.raises(Crash):
        train(tmp_path, runs, [NoCallback(), CrashAt(20), NoCallback()])
    begin = Member.start

    def lose_and_begin(self: Member, updates: int) -> None:
        if self.run.config is runs[1]:
            (self.run.store.folder / CHECKPOINT).unlink(missing_ok=True)
        begin(self, updates)

    monkeypatch.setattr(Member, "start", lose_and_begin)
    started = [Started(), Started(), Started()]
    assert statuses(train(tmp_path, runs, started)) == ["done"] * 3
    assert [each.updates for each in started] == [14, 7, 14]
    (notice,) = read_description(store_of(tmp_path, runs[1]).folder)["notices"]
    assert "its checkpoint after 14 updates can no longer be read" in notice


def test_a_kill_within_the_first_checkpoints_begins_anew(tmp_path: Path) -> None:
    runs = configs()
    train(tmp_path / "whole", runs)
    with pytest.raises(Crash):
        train(tmp_path / "killed", runs, [NoCallback(), CrashAt(10), NoCallback()])
    (store_of(tmp_path / "killed", runs[2]).folder / CHECKPOINT).unlink()
    started = [Started(), Started(), Started()]
    train(tmp_path / "killed", runs, started)
    assert [each.updates for each in started] == [0, 0, 0]
    same(tmp_path / "whole", tmp_path / "killed", runs)


def test_members_regrouped_go_on_from_where_each_is(tmp_path: Path) -> None:
    runs = configs(count=4)
    with pytest.raises(Crash):
        train(tmp_path, runs[:2], [CrashAt(20), NoCallback()])
    started = [Started() for _ in runs]
    assert statuses(train(tmp_path, runs, started)) == ["done"] * 4
    assert [each.updates for each in started] == [14, 14, 0, 0]
    for config in runs:
        alone = run_training(config, DATASET, find_algorithm("PRODEN"), tmp_path / "alone")
        records = without_size(read_records(store_of(tmp_path, config).folder))
        assert_close(records, read_records(alone.folder))


class StopAt(NoCallback):
    """Asks for a stop when the record of a step has been written."""

    def __init__(self, step: int) -> None:
        self.step = step

    def evaluated(self, record: Any) -> None:
        """Ask."""
        if record["step"] == self.step:
            signal.raise_signal(signal.SIGTERM)


def test_an_interrupted_fleet_saves_and_continues(tmp_path: Path) -> None:
    runs = configs()
    train(tmp_path / "whole", runs)
    outcomes = train(tmp_path / "stopped", runs, [StopAt(30), NoCallback(), NoCallback()])
    assert statuses(outcomes) == ["interrupted"] * 3
    assert read_description(outcomes[0].folder)["status"] == "interrupted"
    assert read_description(outcomes[0].folder)["updates"] == 31
    assert statuses(train(tmp_path / "stopped", runs)) == ["done"] * 3
    same(tmp_path / "whole", tmp_path / "stopped", runs)


def test_finished_busy_and_diverging_members_leave_the_others_as_they_are(tmp_path: Path) -> None:
    runs = configs("CC", count=6)
    wild = describe("CC", DATASET, device="cpu", save_steps=7, seed=9, trial_seed=0, hparams={"lr": 1e18})
    runs.append(wild)
    run_training(runs[0], DATASET, find_algorithm("CC"), tmp_path)
    finished = read_records(store_of(tmp_path, runs[0]).folder)
    with store_of(tmp_path, runs[1]).locked():
        outcomes = train(tmp_path, runs)
    assert outcomes[0].message == "already finished"
    assert isinstance(outcomes[1], BusyError)
    assert statuses(outcomes[2:]) == ["done"] * 4 + ["diverged"]
    assert read_records(store_of(tmp_path, runs[0]).folder) == finished
    assert read_description(store_of(tmp_path, wild).folder)["status"] == "diverged"
    for config in runs[2:6]:
        alone = run_training(config, DATASET, find_algorithm("CC"), tmp_path / "alone")
        records = read_records(store_of(tmp_path, config).folder)
        assert {record["fleet_size"] for record in records} <= {4, 5}
        assert_close(without_size(records), read_records(alone.folder))


@pytest.fixture
def fragile_stacks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Exception]:
    """Stacks of CC stop at step 25, with an error of the type that a test names."""
    plain = CC.loss
    error: type[Exception] = getattr(request, "param", RuntimeError)

    def fragile(self: Any, logits: Any, batch: Any) -> Any:
        if isinstance(self, StackedRuns) and self.steps_done == 25:
            raise error("a shape that stacks do not have")
        return plain(self, logits, batch)

    monkeypatch.setattr(CC, "loss", fragile)
    return error


@pytest.mark.parametrize("fragile_stacks", [RuntimeError, UsageError, DataError], indirect=True)
def test_if_stacked_code_raises_the_members_continue_alone_from_their_checkpoints(
    fragile_stacks: type[Exception], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = configs("CC")
    started = [Started(), Started(), Started()]
    assert statuses(train(tmp_path, runs, started)) == ["done"] * 3
    assert [each.updates for each in started] == [21] * 3
    for config in runs:
        records = read_records(store_of(tmp_path, config).folder)
        assert [record.get("fleet_size", 1) for record in records] == [3, 3, 3, 1, 1, 1, 1]
        assert all(math.isfinite(record["loss"]) for record in records)
        (notice,) = read_description(store_of(tmp_path, config).folder)["notices"]
        assert f"{fragile_stacks.__name__}: a shape that stacks do not have" in notice
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.WARNING)


@pytest.mark.parametrize("fragile_stacks", [StorageError, BusyError], indirect=True)
def test_an_error_of_the_whole_process_ends_all_members(
    fragile_stacks: type[Exception], tmp_path: Path
) -> None:
    outcomes = train(tmp_path, configs("CC"))
    assert [type(outcome) for outcome in outcomes] == [fragile_stacks] * 3


@pytest.mark.usefixtures("fragile_stacks")
def test_a_stop_is_kept_where_members_have_gone_on_alone(tmp_path: Path) -> None:
    runs = configs("CC")
    outcomes = train(tmp_path, runs, [StopAt(40), NoCallback(), NoCallback()])
    assert statuses(outcomes) == ["interrupted"] * 3
    told = [read_description(store_of(tmp_path, run).folder)["updates"] for run in runs]
    assert told[0] == 41
    assert max(told[1:]) < 40, "they were not carried out after the stop"
    assert statuses(train(tmp_path, runs)) == ["done"] * 3


def test_a_stop_is_passed_on_to_requests_around_and_within() -> None:
    with StopRequest() as outer:
        with StopRequest(), StopRequest() as inner:
            signal.raise_signal(signal.SIGTERM)
            assert inner.asked
        assert outer.asked
        with StopRequest() as later:
            assert later.asked
    assert not StopRequest().asked


def test_a_member_that_cannot_be_begun_with_others_is_carried_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = configs("CC")
    plain, calls = CC.setup, []

    def greedy(self: Any, candidates: Any) -> None:
        calls.append(self.hparams["lr"])
        if calls.count(runs[1].hparams["lr"]) == 1 and calls[-1] == runs[1].hparams["lr"]:
            raise MemoryError("no room beside the others")
        plain(self, candidates)

    monkeypatch.setattr(CC, "setup", greedy)
    assert statuses(train(tmp_path, runs)) == ["done"] * 3
    sizes = [read_records(store_of(tmp_path, run).folder)[0].get("fleet_size", 1) for run in runs]
    assert sizes == [2, 1, 2]
    (notice,) = read_description(store_of(tmp_path, runs[1]).folder)["notices"]
    assert "MemoryError: no room beside the others" in notice


def test_whatever_ends_the_opening_of_members_frees_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = configs("CC")

    opened: list[Member] = []
    plain = Member.__init__

    def crash(self: Member, *given: Any) -> None:
        if opened:
            raise Crash
        opened.append(self)
        plain(self, *given)

    monkeypatch.setattr(Member, "__init__", crash)
    with pytest.raises(Crash):
        train(tmp_path, runs)
    for run in runs[:2]:
        with store_of(tmp_path, run).locked():
            assert opened


@pytest.mark.parametrize("error", [ValueError, UsageError, PlenchError])
def test_a_member_whose_record_cannot_be_made_fails_by_itself(error: type[Exception], tmp_path: Path) -> None:
    class Failing(NoCallback):
        def evaluated(self, record: Any) -> None:
            if record["step"] == 20:
                raise error("no such thing")

    runs = configs()
    outcomes = train(tmp_path, runs, [NoCallback(), Failing(), NoCallback()])
    assert statuses(outcomes) == ["done", "failed", "done"]
    assert read_description(outcomes[1].folder)["error"]["message"] == "no such thing"
    assert len(read_records(outcomes[2].folder)) == 7


def test_algorithms_that_cannot_be_stacked_are_trained_one_by_one(tmp_path: Path) -> None:
    runs = configs("PaPi", count=2, steps=12)
    assert statuses(train(tmp_path, runs)) == ["done", "done"]
    assert "fleet_size" not in read_records(store_of(tmp_path, runs[0]).folder)[0]


def test_a_stop_before_the_first_update_is_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        StopRequest, "asked", property(lambda self: True, lambda self, value: None), raising=False
    )
    assert statuses(train(tmp_path, configs())) == ["interrupted"] * 3
