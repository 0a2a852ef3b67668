"""From the typed columns of a table to a matrix of inputs, learned on the training split only.

| column | inputs |
|---|---|
| numbers | one; gaps get the median of the training split |
| truth values | one, 0 or 1; gaps get the more frequent of the two |
| categories | one for each category of the training split; a gap or an unknown category is 0 in all |

A column with gaps in the training split has one more input, 1 where a value is missing. A column that is
empty there has no inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plench.data.tables import Column, ColumnKind, RawTable, Table, make_column
from plench.errors import DataError
from plench.text import short_repr


@dataclass(frozen=True)
class ColumnCode:
    """How one column is encoded: its fill value for gaps, its categories, and whether gaps have an input."""

    name: str
    kind: ColumnKind
    fill: float = 0.0
    categories: tuple[str, ...] = ()
    marks_gaps: bool = False

    @property
    def width(self) -> int:
        """The number of inputs."""
        return (len(self.categories) if self.kind == "category" else 1) + self.marks_gaps

    def encode(self, column: Column, out: NDArray[np.float32]) -> int:
        """Write a column's inputs to `out` (rows, width); return how many cells have an unknown category."""
        if (column.kind == "category") != (self.kind == "category"):
            name = short_repr(self.name)
            raise DataError(f"column {name} has kind {column.kind}; the model was trained on {self.kind}")
        missing, unknown = column.missing, 0
        if self.kind == "category":
            known = {category: position for position, category in enumerate(self.categories)}
            position = np.array([known.get(text, -1) for text in column.categories] + [-1])[column.values]
            rows = np.flatnonzero(position >= 0)
            out[:] = 0
            out[rows, position[rows]] = 1
            unknown = int(((position < 0) & ~missing).sum())
        else:
            out[:, 0] = np.where(missing, np.float32(self.fill), column.values)
        if self.marks_gaps:
            out[:, -1] = missing
        return unknown


class TableEncoder:
    """The encoding learned from a table; other tables are matched by column name, in any order."""

    def __init__(self, codes: Sequence[ColumnCode]) -> None:
        self.codes = tuple(codes)

    @classmethod
    def fit(cls, table: Table) -> TableEncoder:
        """Learn the encoding from a training split; columns that are empty there are left out."""
        codes = []
        for column in table.columns:
            missing = column.missing
            present, marks = column.values[~missing], bool(missing.any())
            if len(present) == 0:
                continue
            if column.kind == "category":
                used = tuple(column.categories[code] for code in np.unique(present))
                codes.append(ColumnCode(column.name, "category", categories=used, marks_gaps=marks))
            else:
                is_number = column.kind == "number"
                fill = np.median(present.astype(np.float64)) if is_number else present.mean() > 0.5
                codes.append(ColumnCode(column.name, column.kind, float(fill), marks_gaps=marks))
        if not codes:
            raise DataError("no column has a value in the training split")
        return cls(codes)

    @property
    def width(self) -> int:
        """D, the number of inputs."""
        return sum(code.width for code in self.codes)

    def encode(self, table: Table) -> tuple[NDArray[np.float32], dict[str, int]]:
        """Return the inputs (N, D), and the number of unknown categories by column."""
        self._check_columns(table.names, "the table")
        by_name = dict(zip(table.names, table.columns, strict=True))
        inputs = np.empty((len(table), self.width), np.float32)
        unknown: dict[str, int] = {}
        start = 0
        for code in self.codes:
            unknown[code.name] = code.encode(by_name[code.name], inputs[:, start : start + code.width])
            start += code.width
        return inputs, {name: count for name, count in unknown.items() if count}

    def read(self, raw: RawTable) -> Table:
        """Read new data as the columns that the model knows, each of the kind that the model knows."""
        self._check_columns(raw.columns, raw.name)
        return Table(tuple(make_column(raw, code.name, code.kind) for code in self.codes))

    def _check_columns(self, present: Collection[str], name: str) -> None:
        missing = [code.name for code in self.codes if code.name not in present]
        if missing:
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            needed = ", ".join(code.name for code in self.codes[:20]) + (" …" if len(self.codes) > 20 else "")
            raise DataError(f"{name} has no column {short_repr(missing[0])}{more}; the model needs {needed}")

    def state(self) -> list[dict[str, Any]]:
        """Return the encoding as plain values, for the model's file."""
        return [{**vars(code), "categories": list(code.categories)} for code in self.codes]

    @classmethod
    def from_state(cls, state: Sequence[Mapping[str, Any]]) -> TableEncoder:
        """Rebuild from `state()`."""
        return cls([ColumnCode(**{**code, "categories": tuple(code["categories"])}) for code in state])
