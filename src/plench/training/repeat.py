"""Repeats stored runs and compares their records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plench.algorithms import find_algorithm
from plench.algorithms.registry import ALGORITHMS, load_third_party
from plench.criteria import CRITERIA
from plench.data import load_dataset
from plench.data.sources import DATASETS
from plench.errors import PlenchError, UsageError
from plench.registry import Registry
from plench.runs.folder import DATASET, RunStore
from plench.runs.records import Run, read_run
from plench.runs.verify import TOLERANCE, compare_conditions, compare_runs, is_foreign
from plench.training.config import RunConfig
from plench.training.environment import MUST_AGREE
from plench.training.loop import run_training
from plench.training.model import load_network

# If these agree and the processor is of the same kind, which records do not say, all bits agree.
CONDITIONS = (*MUST_AGREE, "platform")


@dataclass(frozen=True)
class Verdict:
    """What differs between a run and its repetition, and which `conditions` (versions, device, …) do."""

    run: Run
    differences: list[str]
    conditions: list[str]
    repeated: bool = True

    @property
    def good(self) -> bool:
        """Whether the run was repeated and agrees."""
        return self.repeated and not self.differences


def verify_runs(
    runs: list[Run],
    *,
    data_dir: str | None = None,
    source: Path | None = None,
    device: str = "cpu",
    tolerance: float = TOLERANCE,
    other_processor: bool = False,
) -> Iterator[Verdict]:
    """Repeat runs one by one and compare. A run that cannot be repeated has that as its difference.

    `other_processor` says that the runs were made on another kind of processor than this one.
    """
    for run in runs:
        try:
            with tempfile.TemporaryDirectory(prefix="plench-verify-") as folder:
                again = repeat_run(run, Path(folder), data_dir, source, device)
        except PlenchError as error:
            yield Verdict(run, [f"cannot be repeated: {error}"], [], repeated=False)
            continue
        before, now = (each.info.get("versions") or {} for each in (run, again))
        conditions = compare_conditions(before, now, CONDITIONS)
        if other_processor:
            conditions.append("processor")
        if run.stack_size > 1:
            conditions.append(f"stacked with {run.stack_size - 1} others → single")
        yield Verdict(run, compare_runs(run, again, not conditions, tolerance), conditions)


def repeat_run(run: Run, folder: Path, data_dir: str | None, source: Path | None, device: str) -> Run:
    """Train the run's configuration again in another folder and read its records.

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
    return read_run(run_training(config, dataset, entry, folder).folder)
