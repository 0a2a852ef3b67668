"""The eleven vanilla partial-label algorithms against their vectors, through the code that training uses."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from plench.algorithms import idgp, mcl, pop
from plench.algorithms.abs import average_over_candidates
from plench.algorithms.base import build_adam
from plench.algorithms.cavl import activation_value
from plench.algorithms.cc import candidate_nll
from plench.algorithms.parts.class_losses import gce_of_classes, mae_of_classes, mse_of_classes
from tests.conformance.given_outputs import own_hparams
from tests.conformance.harness import (
    OUR_VECTORS,
    Adapter,
    Case,
    Kind,
    batch_of,
    build_linear_algorithm,
    build_on_logits,
    linear,
    list_cases,
    logits_batch,
    present_cases,
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
    algorithm = build_on_logits(case.algorithm, case, candidates, **own_hparams(case))
    if case.algorithm in STATE:
        name, key = STATE[case.algorithm]
        if key in case.inputs:
            getattr(algorithm, name).copy_(case[key])
    logits = with_gradient(case["z"])
    loss = algorithm.loss(logits, logits_batch(logits, candidates))
    loss.backward()
    case.check(loss=loss, grad_z=logits.grad)
    case.check(**{key: f(case["z"], candidates) for key, f in extra.items()})


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


def updates_hparams(case: Case) -> dict[str, Any]:
    """Return the hyperparameters of a sequence of updates; the longest batch is the size if none is given."""
    longest = max(len(rows) for rows in case.inputs["batches"])
    optimiser = {key: case.inputs[key] for key in ("lr", "weight_decay") if key in case.inputs}
    return {"batch_size": case.inputs.get("batch_size", longest), **optimiser, **own_hparams(case)}


def check_updates(case: Case) -> None:
    """Check a sequence of updates of a linear model: losses, parameters and state."""
    batches = case.inputs["batches"]
    algorithm = build_linear_algorithm(case.algorithm, case, updates_hparams(case))
    losses = [algorithm.update(batch_of(case["X"], case.mask("S"), rows))["loss"] for rows in batches]
    case.check(losses=losses, W=algorithm.network.weight, b=algorithm.network.bias)
    if case.algorithm in STATE:
        name, key = STATE[case.algorithm]
        case.check(**{key: getattr(algorithm, name)})


def check_mae(case: Case) -> None:
    check_loss(case, per_example=lambda z, s: average_over_candidates(mae_of_classes(z), s))


def check_gce(case: Case) -> None:
    q = build_on_logits(case.algorithm, case, candidates_of(case), **own_hparams(case)).hparams["q"]
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
    period = case.inputs.get("W", len(window))
    algorithm = build_on_logits(
        "POP",
        case,
        candidates,
        batch_size=len(candidates),
        rollWindow=period,
        warm_up=0,
        theta=case.inputs["theta"],
        inc=case.inputs["inc"],
    )
    assert isinstance(algorithm, pop.POP)
    # The window's last epoch is the first multiple of the period after 0.
    for epoch, confidence in enumerate(window, start=period - len(window) + 1):
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
    batches = case.inputs["batches"]
    algorithm = build_linear_algorithm("POP", case, updates_hparams(case))
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
    labels = idgp.believed_label(case["d"], case.mask("S"))
    case.check(weights=weights, pseudo_label=labels.squeeze(-1))


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
    hparams = updates_hparams(case)
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


LINEAR_UPDATES = "X S W b batches"
LOSS = "loss grad_z"


def stateless_kinds(check: Adapter, further: str) -> list[Kind]:
    """Return the kinds of an algorithm that keeps no state: its loss, and updates."""
    return [
        Kind(check_updates, LINEAR_UPDATES, "losses W b"),
        Kind(check, "z S", f"{LOSS} {further}"),
    ]


def stateful_kinds(state: str, start: str) -> list[Kind]:
    """Return the kinds of an algorithm with state: its start, loss and revision, and updates."""
    return [
        Kind(check_initial_state, start, state),
        Kind(check_updates, LINEAR_UPDATES, f"losses W b {state}"),
        Kind(check_revision, "z S", state),
        Kind(check_loss, "z", LOSS),
    ]


KINDS: dict[str, list[Kind]] = {
    "PRODEN": stateful_kinds("c", "S"),
    "CAVL": [*stateful_kinds("c", "S"), Kind(check_activation_value, "z", "v")],
    "POP": [
        Kind(check_pop_loss, "z c", LOSS),
        Kind(check_pop_revision, "z C", "c"),
        Kind(check_pop_schedule, "n batch_size rollWindow warm_up updates", "records purifications"),
        Kind(check_pop_updates, LINEAR_UPDATES, "losses W b c C theta removed"),
        Kind(check_purification, "window C theta inc", "C c removed theta"),
    ],
    "ABS_MAE": stateless_kinds(check_mae, "per_example"),
    "ABS_GCE": stateless_kinds(check_gce, "per_example"),
    "EXP": stateless_kinds(check_exp, "per_example weights"),
    "MCL_GCE": stateless_kinds(
        check_mcl(lambda z: gce_of_classes(z, mcl.GCE_EXPONENT)), "per_example weights class_losses"
    ),
    "MCL_MSE": stateless_kinds(check_mcl(mse_of_classes), "per_example weights class_losses"),
    "CC": stateless_kinds(check_cc, "per_example"),
    "LWS": stateful_kinds("w", "n K"),
    "IDGP": [
        Kind(check_idgp_initial, "S", "d b"),
        Kind(check_idgp_classifier_warm_up, "z_f d", "loss grad_z_f"),
        Kind(check_idgp_generator_warm_up, "z_g b", "loss grad_z_g"),
        Kind(check_idgp_revision, "z_f z_g S", "d b"),
        Kind(check_idgp_weights, "z_g d S", "pseudo_label weights"),
        Kind(
            check_idgp_extreme,
            "z_f z_g d S",
            "pseudo_label weights L_f_given_g L_g_given_f grad_z_f grad_z_g",
        ),
        Kind(
            check_idgp_main,
            "z_f z_g d b S lambda",
            "L_F L_G grad_z_f grad_z_g L_f L_g L_f_given_g L_g_given_f KL_f KL_g weights_f weights_g",
        ),
        Kind(check_idgp_schedule, "n batch_size warm_up_epoch max_steps", "warm_up_updates ramp rows"),
        Kind(
            check_idgp_updates,
            "X S W_f b_f W_g b_g batches max_steps",
            "losses_F losses_G W_f b_f W_g b_g d b",
        ),
    ],
}


@pytest.mark.parametrize("case", list_cases(KINDS))
def test_vector(case: Case) -> None:
    run_adapter(KINDS[case.algorithm], case)


@pytest.mark.parametrize("case", [case for case in present_cases(KINDS) if case.is_extreme()], ids=repr)
def test_extreme_vector_in_float32(case: Case) -> None:
    run_adapter(KINDS[case.algorithm], case.in_float32())


def test_vectors_in_float32_are_there() -> None:
    """CAVL and POP have no extreme cases of their own: their parts are those of PRODEN."""
    extreme = {case.algorithm for case in present_cases(KINDS, OUR_VECTORS) if case.is_extreme()}
    assert extreme == set(KINDS) - {"CAVL", "POP"}
