"""Tables: files and frames as named columns, and the typed columns that features consist of.

pandas reads a file as text, so that `007`, `None` and `1` stay what they are; feature columns alone are
typed. CSV files have a header and are UTF-8, UTF-16 or, with a warning, Windows-1252. The delimiter is the
comma, or the semicolon or tab if the header has more of those; it is the tab in a `.tsv` file. In a file with
semicolons numbers may have a decimal comma; otherwise numbers with a decimal comma, thousands separators, `%`
or a currency are read with a warning.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import io
import logging
import math
import re
import sys
import unicodedata
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plench.data.readers import hash_image, is_image_name, read_file
from plench.errors import DataError, UsageError, as_data_error, needs_package
from plench.text import list_some, short_repr

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger("plench")

ColumnKind = Literal["number", "boolean", "category", "text", "image"]

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".xlsx")
MISSING_TEXTS = frozenset({"", "na", "n/a", "nan", "null", "none"})
TRUTH_VALUES = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
MAX_CATEGORIES = 1000  # each becomes an input of its own
# A column of texts is free text, not categories, from so many words per cell and so many different texts.
MIN_WORDS = 3
MIN_TEXTS = 10
# A word contains a letter; codes of digits do not count. A sign of Chinese or Japanese is a word.
SIGNS = r"\u3040-\u30ff\u3400-\u9fff"
WORD = re.compile(rf"[{SIGNS}]|[^\s{SIGNS}]*[^\W\d_{SIGNS}][^\s{SIGNS}]*")
BLOCK_ROWS = 50_000
DATE_TYPES = datetime.date | datetime.time | datetime.timedelta | np.datetime64 | np.timedelta64
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T]\d{1,2}:\d{2}.*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( .*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?|-?\d+ days?\b.*"
)
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
# A number as people write it: its sign, currency and percent sign, and its digits by the decimal sign.
CURRENCY = r"(?:[$€£¥₹]|EUR|USD|GBP|CHF|JPY)"
WRITTEN = re.compile(rf"([+-]?)\s*({CURRENCY}?)\s*([+-]?\d.*?)\s*({CURRENCY}|%|)")
GROUPS = {".": "[,'\u2019 \u00a0\u202f]", ",": "[.'\u2019 \u00a0\u202f]"}
DIGITS = {
    decimal: re.compile(rf"[+-]?(?:[1-9]\d{{0,2}}(?:{group}\d{{3}})+|\d+)(?:{re.escape(decimal)}\d+)?")
    for decimal, group in GROUPS.items()
}
# A column with a value of its own in each row, from so many rows, or a number of such a name, is an id.
MIN_IDS = 20
ID_NAME = re.compile(
    r"(.*[\W_])?((customer|item|passenger|patient|person|row|sample|subject|user)?id|uuid|guid|key|index|row|nr|no)",
    re.IGNORECASE,
)


class Cell(NamedTuple):
    """The value of a cell, and where it is."""

    value: Any
    table: RawTable
    row: int
    column: str

    @property
    def place(self) -> str:
        """Where the cell is, for messages."""
        return self.table.place(self.row, self.column)


@dataclass(frozen=True, eq=False)
class RawTable:
    """A table as it was read, before the meaning of its columns is known; messages call it `name`.

    A column of `frame` has numbers, truth values or objects: texts, and in Python's frames lists, dates and
    so on. Its index counts the rows from 1. With `decimal_comma` numbers may be written as `1,5`. Image files
    are named from `folder`. `warnings` is what reading had to say.
    """

    name: str
    frame: pd.DataFrame
    decimal_comma: bool = False
    folder: Path = Path()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.frame.size == 0:
            raise DataError(f"{self.name} has no {'rows' if len(self.frame.columns) else 'columns'}")

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.frame.columns)

    def cells(self, column: str, keep: frozenset[str] = frozenset()) -> list[Any]:
        """Return a column's cells as plain values, None for a gap; texts in `keep` are not gaps."""
        return [clean_cell(cell, keep) for cell in self.frame[column].tolist()]

    def texts(self, column: str, keep: frozenset[str] = frozenset()) -> list[str | None]:
        """Return a column's cells as text, None for a gap."""
        return [
            cell if cell is None or isinstance(cell, str) else to_text(Cell(cell, self, row, column))
            for row, cell in enumerate(self.cells(column, keep))
        ]

    def complete(self, column: str) -> list[str]:
        """Return a column's cells as text; raise DataError if it has a gap."""
        texts = self.texts(column)
        if None in texts:
            raise DataError(f"{self.place(texts.index(None), column)}: the value is missing")
        return [text for text in texts if text is not None]

    def place(self, row: int, column: str) -> str:
        """Say where a cell is, for messages; `row` is its position, from 0."""
        return f"{self.name}: row {self.frame.index[row]}, column {short_repr(column)}"

    def take(self, rows: NDArray[np.int64]) -> RawTable:
        """The table with the rows at these positions, which keep their numbers."""
        return replace(self, frame=self.frame.iloc[rows])

    def check_columns(self, names: Iterable[str]) -> None:
        """Raise DataError for a name that is not a column."""
        for name in names:
            if name not in self.frame.columns:
                columns = list_some(self.columns, 20)
                raise DataError(f"{self.name} has no column {short_repr(name)}; it has {columns}")


def strip_text(text: str) -> str:
    """Strip a text, and write letters that have two forms in Unicode in one."""
    text = text.strip()
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def clean_cell(cell: Any, keep: frozenset[str] = frozenset()) -> Any:
    """Return a cell as a plain Python value, None for a gap; texts in `keep` are not gaps."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):  # the gaps of pandas
        return None
    if isinstance(cell, str):
        text = strip_text(cell)
        return None if text.lower() in MISSING_TEXTS and text not in keep else text
    if isinstance(cell, np.generic) and not isinstance(cell, DATE_TYPES):
        cell = cell.item()
    return None if isinstance(cell, float) and math.isnan(cell) else cell


def to_text(cell: Cell) -> str:
    """Return a cell as text: 3.0 is `3`, since a column of whole numbers with gaps has such values."""
    value = cell.value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int | float | DATE_TYPES):
        return str(value)
    raise DataError(f"{cell.place}: expected a text or a number, not {short_repr(value)}")


def is_table_file(path: str | Path) -> bool:
    """Whether a file has the name of a table."""
    return str(path).lower().endswith(TABLE_SUFFIXES)


def read_table_file(path: str | Path) -> RawTable:
    """Read a table from a file, and log what reading has to say; `-` is CSV from standard input."""
    if str(path) == "-":
        table = parse_table(sys.stdin.buffer.read(), ".csv", "standard input")
    else:
        path = Path(path)
        if not is_table_file(path):
            raise UsageError(f"{path} is not a table; expected a file ending in {', '.join(TABLE_SUFFIXES)}")
        table = parse_table(read_file(path, path.name), path.suffix, path.name)
        table = replace(table, folder=path.parent)
    for warning in table.warnings:
        logger.warning("%s", warning)
    return table


def read_blocks(path: str | Path) -> Iterator[RawTable]:
    """Yield a table from a file in blocks of rows, so that a long one is never in memory as a whole.

    Blocks are those of CSV and TSV files and of standard input (`-`); other tables come whole.
    """
    is_stream = str(path) == "-"
    path = Path(path)
    if not is_stream and path.suffix.lower() not in (".csv", ".tsv"):
        yield read_table_file(path)
        return
    name, suffix = ("standard input", ".csv") if is_stream else (path.name, path.suffix)
    told: set[str] = set()
    try:
        with nullcontext(sys.stdin.buffer) if is_stream else open(path, "rb") as file:
            start = file.readline()
            if b"\0" in start:  # UTF-16, whose lines are not lines of bytes
                yield replace(parse_table(start + file.read(), suffix, name), folder=path.parent)
                return
            header, offset = take_lines(file, start, 0), 0
            while lines := take_lines(file, b"", BLOCK_ROWS):
                if offset and not lines.strip():
                    continue
                try:
                    block = parse_table(header + lines, suffix, name)
                except DataError as error:
                    after = f" (in the rows after row {offset})" if offset else ""
                    raise DataError(f"{error}{after}") from None
                for warning in {*block.warnings} - told:
                    logger.warning("%s", warning)
                    told.add(warning)
                numbers = range(offset + 1, offset + len(block) + 1)
                yield replace(block, frame=block.frame.set_axis(numbers), folder=path.parent)
                offset += len(block)
            if not offset:
                parse_table(header, suffix, name)  # raises: there are no rows
    except OSError as error:
        raise DataError(f"{name} cannot be read ({error.strerror or error})") from None


def take_lines(file: Any, start: bytes, count: int) -> bytes:
    """Return `start` and the next `count` lines, and more until what is quoted ends."""
    lines = [start]
    quotes = start.count(b'"')
    for _ in range(count):
        lines.append(file.readline())
        quotes += lines[-1].count(b'"')
        if not lines[-1]:
            break
    while quotes % 2 and (line := file.readline()):
        lines.append(line)
        quotes += line.count(b'"')
    return b"".join(lines)


def parse_table(content: bytes, suffix: str, name: str, sheet: str | None = None) -> RawTable:
    """Read the content of a table's file; nothing in it is executed. `sheet` is that of a workbook."""
    import pandas as pd

    if suffix.lower() == ".parquet":
        with needs_package(f"{name}: reading Parquet", "pyarrow", "report"):
            from pyarrow import BufferReader, parquet
        with as_data_error(f"{name} cannot be read as a Parquet file"):
            table = parquet.read_table(BufferReader(content), use_threads=False)
            table.validate(full=True)
            return read_frame(table.to_pandas(ignore_metadata=True), name)
    if suffix.lower() == ".xlsx":
        return parse_workbook(content, name, sheet)
    text, messages = decode(content, name)
    if "\0" in text:
        raise DataError(f"{name} contains a NUL character, so it is not a text file")
    header = text.lstrip("\r\n").split("\n", 1)[0]
    delimiter = "\t" if suffix.lower() == ".tsv" else max(",;\t", key=header.count)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # pandas 2 cuts rows that are too long
            frame = pd.read_csv(
                io.StringIO(text, newline=None),
                sep=delimiter,
                header=None,
                index_col=False,
                dtype=str,
                keep_default_na=False,
                engine="python",  # strict: it refuses broken quotes and marks rows that are too short
            )
    except pd.errors.EmptyDataError:
        raise DataError(f"{name} is empty; expected a header with the names of its columns") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise DataError(f"{name} cannot be read as a table ({error})") from None
    short = np.flatnonzero(frame.isna().any(axis=1))
    if len(short):
        raise DataError(f"{name}: row {short[0]} has fewer cells than the header ({frame.shape[1]})")
    if frame.shape[1] > 1 and not strip_text(frame.iat[0, 0]):
        frame = frame.iloc[:, 1:]  # an index, as frames write it
    frame = frame.set_axis(check_header(frame.iloc[0], name), axis=1).iloc[1:]
    return RawTable(name, frame, decimal_comma=delimiter == ";", warnings=messages)


def decode(content: bytes, name: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of a file, and a warning if its encoding is a guess."""
    start = content[:1000]
    encoding = "utf-8-sig"
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    elif len(start) > 3 and (not any(start[1::2]) or not any(start[::2])):  # letters of Latin scripts
        encoding = "utf-16-le" if not any(start[1::2]) else "utf-16-be"
    try:
        return content.decode(encoding), ()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        where = f"{name}: line {line} is not {encoding[:6].rstrip('-').upper()}"
        if encoding == "utf-8-sig":
            where += f" (byte {content[error.start]:#04x})"
            with contextlib.suppress(UnicodeDecodeError):
                text = content.decode("cp1252")
                word = re.search(r"[^ \t\r\n,;]*[^\x00-\x7f][^ \t\r\n,;]*", text)
                assert word  # not UTF-8, so not all ASCII
                return text, (
                    f"{where}; the file is read as Windows-1252, for instance {short_repr(word[0])}; if "
                    "that is wrong, save it as UTF-8",
                )
        raise DataError(f"{where}; save the table as UTF-8") from None


def parse_workbook(content: bytes, name: str, sheet: str | None) -> RawTable:
    """Read a sheet of an Excel workbook, by default the first; formulas have the values that were saved."""
    import pandas as pd

    with needs_package(f"{name}: reading Excel files", "openpyxl", "excel"):
        import openpyxl  # type: ignore[import-untyped]  # noqa: F401
    with (
        as_data_error(f"{name} cannot be read as an Excel workbook"),
        pd.ExcelFile(io.BytesIO(content), engine="openpyxl") as book,
    ):
        sheets = list(map(str, book.sheet_names))
        chosen = sheets[0] if sheet is None else sheet
        if chosen not in sheets:
            raise DataError(f"{name} has no sheet {short_repr(sheet)}; it has {', '.join(sheets)}")
        frame = book.parse(chosen, header=None, dtype=object, na_values=[], keep_default_na=False)
    used = frame.map(lambda cell: clean_cell(cell, MISSING_TEXTS - {""}) is not None)
    frame = frame.loc[used.any(axis=1), used.any(axis=0)]
    if not len(frame):
        raise DataError(f"{name}: sheet {short_repr(chosen)} is empty")
    header = ["" if clean_cell(cell) is None else cell for cell in frame.iloc[0]]
    table = read_frame(frame.iloc[1:].set_axis(check_header(header, name), axis=1), name)
    others = ", ".join(other for other in sheets if other != chosen)
    if others and sheet is None:
        message = f"{name}: sheet {short_repr(chosen)} is read; sheet=NAME reads another ({others})"
        table = replace(table, warnings=(message,))
    return table


def check_header(names: Iterable[Any], table: str) -> list[str]:
    """Return the names of columns as text; raise DataError if one is missing or not unique."""
    texts = [strip_text(str(name)) for name in names]
    if "" in texts:
        raise DataError(f"{table}: column {texts.index('') + 1} has no name")
    text, count = Counter(texts).most_common(1)[0] if texts else ("", 0)
    if count > 1:
        raise DataError(f"{table}: {count} columns are called {short_repr(text)}")
    return texts


def is_frame(value: Any) -> bool:
    """Whether a value has named columns: a mapping, or a frame of pandas, polars or pyarrow."""
    return isinstance(value, Mapping | RawTable) or all(
        hasattr(value, name) for name in ("columns", "__getitem__", "shape")
    )


def read_frame(frame: Any, name: str = "the table") -> RawTable:
    """Read a frame of pandas or polars, a table of pyarrow, or a mapping of names to columns."""
    import pandas as pd

    if isinstance(frame, RawTable):
        return frame
    if not is_frame(frame):
        raise DataError(f"{name} must be a frame or a mapping of names to columns, not {short_repr(frame)}")
    labels = list(frame if isinstance(frame, Mapping) else getattr(frame, "column_names", frame.columns))
    header = check_header(labels, name)
    columns = {}
    for key, label in zip(header, labels, strict=True):
        values = frame[label]
        dtype = getattr(values, "dtype", None)
        if not isinstance(dtype, np.dtype) or dtype.kind not in "fiub":
            cells = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
            values = pd.Series(cells, dtype=object)
        columns[key] = np.asarray(values)
    try:
        table = pd.DataFrame(columns)
    except ValueError as error:  # of different lengths
        raise DataError(f"{name}: {error}") from None
    return RawTable(name, table.set_axis(range(1, len(table) + 1)))


class EncoderUsed(NamedTuple):
    """A pretrained encoder: its name in records, which has a hash of its weights, and where it was found."""

    name: str
    spec: str


@dataclass(frozen=True, eq=False)
class Column:
    """A typed column. Numbers and truth values are float32, NaN in gaps.

    Categories and texts are codes, −1 in gaps: positions in `categories`, which are the different texts. The
    categories of images are hashes of their content, and `images` their files or pixels. Texts and images
    that a pretrained encoder has encoded have a row of `embeddings` for each category.
    `decimal` is the decimal sign of numbers that Python does not read, such as `1,234.5` or `3,06 €`.
    """

    name: str
    kind: ColumnKind
    values: NDArray[Any]
    categories: tuple[str, ...] = ()
    images: tuple[Any, ...] = ()
    encoder: EncoderUsed | None = None
    embeddings: NDArray[np.float32] | None = None
    decimal: str = ""

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Where the column has gaps."""
        return self.values < 0 if self.has_texts else np.isnan(self.values)

    @property
    def has_texts(self) -> bool:
        """Whether the values stand for texts."""
        return self.kind in ("category", "text", "image")

    def texts(self) -> list[str]:
        """Return the cells as text, nothing for a gap."""
        if self.has_texts:
            return [self.categories[code] if code >= 0 else "" for code in self.values]
        return ["" if np.isnan(value) else f"{value:.7g}" for value in self.values]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Typed columns of one length. `shape` is (rows, columns), and `table[rows]` has some of the rows."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.columns or len({len(column.values) for column in self.columns}) != 1:
            raise DataError("a table needs at least one column, and columns of one length")

    def __repr__(self) -> str:
        return f"Table({len(self):,} rows: {', '.join(self.names)})"

    def __len__(self) -> int:
        return len(self.columns[0].values)

    def __getitem__(self, rows: slice | NDArray[Any]) -> Table:
        return Table(tuple(replace(column, values=freeze(column.values[rows])) for column in self.columns))

    @property
    def shape(self) -> tuple[int, int]:
        """(N, number of columns)."""
        return len(self), len(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    def update_digest(self, digest: hashlib._Hash) -> None:
        """Add names, kinds, categories and values to a hash."""
        for column in self.columns:
            content = (column.name, column.kind, column.categories, column.values.shape)
            digest.update(f"column{content!r};".encode())
            if column.encoder is not None:
                digest.update(f"encoder {column.encoder.name};".encode())
            little = column.values.dtype.newbyteorder("<")
            digest.update(np.ascontiguousarray(column.values, dtype=little).data)


def freeze(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous, read-only view; the array itself stays writable for its owner."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def make_table(
    raw: RawTable,
    names: Iterable[str],
    text: Collection[str] = (),
    images: Collection[str] = (),
    chosen: Collection[str] = (),
) -> tuple[Table, list[str]]:
    """Type the named columns; return the table, and warnings about what a user may not expect.

    Columns in `text` are free text and those in `images` image files; in other columns both are recognised.
    Ids are left out unless they are among the `chosen`, which the user has named as features.
    """
    columns, messages = [], []
    for name in names:
        column = make_column(raw, name, "text" if name in text else "image" if name in images else None)
        place = f"{raw.name}: column {short_repr(name)}"
        gaps = int(column.missing.sum())
        if gaps == len(raw):
            messages.append(f"{place} is empty and is left out")
            continue
        texts = raw.texts(name) if column.kind == "category" or column.decimal else []
        others = [row for row, text in enumerate(texts) if text and read_number(text) is None]
        present = len(raw) - gaps
        is_mixed = column.kind == "category" and 2 * len(others) < present  # numbers, but for a few cells
        if name not in chosen and not is_mixed and is_id(column, raw.frame[name].nunique()):
            use = (
                f"features= that lists {name} keeps it"
                if column.kind == "number"
                else f"text={name} reads it"
            )
            messages.append(
                f"{place} has a different value in each of {present:,} rows, as an id has, and is left out; "
                f"item={name} uses it to name rows, {use}"
            )
            continue
        columns.append(column)
        if gaps:
            messages.append(
                f"{place} has {gaps:,} of {len(raw):,} values missing; they "
                "are filled in from the training split, and an input of its own says where"
            )
        if column.kind == "text" and name not in text:
            words = sum(len(WORD.findall(text)) for text in column.categories) / len(column.categories)
            messages.append(
                f"{place} is read as text ({len(column.categories):,} "
                f"different values, {words:.0f} words on average); ignore={name} leaves it out"
            )
        if column.decimal and others:
            cell, value = texts[others[0]], column.values[others[0]]
            messages.append(
                f"{place} is read as numbers: {short_repr(cell)} is {value:g}; if that is wrong, write plain "
                f"numbers, or leave the column out with ignore={name}"
            )
        if is_mixed:
            messages.append(
                f"{raw.place(others[0], name)}: because of {short_repr(texts[others[0]])} the column is read "
                f"as {len(column.categories):,} categories, although {present - len(others):,} of "
                f"{present:,} values are numbers; correct such cells or leave them empty"
            )
        elif column.kind == "category" and all(
            any(read_number(text, decimal=sign) is not None for sign in DIGITS) for text in column.categories
        ):
            messages.append(
                f"{place} is read as {len(column.categories):,} categories, although its values look like "
                f"numbers ({', '.join(map(short_repr, column.categories[:3]))}); write plain numbers in "
                "one unit"
            )
    if not columns:
        left_out = f" ({messages[-1]})" if messages else ""
        raise DataError(f"{raw.name} has no feature column with a value in it{left_out}")
    return Table(tuple(columns)), messages


def is_id(column: Column, different: int) -> bool:
    """Whether a column names rows: texts that are all different, or whole numbers of such a name."""
    values = column.values[~column.missing]
    if len(values) < MIN_IDS or different < len(values):
        return False
    if column.kind == "number":
        return bool((values % 1 == 0).all()) and ID_NAME.fullmatch(column.name) is not None
    return column.kind == "category"


def make_column(
    raw: RawTable, name: str, kind: ColumnKind | None = None, decimal: str | None = None
) -> Column:
    """Type one column; `kind` and `decimal` are what they must be, found from the cells if None."""
    values = raw.frame[name]
    is_boolean = values.dtype.kind == "b"
    if values.dtype.kind in "fiub" and (kind in (None, "number") or (kind == "boolean" and is_boolean)):
        kind = kind or ("boolean" if is_boolean else "number")
        numbers = values.to_numpy(np.float64)
    else:
        texts = raw.texts(name)
        is_decimal = raw.decimal_comma and kind not in ("category", "text", "image")
        if is_decimal and all(text is None or DECIMAL_COMMA.fullmatch(text) for text in texts):
            texts, decimal = [text and text.replace(",", ".") for text in texts], ""
        if kind is None:
            kind = find_kind(raw, name, texts)
            decimal = find_decimal(texts) if kind in ("category", "text") else None
            kind = "number" if decimal else kind
        if kind == "image":
            return make_images(raw, name, texts)
        if kind in ("category", "text"):
            column = make_categories(name, texts, kind)
            if kind == "category" and (n := len(column.categories)) > MAX_CATEGORIES:
                raise DataError(
                    f"{raw.name}: column {short_repr(name)} has {n:,} different texts, more than "
                    f"{MAX_CATEGORIES:,}, such as {short_repr(column.categories[0])}; leave identifiers out "
                    f"with ignore={name}, or read free text with text={name}"
                )
            return column
        numbers = np.full(len(raw), np.nan)
        for row, text in enumerate(texts):
            number = math.nan if text is None else read_number(text, kind, decimal)
            if number is None:
                expected = "a number" if kind == "number" else "true or false"
                raise DataError(f"{raw.place(row, name)}: expected {expected}, not {short_repr(text)}")
            numbers[row] = number
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = numbers.astype(np.float32)
    if np.isinf(narrow).any():
        row = int(np.isinf(narrow).argmax())
        raise DataError(f"{raw.place(row, name)}: {numbers[row]} is not a finite float32 number")
    return Column(name, kind, freeze(narrow), decimal=decimal or "")


def find_decimal(texts: list[str | None]) -> str | None:
    """Return the decimal sign by which all cells, not plain numbers, are numbers in one unit; else None."""
    present = {text for text in texts if text is not None}
    units = set()
    for text in present:
        written = WRITTEN.fullmatch(text)
        if written is None:
            return None
        units.add(written[2] + written[4])
    if len(units) > 1:
        return None
    return next(
        (sign for sign in DIGITS if all(read_number(text, decimal=sign) is not None for text in present)),
        None,
    )


def find_kind(raw: RawTable, name: str, texts: list[str | None]) -> ColumnKind:
    """Tell numbers, truth values, categories, free text and image files apart; raise DataError for dates."""
    present = [text for text in texts if text is not None]
    if present and all(text.lower() in TRUTH_VALUES for text in present):
        return "boolean"
    if all(read_number(text) is not None for text in present):
        return "number"
    if all(DATE.fullmatch(text) for text in present):
        row = texts.index(present[0])
        raise DataError(
            f"{raw.place(row, name)}: {short_repr(present[0])} is a date or time, which cannot be a feature; "
            f"turn it into numbers (days since an event), or leave the column out with ignore={name}"
        )
    if has_image_files(raw, name):
        return "image"
    different = set(present)
    words = sum(len(WORD.findall(text)) for text in different)
    is_various = len(different) >= max(MIN_TEXTS, math.sqrt(len(present)))
    return "text" if is_various and words >= MIN_WORDS * len(different) else "category"


def has_image_files(raw: RawTable, name: str) -> bool:
    """Whether a column names image files, the first of which is there."""
    present = [text for text in raw.frame[name].tolist() if isinstance(text, str) and strip_text(text)]
    is_named = bool(present) and all(is_image_name(strip_text(text)) for text in present)
    return is_named and (raw.folder / strip_text(present[0])).is_file()


def read_number(text: str, kind: ColumnKind = "number", decimal: str | None = None) -> float | None:
    """Return a text as a number or truth value, None if it is neither. `1_000` is a number in Python only.

    With a `decimal` sign a number may have thousands separators, a currency or `%`: `45%` is 45.
    """
    if kind == "boolean" and text.lower() in TRUTH_VALUES:
        return TRUTH_VALUES[text.lower()]
    if decimal and (written := WRITTEN.fullmatch(text)) and DIGITS[decimal].fullmatch(written[3]):
        text = written[1] + re.sub(GROUPS[decimal], "", written[3]).replace(decimal, ".")
    try:
        number = None if "_" in text else float(text)
    except ValueError:
        return None
    return None if kind == "boolean" and number not in (0, 1) else number


def make_categories(name: str, texts: Sequence[str | None], kind: ColumnKind) -> Column:
    """Make a column of categories or of free text; the different texts are sorted."""
    categories = tuple(sorted({text for text in texts if text is not None}))
    codes = {category: code for code, category in enumerate(categories)}
    values = np.array([-1 if text is None else codes[text] for text in texts], np.int32)
    return Column(name, kind, freeze(values), categories)


def make_images(raw: RawTable, name: str, texts: list[str | None]) -> Column:
    """Make a column of image files, named from the table's folder; equal files are one category."""
    hashes: dict[str, str] = {}
    for row, text in enumerate(texts):
        if text is None or text in hashes:
            continue
        try:
            hashes[text] = hash_image(raw.folder / text)
        except DataError as error:
            raise DataError(f"{raw.place(row, name)}: {error}") from None
    files = {digest: raw.folder / text for text, digest in hashes.items()}
    codes = {digest: code for code, digest in enumerate(files)}
    values = np.array([-1 if text is None else codes[hashes[text]] for text in texts], np.int32)
    return Column(name, "image", freeze(values), tuple(files), tuple(files.values()))
