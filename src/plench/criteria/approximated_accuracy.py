"""Approximated accuracy (AA): the prediction's share of the candidates' probability."""

import numpy as np
from numpy.typing import ArrayLike

from plench.criteria.base import Criterion, as_logits, mean_or_nan


def approximated_accuracy(logits: ArrayLike, candidates: ArrayLike, labels: ArrayLike | None = None) -> float:
    """Return the mean of f_j / Σ_{k∈S} f_k where j = argmax f is in S, and 0 where it is not.

    The quotient is exp(z_j − logsumexp of z over S), so a candidate mass that underflows is no special
    case: a confident prediction outside S scores exactly 0. True labels are not used.
    """
    scores = as_logits(logits)
    inside = np.asarray(candidates, dtype=bool)
    rows = np.arange(len(scores))
    predicted = scores.argmax(axis=1)
    # Relative to the largest logit, which is z_j itself: for j ∈ S the sum below is at least 1.
    relative = np.exp(scores - scores[rows, predicted][:, None])
    mass = np.where(inside, relative, 0.0).sum(axis=1)
    covered = inside[rows, predicted]
    share = np.divide(1.0, mass, out=np.zeros(len(scores)), where=covered)
    return mean_or_nan(share, scores)


CRITERION = Criterion(
    name="AA",
    title="AA",
    meaning="Approximated accuracy: the mean share of the candidates' probability that the predicted label "
    "holds, 0 where it is no candidate.",
    record_key="val_approximated_acc",
    measure=approximated_accuracy,
    needs_labels=False,
    position=2,
    public_defect="AA comes from the public code, which scores a confident prediction outside the candidates "
    "up to 1 instead of 0 (it adds 1e-12 to the candidates' mass); this cannot be repaired afterwards",
)
