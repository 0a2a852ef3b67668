"""Adapters of the classical methods, which share one file of vectors, and of weighted candidates."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from plench.algorithms import Batch, find_algorithm
from plench.algorithms.classical.clpl import CLPL, candidate_loss, squared_hinge, total_loss
from plench.algorithms.classical.crowd import (
    count_votes_or_one as count_answers,
)
from plench.algorithms.classical.crowd import (
    estimate_labels,
    infer_labels,
    share_votes,
    take_majority,
)
from plench.algorithms.classical.forests import ET_AVG
from plench.algorithms.classical.ipal import (
    IPAL,
    balance_classes,
    choose_labels,
    measure_classes,
    normalise_weights,
    propagate,
    rate_classes,
    weigh_neighbours,
)
from plench.algorithms.classical.lr_em import LR_EM
from plench.algorithms.classical.parts import (
    LinearModel,
    LinearObjective,
    assign_folds,
    find_neighbours,
    logistic_loss,
    normalise_rows,
    restrict_softmax,
    sharpen,
    soft_target_loss,
    sum_candidate_surprise,
    take_logs,
)
from plench.algorithms.classical.pl_ecoc import assign_sides, decode_scores, draw_code, rate_columns
from plench.algorithms.classical.pl_knn import PL_KNN, vote_by_distance
from plench.data.answers import Answers
from plench.hparams import Choice, DataTraits, Hyperparameter, LogRange, draw_hparams
from plench.settings import seed_hash
from tests import probe
from tests.conformance.harness import Case, kind
from tests.probe import answer_by_labels, build_fitted, fit, predict

TIGHT = 1e-9


class TightLR(LR_EM):
    """LR_EM whose fits go on until nothing moves."""

    iterations = 20_000
    tolerance = TIGHT


class TightCLPL(CLPL):
    """CLPL whose fit goes on until nothing moves."""

    iterations = 20_000
    tolerance = TIGHT


def array(case: Case, key: str) -> np.ndarray:
    return np.asarray(case.inputs[key], dtype=np.float64)


def mask(case: Case, key: str = "S") -> np.ndarray:
    return array(case, key) != 0


def model_of(case: Case) -> LinearModel:
    return LinearModel(array(case, "W"), array(case, "b"))


@kind("LR_EM", "X q W b C", "J grad_*")
def check_m_step(case: Case) -> None:
    objective = LinearObjective(array(case, "X"), soft_target_loss(array(case, "q")), case.inputs["C"])
    value, weight_slope, bias_slope = objective.evaluate(model_of(case))
    case.check(J=value, grad_W=weight_slope, grad_b=bias_slope)


@kind("LR_EM", "X q W b C", "rows_* J")
def check_duplicates(case: Case) -> None:
    q = array(case, "q")
    example, label = np.nonzero(q)
    weight = q[example, label]
    case.check(rows_example=example, rows_label=label, rows_weight=weight)
    copies = np.eye(q.shape[1])[label] * weight[:, None]
    objective = LinearObjective(array(case, "X")[example], soft_target_loss(copies), case.inputs["C"])
    case.check(J=objective.evaluate(model_of(case))[0])


@kind("LR_EM", "z S", "q")
def check_e_step(case: Case) -> None:
    case.check(q=restrict_softmax(array(case, "z"), mask(case)))


@kind("LR_EM", "z V", "w q")
def check_weighted_e_step(case: Case) -> None:
    shares = normalise_rows(array(case, "V"))
    case.check(w=shares, q=restrict_softmax(array(case, "z"), shares))


@kind("LR_EM", "X S W b", "cc expected entropy grad_z")
def check_identity(case: Case) -> None:
    scores = model_of(case).score(array(case, "X"))
    q = restrict_softmax(scores, mask(case))
    expected, slope = soft_target_loss(q)(scores)
    entropy = -float((q * np.log(np.where(q > 0, q, 1))).sum())
    cc = sum_candidate_surprise(scores, mask(case))
    case.check(cc=cc, expected=expected, entropy=entropy, grad_z=slope)
    assert cc == pytest.approx(expected - entropy, rel=1e-12)


@kind("LR_EM", "X S C rounds", "J penalised_cc q W_last")
def check_rounds(case: Case) -> None:
    X, S, C = array(case, "X"), mask(case), case.inputs["C"]
    R = case.inputs["rounds"]
    # One round more, so that the last one asked for has an E-step too.
    for cls, tight in ((TightLR, True), (LR_EM, False)):
        algorithm = build_fitted(cls, X, S, C=C, rounds=R + 1)
        algorithm.update()
        values, penalised, targets = [], [], []
        for _ in range(R):
            q = algorithm.soft_targets.copy()
            penalised.append(algorithm.update()["loss"] * C * len(X))
            values.append(LinearObjective(X, soft_target_loss(q), C).evaluate(algorithm.model)[0])
            targets.append(algorithm.soft_targets.copy())
        if tight:
            case.check(J=values, penalised_cc=penalised, q=targets, W_last=algorithm.model.weight)
        assert np.all(np.array(values) <= np.array(case.expected["J"]) * (1 + 1e-4))
        assert np.all(np.diff(penalised) <= 1e-6 * np.abs(penalised[:-1]))


def logistic(margins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The second ψ of the vectors, which is not offered."""
    return np.logaddexp(0, -margins), -np.exp(-np.logaddexp(0, margins))


def nearest_psi(losses: Any, expected: Any) -> Any:
    """Return the ψ whose result is nearest to what a case expects: nothing else tells the cases apart."""
    return min((squared_hinge, logistic), key=lambda psi: np.abs(losses(psi) - np.asarray(expected)).max())


@kind("CLPL", "g S", "loss grad_g")
def check_clpl_loss(case: Case) -> None:
    g, S = array(case, "g"), mask(case)
    psi = nearest_psi(lambda psi: candidate_loss(g, S, psi)[0], case.expected["loss"])
    losses, slopes = candidate_loss(g, S, psi)
    case.check(loss=losses, grad_g=slopes)


@kind("CLPL", "X S W b C", "J grad_W grad_b")
def check_clpl_objective(case: Case) -> None:
    objective = LinearObjective(array(case, "X"), total_loss(mask(case)), case.inputs["C"])
    value, weight_slope, bias_slope = objective.evaluate(model_of(case))
    case.check(J=value, grad_W=weight_slope, grad_b=bias_slope)


@kind("CLPL", "X S C", "J W g")
def check_clpl_minimum(case: Case) -> None:
    X, S, C = array(case, "X"), mask(case), case.inputs["C"]
    zeros = LinearModel.zeros(S.shape[1], X.shape[1])

    def minimum(psi: Any) -> tuple[LinearModel, float]:
        model, scaled = LinearObjective(X, total_loss(S, psi), C).minimise(zeros, 20_000, TIGHT)
        return model, scaled * C * len(X)

    psi = nearest_psi(lambda psi: minimum(psi)[1], case.expected["J"])
    model, value = minimum(psi)
    case.check(J=value, W=model.weight, g=model.score(X))
    if psi is squared_hinge:
        tight, usual = fit(build_fitted(TightCLPL, X, S, C=C)), fit(build_fitted(CLPL, X, S, C=C))
        case.check(W=tight.fitted["weight"], g=predict(tight, X))
        assert usual.last_loss * C * len(X) <= case.expected["J"] * (1 + 1e-4)


@kind("PL_KNN", "X T k", "index distance")
def check_neighbours(case: Case) -> None:
    index, distance = find_neighbours(array(case, "T"), array(case, "X"), case.inputs["k"])
    assert index.tolist() == case.expected["index"]
    case.check(index=index, distance=distance)


@kind("PL_KNN", "X S T k", "votes p prediction")
def check_votes(case: Case) -> None:
    X, S, T, k = array(case, "X"), mask(case), array(case, "T"), case.inputs["k"]
    logits = predict(fit(build_fitted(PL_KNN, X, S, k=k)), T)
    index, distance = find_neighbours(T, X, min(k, len(X)))
    votes = vote_by_distance(distance, S[index])
    p = normalise_rows(votes)
    case.check(votes=votes, p=p, prediction=logits.argmax(1))
    np.testing.assert_array_equal(logits, take_logs(p))


@kind("PL_KNN", "distance S_neighbours", "votes")
def check_votes_of(case: Case) -> None:
    case.check(votes=vote_by_distance(array(case, "distance"), array(case, "S_neighbours")))


@kind("ET", "S", "q")
def check_initial(case: Case) -> None:
    case.check(q=build_fitted(ET_AVG, np.zeros((len(mask(case)), 2)), mask(case)).soft_targets)


@kind("ET", "P sharpening floor", "q")
def check_sharpening(case: Case) -> None:
    weights = mask(case) if "S" in case.inputs else normalise_rows(array(case, "V"))
    case.check(q=sharpen(array(case, "P"), weights, case.inputs["sharpening"], case.inputs["floor"]))


@kind("ET", "seed n folds round", "fold fit_seed fold_seeds")
def check_folds(case: Case) -> None:
    seed, number, folds = (case.inputs[key] for key in ("seed", "round", "folds"))
    case.check(
        fold=assign_folds(case.inputs["n"], folds, seed, number),
        fit_seed=seed_hash(seed, "fit", number),
        fold_seeds=[seed_hash(seed, "fold", number, j) for j in range(folds)],
    )


@kind("ET", "q left", "gini_decrease squared_error_decrease")
def check_gain(case: Case) -> None:
    q, left = array(case, "q"), mask(case, "left")
    parts = [q, q[left], q[~left]]
    gini, error = (
        [sum_impurity(part) for part in parts]
        for sum_impurity in (
            lambda part: len(part) * (1 - (part.mean(0) ** 2).sum()),
            lambda part: ((part - part.mean(0)) ** 2).sum(),
        )
    )
    case.check(
        gini_decrease=(gini[0] - gini[1] - gini[2]) / len(q),
        squared_error_decrease=(error[0] - error[1] - error[2]) / len(q),
    )


@kind("ET", "X S", "predict_X")
def check_in_sample(case: Case) -> None:
    X, S = array(case, "X"), mask(case)
    for seed, trees in ((0, 1), (7, 10)):
        logits = predict(fit(build_fitted(ET_AVG, X, S, seed=seed, n_estimators=trees)), X)
        case.check(predict_X=np.where(logits > math.log(2e-12), np.exp(logits), 0))


@kind("IPAL", "X k", "index w squared_residual")
def check_weights(case: Case) -> None:
    X = array(case, "X")
    index, _ = find_neighbours(X, X, case.inputs["k"], first_excluded=0)
    assert index.tolist() == case.expected["index"]
    w, residual = weigh_neighbours(X, X, index)
    A = X[index]
    slope = np.einsum("nkd,nd->nk", A, np.einsum("nk,nkd->nd", w, A) - X)
    assert (w >= 0).all()
    assert (slope >= -1e-9).all()
    assert np.abs(slope * w).max() < 1e-9
    np.testing.assert_allclose(w, [nnls(A[i].T, X[i])[0] for i in range(len(X))], atol=1e-9)
    case.check(index=index, w=w, squared_residual=residual)


@kind("IPAL", "index h S alpha iterations", "F")
def check_propagation(case: Case) -> None:
    index = np.asarray(case.inputs["index"])
    alpha, iterations = case.inputs["alpha"], case.inputs["iterations"]
    case.check(F=propagate(index, array(case, "h"), mask(case), alpha, iterations))


@kind("IPAL", "X S k alpha iterations", "h F mass label")
def check_ipal_fit(case: Case) -> None:
    X, S = array(case, "X"), mask(case)
    k, alpha, iterations = (case.inputs[key] for key in ("k", "alpha", "iterations"))
    index, _ = find_neighbours(X, X, k, first_excluded=0)
    h = normalise_weights(weigh_neighbours(X, X, index)[0])
    F = propagate(index, h, S, alpha, iterations)
    labels = fit(build_fitted(IPAL, X, S, k=k, alpha=alpha, iterations=iterations)).fitted["labels"]
    case.check(h=h, F=F, mass=balance_classes(F, S), label=labels)
    assert choose_labels(F, S).tolist() == case.expected["label"]


@kind("IPAL", "X S T k alpha iterations", "index w r p")
def check_ipal_predict(case: Case) -> None:
    X, S, T = array(case, "X"), mask(case), array(case, "T")
    k, alpha, iterations = (case.inputs[key] for key in ("k", "alpha", "iterations"))
    algorithm = fit(build_fitted(IPAL, X, S, k=k, alpha=alpha, iterations=iterations))
    index, _ = find_neighbours(T, X, k)
    w, _ = weigh_neighbours(T, X, index)
    r = measure_classes(T, X, algorithm.fitted["labels"], index, w, S.shape[1])
    case.check(index=index, w=w, r=r, p=rate_classes(r))
    np.testing.assert_allclose(predict(algorithm, T), take_logs(rate_classes(r)), rtol=1e-12)


@kind("PL_ECOC", "S seed length min_fraction", "M membership")
def check_code(case: Case) -> None:
    S = mask(case)
    seed = seed_hash(case.inputs["seed"], "code")
    codes = draw_code(S, case.inputs["length"], case.inputs["min_fraction"], seed)
    case.check(M=codes, membership=assign_sides(S, codes))


@kind("PL_ECOC", "g M S", "G")
def check_performance(case: Case) -> None:
    case.check(G=rate_columns(array(case, "g"), array(case, "M").astype(int), mask(case)))


@kind("PL_ECOC", "g M G", "z")
def check_decoding(case: Case) -> None:
    case.check(z=decode_scores(array(case, "g"), array(case, "M").astype(int), array(case, "G")))


@kind("PL_ECOC", "X t w b C", "J grad_w grad_b")
def check_binary(case: Case) -> None:
    objective = LinearObjective(array(case, "X"), logistic_loss(array(case, "t")), case.inputs["C"])
    model = LinearModel(array(case, "w")[None], np.array([case.inputs["b"]]))
    value, weight_slope, bias_slope = objective.evaluate(model)
    case.check(J=value, grad_w=weight_slope[0], grad_b=bias_slope[0])


def answers_of(case: Case) -> Answers:
    return answer_by_labels(*(case.inputs[key] for key in ("item", "annotator", "label", "items", "classes")))


@kind("CROWD", "item annotator label items classes", "V majority shares")
def check_votes_of_answers(case: Case) -> None:
    answers = answers_of(case)
    case.check(V=count_answers(answers), majority=take_majority(answers), shares=share_votes(answers))


@kind("CROWD", "item annotator label smoothing iterations", "q pi theta objective")
def check_dawid_skene(case: Case) -> None:
    answers, iterations = answers_of(case), case.inputs["iterations"]
    estimates = [
        estimate
        for _, estimate in zip(
            range(iterations), estimate_labels(answers, case.inputs["smoothing"]), strict=False
        )
    ]
    last = estimates[-1]
    objectives = [estimate.objective for estimate in estimates]
    case.check(q=last.posterior, pi=last.prior, theta=last.confusion, objective=objectives)
    assert (np.diff(objectives) >= 0).all()
    q = infer_labels(answers, case.inputs["smoothing"], iterations, tolerance=0)
    np.testing.assert_array_equal(q, last.posterior)


def build_weighted(name: str, weights: np.ndarray) -> tuple[Any, Batch]:
    """Build an algorithm with weighted candidates, and the batch of all examples."""
    given = torch.from_numpy(weights)
    algorithm = probe.build(name, given > 0)
    algorithm.weigh_candidates(given)
    return algorithm, Batch(torch.arange(len(given)), given > 0, {}, weights=given)


@kind("CROWD", "z V", "w loss grad_z")
def check_weighted_cc(case: Case) -> None:
    z, w = array(case, "z"), normalise_rows(array(case, "V"))
    q = restrict_softmax(z, w)
    _, slope = soft_target_loss(q)(z)
    case.check(w=w, loss=sum_candidate_surprise(z, w) / len(z), grad_z=slope / len(z))
    algorithm, batch = build_weighted("CC", w)
    losses, gradient = probe.evaluate(algorithm, case["z"], batch)
    case.check(loss=losses["loss"], grad_z=gradient)


@kind("CROWD", "z V", "c0 loss revised_*")
def check_weighted_proden(case: Case) -> None:
    z, w = array(case, "z"), normalise_rows(array(case, "V"))
    case.check(revised_initial=restrict_softmax(z, w > 0))
    algorithm, batch = build_weighted("PRODEN", w)
    losses, _ = probe.evaluate(algorithm, case["z"], batch)
    case.check(c0=algorithm.confidence, loss=losses["loss"])
    algorithm.revise(case["z"], batch)
    case.check(revised_prior=algorithm.confidence)


@kind("CONTRACT", "p", "z")
def check_logs(case: Case) -> None:
    case.check(z=take_logs(array(case, "p")))


@kind("CONTRACT", "S", "z")
def check_prior(case: Case) -> None:
    algorithm = build_fitted(PL_KNN, np.zeros((len(mask(case)), 2)), mask(case))
    algorithm.update()
    case.check(z=predict(algorithm, np.ones((1, 2)))[0])


@kind("CONTRACT", "space", "h*_t*")
def check_draws(case: Case) -> None:
    def declare(name: str, space: list[Any]) -> Hyperparameter:
        kind, *values = space
        search = LogRange(*values) if kind == "log" else Choice(*values[0])
        return Hyperparameter(name, search.draw(np.random.RandomState(0)), "", search)

    for key, expected in case.expected.items():
        h, t = (int(part[1:]) for part in key.split("_"))
        for method, values in expected.items():
            space = [declare(name, found) for name, found in case.inputs["space"][method].items()]
            drawn = draw_hparams(space, DataTraits("tabular"), h, t)
            own = find_algorithm(method).card.hyperparameters
            ours = draw_hparams(own, DataTraits("tabular"), h, t)
            for name, value in values.items():
                assert drawn[name] == (pytest.approx(value, rel=1e-10) if isinstance(value, float) else value)
                assert ours[name] == drawn[name]
        case.checked.add(key)
