"""Predictions for examples by models that have not seen them: folds by example."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from plench.algorithms.classical.parts.targets import Floats
from plench.seeds import seed_hash

# From training features, targets, the features to predict and a seed to probabilities.
FitAndPredict = Callable[[Floats, Floats, Floats, int], Floats]


def assign_folds(n: int, folds: int, seed: int, number: int) -> NDArray[np.int64]:
    """Return the fold of every example in round `number`: by its place in a permutation, in turns."""
    order = np.random.RandomState(seed_hash(seed, "folds", number)).permutation(n)
    fold = np.empty(n, dtype=np.int64)
    fold[order] = np.arange(n) % folds
    return fold


def predict_by_folds(
    features: Floats, targets: Floats, folds: int, seed: int, number: int, fit_and_predict: FitAndPredict
) -> Floats:
    """Predict each fold's examples by a model of the other folds, in round `number`."""
    fold = assign_folds(len(features), folds, seed, number)
    found = np.zeros_like(targets)
    for j in range(min(folds, len(features))):
        held_out = fold == j
        seen = ~held_out
        if seen.any():
            found[held_out] = fit_and_predict(
                features[seen], targets[seen], features[held_out], seed_hash(seed, "fold", number, j)
            )
    return found
