"""The paper's three statements on the criteria, exactly: all candidate sets, each with its weight."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plench.criteria import accuracy, measure_all
from tests.conftest import ROOT

QUARTERS = 4


def all_uss_sets(label, k):
    """Every set that holds the label, but the full one: each once, since they are equally likely."""
    sets = [s for s in itertools.product((False, True), repeat=k) if s[label]]
    return [s for s in sets if not all(s)]


def all_fps_sets(label, quarters):
    """Every set by independent flips of probability quarters/4, as often as it comes in 4^(K−1) cases."""
    k = len(quarters)
    choices = [
        [True] if j == label else [True] * quarters[j] + [False] * (QUARTERS - quarters[j]) for j in range(k)
    ]
    return list(itertools.product(*choices))


def spread(logits, labels, sets_of):
    """Lay out every (example, candidate set) pair as rows; each example must have the same number of sets."""
    rows, candidates, truth = [], [], []
    for row, label in zip(logits, labels, strict=True):
        for chosen in sets_of(label):
            rows.append(row)
            candidates.append(chosen)
            truth.append(label)
    return np.array(rows), np.array(candidates), np.array(truth)


def problems(k):
    """Logits without ties and labels, for a handful of examples."""
    row = st.permutations(range(k)).map(lambda order: np.array(order, dtype=float))
    return st.lists(st.tuples(row, st.integers(0, k - 1)), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_gap_is_at_most_one_minus_accuracy_times_ambiguity(data):
    k = data.draw(st.integers(2, 4))
    problem = data.draw(problems(k))
    matrix = data.draw(
        st.lists(st.lists(st.integers(0, QUARTERS), min_size=k, max_size=k), min_size=k, max_size=k)
    )
    logits, labels = np.array([row for row, _ in problem]), [label for _, label in problem]
    rows, candidates, truth = spread(logits, labels, lambda label: all_fps_sets(label, matrix[label]))
    figures = measure_all(rows, candidates, truth)
    gap = figures["val_covering_rate"] - figures["val_accuracy"]
    gamma = max(matrix[i][j] for i in labels for j in range(k) if j != i) / QUARTERS
    assert figures["val_accuracy"] == pytest.approx(accuracy(logits, labels))
    assert -1e-12 <= gap <= (1 - figures["val_accuracy"]) * gamma + 1e-12


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_accuracy_follows_from_covering_rate_under_uss(data):
    k = data.draw(st.integers(2, 6))
    problem = data.draw(problems(k))
    logits, labels = np.array([row for row, _ in problem]), [label for _, label in problem]
    figures = measure_all(*spread(logits, labels, lambda label: all_uss_sets(label, k)))
    c = (2 ** (k - 2) - 1) / (2 ** (k - 1) - 1)
    assert (figures["val_covering_rate"] - c) / (1 - c) == pytest.approx(accuracy(logits, labels))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_accuracy_follows_from_covering_rate_under_constant_flipping(data):
    k = data.draw(st.integers(2, 4))
    quarters = data.draw(st.integers(0, QUARTERS - 1))
    problem = data.draw(problems(k))
    logits, labels = np.array([row for row, _ in problem]), [label for _, label in problem]
    figures = measure_all(*spread(logits, labels, lambda label: all_fps_sets(label, [quarters] * k)))
    p = quarters / QUARTERS
    assert (figures["val_covering_rate"] - p) / (1 - p) == pytest.approx(accuracy(logits, labels))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_approximated_accuracy_is_accuracy_for_the_true_posterior(data):
    k = data.draw(st.integers(2, 5))
    counts = st.lists(st.integers(0, 5), min_size=k, max_size=k, unique=k <= 6).filter(lambda c: sum(c) > 0)
    posteriors = data.draw(st.lists(counts, min_size=1, max_size=4))
    constant_flipping = data.draw(st.booleans()) and k <= 4
    # An input with posterior c/Σc is there once for every label and count, all inputs equally often.
    common = int(np.lcm.reduce([sum(c) for c in posteriors]))
    logits, labels = [], []
    for c in posteriors:
        with np.errstate(divide="ignore"):
            row = np.log(np.array(c) / sum(c))
        for label, count in enumerate(c):
            copies = count * common // sum(c)
            logits.extend([row] * copies)
            labels.extend([label] * copies)
    sets_of = (lambda y: all_fps_sets(y, [1] * k)) if constant_flipping else (lambda y: all_uss_sets(y, k))
    figures = measure_all(*spread(np.array(logits), labels, sets_of))
    assert figures["val_approximated_acc"] == pytest.approx(figures["val_accuracy"])


def test_without_the_posterior_it_is_not():
    rows, candidates, truth = spread(np.array([[3.0, 0.0, 0.0]]), [1], lambda y: all_uss_sets(y, 3))
    figures = measure_all(rows, candidates, truth)
    assert figures["val_accuracy"] == 0
    assert figures["val_approximated_acc"] > 0.3


def test_the_page_runs():
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "theory.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert len(blocks) == 5
    namespace = {}
    for block in blocks:
        exec(block, namespace)
    assert namespace["too_sure"]["val_approximated_acc"] > namespace["figures"]["val_approximated_acc"]
