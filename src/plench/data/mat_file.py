"""Reading a `.mat` file of partial-label data without trusting it.

The variables are `data` (N×D), `partial_target` (K×N, 0 or 1) and, where true labels are known, `target`
(K×N, one 1 a column); each dense or sparse and of any real numeric type.
"""

import io
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.io import loadmat, whosmat

from plench.errors import DataError

INTEGER_CLASSES = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
NUMERIC_CLASSES = {"double", "single", "logical", "sparse"} | INTEGER_CLASSES
MAX_CELLS = 2**29  # of one matrix, about fifty times the largest known: 2 GiB of float32
MAX_INFLATION = 1032  # deflate cannot expand a byte into more, and a dense number takes a byte at least


@dataclass(frozen=True, eq=False)
class MatContent:
    """The arrays of a file: features N×D, candidates N×K, labels N (None where the file has none)."""

    features: NDArray[Any]
    candidates: NDArray[Any]
    labels: NDArray[np.int64] | None


def read_mat(content: bytes, name: str) -> MatContent:
    """Read the bytes of a `.mat` file; raise DataError where they are not what the format promises.

    Types and declared sizes are checked before anything is read, and only the variables asked for are read,
    so that neither an object array nor a huge declared size does harm. `name` is for the errors.
    """
    declared = _list_variables(content, name)
    wanted = ["data", "partial_target", *(["target"] if "target" in declared else [])]
    for variable in wanted:
        _check_declared(variable, declared, len(content), name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = loadmat(io.BytesIO(content), variable_names=wanted)
    except Exception as error:  # scipy's reader raises many types on bad bytes; all mean a broken file
        raise DataError(f"{name}: not a readable .mat file ({_describe(error)})") from None
    matrices = {variable: _make_dense(read.get(variable), variable, name) for variable in wanted}
    features = matrices["data"]
    for variable in wanted[1:]:
        shape = matrices[variable].shape
        if shape[1] != len(features):
            raise DataError(
                f"{name}: `{variable}` is {shape[0]}×{shape[1]}, but `data` has {len(features)} examples; "
                "allowed is K×N, classes × examples"
            )
    labels = None
    if "target" in matrices:
        labels = _read_labels(matrices["target"], matrices["partial_target"].shape[0], name)
    return MatContent(features, np.ascontiguousarray(matrices["partial_target"].T), labels)


def _list_variables(content: bytes, name: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Declared shape and class of every variable, without reading the values."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            entries = whosmat(io.BytesIO(content))
    except NotImplementedError:
        raise DataError(
            f"{name}: a .mat file of version 7.3 (HDF5), which is not read; save it as version 7 or older"
        ) from None
    except Exception as error:  # as in read_mat
        raise DataError(f"{name}: not a readable .mat file ({_describe(error)})") from None
    declared: dict[str, tuple[tuple[int, ...], str]] = {}
    for variable, shape, matlab_class in entries:
        if variable in declared:
            raise DataError(f"{name}: the file has two variables `{variable}`")
        declared[variable] = (tuple(int(size) for size in shape), matlab_class)
    return declared


def _check_declared(
    variable: str, declared: dict[str, tuple[tuple[int, ...], str]], n_bytes: int, name: str
) -> None:
    if variable not in declared:
        found = ", ".join(sorted(declared)) or "nothing"
        raise DataError(
            f"{name}: the file has no variable `{variable}` (it holds {found}); "
            "needed are `data` and `partial_target`, and `target` for true labels"
        )
    shape, matlab_class = declared[variable]
    if matlab_class not in NUMERIC_CLASSES:
        raise DataError(f"{name}: `{variable}` is of class {matlab_class}; allowed are numeric matrices")
    _check_shape(variable, shape, name)
    if matlab_class != "sparse" and math.prod(shape) > n_bytes * MAX_INFLATION:
        raise DataError(
            f"{name}: `{variable}` declares {shape[0]}×{shape[1]} numbers, "
            f"more than a file of {n_bytes:,} bytes can hold; it is truncated or forged"
        )


def _check_shape(variable: str, shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2 or min(shape) < 1:
        raise DataError(f"{name}: `{variable}` has shape {shape}; allowed are matrices that are not empty")
    if math.prod(shape) > MAX_CELLS:
        raise DataError(
            f"{name}: `{variable}` declares {shape[0]}×{shape[1]} entries; allowed are at most {MAX_CELLS:,}"
        )


def _make_dense(matrix: Any, variable: str, name: str) -> NDArray[Any]:
    """A dense array of real numbers from what scipy read, the inner consistency of sparse ones checked."""
    if sparse.issparse(matrix):
        _check_shape(variable, matrix.shape, name)
        try:
            compressed = matrix.tocsc() if matrix.format == "coo" else matrix
            compressed.check_format(full_check=True)  # an index out of range would write out of bounds below
            matrix = compressed.toarray()
        except Exception as error:  # the checks raise several types; all mean an inconsistent matrix
            raise DataError(f"{name}: the sparse `{variable}` is broken ({_describe(error)})") from None
    if not isinstance(matrix, np.ndarray) or matrix.dtype.kind not in "fiub":
        kind = getattr(matrix, "dtype", type(matrix).__name__)
        raise DataError(f"{name}: `{variable}` is of type {kind}; allowed are real numbers")
    _check_shape(variable, matrix.shape, name)
    return matrix


def _read_labels(target: NDArray[Any], n_classes: int, name: str) -> NDArray[np.int64]:
    if target.shape[0] != n_classes:
        raise DataError(
            f"{name}: `target` has {target.shape[0]} classes (rows) and `partial_target` {n_classes}; "
            "they must agree"
        )
    wrong = ((target != 0) & (target != 1)).any(axis=0) | (np.count_nonzero(target, axis=0) != 1)
    if wrong.any():
        raise DataError(
            f"{name}: `target` of example {np.flatnonzero(wrong)[0]} must be a single 1 among 0s "
            f"({wrong.sum()} of {target.shape[1]} examples are not)"
        )
    return np.argmax(target != 0, axis=0).astype(np.int64)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
