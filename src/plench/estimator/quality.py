"""How good a classifier is: criteria with intervals, and what they say of its accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from plench.criteria import score_approximated, score_covering
from plench.errors import UsageError

DRAWS = 2000  # of the bootstrap
CONFIDENCE = 0.95

COVERED = "every candidate set holds the true label (then accuracy is at most CR)"
ALIKE = "every wrong label is a candidate with the same probability, that of the mean set size"


@dataclass(frozen=True)
class Estimate:
    """A figure from `n` examples, with a 95 % confidence interval (`confidence`) of what it estimates."""

    value: float
    low: float
    high: float
    n: int
    confidence: float = CONFIDENCE

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Quality:
    """What held-out candidate sets tell: the criteria, and accuracy under the stated assumptions.

    `accuracy` is (CR − c)/(1 − c) of docs/theory.md, where c is the probability with which a wrong label is a
    candidate; None where every set holds every class. `chosen_by` is the criterion that chose the model on
    these very examples, if any, by which that criterion is somewhat too high. `refitted` says that the model
    was then trained once more on all data: the figures are those of the model before.
    """

    CR: Estimate
    AA: Estimate
    accuracy: Estimate | None
    assumptions: tuple[str, ...] = (COVERED, ALIKE)
    chosen_by: str | None = None
    refitted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for files."""
        return {
            "CR": vars(self.CR),
            "AA": vars(self.AA),
            "accuracy": None if self.accuracy is None else vars(self.accuracy),
            "assumptions": list(self.assumptions),
            "chosen_by": self.chosen_by,
            "refitted": self.refitted,
        }

    def __str__(self) -> str:
        lines = [f"CR {self.CR}, AA {self.AA} on {self.CR.n:,} held-out examples"]
        if self.accuracy is not None:
            lines.append(f"accuracy {self.accuracy}, if " + " and ".join(self.assumptions))
        if self.chosen_by is not None:
            lines.append(f"the model was chosen by {self.chosen_by} on these examples, which flatters it")
        if self.refitted:
            lines.append("measured before the model was trained once more on all data")
        return "\n".join(lines)


def score_examples(logits: ArrayLike, candidates: ArrayLike) -> dict[str, NDArray[np.float64]]:
    """Return what each example adds to CR and AA: their means are the criteria."""
    covered = score_covering(logits, candidates).astype(np.float64)
    return {"CR": covered, "AA": score_approximated(logits, candidates)}


def estimate_quality(
    scores: Mapping[str, NDArray[np.float64]],
    candidates: NDArray[np.bool_],
    chosen_by: str | None = None,
    seed: int = 0,
) -> Quality:
    """Estimate criteria and accuracy with percentile bootstrap intervals over the held-out examples.

    One example with 0 and one with 1 are drawn from besides: without them the interval of a criterion that is
    1 on each of ten examples would have no width.
    """
    n, n_classes = candidates.shape
    spare = (candidates.sum(1) - 1) / (n_classes - 1)  # its mean is c
    ends = {"CR": (0.0, 1.0), "AA": (0.0, 1.0), "spare": (spare.mean(),) * 2}
    values = {"CR": scores["CR"], "AA": scores["AA"], "spare": spare}
    table = np.stack([np.append(values[name], ends[name]) for name in values])
    stream = np.random.default_rng(seed)  # one draw at a time: all of them would be 2000 times the examples
    drawn = np.stack([table.take(stream.integers(n + 2, size=n), axis=1).mean(1) for _ in range(DRAWS)])
    means = dict(zip(values, drawn.T, strict=True))
    found = {name: make_interval(float(values[name].mean()), means[name], n) for name in ("CR", "AA")}
    accuracy = None
    if spare.mean() < 1:
        value = float(recover_accuracy(scores["CR"].mean(), spare.mean()))
        accuracy = make_interval(value, recover_accuracy(means["CR"], means["spare"]), n)
    return Quality(found["CR"], found["AA"], accuracy, chosen_by=chosen_by)


def recover_accuracy(covering_rate: Any, chance: Any) -> Any:
    """Return (CR − c)/(1 − c), within 0 and 1."""
    chance = np.minimum(chance, 1 - 1e-9)
    return np.clip((covering_rate - chance) / (1 - chance), 0.0, 1.0)


def bound_accuracy(covering_rate: Estimate, ambiguity: float) -> tuple[float, float]:
    """Return the bounds of accuracy where the ambiguity degree γ is known, from the interval of CR.

    Every set must hold the true label. Then CR − ACC is between 0 and (1 − ACC)·γ.
    """
    if not 0 <= ambiguity < 1:
        raise UsageError(f"ambiguity is {ambiguity!r}; expected a number from 0 and below 1")
    low = (covering_rate.low - ambiguity) / (1 - ambiguity)
    return max(0.0, low), covering_rate.high


def make_interval(value: float, drawn: NDArray[np.float64], n: int) -> Estimate:
    """Return a figure with the percentile interval of what draws gave."""
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, min(float(low), value), max(float(high), value), n)


def estimate_share(n_right: int, n: int) -> Estimate:
    """Return a share with its exact (Clopper–Pearson) interval."""
    interval = stats.binomtest(n_right, n).proportion_ci(CONFIDENCE, "exact")
    return Estimate(n_right / n, float(interval.low), float(interval.high), n)
