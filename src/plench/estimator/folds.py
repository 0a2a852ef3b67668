"""Rows that a model is not trained on: a reserved share, or folds where there are too few rows for one.

Both keep groups and items whole. Nothing here uses true labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plench.algorithms import AlgorithmEntry, find_algorithm
from plench.data import Dataset
from plench.errors import DataError, RunFailedError, UsageError
from plench.estimator.search import TrainingData, attempt
from plench.settings import seed_hash
from plench.training.config import configure_refit
from plench.training.model import TrainedModel

LEAST_RESERVED = 50  # rows; fewer tell next to nothing
LEAST_ROWS = 300  # of which a share is reserved; with fewer, folds take its place
FOLDS = 5

Rows = NDArray[np.int64]


class Fold(NamedTuple):
    """A model of the chosen configuration, the rows it was trained on, and the rows left out."""

    model: TrainedModel
    trained: Rows
    left_out: Rows


def number_units(dataset: Dataset) -> NDArray[np.int64]:
    """Return for each row the number of its unit: its group, its item, or the row alone.

    Rows of one unit stay together in every split; only units are independent of each other.
    """
    if dataset.groups is not None:
        return np.unique(dataset.groups, return_inverse=True)[1]
    names = dataset.items or [""] * dataset.n_examples
    distinct = [name or row for row, name in enumerate(names)]  # a row without a name is its own
    numbers = {name: number for number, name in enumerate(dict.fromkeys(distinct))}
    return np.array([numbers[name] for name in distinct])


def reserve_rows(dataset: Dataset, share: float, seed: int) -> Rows:
    """Return the rows to keep apart, in order: neither trained on nor used to choose.

    Parameters
    ----------
    dataset : Dataset
        The data. Rows that it marks as validation are not reserved: they choose.
    share : float
        Share of the rows, 0 for none. At least 50 rows are reserved, in whole groups and items.
    seed : int
        Seed of the draw.

    Returns
    -------
    ndarray of int
        Empty if `share` is 0, if there are fewer than 300 rows, or if whole groups leave less than half of
        the rows to train on; then `fit_folds` serves the same purpose.
    """
    if isinstance(share, bool) or not 0 <= share < 1:
        raise UsageError(f"reserve is {share!r}; expected a share from 0 and below 1")
    none = np.arange(0)
    if share == 0 or dataset.n_examples < LEAST_ROWS:
        return none
    units = number_units(dataset)
    if dataset.validation is not None:
        units = np.where(dataset.validation, -1, units)
    names, sizes = np.unique(units[units >= 0], return_counts=True)
    order = np.random.RandomState(seed_hash(seed, "reserve")).permutation(len(names))
    wanted = max(share * dataset.n_examples, LEAST_RESERVED)
    n_taken = int(np.searchsorted(sizes[order].cumsum(), wanted - 1e-9)) + 1
    reserved = np.flatnonzero(np.isin(units, names[order[:n_taken]]))
    is_enough = LEAST_RESERVED <= len(reserved) <= max(share, 0.5) * dataset.n_examples
    return reserved if is_enough else none


def fit_folds(
    data: TrainingData,
    model: TrainedModel,
    *,
    seed: int = 0,
    entry: AlgorithmEntry | None = None,
) -> Iterator[Fold]:
    """Train the method and configuration of a model once per fold (five, at most one per group).

    Every row is left out once, by the model of the other folds. Each run makes as many updates as the model
    had, and holds nothing else out.

    Parameters
    ----------
    data : TrainingData
        The data to divide, into folds of whole groups and items.
    model : TrainedModel
        The model whose method and configuration are trained; its weights are not used.
    seed : int
        Seed of the division.
    entry : AlgorithmEntry, optional
        The method, if it is not one that `find_algorithm` finds by the name in the model's run.

    Yields
    ------
    Fold

    Raises
    ------
    RunFailedError
        If the method cannot be trained on a fold.
    KeyboardInterrupt
        If it is interrupted.
    """
    dataset = data.dataset
    units = number_units(dataset)
    n_units = int(units.max()) + 1
    if n_units < 2:
        raise DataError(f"{dataset.card.name} has one group, which cannot be divided into folds")
    config, _ = configure_refit(model.run, model.updates - 1, dataset)
    device = next((str(weight.device) for weight in model.algorithm.parameters()), "cpu")
    config = config.changed(device=device)
    entry = entry or find_algorithm(config.algorithm)
    place = np.random.RandomState(seed_hash(seed, "folds")).permutation(n_units)
    fold = (place % min(FOLDS, n_units))[units]
    for number in range(fold.max() + 1):
        trained, left_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        made = attempt(config, data.take(trained).repeated().whole(), entry)
        if made.status == "interrupted":
            raise KeyboardInterrupt
        if made.model is None:
            raise RunFailedError(f"{config.algorithm} on fold {number + 1}: {made.message or made.status}")
        yield Fold(made.model, trained, left_out)


def predict_out_of_fold(
    data: TrainingData, model: TrainedModel, *, seed: int = 0, entry: AlgorithmEntry | None = None
) -> NDArray[np.float64]:
    """Return logits (N, K) of every row by a model that was not trained on its group or item.

    The parameters are those of `fit_folds`.
    """
    logits = np.zeros(data.dataset.candidates.shape)
    for fold in fit_folds(data, model, seed=seed, entry=entry):
        logits[fold.left_out] = fold.model.predict_logits(data.dataset.features[fold.left_out])
    return logits
