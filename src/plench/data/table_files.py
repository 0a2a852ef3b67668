"""Reading tables from files: CSV and TSV by Python's own reader, Parquet by pyarrow. Nothing is executed.

CSV files are UTF-8, with a header. The delimiter is the comma, or the semicolon or tab where the header has
more of those; that of a `.tsv` file is the tab. Beside semicolons numbers may have a decimal comma, as
spreadsheets write both in many countries.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plench.data.files import read_file
from plench.data.raw_table import RawTable, check_header, clean_cell, read_frame, shorten, strip_text
from plench.errors import DataError, UsageError
from plench.parquet_limits import Claims, allow_bytes, check_claims

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
MOST_COLUMNS = 100_000


def is_table_file(path: str | Path) -> bool:
    """Say whether a file's name ends as that of a table."""
    return str(path).lower().endswith(TABLE_SUFFIXES)


def read_table_file(path: str | Path, name: str | None = None) -> RawTable:
    """Read a table; `name` is what errors call it. `-` is CSV from standard input."""
    if str(path) == "-":
        return parse_delimited(sys.stdin.buffer.read(), name or "standard input")
    path = Path(path)
    name = name or path.name
    if not is_table_file(path):
        raise UsageError(
            f"{path} is no table that can be read; allowed are files ending in {', '.join(TABLE_SUFFIXES)}"
        )
    return parse_table(read_file(path, name), path.suffix.lower(), name)


def parse_table(content: bytes, suffix: str, name: str) -> RawTable:
    """Read the content of a table's file."""
    if suffix == ".parquet":
        return parse_parquet(content, name)
    return parse_delimited(content, name, "\t" if suffix == ".tsv" else None)


def parse_parquet(content: bytes, name: str) -> RawTable:
    """Read a Parquet file."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            f"{name}: reading Parquet needs pyarrow: pip install pyarrow (plench's extra 'report' has it), "
            "or save the table as CSV"
        ) from None
    try:
        claims = check_claims(io.BytesIO(content), len(content))
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content))
        frame = pyarrow.Table.from_batches(read_batches(file, claims, len(content)), file.schema_arrow)
        frame.validate(full=True)
    except Exception as error:  # pyarrow raises many types for a damaged file
        raise DataError(f"{name} cannot be read as a Parquet file ({error})") from None
    return read_frame(frame, name)


def read_batches(file: Any, claims: Claims, file_bytes: int) -> Iterator[Any]:
    """Yield the rows of a Parquet file in batches, as long as they take no more room than its size allows."""
    taken = 0
    for batch in file.iter_batches(claims.rows_of_batch, use_threads=False):
        taken += batch.nbytes
        if taken > allow_bytes(file_bytes):
            raise DataError(f"it takes more than {allow_bytes(file_bytes):,} bytes, which are allowed")
        yield batch


def parse_delimited(content: bytes, name: str, delimiter: str | None = None) -> RawTable:
    """Read CSV or TSV; a first column without a name, as frames write their index, is left out."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"{name}: line {line} is not UTF-8 text (byte {content[error.start]:#04x}); save the table as "
            "UTF-8"
        ) from None
    if "\0" in text:
        raise DataError(
            f"{name}: line {text[: text.index(chr(0))].count(chr(10)) + 1} holds a NUL; it is no text"
        )
    delimiter = delimiter or find_delimiter(text)
    rows = read_rows(text, name, delimiter)
    header = next(rows, None)
    if header is None:
        raise DataError(f"{name} is empty; a table begins with the names of its columns")
    if len(header) > MOST_COLUMNS:
        raise DataError(f"{name} has {len(header):,} columns; allowed are at most {MOST_COLUMNS:,}")
    skipped = 1 if not strip_text(header[0]) and len(header) > 1 else 0
    names = check_header(header[skipped:], name)
    columns: list[list[Any]] = [[] for _ in names]
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise DataError(
                f"{name}: row {number} has {len(row)} cells, beginning with {shorten(row[0])}; "
                f"the header has {len(header)}"
            )
        for column, cell in zip(columns, row[skipped:], strict=True):
            column.append(clean_cell(cell))
    return RawTable(name, dict(zip(names, columns, strict=True)), decimal_comma=delimiter == ";")


def find_delimiter(text: str) -> str:
    """Return what separates the cells of the header."""
    first = text.lstrip("\r\n").split("\n", 1)[0]
    return max(",;\t", key=first.count)  # the comma, where there is none


def read_rows(text: str, name: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the rows that are not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{name}: line {reader.line_num} cannot be read as a table ({error})") from None
        if row:
            yield row
