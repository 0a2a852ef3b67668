"""Whether a model is of use: compared with simple baselines, on rows that it was not trained on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from plench.data import Dataset
from plench.data.answers import count_votes
from plench.estimator.calibration import LEAST_LABELS
from plench.estimator.folds import Rows, fit_folds, number_units
from plench.estimator.quality import CONFIDENCE, Estimate, Floats, Quality
from plench.estimator.search import TrainingData
from plench.training.model import TrainedModel

GOOD, DOUBTFUL, GUESSING = "good", "doubtful", "no better than guessing"
CONSTANT = "constant class"
RANDOM = "random guess"
ALL, ONE, MAJORITY = (
    f"logistic regression on {what}" for what in ("all candidates", "one random candidate", "majority vote")
)
MAX_CELLS = 10**7  # of the features that a baseline is fitted to: beyond, rows are drawn

RULES = f"""\
{GUESSING}: on rows not trained on, the agreement is not above that of the best guess (a constant class, or
any class at random) by more than sampling error, at 95 % confidence.
{DOUBTFUL}: it is, but a logistic regression is ahead by more than sampling error, or the candidate sets leave
open whether the accuracy is above that of a guess.
{GOOD}: otherwise.
Agreement is the covering rate, or accuracy where at least {LEAST_LABELS} of the rows have a true label."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Rows that were not trained on: what the model and the baselines say of them, and what is known of them.

    `labels` has −1 where the truth is unknown; `baselines` are predicted labels by name.
    """

    rows: Rows
    logits: Floats
    baselines: Mapping[str, NDArray[np.int64]]
    candidates: NDArray[np.bool_]
    labels: NDArray[np.int64]
    units: NDArray[np.int64] | None
    source: str

    @property
    def right(self) -> Floats:
        """1 where the model predicts the true label, 0 where not, NaN where it is unknown."""
        return np.where(self.labels < 0, np.nan, self.logits.argmax(1) == self.labels)


@dataclass(frozen=True)
class Baseline:
    """The agreement of a baseline, and by how much the model's is higher on the same rows."""

    name: str
    agreement: float
    advantage: Estimate


@dataclass(frozen=True)
class Verdict:
    """A verdict with its reasons; `measure` says what agreement is: CR or accuracy."""

    verdict: str
    reasons: tuple[str, ...]
    measure: str
    agreement: Estimate
    baselines: tuple[Baseline, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for files."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Verdict:
        """Rebuild from `to_json()`."""
        baselines = (
            Baseline(each["name"], each["agreement"], Estimate(**each["advantage"]))
            for each in content["baselines"]
        )
        agreement = Estimate(**content["agreement"])
        reasons = tuple(content["reasons"])
        return cls(content["verdict"], reasons, content["measure"], agreement, tuple(baselines))


def gather_evidence(
    data: TrainingData,
    truth: NDArray[np.int64] | None,
    model: TrainedModel,
    trained: TrainingData,
    reserved: Rows,
    seed: int,
    entry: Any = None,
) -> Evidence:
    """Predict the reserved rows of `data` by a model of the others (`trained`), or all rows by folds.

    Baselines are fitted to the rows that the model was trained on.
    """
    dataset = data.dataset
    rows, parts = reserved, iter([(model, trained, reserved)])
    if not len(reserved):
        rows = np.arange(dataset.n_examples)
        folds = fit_folds(data, model, seed=seed, entry=entry)
        parts = ((fold.model, data.take(fold.trained).repeated(), fold.left_out) for fold in folds)
    logits = np.zeros(dataset.candidates.shape)
    baselines: dict[str, NDArray[np.int64]] = {}
    for own, learned, left_out in parts:
        features = dataset.features[left_out]
        logits[left_out] = own.predict_logits(features)
        for name, labels in predict_baselines(own, learned.dataset, features, seed).items():
            baselines.setdefault(name, np.zeros(dataset.n_examples, np.int64))[left_out] = labels
    units = number_units(dataset)
    return Evidence(
        rows,
        logits[rows],
        {name: labels[rows] for name, labels in baselines.items()},
        dataset.candidates[rows],
        np.full(len(rows), -1) if truth is None else truth[rows],
        units[rows] if units.max() + 1 < len(units) else None,
        "reserved" if len(reserved) else "cross-fitted",
    )


def predict_baselines(
    model: TrainedModel, trained: Dataset, features: Any, seed: int
) -> dict[str, NDArray[np.int64]]:
    """Return what baselines, fitted to the rows `trained`, predict for others, as the model encodes them."""
    random = np.random.default_rng(seed)
    if trained.n_examples * model.n_inputs > MAX_CELLS:
        n_rows = max(1, MAX_CELLS // model.n_inputs)
        trained = trained.take(np.sort(random.permutation(trained.n_examples)[:n_rows]))
    X, new, sets = model.encode(trained.features), model.encode(features), trained.candidates
    rows, labels = np.nonzero(sets)
    votes = np.zeros(sets.shape) if trained.answers is None else count_votes(trained.answers)
    voted = np.flatnonzero(votes.any(1))
    one = np.where(sets, random.random(sets.shape), 0).argmax(1)
    most = (votes + random.random(votes.shape) / 2).argmax(1)  # ties are broken at random
    found = {
        CONSTANT: np.full(len(new), sets.sum(0).argmax()),
        ALL: fit_logistic(X[rows], labels, 1 / sets.sum(1)[rows], new),
        ONE: fit_logistic(X, one, None, new),
    }
    if len(voted):
        found[MAJORITY] = fit_logistic(X[voted], most[voted], None, new)
    return found


def fit_logistic(X: Any, y: NDArray[np.int64], weights: Floats | None, new: Any) -> NDArray[np.int64]:
    """Fit a logistic regression and predict other rows; of a single class, say that class."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(y)) == 1:
        return np.full(len(new), y[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(LogisticRegression(max_iter=200).fit(X, y, weights).predict(new))


def judge(evidence: Evidence, quality: Quality) -> Verdict:
    """Return the verdict by `RULES`."""
    known = np.flatnonzero(evidence.labels >= 0)
    n_classes = evidence.candidates.shape[1]
    target, rows, measure = evidence.candidates, np.arange(len(evidence.rows)), "CR"
    if len(known) >= LEAST_LABELS:
        target, rows, measure = np.eye(n_classes, dtype=bool)[evidence.labels], known, "accuracy"
    units = None if evidence.units is None else evidence.units[rows]
    ours = target[rows, evidence.logits[rows].argmax(1)].astype(np.float64)
    others = {RANDOM: target[rows].mean(1)}
    for name, labels in evidence.baselines.items():
        others[name] = target[rows, labels[rows]].astype(np.float64)
    baselines = [
        Baseline(name, float(hits.mean()), estimate_difference(ours - hits, units))
        for name, hits in others.items()
    ]
    guesses = [each for each in baselines if each.name in (RANDOM, CONSTANT)]
    best = max(guesses, key=lambda each: each.agreement)
    ahead = [each for each in baselines if each not in guesses and each.advantage.high < 0]
    agreement = quality.truth if measure == "accuracy" else quality.CR
    assert agreement is not None
    reasons = []
    verdict = DOUBTFUL
    words = {"CR": "covering rate (how often the prediction is a candidate)", "accuracy": "accuracy"}[measure]
    compared = f"its {words} is {agreement}, that of the best guess ({best.name}) {best.agreement:.3f}"
    if min(each.advantage.low for each in guesses) <= 0:
        verdict = GUESSING
        reasons.append(compared)
    elif ahead:
        rival = min(ahead, key=lambda each: each.advantage.high)
        reasons.append(f"its {words} is {agreement}, that of {rival.name} {rival.agreement:.3f}")
    if verdict == DOUBTFUL and measure == "CR":
        lowest = min((0.0 if each is None else each.low) for each in (quality.uniform, quality.confusable))
        if lowest <= 1 / n_classes:
            reasons.append(
                f"the candidate sets leave open whether the accuracy is above 1/{n_classes}, that of a "
                f"guess: by one assumption it may be {lowest:.3f}"
            )
    if not reasons:
        verdict = GOOD
        reasons.append(compared)
    return Verdict(verdict, tuple(reasons), measure, agreement, tuple(baselines))


def estimate_difference(differences: Floats, units: NDArray[np.int64] | None) -> Estimate:
    """Return the mean of paired differences with its interval, which two made-up rows, 1 and −1, widen."""
    n = len(differences)
    padded = np.append(differences, (1.0, -1.0))
    member = np.arange(n + 2)
    if units is not None:
        own = np.unique(units, return_inverse=True)[1]
        member = np.append(own, own.max() + np.array([1, 2]))
    deviations = np.bincount(member, weights=padded - padded.mean())
    n_units = len(deviations)
    error = np.sqrt((deviations**2).sum() * n_units / (n_units - 1)) / (n + 2)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n_units - 1) * error)
    value = float(differences.mean())
    return Estimate(value, value - half, value + half, n)
