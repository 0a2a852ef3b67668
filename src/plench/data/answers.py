"""Answers of several annotators to each item, and the candidate sets and weights made of them.

An answer is a set of classes: a label is a set of one, "not x" is all classes but x, and "unsure" is the
empty set, which votes for nothing. Shapes: N items, M answers, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plench.data.highest import check_highest
from plench.errors import DataError, UsageError

CombineRule = Literal["union", "vaguest", "votes"]
COMBINE_RULES: tuple[str, ...] = get_args(CombineRule)
DEFAULT_MIN_VOTES = 2


@dataclass(frozen=True, eq=False)
class Answers:
    """All M answers: `item` and `annotator` (M,) say to what and whose, `sets` (M, K) which classes.

    `lengths` (M,) is how many labels were listed; more than a set has, if a list repeats one.
    """

    item: NDArray[np.int64]
    annotator: NDArray[np.int64]
    sets: NDArray[np.bool_]
    n_items: int
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    annotator_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.lengths) != len(self.sets):
            object.__setattr__(self, "lengths", self.sets.sum(1))

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.sets.shape[1])

    def widen(self, n_classes: int) -> Answers:
        """The same answers where there are further classes, which nobody has named."""
        if n_classes <= self.n_classes:
            return self
        sets = np.pad(self.sets, ((0, 0), (0, n_classes - self.n_classes)))
        return replace(self, sets=sets)

    def take_items(self, rows: NDArray[np.int64]) -> Answers:
        """The answers to some of the items, which are numbered anew."""
        position = np.full(self.n_items, -1)
        position[rows] = np.arange(len(rows))
        kept = position[self.item] >= 0
        return Answers(
            position[self.item[kept]],
            self.annotator[kept],
            self.sets[kept],
            len(rows),
            self.lengths[kept],
            self.annotator_names,
        )


def count_votes(answers: Answers, first: int | None = None) -> NDArray[np.int64]:
    """Return how many answers have each class in their set (N, K), of all or of the first annotators."""
    votes = np.zeros((answers.n_items, answers.n_classes), np.int64)
    used = slice(None) if first is None else answers.annotator < first
    rows, labels = np.nonzero(answers.sets[used])
    np.add.at(votes, (answers.item[used][rows], labels), 1)
    return votes


def unite(answers: Answers, first: int | None = None) -> NDArray[np.bool_]:
    """Return the union (N, K) of the sets of all annotators, or of the first few."""
    return count_votes(answers, first) > 0


def pick_vaguest(answers: Answers) -> NDArray[np.bool_]:
    """Return the largest set (N, K) of each item, the first of equals; as published, the longest list."""
    candidates = np.zeros((answers.n_items, answers.n_classes), np.bool_)
    order = np.lexsort((answers.annotator, -answers.lengths, answers.item))
    items, first = np.unique(answers.item[order], return_index=True)
    candidates[items] = answers.sets[order[first]]
    return candidates


def require_votes(answers: Answers, min_votes: int) -> NDArray[np.bool_]:
    """Return the classes (N, K) with so many votes; where none has, those with the most."""
    votes = count_votes(answers)
    most = votes.max(1, keepdims=True)
    enough: NDArray[np.bool_] = (votes >= np.minimum(min_votes, most)) & (votes > 0)
    return enough


def combine_answers(
    answers: Answers, rule: str = "union", min_votes: int = DEFAULT_MIN_VOTES
) -> NDArray[np.bool_]:
    """Return one candidate set (N, K) per item; all classes, where nobody has voted for any."""
    if rule not in COMBINE_RULES:
        raise UsageError(f"combine is {rule!r}; allowed are {', '.join(COMBINE_RULES)}")
    if rule == "votes" and min_votes < 1:
        raise UsageError(f"min_votes is {min_votes!r}; allowed are whole numbers from 1")
    if rule == "union":
        candidates = unite(answers)
    elif rule == "vaguest":
        candidates = pick_vaguest(answers)
    else:
        candidates = require_votes(answers, min_votes)
    candidates[~candidates.any(1)] = True
    return candidates


def weigh_by_votes(candidates: NDArray[np.bool_], answers: Answers) -> NDArray[np.float32]:
    """Return each candidate's share (N, K) of the votes for its set; equal shares where there are none."""
    votes = np.where(candidates, count_votes(answers), 0).astype(np.float64)
    empty = votes.sum(1) == 0
    votes[empty] = candidates[empty]
    shares: NDArray[np.float32] = (votes / votes.sum(1, keepdims=True)).astype(np.float32)
    return shares


@dataclass(frozen=True)
class AnswerStats:
    """How annotators answered. Shares are of items with at least two answers, None if there are none.

    `agreement` is the share of equal ones among the pairs of answers to one item, `unanimous` the share of
    items whose answers are all equal, `common` the share of items with a class that is in every answer. An
    answer of "unsure" is counted, but agrees with nothing and is not asked for a common class.
    """

    n_answers: int
    n_annotators: int
    n_unsure: int
    answers_per_item: dict[int, int]
    answers_per_annotator: tuple[int, ...]
    set_sizes: dict[int, int]
    agreement: float | None
    unanimous: float | None
    common: float | None


def describe_answers(answers: Answers) -> AnswerStats:
    """Count answers by item and annotator, set sizes, and how far the annotators agree."""
    per_item = np.bincount(answers.item, minlength=answers.n_items)
    sizes = answers.sets.sum(1)
    sure = sizes > 0
    item, sets = answers.item[sure], answers.sets[sure]
    given = np.bincount(item, minlength=answers.n_items)
    several = given >= 2
    agreement = unanimous = common = None
    if several.any():
        keys = np.concatenate([item[:, None], np.packbits(sets, axis=1)], axis=1)
        same, counts = np.unique(keys, axis=0, return_counts=True)
        equal = np.bincount(same[:, 0], weights=counts * (counts - 1) / 2, minlength=answers.n_items)
        pairs = given * (given - 1) / 2
        agreement = float(equal.sum() / pairs.sum())
        unanimous = float((equal == pairs)[several].mean())
        common = float((count_votes(answers).max(1) == given)[several].mean())
    return AnswerStats(
        n_answers=len(item) + int((~sure).sum()),
        n_annotators=len(np.unique(answers.annotator)),
        n_unsure=int((~sure).sum()),
        answers_per_item=count_values(per_item),
        answers_per_annotator=tuple(int(n) for n in np.bincount(answers.annotator)),
        set_sizes=count_values(sizes),
        agreement=agreement,
        unanimous=unanimous,
        common=common,
    )


def count_values(values: NDArray[Any]) -> dict[int, int]:
    """Count how often each whole number occurs."""
    found, counts = np.unique(values, return_counts=True)
    return {int(value): int(count) for value, count in zip(found, counts, strict=True)}


def read_answer_matrix(matrix: ArrayLike, n_classes: int | None = None, name: str = "answers") -> Answers:
    """Read answers as an array: N×M of classes with −1 in gaps, or N×M×K of 0 and 1, gaps all 0.

    `n_classes` is needed where the largest class occurs in no answer.
    """
    array = np.asarray(matrix)
    if array.dtype.kind == "f" and array.ndim == 2:
        array = np.where(np.isnan(array), -1, array)
    if array.dtype.kind not in "fiub" or array.ndim not in (2, 3) or 0 in array.shape:
        raise DataError(
            f"{name} must be N×M classes with -1 in gaps, or N×M×K with 0 and 1, not {array.dtype} of shape "
            f"{array.shape}"
        )
    if array.ndim == 3:
        return _read_sets(array, name)
    wrong = (array != np.floor(array)) | (array < -1) | (array >= (n_classes or np.inf))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        largest = "" if n_classes is None else f"…{n_classes - 1}"
        raise DataError(
            f"{name}: the answer of annotator {column} to item {row} is {array[row, column]}; allowed are "
            f"classes 0{largest or ', 1, …'} and -1 for a gap"
        )
    item, annotator = np.nonzero(array >= 0)
    if len(item) == 0:
        raise DataError(f"{name} has nothing but gaps")
    if n_classes is None:
        check_highest(int(array.max()), len(item), name)
    labels = array[item, annotator].astype(np.int64)
    sets = labels[:, None] == np.arange(n_classes or max(2, int(labels.max()) + 1))
    return Answers(item, annotator, sets, len(array))


def _read_sets(array: NDArray[Any], name: str) -> Answers:
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        row, column, label = np.argwhere(wrong)[0]
        raise DataError(
            f"{name}: class {label} in the answer of annotator {column} to item {row} is "
            f"{array[row, column, label]}; allowed are 0 and 1"
        )
    sets = array != 0
    item, annotator = np.nonzero(sets.any(2))
    if len(item) == 0:
        raise DataError(f"{name} has nothing but gaps")
    return Answers(item, annotator, sets[item, annotator], len(array))


def number_annotators(names: Sequence[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Number annotators in the order of their names; return the number of each answer, and the names."""
    known = tuple(sorted(set(names)))
    number = {name: position for position, name in enumerate(known)}
    return np.fromiter((number[name] for name in names), np.int64, len(names)), known
