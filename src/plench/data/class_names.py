"""From names of classes in cells to candidate sets, labels and answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plench.data.highest import allowed_classes
from plench.data.raw_table import RawTable, clean_cell, shorten
from plench.data.taxonomy import Taxonomy
from plench.errors import DataError

UNSURE = frozenset({"unsure", "?"})
NOT = re.compile(r"not\s+(?=\S)", re.IGNORECASE)


@dataclass(frozen=True)
class Named:
    """Names in one cell, and where it is. `negated`: all classes but these; no names: unsure."""

    names: tuple[str, ...]
    table: RawTable
    row: int
    column: str
    negated: bool = False

    @property
    def place(self) -> str:
        """Where the cell is, for an error."""
        return self.table.place(self.row, self.column)


def split_names(table: RawTable, cell: Any, row: int, column: str, separator: str) -> Named:
    """Read a cell as a set of names: text with a separator, a list, or one label."""
    if isinstance(cell, str):
        parts: Iterable[Any] = cell.split(separator) if separator else [cell]
    elif isinstance(cell, list | tuple | set | frozenset | np.ndarray):
        parts = sorted(cell, key=str) if isinstance(cell, set | frozenset) else cell
    else:
        parts = [cell]
    names = []
    for part in parts:
        cleaned = clean_cell(part)
        if cleaned is None:
            raise DataError(
                f"{table.place(row, column)}: {shorten(cell)} has an empty label; allowed are labels "
                f"separated by {separator!r}"
            )
        names.append(table.text(cleaned, row, column))
    return Named(tuple(names), table, row, column)


def read_answer(
    table: RawTable, cell: Any, row: int, column: str, separator: str, declared: frozenset[str]
) -> Named:
    """Read a cell as an answer: a label, a set of labels, `not x`, or `unsure`.

    A class that is declared by such a name is meant where its name stands.
    """
    if isinstance(cell, str) and cell not in declared:
        if cell.lower() in UNSURE:
            return Named((), table, row, column)
        begin = NOT.match(cell)
        if begin:
            named = split_names(table, cell[begin.end() :], row, column, separator)
            return Named(named.names, table, row, column, negated=True)
    return split_names(table, cell, row, column, separator)


class ClassList:
    """The classes of a dataset, by name; with a taxonomy, a node above them stands for its leaves."""

    def __init__(
        self, table: str, names: Sequence[str], n_rows: int, taxonomy: Taxonomy | None = None
    ) -> None:
        if len(names) < 2:
            only = f", {shorten(names[0])}" if names else ""
            raise DataError(f"{table}: at least two classes are needed; there are {len(names)}{only}")
        allowed = allowed_classes(n_rows)
        if len(names) > allowed:
            raise DataError(
                f"{table} has {len(names):,} classes, such as {shorten(names[0])}; with {n_rows:,} rows at "
                "most "
                f"{allowed:,} are allowed (is the right column taken for labels?)"
            )
        self.names = tuple(names)
        position = {name: number for number, name in enumerate(names)}
        self.leaves = {name: [number] for name, number in position.items()}
        if taxonomy is not None:
            for node, below in taxonomy.leaves.items():
                self.leaves[node] = [position[leaf] for leaf in below]

    def encode(self, cells: Sequence[Named]) -> NDArray[np.bool_]:
        """Return the sets (n, K) of cells with names."""
        sets = np.zeros((len(cells), len(self.names)), np.bool_)
        for number, cell in enumerate(cells):
            for name in cell.names:
                sets[number, self.find(name, cell)] = True
            if cell.negated:
                sets[number] = ~sets[number]
                if not sets[number].any():
                    raise DataError(f"{cell.place}: the answer excludes every class")
        return sets

    def find(self, name: str, cell: Named) -> list[int]:
        """Return the classes that a name in a cell stands for."""
        try:
            return self.leaves[name]
        except KeyError:
            shown = ", ".join(self.names[:10]) + (" …" if len(self.names) > 10 else "")
            raise DataError(f"{cell.place}: {shorten(name)} is no class; known are {shown}") from None

    def find_label(self, cell: Named) -> int:
        """Return the class that a true label names; a node above the classes is none."""
        found = self.find(cell.names[0], cell)
        if len(found) > 1:
            raise DataError(
                f"{cell.place}: {shorten(cell.names[0])} stands for {len(found)} classes; a true label is one"
            )
        return found[0]


def collect_names(cells: Iterable[Named]) -> list[str]:
    """Return all names in order: by value where all are whole numbers, else by letters."""
    names = {name for cell in cells for name in cell.names}
    if all(re.fullmatch(r"-?\d{1,9}", name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)
