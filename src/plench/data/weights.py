"""Weights of candidates: a prior over the labels of each set. `uniform` means no weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plench.data.answers import weigh_by_votes
from plench.data.candidates import REAL_CANDIDATES, CandidateSpec
from plench.data.dataset import Dataset
from plench.errors import DataError, UsageError
from plench.settings import CandidateWeights


def weigh_candidates(
    dataset: Dataset, weights: CandidateWeights, candidates: CandidateSpec = REAL_CANDIDATES
) -> NDArray[np.float32] | None:
    """Return the weights (N, K) of the candidates, shares of the annotators' votes; None where uniform.

    They are positive on the candidates, 0 elsewhere, and sum to 1. Generated candidate sets have no votes.
    """
    if weights == "uniform":
        return None
    if dataset.answers is None:
        raise DataError(
            f"{dataset.card.name} has no annotators' answers, which candidate_weights {weights} needs; "
            "allowed "
            "is uniform"
        )
    if candidates != REAL_CANDIDATES:
        raise UsageError(
            f"candidate_weights {weights} needs the data's own candidate sets: pl_type real, not "
            f"{candidates.pl_type}, and no drop_true_rate"
        )
    return weigh_by_votes(dataset.candidates, dataset.answers)
