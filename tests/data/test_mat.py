"""The reader of .mat files: what SciPy writes is read back, and no bytes at all crash it."""

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.io import loadmat, savemat

from plench.data.mat5 import MAX_CELLS, read_matrices
from plench.data.mat_file import read_mat
from plench.errors import DataError

NAMES = ("data", "partial_target", "target")


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
@pytest.mark.parametrize(
    "dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", pytest.param("?", id="logical")]
)
def test_dense_and_sparse_matrices_of_every_type_are_read(dtype, kind, compressed):
    variables = example(kind=kind, dtype=np.dtype(dtype))
    content = read_mat(to_mat(variables, do_compression=compressed))
    np.testing.assert_array_equal(content.features, variables["data"])
    np.testing.assert_array_equal(
        content.candidates, sparse.csc_matrix(variables["partial_target"]).toarray().T
    )
    np.testing.assert_array_equal(
        content.labels, sparse.csc_matrix(variables["target"]).toarray().argmax(axis=0)
    )


def test_features_may_be_sparse_and_other_variables_are_passed_over():
    variables = example(note="text", cells=np.array([1, "a"], dtype=object), struct={"a": 1})
    variables["data"] = sparse.csc_matrix(variables["data"] * (variables["data"] > 50))
    content = read_mat(to_mat(variables))
    np.testing.assert_array_equal(content.features, variables["data"].toarray())


def test_labels_may_be_absent():
    variables = example()
    del variables["target"]
    assert read_mat(to_mat(variables)).labels is None


def test_big_endian_files_are_read():
    def element(code, data):
        return struct.pack(">II", code, len(data)) + data + bytes(-len(data) % 8)

    def matrix(name, array):
        head = element(6, struct.pack(">II", 6, 0)) + element(5, struct.pack(">ii", *array.shape))
        return element(14, head + element(1, name) + element(9, array.astype(">f8").tobytes(order="F")))

    header = b"made by a test".ljust(124) + struct.pack(">H", 0x0100) + b"MI"
    array = np.arange(6.0).reshape(2, 3)
    found = read_matrices(
        header + matrix(b"data", array) + matrix(b"long_name_of_a_variable", array), ["data"]
    )
    np.testing.assert_array_equal(found["data"], array)
    assert found["long_name_of_a_variable"] is None


@pytest.mark.parametrize("file", ["lost.mat", "MSRCv2.mat", "BirdSong.mat", "italian.mat"])
def test_real_files_are_read_as_scipy_reads_them(real_data, file):
    path = real_data / "tabular" / file
    ours = read_matrices(path.read_bytes(), NAMES)
    theirs = loadmat(path)
    for name in NAMES:
        expected = theirs[name].toarray() if sparse.issparse(theirs[name]) else theirs[name]
        assert ours[name].dtype == expected.dtype
        assert np.array_equal(ours[name], expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partial_target": np.ones((4, 11))}, r"`partial_target` is 4×11, but `data` has 12 examples"),
        ({"target": np.ones((12, 4))}, r"`target` is 12×4, but `data` has 12 examples; allowed is K×N"),
        ({"target": np.eye(5, 12)}, "`target` has 5 classes .* `partial_target` 4"),
        ({"target": np.ones((4, 12))}, "`target` of example 0 must be a single 1"),
        ({"target": np.zeros((4, 12))}, "12 of 12 examples are not"),
        ({"target": np.full((4, 12), np.nan)}, "`target` of example 0"),
        ({"data": np.ones((12, 3), dtype=complex)}, "`data` is complex"),
        ({"data": np.ones((12, 3, 2))}, r"`data` has shape \(12, 3, 2\)"),
        ({"data": np.ones((0, 3))}, "not empty"),
        ({"data": "text"}, "`data` is text; allowed are numeric matrices"),
        ({"data": {"field": 1}}, "`data` is a struct"),
        ({"data": np.array([[1, "a"]], dtype=object)}, "`data` is a cell array"),
    ],
)
def test_wrong_variables_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        read_mat(to_mat(example(**changes)))


def test_missing_variables_are_named_with_what_is_there():
    with pytest.raises(DataError, match="the file holds x, y; needed are the variables `data` and"):
        read_mat(to_mat({"x": np.ones(3), "y": np.ones(3)}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a MATLAB file"),
        (b"PK\x03\x04" * 100, "not a MATLAB file"),
        (b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF", "version 7.3"),
        (b"MATLAB".ljust(124) + b"\x07\x07IM", "unknown version 0x0707"),
        (to_mat(example(), format="4"), "not a MATLAB file of version 5 to 7"),
        (to_mat(example()) + bytes(8), "type code 0"),
        (to_mat(example()) + to_mat(example())[128:], "two variables `data`"),
    ],
    # A file holds the second it was made in: as a name it would differ between pytest's processes.
    ids=["empty", "zip", "7.3", "unknown", "4", "type_code", "two_variables"],
)
def test_other_files_are_refused(content, message):
    with pytest.raises(DataError, match=message):
        read_mat(content)


def forge(content, old, new):
    assert content.count(old) == 1
    return content.replace(old, new)


def test_huge_declared_sizes_are_refused_without_allocating_them():
    content = to_mat({"data": np.ones((1234, 1))})
    for shape, message in (
        ((2**31 - 1, 2**31 - 1), f"at most {MAX_CELLS:,}"),
        ((2**26, 1), "declares 67108864×1 numbers and holds 1,234"),
        ((-5, 7), "not empty"),
    ):
        forged = forge(content, struct.pack("<ii", 1234, 1), struct.pack("<ii", *shape))
        with pytest.raises(DataError, match=message):
            read_matrices(forged, ["data"])


def pack(element):
    data = zlib.compress(element)
    return b"MATLAB".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(data)) + data


def test_compressed_data_that_lie_about_their_size_are_refused():
    element = to_mat({"data": np.zeros((1000, 1))})[128:]
    assert read_matrices(pack(element), ["data"])["data"].shape == (1000, 1)
    for forged, message in (
        (pack(element + bytes(10**7)), "longer than declared"),
        (pack(element[:4] + struct.pack("<I", 2**32 - 8) + element[8:]), "allowed are at most"),
        (pack(element[:-8]), "truncated"),
        (pack(element)[:-8], "truncated"),
        (pack(element)[:-1] + b"x", "broken"),
        (pack(pack(element)[128:]), "type code 15"),
    ):
        with pytest.raises(DataError, match=message):
            read_matrices(forged, ["data"])


def sparse_file(row_index, starts):
    matrix = sparse.csc_matrix((np.ones(3), [0, 1, 2], [0, 1, 3]), shape=(3, 2))
    content = to_mat({"data": matrix})
    content = forge(content, struct.pack("<iii", 0, 1, 2), struct.pack("<iii", *row_index))
    return forge(content, struct.pack("<iii", 0, 1, 3), struct.pack("<iii", *starts))


@pytest.mark.parametrize(
    ("row_index", "starts", "message"),
    [
        ((0, 1, 7), (0, 1, 3), "row index is outside 0…2"),
        ((0, -1, 2), (0, 1, 3), "row index is outside 0…2"),
        ((0, 2, 1), (0, 1, 3), "rows of a column do not ascend"),
        ((0, 1, 1), (0, 1, 3), "rows of a column do not ascend"),
        ((0, 1, 2), (0, 2, 1), "columns do not follow one another"),
        ((0, 1, 2), (1, 1, 3), "columns do not follow one another"),
        ((0, 1, 2), (0, 1, 9), "declares 9 entries and holds fewer"),
    ],
)
def test_inconsistent_sparse_matrices_are_refused(row_index, starts, message):
    with pytest.raises(DataError, match=message):
        read_matrices(sparse_file(row_index, starts), ["data"])


def test_a_forged_type_code_is_an_error_and_no_crash():
    content = to_mat({"data": np.full((5, 1), 7.25)})
    tag = struct.pack("<II", 9, 40)  # doubles, 40 bytes
    with pytest.raises(DataError, match="values of type code 52000"):
        read_matrices(forge(content, tag, struct.pack("<II", 52000, 40)), ["data"])


FILES = [
    to_mat(example(kind=kind), do_compression=compressed)
    for kind in (np.asarray, sparse.csc_matrix)
    for compressed in (False, True)
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FILES), st.data())
def test_damaged_files_are_read_or_refused(content, data):
    damaged = bytearray(content)
    places = st.tuples(st.integers(0, len(content) - 1), st.sampled_from([0, 1, 5, 14, 15, 127, 128, 255]))
    for place, value in data.draw(st.lists(places, max_size=6)):
        damaged[place] = value
    damaged = damaged[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else damaged
    try:
        read = read_mat(bytes(damaged))
    except DataError:
        return  # any other exception fails the test
    assert len(read.features) == len(read.candidates)
