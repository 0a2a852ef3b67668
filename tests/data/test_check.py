"""Mistakes that people make with their own data: each is refused or announced before anything is trained."""

import json
import logging

import numpy as np
import pandas as pd
import pytest

from plench import PartialLabelClassifier
from plench.cli import main
from plench.data import load_dataset, make_table_dataset, split_dataset
from plench.data.check import check_dataset, find_separator, hash_rows, join_groups, keep_together
from plench.data.encoding import TableEncoder
from plench.data.sources.arrays import make_dataset
from plench.data.tables import read_frame
from plench.errors import DataError, UsageError
from plench.estimator.inputs import make_training_data, read_features, read_labels
from plench.estimator.review import read_items

WINES = ("Barolo", "Barbera", "Grignolino")
N = 120


def make_frame(seed=0, **columns):
    """Two features and candidates: a class and perhaps another."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=N)
    sets = [
        f"{WINES[a]}|{WINES[b]}" if a != b else WINES[a]
        for a, b in zip(labels, rng.integers(3, size=N), strict=True)
    ]
    features = {"alcohol": rng.normal(size=N) + labels, "ash": rng.normal(size=N)}
    return pd.DataFrame({**features, **columns, "candidates": sets})


@pytest.fixture
def write(tmp_path):
    def write(frame, name="wine.csv", **options):
        path = tmp_path / name
        frame.to_csv(path, index=False, **options)
        return path

    return write


def warned(dataset, text):
    return [warning for warning in dataset.warnings if text in warning]


# --- columns that are recognised by their names ---


@pytest.mark.parametrize("name", ["y", "Class", "Label", "Target"])
def test_numbers_with_the_name_of_a_truth_are_a_feature(write, name):
    path = write(make_frame(**{name: np.random.default_rng(1).normal(size=N)}))
    dataset = load_dataset(path)
    assert (dataset.class_names, dataset.labels) == (tuple(sorted(WINES)), None)
    assert dataset.features.names == ("alcohol", "ash", name)
    (warning,) = warned(dataset, "has the name of a truth")
    assert f"it is a feature; truth={name} makes it the truth, ignore={name} leaves it out" in warning


def test_a_column_of_classes_is_the_truth_and_one_of_other_texts_has_to_be_named(write):
    frame = make_frame()
    truth = frame.candidates.str.split("|").str[0]
    dataset = load_dataset(write(frame.assign(Class=truth)))
    assert dataset.noise_rate == 0
    assert warned(
        dataset, "column 'Class' is read as the truth because of its name, not as a feature; truth= "
    )
    path = write(frame.assign(Class=truth.replace("Barolo", "Nebbiolo")))
    with pytest.raises(DataError, match=r"1 of its 3 different values are not classes .*'Nebbiolo' \(\d+\)"):
        load_dataset(path)  # as a feature it would give the truth away
    assert "Nebbiolo" in load_dataset(f"{path}?truth=Class").class_names
    assert load_dataset(f"{path}?truth=").features.names == ("alcohol", "ash", "Class")
    assert load_dataset(f"{path}?ignore=Class").features.names == ("alcohol", "ash")


@pytest.mark.parametrize(("name", "role"), [("file", "item"), ("Item", "item"), ("group", "group")])
def test_what_a_name_takes_from_the_features_is_announced_with_the_option_that_gives_it_back(
    write, name, role
):
    path = write(make_frame(**{name: np.arange(N) // 2}))
    (warning, *_) = load_dataset(path).warnings
    assert (
        f"column {name!r} is read as the {role} because of its name, not as a feature; {role}= reads"
        in warning
    )
    assert name in load_dataset(f"{path}?{role}=").features.names
    assert not warned(load_dataset(f"{path}?{role}={name}"), "because of its name")


def test_the_roles_of_columns_are_in_the_first_line_of_output(write, tmp_path, cli):
    path = write(make_frame())
    run = ["train", "-a", "CC", "-d", str(path), "--steps", "1", "--output-dir", str(tmp_path / "runs")]
    first = cli(*run).err.splitlines()[0]
    assert "the user's own table: candidates in 'candidates', 2 columns of features" in first
    assert not first.startswith("warning")


# --- candidates ---


@pytest.mark.parametrize("separator", [", ", ";", "/", " + ", " or "])
def test_another_separator_is_refused_with_the_option_that_reads_it(write, separator):
    frame = make_frame()
    path = write(frame.assign(candidates=frame.candidates.str.replace("|", separator)))
    with pytest.raises(DataError, match=r"looks like a set of classes with the separator") as caught:
        load_dataset(path)
    option = str(caught.value).split("read them with ")[1].split(", or list")[0]
    dataset = load_dataset(f"{path}?{option}")
    assert np.array_equal(dataset.candidates, make_table_dataset(frame).candidates)
    with pytest.raises(DataError, match="with the separator"):
        PartialLabelClassifier(steps=1).fit(frame[["ash"]], frame.candidates.str.replace("|", separator))


def test_one_cell_with_another_separator_is_refused():
    frame = make_frame()
    frame.loc[5, "candidates"] = "Barolo, Barbera"
    with pytest.raises(DataError, match=r"row 6, .*\(1 such cells\); write all sets with one separator"):
        make_table_dataset(frame)
    dataset = make_table_dataset(frame, classes=[*WINES, "Barolo, Barbera"])
    assert dataset.n_classes == 4


def test_names_that_contain_separators_are_classes():
    assert find_separator({"red/large", "red/small", "blue/large", "blue/small", "green/large"}, "|") is None
    assert find_separator({"cat, wild", "cat", "dog"}, "|") is None
    assert find_separator({"a/b", "b/c", "a/c"}, "|")[0] == "/"
    assert find_separator({"a;b", "b", "a"}, ";") is None


def test_special_words_work_for_candidates_as_for_annotators():
    frame = make_frame()
    words = ["unknown", "all", "Unsure", "?", "not Barolo"]
    frame.loc[:4, "candidates"] = words
    dataset = make_table_dataset(frame)
    assert dataset.class_names == tuple(sorted(WINES))
    assert dataset.candidates[:4].all()
    assert dataset.candidates[4].tolist() == [True, False, True]
    (warning,) = warned(dataset, "not read as a class")
    assert all(f"{word!r} (1)" in warning for word in words)
    labels = read_labels(frame.candidates, N)
    assert np.array_equal(labels.candidates, dataset.candidates)
    declared = make_table_dataset(frame, classes=[*WINES, "unknown"])
    assert declared.candidates[0].tolist() == [False, False, False, True]
    frame.loc[0, "candidates"] = "Barolo|unknown"
    with pytest.raises(DataError, match=r"row 1, .*'unknown' is one of several labels in 'Barolo\|unknown'"):
        make_table_dataset(frame)


def test_near_duplicates_of_a_class_are_reported_with_counts():
    frame = make_frame()
    frame.loc[0, "candidates"] = "Barbara"
    frame.loc[1:2, "candidates"] = "barolo"
    found = [each.message for each in check_dataset(make_table_dataset(frame)) if each.topic == "names"]
    assert len(found) == 2
    assert any("class 'barolo' (2 sets) and class 'Barolo' (" in text and "case" in text for text in found)
    assert any(
        "class 'Barbara' (1 set) and class 'Barbera' (" in text and "letters" in text for text in found
    )
    numbered = make_table_dataset({"x": np.arange(30.0), "candidates": ["class1"] * 29 + ["class2"]})
    assert not [each for each in check_dataset(numbered) if each.topic == "names"]


def test_a_class_called_none_is_legal_and_a_whole_number_has_one_spelling():
    frame = make_frame()
    frame["candidates"] = frame.candidates.str.replace("Barolo", "None")
    dataset = make_table_dataset(frame.assign(truth=frame.candidates.str.split("|").str[0]))
    assert dataset.class_names == ("Barbera", "Grignolino", "None")
    assert dataset.noise_rate == 0
    assert warned(dataset, "'None' is read as the name of a class")
    numbers = make_table_dataset(
        {"x": [1.5, 2, 3], "candidates": ["1|2.0", "1.0", "2"], "truth": ["1.0", "1", "2"]}
    )
    assert numbers.class_names == ("1", "2")
    assert numbers.candidates.tolist() == [[True, True], [True, False], [False, True]]
    assert numbers.labels.tolist() == [0, 0, 1]
    assert read_labels(["1|2.0", "1.0", "2"], 3).classes.tolist() == ["1", "2"]


def test_a_matrix_of_whole_numbers_is_answers_or_votes_and_has_to_be_named():
    rng = np.random.default_rng(0)
    X, answers = rng.normal(size=(60, 2)), rng.integers(1, 5, (60, 3))
    model = PartialLabelClassifier("CLPL", steps=2, random_state=0)
    for given in (answers, answers.astype(float), pd.DataFrame(answers, columns=["ann", "bob", "eve"])):
        with pytest.raises(DataError, match=r"fit\(X, answers=S\) or fit\(X, votes=S\)"):
            model.fit(X, given)
        assert model.fit(X, answers=given).classes_.tolist() == [1, 2, 3, 4]
        assert 0 <= model.covering_score(X, given) <= 1
    assert model.fit(X, votes=answers).classes_.tolist() == [0, 1, 2]
    gaps = np.where(answers == 4, -1, answers)
    assert model.fit(X, gaps).classes_.tolist() == [1, 2, 3]
    with pytest.raises(DataError, match="given twice"):
        model.fit(X, answers, answers=answers)


# --- cells ---


def test_numbers_as_people_write_them_are_read_with_a_warning(write):
    numbers = np.arange(N) * 13.25 + 1000
    columns = {
        "comma": [f"{value:.2f}".replace(".", ",") for value in numbers],
        "thousands": [f"{value:,.2f}" for value in numbers],
        "european": [f"{value:,.2f}".translate(str.maketrans(",.", ".,")) for value in numbers],
        "percent": [f"{value}%" for value in numbers],
        "euro": [f"{value} €" for value in numbers],
        "dollar": [f"-${value}" for value in numbers],
    }
    frame = make_frame(**columns)
    dataset = load_dataset(write(frame))
    for column in dataset.features.columns[2:]:
        sign = -1 if column.name == "dollar" else 1
        assert np.allclose(column.values, sign * numbers), column.name
        assert warned(dataset, f"column {column.name!r} is read as numbers: ")
    mixed = make_table_dataset(make_frame(price=["12 €", "12 $"] * (N // 2)))
    assert warned(mixed, "its values look like numbers")
    # New data are read in the same way, one cell or many.
    encoder = TableEncoder.from_state(TableEncoder.fit(dataset.features).state())
    new = frame.head(1).assign(comma="1,500")
    assert encoder.read(read_frame(new)).columns[2].values.tolist() == [1.5]
    with pytest.raises(DataError, match="expected a number, not '1,5'"):
        encoder.read(read_frame(new.assign(alcohol="1,5")))


def test_ids_are_left_out_with_a_warning_unless_they_are_named():
    frame = make_frame(
        code=[f"u{row:03d}" for row in range(N)], row_id=range(10**10, 10**10 + N), count=range(N)
    )
    dataset = make_table_dataset(frame)
    assert dataset.features.names == ("alcohol", "ash", "count")
    for name in ("code", "row_id"):
        (warning,) = warned(dataset, f"column {name!r} has a different value in each of {N} rows")
        assert "is left out" in warning
    assert any("'count' counts the rows" in finding.message for finding in check_dataset(dataset))
    kept = make_table_dataset(frame, features=["alcohol", "code"])
    assert kept.features.names == ("alcohol", "code")
    few = make_table_dataset(frame.head(10))
    assert "code" in few.features.names


def test_ids_of_new_data_are_no_reason_to_drop_a_column_that_the_model_knows(write):
    frame = make_frame(town=[f"t{row % 60}" for row in range(N)])
    assert "town" in make_table_dataset(frame).features.names
    assert "town" in read_items(str(write(frame.head(40)))).features.names


# --- rows that belong together ---


def test_copies_of_rows_stay_in_one_part():
    noise = (
        make_frame().drop(columns="candidates").assign(candidates=np.random.default_rng(0).choice(WINES, N))
    )
    dataset = make_table_dataset(pd.concat([noise] * 4))
    assert warned(dataset, f"{3 * N} of {4 * N} rows repeat the features of another row; identical rows stay")
    for trial in range(3):
        split = split_dataset(dataset, trial)
        parts = [set(part % N) for part in (split.train, split.validation, split.test)]
        assert sum(map(len, parts)) == N
    X, S = np.concatenate([noise[["alcohol", "ash"]]] * 4), np.concatenate([noise.candidates] * 4)
    fitted = make_training_data(read_features(X)[0], read_labels(S, 4 * N))  # what the estimator splits
    assert np.array_equal(fitted.groups[:N], fitted.groups[-N:])


def test_without_a_continuous_feature_identical_rows_are_different_examples():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(3, size=60), "b": rng.choice(["u", "v"], 60)})
    dataset = make_table_dataset(frame.assign(candidates=rng.choice(WINES, 60)))
    assert dataset.groups is None
    assert warned(dataset, "as no feature is continuous they count as different examples")


def test_rows_of_one_item_stay_together_with_the_groups_they_touch(write):
    frame = make_frame(
        item=[f"i{row // 2}" for row in range(N)], group=[f"g{(row + 1) // 4}" for row in range(N)]
    )
    dataset = load_dataset(write(frame))
    assert len(set(dataset.groups.tolist())) == 1 + (N - 3) // 4 - N // 4 + 1  # items join all groups
    free = load_dataset(write(frame.drop(columns="group")))
    assert len(set(free.groups.tolist())) == N // 2
    assert warned(free, f"{N // 2} of {N} rows have the item of another row")
    nameless = load_dataset(write(frame.drop(columns="group").assign(item="")))
    assert nameless.groups is None


def test_leaks_between_given_parts_are_reported():
    frame = make_frame(item=[f"i{row % 100}" for row in range(N)])
    truth = frame.candidates.str.split("|").str[0]
    frame = frame.assign(truth=truth, split=["train"] * 100 + ["test"] * 20)
    frame.loc[100, ["alcohol", "ash"]] = frame.loc[0, ["alcohol", "ash"]]
    dataset = make_table_dataset(frame)
    assert warned(dataset, "20 items have rows in test and in training")
    assert warned(dataset, "1 of 20 test rows have the features of a training row")
    dataset = make_table_dataset(frame.assign(split=frame.split.replace("test", "validation")))
    assert warned(dataset, "1 rows of validation are also in training")
    assert warned(dataset, "20 rows of validation have an item of training")
    assert split_dataset(dataset, 0).validation.tolist() == list(range(100, 120))


def test_arrays_and_images_too_but_data_without_copies_are_as_before():
    rng = np.random.default_rng(0)
    features, sets = rng.normal(size=(40, 3)), np.eye(2, dtype=int)[rng.integers(2, size=40)]
    assert make_dataset(features, sets).groups is None
    twice = make_dataset(np.tile(features, (2, 1)), np.tile(sets, (2, 1)))
    assert np.array_equal(twice.groups[:40], twice.groups[40:])
    images = rng.integers(256, size=(40, 4, 4)).astype(np.uint8)
    images[7] = images[3]
    dataset = make_dataset(images, sets)
    assert len(set(dataset.groups.tolist())) == 39
    assert keep_together(dataset).groups.max() == 38


def test_identical_rows_have_one_hash_whatever_the_categories_around_them():
    zeros = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 2.0]])
    assert len(set(hash_rows(zeros).tolist())) == 2
    tables = [
        make_table_dataset({"c": texts, "x": [1.5, None, 2], "candidates": ["a", "b", "a"]}).features
        for texts in (["u", "v", "w"], ["u", "x", "y"])
    ]
    first, second = map(hash_rows, tables)
    assert (first == second).tolist() == [True, False, False]


def test_joined_groups_are_the_finest_that_contain_all():
    joined = join_groups([np.array([0, 0, 1, 2, 3]), np.array([0, 1, 1, 2, 3])])
    assert joined[0] == joined[1] == joined[2]
    assert len(set(joined.tolist())) == 3


# --- files ---


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_encodings_of_spreadsheets_are_recognised(write, encoding):
    dataset = load_dataset(write(make_frame(Säure=np.arange(N) / 7), encoding=encoding))
    assert "Säure" in dataset.features.names
    assert bool(warned(dataset, "read as Windows-1252, for instance 'Säure'")) == (encoding == "cp1252")


@pytest.mark.parametrize("place", ["net\xa0weight", "\xa0alcohol"])
def test_a_space_of_windows_is_enough_to_recognise_its_encoding(write, place):
    name = place.split("\xa0")[-1]
    path = write(make_frame(**{name: np.arange(N) / 7}))
    path.write_bytes(path.read_bytes().replace(name.encode(), place.encode("cp1252"), 1))
    assert warned(load_dataset(path), "read as Windows-1252")


def test_a_workbook_is_a_table(tmp_path, write):
    pytest.importorskip("openpyxl")
    frame, path = make_frame(colour=["red", "white"] * (N // 2)), tmp_path / "wine.xlsx"
    with pd.ExcelWriter(path) as book:
        frame.to_excel(book, sheet_name="first", index=False)
        frame.head(30).to_excel(book, sheet_name="second", index=False)
    dataset, other = load_dataset(path), load_dataset(f"{path}?sheet=second")
    assert dataset.fingerprint == load_dataset(write(frame)).fingerprint
    assert warned(dataset, "sheet 'first' is read; sheet=NAME reads another (second)")
    assert (other.n_examples, warned(other, "sheet")) == (30, [])
    with pytest.raises(DataError, match="has no sheet 'third'; it has first, second"):
        load_dataset(f"{path}?sheet=third")
    path.write_bytes(b"PK not a workbook")
    with pytest.raises(DataError, match="cannot be read as an Excel workbook"):
        load_dataset(path)
    with pytest.raises(UsageError, match=r"old\.xls .*save it as \.xlsx or \.csv"):
        load_dataset(tmp_path / "old.xls")


def test_a_file_of_answers_names_its_own_columns(tmp_path, write):
    items = make_frame(**{"Item ID": [f"i{row}" for row in range(N)]}).drop(columns="candidates")
    given = pd.DataFrame(
        {"Item ID": np.repeat(items["Item ID"], 2), "Who": ["ann", "bob"] * N, "Said": WINES[0]}
    )
    given.loc[::3, "Said"] = WINES[1]
    path = write(items)
    write(given, "answers.csv")
    own = f"{path}?answers=answers.csv&annotator=Who&answer=Said"
    dataset = load_dataset(f"{own}&item=Item ID")
    assert len(dataset.answers.sets) == 2 * N
    write(given.rename(columns={"Item ID": "task"}), "answers.csv")
    again = load_dataset(f"{own}&item=Item ID&items_of_answers=task")
    assert np.array_equal(again.candidates, dataset.candidates)
    with pytest.raises(DataError, match="no column item"):
        load_dataset(f"{own}&item=Item ID")


def test_embeddings_have_their_candidates_in_a_table(tmp_path, write):
    frame = make_frame()
    np.save(tmp_path / "emb.npy", frame[["alcohol", "ash"]].to_numpy(np.float32))
    write(frame[["candidates"]], "candidates.csv")
    dataset = load_dataset(tmp_path / "emb.npy")
    assert np.array_equal(dataset.candidates, make_table_dataset(frame).candidates)
    assert dataset.features.shape == (N, 2)
    assert warned(dataset, "matched by the order of their rows")
    write(frame[["candidates"]].head(5).rename(columns={"candidates": "tags"}), "other.csv")
    with pytest.raises(DataError, match=r"emb\.npy has 120 rows and other\.csv 5"):
        load_dataset(f"{tmp_path / 'emb.npy'}?table=other.csv&candidates=tags")


def test_an_array_with_gaps_is_refused_with_the_way_out_and_the_order_of_columns_does_not_matter():
    frame = make_frame()
    X, S = frame[["alcohol", "ash"]], frame.candidates
    model = PartialLabelClassifier("CC", steps=5, random_state=0)
    gaps = X.to_numpy().copy()
    gaps[3, 1] = np.nan
    with pytest.raises(DataError, match=r"contains NaN\. A frame may have gaps: give pandas\.DataFrame\(X\)"):
        model.fit(gaps, S)
    model.fit(pd.DataFrame(gaps), S)
    probs = model.fit(X, S).predict_proba(X)
    assert np.array_equal(model.predict_proba(X[["ash", "alcohol"]]), probs)
    assert np.array_equal(model.predict_proba(frame), probs)


# --- the command ---


def check(capsys, *arguments):
    code = main(["data", "check", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_every_column_is_listed_with_role_kind_gaps_and_values(write, capsys, cli):
    frame = make_frame(code=[f"u{row}" for row in range(N)], note=["x", "y", ""] * (N // 3), item=range(N))
    path = write(frame)
    code, content = check(capsys, f"{path}?ignore=ash")
    assert code == 0
    rows = {row.pop("name"): row for row in content["columns"]}
    assert rows["alcohol"] == {"role": "feature", "kind": "number", "gaps": 0, "values": N}
    assert rows["note"] == {"role": "feature", "kind": "category", "gaps": N // 3, "values": 2}
    assert [rows[name]["role"] for name in ("ash", "code", "item", "candidates")] == [
        "ignored",
        "left out",
        "item",
        "candidates",
    ]
    text = cli("data", "check", path).out
    assert "120 examples, 3 classes (Barbera, Barolo, Grignolino)" in text
    assert "warning: wine.csv: column 'item' is read as the item because of its name" in text
    assert "column 'code' has a different value in each" in cli("data", "info", path).out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.assign(candidates="unknown"), "no cell names a class"),
        (lambda frame: frame.assign(candidates="|".join(WINES)), "every candidate set has all classes"),
        (lambda frame: frame.assign(alcohol=1, ash=2), "no feature has more than one value"),
        (lambda frame: frame.assign(candidates=frame.candidates.str.replace("|", ";")), "separator"),
        (
            lambda frame: frame.assign(
                truth=[WINES[(WINES.index(text.split("|")[0]) + 1) % 3] for text in frame.candidates],
                candidates=frame.candidates.str.split("|").str[0],
            ),
            "truth and candidates do not belong together",
        ),
    ],
)
def test_where_training_would_be_meaningless_the_exit_code_is_2(write, capsys, change, message):
    code, content = check(capsys, write(change(make_frame())))
    assert code == 2
    assert content["findings"][0]["severity"] == "error"
    assert message in content["findings"][0]["message"]


def test_a_column_that_is_not_used_and_answers_that_look_empty_are_counted(tmp_path, write):
    frame = make_frame()
    np.save(tmp_path / "emb.npy", frame[["ash"]].to_numpy(np.float32))
    write(frame[["alcohol", "candidates"]], "candidates.csv")
    assert warned(load_dataset(tmp_path / "emb.npy"), "1 columns are not used: alcohol")
    answers = frame.rename(columns={"candidates": "annotator_ann"}).assign(annotator_bob="Barolo")
    answers.loc[:6, "annotator_bob"] = "None"
    path = write(answers)
    assert warned(load_dataset(path), "7 answers `None` are read as gaps")
    assert load_dataset(f"{path}?classes=None,{','.join(WINES)}").candidates[:7, 0].all()


def test_findings_about_columns_classes_sets_and_annotators(write, capsys, caplog):
    frame = make_frame(same=3).rename(columns={"candidates": "annotator_ann"})
    frame["annotator_bob"] = "Barolo"
    frame.loc[0, "annotator_ann"] = "Nebbiolo"
    path = write(frame)
    code, content = check(capsys, path)
    found = {each["topic"]: each["message"] for each in content["findings"]}
    assert code == 0
    assert "1 of 3 features have the same value in every row: same" in found["constant"]
    assert "1 of 4 classes are in fewer than 5 candidate sets: 'Nebbiolo' (1)" in found["rare"]
    assert "1 of 2 annotators always give the same answer: 'bob' (120 answers)" in found["annotators"]
    with caplog.at_level(logging.WARNING):
        load_dataset(path)  # as fit and train do
    assert "always give the same answer" in caplog.text
    full = make_frame()
    full.loc[:50, "candidates"] = "all"
    code, content = check(capsys, write(full))
    assert any("51 candidate sets (42%) have all classes" in each["message"] for each in content["findings"])


def test_named_data_are_not_checked_when_they_are_loaded(caplog):
    with caplog.at_level(logging.INFO):
        load_dataset("Digits_FPS")
    assert caplog.text == ""
