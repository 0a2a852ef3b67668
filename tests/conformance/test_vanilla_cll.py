"""The eight complementary-label algorithms against their vectors, through the code that training uses."""

from collections.abc import Callable
from fnmatch import fnmatchcase

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
    Case,
    Kind,
    build_on_logits,
    linear,
    list_cases,
    logits_batch,
    present_cases,
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
    # The batches X1, X2, … come in turn, for as many steps as results are listed.
    batches = sorted(
        (key for key in case.inputs if fnmatchcase(key, "X[0-9]*")), key=lambda key: int(key[1:])
    )
    listed = [int(key.removeprefix("W_after_step_")) for key in case.expected if key != "ascent"]
    last = max(listed, default=len(case.expected.get("ascent", ())))
    ascents = []
    for step in range(1, last + 1):
        features = batches[(step - 1) % len(batches)]
        logs = algorithm.update(logits_batch(case[features], candidates))
        ascents.append(logs["ascent"])
        case.check(**{f"W_after_step_{step}": algorithm.network.weight})
    case.check(ascent=ascents)


def check_prior(case: Case) -> None:
    algorithm = build_on_logits(case.algorithm, case, case.mask("candidates_train"))
    case.check(prior=algorithm.prior)


RISKS = "class_risks pair_counts"
PRIOR = Kind(check_prior, "candidates_train", "prior")
KINDS: dict[str, list[Kind]] = {
    **{
        name: [Kind(check_pair_loss, "logits candidates", "loss grad_logits num_pairs per_label_loss")]
        for name in PAIR_LOSSES
    },
    "NN": [Kind(check_nn, "logits candidates prior beta", f"{RISKS} loss grad_logits"), PRIOR],
    "GA": [
        Kind(
            check_ga,
            "logits candidates prior",
            f"{RISKS} risk ascent minimised_objective grad_logits_given_to_optimiser",
        ),
        Kind(check_ga_steps, "W X1 candidates prior lr weight_decay", "ascent W_after_step_*"),
        PRIOR,
    ],
}


@pytest.mark.parametrize("case", list_cases(KINDS))
def test_vector(case: Case) -> None:
    run_adapter(KINDS[case.algorithm], case)


@pytest.mark.parametrize("case", [case for case in present_cases(KINDS) if case.is_extreme()], ids=repr)
def test_saturated_vector_in_float32(case: Case) -> None:
    run_adapter(KINDS[case.algorithm], case.in_float32())


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_nn_has_no_loss_without_pairs(beta: float) -> None:
    candidates = torch.ones(3, 4, dtype=torch.bool)
    logits = with_gradient(torch.linspace(-2, 3, 12, dtype=torch.float64).reshape(3, 4))
    case = Case("NN", {"name": "without pairs", "inputs": {}, "expected": {}})
    algorithm = build_on_logits("NN", case, candidates, beta=beta)
    loss = algorithm.loss(logits, logits_batch(logits, candidates))
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert not logits.grad.any()
