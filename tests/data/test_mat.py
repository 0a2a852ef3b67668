"""MATLAB files: dense and sparse matrices of every type, and errors that say what is wrong."""

import io
import struct

import numpy as np
import pytest
from scipy import sparse
from scipy.io import savemat

from plench.data.sources.mat import read_mat
from plench.errors import DataError


def to_mat(variables, **options):
    file = io.BytesIO()
    savemat(file, variables, **options)
    return file.getvalue()


def example(n=12, d=3, k=4, kind=np.asarray, dtype=np.float64, **changes):
    rng = np.random.default_rng(0)
    labels = rng.integers(k, size=n)
    target = (np.arange(k)[:, None] == labels).astype(dtype)
    candidates = np.maximum(target, rng.integers(2, size=(k, n)).astype(dtype))
    data = rng.integers(100, size=(n, d)).astype(dtype)
    return {"data": data, "partial_target": kind(candidates), "target": kind(target), **changes}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csc_matrix])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "f4", "f8", pytest.param("?", id="logical")])
def test_dense_and_sparse_matrices_of_every_type_are_read(dtype, kind, compressed):
    variables = example(kind=kind, dtype=np.dtype(dtype))
    features, candidates, labels = read_mat(to_mat(variables, do_compression=compressed), "it")
    np.testing.assert_array_equal(features, variables["data"])
    np.testing.assert_array_equal(candidates, sparse.csc_matrix(variables["partial_target"]).toarray().T)
    np.testing.assert_array_equal(labels, sparse.csc_matrix(variables["target"]).toarray().argmax(axis=0))


def test_features_may_be_sparse_and_other_variables_are_ignored():
    variables = example(note="text", cells=np.array([1, "a"], dtype=object), struct={"a": 1})
    variables["data"] = sparse.csc_matrix(variables["data"] * (variables["data"] > 50))
    features, _, _ = read_mat(to_mat(variables), "it")
    np.testing.assert_array_equal(features, variables["data"].toarray())


def test_labels_may_be_absent():
    variables = example()
    del variables["target"]
    assert read_mat(to_mat(variables), "it")[2] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"partial_target": np.ones((4, 11))},
            r"`partial_target` has shape \(4, 11\); expected is \(4, 12\)",
        ),
        ({"target": np.ones((12, 4))}, r"`target` has shape \(12, 4\); expected is \(4, 12\), classes ×"),
        ({"target": np.eye(5, 12)}, r"`target` has shape \(5, 12\)"),
        ({"target": np.ones((4, 12))}, "`target` of example 0 must be a single 1"),
        ({"target": np.zeros((4, 12))}, "12 of 12 examples differ"),
        ({"target": np.full((4, 12), np.nan)}, "`target` of example 0"),
        ({"data": np.ones((12, 3), dtype=complex)}, "`data` is of type complex128"),
        ({"data": np.ones((12, 3, 2))}, r"`data` is of type float64 and shape \(12, 3, 2\)"),
        ({"data": np.ones((0, 3))}, "not empty"),
        ({"data": "text"}, "`data` is not a matrix of numbers"),
        ({"data": {"field": 1}}, "`data` is not a matrix of numbers"),
    ],
)
def test_wrong_variables_are_refused(changes, message):
    with pytest.raises(DataError, match=rf"it cannot be used: .*{message}"):
        read_mat(to_mat(example(**changes)), "it")


def test_missing_variables_are_named_with_what_is_there():
    with pytest.raises(DataError, match="it contains x, y; expected are the variables `data` and"):
        read_mat(to_mat({"x": np.ones(3), "y": np.ones(3)}), "it")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a MATLAB file"),
        (b"PK\x03\x04" * 100, "not a MATLAB file"),
        (b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF", "version 7.3"),
        (to_mat(example(), format="4"), "not a MATLAB file of version 5 to 7"),
        (to_mat(example())[:-50], "truncated"),
    ],
    # A file contains the time at which it was made: as a name it would differ between pytest's processes.
    ids=["empty", "zip", "7.3", "4", "truncated"],
)
def test_other_files_are_refused(content, message):
    with pytest.raises(DataError, match=message):
        read_mat(content, "it")


def test_damage_that_would_crash_scipy_is_an_error():
    """An unknown type code, a row index outside of a sparse matrix, columns that overlap."""
    dense, scattered = to_mat(example()), to_mat(example(kind=sparse.csc_matrix, n=2, k=3))
    tag = struct.pack("<II", 9, 12 * 3 * 8)
    assert tag in dense
    with pytest.raises(DataError, match="damaged: `data` is not stored as a matrix is"):
        read_mat(dense.replace(tag, struct.pack("<II", 52_000, 12 * 3 * 8)), "it")
    _, candidates, _ = read_mat(scattered, "it")
    rows, starts = sparse.csc_matrix(candidates.T).indices, sparse.csc_matrix(candidates.T).indptr
    for old, new in ((rows, rows + 1000), (starts, [*starts[:-1], 0])):
        before = struct.pack(f"<{len(old)}i", *old)
        assert before in scattered
        with pytest.raises(DataError, match="damaged"):
            read_mat(scattered.replace(before, struct.pack(f"<{len(old)}i", *new)), "it")
