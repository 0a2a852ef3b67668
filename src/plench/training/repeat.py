"""Repeats stored runs and compares their records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from plench.algorithms import find_algorithm
from plench.algorithms.registry import ALGORITHMS, AlgorithmEntry, load_third_party
from plench.callbacks import Callback
from plench.criteria import CRITERIA
from plench.data import Dataset, load_dataset
from plench.data.sources import DATASETS
from plench.errors import PlenchError, UsageError
from plench.registry import Registry
from plench.runs.folder import DATASET, RunStore
from plench.runs.records import Run, read_run
from plench.runs.verify import (
    TOLERANCE,
    compare_conditions,
    compare_runs,
    find_largest_difference,
    is_foreign,
)
from plench.training.config import RunConfig, RunOutcome
from plench.training.environment import MUST_AGREE
from plench.training.loop import RunTask, train_runs
from plench.training.model import load_network

# If these agree and the processor is of the same kind, which records do not say, all bits agree.
CONDITIONS = (*MUST_AGREE, "platform")


@dataclass(frozen=True)
class Verdict:
    """What differs between a run and its repetition, and which `conditions` (versions, device, …) do.

    `largest` describes the largest difference of a share, where the two are compared with a tolerance.
    """

    run: Run
    differences: list[str]
    conditions: list[str]
    repeated: bool = True
    largest: str = ""

    @property
    def good(self) -> bool:
        """Whether the run was repeated and agrees."""
        return self.repeated and not self.differences


def verify_runs(
    runs: list[Run],
    *,
    others: Iterable[Run] = (),
    data_dir: str | None = None,
    source: Path | None = None,
    device: str = "cpu",
    tolerance: float = TOLERANCE,
    other_processor: bool = False,
) -> Iterator[Verdict]:
    """Repeat runs and compare. A run that cannot be repeated has that as its difference.

    A stacked run is repeated with the other runs of its stack if it names them and `others` has them.
    `other_processor` says that the runs were made on another kind of processor than this one.
    """
    by_id = {str(run.info.get("run_id")): run for run in (*others, *runs)}
    repeated: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        stack = find_stack(run, by_id)
        key = tuple(str(member.info.get("run_id")) for member in stack)
        try:
            if key not in repeated:
                with tempfile.TemporaryDirectory(prefix="plench-verify-") as folder:
                    repeated[key] = repeat_runs(stack, Path(folder), data_dir, source, device)
            again = repeated[key][stack.index(run)]
        except PlenchError as error:
            yield Verdict(run, [f"cannot be repeated: {error}"], [], repeated=False)
            continue
        before, now = (each.info.get("versions") or {} for each in (run, again))
        conditions = compare_conditions(before, now, CONDITIONS)
        if other_processor:
            conditions.append("processor")
        if run.stack_size != again.stack_size:
            alone = f"stacked with {again.stack_size - 1} others" if again.stack_size > 1 else "single"
            conditions.append(f"stacked with {run.stack_size - 1} others → {alone}")
        differences = compare_runs(run, again, not conditions, tolerance)
        yield Verdict(run, differences, conditions, largest=find_largest_difference(run, again))


def find_stack(run: Run, by_id: Mapping[str, Run]) -> list[Run]:
    """Return the runs of a run's stack in order; the run alone if they are not all there.

    A forged stack must not execute third-party code that the run itself does not need.
    """
    named = run.info.get("stack")
    members = [by_id.get(str(name)) for name in named] if isinstance(named, list) else []
    found = [member for member in members if member is not None and is_foreign(member) == is_foreign(run)]
    return found if len(found) == len(members) and run in found else [run]


def repeat_runs(
    runs: Sequence[Run], folder: Path, data_dir: str | None, source: Path | None, device: str
) -> list[Run]:
    """Train these runs again, several as a stack, in another folder and read their records."""
    outcomes: dict[int, RunOutcome | BaseException] = {}
    tasks = []
    for number, run in enumerate(runs):
        config, dataset, entry = restore_run(run, data_dir, source, device)
        store = RunStore(folder / config.folder_name(dataset.fingerprint))
        ended = partial(outcomes.__setitem__, number)
        tasks.append(RunTask(config, entry, store, Callback(), lambda: None, ended))
    train_runs(tasks, dataset)
    for outcome in outcomes.values():
        if isinstance(outcome, BaseException):
            raise outcome
    return [read_run(task.store.folder) for task in tasks]


def restore_run(
    run: Run, data_dir: str | None, source: Path | None, device: str
) -> tuple[RunConfig, Dataset, AlgorithmEntry]:
    """Return the configuration, dataset and algorithm of a stored run.

    A third-party algorithm comes from `source`, or from the copy in the run's folder.
    """
    try:
        config = RunConfig.from_json(run.info["config"])
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"its configuration cannot be used: {error}") from error
    if reasons := run.info.get("not_repeatable"):
        raise UsageError("; ".join(map(str, reasons)))
    for file, name in (run.info.get("sources") or {}).items():
        registry: Registry[Any] = DATASETS if file == DATASET else CRITERIA
        registry.load_third_party(f"{run.path / Path(file).name}:{name}")
    load_network(RunStore(run.path), dict(run.info))
    dataset = load_dataset(config.dataset, data_dir)
    fingerprint = run.experiment.details.get("dataset_fingerprint")
    if dataset.fingerprint != fingerprint:
        raise UsageError(f"{config.dataset} here has fingerprint {dataset.fingerprint}, not {fingerprint}")
    if config.run_id(fingerprint) != run.info.get("run_id"):
        raise UsageError("its run_id is not that of its configuration, data and this protocol version")
    if is_foreign(run) and not ALGORITHMS.is_own(config.algorithm):
        file = source or run.path / "algorithm.py"
        entry = load_third_party(f"{file}:{run.info.get('algorithm_class')}")
    else:
        entry = find_algorithm(config.algorithm)
    if entry.name != config.algorithm:
        raise UsageError(f"its algorithm is {config.algorithm}, but the one found is {entry.name}")
    threads = (run.info.get("versions") or {}).get("threads")
    threads = threads if isinstance(threads, int) and threads > 0 else 1
    config = replace(config, device=device, threads=threads, skip_model_save=True)
    return config, dataset, entry
