"""Model-selection criteria: pure functions of validation logits, candidates and (for the oracle ones) labels.

One file here is one criterion: a module with a constant `CRITERION`. It is found by itself.
"""

import re

from numpy.typing import ArrayLike

from plench.criteria.base import Criterion
from plench.criteria.oracle_accuracy import accuracy
from plench.discovery import find_members
from plench.names import find_name, normalise

__all__ = ["Criterion", "accuracy", "criteria", "find_criterion", "measure_all"]


_found = find_members(
    __name__, "criterion", lambda value: value.name if isinstance(value, Criterion) else None
)

criteria: dict[str, Criterion] = dict(sorted(_found.items(), key=lambda item: (item[1].position, item[0])))


def find_criterion(name: str) -> Criterion:
    """Return the criterion a user means: `cr`, `OA w/ ES`, `OA with ES` and `oa_es` all work."""
    short = re.sub(r"\bwith\b|\band\b|w/|&", " ", name.lower())
    if normalise(short) in map(normalise, criteria):
        name = short
    return criteria[find_name(name, criteria, "criterion")]


def measure_all(
    logits: ArrayLike, candidates: ArrayLike, labels: ArrayLike | None
) -> dict[str, float | None]:
    """Measure every criterion on one set of validation logits, by the key under which records keep it."""
    figures: dict[str, float | None] = {}
    for criterion in criteria.values():
        if criterion.record_key not in figures:
            figures[criterion.record_key] = criterion.measure(logits, candidates, labels)
    return figures
