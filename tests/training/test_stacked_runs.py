"""Stacked runs: each with its own folder, records, checkpoint and end, killed or not."""

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
from plench.callbacks import Callback
from plench.errors import BusyError, DataError, PlenchError, StorageError, UsageError
from plench.runs.folder import CHECKPOINT, PREVIOUS_CHECKPOINT, RunStore
from plench.training import RunConfig, RunOutcome, prepare_data, run_training
from plench.training.checkpoint import parse, read_checkpoints
from plench.training.loop import Member, RunTask, StopRequest, train_runs
from plench.training.stack import StackedRuns
from tests.training.harness import (
    AtStep,
    Crash,
    CrashAt,
    Started,
    assert_same_run,
    describe,
    load_digits,
    read_description,
    read_model,
    read_records,
    stop_at,
)

DATASET = load_digits()


def configs(spec: str = "PRODEN", count: int = 3, model: str = "MLP", **changes: Any) -> list[RunConfig]:
    """Return configurations that differ in learning rate, split and seed; the first two share a split."""
    given = {"device": "cpu", "save_steps": 7, **changes}
    places = [{"seed": run, "trial_seed": max(run - 1, 0)} for run in range(count)]
    return [
        describe(spec, DATASET, **place, hparams={"lr": 10.0 ** (-2 - run), "model": model}, **given)
        for run, place in enumerate(places)
    ]


def train(folder: Path, runs: Sequence[RunConfig], callbacks: Sequence[Callback] = ()) -> list[Any]:
    """Train runs as a stack; return how each ended, in their order."""
    ended: dict[int, Any] = {}
    tasks = [
        RunTask(
            config,
            find_algorithm(config.algorithm),
            store_of(folder, config),
            callbacks[number] if callbacks else Callback(),
            lambda config=config: prepare_data(DATASET, config, torch.device("cpu")),
            lambda outcome, number=number: ended.update({number: outcome}),
        )
        for number, config in enumerate(runs)
    ]
    train_runs(tasks, DATASET)
    return [ended[number] for number in range(len(runs))]


def store_of(folder: Path, config: RunConfig) -> RunStore:
    return RunStore(folder / config.folder_name(DATASET.fingerprint))


def statuses(outcomes: Sequence[Any]) -> list[str]:
    return [outcome.status if isinstance(outcome, RunOutcome) else repr(outcome) for outcome in outcomes]


def sizes(folder: Path, config: RunConfig) -> list[int]:
    return [record.get("fleet_size", 1) for record in read_records(store_of(folder, config).folder)]


def crash(folder: Path, runs: Sequence[RunConfig], step: int = 20) -> None:
    """Train until one of the runs has written the record of a step, and crash."""
    with pytest.raises(Crash):
        train(folder, runs, [CrashAt(step), *[Callback()] * (len(runs) - 1)])


def resume(folder: Path, runs: Sequence[RunConfig]) -> list[int]:
    """Train to the end; return after how many updates each run resumed."""
    started = [Started() for _ in runs]
    assert statuses(train(folder, runs, started)) == ["done"] * len(runs)
    return [each.updates for each in started]


def assert_as_single(folder: Path, config: RunConfig) -> RunOutcome:
    """Demand the records of the single run, to rounding."""
    single = run_training(config, DATASET, find_algorithm(config.algorithm), folder / "single")
    stacked, expected = read_records(store_of(folder, config).folder), read_records(single.folder)
    assert [record["step"] for record in stacked] == [record["step"] for record in expected]
    for one, other in zip(stacked, expected, strict=True):
        assert one.keys() - {"fleet_size"} == other.keys()
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
        assert one["test_acc"] == pytest.approx(other["test_acc"], abs=0.01)
        assert one["hparams"] == other["hparams"]
    return single


def assert_same(one: Path, other: Path, runs: Sequence[RunConfig]) -> None:
    for config in runs:
        assert_same_run(store_of(one, config).folder, store_of(other, config).folder)


@pytest.mark.parametrize(
    ("name", "model"),
    [*((name, "MLP") for name in ("PRODEN", "FREDIS", "RECORDS", "IDGP", "CEL")), ("PRODEN", "MLP_BN")],
)
def test_stacked_runs_are_the_single_runs(name: str, model: str, tmp_path: Path) -> None:
    runs = configs(name, model=model)
    outcomes = train(tmp_path, runs)
    assert statuses(outcomes) == ["done"] * 3
    assert [outcome.updates_made for outcome in outcomes] == [60] * 3
    for config in runs:
        single = assert_as_single(tmp_path, config)
        folder = store_of(tmp_path, config).folder
        assert set(sizes(tmp_path, config)) == {3}
        told, expected = read_description(folder), read_description(single.folder)
        assert told.pop("fleet_size") == 3
        assert len(told.pop("stack")) == 3
        assert told.keys() == expected.keys()
        assert all(told[key] == expected[key] for key in ("run_id", "config", "state", "updates", "dataset"))
        assert (folder / "done").exists()
        assert not (folder / CHECKPOINT).exists()
        stored, of_single = read_model(folder), read_model(single.folder)
        assert stored.keys() == of_single.keys()
        for place, value in of_single.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(stored[place], value, rtol=0.01, atol=1e-3)
                assert stored[place].untyped_storage().nbytes() == value.untyped_storage().nbytes()


@pytest.mark.parametrize(
    ("name", "model"),
    [*((name, "MLP") for name in ("POP", "RECORDS", "PC", "CEL")), ("POP", "MLP_BN"), ("RECORDS", "MLP_BN")],
)
def test_a_killed_stack_resumes_with_the_same_bits(name: str, model: str, tmp_path: Path) -> None:
    """Killed after a record of one run, with the checkpoints of some a round behind."""
    runs = configs(name, model=model)
    train(tmp_path / "whole", runs)
    crash(tmp_path / "killed", runs)
    behind = store_of(tmp_path / "killed", runs[2]).folder
    (behind / PREVIOUS_CHECKPOINT).replace(behind / CHECKPOINT)
    newest = [parse((store_of(tmp_path / "killed", run).folder / CHECKPOINT).read_bytes()) for run in runs]
    assert [checkpoint["updates"] for checkpoint in newest] == [14, 14, 7]
    assert resume(tmp_path / "killed", runs) == [7, 7, 7], "all go back to what all have"
    assert_same(tmp_path / "whole", tmp_path / "killed", runs)


def test_a_kill_within_the_first_checkpoints_starts_over(tmp_path: Path) -> None:
    runs = configs()
    train(tmp_path / "whole", runs)
    crash(tmp_path / "killed", runs, 10)
    (store_of(tmp_path / "killed", runs[2]).folder / CHECKPOINT).unlink()
    assert resume(tmp_path / "killed", runs) == [0, 0, 0]
    assert_same(tmp_path / "whole", tmp_path / "killed", runs)


def test_regrouped_runs_resume_from_where_each_is(tmp_path: Path) -> None:
    runs = configs(count=4)
    crash(tmp_path, runs[:2])
    assert resume(tmp_path, runs) == [14, 14, 0, 0]
    for config in runs:
        assert_as_single(tmp_path, config)


class Kept(dict[str, Any]):
    """A checkpoint that can be referred to weakly."""


def test_checkpoints_of_stacked_runs_are_not_in_memory_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = configs()
    crash(tmp_path, runs)
    read: list[weakref.ref[Kept]] = []
    held: list[int] = []
    start = Member.start

    def read_weakly(store: RunStore) -> Iterator[Kept]:
        for checkpoint in read_checkpoints(store):
            kept = Kept(checkpoint)
            read.append(weakref.ref(kept))
            yield kept
            del kept

    def count_and_start(self: Member, updates: int) -> None:
        held.append(sum(reference() is not None for reference in read))
        start(self, updates)

    monkeypatch.setattr("plench.training.loop.read_checkpoints", read_weakly)
    monkeypatch.setattr(Member, "start", count_and_start)
    assert resume(tmp_path, runs) == [14] * 3
    assert held == [0, 0, 0]


def test_a_run_whose_checkpoint_disappears_is_trained_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = configs()
    crash(tmp_path, runs)
    start = Member.start

    def lose_and_start(self: Member, updates: int) -> None:
        if self.run.config is runs[1]:
            (self.run.store.folder / CHECKPOINT).unlink(missing_ok=True)
        start(self, updates)

    monkeypatch.setattr(Member, "start", lose_and_start)
    assert resume(tmp_path, runs) == [14, 7, 14]
    (warning,) = read_description(store_of(tmp_path, runs[1]).folder)["notices"]
    assert "its checkpoint after 14 updates can no longer be read" in warning


def test_an_interrupted_stack_saves_and_resumes(tmp_path: Path) -> None:
    runs = configs()
    train(tmp_path / "whole", runs)
    outcomes = train(tmp_path / "stopped", runs, [stop_at(30), Callback(), Callback()])
    assert statuses(outcomes) == ["interrupted"] * 3
    told = read_description(outcomes[0].folder)
    assert (told["status"], told["updates"]) == ("interrupted", 31)
    assert resume(tmp_path / "stopped", runs) == [31] * 3
    assert_same(tmp_path / "whole", tmp_path / "stopped", runs)


def test_finished_busy_and_diverging_runs_do_not_disturb_the_others(tmp_path: Path) -> None:
    runs = configs("CC", count=6)
    runs.append(
        describe("CC", DATASET, device="cpu", save_steps=7, seed=9, trial_seed=0, hparams={"lr": 1e18})
    )
    run_training(runs[0], DATASET, find_algorithm("CC"), tmp_path)
    finished = read_records(store_of(tmp_path, runs[0]).folder)
    with store_of(tmp_path, runs[1]).locked():
        outcomes = train(tmp_path, runs)
    assert outcomes[0].message == "already finished"
    assert isinstance(outcomes[1], BusyError)
    assert statuses(outcomes[2:]) == ["done"] * 4 + ["diverged"]
    assert read_records(store_of(tmp_path, runs[0]).folder) == finished
    assert read_description(store_of(tmp_path, runs[6]).folder)["status"] == "diverged"
    for config in runs[2:6]:
        assert set(sizes(tmp_path, config)) <= {4, 5}
        assert_as_single(tmp_path, config)


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


@pytest.mark.parametrize("fragile_stacks", [RuntimeError, UsageError, DataError, SystemExit], indirect=True)
def test_if_stacked_code_raises_the_runs_resume_separately(
    fragile_stacks: type[Exception], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = configs("CC")
    assert resume(tmp_path, runs) == [21] * 3
    for config in runs:
        assert sizes(tmp_path, config) == [3, 3, 3, 1, 1, 1, 1]
        folder = store_of(tmp_path, config).folder
        assert all(math.isfinite(record["loss"]) for record in read_records(folder))
        (warning,) = read_description(folder)["notices"]
        assert f"{fragile_stacks.__name__}: a shape that stacks do not have" in warning
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.WARNING)


@pytest.mark.parametrize("fragile_stacks", [StorageError, BusyError], indirect=True)
def test_an_error_of_the_whole_process_ends_all_runs(fragile_stacks: type[Exception], tmp_path: Path) -> None:
    outcomes = train(tmp_path, configs("CC"))
    assert [type(outcome) for outcome in outcomes] == [fragile_stacks] * 3


@pytest.mark.usefixtures("fragile_stacks")
def test_a_stop_holds_for_runs_that_wait_to_be_trained_separately(tmp_path: Path) -> None:
    runs = configs("CC")
    outcomes = train(tmp_path, runs, [stop_at(40), Callback(), Callback()])
    assert statuses(outcomes) == ["interrupted"] * 3
    told = [read_description(store_of(tmp_path, run).folder)["updates"] for run in runs]
    assert told[0] == 41
    assert max(told[1:]) < 40, "they were not trained after the stop"
    assert statuses(train(tmp_path, runs)) == ["done"] * 3


def test_stop_requests_can_be_nested() -> None:
    with StopRequest() as outer:
        with StopRequest(), StopRequest() as inner:
            signal.raise_signal(signal.SIGTERM)
            assert inner.asked
        assert outer.asked
        with StopRequest() as later:
            assert later.asked
    assert not StopRequest().asked


def test_a_run_that_cannot_be_built_in_a_stack_is_trained_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = configs("CC")
    plain, calls = CC.setup, []

    def greedy(self: Any, candidates: Any) -> None:
        calls.append(self.hparams["lr"])
        if calls[-1] == runs[1].hparams["lr"] and calls.count(calls[-1]) == 1:
            raise MemoryError("not enough room")
        plain(self, candidates)

    monkeypatch.setattr(CC, "setup", greedy)
    assert statuses(train(tmp_path, runs)) == ["done"] * 3
    assert [sizes(tmp_path, run)[0] for run in runs] == [2, 1, 2]
    (warning,) = read_description(store_of(tmp_path, runs[1]).folder)["notices"]
    assert "MemoryError: not enough room" in warning


def test_whatever_ends_the_opening_of_runs_unlocks_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = configs("CC")
    opened: list[Member] = []
    plain = Member.__init__

    def crash_second(self: Member, *given: Any) -> None:
        if opened:
            raise Crash
        opened.append(self)
        plain(self, *given)

    monkeypatch.setattr(Member, "__init__", crash_second)
    with pytest.raises(Crash):
        train(tmp_path, runs)
    for run in runs[:2]:
        with store_of(tmp_path, run).locked():
            assert opened


@pytest.mark.parametrize("error", [ValueError, UsageError, PlenchError])
def test_a_run_whose_record_cannot_be_made_fails_by_itself(error: type[Exception], tmp_path: Path) -> None:
    def fail() -> None:
        raise error("no such thing")

    outcomes = train(tmp_path, configs(), [Callback(), AtStep(20, fail), Callback()])
    assert statuses(outcomes) == ["done", "failed", "done"]
    assert read_description(outcomes[1].folder)["error"]["message"] == "no such thing"
    assert len(read_records(outcomes[2].folder)) == 7


def test_algorithms_that_cannot_be_stacked_are_trained_one_by_one(tmp_path: Path) -> None:
    runs = configs("PaPi", count=2, steps=12)
    assert statuses(train(tmp_path, runs)) == ["done", "done"]
    assert sizes(tmp_path, runs[0]) == [1, 1, 1]


def test_a_stop_before_the_first_update_is_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(StopRequest, "asked", asked, raising=False)
    assert statuses(train(tmp_path, configs())) == ["interrupted"] * 3
