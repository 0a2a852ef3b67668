"""The largest number of classes allowed: one wrong number or a column of free text could fill all memory."""

from __future__ import annotations

from plench.errors import DataError

FEW_CLASSES = 1_000  # always allowed; beyond that
MAX_CELLS = 2**27  # examples × classes, and at most ten classes per example


def allowed_classes(n_labels: int) -> int:
    """Return how many classes so many labels can have."""
    return max(FEW_CLASSES, min(10 * n_labels, MAX_CELLS // n_labels))


def check_highest(highest: int, n_labels: int, name: str) -> None:
    """Raise DataError where the highest label stands for more classes than so many labels can have."""
    allowed = allowed_classes(n_labels)
    if highest >= allowed:
        raise DataError(
            f"{name}: the highest label is {highest}; with {n_labels:,} examples {allowed:,} classes "
            "are allowed. Number the classes 0, 1, …"
        )
