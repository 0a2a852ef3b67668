"""VALEN, PiCO, ABLE, CRDPLL and DIRK against their vectors, through the code that training uses."""

import math
from unittest.mock import patch

import pytest
import torch
from torch import nn

from plench.algorithms import able, crdpll, dirk, valen
from plench.algorithms.parts.consistency import agree_on_target
from plench.algorithms.parts.momentum import follow
from plench.algorithms.parts.prototypes import update_prototypes
from plench.algorithms.parts.pseudo_labels import best_candidate
from plench.algorithms.parts.queue import RingQueue
from plench.algorithms.parts.schedule import confidence_momentum
from plench.algorithms.parts.targets import soft_cross_entropy
from tests.conformance.given_outputs import (
    GivenOutputs,
    InTurn,
    batch_with,
    build,
    distinct_views,
    fill,
    idle_optimizer,
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

NEVER = 10**9


# VALEN ----------------------------------------------------------------------------------------------------


def check_valen_warm_up(case: Case) -> None:
    candidates = case["o"] > 0
    algorithm = build(case, candidates)
    algorithm.warm_up_optimizer = idle_optimizer()
    logits = with_gradient(case["logits"])
    algorithm.network = InTurn(logits)
    algorithm.targets.copy_(case["o"])
    loss = algorithm.update(batch_with({"weak": case["logits"]}, candidates))["loss"]
    case.check(loss=loss, new_o=algorithm.targets, grad_logits=logits.grad)


def check_valen_divergence(case: Case) -> None:
    logits = with_gradient(case["logits"])
    loss = valen.divergence_from_uniform(logits)
    loss.backward()
    case.check(loss=loss, grad_logits=logits.grad, alpha=valen.clamped_concentration(case["logits"]))


def check_valen_concentration(case: Case) -> None:
    logits = with_gradient(case["logits"])
    concentration = valen.concentrate(logits, case.mask("candidates"))
    (case["w"] * concentration).sum().backward()
    case.check(concentration=concentration, grad_logits=logits.grad)


def check_valen_graph(case: Case) -> None:
    neighbours = valen.find_neighbours(case["features"], case.inputs["k"])
    case.check(neighbour=neighbours[:, 0], neighbours_sorted=neighbours.sort(-1).values)
    if "batch" in case.inputs:
        case.check(A_batch=valen.graph_block(neighbours, torch.tensor(case.inputs["batch"])))


def check_valen_reconstruction(case: Case) -> None:
    d, decoded = with_gradient(case["d"]), with_gradient(case["x_hat"])
    terms = valen.reconstruct(d, case["x"], decoded, case.mask("candidates"), case["A_batch"])
    sum(terms).backward()
    case.check(L_recx=terms.inputs, L_recy=terms.candidates, L_recA=terms.graph)
    case.check(grad_d=d.grad, grad_x_hat=decoded.grad)


def check_valen_main_step(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build(case, candidates, warm_up=0, **own_hparams(case))
    algorithm.steps_done = 1
    of_network, of_encoder = with_gradient(case["logits_net"]), with_gradient(case["logits_enc"])
    algorithm.network, algorithm.encoder = InTurn(of_network), InTurn(of_encoder)
    algorithm.decoder = InTurn(case["x_hat"])
    algorithm.targets.copy_(case["o"])
    algorithm.sampled_targets.copy_(case["d_array"])
    with (
        patch.object(valen, "draw_distribution", lambda concentration: case["d"]),
        patch.object(valen, "graph_block", lambda neighbours, index: case["A_batch"]),
    ):
        logged = algorithm.update(batch_with({"weak": case["x"]}, candidates))
    case.check(total=logged["loss"], L_rec=logged["loss_rec"], L_alpha=logged["loss_alpha"])
    case.check(L_d=logged["loss_enc"], L_o=logged["loss_net"])
    case.check(new_d=algorithm.sampled_targets, new_o=algorithm.targets)
    case.check(grad_logits_net=of_network.grad, grad_logits_enc=of_encoder.grad)


def check_valen_decoder(case: Case) -> None:
    decoder = valen.build_decoder(case["d"].shape[1], len(case["b1"]))
    assert all((layer.bias == 0.01).all() for layer in decoder if isinstance(layer, nn.Linear))
    decoder[0], decoder[2] = linear(case["W1"], case["b1"]), linear(case["W2"], case["b2"])
    case.check(x_hat=decoder.to(case.dtype)(case["d"]))


def check_valen_phases(case: Case) -> None:
    """Run the updates and see which kind each is; the graph is built once, before the first main one."""
    candidates = torch.ones(6, 3, dtype=torch.bool)
    steps, warm_up = case.inputs["t"], case.inputs["warm_up"]
    algorithm = build(case, candidates, warm_up=warm_up)
    batch = batch_with({"weak": torch.ones(6, 2, dtype=case.dtype)}, candidates)
    phases: list[int] = []
    graph_before: list[int] = []
    with (
        patch.object(algorithm, "warm_up_step", lambda batch: phases.append(0) or {}),
        patch.object(algorithm, "main_step", lambda batch: phases.append(1) or {}),
        patch.object(algorithm, "end_warm_up", lambda: graph_before.append(len(phases))),
    ):
        for _ in range(max(steps) + 1):
            algorithm.update(batch)
    assert graph_before == ([warm_up] if warm_up <= max(steps) else [])
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
    algorithm.steps_done = 1
    logits, raw = with_gradient(case["logits"]), with_gradient(case["feature_raw"])
    algorithm.network = GivenOutputs(logits, unit(raw), weight=case["query_param"])
    algorithm.key_network = GivenOutputs(
        case["logits"], unit(case["key_feature_raw"]), weight=case["key_param"]
    )
    algorithm.prototypes.copy_(case["prototypes"])
    algorithm.confidence.copy_(case["confidence"])
    queue = algorithm.queue
    fill(queue, features=case["queue"], labels=case["queue_label"], position=case["queue_ptr"])
    logged = algorithm.update(batch_with(distinct_views(case, len(candidates)), candidates))
    case.check(cls_loss=logged["loss_cls"], cont_loss=logged["loss_cont"], total=logged["loss"])
    case.check(grad_logits=logits.grad, grad_feature_raw=raw.grad, confidence=algorithm.confidence)
    case.check(prototypes=algorithm.prototypes, key_param=algorithm.key_network.weight)
    case.check(queue=queue["features"], queue_label=queue["labels"], queue_ptr=queue["position"])
    written = (case.inputs["queue_ptr"] + torch.arange(len(candidates))) % length
    scores = (unit(case["feature_raw"]) @ case["prototypes"].T).softmax(-1)
    case.check(pseudo_label=queue["labels"][written], proto_score=scores)


def check_prototypes(case: Case) -> None:
    labels = torch.tensor(case.inputs["label"])
    moved = update_prototypes(case["prototypes"], case["feature"], labels, case.inputs["proto_m"])
    case.check(prototypes=moved)


def check_momentum_of_confidence(case: Case) -> None:
    ends = tuple(case.inputs["conf_ema_range"])
    case.check(phi=[confidence_momentum(t, case.inputs["T"], ends) for t in case.inputs["t"]])


def check_queue(case: Case) -> None:
    queue = RingQueue(slots=torch.tensor(case.inputs["slots"]))
    queue["position"].fill_(case.inputs["ptr"])
    queue.push(slots=torch.tensor(case.inputs["keys"]))
    case.check(slots=queue["slots"], ptr=queue["position"])


def check_pseudo_label(case: Case) -> None:
    case.check(pseudo_label=best_candidate(case["logits"], case.mask("candidates")))


# ABLE -----------------------------------------------------------------------------------------------------


def check_able_step(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build(case, candidates, feat_dim=case["feature_weak_raw"].shape[1], **own_hparams(case))
    logits = with_gradient(case["logits_weak"])
    weak, strong = with_gradient(case["feature_weak_raw"]), with_gradient(case["feature_strong_raw"])
    # The strong view's logits come from the same pass and must not matter.
    both = torch.cat([logits, torch.full_like(logits, 3.0)])
    algorithm.network = GivenOutputs(both, unit(torch.cat([weak, strong])))
    algorithm.confidence.copy_(case["confidence"])
    logged = algorithm.update(batch_with(distinct_views(case, len(candidates)), candidates))
    case.check(cls_loss=logged["loss_cls"], con_loss=logged["loss_cont"], total=logged["loss"])
    case.check(grad_logits_weak=logits.grad, new_confidence=algorithm.confidence)
    case.check(grad_feature_weak_raw=weak.grad, grad_feature_strong_raw=strong.grad)
    labels = best_candidate(case["logits_weak"], candidates)
    weights = able.weigh_positives(case["confidence"], candidates, labels)
    case.check(predicted_label=labels, positive_weight=weights)


# CRDPLL ---------------------------------------------------------------------------------------------------


def check_crdpll_loss(case: Case) -> None:
    """Check the loss by the functions and, with two views as in training, by the update itself."""
    logits, candidates = with_gradient(case["logits"]), case.mask("candidates")
    consistency, supervised = crdpll.consistency_losses(logits, case["confidence"], candidates)
    total = case.inputs["lambda"] * consistency + supervised
    total.backward()
    case.check(total=total, consistency=consistency, supervised=supervised, grad_logits=logits.grad)
    if len(logits) == 2:
        check_crdpll_update(case)


def check_crdpll_update(case: Case) -> None:
    """Check an update at a step whose weight is the case's λ."""
    candidates = case.mask("candidates")
    algorithm = build(case, candidates)
    logits = with_gradient(case["logits"])
    algorithm.network = InTurn(*logits)
    algorithm.confidence.copy_(case["confidence"])
    with patch.object(crdpll, "consistency_weight", lambda step, max_steps: case.inputs["lambda"]):
        logged = algorithm.update(batch_with(distinct_views(case, len(candidates)), candidates))
    case.check(total=logged["loss"], consistency=logged["loss_cons"], supervised=logged["loss_sup"])
    case.check(grad_logits=logits.grad)
    revised = agree_on_target(case["logits"], candidates)
    torch.testing.assert_close(algorithm.confidence, revised)


def check_crdpll_revision(case: Case) -> None:
    case.check(confidence=agree_on_target(case["logits"], case.mask("candidates")))


def check_crdpll_schedule(case: Case) -> None:
    if "t" in case.inputs:
        steps, total = case.inputs["t"], case.inputs["T"]
    else:
        steps, total = case.inputs["epoch"], case.inputs["epochs"]
    case.check(**{"lambda": [crdpll.consistency_weight(step, total) for step in steps]})


# DIRK -----------------------------------------------------------------------------------------------------


def check_dirk_rectified(case: Case) -> None:
    rectified, share = dirk.rectify(case["logits"], case.mask("candidates"))
    case.check(rectified=rectified, a=share)


def check_dirk_teaching(case: Case) -> None:
    logits = with_gradient(case["logits"])
    loss = soft_cross_entropy(logits, case["target"])
    loss.backward()
    case.check(loss=loss, grad_logits=logits.grad)


def check_dirk_step(case: Case) -> None:
    candidates = case.mask("candidates")
    own = own_hparams(case)
    refined = "positive_weight" in case.expected or precedes(case, "prot_start") is False
    own["prot_start"] = 0 if refined else NEVER
    length, width = case["queue_feature"].shape
    algorithm = build(case, candidates, feat_dim=width, moco_queue=length, **own)
    logits, raw = (
        with_gradient(case["student_logits_distill"]),
        with_gradient(case["student_feature_strong_raw"]),
    )
    algorithm.network = GivenOutputs(logits, unit(raw))
    algorithm.teacher = GivenOutputs(case["teacher_logits_distill"], unit(case["teacher_feature_weak_raw"]))
    queue = algorithm.queue
    fill(queue, features=case["queue_feature"], distributions=case["queue_dist"])
    fill(queue, candidates=case["queue_candidates"], position=case["queue_ptr"])
    if "positive_weight" in case.expected:
        rectified, _ = dirk.rectify(case["teacher_logits_distill"], candidates)
        own, rows = candidates.to(case.dtype), case["queue_candidates"]
        temperature = case.inputs["dist_temperature"]
        within = dirk.find_affinities(rectified, own, rectified, own, temperature)
        beyond = dirk.find_affinities(rectified, own, case["queue_dist"], rows, temperature)
        affinities = torch.cat([within.fill_diagonal_(0), within, beyond], dim=-1)
        affinities[:, len(own) : 2 * len(own)].fill_diagonal_(1)
        case.check(positive_weight=affinities / affinities.sum(-1, keepdim=True))
    logged = algorithm.update(batch_with(distinct_views(case, len(candidates)), candidates))
    case.check(teach_loss=logged["loss_teach"], cont_loss=logged["loss_cont"], total=logged["loss"])
    case.check(grad_logits=logits.grad, grad_feature_raw=raw.grad)
    case.check(queue_feature=queue["features"], queue_dist=queue["distributions"])
    case.check(queue_candidates=queue["candidates"], queue_ptr=queue["position"])
    written = (case.inputs["queue_ptr"] + torch.arange(len(candidates))) % length
    case.check(rectified=queue["distributions"][written])


def check_dirk_teacher(case: Case) -> None:
    teacher, student = (nn.ParameterList([case[name]]) for name in ("teacher", "student"))
    follow(teacher, student, case.inputs["momentum"])
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
    logits = with_gradient(case["logits"])
    _, supervised = crdpll.consistency_losses(logits, case["confidence"], case.mask("candidates"))
    supervised.backward()
    assert supervised.item() == pytest.approx(23 * math.log(2) / len(case["confidence"]), rel=1e-4)
    assert logits.grad.isfinite().all()
