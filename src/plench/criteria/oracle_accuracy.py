"""Oracle accuracy (OA): validation accuracy on true labels, at the last checkpoint."""

import numpy as np
from numpy.typing import ArrayLike

from plench.criteria.base import Criterion, as_logits, mean_or_nan


def accuracy(logits: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean of [argmax f = y]."""
    scores = as_logits(logits)
    return mean_or_nan(scores.argmax(axis=1) == np.asarray(labels), scores)


def oracle_accuracy(logits: ArrayLike, candidates: ArrayLike, labels: ArrayLike | None) -> float | None:
    """Return the accuracy on true labels, or None where there are none. Candidates are not used."""
    return None if labels is None else accuracy(logits, labels)


CRITERION = Criterion(
    name="OA",
    title="OA",
    meaning="Oracle accuracy: validation accuracy on true labels, at the last checkpoint of each run.",
    record_key="val_accuracy",
    measure=oracle_accuracy,
    needs_labels=True,
    position=3,
    early_stopping=False,
)
