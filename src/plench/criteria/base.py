"""What a model-selection criterion is, and the arithmetic the criteria share.

Criteria are functions of validation `logits` (N×K). Only differences within a row matter, so
log-probabilities serve just as well. Everything is computed in float64 and in log space.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Measure = Callable[[ArrayLike, ArrayLike, ArrayLike | None], float | None]


@dataclass(frozen=True)
class Criterion:
    """One way to choose a checkpoint and a configuration from validation figures.

    `measure(logits, candidates, labels)` gives the figure that training writes under `record_key`; it is None
    when the criterion needs true labels and there are none. Without `early_stopping` only the last
    checkpoint of a run counts. `position` is its place in tables.
    `public_defect` says what is wrong with the figure in the public benchmark's records, if anything.
    """

    name: str
    title: str
    meaning: str
    record_key: str
    measure: Measure
    needs_labels: bool
    position: int
    early_stopping: bool = True
    higher_is_better: bool = True
    public_defect: str = ""


def as_logits(logits: ArrayLike) -> NDArray[np.float64]:
    """Return logits as float64, N×K."""
    return np.asarray(logits, dtype=np.float64)


def mean_or_nan(values: NDArray[Any], logits: NDArray[np.float64]) -> float:
    """Average over examples; a NaN or +inf logit makes the figure NaN, since argmax means nothing then."""
    if np.isnan(logits).any() or np.isposinf(logits).any():
        return float("nan")
    return float(np.mean(values))
