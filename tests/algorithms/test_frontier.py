"""What vectors do not show of VIPLL and PL_AKNN: memory, starts, models, ties, and how k adapts."""

import numpy as np
import pytest
import torch

from plench.algorithms import find_algorithm, vipll
from plench.algorithms.classical.pl_aknn import PL_AKNN, eliminate, smooth_rows, squared_bound
from plench.algorithms.vipll import Generator
from tests.algorithms.test_edges import LargestTensor
from tests.probe import GivenInputs, batch_of, build, build_fitted, fit, predict

# VIPLL ----------------------------------------------------------------------------------------------------


def test_likelihoods_in_bounded_memory_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws are taken one by one where all of them would be too large."""
    torch.manual_seed(0)
    generator = Generator((40,), 6, 4, 8).double()
    units, noise = torch.rand(30, 40, dtype=torch.float64), torch.randn(10, 30, 4, dtype=torch.float64)
    candidates = torch.rand(30, 6) < 0.5
    candidates[:, 2] = True
    pairs = int(candidates.sum())
    with LargestTensor() as at_once:
        expected = generator.log_likelihoods(units, candidates, noise, pairs)
    for limit, draws in ((1, 1), (3 * pairs * 48, 3)):
        monkeypatch.setattr(vipll, "LARGEST", limit)
        with LargestTensor() as piecewise:
            found = generator.log_likelihoods(units, candidates, noise, pairs)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
        assert piecewise.largest == draws * pairs * 40
    assert at_once.largest == 10 * pairs * 40


@pytest.mark.parametrize("name", ["VI_PLL", "vi-pll"])
def test_vipll_in_the_papers_spelling(name: str) -> None:
    assert find_algorithm(name).name == "VIPLL"


@pytest.mark.parametrize("max_steps", [1, 2, 3])
def test_vipll_in_runs_of_a_few_steps(max_steps: int) -> None:
    """Below three steps there is no pre-training, and σ stays 1."""
    inputs = torch.randn(6, 2, dtype=torch.float64)
    candidates = torch.ones(6, 3, dtype=torch.bool)
    algorithm = build("VIPLL", candidates, max_steps=max_steps)
    algorithm.attach_inputs(GivenInputs(inputs))
    logged = [algorithm.update(batch_of(candidates, inputs)) for _ in range(max_steps)]
    assert ["loss_label" in each for each in logged] == [False, True, True][-max_steps:]
    assert (algorithm.generator.sigma == 1) == (max_steps < 3)


# PL_AKNN --------------------------------------------------------------------------------------------------


def vote(*sets: str, threshold: float = 0.5, rows: int = 100) -> np.ndarray:
    """Return the scores of one query whose neighbours have these sets of a, b and c."""
    candidates = np.array([["abc"[j] in names for j in range(3)] for names in sets])
    return eliminate(candidates, np.arange(len(sets))[None], squared_bound(threshold, rows, 3))[0]


def test_a_neighbourhood_that_agrees_decides_early_and_a_mixed_one_is_widened() -> None:
    """Three votes decide at this threshold; what comes later is not looked at."""
    assert np.array_equal(vote(*"aaa"), vote(*"aaabbbbbbbb"))
    assert vote(*"aab").argmax() == 0
    assert vote(*"aabbbbbbbb").argmax() == 1


def test_exact_ties_go_to_the_smaller_class() -> None:
    """A lead of 1 after one vote equals one of 3 after nine: squares over whole numbers are exact."""
    scores = vote("c", "b", "bc", "b", "bc", "b", "abc", "abc", "b", threshold=10.0)
    assert scores[1] == scores[2] == 0.5
    assert scores.argmax() == 1
    assert vote("bc", "bc", "bc").argmax() == 1


def test_equal_rows_and_a_dense_heap_are_placed_in_the_local_geometry() -> None:
    """A row with 60 copies has a radius near 0; only queries equal to it find it."""
    random = np.random.default_rng(0)
    X = np.concatenate([np.repeat(random.normal(size=(1, 4)), 60, 0), random.normal(size=(30, 4))])
    S = np.arange(90)[:, None] < np.array([60, 0])
    S[60:, 1] = True
    _, radii = smooth_rows(X)
    assert (radii[:60] < 1e-7).all()
    assert (radii[60:] > 1e-3).all()
    logits = predict(fit(build_fitted(PL_AKNN, X, S)), X)
    assert (logits.argmax(1) == S[:, 1]).all()
