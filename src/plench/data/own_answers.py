"""Reading the annotators' answers of a user's table: one per row, one column per annotator, or lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plench.data.answers import Answers, number_annotators
from plench.data.class_names import ClassList, Named, read_answer
from plench.data.raw_table import RawTable, clean_cell, shorten
from plench.data.table_roles import Roles, TableOptions, find_roles
from plench.errors import DataError


@dataclass(frozen=True)
class GivenAnswer:
    """One answer as it was read: to which item (counted from 0), whose, and what."""

    item: int
    annotator: str
    answer: Named


class AnswerReader:
    """Reads the answers of one table; `item` is the item of each of its rows."""

    def __init__(
        self,
        table: RawTable,
        options: TableOptions,
        roles: Roles,
        item: NDArray[np.int64],
        answers_table: RawTable | None,
        declared: frozenset[str],
    ) -> None:
        self.table = table
        self.options = options
        self.roles = roles
        self.item = item
        self.answers_table = answers_table
        self.declared = declared

    def read(self) -> list[GivenAnswer] | None:
        """Return the annotators' answers, from wherever they are; None where there are none."""
        roles = self.roles
        sources = {
            "one answer per row": roles.is_long,
            "a file of answers": self.answers_table is not None,
            "columns of annotators": bool(roles.annotators),
            "a column of lists": roles.answers is not None,
            "candidates": roles.candidates is not None or bool(roles.class_columns),
        }
        present = [name for name, there in sources.items() if there]
        if len(present) > 1:
            raise DataError(
                f"{self.table.name} has {present[0]} and {present[1]}; the candidate sets come from one of "
                "them: "
                "leave the other out with ignore=COLUMN"
            )
        if roles.is_long:
            assert roles.answer is not None
            given = self.read_long(self.table, roles, self.item)
        elif self.answers_table is not None:
            given = self.read_answers_table(self.answers_table)
        elif roles.annotators:
            given = self.read_wide()
        elif roles.answers is not None:
            given = self.read_lists(roles.answers)
        else:
            return None
        if not given:
            raise DataError(f"{self.table.name}: there is not one answer")
        return given

    def read_cell(self, table: RawTable, cell: Any, row: int, column: str) -> Named:
        """Read one answer."""
        return read_answer(table, cell, row, column, self.options.separator, self.declared)

    def read_long(
        self, table: RawTable, roles: Roles, item: Sequence[int] | NDArray[Any]
    ) -> list[GivenAnswer]:
        """Read answers that are one per row; an annotator answers an item once."""
        assert roles.answer is not None
        assert roles.annotator is not None
        annotators = require(table, roles.annotator)
        rows: dict[tuple[int, str], int] = {}
        given = []
        for row, cell in enumerate(table.cells(roles.answer)):
            if cell is None:
                continue
            key = (int(item[row]), annotators[row])
            if key in rows:
                raise DataError(
                    f"{table.place(row + 1, roles.annotator)}: {shorten(annotators[row])} has answered this "
                    "item "
                    f"in row {rows[key] + 1}; allowed is one answer of an annotator to an item (a set of "
                    f"labels is written a{self.options.separator}b)"
                )
            rows[key] = row
            given.append(GivenAnswer(*key, self.read_cell(table, cell, row + 1, roles.answer)))
        return given

    def read_answers_table(self, table: RawTable) -> list[GivenAnswer]:
        """Read answers from a file of their own, which names items as the first table does."""
        if self.roles.item is None:
            raise DataError(
                f"{self.table.name} has no column that names its items as {table.name} does; call it item, "
                "or "
                "name it with item=COLUMN"
            )
        numbers: dict[str, int] = {}
        for row, name in enumerate(require(self.table, self.roles.item)):
            if name in numbers:
                raise DataError(
                    f"{self.table.place(row + 1, self.roles.item)}: {shorten(name)} is in row "
                    f"{numbers[name] + 1} as well; an item has one row"
                )
            numbers[name] = row
        item_of = TableOptions(annotator=self.options.annotator, answer=self.options.answer)
        roles = find_roles(table, item_of)
        if not roles.is_long:
            raise DataError(
                f"{table.name} must have columns item, annotator and label, one answer per row; it has "
                f"{', '.join(table.columns)}"
            )
        assert roles.item is not None
        item = []
        for row, name in enumerate(require(table, roles.item), 1):
            if name not in numbers:
                raise DataError(
                    f"{table.place(row, roles.item)}: {self.table.name} has no item {shorten(name)}"
                )
            item.append(numbers[name])
        return self.read_long(table, roles, item)

    def read_wide(self) -> list[GivenAnswer]:
        """Read answers from one column per annotator, with gaps."""
        columns = {name: self.table.cells(column) for name, column in self.roles.annotators.items()}
        return [
            GivenAnswer(
                row, name, self.read_cell(self.table, cells[row], row + 1, self.roles.annotators[name])
            )
            for row in range(len(self.table))
            for name, cells in columns.items()
            if cells[row] is not None
        ]

    def read_lists(self, column: str) -> list[GivenAnswer]:
        """Read answers from a column of lists; the first of each list are one annotator's, and so on."""
        given = []
        for row, cell in enumerate(self.table.cells(column)):
            if cell is None:
                continue
            answers = cell
            if isinstance(cell, str):
                answers = cell.split(self.options.answer_separator)
            elif not isinstance(cell, list | tuple | np.ndarray):
                raise DataError(
                    f"{self.table.place(row + 1, column)}: {shorten(cell)} is no list of answers; allowed "
                    "are "
                    f"lists, and answers separated by {self.options.answer_separator!r}"
                )
            for number, raw in enumerate(answers, 1):
                answer = clean_cell(raw)
                if answer is not None:
                    named = self.read_cell(self.table, answer, row + 1, column)
                    given.append(GivenAnswer(row, f"{number:09d}", named))
        return given


def require(table: RawTable, column: str | None) -> list[str]:
    """Return the texts of a column without gaps."""
    assert column is not None
    texts = table.texts(column)
    for row, text in enumerate(texts, 1):
        if text is None:
            raise DataError(f"{table.place(row, column)}: a value is missing; every row needs one")
    return [text for text in texts if text is not None]


def make_answers(given: Sequence[GivenAnswer], classes: ClassList, n_items: int) -> Answers:
    """Lay out answers as arrays."""
    annotator, names = number_annotators([answer.annotator for answer in given])
    return Answers(
        item=np.fromiter((answer.item for answer in given), np.int64, len(given)),
        annotator=annotator,
        sets=classes.encode([answer.answer for answer in given]),
        n_items=n_items,
        annotator_names=names,
    )
