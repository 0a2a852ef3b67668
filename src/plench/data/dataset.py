"""The dataset type: features, candidate sets and (for evaluation only) true labels, checked once.

Shapes: N examples, D features, K classes. Tabular features are float32 N×D or a `Table` of typed columns;
images are uint8 N×C×H×W.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plench.data.answers import Answers
from plench.data.candidates import REAL_CANDIDATES, CandidateSpec
from plench.data.table import Table
from plench.errors import DataError

CHECKED_ROWS = 4096


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

    @property
    def known_sizes(self) -> Sizes | None:
        """The sizes that the dataset should have, if they are known."""
        return self.published or self.sizes


@dataclass(frozen=True, eq=False)
class TestSet:
    """A dataset's own test set (CIFAR-10 has one, tabular datasets have none)."""

    __test__: ClassVar[bool] = False  # the name begins with "Test", but it is no test class for pytest

    features: NDArray[Any] | Table
    labels: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Features, candidates and labels of N examples, with a card and the warnings that loading gave.

    The constructor accepts any numeric arrays of the right shape and values and raises DataError, naming the
    first offending row, otherwise. Its arrays are read-only views where no conversion is needed, so that a
    large array is held once: do not change the arrays given. A label outside its candidate set is allowed;
    `noise_rate` counts them. `verified` says that the files had the public release's checksums.

    Own data may have more: `groups` (N), whose examples stay in one part of the split;
    `validation` (N), the rows of the validation part where the data says so; and `answers` of annotators.
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

    def __post_init__(self) -> None:
        name = self.card.name
        features = check_features(self.features, self.card.kind, name)
        candidates = check_candidates(self.candidates, len(features), name)
        n_classes = candidates.shape[1]
        labels = None if self.labels is None else check_labels(self.labels, len(features), n_classes, name)
        test = self.test
        if test is not None:
            test = _check_test(test, features, self.card.kind, n_classes, name)
        for field, value in (("features", features), ("candidates", candidates), ("labels", labels)):
            object.__setattr__(self, field, value)
        object.__setattr__(self, "test", test)
        object.__setattr__(self, "warnings", tuple(self.warnings))
        if self.class_names is not None:
            check_class_names(self.class_names, n_classes, name)
        for field, dtype in (("groups", np.int64), ("validation", np.bool_)):
            value = getattr(self, field)
            if value is not None:
                object.__setattr__(self, field, check_rows(value, len(features), dtype, f"{name}: {field}"))
        if self.answers is not None and (self.answers.n_items, self.answers.n_classes) != candidates.shape:
            raise DataError(
                f"{name}: answers are for {self.answers.n_items} items and {self.answers.n_classes} classes, "
                f"candidates for {candidates.shape[0]} and {candidates.shape[1]}"
            )

    @classmethod
    def load(cls, name: str, data_dir: str | Path | None = None) -> "Dataset":
        """Load a dataset by any spelling of its name, or by path; built-in ones need no `data_dir`.

        >>> plench.Dataset.load("Digits_FPS").features.shape
        """
        from plench.data.sources import load_dataset  # sources are made of datasets

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

    def with_candidates(self, candidates: ArrayLike) -> "Dataset":
        """The same examples with other candidate sets."""
        return replace(self, candidates=np.asarray(candidates))

    def with_warnings(self, warnings: Iterable[str]) -> "Dataset":
        """The same data with further warnings."""
        return replace(self, warnings=(*self.warnings, *warnings))


def check_features(features: ArrayLike | Table, kind: str, name: str) -> Any:
    """Return features as read-only float32 N×D or uint8 N×C×H×W; raise DataError where they are neither.

    A table was checked when it was made.
    """
    if isinstance(features, Table):
        if kind != "tabular":
            raise DataError(f"{name}: the features are a table, but their kind is {kind}")
        return features
    array = np.asarray(features)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name}: features must be real numbers, not {array.dtype}")
    wanted = {"tabular": 2, "image": 4}.get(kind)
    if wanted is None:
        raise DataError(f"{name}: kind is {kind!r}; allowed are 'tabular' and 'image'")
    if array.ndim != wanted or 0 in array.shape:
        layout = "N×D" if wanted == 2 else "N×C×H×W"
        raise DataError(f"{name}: {kind} features must be {layout} and not empty, not of shape {array.shape}")
    if kind == "image":
        if array.dtype != np.uint8:
            raise DataError(f"{name}: images must be uint8 (0…255), not {array.dtype}")
        return _freeze(array)
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite: reported below
        array = array.astype(np.float32, copy=False)
    for start in range(0, len(array), CHECKED_ROWS):  # in parts: what is mapped from a file stays there
        finite = np.isfinite(array[start : start + CHECKED_ROWS])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            value = array[start + row, column]
            raise DataError(
                f"{name}: feature {column} of example {start + row} is {value}; features must be finite "
                "float32"
            )
    return _freeze(array)


def check_candidates(candidates: ArrayLike, n_examples: int, name: str) -> NDArray[np.bool_]:
    """Return candidates as a read-only bool N×K array; raise DataError where they are not candidate sets."""
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
    if array.dtype != np.bool_:
        wrong = (array != 0) & (array != 1)
        if wrong.any():
            row, label = np.argwhere(wrong)[0]
            value = array[row, label]
            raise DataError(f"{name}: candidate {label} of example {row} is {value}; allowed are 0 and 1")
        array = array.astype(np.bool_)
    empty = ~array.any(axis=1)
    if empty.any():
        raise DataError(
            f"{name}: the candidate set of example {np.flatnonzero(empty)[0]} is empty "
            f"({empty.sum()} empty of {n_examples})"
        )
    return _freeze(array)


def check_labels(labels: ArrayLike, n_examples: int, n_classes: int, name: str) -> NDArray[np.int64]:
    """Return labels as a read-only int64 array of N classes; raise DataError where they are not."""
    array = np.asarray(labels)
    if array.shape != (n_examples,):
        raise DataError(
            f"{name}: labels must be one integer for each of {n_examples} examples, not {array.shape}"
        )
    if array.dtype.kind not in "iu":
        raise DataError(f"{name}: labels must be integers, not of type {array.dtype}")
    wrong = (array < 0) | (array >= n_classes)
    if wrong.any():
        row = np.flatnonzero(wrong)[0]
        raise DataError(f"{name}: the label of example {row} is {array[row]}; allowed are 0…{n_classes - 1}")
    return _freeze(array.astype(np.int64, copy=False))


def check_class_names(names: tuple[str, ...], n_classes: int, name: str) -> None:
    """Raise DataError unless the names of K classes are K different texts."""
    if len(names) != n_classes or len(set(names)) != n_classes:
        raise DataError(
            f"{name}: {n_classes} classes need {n_classes} different names, not {len(set(names))} different "
            f"among {len(names)}"
        )


def check_rows(values: ArrayLike, n_examples: int, dtype: Any, name: str) -> NDArray[Any]:
    """Return one value per example, read-only."""
    array = np.asarray(values)
    if array.shape != (n_examples,) or array.dtype.kind not in "iub":
        raise DataError(
            f"{name} must be one value for each of {n_examples} examples, not {array.dtype} of {array.shape}"
        )
    return _freeze(array.astype(dtype))


def _check_test(
    test: TestSet, features: NDArray[Any] | Table, kind: str, n_classes: int, name: str
) -> TestSet:
    name = f"{name} (test set)"
    test_features = check_features(test.features, kind, name)
    if isinstance(test_features, Table) != isinstance(features, Table):
        raise DataError(f"{name}: features must be a table where those of the training examples are one")
    if isinstance(features, Table) and test_features.names != features.names:
        raise DataError(f"{name}: its columns must be those of the training examples")
    if test_features.shape[1:] != features.shape[1:]:
        raise DataError(
            f"{name}: features have shape {test_features.shape[1:]} per example, "
            f"those of the training examples {features.shape[1:]}"
        )
    return TestSet(test_features, check_labels(test.labels, len(test_features), n_classes, name))


def _freeze(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous, read-only view; the array that was given stays writable for its owner."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
