"""Probabilities and prediction sets calibrated on candidate sets of rows that were not trained on.

The promises are proved in docs/theory-estimates.md. With the score s(x, y) = 1 − p(y | x):

| promise | score of a row | what a prediction set contains with probability ≥ coverage |
|---|---|---|
| `truth_if_complete` | the largest of its candidates | the true label, if candidate sets are complete |
| `some_candidate` | the smallest of its candidates | some candidate, perhaps not the true label |
| `truth` | that of the true label | the true label |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax

from plench.errors import UsageError
from plench.training.model import TrainedModel

PROMISES = ("truth_if_complete", "some_candidate", "truth")
LEAST_LABELS = 30  # true labels, below which they do not replace candidate sets
TEMPERATURES = (0.1, 10.0)
MAX_SCORES = 5000  # rows whose scores a model keeps; drawn at random, they keep the promise

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """The calibration of probabilities and prediction sets.

    `scores` are sorted, by promise. `temperature` divides the logits; it is 1 where the fit reached a bound,
    and `is_calibrated` is False then. `source` says which rows it is from; on "cross-fitted" rows no promise
    holds exactly, since the model is not the one that was scored.
    """

    temperature: float
    is_calibrated: bool
    n: int
    source: str
    scores: dict[str, list[float]]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for files."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Calibration:
        """Rebuild from `to_json()`."""
        return cls(**content)

    def choose_promise(self, promise: str | None) -> str:
        """Return the promise that is asked for, or the best there is; raise UsageError if there is none."""
        if promise is None:
            return "truth" if "truth" in self.scores else "truth_if_complete"
        if promise not in PROMISES:
            raise UsageError(f"promise is {promise!r}; expected one of {', '.join(PROMISES)}")
        if promise not in self.scores:
            raise UsageError(
                f"the model is not calibrated for {promise!r}, but for {', '.join(self.scores)}; 'truth' "
                f"needs at least {LEAST_LABELS} true labels of rows chosen at random"
            )
        return promise

    def find_threshold(self, coverage: float, promise: str | None = None) -> float:
        """Return the largest score that a label of a prediction set may have, infinite if all belong to it.

        It is the ⌈(n + 1)·coverage⌉-th smallest of n scores, which is exact in finite samples.
        """
        if isinstance(coverage, bool) or not 0 < coverage < 1:
            raise UsageError(f"coverage is {coverage!r}; expected a number above 0 and below 1")
        scores = self.scores[self.choose_promise(promise)]
        # A fraction of the decimal number as it is written: 0.07·100 is 7.000000000000001 in floating point.
        rank = math.ceil(Fraction(repr(float(coverage))) * (len(scores) + 1))
        return scores[rank - 1] if rank <= len(scores) else math.inf

    def predict_sets(self, logits: Floats, coverage: float, promise: str | None = None) -> NDArray[np.bool_]:
        """Return prediction sets (n, K); one that is empty or has all classes is an abstention."""
        return np.asarray(1 - softmax(logits, axis=1) <= self.find_threshold(coverage, promise))


def calibrate(
    logits: Floats,
    candidates: NDArray[np.bool_],
    labels: NDArray[np.int64] | None = None,
    source: str = "given",
) -> Calibration:
    """Calibrate on the candidate sets of n rows, and on their true labels (all n) where there are any."""
    if len(logits) == 0:
        raise UsageError("calibration needs at least one row")
    if labels is not None and len(labels) < LEAST_LABELS:
        raise UsageError(f"calibration by true labels needs at least {LEAST_LABELS}; there are {len(labels)}")
    exact = None if labels is None else np.eye(logits.shape[1], dtype=np.bool_)[labels]
    temperature, is_inside = fit_temperature(logits, candidates if exact is None else exact)
    kept = np.random.default_rng(0).permutation(len(logits))[:MAX_SCORES]
    scores, sets = 1 - softmax(logits[kept], axis=1), candidates[kept]
    found = {
        "truth_if_complete": np.where(sets, scores, -np.inf).max(1),
        "some_candidate": np.where(sets, scores, np.inf).min(1),
    }
    if exact is not None:
        found["truth"] = scores[exact[kept]]
    return Calibration(
        temperature if is_inside else 1.0,
        is_inside,
        len(logits),
        source,
        {promise: np.sort(values).tolist() for promise, values in found.items()},
    )


def calibrate_by_truth(
    logits: Floats, labels: NDArray[np.int64], earlier: Calibration | None, source: str = "given"
) -> Calibration:
    """Calibrate on true labels of rows chosen at random, for the promise `truth`.

    They say nothing of candidate sets, so the other promises stay those of the earlier calibration, unless
    models of folds made it, for which no promise holds.
    """
    found = calibrate(logits, np.eye(logits.shape[1], dtype=np.bool_)[labels], labels, source)
    kept = {} if earlier is None or earlier.source == "cross-fitted" else earlier.scores
    return replace(found, scores={**kept, "truth": found.scores["truth"]})


def fit_temperature(
    logits: Floats, sets: NDArray[Any], bounds: tuple[float, float] = TEMPERATURES
) -> tuple[float, bool]:
    """Return the temperature of the largest partial likelihood, and whether it is inside the bounds.

    The likelihood of a set is the probability of its classes together; a set of one is an ordinary label.
    `sets` may also have the likelihood of any evidence for each class.
    """

    # Classical methods give some classes no probability at all; a likelihood of 0 could not be compared.
    relative = np.maximum(logits - logits.max(1, keepdims=True), -100.0)

    def loss(log_temperature: float) -> float:
        logs = log_softmax(relative / math.exp(log_temperature), axis=1)
        return float(-logsumexp(logs, axis=1, b=sets).mean())

    low, high = (math.log(bound) for bound in bounds)
    found = float(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-4}).x)
    # A likelihood that does not change with the temperature, as of full sets, says nothing about it.
    is_flat = abs(loss(low) - loss(high)) < 1e-9
    return math.exp(found), not is_flat and low + 0.01 < found < high - 0.01


def find_calibration(model: TrainedModel) -> Calibration:
    """Return the calibration that a model keeps; raise UsageError if it is not calibrated."""
    if "calibration" not in model.notes:
        raise UsageError(
            "the model is not calibrated: fit it with reserve=0.2 (on the command line --reserve), or call "
            "calibrate(X, S) with rows that it was not trained on; or label some: plench audit"
        )
    return Calibration.from_json(model.notes["calibration"])
