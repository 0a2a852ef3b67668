"""What a step of runs trained as one costs beside its floor: the same steps of the same runs, each alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plench.algorithms.base import LossAlgorithm
from plench.bench.step import WARM_UP, build_run
from plench.bench.stretches import take_turns, time_stretch
from plench.errors import UsageError
from plench.training.environment import compute_threads, flush_denormals
from plench.training.run import TrainingRun
from plench.training.stack import StackedBatches, StackedRuns, StackError, stack_runs

STRETCH = 50


def measure_fleet(
    algorithm: str,
    dataset: str,
    data_dir: Path | None,
    batch_size: int,
    repeats: int,
    size: int = 10,
    warm_up: int = WARM_UP,
) -> dict[str, Any]:
    """Measure one algorithm on one dataset, with one thread: a stack of `size` splits, and each alone."""
    with compute_threads(1), flush_denormals():
        hparams = {"batch_size": batch_size}
        together, apart = (
            [build_run(algorithm, dataset, data_dir, hparams, seed=n, trial_seed=n) for n in range(size)]
            for _ in range(2)
        )
        try:
            stack = stack_members(together)
            batches = StackedBatches([run.training_set for run in together])
        except StackError as error:
            raise UsageError(f"runs of {algorithm} on {dataset} are not trained as one: {error}") from error
        for run in apart:
            run.choose_step()

        def time_together(count: int) -> float:
            return time_stretch(lambda: stack.update(batches.next()), count)

        def time_apart(count: int) -> float:
            return sum(time_alone(run, count) for run in apart)

        time_together(warm_up)
        time_apart(warm_up)
        stretch = min(STRETCH, warm_up)
        turns = take_turns(lambda: time_together(stretch), lambda: time_apart(stretch), repeats)
    run = together[0]
    return {
        "algorithm": run.entry.name,
        "dataset": dataset,
        "examples": len(run.training_set),
        "batch_size": batch_size,
        "runs": size,
        **turns,
    }


def time_alone(run: TrainingRun, count: int) -> float:
    """Return the milliseconds of a step of one run."""
    with run.streams.ambient("algorithm"):
        return time_stretch(run.make_update, count)


def stack_members(runs: Sequence[TrainingRun]) -> StackedRuns:
    """Make one algorithm of those of several runs."""
    members = [run.algorithm for run in runs if isinstance(run.algorithm, LossAlgorithm)]
    if len(members) < len(runs):
        raise StackError("it is not a LossAlgorithm")
    return stack_runs(members, [run.streams for run in runs])
