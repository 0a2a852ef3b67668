"""What the trial seed decides: candidate sets for labelled data, and training, validation and test split.

Candidate sets are uniform (USS), by flipping (FPS) or instance-dependent (ID), with noise. Every generator
takes labels (N) and a numpy random generator and returns bool N×K. All are batched: no work per example in
Python.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike, NDArray

from plench.data.answers import weigh_by_votes
from plench.data.dataset import REAL_CANDIDATES, CandidateSpec, Dataset, check_labels, check_rate
from plench.data.encoding import TableEncoder
from plench.data.tables import Table
from plench.errors import DataError, UsageError
from plench.settings import CandidateWeights, Settings, declared, seed_hash

Rng = Generator | RandomState
# The thirds of the classes by their number of training examples, in the order of `Split.thirds`.
THIRDS = ("many", "medium", "few")


def choose_candidates(default: CandidateSpec, asked: Settings) -> CandidateSpec:
    """The card's default with what the user asked for on top: a type replaces it, rates adjust it."""
    if asked.pl_type is not None:
        default = CandidateSpec(asked.pl_type, drop_true_rate=default.drop_true_rate)
    rates = {name: getattr(asked, name) for name in ("fps_rate", "id_rate", "drop_true_rate")}
    return replace(default, **{name: rate for name, rate in rates.items() if rate is not None})


def draw_candidates(dataset: Dataset, spec: CandidateSpec, trial_seed: int) -> Dataset:
    """The dataset with the candidate sets that `spec` asks for. They depend on the trial seed only.

    `real` keeps the sets in the dataset. The generator and the dropping of true labels have random streams
    of their own, so a dropping rate changes nothing else.
    """
    if spec.pl_type == "real" and spec.drop_true_rate == 0:
        return dataset
    if dataset.labels is None:
        raise DataError(
            f"{dataset.card.name} has no true labels; expected pl_type real and no drop_true_rate"
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
        features = dataset.features
        if isinstance(features, Table):
            features, _ = TableEncoder.fit(features).encode(features)
        log_probs = fit_log_probs(features, labels, n_classes)
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


def weigh_candidates(
    dataset: Dataset, weights: CandidateWeights, candidates: CandidateSpec = REAL_CANDIDATES
) -> NDArray[np.float32] | None:
    """Return the weights (N, K) of the candidates, shares of the annotators' votes; None if uniform.

    They are positive on the candidates, 0 elsewhere, and sum to 1. Generated candidate sets have no votes.
    """
    if weights == "uniform":
        return None
    if dataset.answers is None:
        name = dataset.card.name
        raise DataError(f"{name} has no annotators' answers, which candidate_weights {weights} needs")
    if candidates != REAL_CANDIDATES:
        raise UsageError(
            f"candidate_weights {weights} needs the data's own candidate sets: pl_type real, not "
            f"{candidates.pl_type}, and no drop_true_rate"
        )
    return weigh_by_votes(dataset.candidates, dataset.answers)


def draw_uss(labels: ArrayLike, n_classes: int, rng: Rng) -> NDArray[np.bool_]:
    """Uniform sampling: every set that contains the label, except the full set, is equally likely.

    Each wrong label joins with probability ½, and full sets are drawn again: exact for any K, and with two
    classes the label alone remains.
    """
    labels = check_labels(labels, np.size(labels), n_classes, "generator")
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
    labels = check_labels(labels, np.size(labels), n_classes, "generator")
    if np.ndim(flips) == 0:
        probability: Any = check_rate(flips, "fps_rate")  # type: ignore[arg-type]
        return draw_flips(np.broadcast_to(probability, (len(labels), n_classes)), labels, rng)
    matrix = np.asarray(flips, dtype=np.float64)
    if matrix.shape != (n_classes, n_classes):
        raise UsageError(f"the flipping matrix must have shape {(n_classes, n_classes)}, not {matrix.shape}")
    wrong = ~((matrix >= 0) & (matrix <= 1))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        value = matrix[row, column]
        raise UsageError(f"entry ({row}, {column}) of the flipping matrix is {value}; expected 0 to 1")
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
    labels = check_labels(labels, np.size(labels), n_classes, "generator")
    dropped = rng.random(n_examples) < check_rate(rate, "drop_true_rate")
    offset = 1 + np.floor(rng.random(n_examples) * (n_classes - 1)).astype(np.int64)
    noisy = candidates.copy()
    noisy[dropped, labels[dropped]] = False
    empty = np.flatnonzero(~noisy.any(axis=1))
    noisy[empty, (labels[empty] + offset[empty]) % n_classes] = True
    return noisy


# The split.


@dataclass(frozen=True, eq=False)
class Split:
    """Indices into a dataset's examples; `test` is None where the dataset has a test set of its own.

    `thirds` (K,) says, where training was made long-tailed, to which of `THIRDS` each class belongs.
    """

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64] | None
    thirds: NDArray[np.int64] | None = None


def split_dataset(
    dataset: Dataset,
    trial_seed: int,
    test_fraction: float = Settings.tabular_test_fraction,
    holdout_fraction: float = Settings.holdout_fraction,
    imbalance: float | None = Settings.imbalance,
) -> Split:
    """Split by the protocol: shuffle, cut off the test part, shuffle the rest again, cut off validation.

    Both shuffles start from the same seed. A dataset with its own test set skips the first cut, one that says
    which rows are validation the second. Sizes are the protocol's floating-point expressions int(n·(1 − F))
    and int(m·H), to the letter. With groups, n and m count groups, which stay whole. A fraction of 0 leaves
    the part empty. With `imbalance` the training part is then made long-tailed; validation and test stay as
    they are.
    """
    declared()["tabular_test_fraction"].check(test_fraction)
    declared()["holdout_fraction"].check(holdout_fraction)
    n_examples = dataset.n_examples
    if dataset.test is not None and test_fraction != Settings.tabular_test_fraction:
        raise UsageError(
            f"tabular_test_fraction is {test_fraction}, but {dataset.card.name} has a test set of its own"
        )
    if dataset.validation is not None and holdout_fraction != Settings.holdout_fraction:
        raise UsageError(
            f"holdout_fraction is {holdout_fraction}, but {dataset.card.name} says which rows are validation"
        )
    given = np.zeros(n_examples, np.bool_) if dataset.validation is None else dataset.validation
    if dataset.groups is not None and np.isin(dataset.groups[given], dataset.groups[~given]).any():
        raise DataError(
            f"{dataset.card.name}: a group has rows in validation and outside; a group stays in one part"
        )
    kept, test = np.flatnonzero(~given), None
    if dataset.test is None:
        kept, test = cut(kept, dataset.groups, trial_seed, lambda n: int(n * (1 - test_fraction)))
    if dataset.validation is None:
        validation, train = cut(kept, dataset.groups, trial_seed, lambda n: int(n * holdout_fraction))
    else:
        validation, train = np.flatnonzero(given), kept
    split = Split(train=train, validation=validation, test=test)
    empty = {"training": len(train) == 0}
    empty["validation"] = len(validation) == 0 and holdout_fraction > 0
    empty["test"] = test is not None and len(test) == 0 and test_fraction > 0
    for part, is_empty in empty.items():
        if is_empty:
            what = "examples" if dataset.groups is None else "groups"
            raise DataError(
                f"{dataset.card.name} has too few {what} to split: of {n_examples}, with test fraction "
                f"{test_fraction} and holdout fraction {holdout_fraction} the {part} part is empty"
            )
    return split if imbalance is None else make_long_tailed(dataset, split, imbalance)


def make_long_tailed(dataset: Dataset, split: Split, imbalance: float) -> Split:
    """Return the split with fewer training examples of later classes.

    Class k keeps R^(−k/(K−1)) times the number of the first class, rounded, at least one and at most what it
    has: those that come first in the split's order, so that the trial seed alone decides which.
    """
    declared()["imbalance"].check(imbalance)
    if dataset.labels is None:
        raise UsageError(f"imbalance needs true labels, which {dataset.card.name} does not have")
    labels, classes = dataset.labels[split.train], np.arange(dataset.n_classes)
    counts = np.bincount(labels, minlength=len(classes))
    if counts[0] == 0:
        raise DataError(
            f"{dataset.card.name} cannot be made long-tailed: its training split has no example of the first "
            "class, whose number the others follow"
        )
    wanted = np.maximum(1, np.rint(counts[0] * imbalance ** (-classes / max(1, len(classes) - 1))))
    by_class = np.argsort(labels, kind="stable")
    place = np.empty_like(by_class)  # of an example among those of its class
    place[by_class] = np.arange(len(labels)) - (np.cumsum(counts) - counts)[labels[by_class]]
    most_first = np.argsort(-np.minimum(counts, wanted), kind="stable")
    thirds = np.empty(len(classes), dtype=np.int64)
    thirds[most_first] = np.arange(len(classes)) * len(THIRDS) // len(classes)
    if len(classes) == 2:
        thirds[most_first[1]] = 2  # of two classes the rare one has few, not medium
    return replace(split, train=split.train[place < wanted[labels]], thirds=thirds)


def cut(
    rows: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
    trial_seed: int,
    count: Callable[[int], int],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Shuffle rows and take the first `count(n)` of n, and the rest; with groups, whole groups."""
    units = np.arange(len(rows)) if groups is None else groups[rows]
    names, member = np.unique(units, return_inverse=True)
    order = np.arange(len(names))
    RandomState(seed_hash(int(trial_seed))).shuffle(order)  # int: NumPy's integers have another text to hash
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    sequence = np.argsort(place[member], kind="stable")
    is_first = place[member[sequence]] < count(len(names))
    return rows[sequence[is_first]], rows[sequence[~is_first]]
