"""How good a classifier is, from candidate sets of rows it was not trained on: agreement first, then what is
certain of its accuracy, then what assumptions say of it. Formulas and proofs are in docs/theory-estimates.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from plench.criteria import score_approximated, score_covering
from plench.data.dataset import check_rate
from plench.errors import UsageError

DRAWS = 2000  # of the bootstrap
CONFIDENCE = 0.95

COMPLETE = "if every candidate set contains the true label"
UNIFORM = "if every wrong label is a candidate equally often (uniform distractors)"
CONFUSABLE = (
    "if a wrong prediction is a candidate as often as the runner-up label is (confusable distractors)"
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A figure from `n` rows, with a 95 % confidence interval (`confidence`) of what it estimates."""

    value: float
    low: float
    high: float
    n: int
    confidence: float = CONFIDENCE

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Quality:
    """What the candidate sets of rows that were not trained on tell of a classifier.

    Attributes
    ----------
    CR, AA : Estimate
        Covering rate and approximated accuracy.
    chance : float
        The covering rate of a uniform guess: the mean share of the classes that are candidates.
    certain : Estimate
        Accuracy is between `low` and `high` if sets are complete, or miss the truth with probability
        `noise_rate` at most. The interval includes sampling error; `value` is its middle and nothing more.
    uniform, confusable : Estimate or None
        Accuracy within that range under a further assumption; None where the sets say nothing.
    truth : Estimate or None
        Accuracy on the rows whose true label is known.
    own_test : Estimate or None
        Accuracy on the data's own test set.
    noise_rate : float
        The stated share of sets that miss the truth.
    source : str
        Which rows: "reserved", "cross-fitted", "held-out" (they chose the model too) or "given".
    chosen_by : str or None
        The criterion that chose the model on these very rows, if any, which flatters it.
    refitted : bool
        Whether the model was trained once more on all rows after this was measured.
    """

    CR: Estimate
    AA: Estimate
    chance: float
    certain: Estimate
    uniform: Estimate | None
    confusable: Estimate | None
    truth: Estimate | None = None
    own_test: Estimate | None = None
    noise_rate: float = 0.0
    source: str = "given"
    chosen_by: str | None = None
    refitted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for files."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Quality:
        """Rebuild from `to_json()`."""
        values: dict[str, Any] = {
            key: Estimate(**value) if isinstance(value, dict) else value for key, value in content.items()
        }
        return cls(**values)

    def __str__(self) -> str:
        kind = {"cross-fitted": "rows, each by a model not trained on it", "given": "rows"}
        rows = f"{self.CR.n:,} {kind.get(self.source, self.source + ' rows')}"
        complete = COMPLETE
        if self.noise_rate:
            complete = f"if at most {self.noise_rate:.1%} of the sets miss the true label"
        lines = [
            f"the prediction is a candidate (CR): {self.CR} on {rows}; a random guess: {self.chance:.3f}",
            f"its share of the candidates' probability (AA): {self.AA}",
            f"certain {complete}: accuracy from {self.certain.low:.3f} to {self.certain.high:.3f}",
        ]
        for estimate, assumption in ((self.uniform, UNIFORM), (self.confusable, CONFUSABLE)):
            shown = "the sets do not tell" if estimate is None else f"accuracy {estimate}"
            lines.append(f"assumed, {assumption}: {shown}")
        if self.truth is not None:
            lines.append(f"measured with true labels: accuracy {self.truth} on {self.truth.n:,} rows")
        if self.own_test is not None:
            test = f"accuracy {self.own_test} on {self.own_test.n:,} rows"
            lines.append(f"measured on the data's own test set: {test}")
        if self.chosen_by is not None:
            lines.append(f"the model was chosen by {self.chosen_by} on these rows, which flatters it")
        if self.refitted:
            lines.append("measured before the model was trained once more on all data")
        return "\n".join(lines)


def score_examples(logits: ArrayLike, candidates: ArrayLike) -> dict[str, Floats]:
    """Return what each example adds to CR and AA, whose means these are, and to the other estimates.

    `exact`: the set is the prediction alone. `runner_up`: the second most probable label is a candidate.
    """
    scores, sets = np.array(logits, dtype=np.float64), np.asarray(candidates, dtype=bool)
    covered, share = score_covering(scores, sets).astype(np.float64), score_approximated(scores, sets)
    scores[np.arange(len(scores)), scores.argmax(1)] = -np.inf
    runner_up = score_covering(scores, sets).astype(np.float64)
    return {"CR": covered, "AA": share, "exact": covered * (sets.sum(1) == 1), "runner_up": runner_up}


def estimate_quality(
    scores: Mapping[str, Floats],
    candidates: NDArray[np.bool_],
    *,
    right: Floats | None = None,
    units: NDArray[np.int64] | None = None,
    noise_rate: float = 0.0,
    **about: Any,
) -> Quality:
    """Estimate criteria and accuracy.

    `scores` are those of `score_examples`; `right` has 1 where the prediction is the true label, 0 where it
    is another and NaN where the truth is unknown. Rows of one unit (group, item) are not independent:
    intervals count units. Rates have exact intervals. The others are percentile intervals of a bootstrap that
    also draws from two made-up rows, one that agrees and one that does not, so that ten rows that all agree
    do not give an interval of no width. `about` are further fields of `Quality`.
    """
    noise_rate = check_rate(noise_rate, "noise_rate")
    n, n_classes = candidates.shape
    size = candidates.sum(1).astype(np.float64)
    covering, exact = (estimate_rate(scores[name], units) for name in ("CR", "exact"))
    low, high = max(0.0, exact.low - noise_rate), min(1.0, covering.high + noise_rate)
    inner = max(0.0, exact.value - noise_rate), min(1.0, covering.value + noise_rate)
    columns = np.stack([scores["CR"], scores["AA"], size, scores["runner_up"]])
    made_up = np.array([[0, 0, size.mean(), 1], [1, 1, size.mean(), 0]]).T
    means = draw_means(columns, made_up, units)
    value = columns.mean(1)

    def wrong_covered(mean: Floats) -> tuple[Any, Any]:
        """Return with which probability a wrong prediction is a candidate, by either assumption."""
        return (mean[2] - 1 + noise_rate) / (n_classes - 1), mean[3]

    assumed: list[Estimate | None] = []
    for ours, drawn in zip(wrong_covered(value), wrong_covered(means), strict=True):
        if ours >= 1 - noise_rate:  # a wrong prediction is as often a candidate as a right one
            assumed.append(None)
            continue
        found = make_interval(
            float(recover_accuracy(value[0], ours, noise_rate)),
            recover_accuracy(means[0], drawn, noise_rate),
            n,
        )
        ends = np.clip([found.low, found.high], low, high).tolist()
        assumed.append(Estimate(float(np.clip(found.value, *inner)), ends[0], ends[1], n))
    truth = None
    if right is not None and (known := np.isfinite(right)).any():
        truth = estimate_rate(right[known], None if units is None else units[known])
    return Quality(
        CR=covering,
        AA=make_interval(float(value[1]), means[1], n),
        chance=float(size.mean() / n_classes),
        certain=Estimate((low + high) / 2, low, high, n),
        uniform=assumed[0],
        confusable=assumed[1],
        truth=truth,
        noise_rate=noise_rate,
        **about,
    )


def recover_accuracy(covering_rate: Any, wrong_covered: Any, noise_rate: float = 0.0) -> Any:
    """Return the a of CR = a·(1 − ε) + (1 − a)·q, within 0 and 1."""
    rest = np.maximum(1 - noise_rate - wrong_covered, 1e-9)
    return np.clip((covering_rate - wrong_covered) / rest, 0.0, 1.0)


def draw_means(columns: Floats, made_up: Floats, units: NDArray[np.int64] | None) -> Floats:
    """Return bootstrap draws (m, DRAWS) of the means of columns (m, n); whole units are drawn."""
    table = np.vstack([columns, np.ones(columns.shape[1])])
    if units is not None:
        member = np.unique(units, return_inverse=True)[1]
        table = np.stack([np.bincount(member, weights=each) for each in table])
    weight = table[-1].mean()
    extra = np.vstack([made_up, np.ones(made_up.shape[1])]) * weight
    n_units, table = table.shape[1], np.hstack([table, extra])
    stream = np.random.default_rng(0)  # one draw at a time: all of them would be 2000 times the rows
    sums = np.stack(
        [table.take(stream.integers(table.shape[1], size=n_units), axis=1).sum(1) for _ in range(DRAWS)]
    )
    return np.asarray(sums.T[:-1] / sums.T[-1])


def bound_accuracy(covering_rate: Estimate, ambiguity: float) -> tuple[float, float]:
    """Return the bounds of accuracy where the ambiguity degree γ is known, from the interval of CR.

    Every set must contain the true label. Then CR − ACC is between 0 and (1 − ACC)·γ.
    """
    if not 0 <= ambiguity < 1:
        raise UsageError(f"ambiguity is {ambiguity!r}; expected a number from 0 and below 1")
    low = (covering_rate.low - ambiguity) / (1 - ambiguity)
    return max(0.0, low), covering_rate.high


def make_interval(value: float, drawn: Floats, n: int) -> Estimate:
    """Return a figure with the percentile interval of what draws gave."""
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, min(float(low), value), max(float(high), value), n)


def estimate_rate(hits: ArrayLike, units: NDArray[np.int64] | None = None) -> Estimate:
    """Return the mean of zeros and ones with its exact interval.

    Where several rows are of one unit, the interval is that of as many independent rows as vary as much
    (Korn and Graubard).
    """
    values = np.asarray(hits, dtype=np.float64)
    n, share = len(values), float(values.mean())
    effective = float(n)
    if units is not None:
        member = np.unique(units, return_inverse=True)[1]
        n_units = int(member.max()) + 1
        if n_units < n:
            effective = float(n_units)  # all or nothing: nothing is known of the variance within units
            if n_units > 1 and 0 < share < 1:
                deviations = np.bincount(member, weights=values - share)
                variance = (deviations**2).sum() * n_units / (n_units - 1) / n**2
                reduced = stats.t.ppf(0.975, n - 1) / stats.t.ppf(0.975, n_units - 1)
                effective = min(float(n), share * (1 - share) / variance * reduced**2)
    return replace(estimate_share(share * effective, effective), value=share, n=n)


def estimate_share(n_right: float, n: float) -> Estimate:
    """Return a share with its exact (Clopper–Pearson) interval."""
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if n_right <= 0 else float(stats.beta.ppf(tail, n_right, n - n_right + 1))
    high = 1.0 if n_right >= n else float(stats.beta.ppf(1 - tail, n_right + 1, n - n_right))
    return Estimate(n_right / n, low, high, int(n))
