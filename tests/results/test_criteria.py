"""The criteria against their definitions in protocol.md."""

import numpy as np
import pytest
from scipy.special import softmax

from plench.criteria import (
    CRITERIA,
    accuracy,
    approximated_accuracy,
    covering_rate,
    criteria,
    find_criterion,
    measure_all,
)
from plench.errors import UsageError


@pytest.mark.parametrize("seed", range(40))
def test_criteria_follow_their_definitions(seed):
    random = np.random.default_rng(seed)
    shape = (int(random.integers(1, 13)), int(random.integers(2, 7)))
    logits = random.uniform(-30, 30, shape)
    candidates, labels = random.random(shape) < 0.5, random.integers(shape[1], size=shape[0])
    candidates[np.arange(shape[0]), labels] = True
    covered, shares, right = [], [], []
    for probs, inside, label in zip(softmax(logits, axis=1), candidates, labels, strict=True):
        predicted = int(np.argmax(probs))
        covered.append(bool(inside[predicted]))
        shares.append(probs[predicted] / probs[inside].sum() if inside[predicted] else 0.0)
        right.append(predicted == label)
    figures = measure_all(logits, candidates, labels)
    assert figures["val_covering_rate"] == pytest.approx(np.mean(covered))
    assert figures["val_approximated_acc"] == pytest.approx(np.mean(shares))
    assert figures["val_accuracy"] == pytest.approx(np.mean(right)) == pytest.approx(accuracy(logits, labels))
    assert figures["val_approximated_acc"] <= figures["val_covering_rate"] + 1e-12


@pytest.mark.parametrize("gap", [20.0, 27.6, 30.0, 40.0, 110.0, 1000.0])
def test_confident_prediction_outside_the_candidates_scores_zero(gap):
    logits = np.array([[gap, 0.0, 0.0]])
    candidates = np.array([[False, True, True]])
    assert approximated_accuracy(logits, candidates) == 0.0
    assert covering_rate(logits, candidates) == 0.0


@pytest.mark.parametrize("gap", [20.0, 30.0, 110.0, 1000.0])
def test_share_of_a_confident_candidate(gap):
    logits = np.array([[gap, 0.0, 5.0]])
    assert approximated_accuracy(logits, np.array([[True, True, False]])) == pytest.approx(
        1 / (1 + np.exp(-gap)), abs=1e-15
    )


def test_float32_logits_and_shifted_rows_give_the_same():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(50, 4)).astype(np.float32)
    candidates = rng.random((50, 4)) < 0.5
    shifted = logits.astype(np.float64) + 500
    assert approximated_accuracy(logits, candidates) == pytest.approx(
        approximated_accuracy(shifted, candidates)
    )


def test_without_labels_oracle_figures_are_absent():
    figures = measure_all(np.eye(3), np.ones((3, 3), bool), None)
    assert figures["val_covering_rate"] == 1.0
    assert figures["val_approximated_acc"] is not None
    assert all(figures[each.record_key] is None for each in criteria.values() if each.needs_labels)
    assert criteria["OA"].needs_labels


def test_nan_logits_give_nan_not_a_number_that_looks_good():
    figures = measure_all(np.array([[np.nan, 1.0], [0.0, 1.0]]), np.ones((2, 2), bool), np.array([0, 1]))
    assert all(np.isnan(figures[f"val_{name}"]) for name in ("covering_rate", "approximated_acc", "accuracy"))
    assert all(value is None or np.isnan(value) for value in figures.values())


def test_names_of_criteria():
    assert [find_criterion(name).name for name in ("cr", "Oa")] == ["CR", "OA"]
    spellings = ("OA with ES", "oa_es", "OA w/ ES", "OA & ES")
    assert {find_criterion(name).name for name in spellings} == {"OA_ES"}


def test_unknown_criterion_names_the_known():
    with pytest.raises(UsageError, match=r"zzz.*CR"):
        find_criterion("zzz")


def test_order_and_facts():
    own = [entry.member for entry in CRITERIA.own.values()]  # another test may have loaded a third-party one
    assert [c.name for c in own] == list(criteria)[: len(own)]
    assert [c.position for c in own] == sorted({c.position for c in own})
    assert [(c.name, c.needs_labels, c.early_stopping) for c in own][:4] == [
        ("CR", False, True),
        ("AA", False, True),
        ("OA", True, False),
        ("OA_ES", True, True),
    ]
