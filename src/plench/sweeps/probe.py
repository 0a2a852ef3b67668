"""Estimates time and disk of a sweep from a short measurement."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from plench.runs.ended import RESULTS
from plench.runs.folder import RUN, RunStore
from plench.sweeps.engines.base import RunAttempt, Task
from plench.sweeps.perform import Performer
from plench.sweeps.plan import DataShelf, PlannedRun
from plench.training.callbacks import NoCallback

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
    """Time of all runs one after the other, disk, and on how many pairs of algorithm and dataset it rests.

    `fleets_measured`: whether runs that are trained as one were measured so.
    """

    seconds: float
    bytes: float
    pairs_measured: int
    pairs: int
    probe_seconds: float
    fleets_measured: bool


def estimate_cost(
    runs: Sequence[PlannedRun], shelf: DataShelf, budget_seconds: float, fleets: Iterable[Task] = ()
) -> CostEstimate | None:
    """Measure each pair of algorithm and dataset briefly, as many as fit into the time, and add up.

    Runs that are trained as one are measured as one. A pair that was not measured counts as the mean of those
    that were of its kind, of which one is measured always: a round of a fitted method takes a thousand times
    a step of a trained one. None if there is nothing to measure.
    """
    wanted = {run.folder for run in runs}
    tasks = [tuple(run for run in fleet if run.folder in wanted) for fleet in fleets]
    together = {run.folder: task for task in tasks if len(task) > 1 for run in task}
    examples: dict[tuple[str, str, bool], Task] = {}
    for run in runs:
        key = (run.algorithm, run.dataset, run.folder in together)
        examples.setdefault(key, together.get(run.folder, (run,)))
    costs: dict[tuple[str, str, bool], RunCost] = {}
    by_kind: dict[tuple[bool, bool], list[RunCost]] = {}
    begun = time.monotonic()
    performer = Performer()
    for key, task in examples.items():
        kind = (task[0].config.fitted, len(task) > 1)
        if kind in by_kind and time.monotonic() - begun > budget_seconds:
            continue
        cost = probe_task(task, shelf, performer, warm=bool(costs))
        if cost is not None:
            costs[key] = cost
            by_kind.setdefault(kind, []).append(cost)
    if not costs:
        return None
    seconds = disk = 0.0
    for run in runs:
        key = (run.algorithm, run.dataset, run.folder in together)
        alike = by_kind.get((run.config.fitted, key[2]), list(costs.values()))
        used = [costs[key]] if key in costs else alike
        seconds += sum(cost.seconds(run) for cost in used) / len(used)
        disk += sum(cost.bytes(run) for cost in used) / len(used)
    pairs, known = ({key[:2] for key in keys} for keys in (examples, costs))
    spent = time.monotonic() - begun
    return CostEstimate(seconds, disk, len(known), len(pairs), spent, any(key[2] for key in costs))


def probe_task(task: Task, shelf: DataShelf, performer: Performer, warm: bool) -> RunCost | None:
    """Carry out a few updates in a folder that is thrown away; None if a run fails or diverges."""
    if not warm:  # the first run of a process also pays for what torch loads late
        _try_out(task, shelf, performer, FIRST_STEPS)
    cost = _try_out(task, shelf, performer, FIRST_STEPS)
    if cost is None or len(task) * cost.step_seconds * PROBE_STEPS > LONGEST_SECONDS:
        return cost
    return _try_out(task, shelf, performer, PROBE_STEPS)


def _try_out(task: Task, shelf: DataShelf, performer: Performer, steps: int) -> RunCost | None:
    """Return the cost of a run, of one of several a mean share."""
    steps = min(steps, task[0].config.steps)  # a method that is fitted in rounds may have fewer
    runs = tuple(replace(run, config=replace(run.config, steps=steps, checkpoint_freq=steps)) for run in task)
    attempts: dict[str, RunAttempt] = {}
    with tempfile.TemporaryDirectory(prefix="plench-probe-") as folder:
        stores = [RunStore(Path(folder) / run.folder) for run in runs]
        quiet = [NoCallback() for _ in runs]
        with without_notices():
            performer.perform_fleet(
                runs,
                shelf.get(task[0].dataset),
                stores,
                quiet,
                lambda run, attempt: attempts.update({run.folder: attempt}),
            )
        if any(attempt.status != "done" for attempt in attempts.values()):
            return None
        shares = [
            _read_cost(store.folder, attempts[run.folder], steps)
            for run, store in zip(runs, stores, strict=True)
        ]
    return RunCost(*(sum(part) / len(part) for part in zip(*map(astuple, shares), strict=True)))


def _read_cost(folder: Path, attempt: RunAttempt, steps: int) -> RunCost:
    """Return the cost of a run from its folder."""
    timings = json.loads((folder / RUN).read_text(encoding="utf-8"))["timings"]
    record_bytes = (folder / RESULTS).stat().st_size / 2
    other_bytes = sum(
        file.stat().st_size for file in folder.iterdir() if file.is_file() and file.name != RESULTS
    )
    training, evaluation = timings["training_seconds"], timings["evaluation_seconds"]
    return RunCost(
        step_seconds=training / steps,
        record_seconds=evaluation / 2,
        fixed_seconds=max(attempt.seconds - training - evaluation, 0.0),
        record_bytes=record_bytes,
        fixed_bytes=other_bytes,
    )


@contextmanager
def without_notices() -> Iterator[None]:
    """Keep quiet what runs say: that a phase is not reached, say, is true of the probe only."""
    logger = logging.getLogger("plench")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def count_records(run: PlannedRun) -> int:
    """Return how many records a run writes: at steps 0, f, 2f, … and the last."""
    last, frequency = run.config.steps - 1, run.config.checkpoint_freq
    return last // frequency + 1 + (last % frequency > 0)
