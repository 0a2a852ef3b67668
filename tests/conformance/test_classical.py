"""Vectors of the classical methods, one file for all of them."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import nnls

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
from plench.algorithms.fitted import FittedAlgorithm
from plench.data.answers import Answers
from plench.hparams import Choice, DataTraits, Hyperparameter, LogRange, draw_hparams
from plench.settings import seed_hash
from tests.conformance.harness import Case, Kind, list_cases, run_adapter
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


def check_m_step(case: Case) -> None:
    objective = LinearObjective(array(case, "X"), soft_target_loss(array(case, "q")), case.inputs["C"])
    value, weight_slope, bias_slope = objective.evaluate(model_of(case))
    case.check(J=value, grad_W=weight_slope, grad_b=bias_slope)


def check_duplicates(case: Case) -> None:
    q = array(case, "q")
    example, label = np.nonzero(q)
    weight = q[example, label]
    case.check(rows_example=example, rows_label=label, rows_weight=weight)
    copies = np.eye(q.shape[1])[label] * weight[:, None]
    objective = LinearObjective(array(case, "X")[example], soft_target_loss(copies), case.inputs["C"])
    case.check(J=objective.evaluate(model_of(case))[0])


def check_e_step(case: Case) -> None:
    case.check(q=restrict_softmax(array(case, "z"), mask(case)))


def check_weighted_e_step(case: Case) -> None:
    shares = normalise_rows(array(case, "V"))
    case.check(w=shares, q=restrict_softmax(array(case, "z"), shares))


def check_identity(case: Case) -> None:
    scores = model_of(case).score(array(case, "X"))
    q = restrict_softmax(scores, mask(case))
    expected, slope = soft_target_loss(q)(scores)
    entropy = -float((q * np.log(np.where(q > 0, q, 1))).sum())
    cc = sum_candidate_surprise(scores, mask(case))
    case.check(cc=cc, expected=expected, entropy=entropy, grad_z=slope)
    assert cc == pytest.approx(expected - entropy, rel=1e-12)


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


def check_clpl_loss(case: Case) -> None:
    g, S = array(case, "g"), mask(case)
    psi = nearest_psi(lambda psi: candidate_loss(g, S, psi)[0], case.expected["loss"])
    losses, slopes = candidate_loss(g, S, psi)
    case.check(loss=losses, grad_g=slopes)


def check_clpl_objective(case: Case) -> None:
    objective = LinearObjective(array(case, "X"), total_loss(mask(case)), case.inputs["C"])
    value, weight_slope, bias_slope = objective.evaluate(model_of(case))
    case.check(J=value, grad_W=weight_slope, grad_b=bias_slope)


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


def check_neighbours(case: Case) -> None:
    index, distance = find_neighbours(array(case, "T"), array(case, "X"), case.inputs["k"])
    assert index.tolist() == case.expected["index"]
    case.check(index=index, distance=distance)


def check_votes(case: Case) -> None:
    X, S, T, k = array(case, "X"), mask(case), array(case, "T"), case.inputs["k"]
    logits = predict(fit(build_fitted(PL_KNN, X, S, k=k)), T)
    index, distance = find_neighbours(T, X, min(k, len(X)))
    votes = vote_by_distance(distance, S[index])
    p = normalise_rows(votes)
    case.check(votes=votes, p=p, prediction=logits.argmax(1))
    np.testing.assert_array_equal(logits, take_logs(p))


def check_votes_of(case: Case) -> None:
    case.check(votes=vote_by_distance(array(case, "distance"), array(case, "S_neighbours")))


def check_initial(case: Case) -> None:
    case.check(q=build_fitted(ET_AVG, np.zeros((len(mask(case)), 2)), mask(case)).soft_targets)


def check_sharpening(case: Case) -> None:
    weights = mask(case) if "S" in case.inputs else normalise_rows(array(case, "V"))
    case.check(q=sharpen(array(case, "P"), weights, case.inputs["sharpening"], case.inputs["floor"]))


def check_folds(case: Case) -> None:
    seed, number, folds = (case.inputs[key] for key in ("seed", "round", "folds"))
    case.check(
        fold=assign_folds(case.inputs["n"], folds, seed, number),
        fit_seed=seed_hash(seed, "fit", number),
        fold_seeds=[seed_hash(seed, "fold", number, j) for j in range(folds)],
    )


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


def check_in_sample(case: Case) -> None:
    X, S = array(case, "X"), mask(case)
    for seed, trees in ((0, 1), (7, 10)):
        logits = predict(fit(build_fitted(ET_AVG, X, S, seed=seed, n_estimators=trees)), X)
        case.check(predict_X=np.where(logits > math.log(2e-12), np.exp(logits), 0))


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


def check_propagation(case: Case) -> None:
    index = np.asarray(case.inputs["index"])
    alpha, iterations = case.inputs["alpha"], case.inputs["iterations"]
    case.check(F=propagate(index, array(case, "h"), mask(case), alpha, iterations))


def check_ipal_fit(case: Case) -> None:
    X, S = array(case, "X"), mask(case)
    k, alpha, iterations = (case.inputs[key] for key in ("k", "alpha", "iterations"))
    index, _ = find_neighbours(X, X, k, first_excluded=0)
    h = normalise_weights(weigh_neighbours(X, X, index)[0])
    F = propagate(index, h, S, alpha, iterations)
    labels = fit(build_fitted(IPAL, X, S, k=k, alpha=alpha, iterations=iterations)).fitted["labels"]
    case.check(h=h, F=F, mass=balance_classes(F, S), label=labels)
    assert choose_labels(F, S).tolist() == case.expected["label"]


def check_ipal_predict(case: Case) -> None:
    X, S, T = array(case, "X"), mask(case), array(case, "T")
    k, alpha, iterations = (case.inputs[key] for key in ("k", "alpha", "iterations"))
    algorithm = fit(build_fitted(IPAL, X, S, k=k, alpha=alpha, iterations=iterations))
    index, _ = find_neighbours(T, X, k)
    w, _ = weigh_neighbours(T, X, index)
    r = measure_classes(T, X, algorithm.fitted["labels"], index, w, S.shape[1])
    case.check(index=index, w=w, r=r, p=rate_classes(r))
    np.testing.assert_allclose(predict(algorithm, T), take_logs(rate_classes(r)), rtol=1e-12)


def check_code(case: Case) -> None:
    S = mask(case)
    seed = seed_hash(case.inputs["seed"], "code")
    codes = draw_code(S, case.inputs["length"], case.inputs["min_fraction"], seed)
    case.check(M=codes, membership=assign_sides(S, codes))


def check_performance(case: Case) -> None:
    case.check(G=rate_columns(array(case, "g"), array(case, "M").astype(int), mask(case)))


def check_decoding(case: Case) -> None:
    case.check(z=decode_scores(array(case, "g"), array(case, "M").astype(int), array(case, "G")))


def check_binary(case: Case) -> None:
    objective = LinearObjective(array(case, "X"), logistic_loss(array(case, "t")), case.inputs["C"])
    model = LinearModel(array(case, "w")[None], np.array([case.inputs["b"]]))
    value, weight_slope, bias_slope = objective.evaluate(model)
    case.check(J=value, grad_w=weight_slope[0], grad_b=bias_slope[0])


def answers_of(case: Case) -> Answers:
    return answer_by_labels(*(case.inputs[key] for key in ("item", "annotator", "label", "items", "classes")))


def check_votes_of_answers(case: Case) -> None:
    answers = answers_of(case)
    case.check(V=count_answers(answers), majority=take_majority(answers), shares=share_votes(answers))


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


def check_weighted_cc(case: Case) -> None:
    z, w = array(case, "z"), normalise_rows(array(case, "V"))
    q = restrict_softmax(z, w)
    _, slope = soft_target_loss(q)(z)
    case.check(w=w, loss=sum_candidate_surprise(z, w) / len(z), grad_z=slope / len(z))


def check_weighted_proden(case: Case) -> None:
    z, w = array(case, "z"), normalise_rows(array(case, "V"))
    loss, _ = soft_target_loss(w)(z)
    case.check(
        c0=w,
        loss=loss / len(z),
        revised_initial=restrict_softmax(z, w > 0),
        revised_prior=restrict_softmax(z, w),
    )


def check_logs(case: Case) -> None:
    case.check(z=take_logs(array(case, "p")))


def check_prior(case: Case) -> None:
    algorithm = build_fitted(PL_KNN, np.zeros((len(mask(case)), 2)), mask(case))
    algorithm.update()
    case.check(z=predict(algorithm, np.ones((1, 2)))[0])


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
            own = METHODS[method].card.hyperparameters
            ours = draw_hparams(own, DataTraits("tabular"), h, t)
            for name, value in values.items():
                assert drawn[name] == (pytest.approx(value, rel=1e-10) if isinstance(value, float) else value)
                assert ours[name] == drawn[name]
        case.checked.add(key)


def find_methods() -> dict[str, type[FittedAlgorithm]]:
    from plench.algorithms.classical import crowd, forests, pl_ecoc

    classes = (
        LR_EM,
        CLPL,
        PL_KNN,
        IPAL,
        forests.ET_AVG,
        forests.ET_EM,
        forests.RF_AVG,
        forests.RF_EM,
        pl_ecoc.PL_ECOC,
        crowd.MV_LR,
        crowd.DS_LR,
    )
    return {cls.card.name: cls for cls in classes}


METHODS = find_methods()

KINDS = {
    "LR_EM": [
        Kind(check_m_step, "X q W b C", "J grad_*"),
        Kind(check_duplicates, "X q W b C", "rows_* J"),
        Kind(check_e_step, "z S", "q"),
        Kind(check_weighted_e_step, "z V", "w q"),
        Kind(check_identity, "X S W b", "cc expected entropy grad_z"),
        Kind(check_rounds, "X S C rounds", "J penalised_cc q W_last"),
    ],
    "CLPL": [
        Kind(check_clpl_loss, "g S", "loss grad_g"),
        Kind(check_clpl_objective, "X S W b C", "J grad_W grad_b"),
        Kind(check_clpl_minimum, "X S C", "J W g"),
    ],
    "PL_KNN": [
        Kind(check_neighbours, "X T k", "index distance"),
        Kind(check_votes, "X S T k", "votes p prediction"),
        Kind(check_votes_of, "distance S_neighbours", "votes"),
    ],
    "ET": [
        Kind(check_initial, "S", "q"),
        Kind(check_sharpening, "P sharpening floor", "q"),
        Kind(check_folds, "seed n folds round", "fold fit_seed fold_seeds"),
        Kind(check_gain, "q left", "gini_decrease squared_error_decrease"),
        Kind(check_in_sample, "X S", "predict_X"),
    ],
    "IPAL": [
        Kind(check_weights, "X k", "index w squared_residual"),
        Kind(check_propagation, "index h S alpha iterations", "F"),
        Kind(check_ipal_fit, "X S k alpha iterations", "h F mass label"),
        Kind(check_ipal_predict, "X S T k alpha iterations", "index w r p"),
    ],
    "PL_ECOC": [
        Kind(check_code, "S seed length min_fraction", "M membership"),
        Kind(check_performance, "g M S", "G"),
        Kind(check_decoding, "g M G", "z"),
        Kind(check_binary, "X t w b C", "J grad_w grad_b"),
    ],
    "CROWD": [
        Kind(check_votes_of_answers, "item annotator label items classes", "V majority shares"),
        Kind(check_dawid_skene, "item annotator label smoothing iterations", "q pi theta objective"),
        Kind(check_weighted_cc, "z V", "w loss grad_z"),
        Kind(check_weighted_proden, "z V", "c0 loss revised_*"),
    ],
    "CONTRACT": [
        Kind(check_logs, "p", "z"),
        Kind(check_prior, "S", "z"),
        Kind(check_draws, "space", "h*_t*"),
    ],
}


@pytest.mark.parametrize("case", list_cases(["classical"]))
def test_vector(case: Case) -> None:
    run_adapter(KINDS[case.raw["method"]], case)
