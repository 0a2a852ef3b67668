"""Every reader of own data against arbitrary, damaged and hostile input: our own error, or a dataset."""

import csv
import io
import string

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from plench.data import Dataset, load_dataset
from plench.data.answers import Answers, read_answer_matrix
from plench.data.sources.tables import make_table_dataset
from plench.data.table_files import parse_delimited, parse_table
from plench.data.taxonomy import parse_taxonomy
from plench.errors import DataError, PlenchError

GENTLE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
GOOD = (
    "item,age,colour,candidates,truth,split,group\n"
    + "\n".join(
        f"i{i},{i / 3:.2f},{'rgb'[i % 3]},{'cat|dog' if i % 2 else 'dog|emu'},dog,train,g{i // 2}"
        for i in range(12)
    )
    + "\n"
).encode()
ANSWERS = b"item,annotator,label,x\ni1,ann,cat,1\ni1,bob,dog,1\ni2,ann,cat|dog,2\ni3,ann,not cat,3\n"

cells = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "",
            "1",
            "-1.5",
            "1e999",
            "nan",
            "inf",
            "true",
            "2024-01-02",
            "cat",
            "cat|dog",
            "||",
            "not cat",
            "unsure",
            "=1+1",
        ]
    ),
    st.just("x" * 100_000),
)
names = st.one_of(
    st.sampled_from(
        [
            "candidates",
            "truth",
            "label",
            "split",
            "group",
            "item",
            "annotator",
            "answers",
            "annotator_a",
            "candidate_x",
        ]
    ),
    st.text(max_size=6),
    st.sampled_from(list("abcé")),
)


def survive(read) -> None:
    """Our own error, or what was asked for; anything else fails the test."""
    made = problem = None
    try:
        made = read()
    except PlenchError as error:
        problem = error
    if problem is not None:
        assert 0 < len(str(problem)) < 2_000  # a long cell is cut in its error
        return
    assert isinstance(made, Dataset | Answers) or hasattr(made, "columns") or hasattr(made, "leaves")
    if isinstance(made, Dataset):
        assert made.candidates.any(1).all()


@GENTLE
@given(st.binary(max_size=400))
@example(b"\xff\xfea,b\n1,2\n")
@example(b"a\n\x00\n")
def test_arbitrary_bytes(content):
    survive(lambda: make_table_dataset(parse_delimited(content, "x.csv")))
    survive(lambda: make_table_dataset(parse_table(content, ".tsv", "x.tsv")))
    survive(lambda: make_table_dataset(parse_table(content, ".parquet", "x.parquet")))
    survive(lambda: parse_taxonomy(parse_delimited(content, "tree.csv")))


@GENTLE
@given(st.sampled_from([GOOD, ANSWERS]), st.integers(0, 10_000), st.integers(0, 7), st.booleans())
def test_truncated_and_bit_flipped_files(content, position, bit, cut):
    position %= len(content)
    damaged = content[:position] if cut else bytearray(content)
    if not cut:
        damaged[position] ^= 1 << bit
    survive(lambda: make_table_dataset(parse_delimited(bytes(damaged), "x.csv")))


@pytest.fixture(scope="module")
def parquet() -> bytes:
    pytest.importorskip("pyarrow")
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet as arrow_parquet

    sink = io.BytesIO()
    arrow_parquet.write_table(arrow_csv.read_csv(io.BytesIO(GOOD)), sink)
    return sink.getvalue()


@GENTLE
@given(position=st.integers(0, 10_000), bit=st.integers(0, 7), cut=st.booleans())
def test_truncated_and_bit_flipped_parquet(parquet, position, bit, cut):
    position %= len(parquet)
    damaged = bytearray(parquet[:position] if cut else parquet)
    if not cut:
        damaged[position] ^= 1 << bit
    survive(lambda: make_table_dataset(parse_table(bytes(damaged), ".parquet", "x.parquet")))


@GENTLE
@given(st.lists(names, min_size=1, max_size=6), st.data())
def test_tables_of_any_cells_under_any_names(header, data):
    rows = data.draw(st.lists(st.lists(cells, min_size=len(header), max_size=len(header)), max_size=5))
    sink = io.StringIO()
    csv.writer(sink).writerows([header, *rows])
    survive(lambda: make_table_dataset(parse_delimited(sink.getvalue().encode("utf-8", "replace"), "x.csv")))


objects = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3),
    st.dates(), st.lists(st.integers(0, 3), max_size=3), st.complex_numbers(), st.just(object()),
    st.dictionaries(st.text(max_size=2), st.none(), max_size=1),
)  # fmt: skip


@GENTLE
@given(st.dictionaries(names, st.lists(objects, max_size=4), max_size=4))
def test_frames_of_wrong_types(columns):
    survive(lambda: make_table_dataset(columns))


@GENTLE
@given(
    st.dictionaries(
        st.sampled_from(["candidates", "x", "answers"]), st.lists(objects, min_size=3, max_size=3)
    )
)
def test_roles_of_wrong_types(columns):
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
    except ValueError:  # ragged: NumPy's own word, before ours
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


def test_images_folders_of_any_table(tmp_path):
    (tmp_path / "candidates.csv").write_bytes(b"\xff\x00")
    with pytest.raises(DataError, match=r"candidates\.csv: line 1 is not UTF-8"):
        load_dataset(str(tmp_path))
    (tmp_path / "candidates.csv").write_text("candidates\na|b\n")
    with pytest.raises(DataError, match="needs a column file"):
        load_dataset(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("x,candidates\n1,cat|dog\nmany cells," + "x" * 100_000 + "\n", None),
        ("x,candidates,truth\n1,cat|dog,cat\n2,dog,{}\n".format("y" * 100_000), None),
        ("x,candidates\n1,cat\n2,cat\n", "at least two classes are needed; there are 1, 'cat'"),
        (
            "x,candidate_a,candidate_b\n1,1,0\n2,maybe,1\n",
            "row 2, column 'candidate_a': 'maybe'; allowed are 0 and 1",
        ),
    ],
)
def test_odd_tables(text, place):
    if place is None:
        dataset = make_table_dataset(parse_delimited(text.encode(), "x.csv"))
        assert dataset.n_examples == 2
    else:
        with pytest.raises(DataError, match=place):
            make_table_dataset(parse_delimited(text.encode(), "x.csv"))


@GENTLE
@given(st.text(alphabet=string.printable, max_size=30))
def test_options_behind_a_path(tmp_path_factory, query):
    path = tmp_path_factory.mktemp("table") / "x.csv"
    path.write_bytes(GOOD)
    survive(lambda: load_dataset(f"{path}?{query}"))
