"""FREDIS, ALIM and PiCO_plus against their vectors, through the code that training uses."""

from collections.abc import Callable
from itertools import count, islice
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.distributions import Beta

from tests import formulas
from tests.conformance.given_outputs import (
    GivenOutputs,
    InTurn,
    build,
    distinct_views,
    own_hparams,
    precedes,
)
from tests.conformance.harness import (
    OUR_VECTORS,
    Case,
    Kind,
    list_cases,
    present_cases,
    run_adapter,
    with_gradient,
)
from tests.probe import answer, at_step, batch_of, set_state

NEVER = 10**9


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


def views_of(case: Case) -> list[str]:
    """Return the names of the case's views."""
    return [name for name in ("z0", "z1", "z2", "z") if name in case.inputs]


def check_fredis_step(case: Case) -> None:
    """Run an update; a temperature T divides the logits, which is the network's own affair here."""
    names = views_of(case)
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


def check_fredis_search(case: Case) -> None:
    rows = list(zip(case.inputs["delta"], case.inputs["dec"], case.inputs["d_R"], strict=True))
    found = [formulas.fredis_delta(*row) for row in rows]
    case.check(delta_new=found)
    case.check(m=[round((row[0] - delta) / row[1]) for row, delta in zip(rows, found, strict=True)])


def check_fredis_schedule(case: Case) -> None:
    """See after which steps the count of changed entries is set anew."""
    everything = torch.ones(case.inputs["n_train"], 2, dtype=torch.bool)
    schedule = {key: case.inputs[key] for key in ("batch_size", "update_interval")}
    algorithm = build(case, everything, views=1, delta=1e9, **schedule)
    batch, logits = batch_of(everything[:1], {}), torch.zeros(1, 1, 2, dtype=case.dtype)

    def corrects(step: int) -> bool:
        at_step(algorithm, step)
        algorithm.changed = -1
        algorithm.revise(logits, batch)
        return bool(algorithm.changed >= 0)

    (interval,) = algorithm.phases().values()
    case.check(interval_steps=interval, first_steps=steps_of(case.expected["first_steps"], corrects))


# ALIM ------------------------------------------------------------------------------------------------------


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
    written = (case.inputs["queue_ptr"] + torch.arange(size)) % length
    labels = queue["labels"][written]
    case.check(pseudo_labels=labels)
    case.check(queue_new=queue["features"], queue_ptr_new=queue["position"])
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


def check_alim_importance(case: Case) -> None:
    chosen = formulas.alim_lambda(case["margins"], case.inputs["noise_rate"])
    case.check(**{"lambda": chosen})


def check_alim_schedule(case: Case) -> None:
    """See at the start of which steps λ is chosen from the margins of the last epoch."""
    everything = torch.ones(case.inputs["n_train"], 2, dtype=torch.bool)
    schedule = {key: case.inputs[key] for key in ("batch_size", "start_epoch")}
    algorithm = build(case, everything, moco_queue=1, feat_dim=1, noise_rate=0.5, **schedule)

    def renews(step: int) -> bool:
        at_step(algorithm, step)
        set_state(algorithm, importance=-1.0, margin_count=1)
        algorithm.renew_importance()
        return bool(algorithm.importance >= 0)

    case.check(steps=steps_of(case.expected["steps"], renews))


def check_momentum_of_confidence(case: Case) -> None:
    ends = (case.inputs["start"], case.inputs["end"])
    case.check(phi=[formulas.confidence_momentum(t, case.inputs["T"], ends) for t in case.inputs["t"]])


# PiCO_plus -------------------------------------------------------------------------------------------------


def uses_neighbours(case: Case) -> bool:
    """Say whether the case's step lies in the phase with neighbours, which its words must tell."""
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
    written = (case.inputs.get("queue_ptr", 0) + torch.arange(size)) % length
    labels = queue["labels"][written]
    check_given(case, algorithm, logged, {"grad_z": z, "grad_q": q, "grad_z_mix": mixed})
    if mixed.grad is not None:
        check_mix_targets(case, mixed)
        check_pico_plus_parts(case, labels)
    cosines = case["q"] @ case["prototypes"].T
    case.check(pseudo_labels=labels, cosine=cosines, score=cosines.softmax(-1))
    case.check(distance=algorithm.distances, prototypes_new=algorithm.prototypes)
    case.check(queue_new=queue["features"], queue_pseudo_new=queue["labels"])
    case.check(queue_rel_new=queue["reliable"], queue_ptr_new=queue["position"])


def check_given(case: Case, algorithm: Any, logged: dict[str, Tensor], leaves: dict[str, Tensor]) -> None:
    """Check the losses, gradients and confidences that the case lists."""
    names = {
        "loss": "loss",
        "loss_cont": "loss_cont",
        "loss_cls": "loss_cls",
        "loss_cls_rel": "loss_cls",
        "loss_cls_unrel": "loss_guess",
        "loss_mix": "loss_mixup",
        "loss_cont_rel": "loss_cont_rel",
        "loss_cont_all": "loss_cont_all",
    }
    case.check(**{key: logged[name] for key, name in names.items() if key in case.expected})
    case.check(**{key: leaf.grad for key, leaf in leaves.items() if key in case.expected})
    case.check(confidence_new=algorithm.confidence)


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


def check_pico_plus_selection(case: Case) -> None:
    case.check(is_rel=formulas.pico_plus_reliable(case["distance"], case.inputs["pure_ratio"]))


def check_prototypes(case: Case) -> None:
    labels = torch.tensor(case.inputs["labels"])
    moved = formulas.update_prototypes(case["prototypes"], case["q"], labels, case.inputs["proto_m"])
    case.check(prototypes_new=moved)


def check_pico_plus_schedule(case: Case) -> None:
    everything = torch.ones(case.inputs["n_train"], 2, dtype=torch.bool)
    schedule = {key: case.inputs[key] for key in ("batch_size", "prot_start")}
    algorithm = build(case, everything, moco_queue=1, feat_dim=1, **schedule)

    def selects(step: int) -> bool:
        at_step(algorithm, step)
        return bool(algorithm.selects_now())

    case.check(steps=steps_of(case.expected["steps"], selects))


KINDS: dict[str, list[Kind]] = {
    "FREDIS": [
        Kind(check_fredis_step, "z* c S", "loss complementary kl* grad_z*"),
        Kind(check_fredis_step, "z* S", "c posterior"),
        Kind(
            check_fredis_correction,
            "posterior S theta delta inc dec times change_size",
            "*_new n_changed n_add_counted n_remove_counted reverted_rows",
        ),
        Kind(check_fredis_search, "delta dec d_R", "m delta_new"),
        Kind(check_fredis_schedule, "n_train batch_size update_interval", "interval_steps first_steps"),
    ],
    "ALIM": [
        Kind(
            check_alim_step,
            "z q k queue queue_pseudo queue_ptr prototypes S confidence index1 index2 z_mix mix_coefficient "
            "phi lambda update_confidence",
            "loss* *_new grad_* pseudo_labels cluster_score margins mix_targets positives",
        ),
        Kind(check_alim_importance, "margins noise_rate", "lambda"),
        Kind(check_alim_schedule, "n_train batch_size start_epoch", "steps"),
        Kind(check_momentum_of_confidence, "t T start end", "phi"),
    ],
    "PiCO_plus": [
        Kind(
            check_pico_plus_step,
            "z q k queue queue_pseudo queue_rel prototypes S is_rel",
            "loss* *_new grad_* pseudo_labels cosine score distance guess mix_targets positives_*",
        ),
        Kind(check_pico_plus_selection, "distance pure_ratio", "is_rel"),
        Kind(check_prototypes, "q labels prototypes proto_m", "prototypes_new"),
        Kind(check_pico_plus_schedule, "n_train batch_size prot_start", "steps"),
        Kind(check_momentum_of_confidence, "t T start end", "phi"),
    ],
}


@pytest.mark.parametrize("case", list_cases(KINDS))
def test_vector(case: Case) -> None:
    run_adapter(KINDS[case.algorithm], case)


# Single precision is held to its tolerance on our own vectors, whose choices are no close calls.
@pytest.mark.parametrize("case", present_cases(KINDS, OUR_VECTORS), ids=repr)
def test_vector_in_float32(case: Case) -> None:
    run_adapter(KINDS[case.algorithm], case.in_float32())
