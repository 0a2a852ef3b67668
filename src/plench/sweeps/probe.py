"""Estimates time and disk of a sweep from a short measurement."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plench.callbacks import Callback
from plench.runs.folder import RESULTS, RUN, RunStore
from plench.sweeps.executor import RunAttempt, RunExecutor
from plench.sweeps.plan import DatasetCache, PlannedRun, Task

# A probe makes a few updates and, unless they would take too long, some more.
FIRST_STEPS = 3
PROBE_STEPS = 50
LONGEST_SECONDS = 2.0


@dataclass(frozen=True)
class RunCost:
    """Cost of a run of one algorithm on one dataset."""

    step_seconds: float
    record_seconds: float
    fixed_seconds: float
    record_bytes: float
    fixed_bytes: float

    def seconds(self, run: PlannedRun) -> float:
        """Estimate a run's time."""
        updates = run.config.steps * self.step_seconds
        return updates + count_records(run) * self.record_seconds + self.fixed_seconds

    def bytes(self, run: PlannedRun) -> float:
        """Estimate the disk space of a finished run."""
        return count_records(run) * self.record_bytes + self.fixed_bytes


@dataclass(frozen=True)
class CostEstimate:
    """Time of all runs one after the other, disk, and how many pairs of algorithm and dataset were measured.

    `stacks_measured`: whether stacked runs were measured in stacks.
    """

    seconds: float
    bytes: float
    pairs_measured: int
    pairs: int
    stacks_measured: bool


def estimate_cost(
    runs: Sequence[PlannedRun], datasets: DatasetCache, budget_seconds: float, stacks: Iterable[Task] = ()
) -> CostEstimate | None:
    """Measure each pair of algorithm and dataset briefly, as many as fit into the time, and add up.

    Stacked runs are measured in a stack. A pair that was not measured counts as the mean of the measured
    pairs of its kind, at least one of which is always tried: a round of a fitted method takes a thousand
    times as long as a step of a network. Returns None if no run of some kind could be measured.
    """
    wanted = {run.folder for run in runs}
    tasks = [tuple(run for run in stack if run.folder in wanted) for stack in stacks]
    stacked = {run.folder: task for task in tasks if len(task) > 1 for run in task}
    examples: dict[tuple[str, str, bool], Task] = {}
    for run in runs:
        key = (run.algorithm, run.dataset, run.folder in stacked)
        examples.setdefault(key, stacked.get(run.folder, (run,)))
    costs: dict[tuple[str, str, bool], RunCost] = {}
    by_kind: dict[tuple[bool, bool], list[RunCost]] = {}
    begun = time.monotonic()
    executor = RunExecutor()
    for key, task in examples.items():
        kind = (task[0].config.fitted, len(task) > 1)
        if kind in by_kind and time.monotonic() - begun > budget_seconds:
            continue
        cost = probe_task(task, datasets, executor, warm=bool(costs))
        if cost is not None:
            costs[key] = cost
            by_kind.setdefault(kind, []).append(cost)
    if not costs:
        return None
    seconds = disk = 0.0
    for run in runs:
        fitted, key = run.config.fitted, (run.algorithm, run.dataset, run.folder in stacked)
        used = [costs[key]] if key in costs else by_kind.get((fitted, key[2]))
        used = used or by_kind.get((fitted, not key[2]))  # no stack, or nothing but stacks, was measured
        if not used:
            return None
        seconds += sum(cost.seconds(run) for cost in used) / len(used)
        disk += sum(cost.bytes(run) for cost in used) / len(used)
    pairs, known = ({key[:2] for key in keys} for keys in (examples, costs))
    return CostEstimate(seconds, disk, len(known), len(pairs), any(key[2] for key in costs))


def probe_task(task: Task, datasets: DatasetCache, executor: RunExecutor, warm: bool) -> RunCost | None:
    """Measure a few updates in a temporary folder; return None if a run fails or diverges."""
    logger = logging.getLogger("plench")
    level = logger.level
    logger.setLevel(
        logging.ERROR
    )  # warnings, such as of phases that are not reached, hold for the probe only
    try:
        if not warm:  # the first run of a process also pays for what torch loads late
            _measure(task, datasets, executor, FIRST_STEPS)
        cost = _measure(task, datasets, executor, FIRST_STEPS)
        if cost is None or len(task) * cost.step_seconds * PROBE_STEPS > LONGEST_SECONDS:
            return cost
        return _measure(task, datasets, executor, PROBE_STEPS)
    finally:
        logger.setLevel(level)


def _measure(task: Task, datasets: DatasetCache, executor: RunExecutor, steps: int) -> RunCost | None:
    """Return the cost of a run; for a stack, the mean of its runs."""
    steps = min(steps, task[0].config.steps)  # a method that is fitted in rounds may have fewer
    runs = tuple(replace(run, config=replace(run.config, steps=steps, checkpoint_freq=steps)) for run in task)
    attempts: dict[str, RunAttempt] = {}
    with tempfile.TemporaryDirectory(prefix="plench-probe-") as temporary:
        folders = [Path(temporary) / run.folder for run in runs]
        executor.run_task(
            runs,
            datasets.get(task[0].dataset),
            [RunStore(folder) for folder in folders],
            [Callback() for _ in runs],
            lambda run, attempt: attempts.update({run.folder: attempt}),
        )
        if any(attempt.status != "done" for attempt in attempts.values()):
            return None
        costs = []
        for folder in folders:
            timings = json.loads((folder / RUN).read_text(encoding="utf-8"))["timings"]
            sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
            training, evaluation = timings["training_seconds"], timings["evaluation_seconds"]
            fixed = max(attempts[folder.name].seconds - training - evaluation, 0.0)
            records = sizes.pop(RESULTS)  # of the first and the last step
            costs.append((training / steps, evaluation / 2, fixed, records / 2, sum(sizes.values())))
    return RunCost(*(sum(part) / len(part) for part in zip(*costs, strict=True)))


def count_records(run: PlannedRun) -> int:
    """Return how many records a run writes: at steps 0, f, 2f, … and the last."""
    last, frequency = run.config.steps - 1, run.config.checkpoint_freq
    return last // frequency + 1 + (last % frequency > 0)
