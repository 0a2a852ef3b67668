"""Estimates, verdict, calibration and prediction sets: formulas, and what a user meets."""

import copy
import csv
import json
import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import log_softmax
from sklearn.model_selection import KFold, cross_validate

import plench
from plench import PartialLabelClassifier
from plench.cli import main
from plench.data import as_dataset, make_dataset
from plench.data.answers import read_answer_matrix
from plench.data.candidates import draw_fps
from plench.errors import DataError, UsageError
from plench.estimator import classifier as classifier_module
from plench.estimator import folds
from plench.estimator.calibration import Calibration, calibrate, fit_temperature
from plench.estimator.inputs import hide_truth
from plench.estimator.quality import Quality, estimate_quality, estimate_rate, estimate_share, score_examples
from plench.estimator.review import review_fit, unpack
from plench.estimator.scorers import covering
from plench.estimator.search import TrainingData, attempt
from plench.estimator.verdict import (
    ALL,
    CONSTANT,
    DOUBTFUL,
    GOOD,
    GUESSING,
    MAJORITY,
    ONE,
    RANDOM,
    Evidence,
    Verdict,
    judge,
)

NAMES = np.array(["ant", "bee", "cat", "dog"])


def make_data(n, seed=0, flip=0.3, spread=3.0, n_classes=4):
    random = np.random.RandomState(seed)
    labels = random.randint(n_classes, size=n)
    features = (random.randn(n, 5) + spread * np.eye(n_classes, 5)[labels]).astype(np.float32)
    return features, (random.rand(n, n_classes) < flip) | np.eye(n_classes, dtype=bool)[labels], labels


def make(**settings):
    return PartialLabelClassifier(**{"steps": 80, "random_state": 0, "reserve": 0.2, **settings})


@pytest.fixture(scope="module")
def fitted():
    features, candidates, _ = make_data(400)
    return make().fit(features, candidates)


# Estimates


def draw_confusable(random, n, n_classes=6, accuracy=0.7, q=0.4):
    """Logits and sets by which a wrong prediction, and the runner-up, are candidates with probability q."""
    order = np.argsort(random.random((n, n_classes)), axis=1)
    place = np.where(random.random(n) < accuracy, 0, 2)  # of the truth among the labels by probability
    labels = order[np.arange(n), place]
    logits = np.zeros((n, n_classes))
    logits[np.arange(n)[:, None], order] = -np.arange(n_classes)
    candidates = (random.random((n, n_classes)) < 0.1) | np.eye(n_classes, dtype=bool)[labels]
    for column in (order[:, 0], order[:, 1]):
        wrong = column != labels
        candidates[wrong, column[wrong]] = random.random(wrong.sum()) < q
    return logits, candidates, labels


@pytest.mark.parametrize("assumption", ["uniform", "confusable"])
def test_intervals_hold_where_their_assumption_does(assumption):
    """Of accuracy in the population, over 200 draws of 150 rows: at least 90 % of 95 % intervals."""
    random = np.random.default_rng(1)
    inside = certain = 0
    for _ in range(200):
        if assumption == "uniform":
            labels = random.integers(6, size=150)
            predicted = np.where(random.random(150) < 0.7, labels, (labels + random.integers(1, 6, 150)) % 6)
            logits = np.eye(6)[predicted]
            candidates, truth = draw_fps(labels, 6, 0.4, random), 0.7
        else:
            (logits, candidates, labels), truth = draw_confusable(random, 150), 0.7
        found = estimate_quality(score_examples(logits, candidates), candidates)
        estimate = getattr(found, assumption)
        inside += estimate.low <= truth <= estimate.high
        certain += found.certain.low <= truth <= found.certain.high
        assert found.certain.low <= estimate.low <= estimate.high <= found.certain.high
    assert inside >= 180
    assert certain >= 190


def test_a_stated_noise_rate_widens_the_range_and_corrects_the_estimate():
    random = np.random.default_rng(0)
    labels = random.integers(5, size=20_000)
    logits = random.normal(size=(20_000, 5)) + 2 * np.eye(5)[labels]
    candidates = draw_fps(labels, 5, 0.3, random)
    missed = random.random(20_000) < 0.2
    candidates[missed, labels[missed]] = False
    candidates[~candidates.any(1), 0] = True
    accuracy = (logits.argmax(1) == labels).mean()
    scores = score_examples(logits, candidates)
    plain, widened = (estimate_quality(scores, candidates, noise_rate=rate) for rate in (0.0, 0.2))
    assert plain.certain.high < accuracy + 0.1
    assert widened.certain.high == pytest.approx(min(1, plain.certain.high + 0.2))
    assert widened.certain.low == pytest.approx(max(0, plain.certain.low - 0.2))
    assert abs(widened.uniform.value - accuracy) < abs(plain.uniform.value - accuracy)
    assert "at most 20.0% of the sets miss" in str(widened)
    with pytest.raises(UsageError, match="noise_rate"):
        estimate_quality(scores, candidates, noise_rate=1.5)


def test_accuracy_cannot_be_told_from_sets_of_the_truth_and_the_best_wrong_label():
    """The example of docs/theory-estimates.md: never right and always right have equal sets."""
    candidates = np.tile([True, True, False], (200, 1))
    right, wrong = np.tile([2.0, 1.0, 0.0], (200, 1)), np.tile([1.0, 2.0, 0.0], (200, 1))
    found = [estimate_quality(score_examples(logits, candidates), candidates) for logits in (right, wrong)]
    assert found[0] == found[1]
    assert found[0].CR.value == 1
    assert (found[0].certain.low, found[0].certain.high) == (0, 1)
    assert found[0].confusable is None


def test_rows_of_a_group_count_as_one_where_they_are_equal():
    hits = np.repeat(np.random.default_rng(0).random(40) < 0.7, 25)
    grouped, alone = estimate_rate(hits, np.repeat(np.arange(40), 25)), estimate_rate(hits)
    fewer = estimate_share(hits[::25].sum(), 40)
    assert grouped.value == alone.value
    assert grouped.n == 1000
    assert grouped.high - grouped.low == pytest.approx(fewer.high - fewer.low, abs=0.02)
    assert alone.high - alone.low < 0.3 * (grouped.high - grouped.low)
    assert estimate_rate(hits, np.arange(1000)) == alone
    scores = {name: hits.astype(float) for name in ("CR", "AA", "exact", "runner_up")}
    candidates = np.eye(4, dtype=bool)[np.zeros(1000, int)]
    wide = estimate_quality(scores, candidates, units=np.repeat(np.arange(40), 25))
    narrow = estimate_quality(scores, candidates)
    assert wide.AA.high - wide.AA.low > 3 * (narrow.AA.high - narrow.AA.low)


# Verdict


def make_evidence(ours, baselines, candidates, labels=None):
    n, n_classes = candidates.shape
    labels = np.full(n, -1) if labels is None else labels
    return Evidence(np.arange(n), np.eye(n_classes)[ours], baselines, candidates, labels, None, "reserved")


def judge_labels(ours, baselines, candidates, labels=None):
    evidence = make_evidence(ours, baselines, candidates, labels)
    quality = estimate_quality(
        score_examples(evidence.logits, candidates), candidates, right=evidence.right, source="reserved"
    )
    return judge(evidence, quality)


def test_the_verdict_follows_its_rules():
    _, candidates, labels = make_data(200)
    random = np.random.default_rng(0)
    noise = random.integers(4, size=200)
    middling = np.where(random.random(200) < 0.6, labels, noise)
    constant = np.zeros(200, int)
    good = judge_labels(labels, {CONSTANT: constant, ALL: middling}, candidates)
    assert good.verdict == GOOD
    assert [each.name for each in good.baselines] == [RANDOM, CONSTANT, ALL]
    assert good.baselines[1].agreement == candidates[:, 0].mean()
    assert good.baselines[2].advantage.low > 0
    assert judge_labels(noise, {CONSTANT: constant}, candidates).verdict == GUESSING
    assert judge_labels(constant, {CONSTANT: constant}, candidates).verdict == GUESSING
    beaten = judge_labels(middling, {CONSTANT: constant, ALL: labels}, candidates)
    assert beaten.verdict == DOUBTFUL
    assert ALL in beaten.reasons[0]
    vague = np.tile([True, True, False, False], (200, 1))
    unclear = judge_labels(np.arange(200) % 2, {CONSTANT: constant + 3}, vague)
    assert unclear.verdict == DOUBTFUL
    assert "leave open" in unclear.reasons[0]
    assert Verdict.from_json(json.loads(json.dumps(good.to_json()))) == good


def test_true_labels_judge_where_there_are_thirty():
    _, candidates, labels = make_data(200, flip=0.9)
    known = np.where(np.arange(200) < 40, labels, -1)
    random = np.random.default_rng(0)
    guess = random.integers(4, size=200)
    found = judge_labels(labels, {CONSTANT: guess}, candidates, known)
    assert (found.measure, found.verdict, found.agreement.n) == ("accuracy", GOOD, 40)
    assert judge_labels(labels, {CONSTANT: guess}, candidates, np.where(known >= 11, -1, -1)).measure == "CR"


def test_a_fit_with_a_reserve_is_assessed_on_rows_it_has_not_seen(fitted):
    features, candidates, _ = make_data(400)
    assert len(fitted.reserved_) == 80
    assert fitted.model_.run["dataset"]["n_train"] == 320
    rows = fitted.reserved_
    assert fitted.quality_.source == "reserved"
    assert fitted.quality_.CR.n == 80
    assert fitted.quality_.CR.value == fitted.covering_score(features[rows], candidates[rows])
    assert fitted.verdict_.verdict == GOOD
    assert [each.name for each in fitted.verdict_.baselines] == [RANDOM, CONSTANT, ALL, ONE]
    assert fitted.model_.notes["reserved"]["rows"] == rows.tolist()
    again = make().fit(features, candidates)
    assert np.array_equal(again.predict_proba(features), fitted.predict_proba(features))


def test_reserved_rows_do_not_change_what_is_learned():
    """Neither the model nor the baselines: with other reserved sets all weights are the same."""
    features, candidates, labels = make_data(400)
    model = make().fit(features, candidates)
    other = candidates.copy()
    other[model.reserved_] = np.eye(4, dtype=bool)[(labels[model.reserved_] + 1) % 4]
    again = make().fit(features, other)
    assert np.array_equal(model.reserved_, again.reserved_)
    assert np.array_equal(
        model.model_.predict_logits(features),
        again.model_.predict_logits(features),
    )
    assert again.verdict_.verdict == GUESSING
    auto = [
        make(algorithm="auto", n_runs=3, portfolio=["CLPL", "PL_KNN"], steps=20).fit(features, sets)
        for sets in (candidates, other)
    ]
    assert [row["CR"] for row in auto[0].leaderboard_] == [row["CR"] for row in auto[1].leaderboard_]


def test_few_rows_are_cross_fitted_and_the_model_is_trained_on_all():
    features, _, labels = make_data(120)
    answers = np.column_stack([labels, np.where(np.arange(120) % 3, labels, (labels + 1) % 4)])
    model = make().fit(features, read_answer_matrix(answers))
    assert len(model.reserved_) == 0
    assert model.model_.run["dataset"]["n_train"] == 120
    assert (model.quality_.source, model.quality_.CR.n) == ("cross-fitted", 120)
    assert model.calibration_.source == "cross-fitted"
    assert MAJORITY in [each.name for each in model.verdict_.baselines]
    assert model.predict_set(features[:5]).shape == (5, 4)


def test_the_models_of_folds_are_trained_once(tmp_path, monkeypatch, cli):
    """Those that assess a model of few rows also find its rows to relabel."""
    trained = []
    monkeypatch.setattr(folds, "attempt", lambda *args: trained.append(args) or attempt(*args))
    write_table(tmp_path / "t.csv", 100)
    words = ["fit", str(tmp_path / "t.csv"), "-a", "PRODEN", "--steps", "20", "--json", "-o"]
    out, err = cli(*words, tmp_path / "m.plench")
    assert len(trained) == folds.FOLDS
    assert "training five more models" not in err
    notes = plench.load(tmp_path / "m.plench").notes
    model = make(steps=20).fit(str(tmp_path / "t.csv"))
    data = TrainingData(hide_truth(as_dataset(str(tmp_path / "t.csv"))))
    found = review_fit(data, model.model_, np.arange(0))
    stored = unpack(notes["rows"]["probs"], np.float16).reshape(found.probs.shape)
    assert np.allclose(stored, found.probs, atol=1e-3), "as if they had been trained again"
    assert json.loads(out)["review"]["measured"] == 100
    assert len(pickle.dumps(model)) < len(pickle.dumps(found.probs)) + 10**6


def test_an_interrupted_assessment_leaves_the_model(monkeypatch, caplog):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(classifier_module, "gather_evidence", interrupt)
    features, candidates, _ = make_data(120)
    model = make().fit(features, candidates)
    assert model.verdict_ is None
    assert model.quality_ is None
    assert "no verdict: interrupted" in caplog.text
    assert model.predict(features).shape == (120,)


# Calibration and prediction sets


def test_the_threshold_is_the_exact_order_statistic():
    scores = {"truth": [number / 100 for number in range(1, 100)]}
    made = Calibration(1.0, True, 99, "given", scores)
    assert made.find_threshold(0.9) == scores["truth"][89]
    assert made.find_threshold(0.07) == scores["truth"][6], "0.07·100 is more than 7 in floating point"
    assert made.find_threshold(0.99) == scores["truth"][98]
    assert made.find_threshold(0.995) == math.inf
    assert made.predict_sets(np.zeros((2, 3)), 0.995).all()
    for wrong in (0, 1, 90, True):
        with pytest.raises(UsageError, match="coverage"):
            made.find_threshold(wrong)
    with pytest.raises(UsageError, match="expected one of"):
        made.find_threshold(0.9, "certainty")
    with pytest.raises(UsageError, match="not calibrated for 'some_candidate'"):
        made.find_threshold(0.9, "some_candidate")


def test_prediction_sets_keep_their_promises():
    """On average over draws of calibration and test rows; the guarantee is of that average."""
    random = np.random.default_rng(0)
    kept = {"truth_if_complete": [], "some_candidate": [], "truth": []}
    sizes = {promise: [] for promise in kept}
    for _ in range(60):
        labels = random.integers(5, size=400)
        logits = random.normal(size=(400, 5)) + 1.5 * np.eye(5)[labels]
        candidates = draw_fps(labels, 5, 0.4, random)
        made = calibrate(logits[:100], candidates[:100], labels[:100])
        for promise in kept:
            sets = made.predict_sets(logits[100:], 0.8, promise)
            hit = sets & candidates[100:] if promise == "some_candidate" else sets
            rows = np.arange(300)
            held = hit.any(1) if promise == "some_candidate" else hit[rows, labels[100:]]
            kept[promise].append(held.mean())
            sizes[promise].append(sets.sum(1).mean())
    assert np.mean(kept["truth_if_complete"]) >= 0.8
    assert np.mean(kept["some_candidate"]) == pytest.approx(0.8, abs=0.02)
    assert np.mean(kept["truth"]) == pytest.approx(0.8, abs=0.02)
    assert np.mean(sizes["some_candidate"]) < np.mean(sizes["truth"]) < np.mean(sizes["truth_if_complete"])


def test_sets_of_a_fitted_model_calibrated_on_few_labels_keep_their_promise(fitted):
    """The labels also refit the temperature, on which the sets do not depend."""
    features, _, labels = make_data(600, seed=2)
    random, model = np.random.default_rng(0), copy.deepcopy(fitted)
    kept, temperatures = [], set()
    for _ in range(100):
        audited, others = np.split(random.permutation(600), [40])
        model.calibrate(features[audited], y=labels[audited])
        sets = model.predict_set(features[others], 0.8, promise="truth")
        kept.append(sets[np.arange(560), labels[others]].mean())
        temperatures.add(model.calibration_.temperature)
    assert len(temperatures) > 50
    assert np.mean(kept) >= 0.8
    assert np.mean(kept) == pytest.approx(0.8, abs=0.03)
    assert np.std(kept) < 0.1, "40 labels: a standard deviation of 0.06"


def test_the_temperature_is_found_from_candidate_sets():
    random = np.random.default_rng(0)
    posterior = log_softmax(random.normal(scale=1.5, size=(4000, 5)), axis=1)
    drawn = (np.exp(posterior).cumsum(1) < random.random((4000, 1))).sum(1).clip(max=4)
    candidates = draw_fps(drawn, 5, 0.3, random)
    assert fit_temperature(3 * posterior, candidates)[0] == pytest.approx(3, rel=0.15)
    assert fit_temperature(3 * posterior, np.eye(5, dtype=bool)[drawn])[0] == pytest.approx(3, rel=0.1)
    always = np.eye(5, dtype=bool)[posterior.argmax(1)]
    made = calibrate(posterior, always)
    assert not made.is_calibrated
    assert made.temperature == 1
    assert not fit_temperature(posterior, np.ones((4000, 5), bool))[1]
    impossible = np.where(np.arange(5) == 0, 0.0, -np.inf) * np.ones((50, 1))
    assert np.isfinite(fit_temperature(impossible, np.eye(5, dtype=bool)[np.arange(50) % 5])[0])


def test_the_estimator_calibrates_on_reserved_rows_and_on_others(fitted, tmp_path):
    features, candidates, labels = make_data(300, seed=1)
    sets = fitted.predict_set(features, 0.9)
    assert sets[np.arange(300), labels].mean() > 0.85
    logits = fitted.model_.predict_logits(features) / fitted.calibration_.temperature
    assert fitted.predict_proba(features) == pytest.approx(np.exp(log_softmax(logits, axis=1)))
    plain = make(reserve=0.0).fit(*make_data(400)[:2])
    with pytest.raises(UsageError, match="fit it with reserve="):
        plain.predict_set(features)
    plain.calibrate(features, candidates)
    assert set(plain.calibration_.scores) == {"truth_if_complete", "some_candidate"}
    plain.calibrate(features, y=labels)
    assert set(plain.calibration_.scores) == {"truth_if_complete", "some_candidate", "truth"}
    smaller = plain.predict_set(features, 0.9).sum()
    assert smaller < plain.predict_set(features, 0.9, promise="truth_if_complete").sum()
    with pytest.raises(UsageError, match=r"at least 30; there are 29"):
        plain.calibrate(features[:29], y=labels[:29])
    with pytest.raises(DataError, match="one label per example"):
        plain.calibrate(features, y=candidates)
    for both in ({}, {"S": candidates, "y": labels}):
        with pytest.raises(DataError, match="one of them"):
            plain.calibrate(features, **both)
    plain.save(tmp_path / "m.plench")
    loaded = PartialLabelClassifier.load(tmp_path / "m.plench")
    assert np.array_equal(loaded.predict_set(features), plain.predict_set(features))
    assert np.array_equal(loaded.predict_proba(features), plain.predict_proba(features))


# Estimator


def test_a_loaded_estimator_is_the_one_that_was_saved(tmp_path, fitted):
    features, candidates, labels = make_data(400)
    frame = pd.DataFrame(features, columns=list("abcde"))
    model = make(steps=20).fit(frame, [set(NAMES[row]) for row in candidates])
    model.save(tmp_path / "m.plench")
    loaded = PartialLabelClassifier.load(tmp_path / "m.plench")
    assert np.array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    assert loaded.predict(frame).tolist() == model.predict(frame).tolist()
    assert loaded.get_params() == model.get_params()
    for name in ("quality_", "verdict_", "calibration_", "n_features_in_", "algorithm_", "hparams_"):
        assert getattr(loaded, name) == getattr(model, name), name
    assert loaded.feature_names_in_.tolist() == list("abcde")
    assert np.array_equal(loaded.reserved_, model.reserved_)
    assert loaded.score(frame, NAMES[labels]) == model.score(frame, NAMES[labels])
    with pytest.raises(UsageError, match="no training examples"):
        loaded.disambiguate()
    assert isinstance(Quality.from_json(model.quality_.to_json()), Quality)
    drawn = make(steps=3, random_state=np.random.RandomState(0), hparams={"lr": np.float64(0.01)})
    drawn.fit(features, candidates).save(tmp_path / "d.plench")
    assert PartialLabelClassifier.load(tmp_path / "d.plench").random_state is None
    folder = plench.train(
        "PRODEN", make_dataset(features, candidates), tmp_path, steps=3, progress=False
    ).folder
    assert PartialLabelClassifier.load(folder).predict(features).shape == (400,)


def test_weights_are_numbers_of_copies():
    features, candidates, labels = make_data(60)
    weights = np.arange(60) % 3
    rows = np.repeat(np.arange(60), weights)
    weighted = make(reserve=0).fit(features, candidates, sample_weight=weights)
    repeated = make(reserve=0).fit(features[rows], candidates[rows])
    assert weighted.predict_proba(features) == pytest.approx(repeated.predict_proba(features), abs=1e-4)
    assert len(weighted.disambiguate().labels) == 60
    equal = make(reserve=0).fit(features, candidates, sample_weight=np.full(60, 0.25))
    assert equal.model_.run["dataset"]["n_train"] == 60
    answers = read_answer_matrix(np.column_stack([labels, (labels + (np.arange(60) % 4 == 0)) % 4]))
    crowd = make(reserve=0, algorithm="DS_LR").fit(features, answers, sample_weight=weights)
    assert crowd.model_.run["dataset"]["n_train"] == len(rows)
    assert crowd.score(features, labels) > 0.9
    for wrong, message in ((weights[:9], "shape"), (-weights, "from 0"), (0 * weights, "may be zero")):
        with pytest.raises(DataError, match=message):
            make().fit(features, candidates, sample_weight=wrong)


def test_groups_stay_on_one_side():
    features, candidates, _ = make_data(400)
    groups = np.array([f"patient {row // 8}" for row in range(400)])
    model = make(steps=5).fit(features, candidates, groups=groups)
    assert not set(groups[model.reserved_]) & set(np.delete(groups, model.reserved_))
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make(reserve=0, steps=5).set_fit_request(sample_weight=True, groups=True)
        routed.set_score_request(sample_weight=False)
        params = {"sample_weight": np.arange(400) % 2, "groups": groups}
        found = cross_validate(
            routed, features, candidates, cv=KFold(2), params=params, return_estimator=True, scoring=covering
        )
    assert [each.model_.run["dataset"]["n_train"] for each in found["estimator"]] == [100, 100]
    with pytest.raises(DataError, match="groups must be one value"):
        make().fit(features, candidates, groups=groups[:9])
    with pytest.raises(DataError, match="groups of their own"):
        make().fit(make_dataset(features, candidates, groups=np.arange(400) // 2), groups=groups)


def test_inputs_far_outside_the_training_range_are_warned_about_once(fitted, caplog):
    features, _, _ = make_data(50)
    fitted.predict(features)
    assert caplog.text == ""
    features[:3] = 1e6
    fitted.predict_proba(features)
    assert caplog.text.count("far outside the training range") == 1
    assert "3 of 50 rows" in caplog.text


def test_unknown_categories_are_one_warning(caplog):
    frame = pd.DataFrame(
        {"colour": ["red", "blue"] * 40, "shape": ["round", "flat"] * 40, "x": np.arange(80.0)}
    )
    model = make(steps=3, reserve=0).fit(frame, ["cat|dog", "dog"] * 40)
    caplog.clear()
    model.predict(frame.assign(colour=["green", "blue"] * 40, shape="square"))
    (message,) = [record.getMessage() for record in caplog.records]
    assert "of 80 rows" in message
    assert "40 in column 'colour', 80 in column 'shape'" in message


def test_the_datas_own_test_set_is_measured_too():
    features, candidates, labels = make_data(400)
    columns = {f"x{column}": features[:, column] for column in range(5)}
    columns |= {"candidates": ["|".join(NAMES[row]) for row in candidates], "truth": NAMES[labels]}
    columns["split"] = np.where(np.arange(400) < 70, "test", "train")
    model = make().fit(pd.DataFrame(columns))
    assert model.quality_.own_test.n == 70
    rows = {name: columns[name][:70] for name in ("x0", "x1", "x2", "x3", "x4")}
    assert model.quality_.own_test.value == (model.predict(rows) == NAMES[labels[:70]]).mean()
    assert model.quality_.truth.n == len(model.reserved_) == 66
    assert "own test set: accuracy" in str(model.quality_)


# Commands


def write_table(path, n, seed=0, truth=0.0, spread=3.0):
    features, candidates, labels = make_data(n, seed, spread=spread)
    known = np.random.RandomState(5).rand(n) < truth
    lines = ["id,a,b,c,d,e,candidates,truth"]
    for row in range(n):
        cells = [f"r{row}", *(f"{value:.3f}" for value in features[row]), "|".join(NAMES[candidates[row]])]
        lines.append(",".join([*cells, NAMES[labels[row]] if known[row] else ""]))
    if not truth:
        lines = [line.rpartition(",")[0] for line in lines]
    path.write_text("\n".join(lines))


def test_the_report_leads_with_the_verdict(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "good.csv", 400, truth=0.7)
    words = [
        "fit",
        "good.csv",
        "-o",
        "m.plench",
        "-a",
        "PRODEN",
        "--steps",
        "80",
        "--noise-rate",
        "0.02",
        "--strict",
    ]
    first, *others = cli(*words).out.splitlines()
    assert first.startswith("verdict: good; its accuracy is ")
    assert others[0].startswith("learned from: good.csv: 400 rows, 4 classes")
    assert others[1] == "method: PRODEN"
    assert others[2].startswith("next: ")
    text = "\n".join(others)
    assert re.search(r"this model +0\.\d{3} \(0\.\d{3} to ", text), "no figure stands without its interval"
    for part in (
        ONE,
        ALL,
        CONSTANT,
        "at most 2.0% of the sets",
        "(uniform",
        "(confusable",
        "true labels: acc",
    ):
        assert part in text
    shown = cli(*words, "--json")
    report = json.loads(shown.out)
    assert report["verdict"] == "good"
    assert 30 < report["quality"]["truth"]["n"] < 80
    assert len(report["reserved"]) == 80
    assert "wrote m.plench" in shown.err
    assert plench.load("m.plench").notes["reserved"]["items"] == [f"r{row - 1}" for row in report["reserved"]]

    shown = cli("info", "m.plench").out
    for part in (
        "verdict:       good",
        "needs columns: a (number), b (number)",
        "80 of 400 rows",
        "scikit-learn",
    ):
        assert part in shown

    new = tmp_path / "new.csv"
    new.write_text("a,b,c,d,e\n3,0,0,0,0\n0,3,0,0,0\n")
    said = cli("predict", "m.plench", "new.csv", "-o", "p.csv", "--coverage", "0.9").err
    assert "the true label if candidate sets are complete with probability 0.9" in said
    with open("p.csv") as file:
        rows = list(csv.DictReader(file))
    loaded = PartialLabelClassifier.load("m.plench")
    sets = loaded.predict_set({"a": [3, 0], "b": [0, 3], "c": [0, 0], "d": [0, 0], "e": [0, 0]})
    assert [row["set"] for row in rows] == ["|".join(NAMES[row]) for row in sets]
    assert [row["abstains"] for row in rows] == ["no" if 0 < row.sum() < 4 else "yes" for row in sets]
    new.write_text("a,b,c,d,e\n" + "9999,0,0,0,0\n" * 9)
    monkeypatch.setattr("plench.data.tables.BLOCK_ROWS", 3)
    said = cli("predict", "m.plench", "new.csv", "-o", "p.csv").err
    assert said.count("far outside the training range") == 1
    assert main(["predict", "m.plench", "new.csv", "--promise", "truth"]) == 2
    assert main(["predict", "m.plench", "new.csv", "--coverage", "0.9", "--promise", "truth"]) == 2


def test_a_model_that_guesses_is_told_in_the_first_line_and_by_the_exit_code(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "noise.csv", 320, spread=0.0)
    words = ["fit", "noise.csv", "-o", "m.plench", "-a", "PRODEN", "--steps", "30"]
    assert cli(*words, "--strict", code=3).out.startswith(
        "verdict: no better than guessing; its covering rate ("
    )
    cli(*words)
    assert "--strict needs a verdict" in cli(*words, "--reserve", "0", "--strict", code=2).err
    shown = cli(*words, "--reserve", "0").out
    assert shown.startswith("verdict: not assessed")
    assert "no honest estimate" in shown
    write_table(tmp_path / "few.csv", 60)
    shown = cli("fit", "few.csv", "-o", "f.plench", "-a", "CLPL").out
    assert "no guarantee holds" in shown
    assert "plench audit f.plench OTHER -n 50" in shown, "none of its own rows can be audited"
    said = cli("predict", "f.plench", "few.csv", "-o", "p.csv", "--coverage", "0.8").err
    assert "with probability 0.8 (no guarantee: no rows are reserved)" in said


def test_a_fit_that_does_not_look_for_rows_to_relabel_can_be_audited(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "t.csv", 320)
    cli("fit", "t.csv", "-o", "m.plench", "-a", "LR_EM", "--no-review")
    assert "20 random rows of 64" in cli("audit", "m.plench", "t.csv", "-n", "20", "-o", "audit.csv").out
    said = cli("resolve", "m.plench", "t.csv", "-o", "resolved.csv").err
    assert "256 of 320 rows were trained on" in said
    shown = cli("report", "m.plench", "-o", "page.html", "--data", "t.csv", code=2).err
    assert "fit` without --no-review" in shown


def test_ctrl_c_says_whether_a_file_was_written(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "t.csv", 60)

    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("plench.cli.fit.review_model", interrupt)
    assert "wrote m.plench" in cli("fit", "t.csv", "-o", "m.plench", "-a", "CLPL", code=130).err
    assert "audit" in plench.load("m.plench").notes["rows"], "it can be audited all the same"
    monkeypatch.setattr(PartialLabelClassifier, "fit", interrupt)
    said = cli("fit", "t.csv", "-o", "other.plench", "-a", "CLPL", code=130).err
    assert "other.plench was not written" in said
