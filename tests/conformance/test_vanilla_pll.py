"""The eleven vanilla partial-label algorithms against their vectors, through the code that training uses."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from plench.algorithms import find_algorithm, idgp, mcl, pop
from plench.algorithms.abs import average_over_candidates
from plench.algorithms.base import build_adam
from plench.algorithms.cavl import activation_value
from plench.algorithms.cc import candidate_nll
from plench.algorithms.parts.class_losses import gce_of_classes, mae_of_classes, mse_of_classes
from tests.conformance.harness import (
    Adapter,
    Case,
    batch_of,
    build_linear_algorithm,
    build_on_logits,
    cases,
    linear,
    logits_batch,
    run_adapter,
    with_gradient,
)

STATE = {"PRODEN": ("confidence", "c"), "CAVL": ("confidence", "c"), "LWS": ("weights", "w")}


def candidates_of(case: Case) -> Tensor:
    """Return the case's candidates, or all labels where the case has none."""
    return case.mask("S") if "S" in case.inputs else torch.ones_like(case["z"], dtype=torch.bool)


def check_loss(case: Case, **extra: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Check the loss and its gradient, and further quantities of logits and candidates."""
    candidates = candidates_of(case)
    own = {key: case.inputs[key] for key in ("q", "lw_weight") if key in case.inputs}
    algorithm = build_on_logits(case.algorithm, case, candidates, **own)
    if case.algorithm in STATE:
        name, key = STATE[case.algorithm]
        if key in case.inputs:
            getattr(algorithm, name).copy_(case[key])
    logits = with_gradient(case["z"])
    loss = algorithm.loss(logits, logits_batch(logits, candidates))
    loss.backward()
    case.check(loss=loss, grad_z=logits.grad)
    case.check(**{key: f(case["z"], candidates) for key, f in extra.items() if key in case.expected})


def check_revision(case: Case) -> None:
    """Check the state that `revise` leaves behind."""
    candidates = case.mask("S")
    algorithm = build_on_logits(case.algorithm, case, candidates)
    algorithm.revise(case["z"], logits_batch(case["z"], candidates))
    name, key = STATE[case.algorithm]
    case.check(**{key: getattr(algorithm, name)})


def check_initial_state(case: Case) -> None:
    """Check the state that a new algorithm has."""
    shape = (case.inputs["n"], case.inputs["K"]) if "n" in case.inputs else case["S"].shape
    candidates = case.mask("S") if "S" in case.inputs else torch.ones(shape, dtype=torch.bool)
    name, key = STATE[case.algorithm]
    case.check(**{key: getattr(build_on_logits(case.algorithm, case, candidates), name)})


def check_updates(case: Case) -> None:
    """Check a sequence of updates of a linear model: losses, parameters and state."""
    card = find_algorithm(case.algorithm).card
    own = {p.name for p in card.hyperparameters} | {"lr", "weight_decay"}
    hparams = {key: value for key, value in case.inputs.items() if key in own}
    batches = case.inputs["batches"]
    algorithm = build_linear_algorithm(case.algorithm, case, {**hparams, "batch_size": len(batches[0])})
    losses = [algorithm.update(batch_of(case["X"], case.mask("S"), rows))["loss"] for rows in batches]
    case.check(losses=losses, W=algorithm.network.weight, b=algorithm.network.bias)
    if case.algorithm in STATE:
        name, key = STATE[case.algorithm]
        case.check(**{key: getattr(algorithm, name)})


def check_mae(case: Case) -> None:
    check_loss(case, per_example=lambda z, s: average_over_candidates(mae_of_classes(z), s))


def check_gce(case: Case) -> None:
    q = case.inputs["q"]
    check_loss(case, per_example=lambda z, s: average_over_candidates(gce_of_classes(z, q), s))


def check_exp(case: Case) -> None:
    check_loss(case, per_example=mcl.exponential_loss, weights=lambda z, s: mcl.set_weight(s, z.dtype))


def check_mcl(class_losses: Callable[[Tensor], Tensor]) -> Adapter:
    def check(case: Case) -> None:
        check_loss(
            case,
            class_losses=lambda z, s: class_losses(z),
            weights=lambda z, s: mcl.signed_weights(s, z.dtype),
            per_example=lambda z, s: mcl.unbiased_risk(class_losses(z), s),
        )

    return check


def check_cc(case: Case) -> None:
    check_loss(case, per_example=candidate_nll)


def check_activation_value(case: Case) -> None:
    case.check(v=activation_value(case["z"]))


def check_pop_loss(case: Case) -> None:
    candidates = candidates_of(case)
    algorithm = build_on_logits("POP", case, candidates)
    assert isinstance(algorithm, pop.POP)
    algorithm.confidence.copy_(case["c"])
    logits = with_gradient(case["z"])
    loss = algorithm.loss(logits, logits_batch(logits, candidates))
    loss.backward()
    case.check(loss=loss, grad_z=logits.grad)


def check_pop_revision(case: Case) -> None:
    everything = torch.ones_like(case.mask("C"))
    algorithm = build_on_logits("POP", case, everything, batch_size=1)  # one row an update: no epoch ends
    assert isinstance(algorithm, pop.POP)
    algorithm.purified.copy_(case.mask("C"))
    algorithm.revise(case["z"], logits_batch(case["z"], everything))
    case.check(c=algorithm.confidence)
    assert torch.equal(algorithm.purified, case.mask("C"))


def check_purification(case: Case) -> None:
    """Feed the epochs of the window to a POP whose schedule purifies at the last of them."""
    window, candidates = case["window"], case.mask("C")
    length = len(window)
    algorithm = build_on_logits(
        "POP",
        case,
        candidates,
        batch_size=len(candidates),
        rollWindow=case.inputs.get("W", length),
        warm_up=0,
        theta=case.inputs["theta"],
        inc=case.inputs["inc"],
    )
    assert isinstance(algorithm, pop.POP)
    # The window's last epoch is number 0, or the next multiple of the period.
    last = 0 if length == 1 else length
    for epoch, confidence in zip(range(last - length + 1, last + 1), window, strict=True):
        algorithm.confidence.copy_(confidence)
        algorithm.close_epoch(epoch)
    case.check(C=algorithm.purified, c=algorithm.confidence, removed=algorithm.removed, theta=algorithm.theta)
    assert not algorithm.window.any()


def purifications_until(updates: int, per_epoch: int, roll_window: int, warm_up: int) -> list[int]:
    """Return the updates, counted from 1, after which POP purifies."""
    epochs = {update: pop.ended_epoch(update, per_epoch) for update in range(1, updates + 1)}
    return [
        update
        for update, epoch in epochs.items()
        if epoch is not None and pop.purification_due(epoch, roll_window, warm_up)
    ]


def check_pop_schedule(case: Case) -> None:
    updates, roll_window = case.inputs["updates"], case.inputs["rollWindow"]
    per_epoch = pop.updates_per_epoch(case.inputs["n"], case.inputs["batch_size"])
    epochs = [(update, pop.ended_epoch(update, per_epoch)) for update in range(1, updates + 1)]
    case.check(
        records=[[update, epoch % roll_window] for update, epoch in epochs if epoch is not None],
        purifications=purifications_until(updates, per_epoch, roll_window, case.inputs["warm_up"]),
    )


def check_pop_updates(case: Case) -> None:
    own = ("rollWindow", "warm_up", "theta", "inc", "lr", "weight_decay")
    hparams = {key: case.inputs[key] for key in own}
    batches = case.inputs["batches"]
    algorithm = build_linear_algorithm("POP", case, {**hparams, "batch_size": len(batches[0])})
    assert isinstance(algorithm, pop.POP)
    logs = [algorithm.update(batch_of(case["X"], case.mask("S"), rows)) for rows in batches]
    purifications = purifications_until(
        len(batches), algorithm.updates_per_epoch, case.inputs["rollWindow"], case.inputs["warm_up"]
    )
    removed_so_far = [0, *(int(logs[update - 1]["removed"]) for update in purifications)]
    case.check(
        losses=[log["loss"] for log in logs],
        W=algorithm.network.weight,
        b=algorithm.network.bias,
        c=algorithm.confidence,
        C=algorithm.purified,
        theta=algorithm.theta,
        removed=[after - before for before, after in pairwise(removed_so_far)],
    )


def build_idgp(case: Case, candidates: Tensor) -> idgp.IDGP:
    algorithm = build_on_logits("IDGP", case, candidates)
    assert isinstance(algorithm, idgp.IDGP)
    return algorithm


def check_idgp_initial(case: Case) -> None:
    algorithm = build_idgp(case, case.mask("S"))
    case.check(d=algorithm.confidence, b=algorithm.addition)


def check_idgp_classifier_warm_up(case: Case) -> None:
    logits = with_gradient(case["z_f"])
    terms = idgp.classifier_terms(logits, case["d"], torch.zeros_like(case["d"]))
    loss = terms.total(after_warm_up=0.0, kl_weight=0.0)
    loss.backward()
    case.check(loss=loss, grad_z_f=logits.grad)


def check_idgp_generator_warm_up(case: Case) -> None:
    logits = with_gradient(case["z_g"])
    zeros = torch.zeros_like(case["b"])
    loss = idgp.generator_terms(logits, case["b"], zeros != 0, zeros).total(0.0, 0.0)
    loss.backward()
    case.check(loss=loss, grad_z_g=logits.grad)


def check_idgp_revision(case: Case) -> None:
    candidates = case.mask("S")
    algorithm = build_idgp(case, candidates)
    algorithm.revise_beliefs(torch.arange(len(candidates)), candidates, case["z_f"], case["z_g"])
    case.check(d=algorithm.confidence, b=algorithm.addition)


def check_idgp_weights(case: Case) -> None:
    weights = idgp.weigh_by_generator(case["z_g"], case["d"], case.mask("S"))
    case.check(weights=weights)
    if "pseudo_label" in case.expected:
        case.check(pseudo_label=idgp.believed_label(case["d"], case.mask("S")).squeeze(-1))


def idgp_terms(case: Case, f: Tensor, g: Tensor, addition: Tensor) -> tuple[idgp.Terms, idgp.Terms]:
    candidates = case.mask("S")
    return idgp.both_terms(f, g, case["d"], addition, candidates)


def check_idgp_main(case: Case) -> None:
    f, g = with_gradient(case["z_f"]), with_gradient(case["z_g"])
    of_f, of_g = idgp_terms(case, f, g, case["b"])
    weight = case.inputs["lambda"]
    loss_f, loss_g = of_f.total(1.0, weight), of_g.total(1.0, weight)
    (loss_f + loss_g).backward()  # each sees the other's outputs as constants, so the gradients are its own
    case.check(L_F=loss_f, grad_z_f=f.grad, L_G=loss_g, grad_z_g=g.grad)
    if "L_f" in case.expected:
        case.check(L_f=of_f.fit, L_f_given_g=of_f.given_other, KL_f=of_f.divergence)
        case.check(L_g=of_g.fit, L_g_given_f=of_g.given_other, KL_g=of_g.divergence)
        candidates = case.mask("S")
        case.check(
            weights_f=idgp.weigh_by_generator(case["z_g"], case["d"], candidates),
            weights_g=idgp.masked_softmax(case["z_f"], candidates),
        )


def check_idgp_extreme(case: Case) -> None:
    check_idgp_weights(case)
    f, g = with_gradient(case["z_f"]), with_gradient(case["z_g"])
    of_f, of_g = idgp_terms(case, f, g, torch.zeros_like(case["d"]))
    (of_f.given_other + of_g.given_other).backward()
    case.check(L_f_given_g=of_f.given_other, grad_z_f=f.grad)
    case.check(L_g_given_f=of_g.given_other, grad_z_g=g.grad)


def check_idgp_schedule(case: Case) -> None:
    n, batch_size = case.inputs["n"], case.inputs["batch_size"]
    warm_up = idgp.warm_up_updates(n, batch_size, case.inputs["warm_up_epoch"])
    ramp = idgp.ramp_updates(case.inputs["max_steps"])
    updates = [int(row[0]) for row in case.expected["rows"]]
    rows = [[t, float(t < warm_up), idgp.kl_weight(t, warm_up, ramp)] for t in updates]
    case.check(warm_up_updates=warm_up, ramp=ramp, rows=rows)


def check_idgp_updates(case: Case) -> None:
    keys = ("lr", "weight_decay", "batch_size", "warm_up_epoch")
    hparams = {key: case.inputs[key] for key in keys}
    algorithm = build_linear_algorithm("IDGP", case, hparams, case.inputs["max_steps"], "W_f", "b_f")
    assert isinstance(algorithm, idgp.IDGP)
    algorithm.generator = linear(case["W_g"], case["b_g"])
    algorithm.generator_optimizer = build_adam(algorithm.generator.parameters(), algorithm.hparams)
    logs = [algorithm.update(batch_of(case["X"], case.mask("S"), rows)) for rows in case.inputs["batches"]]
    case.check(
        losses_F=[log["loss"] for log in logs],
        losses_G=[log["generator_loss"] for log in logs],
        W_f=algorithm.network.weight,
        b_f=algorithm.network.bias,
        W_g=algorithm.generator.weight,
        b_g=algorithm.generator.bias,
        d=algorithm.confidence,
        b=algorithm.addition,
    )


ADAPTERS: dict[str, dict[str, Adapter]] = {
    "PRODEN": {
        "initial_*": check_initial_state,
        "*_updates*": check_updates,
        "revision*": check_revision,
        "loss_*": check_loss,
    },
    "CAVL": {
        "initial_*": check_initial_state,
        "class_activation_value*": check_activation_value,
        "*_updates*": check_updates,
        "selection*": check_revision,
        "loss_*": check_loss,
    },
    "POP": {
        "loss_*": check_pop_loss,
        "revision_*": check_pop_revision,
        "schedule_*": check_pop_schedule,
        "*_updates*": check_pop_updates,
        "purification_*": check_purification,
    },
    "ABS_MAE": {"*_updates*": check_updates, "*": check_mae},
    "ABS_GCE": {"*_updates*": check_updates, "*": check_gce},
    "EXP": {"*_updates*": check_updates, "*": check_exp},
    "MCL_GCE": {
        "*_updates*": check_updates,
        "*": check_mcl(lambda z: gce_of_classes(z, mcl.GCE_EXPONENT)),
    },
    "MCL_MSE": {"*_updates*": check_updates, "*": check_mcl(mse_of_classes)},
    "CC": {"*_updates*": check_updates, "*": check_cc},
    "LWS": {
        "initial_*": check_initial_state,
        "*_updates*": check_updates,
        "weight_revision*": check_revision,
        "*": check_loss,
    },
    "IDGP": {
        "initial_*": check_idgp_initial,
        "warm_up_loss_f*": check_idgp_classifier_warm_up,
        "warm_up_loss_g*": check_idgp_generator_warm_up,
        "state_revision*": check_idgp_revision,
        "label_weights_*": check_idgp_weights,
        "product_underflow_*": check_idgp_weights,
        "main_losses_*": check_idgp_main,
        "extreme_*": check_idgp_extreme,
        "schedule_*": check_idgp_schedule,
        "*_updates*": check_idgp_updates,
    },
}

CASES = [case for name in ADAPTERS for case in cases(name)]
EXTREME = [case for case in CASES if "extreme" in case.name]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_vector(case: Case) -> None:
    run_adapter(ADAPTERS[case.algorithm], case)


@pytest.mark.parametrize("case", EXTREME, ids=repr)
def test_extreme_vector_in_float32(case: Case) -> None:
    run_adapter(ADAPTERS[case.algorithm], case.in_float32())


def test_vectors_in_float32_are_there() -> None:
    """CAVL and POP have no extreme cases of their own: their parts are those of PRODEN."""
    assert {case.algorithm for case in EXTREME} == set(ADAPTERS) - {"CAVL", "POP"}
