"""Schedules, mixup, hard labels and the consistency parts."""

import math
from fractions import Fraction

import pytest
import torch
from torch.nn.functional import kl_div

from plench.algorithms.base import epoch_of, first_step_of, starts_epoch
from plench.algorithms.parts.contrast import confidence_momentum, parse_range
from plench.algorithms.parts.targets import (
    agree_on_target,
    best_candidate,
    divergence_from_target,
    onehot_like,
    push_non_candidates,
)
from plench.algorithms.parts.views import draw_mixing, draw_partners, mix
from plench.errors import UsageError


@pytest.mark.parametrize(("n", "batch_size"), [(45000, 256), (909, 128), (100, 25), (7, 7), (5, 8), (3, 128)])
def test_epochs_are_exact(n: int, batch_size: int) -> None:
    """As in rational arithmetic; with fewer examples than a batch every later step starts an epoch."""
    spe = Fraction(n, batch_size)
    begun = []
    for step in range(800):
        assert epoch_of(step, n, batch_size) == math.floor(step / spe)
        expected = step >= 1 and math.floor(step / spe) != math.floor((step - 1) / spe)
        assert starts_epoch(step, n, batch_size) == expected
        begun += [step] if expected else []
    if spe < 1:
        assert begun == list(range(1, 800))
    else:
        assert begun == [first_step_of(epoch, n, batch_size) for epoch in range(1, len(begun) + 1)]


def test_momentum_of_confidence_is_a_line_one_step_behind() -> None:
    assert confidence_momentum(0, 100, (0.95, 0.8)) == 0.99
    assert confidence_momentum(1, 100, (0.95, 0.8)) == 0.95
    assert confidence_momentum(101, 100, (0.95, 0.8)) == pytest.approx(0.8)
    assert confidence_momentum(51, 100, (0.95, 0.8)) == pytest.approx(0.875)


@pytest.mark.parametrize("text", ["", "0.9", "0.9,0.8,0.7", "a,b", "0.9,1.1", "-0.1,0.5", "nan,0.5"])
def test_bad_ranges_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="conf_ema_range"):
        parse_range("conf_ema_range", text)


def test_range_is_read() -> None:
    assert parse_range("conf_ema_range", "0.95, 0.8") == (0.95, 0.8)


def test_mixing_favours_the_first() -> None:
    with torch.random.fork_rng():
        torch.random.manual_seed(3)
        shares = torch.stack([draw_mixing(4.0) for _ in range(2000)])
        partners = draw_partners(torch.zeros(50, 2))
    assert shares.min() >= 0.5
    assert shares.max() <= 1
    # The mean of max(l, 1 − l) for l ~ Beta(4, 4) is 1/2 + C(8, 4)/2⁹.
    assert shares.mean().item() == pytest.approx(0.5 + math.comb(8, 4) / 2**9, abs=0.01)
    assert partners.sort().values.tolist() == list(range(50))
    torch.testing.assert_close(mix(torch.ones(2), torch.zeros(2), 0.75), torch.full((2,), 0.75))


def test_best_candidate_survives_underflow_and_ties() -> None:
    scores = torch.tensor([[500.0, -500.0, -400.0], [1.0, 1.0, 1.0], [0.0, 2.0, 2.0]])
    candidates = torch.tensor([[0, 1, 1], [0, 1, 1], [1, 1, 1]]) == 1
    labels = best_candidate(scores, candidates)
    assert labels.tolist() == [2, 1, 1]
    assert onehot_like(labels, scores).tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 0]]


def test_divergence_is_torch_kl() -> None:
    logits = torch.randn(2, 4, 3, dtype=torch.float64)
    target = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [1 / 3] * 3]).double()
    expected = [kl_div(z.log_softmax(-1), target, reduction="batchmean") for z in logits]
    torch.testing.assert_close(divergence_from_target(logits, target), torch.stack(expected))


def test_push_is_zero_where_all_are_candidates_and_finite_at_one() -> None:
    logits = torch.tensor([[200.0, 0.0], [0.0, 0.0]], requires_grad=True)
    everything = torch.ones(2, 2, dtype=torch.bool)
    assert push_non_candidates(logits, everything).item() == 0
    saturated = push_non_candidates(logits, torch.tensor([[False, True], [True, True]]))
    saturated.backward()
    assert saturated.isfinite()
    assert logits.grad.isfinite().all()


def test_views_agree_on_a_geometric_mean() -> None:
    logits = torch.randn(3, 5, 4, dtype=torch.float64)
    candidates = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 1, 0], [1, 1, 0, 0], [0, 1, 1, 1]]) == 1
    product = logits.softmax(-1).prod(0) ** (1 / 3) * candidates
    torch.testing.assert_close(agree_on_target(logits, candidates), product / product.sum(-1, keepdim=True))
