"""VALEN, PiCO, ABLE, CRDPLL and DIRK against their vectors, through the code that training uses."""

import math

import pytest
import torch
from torch import Tensor, nn

from tests import formulas
from tests.conformance.given_outputs import (
    GivenOutputs,
    InTurn,
    build,
    distinct_views,
    own_hparams,
    precedes,
    unit,
)
from tests.conformance.harness import (
    OUR_VECTORS,
    Case,
    Kind,
    linear,
    list_cases,
    present_cases,
    run_adapter,
    with_gradient,
)
from tests.probe import GivenInputs, answer, at_step, batch_of, evaluate, get_state, set_state

NEVER = 10**9


# VALEN ----------------------------------------------------------------------------------------------------


def check_valen_warm_up(case: Case) -> None:
    candidates = case["o"] > 0
    algorithm = build(case, candidates)
    logits = with_gradient(case["logits"])
    answer(algorithm, network=InTurn(logits))
    set_state(algorithm, targets=case["o"])
    loss = algorithm.update(batch_of(candidates, {"weak": case["logits"]}))["loss"]
    case.check(loss=loss, new_o=algorithm.targets, grad_logits=logits.grad)


def check_valen_divergence(case: Case) -> None:
    logits = with_gradient(case["logits"])
    loss = formulas.valen_kl(logits)
    loss.backward()
    case.check(loss=loss, grad_logits=logits.grad, alpha=formulas.valen_alpha(case["logits"]))


def check_valen_concentration(case: Case) -> None:
    logits = with_gradient(case["logits"])
    concentration = formulas.valen_concentration(logits, case.mask("candidates"))
    (case["w"] * concentration).sum().backward()
    case.check(concentration=concentration, grad_logits=logits.grad)


def check_valen_graph(case: Case) -> None:
    neighbours = formulas.valen_neighbours(case["features"], case.inputs["k"])
    case.check(neighbour=neighbours[:, 0], neighbours_sorted=neighbours.sort(-1).values)
    if "batch" in case.inputs:
        index = torch.tensor(case.inputs["batch"])
        case.check(A_batch=formulas.valen_graph_block(neighbours[index], index))


def check_valen_reconstruction(case: Case) -> None:
    d, decoded = with_gradient(case["d"]), with_gradient(case["x_hat"])
    candidates, block = case.mask("candidates"), case["A_batch"]
    terms = formulas.valen_reconstruction(d, case["x"], decoded, candidates, block)
    sum(terms).backward()
    case.check(L_recx=terms.inputs, L_recy=terms.candidates, L_recA=terms.graph)
    case.check(grad_d=d.grad, grad_x_hat=decoded.grad)


def neighbours_of(block: Tensor) -> Tensor:
    """Return neighbours (B, k) whose graph has this block; a place without one names an example outside."""
    size = len(block)
    near = (block > 0) & ~torch.eye(size, dtype=torch.bool)
    k = round(1 / float(block[0, 0])) - 1
    rows = [[j for j in range(size) if near[i, j]] for i in range(size)]
    return torch.tensor([row + [size] * (k - len(row)) for row in rows])


def check_valen_main_step(case: Case) -> None:
    """Make a step with the sample of the case: its outputs are given, its loss and its revision follow."""
    candidates, neighbours = case.mask("candidates"), neighbours_of(case["A_batch"])
    extra = torch.ones_like(candidates[:1])  # an example outside the batch
    everyone = torch.cat([candidates, extra.expand(neighbours.shape[1], -1)])
    algorithm = build(case, everyone, warm_up=0, knn=neighbours.shape[1], **own_hparams(case))
    at_step(algorithm, 1)
    answer(algorithm, decoder=InTurn(case["x_hat"]))
    rows = torch.arange(len(candidates))
    algorithm.write_rows("targets", rows, case["o"])
    algorithm.write_rows("sampled_targets", rows, case["d_array"])
    algorithm.write_rows("neighbours", rows, neighbours)
    batch = batch_of(candidates, {"weak": case["x"]})
    outputs = case["logits_net"], case["logits_enc"], case["d"]
    losses, (of_network, of_encoder, _) = evaluate(algorithm, outputs, batch)
    algorithm.revise(outputs, batch)
    case.check(total=losses["loss"], L_rec=losses["loss_rec"], L_alpha=losses["loss_alpha"])
    case.check(L_d=losses["loss_enc"], L_o=losses["loss_net"])
    case.check(new_d=algorithm.rows("sampled_targets", rows), new_o=algorithm.rows("targets", rows))
    case.check(grad_logits_net=of_network, grad_logits_enc=of_encoder)


def check_valen_decoder(case: Case) -> None:
    decoder = formulas.valen_decoder(case["d"].shape[1], len(case["b1"]))
    assert all((layer.bias == 0.01).all() for layer in decoder if isinstance(layer, nn.Linear))
    decoder[0], decoder[2] = linear(case["W1"], case["b1"]), linear(case["W2"], case["b2"])
    case.check(x_hat=decoder.to(case.dtype)(case["d"]))


def check_valen_phases(case: Case) -> None:
    """Run the updates and see which kind each is: only in the main phase do they log a reconstruction."""
    candidates = torch.ones(6, 3, dtype=torch.bool)
    steps, warm_up = case.inputs["t"], case.inputs["warm_up"]
    algorithm = build(case, candidates, warm_up=warm_up, lr=1e-6)
    features = torch.arange(12, dtype=case.dtype).reshape(6, 2)
    algorithm.attach_inputs(GivenInputs(features))
    batch = batch_of(candidates, {"weak": features})
    phases = []
    for step in range(max(steps) + 1):
        assert algorithm.neighbours.any() == (step > warm_up), "the graph is built before the first main step"
        phases.append(int("loss_rec" in algorithm.update(batch)))
    case.check(phase=[phases[step] for step in steps])


# PiCO -----------------------------------------------------------------------------------------------------


def check_pico_step(case: Case) -> None:
    candidates = case.mask("candidates")
    own = own_hparams(case)
    own["conf_ema_range"] = "{0},{0}".format(case.inputs["phi"])
    warm_up = precedes(case, "prot_start")
    if warm_up is None:  # only afterwards does the confidence move
        warm_up = case.inputs["confidence"] == case.expected.get("confidence")
    own["prot_start"] = NEVER if warm_up else 0
    length, width = case["queue"].shape
    algorithm = build(case, candidates, feat_dim=width, moco_queue=length, **own)
    at_step(algorithm, 1)
    logits, raw = with_gradient(case["logits"]), with_gradient(case["feature_raw"])
    keys = GivenOutputs(case["logits"], unit(case["key_feature_raw"]), weight=case["key_param"])
    answer(algorithm, network=GivenOutputs(logits, unit(raw), weight=case["query_param"]), key_network=keys)
    set_state(algorithm, prototypes=case["prototypes"], confidence=case["confidence"])
    set_state(algorithm, queue__features=case["queue"], queue__labels=case["queue_label"])
    set_state(algorithm, queue__position=case["queue_ptr"])
    logged = algorithm.update(batch_of(candidates, distinct_views(case, len(candidates))))
    case.check(cls_loss=logged["loss_cls"], cont_loss=logged["loss_cont"], total=logged["loss"])
    case.check(grad_logits=logits.grad, grad_feature_raw=raw.grad, confidence=algorithm.confidence)
    case.check(prototypes=algorithm.prototypes, key_param=keys.weight)
    labels = get_state(algorithm, "queue__labels")
    case.check(queue=get_state(algorithm, "queue__features"), queue_label=labels)
    case.check(queue_ptr=get_state(algorithm, "queue__position"))
    written = (case.inputs["queue_ptr"] + torch.arange(len(candidates))) % length
    scores = (unit(case["feature_raw"]) @ case["prototypes"].T).softmax(-1)
    case.check(pseudo_label=labels[written], proto_score=scores)


def check_prototypes(case: Case) -> None:
    labels = torch.tensor(case.inputs["label"])
    moved = formulas.update_prototypes(case["prototypes"], case["feature"], labels, case.inputs["proto_m"])
    case.check(prototypes=moved)


def check_momentum_of_confidence(case: Case) -> None:
    ends = tuple(case.inputs["conf_ema_range"])
    case.check(phi=[formulas.confidence_momentum(t, case.inputs["T"], ends) for t in case.inputs["t"]])


def check_queue(case: Case) -> None:
    queue = formulas.RingQueue(slots=torch.tensor(case.inputs["slots"]))
    queue["position"].fill_(case.inputs["ptr"])
    queue.push(slots=torch.tensor(case.inputs["keys"]))
    case.check(slots=queue["slots"], ptr=queue["position"])


def check_pseudo_label(case: Case) -> None:
    case.check(pseudo_label=formulas.best_candidate(case["logits"], case.mask("candidates")))


# ABLE -----------------------------------------------------------------------------------------------------


def check_able_step(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build(case, candidates, feat_dim=case["feature_weak_raw"].shape[1], **own_hparams(case))
    logits = with_gradient(case["logits_weak"])
    weak, strong = with_gradient(case["feature_weak_raw"]), with_gradient(case["feature_strong_raw"])
    # The strong view's logits come from the same pass and must not matter.
    both = torch.cat([logits, torch.full_like(logits, 3.0)])
    answer(algorithm, network=GivenOutputs(both, unit(torch.cat([weak, strong]))))
    set_state(algorithm, confidence=case["confidence"])
    logged = algorithm.update(batch_of(candidates, distinct_views(case, len(candidates))))
    case.check(cls_loss=logged["loss_cls"], con_loss=logged["loss_cont"], total=logged["loss"])
    case.check(grad_logits_weak=logits.grad, new_confidence=algorithm.confidence)
    case.check(grad_feature_weak_raw=weak.grad, grad_feature_strong_raw=strong.grad)
    labels = formulas.best_candidate(case["logits_weak"], candidates)
    weights = formulas.able_positive_weights(case["confidence"], candidates, labels)
    case.check(predicted_label=labels, positive_weight=weights)


# CRDPLL ---------------------------------------------------------------------------------------------------


def check_crdpll_loss(case: Case) -> None:
    """Check loss and gradient at a step whose weight is the case's λ; with two views by an update too."""
    candidates, logits = case.mask("candidates"), case["logits"]
    steps = 10**9
    algorithm = build(case, candidates, max_steps=2 * steps)
    at_step(algorithm, round(case.inputs["lambda"] * steps))
    set_state(algorithm, confidence=case["confidence"])
    losses, gradient = evaluate(algorithm, logits, batch_of(candidates, logits))
    case.check(total=losses["loss"], consistency=losses["loss_cons"], supervised=losses["loss_sup"])
    case.check(grad_logits=gradient)
    if len(logits) == 2:
        answer(algorithm, network=InTurn(*logits.clone().requires_grad_()))
        logged = algorithm.update(batch_of(candidates, distinct_views(case, len(candidates))))
        case.check(total=logged["loss"])
        torch.testing.assert_close(algorithm.confidence, formulas.agree_on_target(logits, candidates))


def check_crdpll_revision(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build(case, candidates)
    algorithm.revise(case["logits"], batch_of(candidates, case["logits"]))
    case.check(confidence=algorithm.confidence)


def check_crdpll_schedule(case: Case) -> None:
    if "t" in case.inputs:
        steps, total = case.inputs["t"], case.inputs["T"]
    else:
        steps, total = case.inputs["epoch"], case.inputs["epochs"]
    case.check(**{"lambda": [formulas.crdpll_lambda(step, total) for step in steps]})


# DIRK -----------------------------------------------------------------------------------------------------


def check_dirk_rectified(case: Case) -> None:
    rectified, share = formulas.dirk_rectified(case["logits"], case.mask("candidates"))
    case.check(rectified=rectified, a=share)


def check_dirk_teaching(case: Case) -> None:
    logits = with_gradient(case["logits"])
    loss = formulas.soft_cross_entropy(logits, case["target"])
    loss.backward()
    case.check(loss=loss, grad_logits=logits.grad)


def check_dirk_step(case: Case) -> None:
    candidates = case.mask("candidates")
    own = own_hparams(case)
    refined = "positive_weight" in case.expected or precedes(case, "prot_start") is False
    own["prot_start"] = 0 if refined else NEVER
    length, width = case["queue_feature"].shape
    algorithm = build(case, candidates, feat_dim=width, moco_queue=length, **own)
    teacher = GivenOutputs(case["teacher_logits_distill"], unit(case["teacher_feature_weak_raw"]))
    logits = with_gradient(case["student_logits_distill"])
    raw = with_gradient(case["student_feature_strong_raw"])
    answer(algorithm, network=GivenOutputs(logits, unit(raw)), teacher=teacher)
    set_state(algorithm, queue__features=case["queue_feature"], queue__distributions=case["queue_dist"])
    set_state(algorithm, queue__candidates=case["queue_candidates"], queue__position=case["queue_ptr"])
    if "positive_weight" in case.expected:
        check_dirk_weights(case)
    logged = algorithm.update(batch_of(candidates, distinct_views(case, len(candidates))))
    case.check(teach_loss=logged["loss_teach"], cont_loss=logged["loss_cont"], total=logged["loss"])
    case.check(grad_logits=logits.grad, grad_feature_raw=raw.grad)
    queue = algorithm.queue
    case.check(queue_feature=queue["features"], queue_dist=queue["distributions"])
    case.check(queue_candidates=queue["candidates"], queue_ptr=queue["position"])
    written = (case.inputs["queue_ptr"] + torch.arange(len(candidates))) % length
    case.check(rectified=queue["distributions"][written])


def check_dirk_weights(case: Case) -> None:
    """Check the weights of the positives among [queries; keys; queue], the own query aside."""
    candidates, temperature = case["candidates"], case.inputs["dist_temperature"]
    rectified, _ = formulas.dirk_rectified(case["teacher_logits_distill"], candidates != 0)
    batch, queue = (rectified, candidates), (case["queue_dist"], case["queue_candidates"])
    within = formulas.dirk_affinities(*batch, *batch, temperature)
    beyond = formulas.dirk_affinities(*batch, *queue, temperature)
    affinities = torch.cat([within.clone().fill_diagonal_(0), within, beyond], dim=-1)
    case.check(positive_weight=affinities / affinities.sum(-1, keepdim=True))


def check_dirk_teacher(case: Case) -> None:
    teacher, student = (nn.ParameterList([case[name]]) for name in ("teacher", "student"))
    formulas.follow(teacher, student, case.inputs["momentum"])
    case.check(teacher=teacher[0])


CONFIDENCE_LOSS = "total consistency supervised grad_logits"
KINDS: dict[str, list[Kind]] = {
    "VALEN": [
        Kind(check_valen_warm_up, "logits o", "loss new_o grad_logits"),
        Kind(check_valen_divergence, "logits", "alpha loss grad_logits"),
        Kind(check_valen_concentration, "logits candidates w", "concentration grad_logits"),
        Kind(check_valen_graph, "features k", "neighbour neighbours_sorted A_batch"),
        Kind(
            check_valen_reconstruction,
            "d x x_hat candidates A_batch",
            "L_recx L_recy L_recA grad_d grad_x_hat",
        ),
        Kind(
            check_valen_main_step,
            "logits_net logits_enc o d_array d x x_hat candidates A_batch",
            "total L_rec L_alpha L_d L_o new_d new_o grad_logits_net grad_logits_enc",
        ),
        Kind(check_valen_decoder, "d W1 b1 W2 b2", "x_hat"),
        Kind(check_valen_phases, "t warm_up", "phase"),
    ],
    "PiCO": [
        Kind(
            check_pico_step,
            "logits feature_raw key_feature_raw candidates prototypes queue queue_label queue_ptr confidence "
            "query_param key_param phi",
            "pseudo_label proto_score prototypes key_param queue queue_label queue_ptr confidence cls_loss "
            "cont_loss total grad_logits grad_feature_raw",
        ),
        Kind(check_prototypes, "prototypes feature label proto_m", "prototypes"),
        Kind(check_momentum_of_confidence, "t T conf_ema_range", "phi"),
        Kind(check_queue, "slots ptr keys", "slots ptr"),
        Kind(check_pseudo_label, "logits candidates", "pseudo_label"),
    ],
    "ABLE": [
        Kind(
            check_able_step,
            "logits_weak feature_weak_raw feature_strong_raw confidence candidates",
            "predicted_label positive_weight cls_loss con_loss total new_confidence grad_*",
        ),
    ],
    "CRDPLL": [
        Kind(check_crdpll_loss, "logits confidence candidates lambda", CONFIDENCE_LOSS),
        Kind(check_crdpll_revision, "logits candidates", "confidence"),
        Kind(check_crdpll_schedule, "t T", "lambda"),
        Kind(check_crdpll_schedule, "epoch epochs", "lambda"),
    ],
    "DIRK": [
        Kind(check_dirk_rectified, "logits candidates", "rectified a"),
        Kind(check_dirk_teaching, "logits target", "loss grad_logits"),
        Kind(
            check_dirk_step,
            "teacher_logits_distill teacher_feature_weak_raw student_logits_distill "
            "student_feature_strong_raw candidates queue_feature queue_dist queue_candidates queue_ptr",
            "rectified teach_loss cont_loss total grad_logits grad_feature_raw queue_* positive_weight",
        ),
        Kind(check_dirk_teacher, "teacher student momentum", "teacher"),
    ],
}


@pytest.mark.parametrize("case", list_cases(KINDS))
def test_vector(case: Case) -> None:
    run_adapter(KINDS[case.algorithm], case)


def saturates(case: Case) -> bool:
    """Say whether a non-candidate of CRDPLL's weak view has probability 1 in single precision."""
    if case.algorithm != "CRDPLL" or "confidence" not in case.inputs:
        return False
    probs = case.in_float32()["logits"][0].softmax(-1)
    return bool(((probs == 1) & ~case.mask("candidates")).any())


# Single precision is held to its tolerance on our own vectors, whose choices are no close calls.
OURS = present_cases(KINDS, OUR_VECTORS)


@pytest.mark.parametrize("case", [case for case in OURS if not saturates(case)], ids=repr)
def test_vector_in_float32(case: Case) -> None:
    run_adapter(KINDS[case.algorithm], case.in_float32())


def test_saturated_probability_in_float32() -> None:
    """There 1.0000001 is 1 + 2⁻²³, so a non-candidate at p = 1 costs 23 log 2 instead of 7 log 10."""
    (case,) = (case.in_float32() for case in OURS if saturates(case))
    candidates = case.mask("candidates")
    algorithm = build(case, candidates)
    set_state(algorithm, confidence=case["confidence"])
    losses, gradient = evaluate(algorithm, case["logits"], batch_of(candidates, case["logits"]))
    assert losses["loss_sup"].item() == pytest.approx(23 * math.log(2) / len(candidates), rel=1e-4)
    assert gradient.isfinite().all()
