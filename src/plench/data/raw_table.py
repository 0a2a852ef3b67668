"""Raw tables: named columns of cells, before their meaning is known.

A cell is a text, a number, a truth value, a list (in frames), or missing. A CSV file has texts only.
"""

from __future__ import annotations

import datetime
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plench.errors import DataError

MISSING_TEXTS = frozenset({"", "na", "n/a", "nan", "null", "none"})
DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)


@dataclass(frozen=True, eq=False)
class RawTable:
    """Columns by name, all of one length; `name` is what errors call the table.

    A column is a numpy array of numbers or truth values, or a list of cells in which None is a gap. Rows are
    counted from 1, the header of a file not among them. `decimal_comma`: its numbers may have a comma where
    others have a point, since its cells are not separated by commas but by semicolons.
    """

    name: str
    columns: Mapping[str, Sequence[Any] | np.ndarray]
    decimal_comma: bool = False

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.columns.items()}
        if not lengths:
            raise DataError(f"{self.name} has no columns")
        first = next(iter(lengths))
        for name, length in lengths.items():
            if length != lengths[first]:
                raise DataError(
                    f"{self.name}: column {name!r} has {length:,} rows, column {first!r} {lengths[first]:,}"
                )
        if lengths[first] == 0:
            raise DataError(f"{self.name} has no rows")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def cells(self, column: str) -> Sequence[Any]:
        """Return a column's cells as Python values, None for a gap."""
        values = self.columns[column]
        if isinstance(values, np.ndarray):
            return [clean_cell(value) for value in values.tolist()]
        return values

    def texts(self, column: str) -> list[str | None]:
        """Return a column's cells as text, None for a gap; a list is refused."""
        return [
            None if cell is None else self.text(cell, row, column)
            for row, cell in enumerate(self.cells(column), 1)
        ]

    def text(self, cell: Any, row: int, column: str) -> str:
        """Return one cell as text: 3.0 is `3`, as it is where a column of whole numbers has gaps."""
        if isinstance(cell, str):
            return cell
        if isinstance(cell, bool):
            return str(cell)
        if isinstance(cell, float) and cell.is_integer():
            return str(int(cell))
        if isinstance(cell, int | float):
            return str(cell)
        raise DataError(
            f"{self.place(row, column)}: {shorten(cell)} is no text and no number but {type(cell).__name__}"
        )

    def place(self, row: int, column: str) -> str:
        """Say where a cell is, for an error."""
        return f"{self.name}: row {row}, column {shorten(column)}"

    def take(self, rows: Sequence[int] | np.ndarray) -> RawTable:
        """Return the rows with these numbers, counted from 0."""
        index = [int(row) for row in rows]
        return RawTable(
            self.name,
            {
                name: values[index] if isinstance(values, np.ndarray) else [values[row] for row in index]
                for name, values in self.columns.items()
            },
            self.decimal_comma,
        )


def shorten(value: Any, longest: int = 40) -> str:
    """Quote a value for an error, cut where it is long."""
    if not isinstance(value, str | int | float | bool | None):
        value = str(type(value).__name__) if isinstance(value, dict) else str(value)
    shown = repr(value)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def strip_text(text: str) -> str:
    """Strip a text and bring letters that can be written in two ways to one."""
    text = text.strip()
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def clean_cell(cell: Any) -> Any:
    """Return a cell as a plain Python value; None where it is missing."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):  # pandas' own gaps
        return None
    if isinstance(cell, str):
        text = strip_text(cell)
        return None if text.lower() in MISSING_TEXTS else text
    if isinstance(cell, np.generic) and not isinstance(cell, DATES):
        cell = cell.item()
    if isinstance(cell, float) and math.isnan(cell):
        return None
    return cell


def check_header(names: Iterable[Any], table: str) -> list[str]:
    """Return the names of columns as text; raise DataError where one is missing or there twice."""
    cleaned: list[str] = []
    seen: set[str] = set()
    for position, name in enumerate(names, 1):
        text = strip_text(str(name))
        if not text:
            raise DataError(f"{table}: column {position} has no name; give every column one")
        if text in seen:
            raise DataError(f"{table}: two columns are called {shorten(text)}; names must differ")
        seen.add(text)
        cleaned.append(text)
    return cleaned


def read_frame(frame: Any, name: str = "the table") -> RawTable:
    """Take the columns of a pandas or polars frame, a pyarrow table or a mapping of names to columns."""
    if isinstance(frame, RawTable):
        return frame
    if isinstance(frame, Mapping):
        header = check_header(frame, name)
        return RawTable(name, {key: read_column(frame[k]) for key, k in zip(header, frame, strict=True)})
    if not is_frame(frame):
        raise DataError(
            f"{name} is {type(frame).__name__}; allowed are a pandas or polars frame, a pyarrow table and a "
            "mapping of names to columns"
        )
    labels = list(getattr(frame, "column_names", frame.columns))
    header = check_header(labels, name)
    return RawTable(name, {key: read_column(frame[label]) for key, label in zip(header, labels, strict=True)})


def is_frame(value: Any) -> bool:
    """Say whether a value has named columns: a frame of pandas, polars or pyarrow."""
    return hasattr(value, "columns") and hasattr(value, "__getitem__") and hasattr(value, "shape")


def read_column(values: Any) -> Sequence[Any] | np.ndarray:
    """Return a column as an array, if it is one of numbers or truth values, else as a list of cells."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "fiub":
        return np.asarray(values)
    for method in ("to_list", "to_pylist", "tolist"):
        if hasattr(values, method):
            values = getattr(values, method)()
            break
    return [clean_cell(cell) for cell in values]
