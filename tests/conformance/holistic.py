"""Adapters of the holistic algorithms and of those for noisy candidate sets."""

from collections.abc import Callable
from itertools import count, islice
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Beta

from tests import formulas
from tests.conformance.harness import (
    Case,
    GivenOutputs,
    InTurn,
    build,
    distinct_views,
    kind,
    linear,
    own_hparams,
    precedes,
    unit,
    with_gradient,
)
from tests.probe import GivenInputs, answer, at_step, batch_of, evaluate, set_state

NEVER = 10**9


# VALEN ----------------------------------------------------------------------------------------------------


@kind("VALEN", "logits o", "loss new_o grad_logits")
def check_valen_warm_up(case: Case) -> None:
    candidates = case["o"] > 0
    algorithm = build(case, candidates)
    logits = with_gradient(case["logits"])
    answer(algorithm, network=InTurn(logits))
    set_state(algorithm, targets=case["o"])
    loss = algorithm.update(batch_of(candidates, {"weak": case["logits"]}))["loss"]
    case.check(loss=loss, new_o=algorithm.targets, grad_logits=logits.grad)


@kind("VALEN", "logits", "alpha loss grad_logits")
def check_valen_divergence(case: Case) -> None:
    logits = with_gradient(case["logits"])
    loss = formulas.valen_kl(logits)
    loss.backward()
    case.check(loss=loss, grad_logits=logits.grad, alpha=formulas.valen_alpha(case["logits"]))


@kind("VALEN", "logits candidates w", "concentration grad_logits")
def check_valen_concentration(case: Case) -> None:
    logits = with_gradient(case["logits"])
    concentration = formulas.valen_concentration(logits, case.mask("candidates"))
    (case["w"] * concentration).sum().backward()
    case.check(concentration=concentration, grad_logits=logits.grad)


@kind("VALEN", "features k", "neighbour neighbours_sorted A_batch")
def check_valen_graph(case: Case) -> None:
    neighbours = formulas.valen_neighbours(case["features"], case.inputs["k"])
    case.check(neighbour=neighbours[:, 0], neighbours_sorted=neighbours.sort(-1).values)
    if "batch" in case.inputs:
        index = torch.tensor(case.inputs["batch"])
        case.check(A_batch=formulas.valen_graph_block(neighbours[index], index))


@kind("VALEN", "d x x_hat candidates A_batch", "L_recx L_recy L_recA grad_d grad_x_hat")
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


@kind("VALEN", "logits_net logits_enc o d_array d x x_hat candidates A_batch", "total L_* new_* grad_*")
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


@kind("VALEN", "d W1 b1 W2 b2", "x_hat")
def check_valen_decoder(case: Case) -> None:
    decoder = formulas.valen_decoder(case["d"].shape[1], len(case["b1"]))
    assert all((layer.bias == 0.01).all() for layer in decoder if isinstance(layer, nn.Linear))
    decoder[0], decoder[2] = linear(case["W1"], case["b1"]), linear(case["W2"], case["b2"])
    case.check(x_hat=decoder.to(case.dtype)(case["d"]))


@kind("VALEN", "t warm_up", "phase")
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


def slots_written(case: Case) -> Tensor:
    """Return the slots of the queue that the case's batch is written to."""
    queue = next(case.inputs[key] for key in ("queue", "queue_feature") if key in case.inputs)
    size = len(case.inputs["candidates" if "candidates" in case.inputs else "S"])
    return (case.inputs.get("queue_ptr", 0) + torch.arange(size)) % len(queue)


@kind(
    "PiCO",
    "logits feature_raw key_feature_raw candidates prototypes queue* confidence query_param key_param phi",
    "pseudo_label proto_score prototypes key_param queue* confidence *_loss total grad_*",
)
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
    queue, written = algorithm.queue, slots_written(case)
    case.check(queue=queue["features"], queue_label=queue["labels"], queue_ptr=queue["position"])
    scores = (unit(case["feature_raw"]) @ case["prototypes"].T).softmax(-1)
    case.check(pseudo_label=queue["labels"][written], proto_score=scores)


@kind("PiCO", "prototypes feature label proto_m", "prototypes")
@kind("PiCO_plus", "prototypes q labels proto_m", "prototypes_new")
def check_prototypes(case: Case) -> None:
    feature, labels = ("q", "labels") if "q" in case.inputs else ("feature", "label")
    moved = formulas.update_prototypes(
        case["prototypes"], case[feature], torch.tensor(case.inputs[labels]), case.inputs["proto_m"]
    )
    case.check(prototypes=moved, prototypes_new=moved)


@kind("PiCO", "t T conf_ema_range", "phi")
@kind("ALIM PiCO_plus", "t T start end", "phi")
def check_momentum_of_confidence(case: Case) -> None:
    ends = tuple(
        case.inputs["conf_ema_range"] if "start" not in case.inputs else case.pick("start", "end").values()
    )
    case.check(phi=[formulas.confidence_momentum(t, case.inputs["T"], ends) for t in case.inputs["t"]])


@kind("PiCO", "slots ptr keys", "slots ptr")
def check_queue(case: Case) -> None:
    queue = formulas.RingQueue(slots=torch.tensor(case.inputs["slots"]))
    queue["position"].fill_(case.inputs["ptr"])
    queue.push(slots=torch.tensor(case.inputs["keys"]))
    case.check(slots=queue["slots"], ptr=queue["position"])


@kind("PiCO", "logits candidates", "pseudo_label")
def check_pseudo_label(case: Case) -> None:
    case.check(pseudo_label=formulas.best_candidate(case["logits"], case.mask("candidates")))


# ABLE -----------------------------------------------------------------------------------------------------


@kind(
    "ABLE",
    "logits_weak feature_weak_raw feature_strong_raw confidence candidates",
    "predicted_label positive_weight cls_loss con_loss total new_confidence grad_*",
)
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


@kind("CRDPLL", "logits confidence candidates lambda", "total consistency supervised grad_logits")
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


@kind("CRDPLL", "logits candidates", "confidence")
def check_crdpll_revision(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build(case, candidates)
    algorithm.revise(case["logits"], batch_of(candidates, case["logits"]))
    case.check(confidence=algorithm.confidence)


@kind("CRDPLL", "t T", "lambda")
@kind("CRDPLL", "epoch epochs", "lambda")
def check_crdpll_schedule(case: Case) -> None:
    steps, total = case.pick(*(("t", "T") if "t" in case.inputs else ("epoch", "epochs"))).values()
    case.check(**{"lambda": [formulas.crdpll_lambda(step, total) for step in steps]})


# DIRK -----------------------------------------------------------------------------------------------------


@kind("DIRK", "logits candidates", "rectified a")
def check_dirk_rectified(case: Case) -> None:
    rectified, share = formulas.dirk_rectified(case["logits"], case.mask("candidates"))
    case.check(rectified=rectified, a=share)


@kind("DIRK", "logits target", "loss grad_logits")
def check_dirk_teaching(case: Case) -> None:
    logits = with_gradient(case["logits"])
    loss = formulas.soft_cross_entropy(logits, case["target"])
    loss.backward()
    case.check(loss=loss, grad_logits=logits.grad)


@kind(
    "DIRK",
    "teacher_logits_distill teacher_feature_weak_raw student_* candidates queue_*",
    "rectified *_loss total grad_* queue_* positive_weight",
)
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
    case.check(rectified=queue["distributions"][slots_written(case)])


def check_dirk_weights(case: Case) -> None:
    """Check the weights of the positives among [queries; keys; queue], the own query aside."""
    candidates, temperature = case["candidates"], case.inputs["dist_temperature"]
    rectified, _ = formulas.dirk_rectified(case["teacher_logits_distill"], candidates != 0)
    batch, queue = (rectified, candidates), (case["queue_dist"], case["queue_candidates"])
    within = formulas.dirk_affinities(*batch, *batch, temperature)
    beyond = formulas.dirk_affinities(*batch, *queue, temperature)
    affinities = torch.cat([within.clone().fill_diagonal_(0), within, beyond], dim=-1)
    case.check(positive_weight=affinities / affinities.sum(-1, keepdim=True))


@kind("DIRK", "teacher student momentum", "teacher")
def check_dirk_teacher(case: Case) -> None:
    teacher, student = (nn.ParameterList([case[name]]) for name in ("teacher", "student"))
    formulas.follow(teacher, student, case.inputs["momentum"])
    case.check(teacher=teacher[0])


def positives_of(labels: Tensor, queue_labels: Tensor, **used: Tensor | None) -> Tensor:
    """Return the positives (B, 2B+Q) of the code in use, found by differentiating its mean similarity.

    With the identity in place of the queue's features the sums by label are the members themselves.
    """
    classes = int(labels.max()) + 1
    batch_used, queue_used = used.get("batch"), used.get("queue")
    size = len(labels)
    queries, keys = torch.zeros(size, size, requires_grad=True), torch.zeros(size, size, requires_grad=True)
    identity = torch.eye(len(queue_labels))
    sums = formulas.sum_by_label(identity, queue_labels, classes, queue_used)
    similarities = formulas.Similarities(queries, keys, torch.zeros(size))
    nothing = torch.zeros(size, len(identity))
    mean = formulas.mean_similarity_by_label(
        similarities, nothing, labels, sums, formulas.BASE_TEMPERATURE, batch_used
    )
    mean.sum().backward()
    return torch.cat([queries.grad > 0, keys.grad > 0, sums.features[labels] > 0], dim=-1)


def steps_of(listed: list[int], happens: Callable[[int], bool]) -> list[int]:
    """Return the first steps at which something happens, as many as are listed."""
    return list(islice((step for step in count() if happens(step)), len(listed)))


# FREDIS ----------------------------------------------------------------------------------------------------


@kind("FREDIS", "z* c S", "loss complementary kl* grad_z*")
@kind("FREDIS", "z* S", "c posterior")
def check_fredis_step(case: Case) -> None:
    """Run an update; a temperature T divides the logits, which is the network's own affair here."""
    names = [name for name in ("z0", "z1", "z2", "z") if name in case.inputs]
    candidates = case.mask("S")
    algorithm = build(case, candidates, views=len(names), **own_hparams(case))
    leaves = [with_gradient(case[name]) for name in names]
    logits = [leaf / case.inputs.get("T", 1.0) for leaf in leaves]
    answer(algorithm, network=InTurn(*logits))
    if "c" in case.inputs:
        set_state(algorithm, targets=case["c"])
    logged = algorithm.update(batch_of(candidates, distinct_views(case, len(candidates))))
    case.check(loss=logged["loss"], complementary=logged["loss_comp"])
    case.check(**{f"grad_{name}": leaf.grad for name, leaf in zip(names, leaves, strict=True)})
    if "c" in case.inputs:
        divergences = formulas.divergence_from_target(torch.stack(logits), case["c"])
        torch.testing.assert_close(divergences.sum(), logged["loss_cons"])
        case.check(**{name.replace("z", "kl"): kl for name, kl in zip(names, divergences, strict=True)})
    assert algorithm.visited.all()
    case.check(c=algorithm.targets, posterior=algorithm.posterior)


@kind(
    "FREDIS",
    "posterior S theta delta inc dec times change_size",
    "*_new n_changed n_add_counted n_remove_counted reverted_rows",
)
def check_fredis_correction(case: Case) -> None:
    """Correct through the algorithm; entries are drawn first to last, or last to first, as the case says."""
    algorithm = build(case, case.mask("S"), **own_hparams(case))
    set_state(algorithm, posterior=case["posterior"], visited=torch.ones(len(case["S"])))
    backwards = "reverse" in case.text
    with patch.object(torch, "randperm", lambda n: torch.arange(n).flip(0) if backwards else torch.arange(n)):
        correction = algorithm.correct()
    case.check(S_new=algorithm.candidates, c_new=algorithm.targets)
    case.check(theta_new=algorithm.theta, delta_new=algorithm.delta, n_changed=algorithm.changed)
    if "delta_new" in case.expected:
        assert algorithm.delta == pytest.approx(case.expected["delta_new"], abs=1e-9)
    case.check(n_add_counted=correction.added, n_remove_counted=correction.removable)
    case.check(reverted_rows=correction.put_back)


@kind("FREDIS", "delta dec d_R", "m delta_new")
def check_fredis_search(case: Case) -> None:
    rows = list(zip(case.inputs["delta"], case.inputs["dec"], case.inputs["d_R"], strict=True))
    found = [formulas.fredis_delta(*row) for row in rows]
    case.check(delta_new=found)
    case.check(m=[round((row[0] - delta) / row[1]) for row, delta in zip(rows, found, strict=True)])


@kind("FREDIS", "n_train batch_size update_interval", "interval_steps first_steps")
def check_fredis_schedule(case: Case) -> None:
    """See after which steps the count of changed entries is set anew."""
    everything = torch.ones(case.inputs["n_train"], 2, dtype=torch.bool)
    algorithm = build(case, everything, views=1, delta=1e9, **case.pick("batch_size", "update_interval"))
    batch, logits = batch_of(everything[:1], {}), torch.zeros(1, 1, 2, dtype=case.dtype)

    def corrects(step: int) -> bool:
        at_step(algorithm, step)
        algorithm.changed = -1
        algorithm.revise(logits, batch)
        return bool(algorithm.changed >= 0)

    (interval,) = algorithm.phases().values()
    case.check(interval_steps=interval, first_steps=steps_of(case.expected["first_steps"], corrects))


# ALIM ------------------------------------------------------------------------------------------------------


@kind(
    "ALIM",
    "z q k queue* prototypes S confidence index1 index2 z_mix mix_coefficient phi lambda",
    "loss* *_new grad_* pseudo_labels cluster_score margins mix_targets positives",
)
def check_alim_step(case: Case) -> None:
    size, classes = case["S"].shape
    length, width = case["queue"].shape
    everything = torch.ones(len(case["confidence"]), classes, dtype=torch.bool)
    own = own_hparams(case)
    own["prot_start"] = 0 if case.inputs["update_confidence"] else NEVER
    own["conf_ema_range"] = "{0},{0}".format(case.inputs["phi"])
    algorithm = build(case, everything, feat_dim=width, moco_queue=length, batch_size=size, **own)
    at_step(algorithm, 1)
    z, q, mixed = (with_gradient(case[name]) for name in ("z", "q", "z_mix"))
    answer(algorithm, network=GivenOutputs(z, q, alone=mixed), key_network=GivenOutputs(case["z"], case["k"]))
    queue, queue_labels = algorithm.queue, case["queue_pseudo"].long()
    set_state(algorithm, importance=case.inputs["lambda"], prototypes=case["prototypes"])
    set_state(algorithm, confidence=case["confidence"], queue__features=case["queue"])
    set_state(algorithm, queue__labels=queue_labels, queue__position=case["queue_ptr"])
    candidates, views = case.mask("S"), distinct_views(case, size)
    second = batch_of(candidates, views, torch.tensor(case.inputs["index2"]))
    batch = batch_of(candidates, views, torch.tensor(case.inputs["index1"]), second)
    with patch.object(Beta, "sample", lambda self: case["mix_coefficient"]):
        logged = algorithm.update(batch)
    case.check(loss=logged["loss"], loss_cls=logged["loss_cls"], loss_cont=logged["loss_cont"])
    case.check(loss_mixup=logged["loss_mixup"], confidence_new=algorithm.confidence)
    case.check(prototypes_new=algorithm.prototypes, queue_pseudo_new=queue["labels"])
    case.check(grad_z=z.grad, grad_q=q.grad, grad_z_mix=mixed.grad)
    labels = queue["labels"][slots_written(case)]
    case.check(pseudo_labels=labels, queue_new=queue["features"], queue_ptr_new=queue["position"])
    check_mix_targets(case, mixed)
    assert algorithm.margin_count == size
    case.check(margins=algorithm.margins[:size], positives=positives_of(labels, queue_labels))
    scores = (case["q"] @ case["prototypes"].T / formulas.BASE_TEMPERATURE).softmax(-1)
    case.check(cluster_score=scores)


def check_mix_targets(case: Case, logits: Tensor, weight: float = 1.0) -> None:
    """Find the targets of the mixup loss from its gradient w (p − target)/B."""
    if logits.grad is not None:
        weight = weight * case.inputs.get("loss_weight_mixup", 1.0)
        case.check(mix_targets=logits.detach().softmax(-1) - logits.grad * len(logits) / weight)


@kind("ALIM", "margins noise_rate", "lambda")
def check_alim_importance(case: Case) -> None:
    case.check(**{"lambda": formulas.alim_lambda(case["margins"], case.inputs["noise_rate"])})


@kind("ALIM", "n_train batch_size start_epoch", "steps")
def check_alim_schedule(case: Case) -> None:
    """See at the start of which steps λ is chosen from the margins of the last epoch."""
    everything = torch.ones(case.inputs["n_train"], 2, dtype=torch.bool)
    schedule = case.pick("batch_size", "start_epoch")
    algorithm = build(case, everything, moco_queue=1, feat_dim=1, noise_rate=0.5, **schedule)

    def renews(step: int) -> bool:
        at_step(algorithm, step)
        set_state(algorithm, importance=-1.0, margin_count=1)
        algorithm.renew_importance()
        return bool(algorithm.importance >= 0)

    case.check(steps=steps_of(case.expected["steps"], renews))


# PiCO_plus -------------------------------------------------------------------------------------------------


def uses_neighbours(case: Case) -> bool:
    """Whether the case's step lies in the phase with neighbours, by its words."""
    before = precedes(case, "knn_start")
    assert before is not None, f"{case}: its words do not say on which side of knn_start the step lies"
    return not before


def phase_of(case: Case) -> dict[str, int]:
    """Return the starts of the phases that put a step where the case is; mixing begins at prot_start."""
    if not any(key.startswith("loss") for key in case.expected):
        return {"prot_start": 0, "knn_start": NEVER}  # the state moves the same way in every phase
    if "z_mix" not in case.inputs:
        return {"prot_start": NEVER}
    return {"prot_start": 0, "knn_start": 0 if uses_neighbours(case) else NEVER}


@kind(
    "PiCO_plus",
    "z q k queue queue_pseudo queue_rel prototypes S is_rel",
    "loss* *_new grad_* pseudo_labels cosine score distance guess mix_targets positives_*",
)
def check_pico_plus_step(case: Case) -> None:
    candidates, reliable = case.mask("S"), case.mask("is_rel")
    size, (length, width) = len(candidates), case["queue"].shape
    own = {"pure_ratio": 0.5, **own_hparams(case), **phase_of(case)}  # below 1, else neighbours are not used
    phi = case.inputs.get("phi", 0.9)
    own["conf_ema_range"] = f"{phi},{phi}"
    algorithm = build(case, candidates, feat_dim=width, moco_queue=length, batch_size=1, **own)
    at_step(algorithm, 1)  # with batches of one by name, the first selection is later
    z, q = with_gradient(case["z"]), with_gradient(case["q"])
    mixed = with_gradient(case["z_mix"] if "z_mix" in case.inputs else case["z"])
    answer(algorithm, network=GivenOutputs(z, q, alone=mixed), key_network=GivenOutputs(case["z"], case["k"]))
    queue = algorithm.queue
    set_state(algorithm, prototypes=case["prototypes"], reliable=reliable, queue__features=case["queue"])
    set_state(algorithm, queue__labels=case["queue_pseudo"].long(), queue__reliable=case.mask("queue_rel"))
    set_state(algorithm, queue__position=case.inputs.get("queue_ptr", 0))
    if "confidence" in case.inputs:
        set_state(algorithm, confidence=case["confidence"])
    partners = torch.tensor(case.inputs.get("perm", list(range(size))))
    share = case["mix_coefficient"] if "mix_coefficient" in case.inputs else torch.ones(())
    with (
        patch.object(Beta, "sample", lambda self: share),
        patch.object(torch, "randperm", lambda n, **_: partners),
    ):
        logged = algorithm.update(batch_of(candidates, distinct_views(case, size)))
    labels = queue["labels"][slots_written(case)]
    names = {"cls_rel": "cls", "cls_unrel": "guess", "mix": "mixup"}
    renamed = {f"loss_{key}": logged.get(f"loss_{name}") for key, name in names.items()}
    losses = {key: value for key, value in {**logged, **renamed}.items() if key.startswith("loss")}
    gradients = {"grad_z": z.grad, "grad_q": q.grad, "grad_z_mix": mixed.grad}
    case.check(**losses, **gradients, confidence_new=algorithm.confidence)
    if mixed.grad is not None:
        check_mix_targets(case, mixed)
        check_pico_plus_parts(case, labels)
    cosines = case["q"] @ case["prototypes"].T
    case.check(pseudo_labels=labels, cosine=cosines, score=cosines.softmax(-1))
    case.check(distance=algorithm.distances, prototypes_new=algorithm.prototypes)
    case.check(queue_new=queue["features"], queue_pseudo_new=queue["labels"])
    case.check(queue_rel_new=queue["reliable"], queue_ptr_new=queue["position"])


def check_pico_plus_parts(case: Case, labels: Tensor) -> None:
    """Check guesses and the sets of positives."""
    cosines = case["q"] @ case["prototypes"].T
    if "temperature_guess" in case.inputs:
        case.check(guess=formulas.pico_plus_guess(cosines, case.inputs["temperature_guess"]))
    queue_labels, reliable = case["queue_pseudo"].long(), case.mask("is_rel")
    case.check(positives_all=positives_of(labels, queue_labels))
    positives = positives_of(labels, queue_labels, batch=reliable, queue=case.mask("queue_rel"))
    if phase_of(case)["knn_start"] == 0:
        others = nearest_of(case, case.inputs["chosen_neighbors"])
    else:
        size = len(labels)
        others = torch.zeros_like(positives)
        others[:, size : 2 * size].fill_diagonal_(True)
    case.check(positives_rel=torch.where(reliable[:, None], positives, others))


def nearest_of(case: Case, count: int) -> Tensor:
    """Return the positives (B, 2B+Q) of unreliable anchors, by differentiating their mean similarity."""
    similarities = formulas.compare(case["q"], case["k"], case["queue"], formulas.BASE_TEMPERATURE)
    queries, keys = with_gradient(similarities.queries), with_gradient(similarities.keys)
    leaves = formulas.Similarities(queries, keys, similarities.log_denominator)
    slots = case["queue"]
    found = []
    for i in range(len(queries)):
        queue = with_gradient(slots)
        mean = formulas.pico_plus_to_nearest(leaves, case["q"], queue, count)[i]
        gradients = torch.autograd.grad(mean, [queries, keys, queue])
        found.append(torch.cat([gradients[0][i] > 0, gradients[1][i] > 0, (gradients[2] != 0).any(-1)]))
    return torch.stack(found)


@kind("PiCO_plus", "distance pure_ratio", "is_rel")
def check_pico_plus_selection(case: Case) -> None:
    case.check(is_rel=formulas.pico_plus_reliable(case["distance"], case.inputs["pure_ratio"]))


@kind("PiCO_plus", "n_train batch_size prot_start", "steps")
def check_pico_plus_schedule(case: Case) -> None:
    everything = torch.ones(case.inputs["n_train"], 2, dtype=torch.bool)
    algorithm = build(case, everything, moco_queue=1, feat_dim=1, **case.pick("batch_size", "prot_start"))

    def selects(step: int) -> bool:
        at_step(algorithm, step)
        return bool(algorithm.selects_now())

    case.check(steps=steps_of(case.expected["steps"], selects))
