"""Adapters of the methods of 2025 and 2026: VIPLL, CEL and PL_AKNN."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms.cel import compare_with_prototypes
from plench.algorithms.classical.pl_aknn import (
    PL_AKNN,
    eliminate,
    place_queries,
    smooth_rows,
    squared_bound,
)
from plench.algorithms.vipll import Generator, concentrate, find_prior, infer_terms
from tests.conformance.classical import array, mask
from tests.conformance.harness import (
    Case,
    InTurn,
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
from tests.formulas import best_candidate
from tests.probe import GivenInputs, answer, at_step, batch_of, build_fitted, fit, predict, set_state

LAYERS = ("enc", "mean", "logvar", "dec", "out")
OF_GENERATOR = " ".join(f"{name}_W {name}_b" for name in LAYERS)


# VIPLL ----------------------------------------------------------------------------------------------------


def build_generator(case: Case, width: int, num_classes: int) -> Generator:
    """Return a generator with the case's weights."""
    hidden, latent = case["mean_W"].shape[1], case["mean_W"].shape[0]
    generator = Generator((width,), num_classes, latent, hidden).to(case.dtype)
    with torch.no_grad():
        for name in LAYERS:
            getattr(generator, name).weight.copy_(case[f"{name}_W"])
            getattr(generator, name).bias.copy_(case[f"{name}_b"])
    return generator


def weights_of(generator: Generator) -> dict[str, Tensor]:
    layers = {name: getattr(generator, name) for name in LAYERS}
    weights = {f"{name}_W": layer.weight for name, layer in layers.items()}
    return {**weights, **{f"{name}_b": layer.bias for name, layer in layers.items()}}


def build_vipll(case: Case, candidates: Tensor, step: int, **hparams: Any) -> Any:
    """Build VIPLL at a step of a run of 3 · 5 steps, whose main phase starts with step 5."""
    algorithm = build(case, candidates, max_steps=15, **hparams)
    at_step(algorithm, step)
    return algorithm


@kind("VIPLL", "candidates_train", "prior")
def check_vipll_prior(case: Case) -> None:
    candidates = case.mask("candidates_train")
    exact = find_prior(candidates)
    assert abs(float(exact.sum()) - 1) < 1e-15
    case.check(prior=exact)
    torch.testing.assert_close(build(case, candidates).prior, exact.to(case.dtype), rtol=1e-7, atol=0)


@kind("VIPLL", "X", "low high unit")
def check_vipll_unit_scale(case: Case) -> None:
    inputs = case["X"]
    algorithm = build(case, torch.ones(len(inputs), 2, dtype=torch.bool), width=inputs.shape[1])
    algorithm.attach_inputs(GivenInputs(inputs))
    generator = algorithm.generator
    case.check(low=generator.low, high=generator.high, unit=generator.to_unit(inputs))


@kind(
    "VIPLL",
    "logits weights log_likelihood prior likelihood_weight prior_weight",
    "alpha term_* loss grad_logits",
)
def check_vipll_loss(case: Case) -> None:
    """The terms alone, and the loss of a main step, to which a generator without loss adds nothing."""
    logits, weights = with_gradient(case["logits"]), case["weights"]
    terms = infer_terms(logits, weights, case["log_likelihood"], case["prior"])
    case.check(alpha=concentrate(logits), term_q=terms.labels, term_prior=terms.prior)
    case.check(term_x=terms.inputs, term_s=terms.sets)
    algorithm = build_vipll(case, weights > 0, 5, **own_hparams(case))
    set_state(algorithm, label_weights=weights, prior=case["prior"])
    nothing = torch.zeros((), dtype=case.dtype)
    outputs = (logits, case["log_likelihood"], nothing, nothing)
    logged = algorithm.losses(outputs, batch_of(weights > 0, logits))
    logged["loss"].backward()
    case.check(loss=logged["loss"], grad_logits=logits.grad)
    assert torch.equal(logged["loss"], logged["loss_label"])
    assert torch.equal(logged["term_x"], terms.inputs)


@kind("VIPLL", "logits candidates", "weights_after")
def check_vipll_revision(case: Case) -> None:
    candidates, logits = case.mask("candidates"), case["logits"]
    algorithm = build_vipll(case, candidates, 5)
    algorithm.revise((logits, None, None, None), batch_of(candidates, logits))
    case.check(weights_after=algorithm.label_weights)
    assert (algorithm.label_weights.amax(-1) == 1).all()


@kind("VIPLL", f"unit candidates latent_noise sigma {OF_GENERATOR}", "log_likelihood")
def check_vipll_likelihood(case: Case) -> None:
    """Pairs beyond the candidates, as devices that cannot count them have, change nothing."""
    units, candidates = case["unit"], case.mask("candidates")
    generator = build_generator(case, units.shape[1], candidates.shape[1])
    generator.sigma.fill_(case.inputs["sigma"])
    for pairs in (int(candidates.sum()), candidates.numel()):
        found = generator.log_likelihoods(units, candidates, case["latent_noise"], pairs)
        case.check(log_likelihood=found)


@kind("VIPLL", f"unit labels generator_noise {OF_GENERATOR}", "loss_rec loss_kl loss_gen grad_*")
def check_vipll_generator_loss(case: Case) -> None:
    units, labels = case["unit"], case["labels"]
    generator = build_generator(case, units.shape[1], labels.shape[1])
    error, divergence = generator.losses(units, labels, case["generator_noise"])
    (error + divergence).backward()
    case.check(loss_rec=error, loss_kl=divergence, loss_gen=error + divergence)
    case.check(**{f"grad_{name}": weight.grad for name, weight in weights_of(generator).items()})


@kind("VIPLL", "rmse", "sigma")
def check_vipll_sigma(case: Case) -> None:
    errors, found = case["rmse"], []
    algorithm = build(case, torch.ones(1, 2, dtype=torch.bool), max_steps=3 * len(errors))
    for step, error in enumerate(errors):
        at_step(algorithm, step)
        algorithm.revise((None, None, error.square(), None), batch_of(torch.ones(1, 2) > 0, errors))
        found.append(float(algorithm.generator.sigma))
    case.check(sigma=found)


@kind("VIPLL", "max_steps", "first_main_step")
def check_vipll_schedule(case: Case) -> None:
    everything = torch.ones(1, 2, dtype=torch.bool)
    runs = [build(case, everything, max_steps=steps) for steps in case.inputs["max_steps"]]
    case.check(first_main_step=[next(iter(run.phases().values())) for run in runs])


@kind("VIPLL", "logits1 logits2", "prediction")
def check_vipll_prediction(case: Case) -> None:
    algorithm = build(case, case["logits1"] < torch.inf)
    answer(algorithm, network=InTurn(case["logits1"]), twin=InTurn(case["logits2"]))
    prediction = algorithm.predict(case["logits1"])
    case.check(prediction=prediction)
    alpha = concentrate((case["logits1"] + case["logits2"]) / 2)
    torch.testing.assert_close(prediction.softmax(-1), alpha / alpha.sum(-1, keepdim=True))


@kind(
    "VIPLL", f"X S W1 b1 W2 b2 batches generator_noise input_noise latent_noise max_steps {OF_GENERATOR}", "*"
)
def check_vipll_updates(case: Case) -> None:
    networks = [linear(case[f"W{j}"], case[f"b{j}"]) for j in (1, 2)]
    generator = build_generator(case, case["X"].shape[1], case["S"].shape[1])
    algorithm = build_linear(
        case, case.inputs["max_steps"], network=networks[0], twin=networks[1], generator=generator
    )
    algorithm.attach_inputs(GivenInputs(case["X"]))

    def draw(x: Tensor) -> tuple[Tensor | None, ...]:
        step, main = algorithm.steps_done, algorithm.steps_done - algorithm.first_main_step
        given = (case["input_noise"][main], case["latent_noise"][main]) if main >= 0 else (None, None)
        return *given, case["generator_noise"][step]

    algorithm.draw_noise = draw
    case.check(losses=[float(logged["loss"]) for logged in make_updates(case, algorithm)])
    case.check(weights=algorithm.label_weights, sigma=generator.sigma, **weights_of(generator))
    for j, network in enumerate(networks, start=1):
        case.check(**{f"W{j}": network.weight, f"b{j}": network.bias})


# CEL ------------------------------------------------------------------------------------------------------


@kind(
    "CEL",
    "logits_weak logits_strong embeddings_*_raw candidates confidence prototypes late",
    "pseudo_label prototypes_after loss* confidence_after grad_*",
)
def check_cel_step(case: Case) -> None:
    """Make an update on two views; embeddings follow the logits in what the network answers."""
    candidates, width = case.mask("candidates"), case["prototypes"].shape[1]
    leaves = {name: with_gradient(case[f"logits_{name}"]) for name in ("weak", "strong")}
    raw = {name: with_gradient(case[f"embeddings_{name}_raw"]) for name in leaves}
    algorithm = build(case, candidates, max_steps=2, embed_dim=width, **own_hparams(case))
    at_step(algorithm, case.inputs["late"])
    set_state(algorithm, confidence=case["confidence"], prototypes=case["prototypes"])
    answers = [torch.cat([leaves[name], raw[name].flatten(1)], -1) for name in leaves]
    answer(algorithm, network=InTurn(*answers))
    logged = algorithm.update(batch_of(candidates, distinct_views(case, len(candidates))))
    case.check(**logged, prototypes_after=algorithm.prototypes, confidence_after=algorithm.confidence)
    for name in leaves:
        case.check(**{f"grad_logits_{name}": leaves[name].grad, f"grad_embeddings_{name}": raw[name].grad})
    labels = best_candidate(case["logits_weak"], candidates)
    near, far = compare_with_prototypes(
        unit(torch.stack([value.detach() for value in raw.values()])), labels, algorithm.prototypes
    )
    case.check(pseudo_label=labels, loss_pdl=(1 - near + case.inputs["gamma2"] * far).sum())
    assert ("loss_pdl" in logged) == bool(case.inputs["late"])


@kind("CEL", "X S W b P p batches max_steps", "losses W b P p confidence prototypes")
def check_cel_updates(case: Case) -> None:
    num_classes, width = len(case["W"]), case["X"].shape[1]
    heads = linear(torch.cat([case["W"], case["P"]]), torch.cat([case["b"], case["p"]]))
    hparams = {"embed_dim": len(case["P"]) // num_classes, **updates_hparams(case)}
    algorithm = build(case, case.mask("S"), width=width, max_steps=case.inputs["max_steps"], **hparams)
    answer(algorithm, learns=True, network=heads)
    case.check(losses=[float(logged["loss"]) for logged in make_updates(case, algorithm)])
    case.check(W=heads.weight[:num_classes], b=heads.bias[:num_classes])
    case.check(P=heads.weight[num_classes:], p=heads.bias[num_classes:])
    case.check(confidence=algorithm.confidence, prototypes=algorithm.prototypes)


# PL_AKNN --------------------------------------------------------------------------------------------------


def check_elimination(case: Case, index: np.ndarray) -> None:
    """Compare what the rule says of given neighbours; survivors stand above all labels that left.

    A query is decided by the first number of neighbours after which one label is left.
    """
    candidates = mask(case)
    bound = squared_bound(case.inputs["threshold"], *candidates.shape)
    counts = range(1, index.shape[1] + 1)
    survivors = [eliminate(candidates, index[:, :k], bound) > -bound / 2 for k in counts]
    decided = np.stack([left.sum(1) == 1 for left in survivors])
    steps = np.where(decided.any(0), decided.argmax(0) + 1, index.shape[1])
    scores = eliminate(candidates, index, bound)
    case.check(scores=scores, survivors=survivors[-1], steps=steps, prediction=scores.argmax(1))


@kind("PL_AKNN", "S index threshold", "steps survivors scores prediction")
def check_aknn_rule(case: Case) -> None:
    check_elimination(case, np.asarray(case.inputs["index"]))


@kind("PL_AKNN", "X T", "smoothed rows queries")
def check_aknn_geometry(case: Case) -> None:
    smoothed, radii = smooth_rows(array(case, "X"))
    queries = place_queries(array(case, "T"), smoothed)
    case.check(smoothed=smoothed, rows=smoothed / radii[:, None], queries=queries)


@kind("PL_AKNN", "X S T neighbours threshold geometry", "index steps survivors scores prediction")
def check_aknn_whole(case: Case) -> None:
    X, T = array(case, "X"), array(case, "T")
    hparams = case.pick("neighbours", "threshold", "geometry")
    algorithm: Any = fit(build_fitted(PL_AKNN, X, mask(case), **hparams))
    index = algorithm.find_nearest(T)
    assert index.tolist() == case.expected["index"]
    case.check(index=index, scores=predict(algorithm, T))
    check_elimination(case, index)
