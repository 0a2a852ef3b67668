"""Loss and revision of the vanilla algorithms on (R, B, K) equal R separate calls."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from plench.algorithms import algorithms, idgp
from plench.algorithms.abs import average_over_candidates
from plench.algorithms.cavl import select_label
from plench.algorithms.cc import candidate_nll
from plench.algorithms.forward import forward_losses
from plench.algorithms.l_w import weighted_losses
from plench.algorithms.lws import group_weights, leveraged_loss
from plench.algorithms.mcl import GCE_EXPONENT, exponential_loss, unbiased_risk
from plench.algorithms.nn_ga import class_risks, clip_risks, complementary_prior, correct_by_ascent
from plench.algorithms.op_w import order_preserving_losses
from plench.algorithms.parts.class_losses import gce_of_classes, mae_of_classes, mse_of_classes
from plench.algorithms.parts.complementary import mean_over_pairs
from plench.algorithms.parts.targets import masked_softmax, soft_cross_entropy, uniform_over
from plench.algorithms.pc import pairwise_comparison
from plench.algorithms.pop import purify
from plench.algorithms.scl import exponential_losses, negative_learning_losses

R, B, K = 4, 7, 5


class Runs(NamedTuple):
    """What R runs have in one step: logits, candidates, soft state, generator's logits, per-run numbers."""

    logits: Tensor
    candidates: Tensor
    state: Tensor
    other_logits: Tensor
    prior: Tensor
    number: Tensor
    second_number: Tensor
    flag: Tensor


def make_runs() -> Runs:
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(R, B, K, generator=generator, dtype=torch.float64)
    candidates = torch.rand(R, B, K, generator=generator) < 0.5
    candidates[..., 0] |= ~candidates.any(-1)
    candidates[0, 1] = True  # a row with every label,
    candidates[1] = True  # a run whose batch has nothing else,
    candidates[2, 0] = torch.arange(K) == 2  # and a single candidate
    state = torch.rand(R, B, K, generator=generator, dtype=torch.float64) * candidates
    return Runs(
        logits=logits,
        candidates=candidates,
        state=state / state.sum(-1, keepdim=True),
        other_logits=torch.randn(R, B, K, generator=generator, dtype=torch.float64),
        prior=torch.rand(R, K, generator=generator, dtype=torch.float64).softmax(-1),
        number=torch.tensor([0.1, 0.35, 0.7, 1.0], dtype=torch.float64),
        second_number=torch.tensor([0.0, 0.5, 0.01, 1.2], dtype=torch.float64),
        flag=torch.tensor([True, False, True, True]),
    )


def idgp_losses(runs: Runs) -> Tensor:
    addition = runs.state * 0.9
    of_f, of_g = idgp.both_terms(runs.logits, runs.other_logits, runs.state, addition, runs.candidates)
    after_warm_up = runs.flag.to(torch.float64)
    return of_f.total(after_warm_up, runs.number) + 10 * of_g.total(after_warm_up, runs.number)


def pair_loss(losses: Callable[[Tensor], Tensor]) -> Callable[[Runs], Tensor]:
    return lambda runs: mean_over_pairs(losses(runs.logits), runs.candidates)


LOSSES: dict[str, Callable[[Runs], Tensor]] = {
    "PRODEN": lambda runs: soft_cross_entropy(runs.logits, runs.state),
    "CAVL": lambda runs: soft_cross_entropy(runs.logits, runs.state),
    "POP": lambda runs: soft_cross_entropy(runs.logits, runs.state),
    "ABS_MAE": lambda runs: average_over_candidates(mae_of_classes(runs.logits), runs.candidates).mean(-1),
    "ABS_GCE": lambda runs: average_over_candidates(
        gce_of_classes(runs.logits, runs.number), runs.candidates
    ).mean(-1),
    "EXP": lambda runs: exponential_loss(runs.logits, runs.candidates).mean(-1),
    "MCL_GCE": lambda runs: unbiased_risk(gce_of_classes(runs.logits, GCE_EXPONENT), runs.candidates).mean(
        -1
    ),
    "MCL_MSE": lambda runs: unbiased_risk(mse_of_classes(runs.logits), runs.candidates).mean(-1),
    "CC": lambda runs: candidate_nll(runs.logits, runs.candidates).mean(-1),
    "LWS": lambda runs: leveraged_loss(runs.logits, runs.candidates, runs.state, runs.number),
    "IDGP": idgp_losses,
    "PC": lambda runs: pairwise_comparison(runs.logits, runs.candidates, K),
    "Forward": pair_loss(forward_losses),
    "NN": lambda runs: clip_risks(
        class_risks(runs.logits, runs.candidates, runs.prior).risks, runs.second_number
    ),
    "GA": lambda runs: correct_by_ascent(*class_risks(runs.logits, runs.candidates, runs.prior)).objective,
    "SCL_EXP": pair_loss(exponential_losses),
    "SCL_NL": pair_loss(negative_learning_losses),
    "L_W": pair_loss(weighted_losses),
    "OP_W": pair_loss(order_preserving_losses),
}

REVISIONS: dict[str, Callable[[Runs], Any]] = {
    "PRODEN": lambda runs: [masked_softmax(runs.logits, runs.candidates), uniform_over(runs.candidates)],
    "CAVL": lambda runs: [select_label(runs.logits, runs.candidates)],
    "LWS": lambda runs: [group_weights(runs.logits, runs.candidates)],
    "POP": lambda runs: purify(
        runs.state, runs.state, runs.candidates, runs.number, runs.second_number, runs.flag
    ),
    "IDGP": lambda runs: [idgp.weigh_by_generator(runs.other_logits, runs.state, runs.candidates)],
    "NN": lambda runs: [complementary_prior(runs.candidates)],
}


def evaluate_with_gradient(loss: Callable[[Runs], Tensor], runs: Runs) -> tuple[Tensor, Tensor]:
    runs = Runs(*(value.clone() for value in runs))
    runs.logits.requires_grad_()
    value = loss(runs)
    value.sum().backward()
    assert runs.logits.grad is not None
    return value.detach(), runs.logits.grad


@pytest.mark.parametrize("name", LOSSES)
def test_stacked_loss_equals_separate_losses(name: str) -> None:
    runs = make_runs()
    value, gradient = evaluate_with_gradient(LOSSES[name], runs)
    assert value.shape == (R,)
    for r in range(R):
        alone, alone_gradient = evaluate_with_gradient(LOSSES[name], Runs(*(part[r] for part in runs)))
        torch.testing.assert_close(value[r], alone, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(gradient[r], alone_gradient, rtol=1e-12, atol=1e-13)
    assert len(value.unique()) > 1


@pytest.mark.parametrize("name", REVISIONS)
def test_stacked_revision_equals_separate_revisions(name: str) -> None:
    runs = make_runs()
    stacked = REVISIONS[name](runs)
    for r in range(R):
        alone = REVISIONS[name](Runs(*(part[r] for part in runs)))
        for together, single in zip(stacked, alone, strict=True):
            torch.testing.assert_close(together[r], single, rtol=1e-12, atol=1e-13)


def test_every_vanilla_algorithm_is_covered() -> None:
    vanilla = {name for name, entry in algorithms().items() if entry.card.family.startswith("vanilla")}
    assert set(LOSSES) == vanilla
