"""Tables of typed columns: the features of data that has names, kinds and gaps.

A column holds numbers, truth values or categories. How they become network inputs is learned on the training
split (`plench.data.encoding`), so a table keeps them as they are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from plench.data.raw_table import DATES, RawTable, shorten
from plench.errors import DataError

ColumnKind = Literal["number", "boolean", "category"]

TRUE_TEXTS = frozenset({"true", "yes"})
FALSE_TEXTS = frozenset({"false", "no"})
# More categories than this are no categories; each would become an input of its own.
MOST_CATEGORIES = 1000
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T]\d{1,2}:\d{2}.*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( .*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?"
)
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True, eq=False)
class Column:
    """One column. Numbers and truth values are float32 with NaN in gaps; categories are codes, −1 in gaps."""

    name: str
    kind: ColumnKind
    values: NDArray[Any]
    categories: tuple[str, ...] = ()

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Where the column has gaps."""
        return self.values < 0 if self.kind == "category" else np.isnan(self.values)

    def take(self, rows: Any) -> Column:
        """The same column with some of its rows."""
        return Column(self.name, self.kind, freeze(self.values[rows]), self.categories)


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Columns of one length. `shape` is (rows, columns), and `table[rows]` a table of some rows."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.columns or len({len(column.values) for column in self.columns}) != 1:
            raise DataError("a table needs at least one column, and columns of one length")

    def __repr__(self) -> str:
        return f"Table({len(self):,} rows: {', '.join(self.names)})"

    def __len__(self) -> int:
        return len(self.columns[0].values)

    def __getitem__(self, rows: slice | NDArray[Any]) -> Table:
        return Table(tuple(column.take(rows) for column in self.columns))

    @property
    def shape(self) -> tuple[int, int]:
        """(N, number of columns)."""
        return len(self), len(self.columns)

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(column.values.nbytes for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    def update_digest(self, digest: hashlib._Hash) -> None:
        """Add names, kinds, categories and values to a hash."""
        for column in self.columns:
            content = (column.name, column.kind, column.categories, column.values.shape)
            digest.update(f"column{content!r};".encode())
            little = column.values.dtype.newbyteorder("<")
            digest.update(np.ascontiguousarray(column.values, dtype=little).data)


def freeze(values: NDArray[Any]) -> NDArray[Any]:
    """A read-only view."""
    view = values.view()
    view.flags.writeable = False
    return view


def make_table(raw: RawTable, names: Iterable[str]) -> tuple[Table, list[str]]:
    """Find the kinds of the named columns; return the table and notices of what a user may not expect."""
    columns, notices = [], []
    for name in names:
        column = make_column(raw, name)
        gaps = int(column.missing.sum())
        if gaps == len(column.values):
            notices.append(f"{raw.name}: column {shorten(name)} is empty and is left out")
            continue
        if gaps:
            notices.append(
                f"{raw.name}: column {shorten(name)} has {gaps:,} of {len(raw):,} values missing; they are "
                "filled in from the training split, and an input of its own says where"
            )
        if column.kind == "category":
            notices.extend(doubt_categories(raw, column))
        columns.append(column)
    if not columns:
        raise DataError(f"{raw.name} has no column of features with a value in it")
    return Table(tuple(columns)), notices


def make_column(raw: RawTable, name: str, kind: ColumnKind | None = None) -> Column:
    """Make one typed column; `kind` is what it must be, found from its cells where None."""
    values = raw.columns[name]
    if isinstance(values, np.ndarray):
        found: ColumnKind = "boolean" if values.dtype.kind == "b" else "number"
        if kind in (None, found, "number"):
            return Column(name, kind or found, to_float32(raw, name, values.astype(np.float64)))
    cells = read_decimal_commas(raw.cells(name)) if raw.decimal_comma else raw.cells(name)
    kind = kind or find_kind(raw, name, cells)
    if kind == "category":
        return make_categories(raw, name)
    numbers = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if cell is not None:
            numbers[row] = to_number(raw, name, row, cell, kind)
    return Column(name, kind, to_float32(raw, name, numbers))


def read_decimal_commas(cells: Sequence[Any]) -> Sequence[Any]:
    """Return cells with points for commas where all of them are then numbers, without any point before."""
    present = [cell for cell in cells if cell is not None]
    if not all(isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell) for cell in present):
        return cells
    return [None if cell is None else cell.replace(",", ".") for cell in cells]


def doubt_categories(raw: RawTable, column: Column) -> Iterator[str]:
    """Say so where most of the values of a column of categories are numbers: it may be one by a slip."""
    texts = list(enumerate(raw.texts(column.name), 1))
    others = [(row, text) for row, text in texts if text is not None and read_number(text) is None]
    n_present = int((~column.missing).sum())
    if others and 2 * len(others) < n_present:
        row, text = others[0]
        yield (
            f"{raw.name}: column {shorten(column.name)} is taken as {len(column.categories):,} categories, "
            f"though {n_present - len(others):,} of its {n_present:,} values are numbers: row {row} has "
            f"{shorten(text)}; if numbers are meant, mend such cells or leave them empty"
        )


def find_kind(raw: RawTable, name: str, cells: Sequence[Any]) -> ColumnKind:
    """Tell numbers, truth values and categories apart; refuse dates and what a network cannot use."""
    present = [(row, cell) for row, cell in enumerate(cells, 1) if cell is not None]
    for row, cell in present:
        if isinstance(cell, DATES):
            refuse_date(raw, name, row, cell)
        if not isinstance(cell, str | int | float):
            raise DataError(
                f"{raw.place(row, name)}: {shorten(cell)} is {type(cell).__name__}; features may be numbers, "
                f"truth values and categories (leave the column out with ignore={name})"
            )
    if present and all(isinstance(cell, bool) or is_truth_text(cell) for _, cell in present):
        return "boolean"
    if all(read_number(cell) is not None for _, cell in present):
        return "number"
    if all(isinstance(cell, str) and DATE.fullmatch(cell) for _, cell in present):
        refuse_date(raw, name, *present[0])
    return "category"


def refuse_date(raw: RawTable, name: str, row: int, cell: Any) -> None:
    """Raise DataError for a date or time."""
    raise DataError(
        f"{raw.place(row, name)}: {shorten(str(cell))} is a date or time, which has no one meaning as a "
        "feature; turn it into numbers (days since an event, the month as a category), or leave the column "
        f"out with ignore={name}"
    )


def is_truth_text(cell: Any) -> bool:
    """Say whether a text is a truth value."""
    return isinstance(cell, str) and cell.lower() in TRUE_TEXTS | FALSE_TEXTS


def read_number(cell: Any) -> float | None:
    """Return a cell as a number, None if it is none. `1_000` is a number to Python only."""
    if isinstance(cell, str) and "_" in cell:
        return None
    try:
        return float(cell)
    except (ValueError, OverflowError):
        return None


def to_number(raw: RawTable, name: str, row: int, cell: Any, kind: ColumnKind) -> float:
    """Return a cell of a column of numbers or truth values as a number."""
    if kind == "boolean" and is_truth_text(cell):
        return float(cell.lower() in TRUE_TEXTS)
    number = read_number(cell) if isinstance(cell, str | int | float) else None
    if number is None or (kind == "boolean" and number not in (0, 1)):
        allowed = "numbers" if kind == "number" else "true and false"
        raise DataError(f"{raw.place(row + 1, name)}: {shorten(cell)} where {allowed} are allowed")
    return number


def to_float32(raw: RawTable, name: str, numbers: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as float32; refuse infinite ones and those too large for it."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = numbers.astype(np.float32)
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        row = int(infinite[0])
        raise DataError(
            f"{raw.place(row + 1, name)}: {numbers[row]} is not a finite float32 number; allowed are "
            f"numbers up to 3.4e38"
        )
    return freeze(values)


def make_categories(raw: RawTable, name: str) -> Column:
    """Make a column of categories, in sorted order."""
    texts = raw.texts(name)
    categories = tuple(sorted({text for text in texts if text is not None}))
    if len(categories) > MOST_CATEGORIES:
        raise DataError(
            f"{raw.name}: column {shorten(name)} has {len(categories):,} different texts, such as "
            f"{shorten(categories[0])}; categories are at most {MOST_CATEGORIES:,} (an identifier or free "
            f"text? leave the column out with ignore={name})"
        )
    codes = {category: code for code, category in enumerate(categories)}
    values = np.fromiter((-1 if text is None else codes[text] for text in texts), np.int32, len(texts))
    return Column(name, "category", freeze(values), categories)
