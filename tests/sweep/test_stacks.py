"""Which runs of a sweep are stacked, and what a sweep of stacks gives."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import plench
from plench.algorithms import algorithms
from plench.callbacks import Callback
from plench.data import Dataset
from plench.data.encoding import count_inputs
from plench.data.tables import Column, Table
from plench.errors import UsageError
from plench.runs.folder import RunStore
from plench.sweeps.engines import Engine
from plench.sweeps.engines.local import LocalEngine
from plench.sweeps.engines.ray import RayEngine
from plench.sweeps.engines.slurm import SlurmEngine
from plench.sweeps.executor import RunExecutor
from plench.sweeps.plan import (
    LARGEST,
    DatasetCache,
    PlannedRun,
    StackOptions,
    Task,
    estimate_gb,
    group_runs,
    read_stack_options,
)
from plench.sweeps.scheduler import Assignment, Limits
from tests.sweep.driving import DATASETS, plan_runs
from tests.training.harness import read_records

ON_CPU = StackOptions(any_device=True)


def with_data(dataset: Dataset, inputs: int | None = None) -> DatasetCache:
    """Return a cache that has other data, perhaps as if they had so many inputs, in place of Digits_USS."""
    datasets = DatasetCache(None)
    datasets._loaded["Digits_USS"] = dataset
    if inputs is not None:
        datasets._widths["Digits_USS"] = inputs
    return datasets


def table_of(categories: int) -> Dataset:
    """Return a table with a number and a column of so many categories."""
    dataset = DATASETS.get("Digits_USS")
    rows = len(dataset.candidates)
    names = tuple(f"kind {number}" for number in range(categories))
    kinds = Column("kind", "category", np.arange(rows) % categories, names)
    table = Table((Column("age", "number", np.arange(rows, dtype=np.float32)), kinds))
    return Dataset(table, dataset.candidates, dataset.labels, dataset.card)


def test_stacked_runs_share_all_but_split_configuration_and_seed() -> None:
    runs = plan_runs("CC", "PRODEN", "PaPi", "RECORDS")
    stacks = group_runs(runs, DATASETS, ON_CPU)
    assert sorted(run.folder for stack in stacks for run in stack) == sorted(run.folder for run in runs)
    for stack in stacks:
        assert len(stack) <= LARGEST
        assert len({(run.algorithm, run.config.hparams["batch_size"]) for run in stack}) == 1
        assert len({run.config.hparams.get("base") for run in stack}) == 1
        assert stack[0].algorithm != "PaPi" or len(stack) == 1, "its card says that it is not stackable"
    sizes = [len(stack) for stack in stacks if stack[0].algorithm == "CC"]
    assert max(sizes) > 5
    assert sum(sizes) == 60
    assert stacks == group_runs(runs, DATASETS, ON_CPU)
    normed = group_runs(plan_runs("CC", hparams={"model": "MLP_BN"}), DATASETS, ON_CPU)
    assert [len(stack) for stack in normed] == sizes


def spans_splits(stacks: Sequence[Task]) -> bool:
    return any(len({run.config.trial_seed for run in stack}) > 1 for stack in stacks)


def test_splits_of_different_sizes_are_not_stacked(tmp_path: Path) -> None:
    given = {"n_hparams": 2, "n_trials": 2, "steps": 20, "checkpoint_freq": 10, "device": "cpu"}
    runs = plan_runs("CC", hparams={"batch_size": 64}, **given)
    assert spans_splits(group_runs(runs, DATASETS, ON_CPU))
    long_tailed = plan_runs("CC", hparams={"batch_size": 64}, imbalance=10.0, **given)
    dataset = DATASETS.get("Digits_USS")
    grouped = replace(dataset, groups=np.random.default_rng(0).integers(200, size=dataset.n_examples))
    for planned, data in ((long_tailed, dataset), (runs, grouped)):
        stacks = group_runs(planned, with_data(data), ON_CPU)
        assert [len(stack) for stack in stacks] == [2, 2]
        assert not spans_splits(stacks)
        for stack in stacks:
            stores = [RunStore(tmp_path / data.fingerprint / run.folder) for run in stack]
            RunExecutor().run_task(stack, data, stores, [Callback()] * 2, lambda run, attempt: None)
            assert {record["fleet_size"] for store in stores for record in read_records(store.folder)} == {2}


def test_features_that_workers_leave_in_their_file_are_not_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plench.training.data.LEAST_SHARED_BYTES", 1)
    assert all(len(stack) == 1 for stack in group_runs(plan_runs("CC"), DATASETS, ON_CPU))


def test_options_limit_stacks() -> None:
    runs = plan_runs("CC")
    assert all(len(stack) == 1 for stack in group_runs(runs, DATASETS, read_stack_options("off")))
    assert max(len(stack) for stack in group_runs(runs, DATASETS, read_stack_options(4))) == 4
    whole = group_runs(runs, DATASETS, ON_CPU)
    bound = max(estimate_gb(stack, DATASETS) for stack in whole) / 2
    tight = group_runs(runs, DATASETS, StackOptions(memory_gb=bound, any_device=True))
    assert all(len(stack) == 1 or estimate_gb(stack, DATASETS) <= bound for stack in tight)
    assert len(tight) > len(whole)
    assert max(map(len, group_runs(runs[:8], DATASETS, ON_CPU, LocalEngine(8)))) == 1, "no worker stays idle"
    for arithmetic in ({"precision": "bf16"}, {"compile": True}):
        assert all(len(stack) == 1 for stack in group_runs(plan_runs("CC", **arithmetic), DATASETS, ON_CPU))


def test_inputs_of_a_dataset_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All columns of a table are scanned for that, which takes seconds for a large one."""
    datasets, counted = with_data(table_of(50)), []
    monkeypatch.setattr(
        "plench.sweeps.plan.count_inputs", lambda table: counted.append(table) or count_inputs(table)
    )
    assert len(group_runs(plan_runs("CC", "PRODEN", n_hparams=6), datasets, ON_CPU)) > 2
    assert counted == [datasets.get("Digits_USS").features]


@pytest.mark.parametrize("word", ["0", "-3", "some", "1.5", ""])
def test_bad_options(word: str) -> None:
    with pytest.raises(UsageError, match=f"stack must be off, auto or a number of runs, not '{word}'"):
        read_stack_options(word)
    with pytest.raises(UsageError, match="stack_memory_gb must be above 0"):
        read_stack_options("auto", 0)


def test_keywords_of_python_and_their_earlier_names(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[StackOptions] = []
    monkeypatch.setattr("plench.sweeps.launch.launch_sweep", lambda *_, stack, **__: seen.append(stack))
    for more in ({}, {"stack": 4, "stack_memory_gb": 0.5}, {"fleet": 4, "fleet_memory_gb": 0.5}):
        plench.sweep("CC", "Digits_USS", progress=False, **more)
    assert seen == [read_stack_options("auto"), *[StackOptions(4, 0.5, any_device=True)] * 2]


def test_tasks_are_stacks_without_finished_runs(tmp_path: Path) -> None:
    """Finished runs change no stack but their own."""
    runs = plan_runs("CC")
    stacks = group_runs(runs, DATASETS, ON_CPU)
    gone = {run.folder for run in runs[:7]}
    todo = [run for run in runs if run.folder not in gone]
    tasks = Assignment(todo, 7, tmp_path, DATASETS, Limits(), stacks=stacks).tasks()
    expected = [tuple(run for run in stack if run.folder not in gone) for stack in stacks]
    assert tasks == [stack for stack in expected if stack]
    assert Assignment(todo, 7, tmp_path, DATASETS, Limits()).tasks() == [(run,) for run in todo]


def test_by_default_nothing_is_stacked_where_an_engine_assigns_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plench.sweeps.plan.runs_on_cpu", lambda device: True)
    runs = plan_runs("CC")

    def largest(engine: Engine, word: str, planned: list[PlannedRun] = runs) -> int:
        return max(map(len, group_runs(planned, DATASETS, read_stack_options(word), engine)))

    engines: list[Engine] = [RayEngine("auto", gpus_per_run=0.5), SlurmEngine(gpus=1)]
    for engine in engines:
        assert largest(engine, "auto") == 1
        assert largest(engine, "5") == 5
        assert largest(engine, "auto", plan_runs("CC", device="cpu")) > 1
    without: list[Engine] = [RayEngine("auto"), SlurmEngine(), LocalEngine(1)]
    assert all(largest(engine, "auto") > 1 for engine in without)


def test_categories_of_a_table_count_as_inputs() -> None:
    wide, narrow = (with_data(table_of(number)) for number in (50, 2))
    assert wide.count_inputs("Digits_USS") == 51
    assert DATASETS.count_inputs("Digits_USS") == DATASETS.get("Digits_USS").features.shape[1]
    stack = plan_runs("CC")[:3]
    assert estimate_gb(stack, wide) > estimate_gb(stack, narrow)


def test_the_estimate_counts_networks_and_state() -> None:
    dataset = DATASETS.get("Digits_USS")
    rows, classes = dataset.candidates.shape
    stacks = {name: plan_runs(name)[:2] for name in ("CC", "IDGP", "FREDIS")}
    before = torch.get_rng_state()
    wide = {name: estimate_gb(stack, with_data(dataset, 10**5)) for name, stack in stacks.items()}
    assert torch.equal(torch.get_rng_state(), before), "a notebook's random numbers stay as they are"
    assert wide["IDGP"] > 1.8 * wide["CC"], "it has two networks"
    # Two runs: weights, gradients, two averages. One run: a checkpoint being written.
    copies = 2 * 4 + 3 * 4
    assert wide["CC"] * 2**30 > copies * 10**5 * 500 * 4
    of_fredis, of_cc = (estimate_gb(stacks[name], with_data(dataset, 1)) * 2**30 for name in ("FREDIS", "CC"))
    # FREDIS keeps two numbers and a flag per label.
    assert of_fredis - of_cc > 2 * (3 * 9 - 16) * rows * classes


def test_default_stacks_of_ordinary_tables_have_ten_runs() -> None:
    features = np.random.default_rng(0).normal(size=(1122, 108))
    lost = Dataset(features, np.ones((1122, 16), dtype=bool), None, DATASETS.get("Digits_USS").card)
    for name in (name for name, entry in algorithms().items() if entry.card.stacked):
        stack = [replace(run, algorithm=name) for run in plan_runs("CC")[:LARGEST]]
        assert estimate_gb(stack, with_data(lost)) < StackOptions.memory_gb / 5
