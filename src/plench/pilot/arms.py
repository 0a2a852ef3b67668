"""Runs the two arms of the pilot experiment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from plench.algorithms import find_algorithm
from plench.data import CandidateSpec, Dataset, Split, choose_candidates, draw_candidates, split_dataset
from plench.errors import DataError
from plench.pilot import SUFFIX, TRAINING_ARM, VALIDATION_ARM
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.seeds import seed_hash
from plench.settings import declared
from plench.sweeps.engines.base import Engine, SweepCallback
from plench.sweeps.fleets import read_fleet
from plench.sweeps.launch import SweepOutcome, launch_sweep
from plench.sweeps.plan import DataShelf
from plench.training.config import RunConfig, configure_run
from plench.training.data import prepare_split
from plench.training.environment import choose_device
from plench.training.outcome import RunOutcome
from plench.training.run import run_training


@dataclass(frozen=True)
class PilotOutcome:
    """How the two arms ended: the sweep's outcome, and the outcomes of the second arm's runs."""

    sweep: SweepOutcome
    training: list[RunOutcome]

    @property
    def exit_code(self) -> int:
        """0: all is finished; 1: something failed; 130: interrupted."""
        states = {outcome.status for outcome in self.training}
        if self.sweep.unfinished or "interrupted" in states:
            return 130
        return 1 if "failed" in states else self.sweep.exit_code


def run_pilot(
    grid: Grid,
    output_dir: str | Path,
    *,
    data_dir: str | Path | None = None,
    engine: Engine | None = None,
    callback: SweepCallback | None = None,
) -> PilotOutcome:
    """Carry out both arms, or what is missing of them."""
    folder = Path(output_dir)
    sweep = launch_sweep(
        SweepSpec((grid,)),
        folder / VALIDATION_ARM,
        data_dir=data_dir,
        engine=engine,
        callback=callback,
        fleet=read_fleet("off"),  # as the other arm is trained
    )
    trained: list[RunOutcome] = []
    if not sweep.unfinished:
        for outcome in train_with_validation(grid, data_dir, folder / TRAINING_ARM):
            trained.append(outcome)
            if outcome.status == "interrupted":
                break
    return PilotOutcome(sweep, trained)


def train_with_validation(grid: Grid, data_dir: str | Path | None, folder: Path) -> Iterator[RunOutcome]:
    """Carry out the second arm, run by run."""
    shelf = DataShelf(data_dir)
    for name in grid.datasets:
        for trial_seed in grid.trial_seeds:
            dataset, split = join_validation(shelf.get(name), grid, trial_seed)
            prepared = prepare_split(dataset, split, choose_device(grid.device))
            for algorithm in grid.algorithms:
                config = configure_default(algorithm, dataset, grid, trial_seed)
                entry = find_algorithm(algorithm)
                yield run_training(config, dataset, entry, folder, prepared=prepared)


def join_validation(dataset: Dataset, grid: Grid, trial_seed: int) -> tuple[Dataset, Split]:
    """Return the trial's data with validation examples as clean training examples, and the split for it.

    The validation part of the split stays as it is, so that records have their usual figures; they are
    measured on training examples here and choose nothing. The name says that the data are not the dataset
    itself.
    """
    if dataset.labels is None:
        raise DataError(
            f"{dataset.card.name} has no true labels: the pilot experiment needs those of validation"
        )
    drawn = draw_candidates(dataset, choose_candidates(dataset.card.candidates, grid), trial_seed)
    split = split_dataset(
        drawn,
        trial_seed,
        test_fraction=grid.tabular_test_fraction,
        holdout_fraction=grid.holdout_fraction,
        imbalance=grid.imbalance,
    )
    candidates = drawn.candidates.copy()
    candidates[split.validation] = np.eye(drawn.n_classes, dtype=bool)[dataset.labels[split.validation]]
    card = replace(dataset.card, name=dataset.card.name + SUFFIX, candidates=CandidateSpec())
    joined = replace(drawn, candidates=candidates, card=card)
    return joined, replace(split, train=np.concatenate([split.train, split.validation]))


def configure_default(algorithm: str, dataset: Dataset, grid: Grid, trial_seed: int) -> RunConfig:
    """Describe the default configuration's run on joined data, with as many steps as the other arm's."""
    entry = find_algorithm(algorithm)
    settings = grid.values()
    # The joined data have their candidate sets already.
    settings |= {name: None for name, setting in declared().items() if setting.block == "candidates"}
    settings |= {"trial_seed": trial_seed, "seed": seed_hash(dataset.card.name, entry.name, 0, trial_seed)}
    return configure_run(entry, dataset.card, hparams=grid.hparams, **settings)
