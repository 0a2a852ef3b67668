"""PL_KNN: a vote of the nearest neighbours' candidates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plench.algorithms.base import register
from plench.algorithms.classical.parts import Floats, find_neighbours, narrow, normalise_rows, take_logs
from plench.algorithms.fitted import FittedAlgorithm
from plench.hparams import Choice, Hyperparameter


def vote_by_distance(distances: Floats, candidates: NDArray[np.generic]) -> Floats:
    """Return the votes (n, K) of neighbours at distances (n, k) with candidates (n, k, K).

    A neighbour weighs 1 − d_a/Σd. Votes are added in the neighbours' order, so that labels that occur in the
    same neighbours have equal sums, bit for bit.
    """
    total = distances.sum(1, keepdims=True)
    alone = (total == 0) | (distances.shape[1] == 1)
    weights = np.where(alone, 1.0, 1.0 - distances / np.where(alone, 1.0, total))
    votes = np.zeros((len(distances), candidates.shape[2]))
    for a in range(distances.shape[1]):
        votes += weights[:, a, None] * candidates[:, a]
    return votes


@register(
    "PL_KNN",
    family="classical",
    venue="IDA 2005",
    passes="none",
    hyperparameters=(
        Hyperparameter("k", 10, "neighbours that vote", Choice(3, 5, 8, 10, 15, 20, 30), at_least=1),
    ),
    cite="hullermeier2005learning",
)
class PL_KNN(FittedAlgorithm):
    """Each of the k nearest training examples votes for all its candidates.

    Nearer neighbours weigh a little more; nothing is learnt beforehand, the training data is the model.

    Objective: none; v_j = Σ_a (1 − d_a/Σ_c d_c)·[j ∈ S_a] over the k nearest, p = v/Σ_j v_j.

    Departures: ties go to the smaller class; the paper's rule for them is unknown.
    """

    def fit_round(self, number: int) -> float:
        """Keep the training data."""
        self.fitted = {"features": narrow(self.features), "candidates": self.candidates.copy()}
        return 0.0

    def score(self, features: Floats) -> Floats:
        """Return the log of the shares of votes."""
        rows = self.fitted["features"].astype(np.float64)
        index, distances = find_neighbours(features, rows, min(int(self.hparams["k"]), len(rows)))
        return take_logs(normalise_rows(vote_by_distance(distances, self.fitted["candidates"][index])))
