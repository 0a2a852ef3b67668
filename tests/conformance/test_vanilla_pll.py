"""The eleven vanilla partial-label algorithms against their vectors, through the code that training uses."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plench.batch import Batch
from tests import formulas
from tests.conformance.given_outputs import build, own_hparams
from tests.conformance.harness import (
    OUR_VECTORS,
    Adapter,
    Case,
    Kind,
    linear,
    list_cases,
    present_cases,
    run_adapter,
    with_gradient,
)
from tests.probe import answer, at_step, batch_of, evaluate, loss_of, losses_of_rows, set_state

STATE = {"PRODEN": ("confidence", "c"), "CAVL": ("confidence", "c"), "LWS": ("weights", "w")}


def candidates_of(case: Case) -> Tensor:
    """Return the case's candidates, or all labels where the case has none."""
    return case.mask("S") if "S" in case.inputs else torch.ones_like(case["z"], dtype=torch.bool)


def build_on_logits(case: Case, candidates: Tensor, **hparams: Any) -> Any:
    """Build the case's algorithm with inputs that are logits: its network is the identity."""
    algorithm = build(case, candidates, **hparams)
    answer(algorithm, network=nn.Sequential())
    return algorithm


def build_linear(case: Case, max_steps: int = 1000, **models: tuple[str, str]) -> Any:
    """Build the case's algorithm with its networks replaced by the linear models of the case."""
    algorithm = build(
        case, case.mask("S"), width=case["X"].shape[1], max_steps=max_steps, **updates_hparams(case)
    )
    networks = {name: linear(case[weight], case[bias]) for name, (weight, bias) in models.items()}
    answer(algorithm, learns=True, **networks)
    return algorithm


def updates_hparams(case: Case) -> dict[str, Any]:
    """Return the hyperparameters of a sequence of updates; the longest batch is the size if none is given."""
    longest = max(len(rows) for rows in case.inputs["batches"])
    optimiser = {key: case.inputs[key] for key in ("lr", "weight_decay") if key in case.inputs}
    return {"batch_size": case.inputs.get("batch_size", longest), **optimiser, **own_hparams(case)}


def batch_in(case: Case, rows: Sequence[int]) -> Batch:
    """Return the batch of the listed examples, every view the same."""
    index = torch.tensor(rows)
    return batch_of(case.mask("S")[index], case["X"][index], index)


def check_loss(case: Case, **extra: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
    """Check the loss and its gradient, and further quantities of the algorithm on logits and candidates."""
    candidates = candidates_of(case)
    algorithm = build_on_logits(case, candidates, **own_hparams(case))
    if case.algorithm in STATE:
        name, key = STATE[case.algorithm]
        if key in case.inputs:
            set_state(algorithm, **{name: case[key]})
    losses, gradient = evaluate(algorithm, case["z"], batch_of(candidates, case["z"]))
    case.check(loss=losses["loss"], grad_z=gradient)
    wanted = {key: f for key, f in extra.items() if key in case.expected}
    case.check(**{key: f(algorithm, case["z"], candidates) for key, f in wanted.items()})


def check_revision(case: Case) -> None:
    """Check the state that `revise` leaves behind."""
    candidates = case.mask("S")
    algorithm = build_on_logits(case, candidates)
    algorithm.revise(case["z"], batch_of(candidates, case["z"]))
    name, key = STATE[case.algorithm]
    case.check(**{key: getattr(algorithm, name)})


def check_initial_state(case: Case) -> None:
    """Check the state that a new algorithm has."""
    shape = (case.inputs["n"], case.inputs["K"]) if "n" in case.inputs else case["S"].shape
    candidates = case.mask("S") if "S" in case.inputs else torch.ones(shape, dtype=torch.bool)
    name, key = STATE[case.algorithm]
    case.check(**{key: getattr(build(case, candidates), name)})


def check_updates(case: Case) -> None:
    """Check a sequence of updates of a linear model: losses, parameters and state."""
    algorithm = build_linear(case, network=("W", "b"))
    losses = [algorithm.update(batch_in(case, rows))["loss"] for rows in case.inputs["batches"]]
    case.check(losses=losses, W=algorithm.network.weight, b=algorithm.network.bias)
    if case.algorithm in STATE:
        name, key = STATE[case.algorithm]
        case.check(**{key: getattr(algorithm, name)})


def check_loss_of_rows(case: Case) -> None:
    check_loss(case, per_example=losses_of_rows)


def check_exp(case: Case) -> None:
    def weights(algorithm: Any, z: Tensor, s: Tensor) -> Tensor:
        """The loss of a row is w exp(−m), m the probability of its candidates: w is what is left of it."""
        mass = (z.softmax(-1) * s).sum(-1)
        return losses_of_rows(algorithm, z, s) * mass.exp()

    check_loss(case, per_example=losses_of_rows, weights=weights)


def losses_of_classes(algorithm: Any, z: Tensor, s: Tensor) -> Tensor:
    """Return MCL's loss of each class (B, K): the loss of a row of which it is the only candidate."""
    only = torch.eye(z.shape[1], dtype=torch.bool)
    return torch.stack([torch.stack([loss_of(algorithm, row[None], one[None]) for one in only]) for row in z])


def check_mcl(case: Case) -> None:
    def weights(algorithm: Any, z: Tensor, s: Tensor) -> Tensor:
        """The loss of a row is Σ_j a_j ℓ_j: K rows of logits with the same candidates give K equations."""
        size = z.shape[1]
        others = torch.linspace(-1, 1, size, dtype=z.dtype) + 2 * torch.eye(size, dtype=z.dtype)
        known = losses_of_classes(algorithm, others, s)
        sums = [losses_of_rows(algorithm, others, row.expand(size, -1)) for row in s]
        return torch.stack([torch.linalg.solve(known, total) for total in sums])

    check_loss(case, per_example=losses_of_rows, class_losses=losses_of_classes, weights=weights)


def check_activation_value(case: Case) -> None:
    case.check(v=formulas.cavl_activation_value(case["z"]))


def check_pop_loss(case: Case) -> None:
    candidates = candidates_of(case)
    algorithm = build_on_logits(case, candidates)
    set_state(algorithm, confidence=case["c"])
    losses, gradient = evaluate(algorithm, case["z"], batch_of(candidates, case["z"]))
    case.check(loss=losses["loss"], grad_z=gradient)


def check_pop_revision(case: Case) -> None:
    everything = torch.ones_like(case.mask("C"))
    algorithm = build_on_logits(case, everything, batch_size=1)  # one row an update: no epoch ends
    set_state(algorithm, purified=case.mask("C"))
    algorithm.revise(case["z"], batch_of(everything, case["z"]))
    case.check(c=algorithm.confidence)
    assert torch.equal(algorithm.purified, case.mask("C"))


def check_purification(case: Case) -> None:
    """Feed the epochs of the window to a POP whose schedule purifies at the last of them."""
    window, candidates = case["window"], case.mask("C")
    period = case.inputs.get("W", len(window))
    thresholds = {key: case.inputs[key] for key in ("theta", "inc")}
    algorithm = build_on_logits(
        case, candidates, batch_size=len(candidates), rollWindow=period, warm_up=0, **thresholds
    )
    # The window's last epoch is the first multiple of the period after 0; an epoch is one update here. Rows
    # of the window may give weight to labels that are no candidates any more: they are set before each end.
    for epoch, confidence in enumerate(window, start=period - len(window) + 1):
        algorithm.purified.fill_(True)
        at_step(algorithm, epoch)
        if epoch == period:
            set_state(algorithm, purified=candidates)
        set_state(algorithm, confidence=confidence)
        nobody = torch.empty(0, dtype=torch.int64)
        algorithm.revise(case["window"][0][nobody], batch_of(candidates[nobody], confidence[nobody], nobody))
    case.check(C=algorithm.purified, c=algorithm.confidence, removed=algorithm.removed, theta=algorithm.theta)
    assert not algorithm.window.any()


def check_pop_schedule(case: Case) -> None:
    """See after which updates the window moves, and θ, which grows a little at each purification.

    Confidences sum to 1, so that the window's rows sum to the number of epochs in it; it is emptied at its
    end. Half an epoch is put in first, so that emptying an empty window is seen as well.
    """
    size, updates = case.inputs["n"], case.inputs["updates"]
    schedule = {key: case.inputs[key] for key in ("batch_size", "rollWindow", "warm_up")}
    algorithm = build(case, torch.ones(size, 2, dtype=torch.bool), theta=1e-9, inc=1e-3, **schedule)
    batch = batch_of(torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=case.dtype))
    records, purifications = [], []
    for update in range(1, updates + 1):
        at_step(algorithm, update - 1)
        algorithm.window += 0.25
        before, theta = float(algorithm.window[0].sum()), float(algorithm.theta)
        algorithm.revise(torch.zeros(1, 2, dtype=case.dtype), batch)
        after = float(algorithm.window[0].sum())
        if after != before:
            records.append([update, round(after - 0.5 * (after > 0))])
        algorithm.window -= 0.25 * (after > 0)
        if float(algorithm.theta) != theta:
            purifications.append(update)
    case.check(records=records, purifications=purifications)


def check_pop_updates(case: Case) -> None:
    algorithm = build_linear(case, network=("W", "b"))
    removed_so_far, losses = [0], []
    for rows in case.inputs["batches"]:
        theta = float(algorithm.theta)
        logged = algorithm.update(batch_in(case, rows))
        losses.append(logged["loss"])
        if int(logged["removed"]) != removed_so_far[-1] or float(algorithm.theta) != theta:
            removed_so_far.append(int(logged["removed"]))
    case.check(
        losses=losses,
        W=algorithm.network.weight,
        b=algorithm.network.bias,
        c=algorithm.confidence,
        C=algorithm.purified,
        theta=algorithm.theta,
        removed=[after - before for before, after in pairwise(removed_so_far)],
    )


def evaluate_idgp(case: Case, step: int, **state: Tensor) -> tuple[dict[str, Tensor], Any]:
    """Return IDGP's losses and gradients at a step of a run with a warm-up of one update."""
    candidates = case.mask("S") if "S" in case.inputs else torch.ones_like(next(iter(state.values()))) != 0
    algorithm = build(case, candidates, warm_up_epoch=1, batch_size=len(candidates), max_steps=5 * 10**9)
    set_state(algorithm, **state)
    at_step(algorithm, step)
    nothing = torch.zeros(candidates.shape, dtype=case.dtype)
    outputs = tuple(case[key] if key in case.inputs else nothing for key in ("z_f", "z_g"))
    return evaluate(algorithm, outputs, batch_of(candidates, nothing))


def check_idgp_initial(case: Case) -> None:
    algorithm = build(case, case.mask("S"))
    case.check(d=algorithm.confidence, b=algorithm.addition)


def check_idgp_warm_up(case: Case) -> None:
    """Check the loss of the network whose logits are given."""
    is_classifier = "z_f" in case.inputs
    state = {"confidence": case["d"]} if is_classifier else {"addition": case["b"]}
    losses, gradients = evaluate_idgp(case, 0, **state)
    case.check(loss=losses["loss" if is_classifier else "generator_loss"])
    case.check(grad_z_f=gradients[0], grad_z_g=gradients[1])


def check_idgp_revision(case: Case) -> None:
    candidates = case.mask("S")
    algorithm = build(case, candidates)
    algorithm.revise((case["z_f"], case["z_g"]), batch_of(candidates, case["z_f"]))
    case.check(d=algorithm.confidence, b=algorithm.addition)


def check_idgp_weights(case: Case) -> None:
    weights = formulas.idgp_weights_from_generator(case["z_g"], case["d"], case.mask("S"))
    labels = formulas.idgp_pseudo_label(case["d"], case.mask("S"))
    case.check(weights=weights, pseudo_label=labels.squeeze(-1))


def check_idgp_main(case: Case) -> None:
    """Check at the step at which the weight of the divergences is the case's λ, and the terms one by one."""
    step = 1 + round(case.inputs["lambda"] * 10**9)
    losses, (of_f, of_g) = evaluate_idgp(case, step, confidence=case["d"], addition=case["b"])
    case.check(L_F=losses["loss"], grad_z_f=of_f, L_G=losses["generator_loss"], grad_z_g=of_g)
    candidates = case.mask("S")
    f, g = formulas.idgp_terms(case["z_f"], case["z_g"], case["d"], case["b"], candidates)
    case.check(L_f=f.fit, L_f_given_g=f.given_other, KL_f=f.divergence)
    case.check(L_g=g.fit, L_g_given_f=g.given_other, KL_g=g.divergence)
    case.check(
        weights_f=formulas.idgp_weights_from_generator(case["z_g"], case["d"], candidates),
        weights_g=formulas.masked_softmax(case["z_f"], candidates),
    )


def check_idgp_extreme(case: Case) -> None:
    check_idgp_weights(case)
    f, g = with_gradient(case["z_f"]), with_gradient(case["z_g"])
    of_f, of_g = formulas.idgp_terms(f, g, case["d"], torch.zeros_like(case["d"]), case.mask("S"))
    (of_f.given_other + of_g.given_other).backward()
    case.check(L_f_given_g=of_f.given_other, grad_z_f=f.grad)
    case.check(L_g_given_f=of_g.given_other, grad_z_g=g.grad)


def check_idgp_schedule(case: Case) -> None:
    everything = torch.ones(case.inputs["n"], 2, dtype=torch.bool)
    schedule = {key: case.inputs[key] for key in ("batch_size", "warm_up_epoch", "max_steps")}
    algorithm = build(case, everything, **schedule)
    (warm_up,) = algorithm.phases().values()
    updates = [int(row[0]) for row in case.expected["rows"]]
    weights = [formulas.idgp_lambda(t, warm_up, algorithm.ramp) for t in updates]
    rows = [[t, float(t < warm_up), weight] for t, weight in zip(updates, weights, strict=True)]
    case.check(warm_up_updates=warm_up, ramp=algorithm.ramp, rows=rows)


def check_idgp_updates(case: Case) -> None:
    algorithm = build_linear(case, case.inputs["max_steps"], network=("W_f", "b_f"), generator=("W_g", "b_g"))
    logs = [algorithm.update(batch_in(case, rows)) for rows in case.inputs["batches"]]
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
    "ABS_MAE": stateless_kinds(check_loss_of_rows, "per_example"),
    "ABS_GCE": stateless_kinds(check_loss_of_rows, "per_example"),
    "EXP": stateless_kinds(check_exp, "per_example weights"),
    "MCL_GCE": stateless_kinds(check_mcl, "per_example weights class_losses"),
    "MCL_MSE": stateless_kinds(check_mcl, "per_example weights class_losses"),
    "CC": stateless_kinds(check_loss_of_rows, "per_example"),
    "LWS": stateful_kinds("w", "n K"),
    "IDGP": [
        Kind(check_idgp_initial, "S", "d b"),
        Kind(check_idgp_warm_up, "z_f d", "loss grad_z_f"),
        Kind(check_idgp_warm_up, "z_g b", "loss grad_z_g"),
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
