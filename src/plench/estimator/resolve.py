"""A model applied to candidate sets: resolved labels, doubtful sets, annotators, confused labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plench.data import as_dataset
from plench.data.answers import Answers
from plench.data.dataset import Dataset
from plench.data.roles import split_reference
from plench.data.sources.exports import is_export
from plench.data.sources.tables import TableContent, read_table_files
from plench.data.tables import Table, is_table_file
from plench.errors import DataError
from plench.estimator.inputs import hide_truth
from plench.training.model import TrainedModel

DOUBT = 0.5  # of the probability outside a set, beyond which the set probably misses the truth
Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Items:
    """Examples with candidate sets (N, K), and perhaps names and annotators' answers."""

    features: NDArray[Any] | Table
    candidates: NDArray[np.bool_]
    class_names: tuple[str, ...]
    answers: Answers | None = None
    names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Agreement:
    """How often an annotator's answer holds the resolved label, among the answers that name a class."""

    annotator: str
    n_answers: int
    share: float


@dataclass(frozen=True, eq=False)
class Resolution:
    """For each example: the resolved label, its probability among the candidates, the probability outside.

    `label` and `predicted` are numbers of classes; `predicted` is what the model says whatever the set.
    """

    label: NDArray[np.int64]
    probability: Reals
    predicted: NDArray[np.int64]
    outside: Reals
    agreements: tuple[Agreement, ...] = ()

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """Which sets probably miss the true label."""
        return self.outside > DOUBT


def read_items(reference: str, data_dir: str | None = None) -> Items:
    """Read examples with candidate sets: every row of a table, or any other dataset."""
    content = read_own_table(reference)
    if content is None:
        return items_of(hide_truth(as_dataset(reference, data_dir)))
    if content.is_generated:
        raise DataError(f"{reference} has neither candidates nor answers to resolve")
    assert content.features is not None
    return Items(content.features, content.candidates, content.class_names, content.answers, content.items)


def number_rows(reference: str, n_examples: int) -> list[int]:
    """Return the number of each example of a dataset among the rows that `read_items` gives, from 1."""
    content = read_own_table(reference)
    if content is None or content.split is None:
        return list(range(1, n_examples + 1))
    return [int(row) + 1 for row in np.flatnonzero(content.split != "test")]


def read_own_table(reference: str) -> TableContent | None:
    """Return the content of a table file with every row; None for any other dataset."""
    if not is_table_file(reference.partition("?")[0]) or is_export(reference):
        return None
    path, options = split_reference(reference)
    return read_table_files(Path(path), options)[0]


def items_of(data: Dataset) -> Items:
    """Take the examples of a dataset."""
    names = data.class_names or tuple(str(label) for label in range(data.n_classes))
    return Items(data.features, data.candidates, names, data.answers)


def resolve_items(model: TrainedModel, items: Items) -> Resolution:
    """Resolve examples with a model, whose classes are met by their names."""
    known = [str(label) for label in model.classes]
    place = {name: number for number, name in enumerate(known)}
    columns = np.array([place.get(name, -1) for name in items.class_names])
    candidates = spread(items.candidates, columns, len(known))
    empty = np.flatnonzero(~candidates.any(1))
    if len(empty):
        raise DataError(
            f"example {empty[0] + 1} has no candidate that the model knows ({len(empty):,} such); its "
            "classes are " + ", ".join(known[:10])
        )
    probs = model.predict_proba(items.features)
    label, probability = resolve_candidates(probs, candidates)
    outside = np.clip(1 - np.where(candidates, probs, 0).sum(1), 0.0, 1.0)
    agreements: list[Agreement] = []
    answers = items.answers
    if answers is not None:
        agrees = spread(answers.sets, columns, len(known))[np.arange(len(answers.sets)), label[answers.item]]
        # An answer that names only classes the model does not know counts: it is not the resolved label.
        sure = answers.sets.any(1)
        for number in np.unique(answers.annotator).tolist():
            own = sure & (answers.annotator == number)
            if own.any():
                name = answers.annotator_names[number] if answers.annotator_names else str(number)
                agreements.append(Agreement(name, int(own.sum()), float(agrees[own].mean())))
    return Resolution(label, probability, probs.argmax(1), outside, tuple(agreements))


def spread(sets: NDArray[np.bool_], columns: NDArray[np.int64], n_classes: int) -> NDArray[np.bool_]:
    """Return sets in the order of the model's classes; classes that it lacks are left out."""
    found = np.zeros((len(sets), n_classes), np.bool_)
    kept = columns >= 0
    found[:, columns[kept]] = sets[:, kept]
    return found


def resolve_candidates(probs: Reals, candidates: NDArray[Any]) -> tuple[NDArray[np.int64], Reals]:
    """Return the most probable candidate of each example, and its share; candidates may have weights."""
    share = np.where(candidates > 0, probs * candidates, 0.0)
    total = share.sum(1, keepdims=True)
    even = candidates / candidates.sum(1, keepdims=True)  # where no candidate has any probability
    share = np.where(total > 0, share / np.where(total > 0, total, 1), even)
    labels = share.argmax(1)
    return labels, share[np.arange(len(share)), labels]


def find_hardest(resolution: Resolution, most: int = 5) -> list[int]:
    """Return the examples whose resolved label is least probable."""
    return [int(row) for row in np.argsort(resolution.probability, kind="stable")[:most]]


def find_confused(probs: Reals, labels: NDArray[np.int64], most: int = 5) -> list[tuple[int, int, float]]:
    """Return pairs of classes, and the mean probability of the second where the first is resolved."""
    shares = np.zeros((probs.shape[1], probs.shape[1]))
    for label in np.unique(labels):
        shares[label] = probs[labels == label].mean(0)
    np.fill_diagonal(shares, 0)
    order = np.argsort(-shares, axis=None, kind="stable")[:most]
    pairs = zip(*np.unravel_index(order, shares.shape), strict=True)
    return [(int(i), int(j), float(shares[i, j])) for i, j in pairs if shares[i, j] > 0]
