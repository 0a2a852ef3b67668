import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from plench.data import CandidateSpec, Dataset, DatasetCard, choose_candidates, draw_candidates
from plench.data.candidates import (
    compute_id_flips,
    draw_flips,
    draw_fps,
    draw_uss,
    drop_true,
    fit_log_probs,
)
from plench.errors import DataError, UsageError
from plench.settings import Settings

CARD = DatasetCard("Toy", "tabular", "task", "source", "terms", "citation", default_steps=10)
N = 20_000  # draws per property; with 6 standard errors and fixed examples the tests cannot flicker
statistical = settings(derandomize=True, max_examples=15)


def assert_frequency(observed, probability, n=N):
    error = np.sqrt(np.maximum(probability * (1 - probability), 1 / n) / n)
    assert np.all(np.abs(observed - probability) < 6 * error), (observed, probability)


def make(n=300, n_classes=4, labels=True, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    features = rng.normal(size=(n, 5)) + 2 * np.eye(n_classes, 5)[y]
    return Dataset(features, np.ones((n, n_classes)), y if labels else None, CARD)


@statistical
@given(st.integers(2, 219), st.integers(0, 2**32 - 1), st.data())
def test_uss_gives_a_wrong_label_its_exact_probability(n_classes, seed, data):
    label = data.draw(st.integers(0, n_classes - 1))
    candidates = draw_uss(np.full(N, label), n_classes, np.random.default_rng(seed))
    expected = (2.0 ** (n_classes - 2) - 1) / (2.0 ** (n_classes - 1) - 1)
    wrong = np.delete(candidates.mean(axis=0), label)
    assert candidates[:, label].all()
    assert not candidates.all(axis=1).any()
    assert_frequency(wrong, expected)


@pytest.mark.parametrize("n_classes", [2, 3, 4, 6])
def test_uss_draws_every_admissible_set_equally_often(n_classes):
    label = n_classes - 1
    candidates = draw_uss(np.full(N, label), n_classes, np.random.RandomState(n_classes))
    sets, counts = np.unique(candidates, axis=0, return_counts=True)
    admissible = {
        bits for bits in itertools.product([False, True], repeat=n_classes) if bits[label] and not all(bits)
    }
    assert {tuple(map(bool, row)) for row in sets} == admissible
    if len(counts) > 1:
        assert chisquare(counts).pvalue > 1e-4


@statistical
@given(st.integers(2, 12), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_fps_flips_wrong_labels_at_the_rate_and_independently(n_classes, rate, seed):
    candidates = draw_fps(np.zeros(N, dtype=int), n_classes, rate, np.random.default_rng(seed))
    assert candidates[:, 0].all()
    assert_frequency(candidates[:, 1:].mean(axis=0), rate)
    assert_frequency(candidates.all(axis=1).mean(), rate ** (n_classes - 1))  # the full set is allowed


def test_fps_takes_a_matrix():
    matrix = np.array([[0.0, 0.2, 0.9], [0.5, 0.0, 0.1], [1.0, 0.0, 0.3]])
    labels = np.repeat(np.arange(3), N)
    candidates = draw_fps(labels, 3, matrix, np.random.default_rng(5))
    expected = matrix.copy()
    np.fill_diagonal(expected, 1.0)
    for label in range(3):
        assert_frequency(candidates[labels == label].mean(axis=0), expected[label])


@pytest.mark.parametrize(
    ("flips", "message"),
    [
        (np.zeros((3, 2)), r"must have shape \(3, 3\), not \(3, 2\)"),
        (np.full((3, 3), 1.5), r"entry \(0, 0\) of the flipping matrix is 1.5"),
        (np.full((3, 3), np.nan), "is nan; expected 0 to 1"),
        (-0.1, "fps_rate must be .* not -0.1"),
    ],
)
def test_flipping_probabilities_are_checked(flips, message):
    with pytest.raises(UsageError, match=message):
        draw_fps(np.array([0, 1, 2]), 3, flips, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("labels", "n_classes", "message"),
    [
        ([0, 3], 3, "label of example 1 is 3"),
        ([0.0], 3, "one integer"),
        ([0], 1, "two classes"),
        ([[0]], 3, "shape"),
    ],
)
def test_labels_given_to_a_generator_are_checked(labels, n_classes, message):
    with pytest.raises(DataError, match=message):
        draw_uss(labels, n_classes, np.random.default_rng(0))


@given(st.integers(2, 9), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_instance_dependent_flips_follow_the_formula(n_classes, rate, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=20)
    probs = rng.dirichlet(np.ones(n_classes), size=20)
    flips = compute_id_flips(np.log(probs), labels, rate)
    for row, (prob, label) in enumerate(zip(probs, labels, strict=True)):
        expected = prob.copy()
        expected[label] = 0
        expected /= expected.max()
        expected = np.minimum(expected / expected.mean() * rate, 1)
        np.testing.assert_allclose(flips[row], expected, rtol=1e-9, atol=1e-12)


def test_instance_dependent_flips_survive_a_classifier_that_is_certain():
    flips = compute_id_flips(np.array([[0.0, -2000.0, -2001.0]]), np.array([0]), 0.1)
    share = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(flips, [[0, 0.3 * share, 0.3 * (1 - share)]])
    with pytest.raises(DataError, match="at least two classes"):
        fit_log_probs(np.ones((5, 2)), np.zeros(5, dtype=int), 3)


def test_instance_dependent_candidates_prefer_confusable_labels():
    rng = np.random.default_rng(0)
    labels = np.arange(3_000) % 3
    centres = np.array([[0.0, 0.0], [1.5, 0.0], [9.0, 9.0]])  # 0 and 1 are close, 2 is far away
    log_probs = fit_log_probs(centres[labels] + rng.normal(size=(3_000, 2)), labels, 4)
    assert np.isneginf(log_probs).all(axis=0).tolist() == [False, False, False, True]  # nobody is 3
    candidates = draw_flips(compute_id_flips(log_probs, labels, 0.4), labels, rng)
    near, far, never = candidates[labels == 0][:, 1:].mean(axis=0)
    assert (near > 0.9, far < 0.2, never) == (True, True, 0)


@statistical
@given(st.integers(2, 10), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_true_labels_are_dropped_at_the_rate_and_no_set_is_empty(n_classes, rate, seed):
    rng = np.random.default_rng(seed)
    labels = np.full(N, n_classes - 1)
    single = np.arange(n_classes) == labels[:, None]
    noisy = drop_true(single, labels, rate, rng)
    assert_frequency(noisy[:, -1].mean(), 1 - rate)
    assert (noisy.sum(axis=1) == 1).all()
    assert_frequency(noisy[:, :-1].mean(axis=0), rate / (n_classes - 1))  # the replacement is uniform
    assert single[:, -1].all()  # what was given is not changed
    full = drop_true(np.ones((N, n_classes), dtype=bool), labels, rate, rng)
    assert full[:, :-1].all()
    assert_frequency(full[:, -1].mean(), 1 - rate)


@pytest.mark.parametrize("pl_type", ["uss", "fps", "id"])
def test_drawn_candidates_depend_on_the_trial_seed_only(pl_type):
    spec = CandidateSpec(pl_type)
    first = draw_candidates(make(), spec, 0)
    assert np.array_equal(first.candidates, draw_candidates(make(), spec, np.int64(0)).candidates)
    assert not np.array_equal(first.candidates, draw_candidates(make(), spec, 1).candidates)
    assert first.noise_rate == 0
    assert np.array_equal(first.features, make().features)
    with pytest.raises(DataError, match="Toy has no true labels"):
        draw_candidates(make(labels=False), spec, 0)


def test_dropping_has_a_stream_of_its_own():
    plain = draw_candidates(make(), CandidateSpec("fps", fps_rate=0.9), 3)
    noisy = draw_candidates(make(), CandidateSpec("fps", fps_rate=0.9, drop_true_rate=0.5), 3)
    changed = plain.candidates != noisy.candidates
    assert noisy.candidates.any(axis=1).all()
    single = plain.candidates.sum(axis=1) == 1
    assert np.array_equal(changed[~single].nonzero()[1], plain.labels[~single][changed[~single].any(axis=1)])
    assert 0.4 < noisy.noise_rate < 0.6


def test_real_means_the_candidates_of_the_data():
    dataset = make(labels=False)
    assert draw_candidates(dataset, CandidateSpec(), 5) is dataset
    noisy = draw_candidates(make(), CandidateSpec(drop_true_rate=1.0), 5)
    assert (noisy.noise_rate, noisy.mean_candidates) == (1.0, 3.0)
    with pytest.raises(DataError, match="Toy has no true labels"):
        draw_candidates(dataset, CandidateSpec(drop_true_rate=0.1), 0)


def test_a_spec_fills_in_its_rate():
    assert CandidateSpec("fps").fps_rate == 0.3
    assert CandidateSpec("id").id_rate == 0.4
    assert CandidateSpec("fps", fps_rate=0.3) == CandidateSpec("fps")
    assert CandidateSpec("uss") == CandidateSpec("uss", None, None, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pl_type": "USS"}, "unknown pl_type 'USS'; expected one of real, uss, fps, id"),
        ({"pl_type": "uss", "fps_rate": 0.1}, "fps_rate is only for pl_type fps; pl_type is uss"),
        ({"pl_type": "fps", "id_rate": 0.1}, "id_rate is only for pl_type id"),
        ({"fps_rate": 0.1}, "fps_rate is only for pl_type fps; pl_type is real"),
        ({"id_rate": 0}, "id_rate is only for pl_type id"),
        ({"pl_type": "fps", "fps_rate": 1.1}, "fps_rate must be a number from 0 to 1, not 1.1"),
        ({"pl_type": "fps", "fps_rate": -1}, "fps_rate must be .* not -1"),
        ({"pl_type": "id", "id_rate": float("nan")}, "id_rate must be .* not nan"),
        ({"drop_true_rate": 2}, "drop_true_rate must be .* not 2"),
        ({"drop_true_rate": "x"}, "drop_true_rate must be .* not 'x'"),
        ({"drop_true_rate": None}, "drop_true_rate must be .* not None"),
    ],
)
def test_a_spec_checks_itself(arguments, message):
    with pytest.raises(UsageError, match=message):
        CandidateSpec(**arguments)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, CandidateSpec("fps", fps_rate=0.2)),
        ({"fps_rate": 0.7}, CandidateSpec("fps", fps_rate=0.7)),
        ({"pl_type": "uss"}, CandidateSpec("uss")),
        ({"pl_type": "fps"}, CandidateSpec("fps")),
        ({"pl_type": "id", "id_rate": 0.1, "drop_true_rate": 0.2}, CandidateSpec("id", None, 0.1, 0.2)),
        ({"pl_type": "uss", "fps_rate": 0.2}, "fps_rate is only for pl_type fps"),
        ({"id_rate": 0.2}, "id_rate is only for pl_type id"),
    ],
)
def test_choices_of_the_user_go_on_top_of_the_default(asked, expected):
    default = CandidateSpec("fps", fps_rate=0.2)
    if isinstance(expected, CandidateSpec):
        assert choose_candidates(default, Settings(**asked)) == expected
    else:
        with pytest.raises(UsageError, match=expected):
            choose_candidates(default, Settings(**asked))
