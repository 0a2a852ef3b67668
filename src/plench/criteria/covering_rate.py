"""Covering rate (CR): how often the prediction is one of the candidates."""

import numpy as np
from numpy.typing import ArrayLike

from plench.criteria.base import Criterion, as_logits, mean_or_nan


def covering_rate(logits: ArrayLike, candidates: ArrayLike, labels: ArrayLike | None = None) -> float:
    """Return the mean of [argmax f ∈ S]. True labels are not used."""
    scores = as_logits(logits)
    predicted = scores.argmax(axis=1)
    covered = np.asarray(candidates, dtype=bool)[np.arange(len(scores)), predicted]
    return mean_or_nan(covered, scores)


CRITERION = Criterion(
    name="CR",
    title="CR",
    meaning="Covering rate: the share of validation examples whose predicted label is a candidate.",
    record_key="val_covering_rate",
    measure=covering_rate,
    needs_labels=False,
    position=1,
)
