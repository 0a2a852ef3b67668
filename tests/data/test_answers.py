"""Annotators' answers: every form, every rule, weights, and what `describe_answers` counts."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from plench.data.answers import (
    Answers,
    combine_answers,
    count_votes,
    describe_answers,
    read_answer_matrix,
    weigh_by_votes,
)
from plench.data.sources.tables import make_table_dataset
from plench.data.table_files import parse_delimited
from plench.data.taxonomy import Taxonomy, parse_taxonomy
from plench.errors import DataError
from tests.conformance.harness import VECTORS

LONG = """item,annotator,label,x
i1,ann,cat,1
i1,bob,dog,1
i2,ann,cat|dog,2
i2,bob,cat,2
i3,ann,not bird,3
i4,ann,unsure,4
i4,bob,bird,4
"""


def read(text: str, name: str = "t.csv", **options):
    return make_table_dataset(parse_delimited(text.encode(), name), **options)


def test_one_answer_a_row():
    dataset = read(LONG)
    assert dataset.class_names == ("bird", "cat", "dog")
    assert dataset.candidates.astype(int).tolist() == [[0, 1, 1], [0, 1, 1], [0, 1, 1], [1, 0, 0]]
    assert dataset.features.columns[0].values.tolist() == [1, 2, 3, 4]
    assert dataset.answers.annotator_names == ("ann", "bob")
    assert count_votes(dataset.answers).tolist() == [[0, 1, 1], [0, 2, 1], [0, 1, 1], [1, 0, 0]]


def test_all_forms_of_answers_give_the_same():
    long = read(LONG)
    wide = read("x,annotator_ann,annotator_bob\n1,cat,dog\n2,cat|dog,cat\n3,not bird,\n4,unsure,bird\n")
    lists = read("x,answers\n1,cat;dog\n2,cat|dog;cat\n3,not bird\n4,unsure;bird\n")
    python = make_table_dataset(
        {
            "x": [1, 2, 3, 4],
            "answers": [["cat", "dog"], [["cat", "dog"], "cat"], ["not bird"], ["unsure", "bird"]],
        }
    )
    items = parse_delimited(b"item,x\ni1,1\ni2,2\ni3,3\ni4,4\n", "items.csv")
    answers = parse_delimited(
        b"item,annotator,label\ni1,ann,cat\ni1,bob,dog\ni2,ann,cat|dog\ni2,bob,cat\ni3,ann,not bird\n"
        b"i4,ann,unsure\ni4,bob,bird\n",
        "a.csv",
    )
    apart = make_table_dataset(items, answers=answers)
    for other in (wide, lists, python, apart):
        assert np.array_equal(other.candidates, long.candidates)
        assert np.array_equal(count_votes(other.answers), count_votes(long.answers))
        assert other.class_names == long.class_names


def test_matrices_and_arrays_of_answers():
    matrix = [[0, -1, 2], [1, 1, -1]]
    answers = read_answer_matrix(matrix)
    assert count_votes(answers).tolist() == [[1, 0, 1], [0, 2, 0]]
    sets = np.zeros((2, 3, 3), int)
    sets[0, 0, 0] = sets[0, 2, 2] = sets[1, 0, 1] = sets[1, 1, 1] = 1
    assert np.array_equal(count_votes(read_answer_matrix(sets)), count_votes(answers))
    gaps = np.array([[0, np.nan, 2], [1, 1, np.nan]])
    assert np.array_equal(count_votes(read_answer_matrix(gaps)), count_votes(answers))
    with pytest.raises(DataError, match=r"annotator 1 to item 0 is -2; allowed are classes 0…2 and -1"):
        read_answer_matrix([[0, -2]], 3)
    with pytest.raises(DataError, match="nothing but gaps"):
        read_answer_matrix([[-1, -1]])
    with pytest.raises(DataError, match="class 2 in the answer of annotator 0 to item 1 is 7"):
        read_answer_matrix([[[1, 0, 0]], [[0, 0, 7]]])


@pytest.mark.parametrize("label", [2**31, 2.0**40, 10**9, 1e300])
def test_a_label_far_too_high_is_refused_before_memory_is_taken(label):
    with pytest.raises(DataError, match=r"the highest label is \d+; with 2 examples 1,000 classes"):
        read_answer_matrix([[0, label]])


def test_as_many_classes_as_rows_are_no_classes(monkeypatch):
    monkeypatch.setattr("plench.data.highest.FEW_CLASSES", 10)
    monkeypatch.setattr("plench.data.highest.MAX_CELLS", 100)
    rows = "\n".join(f"{i},name{i}" for i in range(20))
    with pytest.raises(DataError, match=r"has 20 classes, such as 'name0'; with 20 rows at most 10"):
        read(f"x,candidates\n{rows}\n")


def test_rules():
    answers = read_answer_matrix([[0, 0, 1], [0, 1, 2], [2, -1, -1]], 3)
    assert combine_answers(answers).astype(int).tolist() == [[1, 1, 0], [1, 1, 1], [0, 0, 1]]
    # Where no class has two votes, those with the most.
    assert combine_answers(answers, "votes", 2).astype(int).tolist() == [[1, 0, 0], [1, 1, 1], [0, 0, 1]]
    sets = np.array([[[1, 0, 0], [0, 1, 1], [1, 1, 0]]])
    assert combine_answers(read_answer_matrix(sets), "vaguest").astype(int).tolist() == [[0, 1, 1]]


def test_who_is_unsure_adds_nothing_and_alone_leaves_every_class():
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


def test_a_repeated_answer_names_both_rows():
    with pytest.raises(DataError, match=r"row 2, column 'annotator': 'ann' has answered this item in row 1"):
        read("item,annotator,label,x\ni1,ann,cat,1\ni1,ann,dog,1\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,annotator,x\ni1,a,1\n", "none of their answers"),
        ("annotator,label,x\na,cat,1\n", "no column that names the item"),
        ("item,annotator,label,x\ni1,a,cat,1\ni1,b,dog,2\n", "row 2, column 'x': differs from row 1"),
        ("item,annotator,label,x\ni1,,cat,1\n", "row 1, column 'annotator': a value is missing"),
        ("item,annotator,label,x\ni1,a,cat,1\ni2,a,cat,1\n", "at least two classes"),
        ("x,annotator_a,candidates\n1,cat,cat|dog\n", "columns of annotators and candidates"),
        ("x,candidates\n1,cat||dog\n", "row 1, column 'candidates'.*empty label"),
        ("x,candidates\n1,cat|dog\n2,\n", "row 2, column 'candidates': the candidate set is empty"),
        ("x,y2\n1,2\n", "neither candidates nor answers nor truth"),
    ],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(DataError, match=message):
        read(text)


def test_declared_classes_refuse_others_and_win_over_words():
    with pytest.raises(
        DataError, match=r"row 2, column 'candidates': 'fish' is no class; known are cat, dog"
    ):
        read("x,candidates\n1,cat\n2,fish\n", classes="cat,dog")
    dataset = read("x,annotator_a\n1,unsure\n2,sure\n", classes="sure,unsure")
    assert dataset.candidates.astype(int).tolist() == [[0, 1], [1, 0]]


def test_statistics_of_answers():
    dataset = read(LONG)
    stats = describe_answers(dataset.answers)
    assert (stats.n_answers, stats.n_annotators, stats.n_unsure) == (7, 2, 1)
    assert stats.answers_per_item == {1: 1, 2: 3}
    assert stats.answers_per_annotator == (4, 3)
    assert stats.set_sizes == {0: 1, 1: 4, 2: 2}
    assert (stats.agreement, stats.unanimous, stats.common) == (0.0, 0.0, 0.5)
    same = describe_answers(read_answer_matrix([[0, 0, 1], [1, 1, 1]]))
    assert (same.agreement, same.unanimous) == (4 / 6, 0.5)


def test_answers_of_some_items():
    answers = read_answer_matrix([[0, 1], [1, -1], [1, 0]])
    some = answers.take_items(np.array([2, 0]))
    assert isinstance(some, Answers)
    assert sorted(zip(some.item, some.annotator, some.sets.argmax(1), strict=True)) == [
        (0, 0, 1),
        (0, 1, 0),
        (1, 0, 0),
        (1, 1, 1),
    ]


def test_a_taxonomy_turns_a_node_into_its_leaves():
    table = parse_delimited(
        b"node,parent\nlion,cat\ntiger,cat\ncat,animal\nwolf,dog\ndog,animal\n", "tree.csv"
    )
    tree = parse_taxonomy(table)
    assert tree.classes == ("lion", "tiger", "wolf")
    assert tree.leaves["cat"] == ("lion", "tiger")
    assert tree.leaves["animal"] == ("lion", "tiger", "wolf")
    parents = {"lion": "cat", "tiger": "cat", "wolf": "dog"}
    dataset = read("x,candidates,truth\n1,cat,lion\n2,wolf|lion,wolf\n3,dog,wolf\n", taxonomy=parents)
    assert dataset.class_names == ("lion", "tiger", "wolf")
    assert dataset.candidates.astype(int).tolist() == [[1, 1, 0], [1, 0, 1], [0, 0, 1]]
    with pytest.raises(DataError, match=r"row 1, column 'truth': 'cat' stands for 2 classes"):
        read("x,candidates,truth\n1,cat,cat\n", taxonomy=parents)
    with pytest.raises(DataError, match="is an ancestor of itself"):
        Taxonomy({"a": "b", "b": "a", "c": None, "d": None})
    with pytest.raises(DataError, match=r"row 2, column 'parent': 'a' has the parent 'c', and 'b'"):
        parse_taxonomy(parse_delimited(b"node,parent\na,b\na,c\n", "t.csv"))


def test_votes_and_shares_are_those_of_the_vectors():
    cases = json.loads((VECTORS / "classical.json").read_text())["cases"]
    case = next(case for case in cases if case["name"] == "majority_and_shares")
    given, expected = case["inputs"], case["expected"]
    sets = np.array(given["label"])[:, None] == np.arange(given["classes"])
    answers = Answers(np.array(given["item"]), np.array(given["annotator"]), sets, given["items"])
    assert np.array_equal(count_votes(answers), expected["V"])
    shares = next(value for key, value in expected.items() if key.startswith("share"))
    assert weigh_by_votes(combine_answers(answers), answers) == pytest.approx(np.array(shares), abs=1e-7)


@pytest.mark.parametrize(
    ("name", "shape", "answers", "mean", "noise", "test"),
    [
        ("LabelMe_Crowd", (1000, 512), 2.547, 1.365, 0.111, 1188),
        ("Music_Crowd", (700, 124), 4.207, 2.411, 0.127, 300),
    ],
)
def test_the_crowd_datasets_have_their_known_figures(name, shape, answers, mean, noise, test):
    from plench.data import load_dataset
    from plench.data.sources import find_source

    folder = Path(os.environ.get("PLENCH_DATA", "absent")) / "crowd"
    if not folder.is_dir():
        pytest.skip("PLENCH_DATA names no folder with crowd/")
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
