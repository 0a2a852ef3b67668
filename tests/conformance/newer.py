"""Adapters of the algorithms after the benchmark's paper."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.distributions import Beta

from tests import formulas
from tests.conformance.harness import (
    Case,
    InTurn,
    batch_in,
    build,
    build_linear,
    distinct_views,
    kind,
    linear,
    make_updates,
    own_hparams,
    unit,
    updates_hparams,
    with_gradient,
)
from tests.probe import GivenInputs, answer, at_step, batch_of, evaluate, set_state


@contextmanager
def drawing(shares: Iterable[float], partners: Iterable[Sequence[int]]) -> Iterator[None]:
    """Let shares and permutations be drawn as the case lists them, one after the other."""
    next_shares, next_partners = iter(shares), iter(partners)
    with (
        patch.object(Beta, "sample", lambda self: torch.tensor(next(next_shares), dtype=torch.float64)),
        patch.object(torch, "randperm", lambda n, **_: torch.tensor(next(next_partners))),
    ):
        yield


# PaPi -----------------------------------------------------------------------------------------------------


class TwoHeadsInTurn(nn.Module):
    """Stands in for a two-headed network: answers to whole passes, and to projections alone, in turn."""

    def __init__(self, whole: Sequence[tuple[Tensor, Tensor]], projections: Sequence[Tensor]) -> None:
        super().__init__()
        self.whole, self.projections = iter(whole), iter(projections)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return next(self.whole)

    def project(self, x: Tensor) -> Tensor:
        return next(self.projections)


class LinearHeads(nn.Module):
    """Two linear heads on the inputs themselves."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.classifier, self.projector = linear(case["W"], case["b"]), linear(case["P"], case["p"])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.classifier(x), self.project(x)

    def project(self, x: Tensor) -> Tensor:
        return unit(self.projector(x))


def papi_hparams(case: Case) -> dict[str, Any]:
    """Return hyperparameters that give the case's φ, γ and α at any step from 1 on."""
    at_once = {"phi": "pseudo_label_weight_range", "gamma": "pro_weight_range"}
    own = {name: "{0},{0}".format(case.inputs[key]) for key, name in at_once.items() if key in case.inputs}
    named = {"temperature": "tau_proto", "alpha": "alpha_weight"}
    return {**own, **{name: case.inputs[key] for key, name in named.items() if key in case.inputs}}


def build_papi(case: Case, width: int) -> Any:
    algorithm = build(case, case.mask("candidates"), feat_dim=width, max_steps=50, **papi_hparams(case))
    at_step(algorithm, 1)
    set_state(algorithm, confidence=case["confidence"])
    return algorithm


@kind(
    "PaPi",
    "logits_weak logits_strong features_*_raw candidates confidence prototypes permutation mixing",
    "loss* confidence_after prototypes_after grad_* pseudo_label_*",
)
def check_papi_step(case: Case) -> None:
    size, width = case["features_weak_raw"].shape
    algorithm = build_papi(case, width)
    set_state(algorithm, prototypes=case["prototypes"])
    logits, strong = with_gradient(case["logits_weak"]), with_gradient(case["logits_strong"])
    weak_raw, strong_raw = (with_gradient(case[f"features_{view}_raw"]) for view in ("weak", "strong"))
    mixed = [with_gradient(case[f"features_{view}_mixed_raw"]) for view in ("weak", "strong")]
    whole = [(logits, unit(weak_raw)), (strong, unit(strong_raw))]
    answer(algorithm, network=TwoHeadsInTurn(whole, [unit(raw) for raw in mixed]))
    with drawing([case.inputs["mixing"]], [case.inputs["permutation"]]):
        logged = algorithm.update(batch_of(case.mask("candidates"), distinct_views(case, size)))
    case.check(loss=logged["loss"], loss_cls=logged["loss_cls"], loss_sim=logged["loss_sim"])
    case.check(confidence_after=algorithm.confidence, prototypes_after=algorithm.prototypes)
    case.check(grad_logits_weak=logits.grad)
    case.check(grad_features_weak_mixed=mixed[0].grad, grad_features_strong_mixed=mixed[1].grad)
    assert strong.grad is weak_raw.grad is strong_raw.grad is None
    check_papi_labels(case)


def check_papi_labels(case: Case) -> None:
    labels = {
        f"pseudo_label_{view}": formulas.best_candidate(case[f"logits_{view}"], case.mask("candidates"))
        for view in ("weak", "strong")
        if f"logits_{view}" in case.inputs
    }
    case.check(**labels)


@kind(
    "PaPi",
    "logits_weak candidates confidence phi",
    "pseudo_label_weak confidence_after loss_cls grad_logits_weak",
)
def check_papi_underflow(case: Case) -> None:
    """Check what the weak view's logits alone decide; prototypes of 0 keep the rest out."""
    size = len(case["logits_weak"])
    algorithm = build_papi(case, 1)
    logits, unread = with_gradient(case["logits_weak"]), torch.ones(size, 1, dtype=case.dtype)
    answer(algorithm, network=TwoHeadsInTurn([(logits, unread)] * 2, [unread] * 2))
    logged = algorithm.update(batch_of(case.mask("candidates"), distinct_views(case, size)))
    case.check(loss_cls=logged["loss_cls"], grad_logits_weak=logits.grad)
    case.check(confidence_after=algorithm.confidence)
    check_papi_labels(case)


@kind("PaPi", "prototypes features_weak features_strong label_weak label_strong gamma", "prototypes_after")
def check_papi_prototypes(case: Case) -> None:
    """Move the prototypes in a step whose logits make the listed labels the best candidates."""
    labels = [torch.tensor(case.inputs[f"label_{view}"]) for view in ("weak", "strong")]
    features = [case["features_weak"], case["features_strong"]]
    classes, width = case["prototypes"].shape
    momentum = "{0},{0}".format(case.inputs["gamma"])
    everything = torch.ones(len(labels[0]), classes, dtype=torch.bool)
    algorithm = build(case, everything, feat_dim=width, pro_weight_range=momentum)
    at_step(algorithm, 1)
    set_state(algorithm, prototypes=case["prototypes"])
    logits = [nn.functional.one_hot(view, classes).to(case.dtype).requires_grad_() for view in labels]
    answer(algorithm, network=TwoHeadsInTurn(list(zip(logits, features, strict=True)), features))
    algorithm.update(batch_of(everything, distinct_views(case, len(everything))))
    case.check(prototypes_after=algorithm.prototypes)


@kind("PaPi", "t T alpha_weight *_range", "phi gamma alpha")
def check_papi_schedules(case: Case) -> None:
    steps, total = case.inputs["t"], case.inputs["T"]
    ranges = {"phi": "pseudo_label_weight_range", "gamma": "pro_weight_range"}
    for key, name in ranges.items():
        ends = tuple(case.inputs[name])
        case.check(**{key: [formulas.confidence_momentum(t, total, ends) for t in steps]})
    weight = case.inputs["alpha_weight"]
    case.check(alpha=[weight * formulas.papi_ramp(t, total) for t in steps])


@kind("PaPi", "X S W b P p batches", "losses W b P p confidence prototypes")
def check_papi_updates(case: Case) -> None:
    hparams = {**updates_hparams(case), **papi_hparams(case)}
    for name in ("pseudo_label_weight_range", "pro_weight_range"):
        hparams[name] = ",".join(map(str, case.inputs[name]))
    width, max_steps = len(case["P"]), case.inputs["T"]
    algorithm = build(case, case.mask("S"), feat_dim=width, max_steps=max_steps, **hparams)
    answer(algorithm, learns=True, network=LinearHeads(case))
    with drawing(case.inputs["mixings"], case.inputs["permutations"]):
        losses = [logged["loss"] for logged in make_updates(case, algorithm)]
    network = algorithm.network
    case.check(losses=losses, W=network.classifier.weight, b=network.classifier.bias)
    case.check(P=network.projector.weight, p=network.projector.bias)
    case.check(confidence=algorithm.confidence, prototypes=algorithm.prototypes)


# GFWS and SCARCE ------------------------------------------------------------------------------------------


@kind("GFWS", "logits candidates entropy_weight", "loss loss_* grad_logits targets")
def check_gfws_loss(case: Case) -> None:
    """Check loss and gradient for any number of views; with two, by an update too."""
    candidates, logits = case.mask("candidates"), case["logits"]
    algorithm = build(case, candidates, **own_hparams(case))
    losses, gradient = evaluate(algorithm, logits, batch_of(candidates, logits))
    case.check(loss=losses["loss"], loss_sup=losses["loss_sup"], loss_em=losses["loss_em"])
    case.check(loss_entropy=losses["loss_ent"], grad_logits=gradient)
    case.check(targets=formulas.masked_softmax(logits[0], candidates))
    if len(logits) == 2:
        joined = with_gradient(logits.flatten(0, 1))
        answer(algorithm, network=InTurn(joined))
        logged = algorithm.update(batch_of(candidates, distinct_views(case, len(candidates))))
        case.check(loss=logged["loss"], grad_logits=joined.grad.reshape(logits.shape))


@kind("SCARCE", "logits candidates prior", "loss grad_logits negative_risk rest_risk")
def check_scarce_loss(case: Case) -> None:
    candidates, logits = case.mask("candidates"), case["logits"]
    algorithm = build(case, candidates)
    set_state(algorithm, prior=case["prior"])
    losses, gradient = evaluate(algorithm, logits, batch_of(candidates, logits))
    negative, rest = formulas.scarce_risks(logits, candidates, case["prior"])
    case.check(loss=losses["loss"], grad_logits=gradient, negative_risk=negative, rest_risk=rest)


# RECORDS --------------------------------------------------------------------------------------------------


def build_records(case: Case, candidates: Tensor, base: str, *, update: bool = True) -> Any:
    """Build RECORDS with the case's classifier, confidence and mean, on a step that revises or not."""
    own = {"m": case.inputs["m"]} if "m" in case.inputs else {}
    algorithm = build(case, candidates, base=base, upd_start=0 if update else 1000, **own)
    if "weight" in case.inputs:
        algorithm.feature_mean = case["feature_mean"].clone()
        answer(algorithm, network=nn.Sequential(nn.Identity(), linear(case["weight"], case["bias"])))
        algorithm.network.to(case.dtype)
    if "confidence" in case.inputs:
        set_state(algorithm, confidence=case["confidence"])
    return algorithm


class GivenLogits(nn.Module):
    """Stands in for a linear classifier: true to it on the feature mean, with given logits of the views."""

    def __init__(self, classifier: nn.Module, logits: Tensor) -> None:
        super().__init__()
        self.classifier, self.logits = classifier, logits

    def forward(self, features: Tensor) -> Tensor:
        return self.logits if features.shape[:-1] == self.logits.shape[:-1] else self.classifier(features)


@kind(
    "RECORDS",
    "logits* features* candidates confidence feature_mean weight bias m update",
    "loss* grad_* *_after log_prior",
)
def check_records_step(case: Case) -> None:
    """Run an update whose passes give the case's features and logits."""
    candidates = case.mask("candidates")
    views = ("_weak", "_strong") if "logits_weak" in case.inputs else ("",)
    algorithm = build_records(
        case, candidates, "CORR" if len(views) == 2 else "PRODEN", update=case.inputs["update"]
    )
    leaves = [with_gradient(case[f"logits{view}"]) for view in views]
    features = [case[f"features{view}"] for view in views]
    classifier = GivenLogits(algorithm.network[1], torch.stack(leaves))
    answer(algorithm, network=nn.Sequential(nn.Identity(), classifier))
    given = dict(zip(("weak", "strong"), features, strict=False))
    logged = algorithm.update(batch_of(candidates, given))
    case.check(loss=logged["loss"], confidence_after=algorithm.confidence)
    if len(views) == 2:
        case.check(loss_sup=logged["loss_sup"], loss_con=logged["loss_con"])
    case.check(**{f"grad_logits{view}": leaf.grad for view, leaf in zip(views, leaves, strict=True)})
    case.check(feature_mean_after=algorithm.feature_mean, log_prior=algorithm.find_log_prior()[0])


@kind("RECORDS", "logits_weak logits_strong candidates confidence", "loss loss_* grad_*")
def check_records_loss(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build_records(case, candidates, "CORR")
    logits = torch.stack([case["logits_weak"], case["logits_strong"]])
    outputs = logits, torch.zeros(1, logits.shape[-1], dtype=case.dtype)
    losses, (gradient, _) = evaluate(algorithm, outputs, batch_of(candidates, logits[0]))
    case.check(loss=losses["loss"], loss_sup=losses["loss_sup"], loss_con=losses["loss_con"])
    case.check(grad_logits_weak=gradient[0], grad_logits_strong=gradient[1])


@kind(
    "RECORDS", "logits_weak logits_strong candidates feature_mean weight bias", "log_prior confidence_after"
)
def check_records_revision(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build_records(case, candidates, "CORR")
    logits = torch.stack([case["logits_weak"], case["logits_strong"]])
    prior = algorithm.find_log_prior().detach()
    algorithm.revise((logits, prior), batch_of(candidates, logits[0]))
    case.check(confidence_after=algorithm.confidence, log_prior=prior[0])


@kind("RECORDS", "logits feature_mean weight bias", "prediction")
def check_records_prediction(case: Case) -> None:
    """Predict for features whose logits are the case's: the classifier is turned round to find them."""
    algorithm = build_records(case, torch.ones_like(case["logits"]) != 0, "CORR")
    classifier = GivenLogits(algorithm.network[1], case["logits"])
    algorithm.network = nn.Sequential(nn.Identity(), classifier)
    features = torch.zeros(len(case["logits"]), len(case["feature_mean"]), dtype=case.dtype)
    case.check(prediction=algorithm.predict(features))


@kind("RECORDS", "n batch_size upd_start t", "update")
def check_records_schedule(case: Case) -> None:
    """See at which steps the confidence moves, and when the schedule says that it does."""
    size = case.inputs["n"]
    everything = torch.ones(size, 2, dtype=torch.bool)
    algorithm = build(case, everything, **case.pick("batch_size", "upd_start"))
    batch = batch_of(everything[:1], {})
    logits, prior = torch.tensor([[[3.0, 0.0]]] * 2, dtype=case.dtype), torch.zeros(1, 2, dtype=case.dtype)

    def revises(step: int) -> bool:
        at_step(algorithm, step)
        set_state(algorithm, confidence=torch.full((size, 2), 0.5))
        algorithm.revise((logits, prior), batch)
        return bool((algorithm.confidence != 0.5).any())

    case.check(update=[revises(step) for step in case.inputs["t"]])
    (first,) = algorithm.phases().values()
    assert [revises(step) for step in (first - 1, first)] == [False, True]


@kind("RECORDS", "X S W b batches m upd_start", "losses W b confidence feature_mean")
def check_records_updates(case: Case) -> None:
    network = nn.Sequential(nn.Identity(), linear(case["W"], case["b"]))
    algorithm = build_linear(case, network=network)
    algorithm.feature_mean = torch.zeros(case["X"].shape[1], dtype=case.dtype)
    losses = [logged["loss"] for logged in make_updates(case, algorithm)]
    case.check(losses=losses, W=network[1].weight, b=network[1].bias)
    case.check(confidence=algorithm.confidence, feature_mean=algorithm.feature_mean)


# CroSel ---------------------------------------------------------------------------------------------------


@kind("CroSel", "logits candidates", "loss grad_logits")
def check_crosel_warm_up(case: Case) -> None:
    candidates = case.mask("candidates")
    algorithm = build(case, candidates)
    logits, others = with_gradient(case["logits"]), with_gradient(case["logits"] / 2)
    answer(algorithm, network=nn.ModuleList([InTurn(logits), InTurn(others)]))
    logged = algorithm.update(batch_of(candidates, distinct_views(case, len(candidates))))
    case.check(loss=logged["loss_1"], grad_logits=logits.grad)
    torch.testing.assert_close(logged["loss"], (logged["loss_1"] + logged["loss_2"]) / 2)


@kind("CroSel", "memory candidates select_threshold", "selected label ratio")
def check_crosel_selection(case: Case) -> None:
    """Give one network the case's records, and the other one records of nothing certain."""
    memory, candidates = case["memory"], case.mask("candidates")
    k, threshold = case.inputs.get("k", len(memory)), case.inputs["select_threshold"]
    for place in (0, 1):
        algorithm = build(case, candidates, k=k, select_threshold=threshold, warm_up=0)
        for probs in memory:
            vague = torch.full_like(probs, 1 / probs.shape[-1])
            algorithm.record(torch.stack([vague, probs] if place else [probs, vague], dim=1))
        algorithm.select()
        case.check(selected=algorithm.selected[:, place], label=algorithm.labels[:, place])
        case.check(ratio=algorithm.ratio[place])


def crosel_network(case: Case, logits: Sequence[Tensor] | None = None) -> nn.Module:
    """Stand in for one network in a main step: second batch, [strong; weak], mixed inputs."""
    labelled, mixed = logits or (case["logits_labelled"], case["logits_mixed"])
    return InTurn(labelled, torch.cat([case["logits_strong"], case["logits_weak"]]), mixed)


@kind(
    "CroSel",
    "logits_labelled selected label logits_* candidates mixing permutation sharpen_T ratio*",
    "targets_mixed loss loss_sel loss_mix grad_logits_*",
)
def check_crosel_step(case: Case) -> None:
    """Make an update; the flags and labels that network 1 learns from are those of network 2."""
    candidates, size, chosen = case.mask("candidates"), len(case["candidates"]), case.mask("selected")
    index = torch.arange(size), size + torch.arange(len(chosen))
    everyone = torch.cat([candidates, torch.ones(len(chosen), candidates.shape[1], dtype=torch.bool)])
    # The first of the names is the case's network, so that each of the two stands in its place once.
    for own, other in ((0, 1), (1, 0)):
        algorithm = build(case, everyone, warm_up=0, batch_size=size, **own_hparams(case))
        leaves = [with_gradient(case[f"logits_{name}"]) for name in ("labelled", "mixed")]
        networks = [crosel_network(case, leaves), crosel_network(case, [leaf.detach() for leaf in leaves])]
        answer(algorithm, network=nn.ModuleList([networks[own], networks[other]]))
        algorithm.ratio.copy_(torch.stack([case["ratio1"], case["ratio2"]]))
        algorithm.selected[index[1], other] = chosen
        algorithm.labels[index[1], other] = torch.tensor(case.inputs["label"])
        second = batch_of(everyone[index[1]], distinct_views(case, len(chosen)), index[1])
        batch = batch_of(candidates, distinct_views(case, size), index[0], second)
        shares, partners = [case.inputs["mixing"]] * 2, [case.inputs["permutation"]] * 2
        made: list[Any] = []
        passes = algorithm.passes
        algorithm.passes = lambda batch, made=made, passes=passes: made.append(passes(batch)) or made[-1]
        with drawing(shares, partners):
            logged = algorithm.update(batch)
        case.check(loss=logged[f"loss_{own + 1}"], loss_mix=logged["loss_mix"])
        case.check(targets_mixed=made[0][own].targets)
        case.check(grad_logits_labelled=leaves[0].grad, grad_logits_mixed=leaves[1].grad)
        loss = algorithm.loss_of_selected(made[0][own], other, batch)
        case.check(loss_sel=loss)
        assert algorithm.loss_of_selected(made[0][other], own, batch) == 0, "nothing is selected by the other"


@kind("CroSel", "logits_weak logits_strong candidates sharpen_T", "targets")
def check_crosel_targets(case: Case) -> None:
    """With a share of 1 for the row itself, the targets are not mixed."""
    candidates, size = case.mask("candidates"), len(case["candidates"])
    algorithm = build(case, candidates, sharpen_T=case.inputs["sharpen_T"])
    unread = torch.zeros(2 * size, candidates.shape[1], dtype=case.dtype)
    network = crosel_network(case, (unread[:size], unread))
    second = batch_of(candidates, distinct_views(case, size))
    batch = batch_of(candidates, distinct_views(case, size), second=second)
    with drawing([1.0], [range(2 * size)]):
        case.check(targets=algorithm.pass_network(network, batch).targets)


@kind("CroSel", "n batch_size warm_up updates", "records selections first_main_step")
def check_crosel_schedule(case: Case) -> None:
    """See before which steps records are made and labels selected, and which step first mixes inputs."""
    size = case.inputs["n"]
    everything = torch.ones(size, 3, dtype=torch.bool)
    algorithm = build(case, everything, lr=1e-6, **case.pick("batch_size", "warm_up"))
    features = torch.linspace(-1, 1, 2 * size, dtype=case.dtype).reshape(size, 2)
    algorithm.attach_inputs(GivenInputs(features))
    batch = batch_of(everything, features, second=batch_of(everything, features))
    records, selections = [], []
    record, select = algorithm.record, algorithm.select
    algorithm.record = lambda probs: records.append(algorithm.steps_done) or record(probs)
    algorithm.select = lambda: selections.append(algorithm.steps_done) or select()
    mixes = ["loss_mix" in algorithm.update(batch) for _ in range(case.inputs["updates"])]
    first_main = mixes.index(True) if any(mixes) else None
    case.check(records=records, selections=selections, first_main_step=first_main)
    assert algorithm.phases()["mixed inputs (warm_up)"] == first_main


@kind("CroSel", "logits1 logits2", "prediction")
def check_crosel_prediction(case: Case) -> None:
    algorithm = build(case, torch.ones_like(case["logits1"]) != 0)
    algorithm.network = nn.ModuleList([InTurn(case["logits1"]), InTurn(case["logits2"])])
    case.check(prediction=algorithm.predict(case["logits1"]))


@kind(
    "CroSel",
    "X S W1 b1 W2 b2 batches second_batches permutations mixings",
    "losses W1 b1 W2 b2 selected label ratio",
)
def check_crosel_updates(case: Case) -> None:
    networks = [linear(case[f"W{j}"], case[f"b{j}"]) for j in (1, 2)]
    algorithm = build_linear(case, network=nn.ModuleList(networks))
    algorithm.attach_inputs(GivenInputs(case["X"]))
    losses = []
    batches = zip(case.inputs["batches"], case.inputs["second_batches"], strict=True)
    draws = zip(case.inputs["mixings"], case.inputs["permutations"], strict=True)
    for (rows, second), (shares, partners) in zip(batches, draws, strict=True):
        with drawing(shares, partners):
            logged = algorithm.update(batch_in(case, rows, second))
        losses.append([float(logged["loss_1"]), float(logged["loss_2"])])
    case.check(losses=losses, selected=algorithm.selected.T, label=algorithm.labels.T, ratio=algorithm.ratio)
    for j, network in enumerate(networks, start=1):
        case.check(**{f"W{j}": network.weight, f"b{j}": network.bias})
