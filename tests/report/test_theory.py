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
    return [s for s in itertools.product((False, True), repeat=k) if s[label] and not all(s)]


def all_fps_sets(label, quarters):
    """Every set by independent flips of probability quarters/4, as often as it comes in 4^(K−1) cases."""
    choices = [[True] * q + [False] * (QUARTERS - q) for q in quarters]
    choices[label] = [True]
    return list(itertools.product(*choices))


def measure(logits, labels, sets_of):
    """Measure over every (example, candidate set) pair; each example must have the same number of sets."""
    rows = [(row, chosen, y) for row, y in zip(logits, labels, strict=True) for chosen in sets_of(y)]
    return measure_all(*map(np.array, zip(*rows, strict=True)))


def draw_problem(data, k):
    """Draw logits without ties and labels, for a handful of examples."""
    rows = data.draw(st.lists(st.permutations(range(k)), min_size=1, max_size=6))
    labels = data.draw(st.lists(st.integers(0, k - 1), min_size=len(rows), max_size=len(rows)))
    return np.array(rows, dtype=float), labels


@settings(max_examples=40)
@given(st.data())
def test_gap_is_at_most_one_minus_accuracy_times_ambiguity(data):
    k = data.draw(st.integers(2, 4))
    logits, labels = draw_problem(data, k)
    row = st.lists(st.integers(0, QUARTERS), min_size=k, max_size=k)
    matrix = data.draw(st.lists(row, min_size=k, max_size=k))
    figures = measure(logits, labels, lambda label: all_fps_sets(label, matrix[label]))
    gap = figures["val_covering_rate"] - figures["val_accuracy"]
    gamma = max(matrix[i][j] for i in labels for j in range(k) if j != i) / QUARTERS
    assert figures["val_accuracy"] == pytest.approx(accuracy(logits, labels))
    assert -1e-12 <= gap <= (1 - figures["val_accuracy"]) * gamma + 1e-12


@settings(max_examples=80)
@given(st.data(), st.booleans())
def test_accuracy_follows_from_covering_rate(data, under_uss):
    """Under uniform sampling of sets, and under a constant flipping probability."""
    k = data.draw(st.integers(2, 6 if under_uss else 4))
    logits, labels = draw_problem(data, k)
    if under_uss:
        figures = measure(logits, labels, lambda label: all_uss_sets(label, k))
        c = (2 ** (k - 2) - 1) / (2 ** (k - 1) - 1)
    else:
        quarters = data.draw(st.integers(0, QUARTERS - 1))
        figures = measure(logits, labels, lambda label: all_fps_sets(label, [quarters] * k))
        c = quarters / QUARTERS
    assert (figures["val_covering_rate"] - c) / (1 - c) == pytest.approx(accuracy(logits, labels))


@settings(max_examples=40)
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
    figures = measure(logits, labels, sets_of)
    assert figures["val_approximated_acc"] == pytest.approx(figures["val_accuracy"])


def test_without_the_posterior_it_is_not():
    figures = measure([[3.0, 0.0, 0.0]], [1], lambda y: all_uss_sets(y, 3))
    assert figures["val_accuracy"] == 0
    assert figures["val_approximated_acc"] > 0.3


def run_page(name, n_blocks):
    """Run the Python of a page in one namespace, and return it."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / name).read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == n_blocks
    namespace = {}
    for block in blocks:
        exec(block, namespace)
    return namespace


def test_the_page_of_the_estimates_runs():
    assert np.mean(run_page("theory-estimates.md", 3)["kept"]) >= 0.8


def test_the_page_of_the_criteria_runs():
    namespace = run_page("theory.md", 5)
    assert namespace["too_sure"]["val_approximated_acc"] > namespace["figures"]["val_approximated_acc"]
