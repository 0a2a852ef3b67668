"""Training, validation and test split of a dataset, decided by the trial seed alone."""

from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from plench.data.dataset import Dataset
from plench.errors import DataError, UsageError
from plench.seeds import seed_hash
from plench.settings import Settings, declared


@dataclass(frozen=True, eq=False)
class Split:
    """Indices into a dataset's examples; `test` is None where the dataset has a test set of its own."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64] | None


def split_dataset(
    dataset: Dataset,
    trial_seed: int,
    test_fraction: float = Settings.tabular_test_fraction,
    holdout_fraction: float = Settings.holdout_fraction,
) -> Split:
    """Split by the protocol: shuffle, cut off the test part, shuffle the rest again, cut off validation.

    Both shuffles start from the same seed. A dataset with its own test set skips the first cut. Sizes are
    the protocol's floating-point expressions int(n·(1 − F)) and int(m·H), to the letter.
    """
    declared()["tabular_test_fraction"].check(test_fraction)
    declared()["holdout_fraction"].check(holdout_fraction)
    n_examples = dataset.n_examples
    if dataset.test is not None and test_fraction != Settings.tabular_test_fraction:
        raise UsageError(
            f"tabular_test_fraction is {test_fraction}, but {dataset.card.name} has a test set of its own"
        )
    if dataset.test is None:
        order = _shuffle(n_examples, trial_seed)
        n_kept = int(n_examples * (1 - test_fraction))
        kept, test = order[:n_kept], order[n_kept:]
    else:
        kept, test = np.arange(n_examples), None
    inner = _shuffle(len(kept), trial_seed)
    n_validation = int(len(kept) * holdout_fraction)
    split = Split(train=kept[inner[n_validation:]], validation=kept[inner[:n_validation]], test=test)
    for part, index in (("training", split.train), ("validation", split.validation), ("test", split.test)):
        if index is not None and len(index) == 0:
            raise DataError(
                f"{dataset.card.name} has too few examples to split: of {n_examples}, with test fraction "
                f"{test_fraction} and holdout fraction {holdout_fraction} the {part} part is empty"
            )
    return split


def _shuffle(n: int, trial_seed: int) -> NDArray[np.int64]:
    order = np.arange(n)
    RandomState(seed_hash(int(trial_seed))).shuffle(order)  # int: NumPy's integers have another text to hash
    return order
