"""The dataset type: features, candidate sets and (for evaluation only) true labels, checked once.

Shapes: N examples, D features, K classes. Tabular features are float32 N×D or a `Table` of typed columns;
images are uint8 N×C×H×W.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plench.data.answers import Answers
from plench.data.tables import Table, freeze
from plench.errors import DataError, UsageError
from plench.settings import DEFAULT_FPS_RATE, DEFAULT_ID_RATE, PartialLabelType

CHECKED_ROWS = 4096
PARTIAL_LABEL_TYPES: tuple[str, ...] = get_args(PartialLabelType)


def check_rate(value: float, name: str) -> float:
    """Return a probability as a float; raise UsageError if it is not a number from 0 to 1."""
    try:
        rate = float(value)
    except (TypeError, ValueError):
        rate = math.nan
    if not 0.0 <= rate <= 1.0:
        raise UsageError(f"{name} must be a number from 0 to 1, not {value!r}")
    return rate


@dataclass(frozen=True)
class CandidateSpec:
    """How candidate sets are made: the data's own or generated, and how often the true label is dropped.

    `fps_rate` belongs to `fps` (default 0.3) and `id_rate` to `id` (default 0.4). A rate given for another
    type is refused, so that nothing is accepted and ignored.
    """

    pl_type: PartialLabelType = "real"
    fps_rate: float | None = None
    id_rate: float | None = None
    drop_true_rate: float = 0.0

    def __post_init__(self) -> None:
        if self.pl_type not in PARTIAL_LABEL_TYPES:
            expected = ", ".join(PARTIAL_LABEL_TYPES)
            raise UsageError(f"unknown pl_type {self.pl_type!r}; expected one of {expected}")
        for owner, default in (("fps", DEFAULT_FPS_RATE), ("id", DEFAULT_ID_RATE)):
            name = f"{owner}_rate"
            value = getattr(self, name)
            if self.pl_type != owner and value is not None:
                raise UsageError(f"{name} is only for pl_type {owner}; pl_type is {self.pl_type}")
            if self.pl_type == owner:
                object.__setattr__(self, name, check_rate(default if value is None else value, name))
        object.__setattr__(self, "drop_true_rate", check_rate(self.drop_true_rate, "drop_true_rate"))


REAL_CANDIDATES = CandidateSpec()
OWN_TASK = "the user's own"  # of data that were given by path, as arrays or as a frame


@dataclass(frozen=True)
class Sizes:
    """How large a dataset is; the examples of its own test set are not counted."""

    examples: int
    features: int
    classes: int


@dataclass(frozen=True)
class Published(Sizes):
    """A dataset's row in the paper's table of datasets; rates are fractions, not percentages."""

    mean_candidates: float
    noise_rate: float


@dataclass(frozen=True)
class DatasetCard:
    """What a reader needs to know of a dataset before using it.

    `candidates` says how its candidate sets are made by default; `REAL_CANDIDATES` means they come with the
    data. `published` is its row in the paper's table; `sizes` are those of a dataset that is not in it.
    `protocol_noise_rate` is the noise rate that the benchmark gives to noise-aware algorithms, if any.
    `superclasses`, one number per class, keeps generated wrong labels within the true label's superclass.
    `class_names` are for readers only.
    """

    name: str
    kind: Literal["tabular", "image"]
    task: str
    source: str
    terms: str
    citation: str
    default_steps: int
    published: Published | None = None
    sizes: Sizes | None = None
    protocol_noise_rate: float | None = None
    candidates: CandidateSpec = REAL_CANDIDATES
    superclasses: tuple[int, ...] | None = None
    class_names: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class TestSet:
    """A dataset's own test set, as CIFAR-10 has one."""

    __test__: ClassVar[bool] = False  # not a test of pytest, in spite of its name

    features: NDArray[Any] | Table
    labels: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """N examples with candidate sets among K classes, checked when they are put together.

    Arrays are read-only views if no conversion is needed, so that a large array is held once: do not change
    the arrays given. A label outside its candidate set is allowed; `noise_rate` counts them.

    Parameters
    ----------
    features : array of shape (N, D) or (N, C, H, W), or Table
        Finite numbers, uint8 images, or the typed columns of a table.
    candidates : array of shape (N, K)
        0 and 1; no candidate set is empty.
    labels : array of shape (N,), optional
        The true labels 0…K−1, for evaluation only.
    card : DatasetCard
        Name, kind, source and so on.
    test : TestSet, optional
        The dataset's own test set.
    warnings : tuple of str
        Warnings of loading.
    verified : bool
        Whether the files had the public release's checksums.
    groups : array of shape (N,), optional
        Examples of a group stay in one part of every split.
    validation : array of shape (N,), optional
        The rows of the validation part, if the data says so.
    answers : Answers, optional
        The answers of several annotators.
    items : tuple of str, optional
        The names of the examples, for readers only.
    known_labels : array of shape (N,), optional
        The true labels that are known, −1 elsewhere, where `labels` is None because some are missing. For
        estimates on examples that were not learned from.

    Raises
    ------
    DataError
        If something does not fit; the message names the first offending row.
    """

    features: NDArray[Any] | Table
    candidates: NDArray[np.bool_]
    labels: NDArray[np.int64] | None
    card: DatasetCard
    test: TestSet | None = None
    warnings: tuple[str, ...] = ()
    verified: bool = False
    groups: NDArray[np.int64] | None = None
    validation: NDArray[np.bool_] | None = None
    answers: Answers | None = None
    items: tuple[str, ...] | None = None
    known_labels: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        name, kind = self.card.name, self.card.kind
        features = check_features(self.features, kind, name)
        candidates = check_candidates(self.candidates, len(features), name)
        n_examples, n_classes = candidates.shape
        checked: dict[str, Any] = {
            "features": features,
            "candidates": candidates,
            "warnings": tuple(self.warnings),
        }
        if self.labels is not None:
            checked["labels"] = check_labels(self.labels, n_examples, n_classes, name)
        if self.test is not None:
            checked["test"] = check_test(self.test, features, kind, n_classes, name)
        names = self.class_names
        if names is not None and not len(names) == len(set(names)) == n_classes:
            raise DataError(
                f"{name}: {n_classes} classes need {n_classes} different names, not {len(set(names))} "
                f"different among {len(names)}"
            )
        for field, dtype in (("groups", np.int64), ("validation", np.bool_)):
            value = getattr(self, field)
            if value is not None:
                array = np.asarray(value)
                if array.shape != (n_examples,) or array.dtype.kind not in "iub":
                    raise DataError(
                        f"{name}: {field} must be one value for each of {n_examples} examples, not "
                        f"{array.dtype} of {array.shape}"
                    )
                checked[field] = freeze(array.astype(dtype))
        if self.answers is not None and (self.answers.n_items, self.answers.n_classes) != candidates.shape:
            raise DataError(
                f"{name}: answers are for {self.answers.n_items} items and {self.answers.n_classes} classes, "
                f"candidates for {n_examples} and {n_classes}"
            )
        for field, value in checked.items():
            object.__setattr__(self, field, value)

    @classmethod
    def load(cls, name: str, data_dir: str | Path | None = None) -> Dataset:
        """Load a dataset.

        Parameters
        ----------
        name : str
            A name in any spelling, or a path.
        data_dir : path, optional
            The folder of the data files; built-in datasets and paths need none.

        Returns
        -------
        Dataset

        Examples
        --------
        >>> plench.Dataset.load("Digits_FPS").features.shape
        (1797, 64)
        """
        from plench.data.sources import load_dataset  # sources consist of datasets

        return load_dataset(name, data_dir)

    def __repr__(self) -> str:
        return f"Dataset({self.card.name!r}, features {self.features.shape}, {self.n_classes} classes)"

    @property
    def n_examples(self) -> int:
        """N, the dataset's own test set not counted."""
        return len(self.features)

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.candidates.shape[1])

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the K classes, if they have any."""
        return self.card.class_names

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the K classes; their numbers if they have no names."""
        return self.class_names or tuple(map(str, range(self.n_classes)))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(N, D) or (N, C, H, W); of a table, D is the number of columns."""
        return self.features.shape

    @cached_property
    def mean_candidates(self) -> float:
        """Mean size of a candidate set."""
        return float(self.candidates.sum() / self.n_examples)

    @cached_property
    def noise_rate(self) -> float | None:
        """Fraction of examples whose candidate set misses the true label; None without labels."""
        if self.labels is None:
            return None
        return float(np.mean(~self.candidates[np.arange(self.n_examples), self.labels]))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over shapes, types and bytes of features, candidates, labels and test set.

        Groups, given validation rows and annotators' answers are in it where there are any.
        """
        arrays: list[NDArray[Any] | Table | None] = [self.features, self.candidates, self.labels]
        if self.test is not None:
            arrays += [self.test.features, self.test.labels]
        digest = hashlib.sha256()
        for name in ("groups", "validation"):
            value = getattr(self, name)
            if value is not None:
                digest.update(f"{name};".encode())
                arrays.append(value)
        if self.answers is not None:
            digest.update(b"answers;")
            arrays += [self.answers.item, self.answers.annotator, self.answers.sets]
        for array in arrays:
            if array is None:
                digest.update(b"absent;")
                continue
            if isinstance(array, Table):
                array.update_digest(digest)
                continue
            digest.update(f"{array.dtype.newbyteorder('<').str}{array.shape};".encode())
            digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).data)
        return digest.hexdigest()

    def take(self, rows: NDArray[np.int64]) -> Dataset:
        """Some of the examples, each at most once; the dataset's own test set stays as it is."""
        parts = ("labels", "groups", "validation", "known_labels")
        taken = {name: value[rows] for name in parts if (value := getattr(self, name)) is not None}
        return replace(
            self,
            features=self.features[rows],
            candidates=self.candidates[rows],
            answers=None if self.answers is None else self.answers.take_items(rows),
            items=None if self.items is None else tuple(self.items[row] for row in rows),
            **taken,
        )

    def with_candidates(self, candidates: ArrayLike) -> Dataset:
        """The same examples with other candidate sets."""
        return replace(self, candidates=np.asarray(candidates))

    def with_warnings(self, warnings: Iterable[str]) -> Dataset:
        """The same data with further warnings."""
        return replace(self, warnings=(*self.warnings, *warnings))


def check_features(features: ArrayLike | Table, kind: str, name: str) -> Any:
    """Return features as a table, or read-only as float32 N×D or uint8 N×C×H×W; raise DataError otherwise."""
    if isinstance(features, Table):
        if kind != "tabular":
            raise DataError(f"{name}: the features are a table, but their kind is {kind}")
        return features
    array = np.asarray(features)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name}: features must be real numbers, not {array.dtype}")
    if kind not in ("tabular", "image"):
        raise DataError(f"{name}: unknown kind {kind!r}; expected 'tabular' or 'image'")
    layout = "N×D" if kind == "tabular" else "N×C×H×W"
    if array.ndim != (2 if kind == "tabular" else 4) or 0 in array.shape:
        raise DataError(f"{name}: {kind} features must be {layout} and not empty, not of shape {array.shape}")
    if kind == "image":
        if array.dtype != np.uint8:
            raise DataError(f"{name}: images must be uint8 (0…255), not {array.dtype}")
        return freeze(array)
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite: reported below
        array = array.astype(np.float32, copy=False)
    for start in range(0, len(array), CHECKED_ROWS):  # in parts: what is mapped from a file stays there
        finite = np.isfinite(array[start : start + CHECKED_ROWS])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            value = array[start + row, column]
            raise DataError(
                f"{name}: feature {column} of example {start + row} is {value}; expected finite float32"
            )
    return freeze(array)


def check_candidates(candidates: ArrayLike, n_examples: int, name: str) -> NDArray[np.bool_]:
    """Return candidates as a read-only bool N×K array; raise DataError if they are not candidate sets."""
    array = np.asarray(candidates)
    if array.ndim != 2 or len(array) != n_examples:
        raise DataError(
            f"{name}: candidates must be N×K with N = {n_examples}, the number of examples, "
            f"not of shape {array.shape}"
        )
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name}: candidates must be 0 or 1, not of type {array.dtype}")
    if array.shape[1] < 2:
        raise DataError(f"{name}: at least two classes are needed, candidates have {array.shape[1]}")
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        row, label = np.argwhere(wrong)[0]
        raise DataError(
            f"{name}: candidate {label} of example {row} is {array[row, label]}; expected 0 or 1 (classes "
            "that annotators chose are given as `answers`)"
        )
    array = array.astype(np.bool_, copy=False)
    empty = ~array.any(axis=1)
    if empty.any():
        raise DataError(
            f"{name}: the candidate set of example {empty.argmax()} is empty ({empty.sum()} of {n_examples})"
        )
    return freeze(array)


def check_labels(labels: ArrayLike, n_examples: int, n_classes: int, name: str) -> NDArray[np.int64]:
    """Return labels as a read-only int64 array of N classes; raise DataError if they are not."""
    array = np.asarray(labels)
    if array.shape != (n_examples,) or array.dtype.kind not in "iu":
        raise DataError(
            f"{name}: labels must be one integer for each of {n_examples} examples, not {array.dtype} of "
            f"shape {array.shape}"
        )
    if n_classes < 2:
        raise DataError(f"{name}: at least two classes are needed, not {n_classes}")
    wrong = (array < 0) | (array >= n_classes)
    if wrong.any():
        row = wrong.argmax()
        raise DataError(f"{name}: the label of example {row} is {array[row]}; expected 0…{n_classes - 1}")
    return freeze(array.astype(np.int64, copy=False))


def check_test(
    test: TestSet, features: NDArray[Any] | Table, kind: str, n_classes: int, name: str
) -> TestSet:
    """Return a test set of checked arrays; raise DataError unless its features are like those of training."""
    name = f"{name} (test set)"
    found = check_features(test.features, kind, name)
    columns = [each.names if isinstance(each, Table) else None for each in (found, features)]
    if columns[0] != columns[1] or found.shape[1:] != features.shape[1:]:
        raise DataError(
            f"{name}: features have shape {found.shape[1:]} per example, those of the training examples "
            f"{features.shape[1:]}; expected the same shape, and the same columns in a table"
        )
    return TestSet(found, check_labels(test.labels, len(found), n_classes, name))
