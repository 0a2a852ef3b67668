"""What an estimator is given: features as array, sparse matrix, frame or images, and candidates in any form.

| candidates S | how it is recognised |
|---|---|
| 0/1 matrix (N, K), dense or sparse | nothing but 0 and 1 |
| weights (N, K) | fractions from 0; above 0 is a candidate. Whole numbers are given as `votes=` |
| sets | a list of sets, of tuples, or of lists of different lengths |
| texts | `cat|dog`: labels and a separator |
| ordinary labels | one number or text an example |
| annotators' answers | (N, M) classes with −1 or NaN in gaps, (N, M, K) of 0 and 1, or a frame of texts |

A matrix (N, M) of whole numbers without gaps could be answers of M annotators or votes for M classes: it is
refused unless it is named `answers` or `votes`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets

from plench.data.answers import (
    Answers,
    ClassList,
    Names,
    combine_answers,
    describe_special,
    has_gaps,
    make_answers,
    merge_whole_number,
    read_answer_columns,
    read_answer_matrix,
    read_set_column,
    sort_names,
)
from plench.data.candidates import draw_candidates
from plench.data.check import check_dataset, check_separator, keep_together
from plench.data.dataset import REAL_CANDIDATES, Dataset
from plench.data.sources.arrays import arrange, make_card
from plench.data.sources.base import encode_given
from plench.data.tables import Table, is_frame, make_table, read_frame
from plench.errors import DataError, PlenchError

logger = logging.getLogger("plench")

SEPARATOR = "|"


class InputError(DataError, ValueError):
    """Data that an estimator cannot use; also a ValueError, which scikit-learn's tools expect."""


class InputTypeError(DataError, TypeError):
    """Data of a type that an estimator cannot use; also a TypeError, which scikit-learn's tools expect."""


@contextmanager
def as_input_errors() -> Iterator[None]:
    """Turn what scikit-learn and the readers of data raise into errors that are both ours and theirs."""
    try:
        yield
    except (InputError, InputTypeError):
        raise
    except (PlenchError, ValueError) as error:
        raise InputError(str(error)) from error
    except TypeError as error:
        raise InputTypeError(str(error)) from error


@dataclass(frozen=True, eq=False)
class Labels:
    """Candidates (N, K) with the classes that columns stand for, and perhaps weights and answers.

    `answer_columns` is the width of a matrix (N, M) that was read as answers.
    """

    classes: NDArray[Any]
    candidates: NDArray[np.bool_]
    weights: NDArray[np.float32] | None = None
    answers: Answers | None = None
    answer_columns: int | None = None


def read_features(
    X: Any, text_encoder: str | None = None, image_encoder: str | None = None
) -> tuple[NDArray[Any] | Table, tuple[str, ...] | None, bool]:
    """Return features as an array or a table; the names of a table's columns, and whether all are texts."""
    with as_input_errors():
        if is_frame(X):
            raw = read_frame(X, "X")
            if len(raw) == 0:
                raise InputError("Found array with 0 sample(s) while a minimum of 1 is required.")
            table, messages = make_table(raw, raw.columns)
            for message in messages:
                logger.warning("%s", message)
            named = X if isinstance(X, Mapping) else getattr(X, "column_names", X.columns)
            are_texts = all(isinstance(name, str) for name in named)
            return encode_given(table, text_encoder, image_encoder), tuple(raw.columns), are_texts
        return encode_given(read_matrix(X), text_encoder, image_encoder), None, False


def read_matrix(X: Any) -> NDArray[Any]:
    """Return features (N, D) as float32, or images."""
    if isinstance(X, np.ndarray) and X.ndim in (3, 4) and X.dtype == np.uint8:
        card = make_card(Path("images"), "", "image", has_candidates=True)
        return arrange(X, card)
    try:
        matrix = check_array(X, accept_sparse=True, dtype="numeric", input_name="X")
    except ValueError as error:
        if "contains NaN" not in str(error):
            raise
        first = str(error).splitlines()[0]
        raise InputError(f"{first} A frame may have gaps: give pandas.DataFrame(X) in place of X.") from None
    if sparse.issparse(matrix):
        matrix = matrix.toarray()
    with np.errstate(over="ignore"):
        narrow = np.asarray(matrix).astype(np.float32)
    if not np.isfinite(narrow).all():
        raise InputError("Input X contains a value too large for dtype('float32').")
    return narrow


def read_labels(
    S: Any,
    n: int,
    *,
    classes: Any = None,
    separator: str = SEPARATOR,
    ignore_unknown: bool = False,
    answer_columns: int | None = None,
    answers: Any = None,
    votes: Any = None,
) -> Labels:
    """Return candidates in any form as a matrix.

    In place of `S` there may be `answers` of annotators, (N, M), or `votes` for classes, (N, K).

    `classes` are the classes in their order, all that occur where None; one that is not among them is an
    error, or left out with `ignore_unknown`. A matrix of numbers with `answer_columns` columns is one of
    answers even without a gap: so was the one that was learned from.
    """
    with as_input_errors():
        known = None if classes is None else np.asarray(classes)
        if known is not None and len(set(known.tolist())) < len(known):
            raise InputError(f"classes names one class twice: {', '.join(map(str, known.tolist()[:20]))}")
        given = [value for value in (S, answers, votes) if value is not None]
        if len(given) > 1:
            raise InputError("candidates are given twice; expected one of S, answers and votes")
        meaning = "answers" if answers is not None else "votes" if votes is not None else None
        reader = Reader(known, separator, ignore_unknown, answer_columns, meaning)
        labels = reader.read(given[0] if given else None)
        if len(labels.candidates) != n:
            raise InputError(
                f"Found input variables with inconsistent numbers of samples: [{n}, {len(labels.candidates)}]"
            )
        if len(labels.classes) < 2:
            raise InputError(f"at least two classes are needed; there is {len(labels.classes)} class")
        empty = np.flatnonzero(~labels.candidates.any(1))
        if len(empty) and not ignore_unknown:
            raise InputError(f"the candidate set of example {empty[0]} is empty ({len(empty)} of {n})")
        return labels


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads candidates, whatever form they have; `meaning` is that of a matrix, if it was named."""

    classes: NDArray[Any] | None
    separator: str
    ignore_unknown: bool
    answer_columns: int | None
    meaning: str | None

    @property
    def declared(self) -> frozenset[str]:
        """The names of the classes that are given."""
        return frozenset(() if self.classes is None else map(str, self.classes.tolist()))

    def read(self, S: Any) -> Labels:
        """Tell the form by what is there."""
        if S is None:
            raise InputError(
                "PartialLabelClassifier requires y to be passed, but the target y is None: give candidates S"
            )
        if isinstance(S, Answers):
            return self.combine(S, self.classes)
        if sparse.issparse(S):
            return self.read_matrix(S.toarray())
        if is_frame(S):
            return self.read_frame(S)
        values = np.asarray(S) if hasattr(S, "__array__") else list(S)
        given: list[Any] = []
        if not isinstance(values, np.ndarray):
            given = values
        elif values.dtype == object and values.ndim == 1:
            given = values.tolist()
        if is_list_of_sets(given):
            return self.read_sets([list(each) if is_set(each) else [each] for each in given])
        values = np.asarray(values)
        if self.meaning is not None and values.ndim != 2 + (values.ndim == 3 and self.meaning == "answers"):
            shape = "(N, M) or (N, M, K)" if self.meaning == "answers" else "(N, K)"
            raise InputError(f"{self.meaning} of shape {values.shape}; expected {shape}")
        if values.ndim == 2 and values.shape[1] == 1 and self.meaning is None:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
                "(n_samples,), for example using ravel().",
                DataConversionWarning,
                stacklevel=2,
            )
            values = values.ravel()
        if values.ndim == 1:
            return self.read_column(values)
        if values.ndim == 3:
            n_classes = None if self.classes is None or self.ignore_unknown else len(self.classes)
            return self.combine(read_answer_matrix(values, n_classes, "S"), self.classes)
        if values.ndim == 2:
            return self.read_answers(values) if self.are_answers(values) else self.read_matrix(values)
        raise InputError(f"candidates of shape {values.shape}; expected (N, K), sets, texts or answers")

    def are_answers(self, values: NDArray[Any]) -> bool:
        """Whether an array is a matrix (N, M) of answers: it has gaps, or the width of the one before.

        Raises InputError if it could as well have votes for classes.
        """
        if self.meaning is not None or values.dtype.kind not in "fiu":
            return self.meaning == "answers"
        if has_gaps(values) or values.shape[1] == self.answer_columns:
            return True
        is_whole = (values > 1).any() and (values % 1 == 0).all()
        if not self.ignore_unknown and is_whole and (values.dtype.kind != "f" or values.all()):
            raise InputError(
                f"the matrix {values.shape} of whole numbers up to {values.max():g} could have the answers "
                f"of {values.shape[1]} annotators or the votes for {values.shape[1]} classes; say which: "
                "fit(X, answers=S) or fit(X, votes=S)"
            )
        return False

    def read_answers(self, values: NDArray[Any]) -> Labels:
        """Read answers (N, M) with −1 or NaN in gaps: classes by value, or by position if they are texts."""
        if self.classes is not None and self.classes.dtype.kind not in "fiu":
            classes, n_classes = self.classes, None if self.ignore_unknown else len(self.classes)
            answers = read_answer_matrix(values, n_classes, "S")
        else:
            answers = read_answer_matrix(values, name="S")  # checks them
            labels = values[answers.item, answers.annotator].astype(np.int64)
            classes = self.choose_classes(np.unique(labels))
            unknown = np.setdiff1d(labels, classes)
            answers = replace(answers, sets=labels[:, None] == np.array([*classes, *unknown]))
        return replace(self.combine(answers, classes), answer_columns=values.shape[1])

    def read_column(self, values: NDArray[Any]) -> Labels:
        """Read one label or text an example."""
        if values.dtype.kind in "OUS" and any(isinstance(each, str) for each in values.tolist()):
            table = read_frame({"S": values}, "S")
            return self.read_texts(read_set_column(table, "S", self.separator, self.declared), len(table))
        checked = check_array(values, ensure_2d=False, dtype=None, input_name="y")
        check_classification_targets(checked)
        classes = self.choose_classes(np.unique(checked))
        return Labels(classes, checked[:, None] == classes)

    def read_texts(self, cells: Sequence[Names], n_rows: int) -> Labels:
        """Read texts such as `cat|dog`, `not cat` or `unknown`."""
        names = sort_names(cells)
        if self.classes is None:
            check_separator(cells, self.separator)
            for message in describe_special(cells, "S", is_answer=False):
                logger.warning("%s", message)
            return Labels(np.array(names), ClassList(names, n_rows, "S").encode(cells))
        classes = [str(label) for label in self.classes.tolist()]
        others = sorted({merge_whole_number(name, classes) for name in names} - set(classes))
        self.choose_classes(np.array(others))
        candidates = ClassList([*classes, *others], n_rows, "S").encode(cells)
        return Labels(self.classes, candidates[:, : len(classes)])

    def read_sets(self, sets: Sequence[Sequence[Any]]) -> Labels:
        """Read one set of labels an example."""
        plain = [
            [each.item() if isinstance(each, np.generic) else each for each in labels] for labels in sets
        ]
        found = {label for labels in plain for label in labels}
        kinds = {
            str if isinstance(label, str) else float if isinstance(label, int | float) else type(label)
            for label in found
        }
        if not kinds <= {str, float} or len(kinds) > 1:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise InputError(f"labels must be all texts or all numbers, not {names}")
        classes = self.choose_classes(np.array(sorted(found)))
        position = {label: place for place, label in enumerate(classes.tolist())}
        candidates = np.zeros((len(plain), len(classes)), np.bool_)
        for row, labels in enumerate(plain):
            candidates[row, [position[label] for label in labels if label in position]] = True
        return Labels(classes, candidates)

    def choose_classes(self, found: NDArray[Any]) -> NDArray[Any]:
        """Return the given classes, or what was found; raise InputError for a label that is not given."""
        if self.classes is None:
            return found
        unknown = sorted(set(found.tolist()) - set(self.classes.tolist()), key=str)
        if unknown and not self.ignore_unknown:
            shown = ", ".join(map(str, self.classes[:10].tolist()))
            raise InputError(f"label {unknown[0]!r} is not a class; expected one of {shown}")
        return self.classes

    def read_matrix(self, matrix: NDArray[Any], names: Sequence[Any] | None = None) -> Labels:
        """Read 0/1 or weights, one column a class."""
        if matrix.dtype.kind not in "fiub":
            raise InputError(f"candidates must be numbers, not of type {matrix.dtype}")
        wide = matrix.astype(np.float64)
        wrong = ~np.isfinite(wide) | (wide < 0)
        if wrong.any():
            row, label = np.argwhere(wrong)[0]
            raise InputError(
                f"candidate {label} of example {row} is {matrix[row, label]}; expected 0 or more"
            )
        classes = np.arange(matrix.shape[1]) if names is None else np.array(names)
        if self.classes is not None:
            if len(self.classes) != matrix.shape[1]:
                raise InputError(
                    f"S has {matrix.shape[1]} columns, one a class; there are {len(self.classes)}"
                )
            classes = self.classes
            if names is not None:
                order = [str(label) for label in classes.tolist()]
                if set(names) != set(order):
                    other = sorted(set(names) ^ set(order))[0]
                    where = "of S is not a class" if other in names else "is a class but not a column of S"
                    raise InputError(f"{other!r} {where}; expected {', '.join(order[:10])}")
                wide = wide[:, [list(names).index(name) for name in order]]
        candidates = wide > 0
        if np.isin(wide, (0.0, 1.0)).all():
            return Labels(classes, candidates)
        total = wide.sum(1, keepdims=True)
        return Labels(classes, candidates, (wide / np.where(total > 0, total, 1)).astype(np.float32))

    def read_frame(self, frame: Any) -> Labels:
        """Read a frame: columns of numbers are classes, columns of texts annotators."""
        table = read_frame(frame, "S")
        names = list(table.columns)
        if len(names) == 1:
            return self.read(table.frame[names[0]].to_numpy())
        if all(dtype.kind in "fiub" for dtype in table.frame.dtypes):
            matrix = table.frame.to_numpy()
            return self.read_answers(matrix) if self.are_answers(matrix) else self.read_matrix(matrix, names)
        columns = dict(zip(names, names, strict=True))
        given = read_answer_columns(table, columns, self.separator, self.declared)
        names = sort_names(answer.names for answer in given)
        if self.classes is not None:
            known = [str(label) for label in self.classes.tolist()]
            names = [*known, *(name for name in names if self.ignore_unknown and name not in known)]
        answers = make_answers(given, ClassList(names, len(table), "S"), len(table))
        return self.combine(answers, np.array(names) if self.classes is None else self.classes)

    def combine(self, answers: Answers, classes: NDArray[Any] | None) -> Labels:
        """Make candidates of answers: their union. What comes behind the classes is unknown."""
        if classes is None:
            classes = np.arange(answers.n_classes)
        n_classes = len(classes)
        if answers.n_classes > n_classes and not self.ignore_unknown:
            raise InputError(f"S has answers that name {answers.n_classes} classes; there are {n_classes}")
        answers = answers.widen(n_classes)
        candidates = combine_answers(answers)[:, :n_classes]
        return Labels(classes, candidates, answers=replace(answers, sets=answers.sets[:, :n_classes]))


def is_set(value: Any) -> bool:
    """Whether a value stands for several labels."""
    return isinstance(value, set | frozenset | tuple | list | np.ndarray)


def is_list_of_sets(values: list[Any]) -> bool:
    """Whether a list is one of sets, not a matrix written as lists."""
    if not any(is_set(each) for each in values):
        return False
    if any(isinstance(each, set | frozenset | tuple) for each in values):
        return True
    parts = [list(each) for each in values if is_set(each)]
    if len(parts) < len(values) or len({len(part) for part in parts}) > 1:
        return True
    flat = [label for part in parts for label in part]
    if any(isinstance(label, str) for label in flat):
        return True
    if any(isinstance(label, int) and label not in (-1, 0, 1) for label in flat):
        raise InputError(
            "S is a list of lists of one length, which may be labels, weights or answers; give sets or "
            "tuples of labels, or an array of weights or answers"
        )
    return False


def hide_truth(data: Dataset) -> Dataset:
    """Return a dataset without its true labels and test set; generated candidates are drawn, with seed 0."""
    data = draw_candidates(data, data.card.candidates, 0)
    card = replace(data.card, candidates=REAL_CANDIDATES)
    return replace(data, labels=None, card=card, test=None)


def make_training_data(features: NDArray[Any] | Table, labels: Labels) -> Dataset:
    """Return the dataset that an estimator learns from; its name carries a hash of its content."""
    kind: Literal["tabular", "image"] = "tabular" if len(features.shape) == 2 else "image"
    names = tuple(map(str, labels.classes.tolist())) if labels.classes.dtype.kind in "US" else None
    card = replace(make_card(Path("arrays"), "", kind, has_candidates=True), class_names=names)
    with as_input_errors():
        draft = keep_together(Dataset(features, labels.candidates, None, card, answers=labels.answers))
    for message in (*draft.warnings, *(found.message for found in check_dataset(draft) if found.is_misread)):
        logger.warning("%s", message)
    named = make_card(Path("arrays"), draft.fingerprint, kind, has_candidates=True).name
    return replace(draft, card=replace(card, name=named))
