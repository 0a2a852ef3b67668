"""A run in one call, for those who know what they want by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plench.algorithms import find_algorithm
from plench.data import load_dataset
from plench.training.config import configure_run
from plench.training.listener import Listener
from plench.training.options import RunOptions, RunOutcome
from plench.training.run import run_training


def train(
    algorithm: str,
    dataset: str,
    output_dir: str | Path = "runs",
    *,
    data_dir: str | Path | None = None,
    options: RunOptions | None = None,
    listener: Listener | None = None,
    **settings: Any,
) -> RunOutcome:
    """Train an algorithm on a dataset, both given as on the command line, or continue or find that run.

    `settings` are those of `configure_run` (`steps`, `hparams`, `trial_seed`, `hparams_seed`, `seed`, …) and
    decide the numbers; `options` say how the run is carried out.
    """
    entry = find_algorithm(algorithm)
    data = load_dataset(dataset, data_dir)
    config = configure_run(entry, data.card, **settings)
    return run_training(config, data, entry, output_dir, options, listener)
