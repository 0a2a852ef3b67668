"""A user's table: a CSV, TSV or Parquet file given by path, or a frame in Python."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from plench.data.dataset import Dataset, DatasetCard
from plench.data.files import read_file
from plench.data.own_table import TableContent, assemble, read_content
from plench.data.raw_table import RawTable, read_frame
from plench.data.sources.arrays import make_card
from plench.data.sources.base import Source, SourceFinder
from plench.data.table_files import TABLE_SUFFIXES, is_table_file, parse_table
from plench.data.table_roles import TableOptions, read_table_options, split_reference
from plench.data.taxonomy import parse_taxonomy
from plench.errors import DataError
from plench.plain_files import is_plain

MEANING = (
    "a table (.csv, .tsv, .parquet) of features, with candidates, annotators' answers or truth; columns are "
    "recognised by name or named behind the path: table.csv?candidates=tags&ignore=a,b"
)


def find_table(name: str) -> Source | None:
    """Answer the path of a table, with options behind a question mark."""
    path, query, _ = name.partition("?")
    if not is_table_file(path):
        return None
    return open_table(path, split_reference(name)[1] if query else TableOptions())


def open_table(path: str, options: TableOptions) -> Source:
    """Read a table; its name in records carries a hash of the files and of the options."""
    files = TableFiles(Path(path), options)
    content = files.read()
    card = make_table_card(Path(path).stem, files.digest(), content)
    return Source(card, lambda data_dir: assemble(content, card))


def make_table_card(
    stem: str, digest: str, content: TableContent, kind: Literal["tabular", "image"] = "tabular"
) -> DatasetCard:
    """Describe a table; its source says which column was taken for what."""
    card = make_card(Path(f"{stem}.table"), digest, kind, has_candidates=not content.is_generated)
    return replace(card, source=f"the user's own table: {content.description}")


class TableFiles:
    """A table's file and those that its options name: answers and taxonomy."""

    def __init__(self, path: Path, options: TableOptions) -> None:
        self.path = path
        self.contents = {path.name: self.load(path)}
        self.table = self.parse(path)
        self.answers: RawTable | None = None
        self.taxonomy = None
        if options.answers is not None and options.answers not in self.table.columns:
            self.answers = self.parse(self.find(options.answers, "answers"))
        if options.taxonomy is not None:
            self.taxonomy = parse_taxonomy(self.parse(self.find(options.taxonomy, "taxonomy")))
        self.options = options

    def load(self, path: Path) -> bytes:
        """Return a file's content."""
        return read_file(path, path.name)

    def find(self, name: str, option: str) -> Path:
        """Return a file beside the table, or as the path says."""
        if not is_table_file(name):
            raise DataError(
                f"{self.path.name}: {option}={name} is neither a column nor a file ending in "
                f"{', '.join(TABLE_SUFFIXES)}; columns are {', '.join(list(self.table.columns)[:20])}"
            )
        beside = self.path.parent / name
        path = beside if is_plain(beside) else Path(name)
        self.contents[option] = self.load(path)
        return path

    def parse(self, path: Path) -> RawTable:
        """Read one of the files as a table."""
        content = next(reversed(self.contents.values()))
        return parse_table(content, path.suffix.lower(), path.name)

    def read(self, has_features: bool = True) -> TableContent:
        """Read what the table holds."""
        options = self.options if self.answers is None else replace(self.options, answers=None)
        return read_content(self.table, options, self.answers, self.taxonomy, has_features)

    def digest(self) -> str:
        """Return a hash of the files' content and of the options that differ from the defaults."""
        digest = hashlib.sha256()
        for content in self.contents.values():
            digest.update(hashlib.sha256(content).digest())
        options = {name: value for name, value in self.options.changed().items() if name != "taxonomy"}
        if self.answers is not None:
            del options["answers"]
        if options:
            digest.update(repr(sorted(options.items())).encode())
        return digest.hexdigest()


def make_table_dataset(data: Any, name: str = "table", answers: Any = None, **options: Any) -> Dataset:
    """Make a dataset of a table: a file, a pandas or polars frame, or a mapping of names to columns.

    `answers` is a second table with one answer per row (item, annotator, label), or the name of a column of
    lists. `options` are those of `TableOptions`; `taxonomy` may also be a mapping from node to parent.
    """
    from plench.data.taxonomy import Taxonomy

    if isinstance(answers, str):
        options["answers"], answers = answers, None
    parents = options.pop("taxonomy", None)
    taxonomy = Taxonomy(parents) if isinstance(parents, Mapping) else None
    if isinstance(parents, str | Path):
        options["taxonomy"] = str(parents)
    if isinstance(data, str | Path) and answers is None and taxonomy is None:
        return open_table(str(data), read_table_options(options)).load(None)
    if isinstance(data, str | Path):
        table = TableFiles(Path(data), read_table_options(options)).table
    else:
        table = read_frame(data, name)
    if answers is not None:
        answers = read_frame(answers, f"{name}'s answers")
    content = read_content(table, read_table_options(options), answers, taxonomy)
    draft = assemble(content, make_table_card(name, "0" * 8, content))
    named = make_table_card(name, draft.fingerprint, content).name
    return replace(draft, card=replace(draft.card, name=named))


TABLES = SourceFinder("path/to/table.csv", MEANING, find_table)
