"""Tables: reading, kinds of columns, roles, candidates, splits and groups, and the encoding of a model."""

import datetime

import numpy as np
import pytest

from plench.data import as_dataset, load_dataset, make_table_dataset, split_dataset
from plench.data.encoding import TableEncoder
from plench.data.tables import Table, read_frame, read_table_file
from plench.errors import DataError, UsageError
from plench.estimator.inputs import read_features

ANIMALS = """age,colour,tame,candidates,truth
1.5,red,true,cat|dog,cat
2,blue,false,dog,dog
,red,true,bird|cat,bird
4,,false,dog|bird,bird
"""
NAMES = "".join(f"n{i},a|b\n" for i in range(1001))


@pytest.fixture
def read(tmp_path):
    def read(content, query="", name="x.csv"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_dataset(f"{tmp_path / name}{query}")

    return read


def kinds(dataset):
    return {column.name: column.kind for column in dataset.features.columns}


def test_columns_become_typed_features_candidates_and_truth(read):
    dataset = read(ANIMALS)
    assert isinstance(dataset.features, Table)
    assert kinds(dataset) == {"age": "number", "colour": "category", "tame": "boolean"}
    assert dataset.class_names == ("bird", "cat", "dog")
    assert dataset.candidates.astype(int).tolist() == [[0, 1, 1], [0, 0, 1], [1, 1, 0], [1, 0, 1]]
    assert dataset.labels.tolist() == [1, 2, 0, 0]
    assert any("'age' has 1 of 4 values missing" in warning for warning in dataset.warnings)


def test_the_name_in_records_carries_a_hash_of_content_and_options(read):
    plain, again, other = read(ANIMALS), read(ANIMALS), read(ANIMALS, "?ignore=colour")
    assert plain.card.name.startswith("x@")
    assert plain.card.name == again.card.name != other.card.name
    assert plain.fingerprint == again.fingerprint != other.fingerprint
    assert other.features.names == ("age", "tame")


def test_texts_stay_what_they_are(read):
    dataset = read("code,candidates\n007,007|1\n1,01\n7,1\n")
    assert dataset.class_names == ("01", "1", "007")  # by value, then as text
    assert kinds(dataset) == {"code": "number"}
    dataset = read("x,candidates\n1,None|mild\n2,mild\n", "?classes=None,mild")
    assert dataset.candidates.tolist() == [[True, True], [False, True]]


def test_one_column_of_zeros_and_ones_per_class(read):
    dataset = read("x,candidate_cat,candidate_dog\n1,1,0\n2,1,1\n3,0,true\n")
    assert dataset.class_names == ("cat", "dog")
    assert dataset.candidates.tolist() == [[True, False], [True, True], [False, True]]


def test_options_name_columns(read):
    text = "x,tags,species,y\n1,a+b,a,5\n2,b,b,6\n"
    dataset = read(text, "?candidates=tags&truth=species&separator=%2B&ignore=y")
    assert dataset.features.names == ("x",)
    assert dataset.candidates.tolist() == [[True, True], [False, True]]
    assert read(text, "?candidates=tags&features=y&truth=species&separator=%2B").features.names == ("y",)
    assert read("ID,x,Candidates\n1,1,a|b\n", "?classes=b,a").card.source == (
        "the user's own table: candidates in 'Candidates', item in 'ID', 1 columns of features"
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?candidates=labels", "has no column 'labels'; it has age, colour, tame, candidates, truth"),
        ("?candidate=x", r"unknown option of a table 'candidate'; did you mean candidates\?"),
        ("?nonsense", "expected options such as candidates=tags"),
        ("?truth=candidates", "column 'candidates' has two roles"),
        ("?features=age,truth&truth=truth", "column 'truth' has two roles"),
        ("?answer=truth", "answer=COLUMN needs annotator=COLUMN"),
        ("?answers=elsewhere", "answers=elsewhere is neither a column nor a file ending in .csv"),
        ("?combine=all", "unknown combine 'all'; expected one of union, vaguest, votes"),
        ("?combine=votes&min_votes=0", "min_votes must be a whole number of at least 1, not '0'"),
        ("?classes=cat,cat", "a class is named twice: cat, cat"),
    ],
)
def test_wrong_options_are_refused(read, query, message):
    with pytest.raises((DataError, UsageError), match=message):
        read(ANIMALS, query)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # files
        (b"", "is empty"),
        (b"a,b\n", "has no rows"),
        (b"a,a\n1,2\n", "2 columns are called 'a'"),
        ("é,e\u0301\n1,2\n", "2 columns are called 'é'"),
        (b"a,,b\n1,2,3\n", "column 2 has no name"),
        (b"a,b\n1,2\n1,2,3\n", "cannot be read as a table .*2 fields in line 3, saw 3"),
        (b"a,b\n1,2\n1\n", "row 2 has fewer cells than the header"),
        (b"a,b\n1,\x81\n", "line 2 is not UTF-8"),
        (b'a,b\n1,"2\n', "cannot be read as a table"),
        (b"a,b\n1,\x00\n", "contains a NUL"),
        # roles and features
        ("x,candidates,label,truth\n1,a|b,a,b\n", "'label' and 'truth' could both be the truth"),
        ("x,y2\n1,2\n", "neither candidates nor answers nor truth"),
        ("candidates\na|b\n", "has no feature columns"),
        ("b,candidates\n,x|y\nNA,y\n", "no feature column with a value"),
        ("when,candidates\n2024-01-03,a\n2024-02-01,b\n", "row 1, column 'when'.*date or time"),
        ("when,candidates\n3.1.2024,a\n04.02.2023,b\n", "row 1, column 'when'.*date or time"),
        ("x,candidates\n3,a\n1e999,b\n", "row 2, column 'x': inf is not a finite float32 number"),
        (
            "name,candidates\n" + NAMES,
            "column 'name' has 1,001 different texts, .*ignore=name, or read free text with text=name",
        ),
        # candidates, classes, splits and groups
        ("x,candidates\n1,cat||dog\n", "row 1, column 'candidates'.*empty label"),
        ("x,candidates\n1,cat|dog\n2,\n", "row 2, column 'candidates': the candidate set is empty"),
        ("x,candidates\n1,cat\n2,cat\n", "classes 'cat' …. has 1 classes; expected 2"),
        ("x,candidate_a,candidate_b\n1,1,0\n2,2,1\n", "row 2, column 'candidate_a': expected 0 or 1"),
        ("x,candidate_a,candidate_b\n1,1,0\n2,0,0\n", "row 2.*0 in every column of a class"),
        ("x,candidates,split\n1,a|b,\n2,b,later\n", "row 2, column 'split': expected train, .* not 'later'"),
        (
            "x,candidates,group,split\n1,a|b,g,\n2,b,g,test\n",
            "group of item 2 has items in train and in test",
        ),
    ],
)
def test_bad_tables_are_refused_with_their_place(read, content, message):
    with pytest.raises(DataError, match=message):
        read(content)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([datetime.date(2024, 1, 3), None], "date or time"),
        (np.array(["2024-01-03", "2024-01-04"], "datetime64[ns]"), "date or time"),
        ([datetime.timedelta(1), datetime.timedelta(2)], "date or time"),
        ([[1], [2]], "expected a text or a number, not a list of 1"),
        ([1], "same length"),
    ],
)
def test_columns_of_frames_that_cannot_be_features_are_refused(column, message):
    with pytest.raises(DataError, match=message):
        make_table_dataset({"when": column, "candidates": ["a|b", "b"]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": ["tags"]}, "candidates must be a text, not a list of 1"),
        ({"ignore": 5}, "ignore must be a list of texts, not 5"),
        ({"separator": 5}, "separator must be a text, not 5"),
        ({"taxonomy": 5}, "taxonomy must be a file or a mapping, not 5"),
    ],
)
def test_options_of_wrong_types_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        make_table_dataset({"x": [1, 2], "tags": ["a|b", "b"]}, **options)


def test_frames_may_have_numbers_for_names_and_sets_in_cells():
    dataset = make_table_dataset({0: [1, 2], 1: [{"a", "b"}, {"b"}]}, candidates=1, ignore=None)
    assert dataset.candidates.tolist() == [[True, True], [False, True]]
    with pytest.raises(DataError, match="row 2, column '1': the candidate set is empty"):
        make_table_dataset({0: [1, 2], 1: [{"a", "b"}, set()]}, candidates=1)


def test_gaps_are_filled_from_the_training_rows_and_marked():
    dataset = make_table_dataset(
        {
            "n": [1.0, None, 5.0, 100.0],
            "c": ["a", None, "b", "z"],
            "b": [True, None, True, False],
            "candidates": ["p", "q", "p", "q"],
        }
    )
    encoder = TableEncoder.fit(dataset.features[np.array([0, 1, 2])])
    inputs, unknown = encoder.encode(dataset.features)
    assert inputs.tolist() == [  # n, n is missing, c=a, c=b, c is missing, b, b is missing
        [1, 0, 1, 0, 0, 1, 0],
        [3, 1, 0, 0, 1, 1, 1],  # the median of 1 and 5; the more frequent truth value
        [5, 0, 0, 1, 0, 1, 0],
        [100, 0, 0, 0, 0, 0, 0],  # z is unknown
    ]
    assert unknown == {"c": 1}
    assert len(dataset.warnings) == 3


def test_an_encoding_meets_new_data_by_name_in_any_order():
    data = make_table_dataset({"n": [1, 2], "c": ["1", "x"], "candidates": ["p", "q"]})
    encoder = TableEncoder.from_state(TableEncoder.fit(data.features).state())
    table = encoder.read(read_frame({"extra": [0], "c": [1], "n": ["2.5"]}))
    assert encoder.encode(table)[0].tolist() == [[2.5, 1, 0]]
    with pytest.raises(DataError, match=r"X has no column 'n'; the model needs n, c"):
        encoder.read(read_frame({"c": ["x"]}, "X"))
    with pytest.raises(DataError, match=r"row 2, column 'n': expected a number, not 'many'"):
        encoder.read(read_frame({"c": ["x", "x"], "n": ["1", "many"]}))


def test_an_empty_column_is_left_out_with_a_warning(read):
    dataset = read("a,b,candidates\n1,,x|y\n2,NA,y\n")
    assert dataset.features.names == ("a",)
    assert any("'b' is empty and is left out" in warning for warning in dataset.warnings)


def test_rows_of_split_test_become_the_own_test_set(read):
    rows = [f"{i},a|b,{'a' if i % 2 else 'b'},{'test' if i < 5 else 'train'}" for i in range(20)]
    dataset = read("x,candidates,truth,split\n" + "\n".join(rows))
    assert (dataset.n_examples, len(dataset.test.labels)) == (15, 5)
    assert split_dataset(dataset, 0).test is None
    rows = [row.replace("train", "valid") if i >= 15 else row for i, row in enumerate(rows)]
    dataset = read("x,candidates,truth,split\n" + "\n".join(rows))
    assert split_dataset(dataset, 0).validation.tolist() == [10, 11, 12, 13, 14]
    rows = [f"{i},a|b,{'a' if i < 5 else ''},{'test' if i < 5 else ''}" for i in range(20)]
    dataset = read("x,candidates,truth,split\n" + "\n".join(rows))  # truth for the test rows alone
    assert dataset.labels is None
    assert dataset.test.labels.tolist() == [0] * 5


def test_a_group_stays_in_one_part(read):
    dataset = read("x,candidates,group\n" + "\n".join(f"{i},a|b,g{i // 4}" for i in range(200)))
    for trial in range(3):
        split = split_dataset(dataset, trial)
        parts = [set(dataset.groups[part]) for part in (split.train, split.validation, split.test)]
        assert sum(map(len, parts)) == 50 == len(set.union(*parts))
        assert [len(part) for part in parts] == [41, 4, 5]


def test_without_candidates_they_are_generated_and_the_first_warning_says_so(read):
    dataset = read("x,label\n" + "\n".join(f"{i},{'ab'[i % 2]}" for i in range(20)))
    assert dataset.card.candidates.pl_type == "fps"
    assert "no candidate sets of its own: they are generated" in dataset.warnings[0]
    with pytest.raises(DataError, match="needs candidates, or the truth of every row"):
        read("x,label\n1,a\n2,b\n3,\n")


def test_frames_and_parquet_files_read_as_the_file_does(read, tmp_path):
    import pandas
    import polars
    from pyarrow import csv, parquet

    dataset, path = read(ANIMALS), tmp_path / "x.csv"
    table = csv.read_csv(path)
    parquet.write_table(table, tmp_path / "x.parquet")
    for other in (pandas.read_csv(path), polars.read_csv(path), table, tmp_path / "x.parquet"):
        made = make_table_dataset(other)
        assert (made.fingerprint, made.class_names) == (dataset.fingerprint, dataset.class_names)
    with pytest.raises(DataError, match="cannot be read as a Parquet file"):
        read(b"PAR1 and no more", name="y.parquet")


@pytest.mark.parametrize(
    ("content", "suffix", "expected"),
    [
        ("\ufeffa;b\r\n1;2\r\n\r\n3;4\r\n", ".csv", {"a": ["1", "3"], "b": ["2", "4"]}),
        (",a\n0,5\n1,6\n", ".csv", {"a": ["5", "6"]}),  # an index
        ("a\tb\n1,5\t2\n", ".tsv", {"a": ["1,5"], "b": ["2"]}),
        ("a,b\r1,2\r", ".csv", {"a": ["1"], "b": ["2"]}),
        (' a ,b\n" x",007\nNone,1.0\n', ".csv", {"a": ["x", None], "b": ["007", "1.0"]}),
    ],
)
def test_delimiters_byte_order_mark_index_column_and_blank_lines(tmp_path, content, suffix, expected):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content.encode())
    table = read_table_file(path)
    assert {column: table.texts(column) for column in table.columns} == expected


def test_with_semicolons_numbers_may_have_a_decimal_comma(read):
    dataset = read("w;n;code;candidates\n1,5;2;1,5;a|b\n-0,25;;x;b\n1e3;4;2,0;a\n")
    assert kinds(dataset) == {"w": "number", "n": "number", "code": "category"}
    assert dataset.features.columns[0].values.tolist() == [1.5, -0.25, 1000.0]
    dataset = read("w;candidates\n1,2;a\n2,1;b\n", "?separator=,")
    assert dataset.class_names == ("a", "b")  # candidates are not numbers, whatever their separator


def test_a_typo_in_a_column_of_numbers_is_reported(read, caplog):
    rows = [f"{number}.5,{'a' if number % 2 else 'b'}" for number in range(20)]
    rows[6] = "6.O,a"
    (warning,) = read("w,candidates\n" + "\n".join(rows)).warnings
    assert "row 7, column 'w': because of '6.O'" in warning
    assert "20 categories, although 19 of 20 values are numbers" in warning
    # Frames say so as well, whichever way they come.
    frame = dict(zip(("w", "candidates"), zip(*(row.split(",") for row in rows), strict=True), strict=True))
    for take in (as_dataset, lambda frame: read_features({"w": frame["w"]})):
        caplog.clear()
        take(frame)
        assert caplog.text.count("because of '6.O'") == 1
    assert not read("w,candidates\n1,a\nx,b\ny,a\n3,b\n").warnings  # as many texts as numbers: categories
