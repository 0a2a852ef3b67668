"""A user's table as a dataset: features, candidate sets, answers, truth, split and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plench.data.answers import Answers, combine_answers, number_annotators
from plench.data.class_names import ClassList, Named, collect_names, split_names
from plench.data.dataset import Dataset, DatasetCard, TestSet
from plench.data.own_answers import AnswerReader, GivenAnswer, make_answers, require
from plench.data.raw_table import RawTable, shorten
from plench.data.table import Table, make_table, read_number
from plench.data.table_roles import TableOptions, find_roles
from plench.data.taxonomy import Taxonomy
from plench.errors import DataError

SPLITS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
}


@dataclass(frozen=True, eq=False)
class TableContent:
    """What a table holds, N items: all that a dataset is made of, before its own test set is taken out.

    `labels` has −1 where the truth is missing. `is_generated` says that there are no candidates. `items` are
    the names of the items, if they have any; `features` is None where the table describes items that are
    elsewhere, such as image files.
    """

    features: Table | None
    items: tuple[str, ...] | None
    candidates: NDArray[np.bool_]
    labels: NDArray[np.int64] | None
    class_names: tuple[str, ...]
    answers: Answers | None
    groups: NDArray[np.int64] | None
    split: NDArray[Any] | None
    notices: tuple[str, ...]
    is_generated: bool
    description: str


def read_content(
    table: RawTable,
    options: TableOptions,
    answers_table: RawTable | None = None,
    taxonomy: Taxonomy | None = None,
    has_features: bool = True,
) -> TableContent:
    """Read a table, perhaps with a second one of answers, one per row."""
    return _Reader(table, options, answers_table, taxonomy).read(has_features)


class _Reader:
    """Reads one table; rows are those of the file until the very end, so that errors can name them."""

    def __init__(
        self,
        table: RawTable,
        options: TableOptions,
        answers_table: RawTable | None,
        taxonomy: Taxonomy | None,
    ) -> None:
        self.table = table
        self.options = options
        self.answers_table = answers_table
        self.taxonomy = taxonomy
        self.roles = find_roles(table, options, answers_elsewhere=answers_table is not None)
        self.declared = frozenset(options.classes or (taxonomy.classes if taxonomy else ()))
        # The first row of each item, and the item of each row; one row is one item but in long tables.
        self.first = np.arange(len(table))
        self.item = np.arange(len(table))
        if self.roles.is_long:
            self.first, self.item = self.fold_items()
        self.notices: list[str] = []

    def read(self, has_features: bool) -> TableContent:
        """Read all of it."""
        roles, n_items = self.roles, len(self.first)
        features = self.read_features() if has_features else None
        truth = self.read_names(roles.truth)
        given = AnswerReader(
            self.table, self.options, roles, self.item, self.answers_table, self.declared
        ).read()
        sets = self.read_candidates(given is not None)
        classes = self.find_classes(truth, given, sets)
        answers = None if given is None else make_answers(given, classes, n_items)
        labels = None if roles.truth is None else self.encode_labels(truth, classes)
        if answers is not None:
            candidates = combine_answers(answers, self.options.combine, self.options.min_votes)
            silent = int((~np.isin(np.arange(n_items), answers.item[answers.sets.any(1)])).sum())
            if silent:
                self.notices.append(
                    f"{self.table.name}: {silent:,} of {n_items:,} items have no answer that names a class; "
                    "all "
                    "classes are their candidates"
                )
        elif roles.class_columns:
            candidates = self.read_class_columns(classes)
        elif sets is not None:
            candidates = classes.encode(sets)
        else:
            candidates = self.without_candidates(labels, len(classes.names))
        return TableContent(
            features=features,
            items=self.read_items(),
            candidates=candidates,
            labels=labels,
            class_names=classes.names,
            answers=answers,
            groups=self.read_groups(),
            split=self.read_split(),
            notices=tuple(self.notices),
            is_generated=answers is None and not roles.class_columns and sets is None,
            description=roles.describe(),
        )

    def read_features(self) -> Table:
        """Return the features, one row per item."""
        if not self.roles.features:
            raise DataError(f"{self.table.name} has no columns of features ({self.roles.describe()})")
        features, notices = make_table(self.table, self.roles.features)
        self.notices += notices
        self.check_same(features)
        return features[self.first] if self.roles.is_long else features

    def read_items(self) -> tuple[str, ...] | None:
        """Return the names of the items."""
        if self.roles.item is None:
            return None
        names = self.table.texts(self.roles.item)
        return tuple(names[row] or "" for row in self.first.tolist())

    def fold_items(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Number the items of a table with one answer per row, in the order in which they come up."""
        numbers: dict[str, int] = {}
        first: list[int] = []
        item = np.empty(len(self.table), np.int64)
        for row, name in enumerate(require(self.table, self.roles.item)):
            if name not in numbers:
                numbers[name] = len(first)
                first.append(row)
            item[row] = numbers[name]
        return np.array(first), item

    def check_same(self, features: Table) -> None:
        """Raise DataError where two rows of one item have different features."""
        if not self.roles.is_long:
            return
        before = self.first[self.item]
        for column in features.columns:
            same = (column.values == column.values[before]) | (column.missing & column.missing[before])
            if not same.all():
                row = int(np.flatnonzero(~same)[0])
                raise DataError(
                    f"{self.table.place(row + 1, column.name)}: differs from row {before[row] + 1} of the "
                    "same "
                    "item; the rows of an item have one set of features"
                )

    def read_names(self, column: str | None) -> list[Named | None]:
        """Return a column's names, one per item; the rows of an item must agree."""
        if column is None:
            return []
        texts = self.table.texts(column)
        first = self.first.tolist()
        for row, item in enumerate(self.item.tolist()):
            if texts[row] != texts[first[item]]:
                raise DataError(
                    f"{self.table.place(row + 1, column)}: {shorten(texts[row])}, and "
                    f"{shorten(texts[first[item]])} in row {first[item] + 1} of the same item"
                )
        named: list[Named | None] = []
        for row in first:
            text = texts[row]
            named.append(None if text is None else Named((text,), self.table, row + 1, column))
        return named

    def read_candidates(self, has_answers: bool) -> list[Named] | None:
        """Return the names in the candidates column."""
        column = self.roles.candidates
        if column is None or has_answers:
            return None
        sets = []
        for row, cell in enumerate(self.table.cells(column), 1):
            if cell is None:
                raise DataError(
                    f"{self.table.place(row, column)}: the candidate set is empty; allowed are labels "
                    "separated "
                    f"by {self.options.separator!r}"
                )
            sets.append(split_names(self.table, cell, row, column, self.options.separator))
        return sets

    def find_classes(
        self, truth: list[Named | None], given: list[GivenAnswer] | None, sets: list[Named] | None
    ) -> ClassList:
        """Return the classes: as declared, of the taxonomy, by columns, or all that are named."""
        if self.options.classes:
            names: Sequence[str] = self.options.classes
            if len(set(names)) != len(names):
                raise DataError(f"classes names one class twice: {', '.join(names)}")
        elif self.taxonomy is not None:
            names = self.taxonomy.classes
        elif self.roles.class_columns:
            names = tuple(self.roles.class_columns)
        else:
            cells = [*(cell for cell in truth if cell), *(sets or []), *(g.answer for g in given or [])]
            if not cells:
                raise DataError(
                    f"{self.table.name} has neither candidates nor answers nor truth "
                    f"({self.roles.describe()}); "
                    "call a column candidates, or name it with candidates=COLUMN"
                )
            names = collect_names(cells)
        return ClassList(self.table.name, names, len(self.table), self.taxonomy)

    def read_class_columns(self, classes: ClassList) -> NDArray[np.bool_]:
        """Return candidates from columns of 0 and 1."""
        candidates = np.zeros((len(self.table), len(classes.names)), np.bool_)
        for name, column in self.roles.class_columns.items():
            label = classes.find_label(Named((name,), self.table, 0, column))
            for row, cell in enumerate(self.table.cells(column)):
                candidates[row, label] = self.read_bit(cell, row, column)
        empty = np.flatnonzero(~candidates.any(1))
        if len(empty):
            names = ", ".join(list(self.roles.class_columns.values())[:5])
            raise DataError(
                f"{self.table.name}: row {empty[0] + 1} has 0 in every column of a class ({names} …); a "
                "candidate set is not empty"
            )
        return candidates

    def read_bit(self, cell: Any, row: int, column: str) -> bool:
        """Read 0 or 1."""
        value = {"true": 1.0, "false": 0.0}.get(str(cell).lower())
        if value is None and isinstance(cell, str | int | float):
            value = read_number(cell)
        if value not in (0.0, 1.0):
            raise DataError(f"{self.table.place(row + 1, column)}: {shorten(cell)}; allowed are 0 and 1")
        return value == 1.0

    def without_candidates(self, labels: NDArray[np.int64] | None, n_classes: int) -> NDArray[np.bool_]:
        """Return sets of the label alone, until candidates are drawn."""
        if labels is None or (labels < 0).any():
            where = (
                "" if labels is None else f" (row {self.first[np.flatnonzero(labels < 0)[0]] + 1} has none)"
            )
            raise DataError(
                f"{self.table.name} has neither candidates nor the truth of every row, from which they "
                "could be "
                f"generated{where}"
            )
        single: NDArray[np.bool_] = labels[:, None] == np.arange(n_classes)
        return single

    def encode_labels(self, truth: list[Named | None], classes: ClassList) -> NDArray[np.int64]:
        """Return the true labels, −1 where they are missing."""
        labels = np.full(len(self.first), -1, np.int64)
        for number, cell in enumerate(truth):
            if cell is not None:
                labels[number] = classes.find_label(cell)
        return labels

    def read_groups(self) -> NDArray[np.int64] | None:
        """Return the group of each item."""
        if self.roles.group is None:
            return None
        require(self.table, self.roles.group)
        names = [cell.names[0] for cell in self.read_names(self.roles.group) if cell is not None]
        return number_annotators(names)[0]

    def read_split(self) -> NDArray[Any] | None:
        """Return the part that each item is in: train, validation or test."""
        if self.roles.split is None:
            return None
        parts = []
        for cell, row in zip(self.read_names(self.roles.split), self.first, strict=True):
            text = "train" if cell is None else cell.names[0]
            if text.lower() not in SPLITS:
                raise DataError(
                    f"{self.table.place(int(row) + 1, self.roles.split)}: {shorten(text)}; allowed are "
                    "train, "
                    "validation and test"
                )
            parts.append(SPLITS[text.lower()])
        return np.array(parts)


def assemble(
    content: TableContent, card: DatasetCard, features: NDArray[Any] | Table | None = None
) -> Dataset:
    """Make the dataset. Items of the split `test` become its own test set, if their truth is known.

    `features` are those of the items, where the table has none.
    """
    features = content.features if features is None else features
    assert features is not None
    n_items, notices = len(content.candidates), list(content.notices)
    is_test = np.zeros(n_items, np.bool_) if content.split is None else content.split == "test"
    kept = np.flatnonzero(~is_test)
    if len(kept) == 0:
        raise DataError(f"{card.name}: every row is of the split test; some must be of train")
    check_group_parts(content, card.name)
    labels, test = content.labels, None
    if is_test.any():
        if labels is None or (labels[is_test] < 0).any():
            notices.append(
                f"{card.name}: {is_test.sum():,} rows of the split test have no truth to compare with and "
                "are "
                "left out"
            )
        else:
            test = TestSet(features[is_test], labels[is_test])
    if labels is not None:
        labels = labels[kept]
        unknown = np.flatnonzero(labels < 0)
        if len(unknown) == len(labels):
            labels = None
        elif len(unknown):
            notices.append(
                f"{card.name}: the truth of {len(unknown):,} rows is missing, so accuracy is measured on "
                f"{'its own test set only' if test is not None else 'nothing'}"
            )
            labels = None
    if content.is_generated:
        notices.insert(0, describe_generated(card))
    validation = None
    if content.split is not None and (content.split == "validation").any():
        validation = content.split[kept] == "validation"
    return Dataset(
        features[kept],
        content.candidates[kept],
        labels,
        replace(card, class_names=content.class_names),
        test,
        tuple(notices),
        groups=None if content.groups is None else content.groups[kept],
        validation=validation,
        answers=None if content.answers is None else content.answers.take_items(kept),
    )


def describe_generated(card: DatasetCard) -> str:
    """Say that candidate sets are generated."""
    rate = f" {card.candidates.fps_rate}" if card.candidates.fps_rate is not None else ""
    return (
        f"{card.name} has no candidate sets of its own: they are generated from its labels (by default "
        f"{card.candidates.pl_type}{rate}), so results show what a method does with such sets"
    )


def check_group_parts(content: TableContent, name: str) -> None:
    """Raise DataError where a group is in two parts of the split."""
    if content.groups is None or content.split is None:
        return
    seen: dict[int, str] = {}
    for row, (group, part) in enumerate(zip(content.groups.tolist(), content.split.tolist(), strict=True), 1):
        if seen.setdefault(group, part) != part:
            raise DataError(
                f"{name}: the group of item {row} has items in {seen[group]} and in {part}; a group stays "
                "in one"
            )
