"""Training, validation and test split of a dataset, decided by the trial seed alone."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from plench.data.dataset import Dataset
from plench.errors import DataError, UsageError
from plench.settings import Settings, declared, seed_hash

# The thirds of the classes by their number of training examples, in the order of `Split.thirds`.
THIRDS = ("many", "medium", "few")


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
