"""Candidate sets for labelled data: uniform (USS), by flipping (FPS), instance-dependent (ID), and noise.

Every generator takes labels (N) and a numpy random generator and returns bool N×K. All are batched: no work
per example in Python.
"""

import math
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike, NDArray

from plench.errors import DataError, UsageError
from plench.seeds import seed_hash
from plench.settings import DEFAULT_FPS_RATE, DEFAULT_ID_RATE, PartialLabelType, Settings

if TYPE_CHECKING:  # a card holds a CandidateSpec, so dataset.py imports this module
    from plench.data.dataset import Dataset
    from plench.data.table import Table

PARTIAL_LABEL_TYPES: tuple[str, ...] = get_args(PartialLabelType)

Rng = Generator | RandomState


def check_rate(value: float, name: str) -> float:
    """Return a probability as a float; raise UsageError where it is not a number from 0 to 1."""
    try:
        rate = float(value)
    except (TypeError, ValueError):
        rate = math.nan
    if not 0.0 <= rate <= 1.0:
        raise UsageError(f"{name} is {value!r}; allowed are numbers from 0 to 1")
    return rate


@dataclass(frozen=True)
class CandidateSpec:
    """How candidate sets are made: the data's own or generated ones, and how often the true label is dropped.

    `fps_rate` belongs to `fps` (default 0.3) and `id_rate` to `id` (default 0.4). A rate given for another
    type is refused, so that nothing is accepted and ignored.
    """

    pl_type: PartialLabelType = "real"
    fps_rate: float | None = None
    id_rate: float | None = None
    drop_true_rate: float = 0.0

    def __post_init__(self) -> None:
        if self.pl_type not in PARTIAL_LABEL_TYPES:
            allowed = ", ".join(PARTIAL_LABEL_TYPES)
            raise UsageError(f"unknown pl_type {self.pl_type!r}: allowed are {allowed}")
        for owner, default in (("fps", DEFAULT_FPS_RATE), ("id", DEFAULT_ID_RATE)):
            name = f"{owner}_rate"
            value = getattr(self, name)
            if self.pl_type != owner and value is not None:
                raise UsageError(f"{name} is only for pl_type {owner}; pl_type is {self.pl_type}")
            if self.pl_type == owner:
                object.__setattr__(self, name, check_rate(default if value is None else value, name))
        object.__setattr__(self, "drop_true_rate", check_rate(self.drop_true_rate, "drop_true_rate"))


REAL_CANDIDATES = CandidateSpec()


def choose_candidates(default: CandidateSpec, asked: Settings) -> CandidateSpec:
    """The card's default with what the user asked for on top: a type replaces it, rates adjust it."""
    if asked.pl_type is not None:
        default = CandidateSpec(asked.pl_type, drop_true_rate=default.drop_true_rate)
    return replace(
        default,
        fps_rate=default.fps_rate if asked.fps_rate is None else asked.fps_rate,
        id_rate=default.id_rate if asked.id_rate is None else asked.id_rate,
        drop_true_rate=default.drop_true_rate if asked.drop_true_rate is None else asked.drop_true_rate,
    )


def draw_candidates(dataset: "Dataset", spec: CandidateSpec, trial_seed: int) -> "Dataset":
    """The dataset with the candidate sets that `spec` asks for. They depend on the trial seed only.

    `real` keeps the sets in the dataset. The generator and the dropping of true labels have random streams
    of their own, so a dropping rate changes nothing else.
    """
    if spec.pl_type == "real" and spec.drop_true_rate == 0:
        return dataset
    if dataset.labels is None:
        raise DataError(
            f"{dataset.card.name} has no true labels, which pl_type uss, fps, id and drop_true_rate need; "
            "allowed is pl_type real"
        )
    labels, n_classes = dataset.labels, dataset.n_classes
    stream = RandomState(seed_hash(int(trial_seed), "candidates"))
    if spec.pl_type == "uss":
        candidates = draw_uss(labels, n_classes, stream)
    elif spec.pl_type == "fps":
        assert spec.fps_rate is not None
        candidates = draw_fps(labels, n_classes, spec.fps_rate, stream)
    elif spec.pl_type == "id":
        assert spec.id_rate is not None
        log_probs = fit_log_probs(as_numbers(dataset.features), labels, n_classes)
        candidates = draw_flips(compute_id_flips(log_probs, labels, spec.id_rate), labels, stream)
    else:
        candidates = dataset.candidates
    superclasses = dataset.card.superclasses
    if superclasses is not None and spec.pl_type != "real":
        superclass = np.asarray(superclasses)
        candidates = candidates & (superclass[labels][:, None] == superclass)
    if spec.drop_true_rate > 0:
        stream = RandomState(seed_hash(int(trial_seed), "drop_true"))
        candidates = drop_true(candidates, labels, spec.drop_true_rate, stream)
    return dataset.with_candidates(candidates)


def draw_uss(labels: ArrayLike, n_classes: int, rng: Rng) -> NDArray[np.bool_]:
    """Uniform sampling: every set that contains the label, except the full set, is equally likely.

    Each wrong label joins with probability ½, and full sets are drawn again: exact for any K, and with two
    classes the label alone remains.
    """
    labels = _check_label_range(labels, n_classes)
    candidates = np.zeros((len(labels), n_classes), dtype=np.bool_)
    rows = np.arange(len(labels))
    while len(rows):
        drawn = rng.random((len(rows), n_classes)) < 0.5
        drawn[np.arange(len(rows)), labels[rows]] = True
        candidates[rows] = drawn
        rows = rows[drawn.all(axis=1)]
    return candidates


def draw_fps(labels: ArrayLike, n_classes: int, flips: float | ArrayLike, rng: Rng) -> NDArray[np.bool_]:
    """Flipping probabilities: wrong label j joins the set of an example of class i independently.

    `flips` is one probability for all, or a K×K matrix whose entry (i, j) is that probability (its diagonal
    is not used: the label is always in its set). Nothing is redrawn, so the full set may come up.
    """
    labels = _check_label_range(labels, n_classes)
    if np.ndim(flips) == 0:
        probability: Any = check_rate(flips, "fps_rate")  # type: ignore[arg-type]
        return draw_flips(np.broadcast_to(probability, (len(labels), n_classes)), labels, rng)
    matrix = np.asarray(flips, dtype=np.float64)
    if matrix.shape != (n_classes, n_classes):
        raise UsageError(
            f"the flipping matrix has shape {matrix.shape}; allowed is {n_classes}×{n_classes} (classes)"
        )
    wrong = ~((matrix >= 0) & (matrix <= 1))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise UsageError(
            f"entry ({row}, {column}) of the flipping matrix is {matrix[row, column]}; "
            "allowed are numbers from 0 to 1"
        )
    return draw_flips(matrix[labels], labels, rng)


def draw_flips(flips: NDArray[Any], labels: NDArray[Any], rng: Rng) -> NDArray[np.bool_]:
    """Put each label into the set with its own probability (N×K), and the true label always."""
    candidates = rng.random(flips.shape) < flips
    candidates[np.arange(len(labels)), labels] = True
    return candidates


def compute_id_flips(log_probs: NDArray[Any], labels: NDArray[Any], rate: float) -> NDArray[np.float64]:
    """Instance-dependent flipping probabilities (N×K) from an auxiliary classifier's log-probabilities.

    The true label's probability is set to 0, the row is divided by its maximum, then by its mean over all K
    classes, times `rate`, capped at 1. The logarithm keeps rows whose wrong labels all underflow.
    """
    rows = np.arange(len(labels))
    scores = np.array(log_probs, dtype=np.float64)
    scores[rows, labels] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    probs: NDArray[np.float64] = np.minimum(weights / weights.mean(axis=1, keepdims=True) * rate, 1.0)
    return probs


def fit_log_probs(features: NDArray[Any], labels: NDArray[Any], n_classes: int) -> NDArray[np.float64]:
    """Fit the auxiliary classifier on the clean labels and return its log-probabilities (N×K).

    It is a logistic regression on standardised features, fitted in one thread so that the outcome does not
    depend on how many there are. A class that no example has gets probability 0.
    """
    from sklearn.exceptions import ConvergenceWarning  # imported late: it is slow, and few runs need it
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    present = np.unique(labels)
    if len(present) < 2:
        raise DataError("instance-dependent candidates need examples of at least two classes")
    if features.ndim == 4:
        features = shrink_images(features)
    flat = features.reshape(len(features), -1).astype(np.float64)
    flat -= flat.mean(axis=0)
    flat /= flat.std(axis=0) + 1e-6
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # any sensible classifier will do
        model = LogisticRegression(max_iter=200).fit(flat, labels)
    log_probs = np.full((len(labels), n_classes), -np.inf)
    log_probs[:, present] = model.predict_log_proba(flat)
    return log_probs


def as_numbers(features: "NDArray[Any] | Table") -> NDArray[Any]:
    """Return features as an array; the columns of a table are encoded by what all rows show."""
    if isinstance(features, np.ndarray):
        return features
    from plench.data.encoding import TableEncoder

    return TableEncoder.fit(features).encode(features)[0]


def shrink_images(images: NDArray[Any]) -> NDArray[np.float32]:
    """Average blocks of pixels until at most 8×8 remain: a linear classifier has no use for more."""
    n_examples, channels, height, width = images.shape
    block = -(-max(height, width) // 8)
    rows, columns = max(1, height // block), max(1, width // block)
    high, wide = min(block, height), min(block, width)
    cut = images[:, :, : rows * high, : columns * wide]
    blocks = cut.reshape(n_examples, channels, rows, high, columns, wide)
    means: NDArray[np.float32] = blocks.mean(axis=(3, 5), dtype=np.float32)
    return means


def drop_true(candidates: NDArray[np.bool_], labels: ArrayLike, rate: float, rng: Rng) -> NDArray[np.bool_]:
    """Remove the true label from its set with probability `rate`: label noise.

    A set that would become empty gets one wrong label instead, drawn uniformly.
    """
    n_examples, n_classes = candidates.shape
    labels = _check_label_range(labels, n_classes)
    dropped = rng.random(n_examples) < check_rate(rate, "drop_true_rate")
    offset = 1 + np.floor(rng.random(n_examples) * (n_classes - 1)).astype(np.int64)
    noisy = candidates.copy()
    noisy[dropped, labels[dropped]] = False
    empty = np.flatnonzero(~noisy.any(axis=1))
    noisy[empty, (labels[empty] + offset[empty]) % n_classes] = True
    return noisy


def _check_label_range(labels: ArrayLike, n_classes: int) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(f"labels must be a list of integers, not {array.dtype} of shape {array.shape}")
    if n_classes < 2:
        raise DataError(f"at least two classes are needed, not {n_classes}")
    wrong = np.flatnonzero((array < 0) | (array >= n_classes))
    if len(wrong):
        raise DataError(
            f"the label of example {wrong[0]} is {array[wrong[0]]}; allowed are 0…{n_classes - 1}"
        )
    return array.astype(np.int64, copy=False)
