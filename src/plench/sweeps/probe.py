"""Estimates time and disk of a sweep from a short measurement."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from plench.storage.ended import RESULTS
from plench.storage.store import RUN, RunStore
from plench.sweeps.engines.base import RunAttempt
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
    """Time of all runs one after the other, disk, and on how many pairs of algorithm and dataset it rests."""

    seconds: float
    bytes: float
    pairs_measured: int
    pairs: int
    probe_seconds: float


def estimate_cost(runs: Sequence[PlannedRun], shelf: DataShelf, budget_seconds: float) -> CostEstimate | None:
    """Measure each pair of algorithm and dataset briefly, as many as fit into the time, and add up.

    A pair that was not measured counts as the mean of those that were of its kind, of which one is measured
    always: a round of a fitted method takes a thousand times a step of a trained one. None if there is
    nothing to measure.
    """
    examples: dict[tuple[str, str], PlannedRun] = {}
    for run in runs:
        examples.setdefault((run.algorithm, run.dataset), run)
    costs: dict[tuple[str, str], RunCost] = {}
    by_kind: dict[bool, list[RunCost]] = {}
    begun = time.monotonic()
    performer = Performer()
    for pair, run in examples.items():
        fitted = run.config.fitted
        if fitted in by_kind and time.monotonic() - begun > budget_seconds:
            continue
        cost = probe_run(run, shelf, performer, warm=bool(costs))
        if cost is not None:
            costs[pair] = cost
            by_kind.setdefault(fitted, []).append(cost)
    if not costs:
        return None
    seconds = disk = 0.0
    for run in runs:
        known = costs.get((run.algorithm, run.dataset))
        alike = by_kind.get(run.config.fitted, list(costs.values()))
        used = alike if known is None else [known]
        seconds += sum(cost.seconds(run) for cost in used) / len(used)
        disk += sum(cost.bytes(run) for cost in used) / len(used)
    return CostEstimate(seconds, disk, len(costs), len(examples), time.monotonic() - begun)


def probe_run(run: PlannedRun, shelf: DataShelf, performer: Performer, warm: bool) -> RunCost | None:
    """Carry out a few updates in a temporary folder; None if the run fails or diverges."""
    if not warm:  # the first run of a process also pays for what torch loads late
        _try_out(run, shelf, performer, FIRST_STEPS)
    cost = _try_out(run, shelf, performer, FIRST_STEPS)
    if cost is None or cost.step_seconds * PROBE_STEPS > LONGEST_SECONDS:
        return cost
    return _try_out(run, shelf, performer, PROBE_STEPS)


def _try_out(run: PlannedRun, shelf: DataShelf, performer: Performer, steps: int) -> RunCost | None:
    steps = min(steps, run.config.steps)  # a method that is fitted in rounds may have fewer
    config = replace(run.config, steps=steps, checkpoint_freq=steps)
    with tempfile.TemporaryDirectory(prefix="plench-probe-") as folder:
        store = RunStore(Path(folder) / run.folder)
        with without_notices():
            attempt: RunAttempt = performer.perform(
                replace(run, config=config), shelf.get(run.dataset), store, NoCallback()
            )
        if attempt.status != "done":
            return None
        timings = json.loads((store.folder / RUN).read_text(encoding="utf-8"))["timings"]
        record_bytes = (store.folder / RESULTS).stat().st_size / 2
        other_bytes = sum(
            file.stat().st_size for file in store.folder.iterdir() if file.is_file() and file.name != RESULTS
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
