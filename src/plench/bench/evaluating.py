"""What an evaluation costs beside its floor: a plain pass of the network over the same examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from plench.bench.step import build_run
from plench.bench.stretches import take_turns, time_stretch
from plench.training.environment import compute_threads, flush_denormals
from plench.training.evaluate import choose_chunk, evaluate


def measure_evaluation(
    algorithm: str, dataset: str, data_dir: Path | None, repeats: int, count: int = 5
) -> dict[str, Any]:
    """Measure the evaluation of one algorithm on one dataset, with one thread."""
    with compute_threads(1), flush_denormals():
        run = build_run(algorithm, dataset, data_dir, {})
        parts = (run.data.validation.stored, run.data.test.stored)

        def pass_over() -> None:
            run.algorithm.eval()
            with torch.no_grad():
                for stored in parts:
                    chunk = choose_chunk(stored)
                    for start in range(0, len(stored), chunk):
                        run.algorithm.predict(run.data.inputs.original(stored[start : start + chunk]))

        turns = take_turns(
            lambda: time_stretch(lambda: evaluate(run.algorithm, run.data), count),
            lambda: time_stretch(pass_over, count),
            repeats,
        )
    return {"algorithm": run.entry.name, "dataset": dataset, "examples": sum(map(len, parts)), **turns}
