"""From the typed columns of a table to a matrix of inputs, learned on the training split only.

| column | inputs |
|---|---|
| numbers | one; gaps get the median of the training split |
| truth values | one, 0 or 1; gaps get the more frequent of the two |
| categories | one for each category of the training split; a gap or an unknown category is 0 in all |
| free text | `TEXT_WIDTH`: TF-IDF of words and of parts of words, reduced by truncated SVD; 0 in gaps |
| text or images with a pretrained encoder (`plench.data.encoders`) | those of the encoder; 0 in gaps |

A column with gaps in the training split has one more input, 1 where a value is missing. A column that is
empty there has no inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from plench.data.encoders import (
    FOUND,
    check_used,
    embed_column,
    find_encoder,
    find_used,
    make_image_column,
)
from plench.data.tables import Column, ColumnKind, EncoderUsed, RawTable, Table, make_column, read_frame
from plench.errors import DataError, UsageError
from plench.text import list_some, short_repr

TEXT_WIDTH = 256
MAX_TERMS = 10_000  # of words, and of parts of words: the most frequent
ENCODED_TEXTS = 8192  # at a time


class StoredCode:
    """How one column is encoded, to be stored; `marks_gaps`: the last input is 1 where a value is missing."""

    def state(self) -> dict[str, Any]:
        """Return the encoding as plain values and arrays."""
        state = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}
        return {key: value for key, value in state.items() if key != "decimal" or value}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild from `state()`."""
        return cls(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in state.items()}
        )


@dataclass(frozen=True)
class ColumnCode(StoredCode):
    """Numbers, truth values and categories: the fill value for gaps, and the categories."""

    name: str
    kind: ColumnKind
    fill: float = 0.0
    categories: tuple[str, ...] = ()
    marks_gaps: bool = False
    decimal: str = ""  # the decimal sign of numbers that are not plain

    @classmethod
    def fit(cls, column: Column) -> ColumnCode:
        """Learn the encoding of a column that is not empty."""
        missing = column.missing
        present, marks = column.values[~missing], bool(missing.any())
        if column.kind == "category":
            used = tuple(column.categories[code] for code in np.unique(present))
            return cls(column.name, "category", categories=used, marks_gaps=marks)
        is_number = column.kind == "number"
        fill = np.median(present.astype(np.float64)) if is_number else present.mean() > 0.5
        return cls(column.name, column.kind, float(fill), marks_gaps=marks, decimal=column.decimal)

    @property
    def width(self) -> int:
        """The number of inputs."""
        return (len(self.categories) if self.kind == "category" else 1) + self.marks_gaps

    def encode(self, column: Column, out: NDArray[np.float32]) -> int:
        """Write a column's inputs to `out` (rows, width); return how many cells have an unknown category."""
        if column.has_texts != (self.kind == "category"):
            raise wrong_kind(column, self.kind)
        if self.kind != "category":
            out[:, 0] = np.where(column.missing, np.float32(self.fill), column.values)
            return 0
        known = {category: position for position, category in enumerate(self.categories)}
        position = np.array([known.get(text, -1) for text in column.categories] + [-1])[column.values]
        rows = np.flatnonzero(position >= 0)
        out[:] = 0
        out[rows, position[rows]] = 1
        return int(((position < 0) & ~column.missing).sum())


@dataclass(frozen=True, eq=False)
class TextCode(StoredCode):
    """Free text.

    `words` (single words and pairs) and `parts` (3 to 5 letters within a word) are the terms, `idf` their
    weights, `components` (at most `TEXT_WIDTH`, terms) the projection. The same texts give the same bits.
    """

    name: str
    words: tuple[str, ...]
    parts: tuple[str, ...]
    idf: NDArray[np.float32]
    components: NDArray[np.float32]
    marks_gaps: bool = False
    kind: ColumnKind = "text"

    @classmethod
    def fit(cls, column: Column) -> TextCode:
        """Learn terms, weights and projection of a column that is not empty, each row counted."""
        from sklearn.utils.extmath import randomized_svd
        from threadpoolctl import threadpool_limits

        missing = column.missing
        texts = [column.categories[code] for code in column.values[~missing]]
        terms: list[tuple[str, ...]] = []
        weights = []
        for vectorizer in make_vectorizers(None, None):
            try:
                weights.append(vectorizer.fit(texts).idf_)
                terms.append(tuple(vectorizer.get_feature_names_out().tolist()))
            except ValueError:  # not one term, such as no words in texts of single letters
                terms.append(())
        if not weights:
            raise DataError(f"column {short_repr(column.name)} is read as text but has no word in it")
        idf = np.concatenate(weights).astype(np.float32)
        none = np.zeros((0, len(idf)), np.float32)
        words, parts = terms
        code = cls(column.name, words, parts, idf, none, bool(missing.any()))
        matrix = code.weigh(texts)
        with threadpool_limits(1):  # the number of threads changes the last bits
            rank = min(TEXT_WIDTH, *matrix.shape)
            components = randomized_svd(matrix, rank, random_state=0)[2]
        return replace(code, components=components.astype(np.float32))

    @property
    def width(self) -> int:
        """The number of inputs, whatever the number of components."""
        return TEXT_WIDTH + self.marks_gaps

    def weigh(self, texts: Sequence[str]) -> Any:
        """Return the TF-IDF (texts, terms), sparse; words and parts of words have length 1 each."""
        from scipy import sparse

        blocks, start = [], 0
        for vectorizer in make_vectorizers(self.words, self.parts):
            if vectorizer.vocabulary:
                stop = start + len(vectorizer.vocabulary)
                vectorizer.idf_ = self.idf[start:stop]
                blocks.append(vectorizer.transform(texts))
                start = stop
        return sparse.hstack(blocks, format="csr", dtype=np.float32)

    def encode(self, column: Column, out: NDArray[np.float32]) -> int:
        """Write a column's inputs to `out` (rows, width); no text is unknown."""
        if not column.has_texts:
            raise wrong_kind(column, self.kind)
        out[:] = 0
        used, position = np.unique(column.values, return_inverse=True)
        used_rows = np.flatnonzero(used >= 0)
        encoded = np.zeros((len(used), TEXT_WIDTH), np.float32)
        for start in range(0, len(used_rows), ENCODED_TEXTS):
            rows = used_rows[start : start + ENCODED_TEXTS]
            weights = self.weigh([column.categories[used[row]] for row in rows])
            encoded[rows, : len(self.components)] = weights @ self.components.T
        out[:, :TEXT_WIDTH] = encoded[position]
        return 0


@dataclass(frozen=True)
class EmbeddingCode(StoredCode):
    """A column of text or images that a pretrained encoder has encoded; the model file names the encoder."""

    name: str
    kind: ColumnKind
    encoder: EncoderUsed
    n_outputs: int
    marks_gaps: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoder", EncoderUsed(*self.encoder))

    @classmethod
    def fit(cls, column: Column) -> EmbeddingCode:
        """Take the width of the embeddings, and whether there are gaps."""
        assert column.encoder is not None
        assert column.embeddings is not None
        n_outputs = column.embeddings.shape[1]
        return cls(column.name, column.kind, column.encoder, n_outputs, bool(column.missing.any()))

    @property
    def width(self) -> int:
        """The number of inputs."""
        return self.n_outputs + self.marks_gaps

    def encode(self, column: Column, out: NDArray[np.float32]) -> int:
        """Write a column's inputs to `out` (rows, width); no text or image is unknown."""
        if column.encoder is None or column.embeddings is None or column.encoder.name != self.encoder.name:
            found = "no encoder" if column.encoder is None else column.encoder.name
            raise DataError(
                f"column {short_repr(column.name)} is encoded by {found}; the model was trained with "
                f"{self.encoder.name}"
            )
        out[:, : self.n_outputs] = column.embeddings[column.values] if len(column.embeddings) else 0
        out[column.missing] = 0
        return 0


Code = ColumnCode | TextCode | EmbeddingCode


def make_vectorizers(words: Sequence[str] | None, parts: Sequence[str] | None) -> Iterator[Any]:
    """Yield the TF-IDF of words and that of parts of words; terms are chosen by fitting where None."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    shared: dict[str, Any] = {"sublinear_tf": True, "strip_accents": "unicode", "dtype": np.float32}
    for terms, analysis in (
        (words, {"ngram_range": (1, 2)}),
        (parts, {"analyzer": "char_wb", "ngram_range": (3, 5)}),
    ):
        limit = MAX_TERMS if terms is None else None
        yield TfidfVectorizer(vocabulary=terms, max_features=limit, **analysis, **shared)


def wrong_kind(column: Column, expected: str) -> DataError:
    """Return the error for a column of another kind than the model knows."""
    return DataError(
        f"column {short_repr(column.name)} has kind {column.kind}; the model was trained on {expected}"
    )


def code_class(kind: str, is_embedded: bool) -> type[ColumnCode] | type[TextCode] | type[EmbeddingCode]:
    """Return how columns of a kind are encoded; `is_embedded`: by a pretrained encoder."""
    if is_embedded:
        return EmbeddingCode
    return TextCode if kind == "text" else ColumnCode


def fit_code(column: Column) -> Code:
    """Learn the encoding of a column that is not empty."""
    return code_class(column.kind, column.encoder is not None).fit(column)


def count_inputs(table: Table) -> int:
    """Return how many inputs a table has if all of it is the training split; texts are not encoded."""
    return sum(
        TEXT_WIDTH + bool(column.missing.any())
        if column.kind == "text" and column.encoder is None
        else fit_code(column).width
        for column in table.columns
        if not column.missing.all()
    )


class TableEncoder:
    """The encoding learned from a table; other tables are matched by column name, in any order.

    `run_code`: third-party encoders that a model names may be imported.
    """

    run_code = False

    def __init__(self, codes: Sequence[Code]) -> None:
        self.codes = tuple(codes)

    @classmethod
    def fit(cls, table: Table) -> TableEncoder:
        """Learn the encoding from a training split; columns that are empty there are left out."""
        codes = [fit_code(column) for column in table.columns if not column.missing.all()]
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
            stop, column = start + code.width, by_name[code.name]
            unknown[code.name] = code.encode(column, inputs[:, start:stop])
            if code.marks_gaps:
                inputs[:, stop - 1] = column.missing
            start = stop
        return inputs, {name: count for name, count in unknown.items() if count}

    def read(self, raw: RawTable) -> Table:
        """Read new data as the columns that the model knows, each of the kind that the model knows."""
        self._check_columns(raw.columns, raw.name)
        return Table(
            tuple(
                self.embed(make_column(raw, code.name, code.kind, getattr(code, "decimal", None)))
                for code in self.codes
            )
        )

    def read_images(self, images: NDArray[Any] | Sequence[Path]) -> Table:
        """Read new images, pixels (N, C, H, W) or files, for a model of nothing else."""
        if len(self.codes) != 1 or self.codes[0].kind != "image":
            names = ", ".join(code.name for code in self.codes[:20])
            raise DataError(f"the model needs a table with the columns {names}, not images alone")
        name = self.codes[0].name
        if isinstance(images, np.ndarray):
            return Table((self.embed(make_image_column(images, name)),))
        return self.read(read_frame({name: [str(path.absolute()) for path in images]}, "X"))

    def embed(self, column: Column) -> Column:
        """Return a new column, encoded by the encoder that the model was trained with, if there is one."""
        code = next((code for code in self.codes if code.name == column.name), None)
        if not isinstance(code, EmbeddingCode) or column.encoder is not None:
            return column
        found = find_used(code.encoder, code.kind, run_code=self.run_code)  # type: ignore[arg-type]
        if column.missing.all():
            empty = np.zeros((0, code.n_outputs), np.float32)
            return replace(column, encoder=code.encoder, embeddings=empty)
        return embed_column(column, found)

    def use(self, given: Mapping[str, str | None]) -> None:
        """Find the encoders that a user names by kind, in place of those that the model names."""
        for kind, spec in given.items():
            if spec is None:
                continue
            codes = [code for code in self.codes if isinstance(code, EmbeddingCode) and code.kind == kind]
            if not codes:
                raise UsageError(f"{kind}_encoder is {spec!r}, but the model has no {kind} encoder")
            for code in codes:
                found = find_encoder(spec, code.kind)  # type: ignore[arg-type]
                check_used(code.encoder, found)
                FOUND[code.encoder.name] = replace(found, used=code.encoder)

    def _check_columns(self, present: Collection[str], name: str) -> None:
        missing = [code.name for code in self.codes if code.name not in present]
        if missing:
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            needed = list_some((code.name for code in self.codes), 20)
            raise DataError(f"{name} has no column {short_repr(missing[0])}{more}; the model needs {needed}")

    def state(self) -> list[dict[str, Any]]:
        """Return the encoding as plain values and arrays, for the model's file."""
        return [code.state() for code in self.codes]

    @classmethod
    def from_state(cls, state: Sequence[Mapping[str, Any]]) -> TableEncoder:
        """Rebuild from `state()`."""
        return cls([code_class(code["kind"], "encoder" in code).from_state(code) for code in state])
