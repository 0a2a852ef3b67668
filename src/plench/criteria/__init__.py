"""Model-selection criteria: pure functions of validation logits, candidates and (for the oracle ones) labels.

One file here is one criterion: a module with a constant `CRITERION`. It is found by itself.
"""

import importlib
import pkgutil
import re

from numpy.typing import ArrayLike

from plench.criteria.base import Criterion
from plench.criteria.oracle_accuracy import accuracy
from plench.errors import PlenchError
from plench.names import find_name, normalise

__all__ = ["Criterion", "accuracy", "criteria", "find_criterion", "measure_all"]


def _discover() -> dict[str, Criterion]:
    """Import every module beside this one and collect its criterion, in the order of tables."""
    found: dict[str, Criterion] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        criterion = getattr(module, "CRITERION", None)
        if criterion is None:
            continue
        if normalise(criterion.name) in map(normalise, found):
            raise PlenchError(
                f"criterion {criterion.name!r} is defined twice; the second time in {module.__file__}"
            )
        found[criterion.name] = criterion
    return {c.name: c for c in sorted(found.values(), key=lambda c: (c.position, c.name))}


criteria: dict[str, Criterion] = _discover()


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
