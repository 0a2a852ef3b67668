"""Rows to relabel, annotators, and what a model file keeps of its rows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

import plench
from plench.algorithms import find_algorithm
from plench.data import make_dataset, make_table_dataset
from plench.data.answers import Answers, combine_answers
from plench.errors import DataError, UsageError
from plench.estimator import review
from plench.estimator.review import (
    compare_dropped,
    describe_review,
    digest_rows,
    drop_annotators,
    find_doubts,
    find_stored,
    rate_annotators,
    resolve,
    resolve_items,
    review_fit,
    store_rows,
)
from plench.estimator.search import TrainingData, attempt

NAMES = ("anger", "joy", "neutral", "sad")


def answers_of(*sets, annotators=None, n_items=None):
    """Answers as (item, annotator, classes)."""
    item, annotator, labels = zip(*sets, strict=True)
    matrix = np.array([[k in each for k in range(len(NAMES))] for each in labels])
    n_items = max(item) + 1 if n_items is None else n_items
    return Answers(np.array(item), np.array(annotator), matrix, n_items, annotator_names=annotators or ())


def test_rows_to_relabel_come_with_the_reason_in_words():
    probs = np.array(
        [
            [0.02, 0.03, 0.93, 0.02],  # outside of its set
            [0.46, 0.44, 0.05, 0.05],  # two candidates tie
            [0.60, 0.35, 0.03, 0.02],  # the annotators are split, and the model is not sure
            [0.95, 0.03, 0.01, 0.01],  # they are split, and the model settles it
            [0.30, 0.25, 0.25, 0.20],  # most of it is outside, but the first guess is inside
            [0.01, 0.01, 0.01, 0.97],  # further outside than the first
            [0.35, 0.25, 0.38, 0.02],  # the first guess is outside, but most of it is inside
        ]
    )
    candidates = np.array([[1, 1, 0, 0]] * 4 + [[1, 0, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]], bool)
    votes = answers_of(
        *[(2, who, {label}) for who, label in enumerate((0, 1, 0, 1))],
        *[(3, who, {label}) for who, label in enumerate((0, 1))],
        n_items=7,
    )
    found = resolve(probs, candidates, NAMES, votes)
    doubts = find_doubts(found)
    assert [(each.row, each.kind) for each in doubts] == [
        (5, "misses"),
        (0, "misses"),
        (6, "may_miss"),
        (1, "tie"),
        (2, "split"),
    ]
    assert doubts[1].reason == (
        "set probably misses the truth: model says neutral 0.93, candidates anger|joy"
    )
    assert found.outside[6] < 0.5
    assert doubts[2].reason == (
        f"set may miss the truth (probability {found.outside[6]:.2f}): "
        "model says neutral 0.38, candidates anger|joy"
    )
    assert doubts[3].reason.startswith("two classes tie: anger 0.51, joy 0.49")
    assert doubts[4].reason == "annotators split 2–2 (anger|joy); model says anger 0.60"
    fair = np.array([False] + [True] * 6)
    kept = find_doubts(resolve(probs, candidates, NAMES, votes, fair))
    assert 0 not in [each.row for each in kept], "a row that the model was trained on is not judged"


def test_many_sets_that_may_miss_the_truth_do_not_hide_ties():
    """The kinds take turns after the sets that probably miss the truth, each by its own score."""
    outside = np.linspace(0.36, 0.40, 30)
    probs = np.stack([0.34 - outside / 4, 0.34 - outside / 4, outside, 0.32 - outside / 2], axis=1)
    ties = np.array([[0.46, 0.44, 0.05, 0.05], [0.45, 0.45, 0.05, 0.05]])
    sets = np.array([[1, 1, 0, 0]] * 32, bool)
    doubts = find_doubts(resolve(np.concatenate([probs, ties]), sets, NAMES))
    assert [(each.row, each.kind) for each in doubts[:5]] == [
        (29, "may_miss"),
        (31, "tie"),
        (28, "may_miss"),
        (30, "tie"),
        (27, "may_miss"),
    ]
    assert len(doubts) == 32


def test_a_small_probability_is_not_written_as_zero():
    sets = np.repeat(np.eye(4, dtype=bool), 100, axis=0)
    probs = 0.96 * sets + 0.01
    probs[0] = [0.48, 0.50, 0.01, 0.01]
    (doubt,) = find_doubts(resolve(probs, sets, NAMES))
    assert 0 < doubt.score < 0.005
    assert doubt.reason.startswith("set may miss the truth (probability below 0.01): model says joy 0.50")


def test_a_set_of_many_answers_is_less_suspect_than_a_set_of_one():
    probs = np.array([[0.01, 0.97, 0.01, 0.01]] * 2)
    votes = answers_of((0, 0, {0}), (0, 1, {0}), (0, 2, {0}), (1, 0, {0}), n_items=2)
    found = resolve(probs, np.eye(4, dtype=bool)[[0, 0]], NAMES, votes)
    assert found.outside[1] > 0.5 > found.outside[0]
    assert [(each.row, each.kind) for each in find_doubts(found)] == [(1, "misses"), (0, "may_miss")]


def simulate(n, spread, noise, n_annotators, seed=0):
    """Draw a posterior of some spread, labels of it, and answers that are wrong with probability `noise`."""
    random = np.random.default_rng(seed)
    probs = softmax(random.normal(scale=spread, size=(n, 4)), axis=1)
    truth = (probs.cumsum(1) < random.random((n, 1))).sum(1).clip(max=3)
    wrong = (truth[:, None] + random.integers(1, 4, size=(n, n_annotators))) % 4
    given = np.where(random.random((n, n_annotators)) < noise, wrong, truth[:, None])
    answers = Answers(
        np.repeat(np.arange(n), n_annotators),
        np.tile(np.arange(n_annotators), n),
        np.eye(4, dtype=bool)[given.ravel()],
        n,
    )
    return probs, truth, answers


@pytest.mark.parametrize("n_annotators", [0, 1, 3])
@pytest.mark.parametrize("power", [1.0, 4.0])
def test_the_probability_of_a_wrong_set_is_calibrated_where_its_assumptions_hold(n_annotators, power):
    """Also for a model whose probabilities are too high: the likelihood finds the temperature."""
    probs, truth, answers = simulate(6000, 4.0, 0.25, max(1, n_annotators))
    sets = combine_answers(answers)
    probs = softmax(power * np.log(probs), axis=1)
    found = resolve(probs, sets, NAMES, answers if n_annotators else None)
    wrong = ~sets[np.arange(6000), truth]
    assert found.outside.mean() == pytest.approx(wrong.mean(), abs=0.015)
    for low, high in ((0.0, 0.2), (0.5, 1.0)):
        part = (found.outside >= low) & (found.outside <= high)
        assert part.sum() > 20
        assert found.outside[part].mean() == pytest.approx(wrong[part].mean(), abs=0.06)
    assert wrong[found.doubtful].mean() > 0.5


def test_a_model_that_knows_nothing_flags_no_set():
    """Predictions that are sure of themselves and independent of the truth."""
    _, _, answers = simulate(2000, 2.0, 0.1, 1)
    probs = softmax(np.random.default_rng(1).normal(scale=6.0, size=(2000, 4)), axis=1)
    sets = combine_answers(answers)
    assert (probs.max(1) > 0.9).mean() > 0.5, "it would flag hundreds by its own probabilities"
    for given in (answers, None):
        assert resolve(probs, sets, NAMES, given).doubtful.sum() == 0


def test_an_annotator_who_errs_often_counts_for_less():
    probs, _, answers = simulate(400, 4.0, 0.05, 2)
    sets = answers.sets.copy()
    poor = answers.annotator == 1
    sets[poor] = np.eye(4, dtype=bool)[np.random.default_rng(2).integers(4, size=poor.sum())]
    one_each = np.flatnonzero(answers.annotator == answers.item % 2)
    answers = replace(
        answers,
        item=answers.item[one_each],
        annotator=answers.annotator[one_each],
        sets=sets[one_each],
        lengths=answers.lengths[one_each],
    )
    found = resolve(probs, combine_answers(answers), NAMES, answers)
    differs = ~found.candidates[np.arange(400), found.predicted]
    who = np.arange(400) % 2
    good, bad = (found.outside[(who == number) & differs] for number in (0, 1))
    assert bad.mean() > good.mean() + 0.3


def test_an_annotator_who_always_excludes_one_class_has_no_skill():
    random = np.random.RandomState(0)
    truth = random.randint(4, size=200)
    given = []
    for item, label in enumerate(truth.tolist()):
        given.append((item, 0, {label if random.rand() < 0.9 else random.randint(4)}))
        given.append((item, 1, {0, 1, 2}))  # "not sad"
        given.append((item, 2, {random.randint(4)}))
        given.append((item, 3, {(label + 1) % 4}))
        if item < 5:
            given.append((item, 4, {label}))
    answers = answers_of(*given, annotators=("good", "not sad", "guesses", "shifted", "new"))
    probs = np.eye(4)[truth] * 0.9 + 0.025
    ratings = {
        each.annotator: each
        for each in rate_annotators(resolve(probs, combine_answers(answers), NAMES, answers))
    }
    assert ratings["not sad"].agreement > 0.7
    assert ratings["not sad"].skill == pytest.approx(0, abs=1e-9)
    assert ratings["not sad"].flag == "not better than chance"
    assert "not sad where the model says sad" in ratings["not sad"].confusions[0]
    assert ratings["good"].skill > 0.85
    assert ratings["good"].low < ratings["good"].skill < ratings["good"].high
    assert ratings["good"].flag == ""
    assert ratings["guesses"].flag == "not better than chance"
    assert ratings["shifted"].flag == "worse than chance"
    assert ratings["new"].flag == "too few answers to tell"
    assert next(iter(ratings)) == "shifted"


def test_an_annotator_whose_answers_do_not_vary_is_not_rated():
    answers = answers_of(*[(item, 0, {1}) for item in range(20)])
    (rating,) = rate_annotators(resolve(np.eye(4)[[1] * 20], combine_answers(answers), NAMES, answers))
    assert (rating.agreement, rating.skill, rating.flag) == (1.0, None, "answers do not vary")


def test_votes_of_nobody_known_are_not_rated():
    answers = answers_of(*[(item, -1, {item % 4}) for item in range(20)])
    assert rate_annotators(resolve(np.eye(4)[[1] * 20], combine_answers(answers), NAMES, answers)) == []


def crowd(n=60, rule="union", min_votes=2):
    random = np.random.RandomState(0)
    truth = random.randint(3, size=n)
    frame = {
        "id": [f"s{row}" for row in range(n)],
        "x": (truth * 4 + random.randn(n)).round(3).tolist(),
        **{f"annotator_{name}": [str(label) for label in truth] for name in "ab"},
        "annotator_c": [str(label) for label in random.randint(3, size=n)],
    }
    frame["annotator_a"][:2] = [None, None]
    frame["annotator_b"][:1] = [None]
    return make_table_dataset(frame, combine=rule, min_votes=min_votes), truth


@pytest.mark.parametrize(("rule", "min_votes"), [("union", 2), ("votes", 2), ("vaguest", 2)])
def test_dropping_an_annotator_makes_the_sets_again_by_the_same_rule(rule, min_votes):
    data, truth = crowd(rule=rule, min_votes=min_votes)
    reduced, rows = drop_annotators(data, ["c"])
    assert rows.tolist() == list(range(1, 60)), "the first row has no other answer"
    assert np.array_equal(reduced.candidates, np.eye(3, dtype=bool)[truth[1:]])
    assert reduced.items[0] == "s1"
    assert set(reduced.answers.annotator.tolist()) == {0, 1}


def test_no_row_of_a_reserved_group_is_learned_from_where_an_annotator_is_dropped(monkeypatch):
    """Nor is a row that only the model with all annotators has."""
    data, _ = crowd(rule="union")
    data = replace(data, groups=np.arange(60) // 2)
    reduced, rows = drop_annotators(data, ["c"])
    entry = replace(find_algorithm("PRODEN"))
    model = plench.PartialLabelClassifier("PRODEN", steps=5, random_state=0).fit(reduced).model_
    made = []
    monkeypatch.setattr(review, "attempt", lambda *given: made.append(given) or attempt(*given))
    reserved = np.array([0, 5, 6])  # the first has the group of the row that is left out of `reduced`
    figures = compare_dropped(model, data, reduced, rows, reserved, "CR", entry)
    _, training, used = made[0]
    assert used is entry
    assert not {0, 3} & set(training.dataset.groups.tolist())
    assert training.dataset.n_examples == 60 - 2 * len({0, 3})
    assert all(0 <= each.low <= each.value <= each.high <= 1 for each in figures[:2])
    assert figures[2].value == pytest.approx(figures[0].value - figures[1].value)


def test_an_annotator_who_cannot_be_dropped_is_refused():
    data, _ = crowd()
    with pytest.raises(UsageError, match="unknown annotator 'cc'; did you mean"):
        drop_annotators(data, ["cc"])
    with pytest.raises(UsageError, match="no row has an answer"):
        drop_annotators(data, ["a", "b", "c"])
    with pytest.raises(DataError, match="not made of its answers alone"):
        drop_annotators(data.with_candidates(np.roll(data.candidates, 1, axis=1)), ["c"])
    with pytest.raises(UsageError, match="no annotators' answers"):
        drop_annotators(replace(data, answers=None), ["c"])


def test_rows_are_recognised_in_another_file_and_order():
    rows = {"x": [1.5, 2, None], "kind": ["a", "b", None], "candidates": ["u", "v", "u|v"]}
    data = make_table_dataset(rows)
    other = make_table_dataset(
        {"kind": ["c", None, "b", "b"], "x": ["7", "", "2.0", "2"], "candidates": ["u|v"] * 4}
    )
    model = plench.PartialLabelClassifier("PRODEN", steps=5, random_state=0).fit(data).model_
    found = resolve(np.ones((3, 2)) / 2, data.candidates, "uv")
    stored = store_rows(data, model, np.arange(0), found, [1, 2, 3])
    assert find_stored(stored, other.features).tolist() == [-1, 2, 1, 1]
    features = np.random.RandomState(0).randn(5, 3).astype(np.float32)
    assert len(set(digest_rows(features).tolist())) == 5


def test_rows_of_a_fit_are_judged_by_models_that_were_not_trained_on_them():
    random = np.random.RandomState(1)
    truth = random.randint(3, size=120)
    features = (random.randn(120, 4) + 5 * np.eye(3, 4)[truth]).astype(np.float32)
    sets = np.eye(3, dtype=bool)[truth]
    sets[:6] = np.roll(sets[:6], 1, axis=1)  # six sets miss the truth
    data = make_dataset(features, sets)
    hparams = {"lr": 0.01, "weight_decay": 0.0, "model": "MLP"}  # the other network leaves a row in doubt
    model = (
        plench.PartialLabelClassifier("PRODEN", hparams=hparams, steps=300, random_state=0).fit(data).model_
    )
    assert resolve_items(model, data).doubtful[:6].sum() <= 3, "it has learned the wrong sets"
    reserved = np.array([0, 50, 100])
    found = review_fit(TrainingData(data), model, reserved)
    assert np.allclose(found.probs[reserved], model.predict_proba(features[reserved]))
    assert found.doubtful[1:6].all()
    assert found.doubtful.sum() < 15
    model.notes["rows"] = store_rows(data, model, reserved, found, range(1, 121))
    again = resolve_items(model, data.take(np.arange(100)[::-1]))
    assert np.allclose(again.probs, found.probs[:100][::-1], atol=1e-3), "the file has what was found"
    assert again.is_fair.all()
    del model.notes["rows"]["probs"]
    assert np.flatnonzero(resolve_items(model, data).is_fair).tolist() == reserved.tolist()
    shown = describe_review(found, data, range(1, 121))
    assert {each["row"] for each in shown["relabel"] if each["kind"] == "misses"} >= {2, 3, 4, 5, 6}
    assert sum(map(sum, shown["confusion"])) == sum(shown["after"]) == 120
    assert shown["before"] == pytest.approx(sets.sum(0))
