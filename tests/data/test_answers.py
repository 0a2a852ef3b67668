"""Annotators' answers: every form, every rule, weights, and what `describe_answers` counts."""

import numpy as np
import pytest

from plench.data import load_dataset, make_table_dataset
from plench.data.answers import (
    Taxonomy,
    combine_answers,
    count_votes,
    describe_answers,
    read_answer_matrix,
    weigh_by_votes,
)
from plench.errors import DataError
from plench.estimator.inputs import read_labels

LONG = """item,annotator,label,x
i1,ann,cat,1
i1,bob,dog,1
i2,ann,cat|dog,2
i2,bob,cat,2.0
i3,ann,not bird,3
i4,ann,unsure,4
i4,bob,bird,4
"""
FORMS = {
    "long": LONG,
    "wide": "x,annotator_ann,annotator_bob\n1,cat,dog\n2,cat|dog,cat\n3,not bird,\n4,unsure,bird\n",
    "lists": "x,answers\n1,cat;dog\n2,cat|dog;cat\n3,not bird\n4,unsure;bird\n",
    "apart": "item,x\ni1,1\ni2,2\ni3,3\ni4,4\n",
}


@pytest.fixture
def read(tmp_path):
    def read(text, **options):
        (tmp_path / "t.csv").write_text(text)
        return make_table_dataset(tmp_path / "t.csv", **options)

    return read


@pytest.mark.parametrize("form", [*FORMS, "frame"])
def test_all_forms_of_answers_give_the_same(read, tmp_path, form):
    if form == "frame":
        sets = [["cat", "dog"], [["cat", "dog"], "cat"], ["not bird"], ["unsure", "bird"]]
        dataset = make_table_dataset({"x": [1, 2, 3, 4], "answers": sets})
    else:
        (tmp_path / "a.csv").write_text(LONG)
        dataset = read(FORMS[form], **({"answers": "a.csv"} if form == "apart" else {}))
    assert dataset.class_names == ("bird", "cat", "dog")
    assert dataset.candidates.astype(int).tolist() == [[0, 1, 1], [0, 1, 1], [0, 1, 1], [1, 0, 0]]
    assert dataset.features.columns[0].values.tolist() == [1, 2, 3, 4]
    assert count_votes(dataset.answers).tolist() == [[0, 1, 1], [0, 2, 1], [0, 1, 1], [1, 0, 0]]
    if form in ("long", "wide", "apart"):
        assert dataset.answers.annotator_names == ("ann", "bob")


def test_options_name_the_columns_of_a_file_of_answers(read):
    answers = {"item": ["i1", "i2"], "who": ["a", "a"], "what": ["cat", "dog"]}
    answers["candidates"] = ["not", "read"]  # further columns of the file do not count
    dataset = read("item,x\ni1,1\ni2,2\n", answers=answers, annotator="who", answer="what")
    assert dataset.candidates.tolist() == [[True, False], [False, True]]


def test_a_declared_class_that_is_written_like_a_gap_is_a_class():
    labels = read_labels(np.array(["None", "some|None"], object), 2, classes=["None", "some"])
    assert labels.candidates.tolist() == [[True, False], [True, True]]
    with pytest.raises(DataError, match="row 1, column 'S': the candidate set is empty"):
        read_labels(np.array(["NA", "some"], object), 2)


def test_matrices_and_arrays_of_answers():
    matrix = [[0, -1, 2], [1, 1, -1]]
    answers = read_answer_matrix(matrix)
    assert count_votes(answers).tolist() == [[1, 0, 1], [0, 2, 0]]
    sets = np.zeros((2, 3, 3), int)
    sets[0, 0, 0] = sets[0, 2, 2] = sets[1, 0, 1] = sets[1, 1, 1] = 1
    assert np.array_equal(count_votes(read_answer_matrix(sets)), count_votes(answers))
    gaps = np.array([[0, np.nan, 2], [1, 1, np.nan]])
    assert np.array_equal(count_votes(read_answer_matrix(gaps)), count_votes(answers))
    with pytest.raises(DataError, match=r"annotator 1 to item 0 is -2; expected classes 0…2 and -1"):
        read_answer_matrix([[0, -2]], 3)
    with pytest.raises(DataError, match="nothing but gaps"):
        read_answer_matrix([[-1, -1]])
    with pytest.raises(DataError, match="annotator 0 to item 1 is 7 for class 2; expected 0 and 1"):
        read_answer_matrix([[[1, 0, 0]], [[0, 0, 7]]])


@pytest.mark.parametrize("label", [2**31, 2.0**40, 10**9, 1e300])
def test_a_label_far_too_high_is_refused_before_memory_is_taken(label):
    with pytest.raises(DataError, match=r"has [\d,]+ classes; expected 2 to 1,000 for 2 rows"):
        read_answer_matrix([[0, label]])


def test_as_many_classes_as_rows_are_not_classes(read, monkeypatch):
    monkeypatch.setattr("plench.data.answers.FEW_CLASSES", 10)
    monkeypatch.setattr("plench.data.answers.MAX_CELLS", 100)
    rows = "\n".join(f"{i},name{i}" for i in range(20))
    with pytest.raises(DataError, match=r"classes 'name0', .* has 20 classes; expected 2 to 10 for 20 rows"):
        read(f"x,candidates\n{rows}\n")


def test_rules():
    answers = read_answer_matrix([[0, 0, 1], [0, 1, 2], [2, -1, -1]], 3)
    assert combine_answers(answers).astype(int).tolist() == [[1, 1, 0], [1, 1, 1], [0, 0, 1]]
    # Where no class has two votes, those with the most.
    assert combine_answers(answers, "votes", 2).astype(int).tolist() == [[1, 0, 0], [1, 1, 1], [0, 0, 1]]
    sets = np.array([[[1, 0, 0], [0, 1, 1], [1, 1, 0]]])
    assert combine_answers(read_answer_matrix(sets), "vaguest").astype(int).tolist() == [[0, 1, 1]]


def test_who_is_unsure_adds_nothing_and_alone_leaves_every_class(read):
    dataset = read("x,annotator_a,annotator_b\n1,unsure,cat\n2,unsure,?\n3,dog,\n4,,\n")
    assert dataset.candidates.astype(int).tolist() == [[1, 0], [1, 1], [0, 1], [1, 1]]
    assert any("2 of 4 items have no answer that names a class" in notice for notice in dataset.warnings)
    weights = weigh_by_votes(dataset.candidates, dataset.answers)
    assert weights.tolist() == [[1, 0], [0.5, 0.5], [0, 1], [0.5, 0.5]]


def test_votes_as_weights_stay_within_the_set():
    answers = read_answer_matrix([[0, 0, 1], [0, 1, 2]], 3)
    assert weigh_by_votes(combine_answers(answers), answers) == pytest.approx(
        np.array([[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3]])
    )
    assert weigh_by_votes(combine_answers(answers, "votes", 2), answers)[0].tolist() == [1, 0, 0]


HEAD = "item,annotator,label,x\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,annotator,x\ni1,a,1\n", "column 'annotator' of annotators but no column answer"),
        ("annotator,label,x\na,cat,1\n", "column 'annotator' of annotators but no column item"),
        (HEAD + "i1,a,cat,1\ni1,b,dog,2\n", "row 2, column 'x': differs from row 1"),
        (HEAD.replace("x", "x,truth") + "i1,a,cat,1,cat\ni1,b,dog,1,dog\n", "row 2, column 'truth': differs"),
        (HEAD + "i1,,cat,1\n", "row 1, column 'annotator': the value is missing"),
        (HEAD + "i1,a,cat,1\ni2,a,cat,1\n", "has 1 classes; expected 2"),
        (HEAD + "i1,a,cat,1\ni1,a,dog,1\n", "row 2, column 'label': 'a' has answered .* in row 1"),
        (HEAD + "i1,a,,1\n", "there is not one answer"),
        ("x,annotator_a,candidates\n1,cat,cat|dog\n", "columns of annotators and candidates"),
        ("x,annotator_a\n1,cat|dog\n2,not cat|dog\n", "row 2, .*: the answer excludes every class"),
    ],
)
def test_bad_answers_are_refused_with_their_place(read, text, message):
    with pytest.raises(DataError, match=message):
        read(text)


@pytest.mark.parametrize(
    ("items", "answers", "message"),
    [
        ("x\n1\n", LONG, "has no column of items; name it with item=COLUMN"),
        ("item,x\ni1,1\ni1,2\n", LONG, "two rows have one name in column 'item'"),
        ("item,x\ni1,1\n", LONG, r"a\.csv: row 3, column 'item': unknown item 'i2'"),
        ("item,x\ni1,1\n", "item\ni1\n", r"a\.csv must have columns item, annotator and label; it has item"),
    ],
)
def test_a_file_of_answers_must_fit(read, tmp_path, items, answers, message):
    (tmp_path / "a.csv").write_text(answers)
    with pytest.raises(DataError, match=message):
        read(items, answers="a.csv")


def test_declared_classes_refuse_others_and_win_over_words(read):
    with pytest.raises(DataError, match=r"row 2, .*: unknown class 'fish'; expected one of cat"):
        read("x,candidates\n1,cat\n2,fish\n", classes="cat,dog")
    dataset = read("x,annotator_a\n1,unsure\n2,sure\n", classes="sure,unsure")
    assert dataset.candidates.astype(int).tolist() == [[0, 1], [1, 0]]


def test_statistics_of_answers(read):
    stats = describe_answers(read(LONG).answers)
    assert stats == {
        "n_answers": 7,
        "n_annotators": 2,
        "n_unsure": 1,
        "answers_per_item": {1: 1, 2: 3},
        "answers_per_annotator": {"ann": 4, "bob": 3},
        "set_sizes": {0: 1, 1: 4, 2: 2},
        "agreement": 0.0,
        "unanimous": 0.0,
        "common": 0.5,
    }
    same = describe_answers(read_answer_matrix([[0, 0, 1], [1, 1, 1]]))
    assert (same["agreement"], same["unanimous"]) == (4 / 6, 0.5)


def test_answers_of_some_items():
    some = read_answer_matrix([[0, 1], [1, -1], [1, 0]]).take_items(np.array([2, 0]))
    found = sorted(zip(some.item, some.annotator, some.sets.argmax(1), strict=True))
    assert found == [(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1)]


def test_a_taxonomy_turns_a_node_into_its_leaves(read, tmp_path):
    tree = Taxonomy({"lion": "cat", "tiger": "cat", "cat": "animal", "wolf": "dog", "dog": "animal"})
    assert tree.classes == ("lion", "tiger", "wolf")
    assert tree.leaves["cat"] == ("lion", "tiger")
    assert tree.leaves["animal"] == ("lion", "tiger", "wolf")
    (tmp_path / "tree.csv").write_text("node,parent\nlion,cat\ntiger,cat\nwolf,dog\ndog,\n")
    text = "x,candidates,truth\n1,cat,lion\n2,wolf|lion,wolf\n3,dog,wolf\n"
    for taxonomy in ("tree.csv", {"lion": "cat", "tiger": "cat", "wolf": "dog"}):
        dataset = read(text, taxonomy=taxonomy)
        assert dataset.class_names == ("lion", "tiger", "wolf")
        assert dataset.candidates.astype(int).tolist() == [[1, 1, 0], [1, 0, 1], [0, 0, 1]]
    with pytest.raises(DataError, match=r"row 1, column 'truth': 'cat' stands for 2 classes"):
        read("x,candidates,truth\n1,cat,cat\n", taxonomy="tree.csv")
    for circle in ({"a": "b", "b": "a", "c": None, "d": None}, {"c": "a", "a": "b", "b": "a", "d": None}):
        with pytest.raises(DataError, match="is its own ancestor"):
            Taxonomy(circle)
    (tmp_path / "tree.csv").write_text("node,parent\na,b\na,c\n")
    with pytest.raises(DataError, match=r"row 2, column 'parent': 'a' has two parents, 'b' and 'c'"):
        read(text, taxonomy="tree.csv")


@pytest.mark.parametrize(
    ("name", "shape", "answers", "mean", "noise", "test"),
    [
        ("LabelMe_Crowd", (1000, 512), 2.547, 1.365, 0.111, 1188),
        ("Music_Crowd", (700, 124), 4.207, 2.411, 0.127, 300),
        ("SentimentPolarity", (4999, 1), 5.550, 1.621, 0.0096, 3999),
    ],
)
def test_the_crowd_datasets_have_their_known_figures(real_data, name, shape, answers, mean, noise, test):
    from plench.data.sources import find_source

    folder = real_data / ("text" if name == "SentimentPolarity" else "crowd")
    dataset = load_dataset(name, folder)
    assert dataset.verified
    assert dataset.features.shape == shape
    assert len(dataset.answers.item) / dataset.n_examples == pytest.approx(answers, abs=1e-3)
    assert dataset.mean_candidates == pytest.approx(mean, abs=1e-3)
    assert dataset.noise_rate == pytest.approx(noise, abs=1e-3)
    assert len(dataset.test.labels) == test
    source = find_source(name)
    assert (source.own_test, source.answers) == (True, True)
    fewer = load_dataset(f"{name}_Votes_2", folder)
    assert fewer.mean_candidates < dataset.mean_candidates
