"""The eight complementary-label algorithms against their vectors, through the code that training uses."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from plench.algorithms.forward import forward_losses
from plench.algorithms.l_w import weighted_losses
from plench.algorithms.nn_ga import GA, NN, class_risks, correct_by_ascent
from plench.algorithms.op_w import order_preserving_losses
from plench.algorithms.pc import pairwise_comparison
from plench.algorithms.scl import exponential_losses, negative_learning_losses
from tests.conformance.harness import (
    Adapter,
    Case,
    build_on_logits,
    cases,
    linear,
    logits_batch,
    replace_network,
    run_adapter,
    with_gradient,
)


def compare_each_label(logits: Tensor) -> Tensor:
    """Return PC's loss of every single pair: label j alone is complementary, in a batch of one example."""
    num_rows, num_classes = logits.shape
    only_j = ~torch.eye(num_classes, dtype=torch.bool)
    losses = [
        pairwise_comparison(logits[i : i + 1], only_j[j : j + 1], num_classes - 1)
        for i in range(num_rows)
        for j in range(num_classes)
    ]
    return torch.stack(losses).reshape(num_rows, num_classes)


PAIR_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "PC": compare_each_label,
    "Forward": forward_losses,
    "SCL_EXP": exponential_losses,
    "SCL_NL": negative_learning_losses,
    "L_W": weighted_losses,
    "OP_W": order_preserving_losses,
}


def check_pair_loss(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build_on_logits(case.algorithm, case, candidates)
    logits = with_gradient(case["logits"])
    loss = algorithm.loss(logits, logits_batch(logits, candidates))
    loss.backward()
    assert logits.grad is not None
    case.check(loss=loss, grad_logits=logits.grad, num_pairs=(~candidates).sum())
    if candidates.all():
        assert loss == 0
        assert not logits.grad.any()
    if "per_label_loss" in case.expected:
        case.check(per_label_loss=PAIR_LOSSES[case.algorithm](case["logits"]))


def check_nn(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build_on_logits("NN", case, candidates, beta=case.inputs["beta"])
    assert isinstance(algorithm, NN)
    algorithm.prior.copy_(case["prior"])
    logits = with_gradient(case["logits"])
    loss = algorithm.loss(logits, logits_batch(logits, candidates))
    loss.backward()
    risks, counts = class_risks(logits, candidates, algorithm.prior)
    case.check(class_risks=risks, pair_counts=counts, loss=loss, grad_logits=logits.grad)


def check_ga(case: Case) -> None:
    logits = with_gradient(case["logits"])
    risks, counts = class_risks(logits, case.mask("candidates"), case["prior"])
    objective, is_ascent = correct_by_ascent(risks, counts)
    objective.backward()
    case.check(
        class_risks=risks,
        pair_counts=counts,
        risk=risks.sum(),
        ascent=is_ascent,
        minimised_objective=objective,
        grad_logits_given_to_optimiser=logits.grad,
    )


def check_ga_steps(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build_on_logits(
        "GA", case, candidates, lr=case.inputs["lr"], weight_decay=case.inputs["weight_decay"]
    )
    assert isinstance(algorithm, GA)
    algorithm.prior.copy_(case["prior"])
    replace_network(algorithm, linear(case["W"]))
    ascents = []
    for step, features in enumerate(("X1", "X2", "X1"), start=1):
        logs = algorithm.update(logits_batch(case[features], candidates))
        ascents.append(logs["ascent"])
        case.check(**{f"W_after_step_{step}": algorithm.network.weight})
    case.check(ascent=ascents)


def check_prior(case: Case) -> None:
    algorithm = build_on_logits(case.algorithm, case, case.mask("candidates_train"))
    case.check(prior=algorithm.prior)


ADAPTERS: dict[str, dict[str, Adapter]] = {
    **{name: {"*": check_pair_loss} for name in PAIR_LOSSES},
    "NN": {"class_prior*": check_prior, "*": check_nn},
    "GA": {"class_prior*": check_prior, "*_adam_steps": check_ga_steps, "*": check_ga},
}

CASES = [case for name in ADAPTERS for case in cases(name)]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_vector(case: Case) -> None:
    run_adapter(ADAPTERS[case.algorithm], case)


@pytest.mark.parametrize("case", [case for case in CASES if case.name == "saturated_logits"], ids=repr)
def test_saturated_vector_in_float32(case: Case) -> None:
    run_adapter(ADAPTERS[case.algorithm], case.in_float32())


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_nn_has_no_loss_without_pairs(beta: float) -> None:
    case = next(case for case in cases("NN") if case.name == "all_labels_are_candidates")
    candidates = case.mask("candidates")
    algorithm = build_on_logits("NN", case, candidates, beta=beta)
    logits = with_gradient(case["logits"])
    loss = algorithm.loss(logits, logits_batch(logits, candidates))
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert not logits.grad.any()
