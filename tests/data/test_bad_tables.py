"""Every reader of own data against arbitrary and damaged input: a clear error of ours, or a dataset."""

import csv
import io
import string

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from plench.data import Dataset, load_dataset, make_table_dataset
from plench.data.answers import Answers, Taxonomy, read_answer_matrix
from plench.data.tables import parse_table
from plench.errors import DataError, PlenchError
from tests.data.test_damaged_files import csv as csv_sample

GENTLE = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

WORDS = [
    "", "1", "-1.5", "1e999", "nan", "inf", "true", "2024-01-02", "cat", "cat|dog", "||", "not cat", "unsure",
]  # fmt: skip
ROLES = [
    "candidates", "truth", "label", "split", "group", "item", "annotator", "answers", "annotator_a",
    "candidate_x",
]  # fmt: skip
cells = st.one_of(st.text(max_size=8), st.sampled_from(WORDS), st.just("x" * 100_000))
names = st.one_of(st.sampled_from(ROLES), st.text(max_size=6))
objects = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3),
    st.dates(), st.lists(st.integers(0, 3), max_size=3), st.complex_numbers(), st.just(object()),
    st.dictionaries(st.text(max_size=2), st.none(), max_size=1),
)  # fmt: skip


def survive(read) -> None:
    """Accept an error of ours, or what was asked for; anything else fails the test."""
    made = problem = None
    try:
        made = read()
    except PlenchError as error:
        problem = error
    if problem is not None:
        assert 0 < len(str(problem)) < 2_000  # a long cell is cut in its error
    else:
        assert isinstance(made, Dataset | Answers | Taxonomy)
        assert not isinstance(made, Dataset) or made.candidates.any(1).all()


@GENTLE
@given(st.binary(max_size=400))
@example(b"\xff\xfea,b\n1,2\n")
@example(b"a\n\x00\n")
@example(b"\xef\xbb\xbf")
def test_arbitrary_bytes(content):
    for suffix in (".csv", ".tsv", ".parquet"):
        survive(lambda suffix=suffix: make_table_dataset(parse_table(content, suffix, "x")))
    survive(lambda: Taxonomy.read(parse_table(content, ".csv", "tree.csv")))


@GENTLE
@given(st.lists(names, min_size=1, max_size=6), st.data())
def test_tables_of_any_cells_under_any_names(header, data):
    rows = data.draw(st.lists(st.lists(cells, min_size=len(header), max_size=len(header)), max_size=5))
    sink = io.StringIO()
    csv.writer(sink).writerows([header, *rows])
    content = sink.getvalue().encode("utf-8", "replace")
    survive(lambda: make_table_dataset(parse_table(content, ".csv", "x.csv")))


@GENTLE
@given(
    st.one_of(
        st.dictionaries(names, st.lists(objects, max_size=4), max_size=4),
        st.dictionaries(
            st.sampled_from(["candidates", "x", "answers"]), st.lists(objects, min_size=3, max_size=3)
        ),
    )
)
def test_frames_of_wrong_types(columns):
    survive(lambda: make_table_dataset(columns))


@GENTLE
@given(
    st.lists(
        st.lists(st.one_of(st.integers(-3, 5), st.floats(), st.text(max_size=2), st.none()), max_size=3),
        max_size=3,
    )
)
def test_matrices_of_anything(matrix):
    try:
        array = np.array(matrix)
    except ValueError:  # ragged: NumPy's own error, before ours
        return
    survive(lambda: read_answer_matrix(array))


@GENTLE
@given(st.binary(max_size=200), st.sampled_from(["features", "candidates", "labels", "answers"]))
def test_npy_files_of_any_bytes(tmp_path_factory, content, which):
    folder = tmp_path_factory.mktemp("arrays")
    np.save(folder / "features.npy", np.zeros((4, 2), np.float32))
    np.save(folder / "candidates.npy", np.ones((4, 3), bool))
    (folder / f"{which}.npy").write_bytes(content)
    survive(lambda: load_dataset(str(folder)))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\x81\x00", r"candidates\.csv: line 1 is not UTF-8"), (b"candidates\na|b\n", "needs a column file")],
)
def test_images_folders_of_any_table(tmp_path, content, message):
    (tmp_path / "candidates.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_dataset(str(tmp_path))


def test_long_cells_are_read():
    text = "x,note,candidates,truth\n1,{0},cat|dog,cat\n2,b,dog,{0}\n".format("y" * 100_000)
    table = parse_table(text.encode(), ".csv", "x.csv")
    assert make_table_dataset(table, truth="truth").n_examples == 2


@GENTLE
@given(st.text(alphabet=string.printable, max_size=30))
def test_options_behind_a_path(tmp_path_factory, query):
    path = csv_sample(tmp_path_factory.mktemp("table")).path
    survive(lambda: load_dataset(f"{path}?{query}"))
