"""Which runs of a sweep are trained as one, and what an engine makes of them."""

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import plench
from plench.algorithms import algorithms
from plench.data import Dataset
from plench.data.tables import Column, Table
from plench.errors import UsageError
from plench.runs.folder import RunStore
from plench.runs.sweep_spec import SweepSpec
from plench.sweeps.engines.base import (
    Assignment,
    DeathTolls,
    Engine,
    Limits,
    NoSweepCallback,
    RunAttempt,
    Task,
)
from plench.sweeps.engines.local import LocalEngine, Pool
from plench.sweeps.engines.process import WorkerProcess
from plench.sweeps.engines.ray import RayEngine
from plench.sweeps.engines.slurm import SlurmEngine
from plench.sweeps.fleets import LARGEST, FleetOptions, count_inputs, estimate_gb, form_fleets, read_fleet
from plench.sweeps.launch import plan_fleets, tidy
from plench.sweeps.perform import Performer
from plench.sweeps.plan import DataShelf, PlannedRun, expand, settle
from plench.sweeps.run_states import RunState
from plench.sweeps.suites import make_grids
from plench.training.callbacks import NoCallback
from tests.training.harness import read_records

SHELF = DataShelf(None)
ON_CPU = FleetOptions(any_device=True)


def plan(*algorithms: str, n_hparams: int = 20, n_trials: int = 3, **changes: object) -> list[PlannedRun]:
    grids = make_grids(algorithms, ["Digits_USS"], n_hparams=n_hparams, n_trials=n_trials, **changes)
    return expand(settle(SweepSpec(grids), SHELF))


def test_fleets_share_all_but_split_configuration_and_seed() -> None:
    runs = plan("CC", "PRODEN", "PaPi", "RECORDS")
    fleets = form_fleets(runs, SHELF, ON_CPU)
    assert sorted(run.folder for fleet in fleets for run in fleet) == sorted(run.folder for run in runs)
    for fleet in fleets:
        assert len(fleet) <= LARGEST
        assert len({(run.algorithm, run.config.hparams["batch_size"]) for run in fleet}) == 1
        assert len({run.config.hparams.get("base") for run in fleet}) == 1
        assert fleet[0].algorithm != "PaPi" or len(fleet) == 1, "its card says that it runs alone"
    sizes = [len(fleet) for fleet in fleets if fleet[0].algorithm == "CC"]
    assert max(sizes) > 5
    assert sum(sizes) == 60
    assert fleets == form_fleets(runs, SHELF, ON_CPU)


def spans_splits(fleets: Sequence[Task]) -> bool:
    return any(len({run.config.trial_seed for run in fleet}) > 1 for fleet in fleets)


def test_where_splits_differ_in_size_a_fleet_is_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a stack of them is refused, and each run is trained alone."""
    given = {"n_hparams": 2, "n_trials": 2, "steps": 20, "checkpoint_freq": 10, "device": "cpu"}
    runs = plan("CC", hparams={"batch_size": 64}, **given)
    assert spans_splits(form_fleets(runs, SHELF, ON_CPU))
    long_tailed = plan("CC", hparams={"batch_size": 64}, imbalance=10.0, **given)
    dataset = SHELF.get("Digits_USS")
    grouped = replace(dataset, groups=np.random.default_rng(0).integers(200, size=dataset.n_examples))
    for planned, data in ((long_tailed, dataset), (runs, grouped)):
        shelf = DataShelf(None)
        monkeypatch.setattr(shelf, "get", lambda name, data=data: data)
        fleets = form_fleets(planned, shelf, ON_CPU)
        assert [len(fleet) for fleet in fleets] == [2, 2]
        assert not spans_splits(fleets)
        for fleet in fleets:
            stores = [RunStore(tmp_path / data.fingerprint / run.folder) for run in fleet]
            Performer().perform_fleet(fleet, data, stores, [NoCallback()] * 2, lambda run, attempt: None)
            assert {record["fleet_size"] for store in stores for record in read_records(store.folder)} == {2}


def test_features_that_workers_leave_in_their_file_form_no_fleets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plench.training.inputs.LEAST_SHARED_BYTES", 1)
    assert all(len(fleet) == 1 for fleet in form_fleets(plan("CC"), SHELF, ON_CPU))


def test_options_bound_fleets() -> None:
    runs = plan("CC")
    dataset = SHELF.get("Digits_USS")
    assert all(len(fleet) == 1 for fleet in form_fleets(runs, SHELF, read_fleet("off")))
    assert max(len(fleet) for fleet in form_fleets(runs, SHELF, read_fleet(4))) == 4
    whole = form_fleets(runs, SHELF, ON_CPU)
    inputs = count_inputs(dataset)
    bound = max(estimate_gb(fleet, dataset, inputs) for fleet in whole) / 2
    tight = form_fleets(runs, SHELF, FleetOptions(memory_gb=bound, any_device=True))
    assert all(len(fleet) == 1 or estimate_gb(fleet, dataset, inputs) <= bound for fleet in tight)
    assert len(tight) > len(whole)
    assert max(map(len, form_fleets(runs[:8], SHELF, ON_CPU, slots=8))) == 1, "no worker stays idle"
    for arithmetic in ({"precision": "bf16"}, {"compile": True}):
        assert all(len(fleet) == 1 for fleet in form_fleets(plan("CC", **arithmetic), SHELF, ON_CPU))


def test_inputs_of_a_dataset_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is encoded for that, which takes seconds for a large one."""
    counted: list[Dataset] = []

    def count(dataset: Dataset) -> int:
        counted.append(dataset)
        return count_inputs(dataset)

    monkeypatch.setattr("plench.sweeps.fleets.count_inputs", count)
    assert len(form_fleets(plan("CC", "PRODEN", n_hparams=6), SHELF, ON_CPU)) > 2
    assert counted == [SHELF.get("Digits_USS")]


@pytest.mark.parametrize("word", ["0", "-3", "some", "1.5", ""])
def test_what_no_fleet_is(word: str) -> None:
    with pytest.raises(UsageError, match=f"fleet must be off, auto or a number of runs, not '{word}'"):
        read_fleet(word)
    with pytest.raises(UsageError, match="fleet_memory_gb must be above 0"):
        read_fleet("auto", 0)


def test_fleets_are_bounded_from_python_as_by_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[FleetOptions] = []
    monkeypatch.setattr("plench.sweeps.launch_sweep", lambda *given, fleet, **others: told.append(fleet))
    for more in ({}, {"fleet": 4, "fleet_memory_gb": 0.5}):
        plench.sweep("CC", "Digits_USS", progress=False, **more)
    assert told == [read_fleet("auto"), read_fleet(4, 0.5)]
    assert told[1].memory_gb == 0.5


def test_tasks_are_fleets_without_what_is_finished(tmp_path: Path) -> None:
    """Which of a sweep's runs are finished changes no fleet but for its own members."""
    runs = plan("CC")
    fleets = form_fleets(runs, SHELF, ON_CPU)
    gone = {run.folder for run in runs[:7]}
    todo = [run for run in runs if run.folder not in gone]
    tasks = Assignment(todo, 7, tmp_path, SHELF, Limits(), fleets=fleets).tasks()
    expected = [tuple(run for run in fleet if run.folder not in gone) for fleet in fleets]
    assert tasks == [fleet for fleet in expected if fleet]
    assert Assignment(todo, 7, tmp_path, SHELF, Limits()).tasks() == [(run,) for run in todo]


@pytest.mark.real
def test_a_sweep_of_fleets_is_the_sweep_of_its_runs(tmp_path: Path) -> None:
    given = {"n_hparams": 3, "n_trials": 2, "steps": 60, "checkpoint_freq": 20, "device": "cpu"}
    hparams = {"batch_size": 64}
    for fleet in ("auto", "off"):
        outcome = plench.sweep(
            ["CC", "POP"],
            "Digits_USS",
            tmp_path / fleet,
            workers=1,
            fleet=fleet,
            hparams=hparams,
            progress=False,
            **given,
        )
        assert outcome.exit_code == 0
        assert {entry.state for entry in outcome.states} == {"done"}
    folders = sorted(path.name for path in (tmp_path / "off").iterdir() if path.is_dir())
    assert len(folders) == 12
    for name in folders:
        together, alone = (read_records(tmp_path / fleet / name) for fleet in ("auto", "off"))
        assert {record.pop("fleet_size") for record in together} == {6}
        assert all("fleet_size" not in record for record in alone)
        for one, other in zip(together, alone, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
            assert one["test_acc"] == pytest.approx(other["test_acc"], abs=0.01)
        told = [json.loads((tmp_path / fleet / name / "run.json").read_text()) for fleet in ("auto", "off")]
        assert told[0].pop("fleet_size") == 6
        assert told[0].keys() == told[1].keys()


def test_a_launch_removes_checkpoints_of_finished_runs(tmp_path: Path) -> None:
    """A kill between the mark of the end and the tidying leaves one; that of a run to be continued stays, and
    so does that of a run with a changed model.
    """
    runs = plan("CC", n_hparams=3, n_trials=1)
    for run in runs:
        store = RunStore(tmp_path / run.folder)
        store.folder.mkdir()
        store.write_run({"status": "done"})
        store.append_record(json.dumps({"step": run.config.steps - 1}))
        store.write_model("last", b"weights")
        store.finish()
        (store.folder / "checkpoint.pt").write_bytes(b"left")
    (tmp_path / runs[2].folder / "model_last.pt").write_bytes(b"changed")
    tidy([RunState(run, "interrupted" if run is runs[1] else "done") for run in runs], tmp_path)
    assert [(tmp_path / run.folder / "checkpoint.pt").exists() for run in runs] == [False, True, True]


def test_no_fleets_are_formed_by_themselves_where_an_engine_gives_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plench.sweeps.fleets.on_cpu", lambda device: True)
    runs = plan("CC")

    def largest(engine: Engine, word: str, planned: list[PlannedRun] = runs) -> int:
        return max(map(len, plan_fleets(planned, SHELF, read_fleet(word), engine)))

    engines: list[Engine] = [RayEngine("auto", gpus_per_run=0.5), SlurmEngine(gpus=1)]
    for engine in engines:
        assert largest(engine, "auto") == 1
        assert largest(engine, "5") == 5
        assert largest(engine, "auto", plan("CC", device="cpu")) > 1
    without: list[Engine] = [RayEngine("auto"), SlurmEngine(), LocalEngine(1)]
    assert all(largest(engine, "auto") > 1 for engine in without)


def test_categories_of_a_table_count_as_inputs() -> None:
    dataset = SHELF.get("Digits_USS")
    rows = len(dataset.candidates)
    names = tuple(f"kind {number}" for number in range(50))
    table = Table(
        (
            Column("age", "number", np.arange(rows, dtype=np.float32)),
            Column("kind", "category", np.arange(rows) % 50, names),
        )
    )
    wide = Dataset(table, dataset.candidates, dataset.labels, dataset.card)
    assert count_inputs(wide) == 51
    assert count_inputs(dataset) == dataset.features.shape[1]
    fleet = plan("CC")[:3]
    assert estimate_gb(fleet, wide, 51) > estimate_gb(fleet, wide, 2)


def test_the_estimate_counts_what_a_method_has() -> None:
    """Bytes of networks that are wide, or of many examples, are in proportion to what they have."""
    dataset = SHELF.get("Digits_USS")
    rows, classes = dataset.candidates.shape
    fleets = {name: plan(name)[:2] for name in ("CC", "IDGP", "FREDIS")}
    before = torch.get_rng_state()
    wide = {name: estimate_gb(fleet, dataset, 10**5) for name, fleet in fleets.items()}
    assert torch.equal(torch.get_rng_state(), before), "a notebook's random numbers stay as they are"
    assert wide["IDGP"] > 1.8 * wide["CC"], "it has two networks"
    copies = (
        2 * 4 + 3 * 4
    )  # of two runs: weights, gradients, two averages; of one: a checkpoint being written
    assert wide["CC"] * 2**30 > copies * 10**5 * 500 * 4
    of_fredis, of_cc = (estimate_gb(fleets[name], dataset, 1) * 2**30 for name in ("FREDIS", "CC"))
    assert of_fredis - of_cc > 2 * (3 * 9 - 16) * rows * classes, (
        "it keeps two numbers and a flag of each label"
    )


def test_default_fleets_of_ordinary_tables_have_ten_runs() -> None:
    lost = Dataset(
        np.random.default_rng(0).normal(size=(1122, 108)),
        np.ones((1122, 16), dtype=bool),
        None,
        SHELF.get("Digits_USS").card,
    )
    for name in (name for name, entry in algorithms().items() if entry.card.stacked):
        fleet = [replace(run, algorithm=name) for run in plan("CC")[:LARGEST]]
        assert estimate_gb(fleet, lost, 108) < FleetOptions.memory_gb / 5


def test_an_error_of_the_loop_itself_fails_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*given: Any, **settings: Any) -> None:
        raise RuntimeError("no stack")

    monkeypatch.setattr("plench.sweeps.perform.train_runs", give_up)
    runs = tuple(plan("CC", n_hparams=3, n_trials=1, steps=20, checkpoint_freq=10, device="cpu"))
    stores = [RunStore(tmp_path / run.folder) for run in runs]
    ended: dict[str, RunAttempt] = {}
    Performer().perform_fleet(
        runs,
        SHELF.get("Digits_USS"),
        stores,
        [NoCallback()] * 3,
        lambda run, attempt: ended.update({run.folder: attempt}),
    )
    assert [ended[run.folder].message for run in runs] == ["RuntimeError: no stack"] * 3


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """A pool without processes."""
    monkeypatch.setattr(WorkerProcess, "reap", lambda self: "worker process died")
    monkeypatch.setattr(WorkerProcess, "kill", lambda self: None)
    pool = object.__new__(Pool)
    pool.assignment = Assignment([], 0, tmp_path, SHELF, Limits(run_timeout=0.001))
    pool.callback, pool.stopping, pool.waiting = NoSweepCallback(), False, deque()
    pool.tolls = DeathTolls()
    return pool


def add_worker(pool: Pool, task: Task) -> WorkerProcess:
    """Let a worker without a process have a task."""
    worker = object.__new__(WorkerProcess)
    worker.ready, worker.failed, worker.again, worker.taken_at = True, False, [], 0.0
    worker.task, worker.runs = task, {run.folder: run for run in task}
    pool.workers = [worker]
    return worker


@pytest.mark.parametrize("end", ["death", "timeout"])
def test_interrupted_members_of_a_worker_that_ends_wait_again(end: str, pool: Pool) -> None:
    runs = tuple(plan("CC", n_hparams=3, n_trials=1))
    worker = add_worker(pool, runs)
    pool.end(worker, worker.runs.pop(runs[0].folder), RunAttempt("interrupted"))
    pool.end(worker, worker.runs.pop(runs[1].folder), RunAttempt("done"))
    if end == "death":
        pool.bury(worker)
    else:
        pool.check_timeouts()
    assert sorted(run.folder for task in pool.waiting for run in task) == sorted(
        run.folder for run in (runs[0], runs[2])
    )


def test_deaths_of_a_fleet_are_not_those_of_its_first_member(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tuple(plan("CC", n_hparams=3, n_trials=1))
    failed: list[PlannedRun] = []
    monkeypatch.setattr(
        "plench.sweeps.engines.local.fail_run", lambda assignment, run, kind, message: failed.append(run)
    )
    pool.waiting.append(runs)
    died = []
    while pool.waiting and not failed:
        died.append(pool.waiting.popleft())
        pool.bury(add_worker(pool, died[-1]))
    assert died == [runs, runs, *[runs[:1]] * 3], "twice as one, then the first three times by itself"
    assert failed == [runs[0]]
