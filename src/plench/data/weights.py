"""Weights of candidates: how much each label of a set is believed in before learning.

`uniform` is no weights at all: every method then runs as it always has.
"""

from __future__ import annotations

from dataclasses import replace

from plench.data.answers import weigh_by_votes
from plench.data.candidates import REAL_CANDIDATES, CandidateSpec
from plench.data.dataset import Dataset
from plench.errors import DataError, UsageError

CANDIDATE_WEIGHTS = ("uniform", "votes")
UNIFORM = CANDIDATE_WEIGHTS[0]


def weigh_candidates(dataset: Dataset, weights: str, candidates: CandidateSpec = REAL_CANDIDATES) -> Dataset:
    """Return the dataset with weights of its candidates: shares of the annotators' votes, or none.

    Generated candidate sets have no votes.
    """
    if weights not in CANDIDATE_WEIGHTS:
        raise UsageError(f"candidate_weights is {weights!r}; allowed are {', '.join(CANDIDATE_WEIGHTS)}")
    if weights == UNIFORM:
        return dataset if dataset.weights is None else replace(dataset, weights=None)
    if dataset.answers is None:
        raise DataError(
            f"{dataset.card.name} has no annotators' answers, which candidate_weights {weights} needs; "
            "allowed "
            f"is {UNIFORM}"
        )
    if candidates != REAL_CANDIDATES:
        raise UsageError(
            f"candidate_weights {weights} needs the data's own candidate sets (pl_type real, no "
            "drop_true_rate), "
            f"not {candidates}"
        )
    return replace(dataset, weights=weigh_by_votes(dataset.candidates, dataset.answers))
