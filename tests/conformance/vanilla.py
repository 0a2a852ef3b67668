"""Adapters of the vanilla algorithms: for candidate labels and for complementary labels."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from tests import formulas
from tests.conformance.harness import (
    Case,
    batch_in,
    build,
    build_linear,
    kind,
    linear,
    make_updates,
    own_hparams,
    with_gradient,
)
from tests.probe import answer, at_step, batch_of, evaluate, loss_of, losses_of_rows, set_state

# Where algorithms keep what the vectors call c or w.
STATE = dict.fromkeys(("PRODEN", "CAVL", "POP"), ("confidence", "c")) | {"LWS": ("weights", "w")}


def candidates_of(case: Case) -> Tensor:
    """Return the case's candidates, or all labels where the case lists none."""
    return case.mask("S") if "S" in case.inputs else torch.ones_like(case["z"], dtype=torch.bool)


def build_on_logits(case: Case, candidates: Tensor, **hparams: Any) -> Any:
    """Build the case's algorithm with inputs that are logits: its network is the identity."""
    algorithm = build(case, candidates, **hparams)
    answer(algorithm, network=nn.Sequential())
    return algorithm


@kind("PRODEN CAVL LWS POP", "z", "loss grad_z")
def check_loss(case: Case, **extra: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
    """Check the loss and its gradient, and further quantities of the algorithm on logits and candidates."""
    candidates = candidates_of(case)
    algorithm = build_on_logits(case, candidates, **own_hparams(case))
    name, key = STATE.get(case.algorithm, ("", ""))
    if key in case.inputs:
        set_state(algorithm, **{name: case[key]})
    losses, gradient = evaluate(algorithm, case["z"], batch_of(candidates, case["z"]))
    case.check(loss=losses["loss"], grad_z=gradient)
    wanted = {key: f for key, f in extra.items() if key in case.expected}
    case.check(**{key: f(algorithm, case["z"], candidates) for key, f in wanted.items()})


def check_state(case: Case, algorithm: Any) -> None:
    """Check the algorithm's state, where it has one that the vectors list."""
    if case.algorithm in STATE:
        name, key = STATE[case.algorithm]
        case.check(**{key: getattr(algorithm, name)})


@kind("PRODEN CAVL LWS", "z S", "c w")
def check_revision(case: Case) -> None:
    """Check the state after `revise`."""
    candidates = case.mask("S")
    algorithm = build_on_logits(case, candidates)
    algorithm.revise(case["z"], batch_of(candidates, case["z"]))
    check_state(case, algorithm)


@kind("PRODEN CAVL", "S", "c")
@kind("LWS", "n K", "w")
def check_initial_state(case: Case) -> None:
    everything = torch.ones(case.inputs.get("n", 0), case.inputs.get("K", 0), dtype=torch.bool)
    check_state(case, build(case, case.mask("S") if "S" in case.inputs else everything))


@kind(
    "PRODEN CAVL LWS ABS_MAE ABS_GCE EXP MCL_GCE MCL_MSE CC GFWS SCARCE", "X S W b batches", "losses W b c w"
)
def check_updates(case: Case) -> None:
    """Check a sequence of updates of a linear model: losses, parameters and state."""
    algorithm = build_linear(case)
    losses = [logged["loss"] for logged in make_updates(case, algorithm)]
    case.check(losses=losses, W=algorithm.network.weight, b=algorithm.network.bias)
    check_state(case, algorithm)


@kind("ABS_MAE ABS_GCE CC", "z S", "loss grad_z per_example")
def check_loss_of_rows(case: Case) -> None:
    check_loss(case, per_example=losses_of_rows)


@kind("EXP", "z S", "loss grad_z per_example weights")
def check_exp(case: Case) -> None:
    def weights(algorithm: Any, z: Tensor, s: Tensor) -> Tensor:
        """The loss of a row is w exp(−m), m the probability of its candidates: w is what is left of it."""
        mass = (z.softmax(-1) * s).sum(-1)
        return losses_of_rows(algorithm, z, s) * mass.exp()

    check_loss(case, per_example=losses_of_rows, weights=weights)


def losses_of_classes(algorithm: Any, z: Tensor, sets: Tensor | None = None) -> Tensor:
    """Return the loss of each row with each of several sets, by default the K sets of one candidate."""
    sets = torch.eye(z.shape[1], dtype=torch.bool) if sets is None else sets
    return torch.stack([torch.stack([loss_of(algorithm, row[None], one[None]) for one in sets]) for row in z])


@kind("MCL_GCE MCL_MSE", "z S", "loss grad_z per_example weights class_losses")
def check_mcl(case: Case) -> None:
    def weights(algorithm: Any, z: Tensor, s: Tensor) -> Tensor:
        """The loss of a row is Σ_j a_j ℓ_j: K rows of logits with the same candidates give K equations."""
        size = z.shape[1]
        others = torch.linspace(-1, 1, size, dtype=z.dtype) + 2 * torch.eye(size, dtype=z.dtype)
        known = losses_of_classes(algorithm, others)
        sums = [losses_of_rows(algorithm, others, row.expand(size, -1)) for row in s]
        return torch.stack([torch.linalg.solve(known, total) for total in sums])

    def class_losses(algorithm: Any, z: Tensor, s: Tensor) -> Tensor:
        return losses_of_classes(algorithm, z)

    check_loss(case, per_example=losses_of_rows, class_losses=class_losses, weights=weights)


@kind("CAVL", "z", "v")
def check_activation_value(case: Case) -> None:
    case.check(v=formulas.cavl_activation_value(case["z"]))


@kind("POP", "z C", "c")
def check_pop_revision(case: Case) -> None:
    everything = torch.ones_like(case.mask("C"))
    algorithm = build_on_logits(case, everything, batch_size=1)  # one row an update: no epoch ends
    set_state(algorithm, purified=case.mask("C"))
    algorithm.revise(case["z"], batch_of(everything, case["z"]))
    case.check(c=algorithm.confidence)
    assert torch.equal(algorithm.purified, case.mask("C"))


@kind("POP", "window C theta inc", "C c removed theta")
def check_purification(case: Case) -> None:
    """Feed the epochs of the window to a POP whose schedule purifies at the last of them."""
    window, candidates = case["window"], case.mask("C")
    period = case.inputs.get("W", len(window))
    settings = {"batch_size": len(candidates), "rollWindow": period, "warm_up": 0}
    algorithm = build_on_logits(case, candidates, **settings, **case.pick("theta", "inc"))
    # The window's last epoch is the first multiple of the period after 0; an epoch is one update here. Rows
    # of the window may give weight to labels that are not candidates any more: they are set before each end.
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


@kind("POP", "n batch_size rollWindow warm_up updates", "records purifications")
def check_pop_schedule(case: Case) -> None:
    """See after which updates the window moves, and θ, which grows a little at each purification.

    Confidences sum to 1, so that the window's rows sum to the number of epochs in it; it is emptied at its
    end. Half an epoch is put in first, so that emptying an empty window is seen as well.
    """
    size, updates = case.inputs["n"], case.inputs["updates"]
    schedule = case.pick("batch_size", "rollWindow", "warm_up")
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


@kind("POP", "X S W b batches", "losses W b c C theta removed")
def check_pop_updates(case: Case) -> None:
    algorithm = build_linear(case)
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


@kind("IDGP", "S", "d b")
def check_idgp_initial(case: Case) -> None:
    algorithm = build(case, case.mask("S"))
    case.check(d=algorithm.confidence, b=algorithm.addition)


@kind("IDGP", "z_f d", "loss grad_z_f")
@kind("IDGP", "z_g b", "loss grad_z_g")
def check_idgp_warm_up(case: Case) -> None:
    """Check the loss of the network whose logits are given."""
    is_classifier = "z_f" in case.inputs
    state = {"confidence": case["d"]} if is_classifier else {"addition": case["b"]}
    losses, gradients = evaluate_idgp(case, 0, **state)
    case.check(loss=losses["loss" if is_classifier else "generator_loss"])
    case.check(grad_z_f=gradients[0], grad_z_g=gradients[1])


@kind("IDGP", "z_f z_g S", "d b")
def check_idgp_revision(case: Case) -> None:
    candidates = case.mask("S")
    algorithm = build(case, candidates)
    algorithm.revise((case["z_f"], case["z_g"]), batch_of(candidates, case["z_f"]))
    case.check(d=algorithm.confidence, b=algorithm.addition)


@kind("IDGP", "z_g d S", "pseudo_label weights")
def check_idgp_weights(case: Case) -> None:
    weights = formulas.idgp_weights_from_generator(case["z_g"], case["d"], case.mask("S"))
    labels = formulas.idgp_pseudo_label(case["d"], case.mask("S"))
    case.check(weights=weights, pseudo_label=labels.squeeze(-1))


@kind(
    "IDGP",
    "z_f z_g d b S lambda",
    "L_F L_G grad_z_f grad_z_g L_f L_g L_f_given_g L_g_given_f KL_f KL_g weights_f weights_g",
)
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


@kind("IDGP", "z_f z_g d S", "pseudo_label weights L_f_given_g L_g_given_f grad_z_f grad_z_g")
def check_idgp_extreme(case: Case) -> None:
    check_idgp_weights(case)
    f, g = with_gradient(case["z_f"]), with_gradient(case["z_g"])
    of_f, of_g = formulas.idgp_terms(f, g, case["d"], torch.zeros_like(case["d"]), case.mask("S"))
    (of_f.given_other + of_g.given_other).backward()
    case.check(L_f_given_g=of_f.given_other, grad_z_f=f.grad)
    case.check(L_g_given_f=of_g.given_other, grad_z_g=g.grad)


@kind("IDGP", "n batch_size warm_up_epoch max_steps", "warm_up_updates ramp rows")
def check_idgp_schedule(case: Case) -> None:
    everything = torch.ones(case.inputs["n"], 2, dtype=torch.bool)
    algorithm = build(case, everything, **case.pick("batch_size", "warm_up_epoch", "max_steps"))
    (warm_up,) = algorithm.phases().values()
    updates = [int(row[0]) for row in case.expected["rows"]]
    weights = [formulas.idgp_lambda(t, warm_up, algorithm.ramp) for t in updates]
    rows = [[t, float(t < warm_up), weight] for t, weight in zip(updates, weights, strict=True)]
    case.check(warm_up_updates=warm_up, ramp=algorithm.ramp, rows=rows)


@kind("IDGP", "X S W_f b_f W_g b_g batches max_steps", "losses_F losses_G W_f b_f W_g b_g d b")
def check_idgp_updates(case: Case) -> None:
    f, g = linear(case["W_f"], case["b_f"]), linear(case["W_g"], case["b_g"])
    algorithm = build_linear(case, case.inputs["max_steps"], network=f, generator=g)
    logs = make_updates(case, algorithm)
    case.check(
        losses_F=[log["loss"] for log in logs],
        losses_G=[log["generator_loss"] for log in logs],
        d=algorithm.confidence,
        b=algorithm.addition,
    )
    case.check(W_f=f.weight, b_f=f.bias, W_g=g.weight, b_g=g.bias)


# Complementary labels ----------------------------------------------------------------------------------


@kind("PC Forward SCL_EXP SCL_NL L_W OP_W", "logits candidates", "loss grad_logits num_pairs per_label_loss")
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
        others = ~torch.eye(logits.shape[1], dtype=torch.bool)  # one label alone is complementary
        case.check(per_label_loss=losses_of_classes(build(case, everything), logits, others))


@kind("NN", "logits candidates prior beta", "class_risks pair_counts loss grad_logits")
@kind(
    "GA",
    "logits candidates prior",
    "class_risks pair_counts risk ascent minimised_objective grad_logits_given_to_optimiser",
)
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


@kind("GA", "W X1 candidates prior lr weight_decay", "ascent W_after_step_*")
def check_ga_steps(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build(case, candidates, **case.pick("lr", "weight_decay"))
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


@kind("NN GA SCARCE", "candidates_train", "prior")
def check_prior(case: Case) -> None:
    case.check(prior=build(case, case.mask("candidates_train")).prior)
