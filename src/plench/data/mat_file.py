"""Partial-label data in a `.mat` file.

The variables are `data` (N×D), `partial_target` (K×N, 0 or 1) and, where true labels are known, `target`
(K×N, one 1 per column); each dense or sparse and of any real numeric type.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plench.data.mat5 import read_matrices
from plench.errors import DataError


@dataclass(frozen=True, eq=False)
class MatContent:
    """The arrays of a file: features N×D, candidates N×K, labels N (None where the file has none)."""

    features: NDArray[Any]
    candidates: NDArray[Any]
    labels: NDArray[np.int64] | None


def read_mat(content: bytes) -> MatContent:
    """Read the bytes of a `.mat` file; raise DataError where they are not what the format promises."""
    found = read_matrices(content, ("data", "partial_target", "target"))
    features, partial_target, target = (found.get(name) for name in ("data", "partial_target", "target"))
    if features is None or partial_target is None:
        names = ", ".join(sorted(found)[:10]) or "nothing"
        raise DataError(
            f"the file holds {names}; needed are the variables `data` and `partial_target`, "
            "and `target` for true labels"
        )
    for name, matrix in (("partial_target", partial_target), ("target", target)):
        if matrix is not None and matrix.shape[1] != len(features):
            raise DataError(
                f"`{name}` is {matrix.shape[0]}×{matrix.shape[1]}, but `data` has {len(features)} examples; "
                "allowed is K×N, classes × examples"
            )
    labels = None if target is None else _read_labels(target, n_classes=len(partial_target))
    return MatContent(features, partial_target.T, labels)


def _read_labels(target: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    if len(target) != n_classes:
        raise DataError(
            f"`target` has {len(target)} classes (rows) and `partial_target` {n_classes}; they must agree"
        )
    wrong = ((target != 0) & (target != 1)).any(axis=0) | ((target == 1).sum(axis=0) != 1)
    if wrong.any():
        raise DataError(
            f"`target` of example {np.flatnonzero(wrong)[0]} must be a single 1 among 0s "
            f"({wrong.sum()} of {target.shape[1]} examples are not)"
        )
    labels: NDArray[np.int64] = np.argmax(target != 0, axis=0).astype(np.int64)
    return labels
