"""The eight complementary-label algorithms against their vectors, through the code that training uses."""

from fnmatch import fnmatchcase
from typing import Any

import pytest
import torch
from torch import Tensor

from tests import formulas
from tests.conformance.given_outputs import build
from tests.conformance.harness import (
    Case,
    Kind,
    linear,
    list_cases,
    present_cases,
    run_adapter,
)
from tests.probe import answer, batch_of, evaluate, loss_of, set_state

PAIR_LOSSES = ("PC", "Forward", "SCL_EXP", "SCL_NL", "L_W", "OP_W")


def losses_of_pairs(algorithm: Any, logits: Tensor) -> Tensor:
    """Return the loss of every single pair: label j alone is complementary, in a batch of one example."""
    others = ~torch.eye(logits.shape[1], dtype=torch.bool)
    return torch.stack(
        [torch.stack([loss_of(algorithm, row[None], sets[None]) for sets in others]) for row in logits]
    )


def check_pair_loss(case: Case) -> None:
    candidates, logits = case.mask("candidates"), case["logits"]
    algorithm = build(case, candidates)
    losses, gradient = evaluate(algorithm, logits, batch_of(candidates, logits))
    case.check(loss=losses["loss"], grad_logits=gradient, num_pairs=(~candidates).sum())
    if candidates.all():
        assert losses["loss"] == 0
        assert not gradient.any()
    if "per_label_loss" in case.expected:
        everything = torch.ones_like(candidates)  # PC is told of the largest sets it may meet
        case.check(per_label_loss=losses_of_pairs(build(case, everything), logits))


def check_risk(case: Case) -> None:
    """Check the loss of NN and of GA, what is minimised, and the risks that it is made of."""
    candidates, logits = case.mask("candidates"), case["logits"]
    own = {"beta": case.inputs["beta"]} if "beta" in case.inputs else {}
    algorithm = build(case, candidates, **own)
    set_state(algorithm, prior=case["prior"])
    losses, gradient = evaluate(algorithm, logits, batch_of(candidates, logits))
    risks, counts = formulas.class_risks(logits, candidates, case["prior"])
    case.check(class_risks=risks, pair_counts=counts, loss=losses["loss"], grad_logits=gradient)
    if case.algorithm == "GA":
        case.check(risk=losses["loss"], ascent=losses["ascent"], minimised_objective=losses["objective"])
        case.check(grad_logits_given_to_optimiser=gradient)


def check_ga_steps(case: Case) -> None:
    candidates = case.mask("candidates")
    optimiser = {key: case.inputs[key] for key in ("lr", "weight_decay")}
    algorithm = build(case, candidates, **optimiser)
    set_state(algorithm, prior=case["prior"])
    answer(algorithm, learns=True, network=linear(case["W"]))
    # The batches X1, X2, … come in turn, for as many steps as results are listed.
    batches = sorted(
        (key for key in case.inputs if fnmatchcase(key, "X[0-9]*")), key=lambda key: int(key[1:])
    )
    listed = [int(key.removeprefix("W_after_step_")) for key in case.expected if key != "ascent"]
    last = max(listed, default=len(case.expected.get("ascent", ())))
    ascents = []
    for step in range(1, last + 1):
        features = batches[(step - 1) % len(batches)]
        logs = algorithm.update(batch_of(candidates, case[features]))
        ascents.append(logs["ascent"])
        case.check(**{f"W_after_step_{step}": algorithm.network.weight})
    case.check(ascent=ascents)


def check_prior(case: Case) -> None:
    case.check(prior=build(case, case.mask("candidates_train")).prior)


RISKS = "class_risks pair_counts"
PRIOR = Kind(check_prior, "candidates_train", "prior")
KINDS: dict[str, list[Kind]] = {
    **{
        name: [Kind(check_pair_loss, "logits candidates", "loss grad_logits num_pairs per_label_loss")]
        for name in PAIR_LOSSES
    },
    "NN": [Kind(check_risk, "logits candidates prior beta", f"{RISKS} loss grad_logits"), PRIOR],
    "GA": [
        Kind(
            check_risk,
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
    logits = torch.linspace(-2, 3, 12, dtype=torch.float64).reshape(3, 4)
    case = Case("NN", {"name": "without pairs", "inputs": {}, "expected": {}})
    losses, gradient = evaluate(build(case, candidates, beta=beta), logits, batch_of(candidates, logits))
    assert losses["loss"] == 0
    assert not gradient.any()
