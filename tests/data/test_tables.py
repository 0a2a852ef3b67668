"""Tables: reading, kinds of columns, roles, candidates, splits and groups, and the encoding of a model."""

import datetime

import numpy as np
import pytest

from plench.cli import main
from plench.data import split_dataset
from plench.data.encoding import TableEncoder
from plench.data.raw_table import RawTable, read_frame
from plench.data.sources import load_dataset
from plench.data.sources.tables import make_table_dataset
from plench.data.table import Table, make_column, make_table
from plench.data.table_files import parse_delimited, parse_table
from plench.data.table_roles import TableOptions, find_roles, split_reference
from plench.errors import DataError, UsageError

ANIMALS = """age,colour,tame,candidates,truth
1.5,red,true,cat|dog,cat
2,blue,false,dog,dog
,red,true,bird|cat,bird
4,,false,dog|bird,bird
"""


def read(text: str, **options):
    return make_table_dataset(parse_delimited(text.encode(), "animals.csv"), **options)


def test_columns_become_typed_features_candidates_and_truth():
    dataset = read(ANIMALS)
    assert isinstance(dataset.features, Table)
    assert [(c.name, c.kind) for c in dataset.features.columns] == [
        ("age", "number"),
        ("colour", "category"),
        ("tame", "boolean"),
    ]
    assert dataset.class_names == ("bird", "cat", "dog")
    assert dataset.candidates.tolist() == [
        [False, True, True],
        [False, False, True],
        [True, True, False],
        [True, False, True],
    ]
    assert dataset.labels.tolist() == [1, 2, 0, 0]
    assert any("'age' has 1 of 4 values missing" in notice for notice in dataset.warnings)


def test_the_name_in_records_carries_a_hash_of_content_and_options(tmp_path):
    path = tmp_path / "animals.csv"
    path.write_text(ANIMALS)
    plain = load_dataset(str(path))
    other = load_dataset(f"{path}?ignore=colour")
    again = load_dataset(str(path))
    assert plain.card.name.startswith("animals@")
    assert plain.card.name == again.card.name != other.card.name
    assert plain.fingerprint == again.fingerprint != other.fingerprint
    assert other.features.names == ("age", "tame")


def test_one_column_of_zeros_and_ones_a_class():
    text = "x,candidate_cat,candidate_dog\n1,1,0\n2,1,1\n3,0,1\n"
    dataset = read(text)
    assert dataset.class_names == ("cat", "dog")
    assert dataset.candidates.tolist() == [[True, False], [True, True], [False, True]]
    with pytest.raises(DataError, match=r"row 2, column 'candidate_dog': '2'; allowed are 0 and 1"):
        read(text.replace("1,1\n3", "1,2\n3"))
    with pytest.raises(DataError, match="row 3 has 0 in every column of a class"):
        read(text.replace("3,0,1", "3,0,0"))


def test_columns_are_named_by_options():
    text = "x,tags,species\n1,a+b,a\n2,b,b\n"
    dataset = read(text, candidates="tags", truth="species", separator="+")
    assert dataset.features.names == ("x",)
    assert dataset.candidates.tolist() == [[True, True], [False, True]]
    with pytest.raises(DataError, match="has no column 'labels'; it has x, tags, species"):
        read(text, candidates="labels")
    path, options = split_reference("a/b.csv?candidates=tags&ignore=x,y")
    assert (path, options.candidates, options.ignore) == ("a/b.csv", "tags", ("x", "y"))
    with pytest.raises(UsageError, match="unknown option of a table 'candidate'; did you mean"):
        split_reference("b.csv?candidate=x")


def test_two_columns_for_one_role_are_refused():
    with pytest.raises(DataError, match="'label' and 'truth' could both be the truth"):
        read("x,candidates,label,truth\n1,a|b,a,b\n2,b,b,b\n")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["2024-01-03", "2024-02-01"], "date or time"),
        (["3.1.2024", "04.02.2023"], "date or time"),
        ([datetime.date(2024, 1, 3), None], "date or time"),
        ([[1], [2]], "is list; features may be numbers"),
        (["1e999", "3"], "not a finite float32 number"),
    ],
)
def test_features_that_a_network_cannot_use_are_refused_with_row_and_column(column, message):
    with pytest.raises(DataError, match=message) as caught:
        make_column(read_frame({"when": column}), "when")
    assert "row 1, column 'when'" in str(caught.value)


def test_dates_in_numpy_and_frames_are_refused():
    with pytest.raises(DataError, match="date or time"):
        make_column(read_frame({"when": np.array(["2024-01-03"], "datetime64[D]")}), "when")


def test_texts_that_are_no_categories_are_refused():
    with pytest.raises(DataError, match=r"column 'name' has 1,001 different texts.*ignore=name"):
        make_column(read_frame({"name": [f"n{i}" for i in range(1001)]}), "name")


def test_gaps_are_filled_from_the_training_rows_and_marked():
    raw = read_frame(
        {"n": [1.0, None, 5.0, 100.0], "c": ["a", None, "b", "z"], "b": [True, None, True, False]}
    )
    table, notices = make_table(raw, raw.columns)
    encoder = TableEncoder.fit(table[np.array([0, 1, 2])])
    inputs, unknown = encoder.encode(table)
    assert encoder.input_names == [
        "n",
        "n is missing",
        "c=a",
        "c=b",
        "c is missing",
        "b",
        "b is missing",
    ]
    assert inputs.tolist() == [
        [1, 0, 1, 0, 0, 1, 0],
        [3, 1, 0, 0, 1, 1, 1],  # the median of 1 and 5; the more frequent truth value
        [5, 0, 0, 1, 0, 1, 0],
        [100, 0, 0, 0, 0, 0, 0],  # z is unknown
    ]
    assert unknown == {"c": 1}
    assert len(notices) == 3


def test_an_encoding_meets_new_data_by_name_in_any_order():
    encoder = TableEncoder.fit(make_table(read_frame({"n": [1, 2], "c": ["1", "x"]}), ["n", "c"])[0])
    again = TableEncoder.from_state(encoder.state())
    table = again.read(read_frame({"extra": [0], "c": [1], "n": ["2.5"]}))
    assert again.encode(table)[0].tolist() == [[2.5, 1, 0]]
    with pytest.raises(DataError, match=r"X has no column 'n'; the model needs n, c"):
        again.read(read_frame({"c": ["x"]}, "X"))
    with pytest.raises(DataError, match=r"row 2, column 'n': 'many' where numbers are allowed"):
        again.read(read_frame({"c": ["x", "x"], "n": ["1", "many"]}))


def test_an_empty_column_is_left_out_with_a_notice():
    dataset = read("a,b,candidates\n1,,x|y\n2,NA,y\n")
    assert dataset.features.names == ("a",)
    assert any("'b' is empty and is left out" in notice for notice in dataset.warnings)
    with pytest.raises(DataError, match="no column of features with a value"):
        read("b,candidates\n,x|y\nNA,y\n")


def test_rows_of_split_test_become_the_own_test_set():
    rows = [f"{i},a|b,{'a' if i % 2 else 'b'},{'test' if i < 5 else 'train'}" for i in range(20)]
    dataset = read("x,candidates,truth,split\n" + "\n".join(rows))
    assert dataset.n_examples == 15
    assert len(dataset.test.labels) == 5
    split = split_dataset(dataset, 0)
    assert split.test is None
    rows = [row.replace("train", "valid") if i >= 15 else row for i, row in enumerate(rows)]
    dataset = read("x,candidates,truth,split\n" + "\n".join(rows))
    assert split_dataset(dataset, 0).validation.tolist() == [10, 11, 12, 13, 14]
    with pytest.raises(DataError, match=r"row 3, column 'split': 'later'; allowed are train, validation"):
        read("x,candidates,truth,split\n" + "\n".join([*rows[:2], "2,a|b,a,later"]))


def test_truth_for_the_test_rows_alone_is_enough():
    rows = [f"{i},a|b,{'a' if i < 5 else ''},{'test' if i < 5 else ''}" for i in range(20)]
    dataset = read("x,candidates,truth,split\n" + "\n".join(rows))
    assert dataset.labels is None
    assert dataset.test.labels.tolist() == [0] * 5


def test_a_group_stays_in_one_part():
    rows = [f"{i},a|b,g{i // 4}" for i in range(200)]
    dataset = read("x,candidates,group\n" + "\n".join(rows))
    for trial in range(3):
        split = split_dataset(dataset, trial)
        parts = [set(dataset.groups[part]) for part in (split.train, split.validation, split.test)]
        assert sum(map(len, parts)) == 50 == len(set.union(*parts))
        assert [len(part) for part in parts] == [41, 4, 5]
    with pytest.raises(DataError, match="the group of item 2 has items in train and in test"):
        read("x,candidates,truth,group,split\n1,a|b,a,g,train\n2,a|b,a,g,test\n")


def test_without_candidates_they_are_generated_and_the_first_notice_says_so():
    dataset = read("x,label\n" + "\n".join(f"{i},{'ab'[i % 2]}" for i in range(20)))
    assert dataset.card.candidates.pl_type == "fps"
    assert "no candidate sets of its own: they are generated" in dataset.warnings[0]


def test_frames_of_pandas_and_polars_read_as_the_file_does(tmp_path):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    path = tmp_path / "animals.csv"
    path.write_text(ANIMALS)
    dataset = make_table_dataset(path)
    for frame in (pandas.read_csv(path), polars.read_csv(path)):
        other = make_table_dataset(frame)
        assert other.fingerprint == dataset.fingerprint
        assert other.class_names == dataset.class_names
    frame = pandas.DataFrame({"when": pandas.to_datetime(["2024-01-01"]), "candidates": ["a|b"]})
    with pytest.raises(DataError, match="date or time"):
        make_table_dataset(frame)


def test_parquet_reads_as_the_file_does(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    (tmp_path / "animals.csv").write_text(ANIMALS)
    parquet.write_table(csv.read_csv(tmp_path / "animals.csv"), tmp_path / "animals.parquet")
    assert pyarrow is not None
    first = load_dataset(str(tmp_path / "animals.csv"))
    second = load_dataset(str(tmp_path / "animals.parquet"))
    assert first.fingerprint == second.fingerprint
    with pytest.raises(DataError, match="cannot be read as a Parquet file"):
        parse_table(b"PAR1 and no more", ".parquet", "x.parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"a,b\n", "has no rows"),
        (b"a,a\n1,2\n", "two columns are called 'a'"),
        ("é,e\u0301\n1,2\n".encode(), "two columns are called 'é'"),
        (b"a,,b\n1,2,3\n", "column 2 has no name"),
        (b"a,b\n1,2\n1,2,3\n", r"row 2 has 3 cells.*the header has 2"),
        (b"a,b\n1,\xff\n", "line 2 is not UTF-8"),
        (b'a,b\n1,"2\n', "cannot be read as a table"),
        (b"a,b\n1,\x00\n", "holds a NUL"),
        (b"a\n" + b"x" * 200_000 + b"\n", "cannot be read as a table"),
    ],
)
def test_damaged_files_are_refused_with_their_place(content, message):
    with pytest.raises(DataError, match=message):
        parse_delimited(content, "x.csv")


def test_delimiters_byte_order_mark_index_column_and_blank_lines():
    assert parse_delimited("\ufeffa;b\r\n1;2\r\n\r\n3;4\r\n".encode(), "x").columns == {
        "a": ["1", "3"],
        "b": ["2", "4"],
    }
    assert list(parse_delimited(b",a\n0,5\n1,6\n", "x").columns) == ["a"]
    assert parse_table(b"a\tb\n1,5\t2\n", ".tsv", "x").columns == {"a": ["1,5"], "b": ["2"]}


def test_roles_say_what_was_recognised():
    table = RawTable("t", {"ID": ["1"], "x": ["1"], "Candidates": ["a|b"]})
    roles = find_roles(table, TableOptions())
    assert (roles.item, roles.candidates, roles.features) == ("ID", "Candidates", ("x",))
    assert roles.describe() == "candidates in 'Candidates', item in 'ID', 1 columns of features"


def test_beside_semicolons_numbers_may_have_a_decimal_comma(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("w;n;code;candidates\n1,5;2;1,5;a|b\n-0,25;;x;b\n1e3;4;2,0;a\n", encoding="utf-8")
    table = load_dataset(path).features
    kinds = {column.name: column.kind for column in table.columns}
    assert kinds == {"w": "number", "n": "number", "code": "category"}
    assert table.columns[0].values.tolist() == [1.5, -0.25, 1000.0]
    path.write_text("w,candidates\n'1,5',a\n".replace("'", '"') + "2,b\n", encoding="utf-8")
    assert load_dataset(path).features.columns[0].kind == "category"  # beside commas it is no number
    path.write_text("w;candidates\n1,2;a\n2,1;b\n", encoding="utf-8")
    dataset = load_dataset(f"{path}?separator=,")
    assert dataset.class_names == ("a", "b")  # candidates are no numbers, whatever their separator


def test_a_slip_in_a_column_of_numbers_is_told(tmp_path, capsys):
    path = tmp_path / "own.csv"
    rows = [f"{number}.5,{'a' if number % 2 else 'b'}" for number in range(20)]
    rows[6] = "6.O,a"
    path.write_text("w,candidates\n" + "\n".join(rows) + "\n", encoding="utf-8")
    told = "column 'w' is taken as 20 categories, though 19 of its 20 values are numbers: row 7 has '6.O'"
    assert any(told in notice for notice in load_dataset(path).warnings)
    assert main(["data", "info", str(path)]) == 0
    assert "features      1: categories w (20)" in capsys.readouterr().out
    path.write_text("w,candidates\n1,a\nx,b\nx,a\n3,b\n", encoding="utf-8")
    assert not load_dataset(path).warnings  # as many texts as numbers: categories are meant
