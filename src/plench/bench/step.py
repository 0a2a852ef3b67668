"""What a training step costs beside its floor: forward, backward and Adam of the same network on one batch.

A timed stretch is an epoch (50 to 800 steps) of drawing batches and updating, so that work at the end of
epochs counts. Before the first one every phase of the algorithm's schedule has begun, if it does so within
4,000 updates.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from plench.algorithms import find_algorithm
from plench.algorithms.base import build_adam, build_network, descend
from plench.bench.data import find_data
from plench.bench.memory import peak_megabytes
from plench.bench.stretches import take_turns, time_stretch
from plench.runs.folder import RunStore
from plench.training.callbacks import NoCallback
from plench.training.config import configure_run
from plench.training.environment import compute_threads, flush_denormals
from plench.training.run import TrainingRun

WARM_UP = 100
LONGEST_WARM_UP = 4000
LONGEST_STRETCH = 800
STEPS_OF_THE_FLOOR = 100


def build_run(
    algorithm: str, dataset: str, data_dir: Path | None, hparams: dict[str, Any], **settings: Any
) -> TrainingRun:
    """Build a run as training would, without a folder."""
    data, entry = find_data(dataset, data_dir), find_algorithm(algorithm)
    config = configure_run(entry, data.card, hparams=hparams, device="cpu", **settings)
    store = RunStore(Path(tempfile.gettempdir()) / "unused")  # nothing is written before training begins
    run = TrainingRun(config, data, entry, store, NoCallback(), None)
    run.build()
    return run


def measure_step(
    algorithm: str,
    dataset: str,
    data_dir: Path | None,
    batch_size: int | None,
    repeats: int,
    warm_up: int = WARM_UP,
) -> dict[str, Any]:
    """Measure one algorithm on one dataset, with one thread, in this process."""
    with compute_threads(1), flush_denormals():
        given = {} if batch_size is None else {"batch_size": batch_size}
        run = build_run(algorithm, dataset, data_dir, given)
        batch = run.training_set.next_batch()
        network = build_network(run.data.input_shape, run.dataset.n_classes, run.config.hparams)
        optimizer = build_adam(network.parameters(), run.config.hparams)
        features = batch.view(run.entry.card.views[0])
        with run.streams.ambient("algorithm"):
            later = [first for first in run.algorithm.phases().values() if first <= LONGEST_WARM_UP]
            if run.data.inputs.kind == "image":  # seconds a step: phases are not waited for
                later = []

            run.choose_step()

            def step() -> None:
                run.make_update()

            def floor() -> None:
                descend(optimizer, network(features).mean())

            def pass_alone() -> None:
                optimizer.zero_grad(set_to_none=True)
                network(features).mean().backward()

            time_stretch(step, max([warm_up, *later]))
            peak = peak_megabytes()
            time_stretch(floor, warm_up)
            epoch = len(run.training_set) // len(batch)
            stretch = min(max(min(50, warm_up), epoch), LONGEST_STRETCH, 10 * warm_up)
            least = min(stretch, STEPS_OF_THE_FLOOR)
            turns = take_turns(
                lambda: time_stretch(step, stretch), lambda: time_stretch(floor, least), repeats
            )
            passes = [time_stretch(pass_alone, least) for _ in range(repeats)]
            draws = [time_stretch(run.training_set.next_batch, least) for _ in range(repeats)]
    return {
        "algorithm": run.entry.name,
        "dataset": dataset,
        "examples": len(run.training_set),
        "batch_size": len(batch),
        **turns,
        "pass_ms": round(statistics.median(passes), 4),
        "draw_ms": round(statistics.median(draws), 4),
        "peak_mb": peak,
    }
