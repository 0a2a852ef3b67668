"""Small datasets for the checks: ordinary ones and odd ones. Labels are drawn at random, so that nothing
an algorithm learns within a few updates can equal them by merit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from plench.data import Dataset, DatasetCard

Sets = Literal["mixed", "ambiguous", "single", "full"]

FEATURES = 6
IMAGE_SHAPE = (3, 8, 8)
# Four batches of 16: an epoch of a few updates.
TRAIN_SIZE = 64
CLASSES = 5


def make_examples(
    train_size: int = TRAIN_SIZE,
    num_classes: int = CLASSES,
    sets: Sets = "mixed",
    *,
    images: bool = False,
    without_candidate: int | None = None,
    without_label: int | None = None,
) -> Dataset:
    """Make a dataset whose training split has `train_size` examples.

    `mixed` sets have single, full and ambiguous ones among them; `ambiguous` sets hold the label and at least
    one other. The class `without_candidate` is in no set, the class `without_label` is no example's label.
    """
    random = np.random.default_rng(20)
    n = total_size(train_size)
    absent = [k for k in (without_candidate, without_label) if k is not None]
    labels = random.choice([k for k in range(num_classes) if k not in absent], n)
    candidates = draw_sets(random, labels, num_classes, sets)
    if without_candidate is not None:
        candidates[:, without_candidate] = False
    features: np.ndarray
    if images:
        features = random.integers(0, 256, (n, *IMAGE_SHAPE), dtype=np.uint8)
    else:
        features = random.normal(size=(n, FEATURES)).astype(np.float32)
    card = DatasetCard(
        name="Contract",
        kind="image" if images else "tabular",
        task="checks of the contract",
        source="drawn at random",
        terms="none",
        citation="none",
        default_steps=1,
    )
    return Dataset(features, candidates, labels, card)


def draw_sets(random: np.random.Generator, labels: np.ndarray, num_classes: int, sets: Sets) -> np.ndarray:
    """Draw candidate sets (n, K) that contain the labels."""
    n = len(labels)
    single = labels[:, None] == np.arange(num_classes)
    full = np.ones_like(single)
    other = (labels + random.integers(1, num_classes, n)) % num_classes
    ambiguous = single | (other[:, None] == np.arange(num_classes)) | (random.random((n, num_classes)) < 0.3)
    if sets == "mixed":
        kind = random.integers(0, 4, n)[:, None]
        mixed: np.ndarray = np.where(kind == 0, single, np.where(kind == 1, full, ambiguous))
        return mixed
    drawn: dict[Sets, np.ndarray] = {"single": single, "full": full, "ambiguous": ambiguous}
    return drawn[sets]


@dataclass(frozen=True)
class GivenAnswers:
    """Answers of annotators: to which item, whose, and which classes."""

    item: np.ndarray
    annotator: np.ndarray
    sets: np.ndarray
    n_items: int


def answer_by_candidates(candidates: np.ndarray) -> GivenAnswers:
    """Let an annotator for each class name it where it is a candidate."""
    item, label = np.nonzero(candidates)
    return GivenAnswers(item, label, label[:, None] == np.arange(candidates.shape[1]), len(candidates))


def total_size(train_size: int) -> int:
    """Return the size of a dataset whose training split by the protocol has `train_size` examples."""
    for n in range(train_size, 2 * train_size + 10):
        kept = int(n * (1 - 0.1))
        validation = int(kept * 0.1)
        if validation and kept - validation == train_size:
            return n
    raise ValueError(f"no dataset has a training split of {train_size} examples")
