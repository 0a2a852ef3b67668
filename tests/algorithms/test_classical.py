"""Properties of the classical methods and of what they are made of."""

import numpy as np
import pytest
import scipy.special
import torch
from scipy.optimize import nnls
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from plench.algorithms.base import register
from plench.algorithms.classical.any_classifier import ClassifierAlgorithm, ClassifierEM
from plench.algorithms.classical.clpl import CLPL
from plench.algorithms.classical.crowd import DS_LR, MV_LR, infer_labels, share_votes
from plench.algorithms.classical.forests import (
    ET_AVG,
    ET_EM,
    RF_AVG,
    RF_EM,
    ForestShape,
    grow_and_predict,
    grow_forest,
    predict_forest,
)
from plench.algorithms.classical.ipal import IPAL, solve_nonnegative
from plench.algorithms.classical.lr_em import LR_EM
from plench.algorithms.classical.parts import find_neighbours, log_softmax, share_equally
from plench.algorithms.classical.pl_aknn import PL_AKNN
from plench.algorithms.classical.pl_ecoc import PL_ECOC
from plench.algorithms.classical.pl_knn import PL_KNN
from plench.algorithms.fitted import FittedAlgorithm, UnfitError
from plench.contract import AlgorithmUnderTest, checks, run_check
from plench.data.answers import Answers
from plench.errors import UsageError
from tests.probe import answer_by_labels, build_fitted, entry_of, fit, predict

SMALL = {"n_estimators": 8}


@register("Wrapped")
class Wrapped(ClassifierAlgorithm):
    """Logistic regression on averaged candidates."""

    def make_classifier(self, seed: int) -> LogisticRegression:
        return LogisticRegression(C=0.1, random_state=seed)


@register("WrappedEM")
class WrappedEM(ClassifierEM):
    """A support vector machine by EM: it has no probabilities, so that its margins stand for them."""

    def make_classifier(self, seed: int) -> SVC:
        return SVC(C=1.0, random_state=seed)


METHODS = [LR_EM, CLPL, PL_KNN, PL_AKNN, IPAL, PL_ECOC, ET_AVG, ET_EM, RF_AVG, RF_EM, Wrapped, WrappedEM]
SETTINGS = {ET_AVG: SMALL, ET_EM: SMALL, RF_AVG: SMALL, RF_EM: SMALL, LR_EM: {"rounds": 4}}


def draw_data(n: int = 80, D: int = 6, K: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw examples around class means, and candidates: the class, some others, and single ones."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, K, n)
    X = (random.normal(size=(K, D))[labels] + 0.7 * random.normal(size=(n, D))).astype(np.float32)
    S = random.random((n, K)) < 0.3
    S[::4] = False
    S[np.arange(n), labels] = True
    return X.astype(np.float64), S


def build_small(cls: type[FittedAlgorithm], X: np.ndarray, S: np.ndarray, seed: int = 3) -> FittedAlgorithm:
    return build_fitted(cls, X, S, seed=seed, **SETTINGS.get(cls, {}))


@pytest.mark.parametrize("cls", [Wrapped, WrappedEM])
def test_wrapped_classifiers_keep_the_contract(cls: type[FittedAlgorithm]) -> None:
    tested = AlgorithmUnderTest(entry_of(cls))
    for name, check in checks().items():
        if name != "trains_on_built_in_data":  # a minute for a support vector machine
            outcome = run_check(check, tested)
            assert outcome.status in ("passed", "skipped"), outcome


@pytest.mark.parametrize("cls", [LR_EM, CLPL, PL_KNN, PL_AKNN, IPAL])
def test_permuted_classes_permute_outputs(cls: type[FittedAlgorithm]) -> None:
    X, S = draw_data()
    order = np.array([3, 0, 4, 1, 2])
    plain, permuted = fit(build_small(cls, X, S)), fit(build_small(cls, X, S[:, order]))
    np.testing.assert_allclose(predict(permuted, X), predict(plain, X)[:, order], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("cls", METHODS)
def test_a_class_that_is_no_candidate_has_a_column_and_odd_sets_are_taken(cls: type[FittedAlgorithm]) -> None:
    X, S = draw_data()
    S[:, 2] = False
    S[~S.any(1), 0] = True
    logits = predict(fit(build_small(cls, X, S)), X)
    assert logits.shape == (80, 5)
    if cls is not PL_ECOC:  # an unused class is decoded by its random code there
        assert (logits.argmax(1) != 2).all()
    one = np.zeros_like(S)
    one[:, 1] = True
    if cls is PL_ECOC:
        with pytest.raises(UnfitError, match="candidate sets are too large for PL_ECOC"):
            fit(build_small(cls, X, np.ones_like(S)))
    else:
        assert (predict(fit(build_small(cls, X, one)), X).argmax(1) == 1).all()
        assert np.isfinite(predict(fit(build_small(cls, X, np.ones_like(S))), X)).all()


@pytest.mark.parametrize("cls", [PL_KNN, PL_AKNN, IPAL, CLPL, LR_EM, ET_EM, RF_EM, WrappedEM])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_few_examples_are_enough(cls: type[FittedAlgorithm], n: int) -> None:
    X, S = draw_data()
    assert np.isfinite(predict(fit(build_small(cls, X[:n], S[:n])), X)).all()


@pytest.mark.parametrize("cls", [LR_EM, ET_EM, RF_EM])
def test_equal_prior_weights_give_the_unweighted_method_back(cls: type[FittedAlgorithm]) -> None:
    X, S = draw_data()
    plain, weighted, skewed = (build_small(cls, X, S) for _ in range(3))
    weighted.weigh_candidates(torch.from_numpy(3.0 * S))
    skewed.weigh_candidates(torch.from_numpy(S * np.array([4.0, 1, 1, 1, 1])))
    for algorithm in (plain, weighted, skewed):
        algorithm.update()
        algorithm.update()
    np.testing.assert_allclose(weighted.soft_targets, plain.soft_targets, rtol=1e-9, atol=1e-12)
    assert skewed.soft_targets[:, 0].sum() > plain.soft_targets[:, 0].sum() + 0.5


def test_lr_em_on_single_candidates_is_logistic_regression() -> None:
    X, S = draw_data()
    one = np.eye(5)[S.argmax(1)]
    ours = predict(fit(build_fitted(LR_EM, X, one, rounds=3)), X)
    theirs = LogisticRegression(C=0.1, tol=1e-10, max_iter=10_000).fit(X, S.argmax(1))
    np.testing.assert_allclose(torch.from_numpy(ours).softmax(1), theirs.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize(("words", "count"), [("sqrt", 2), ("third", 2), ("log2", 2), ("all", 6)])
def test_forests_are_those_of_scikit_learn(bootstrap: bool, words: str, count: int) -> None:
    X, S = draw_data(150)
    q = share_equally(S)
    shape = ForestShape(20, 2, words, bootstrap)
    forest, outside = grow_forest(X, q, shape, 11)
    cls = RandomForestRegressor if bootstrap else ExtraTreesRegressor
    options = {"oob_score": True} if bootstrap else {}
    theirs = cls(20, min_samples_leaf=2, max_features=count, random_state=11, **options).fit(X, q)
    queries = np.random.default_rng(1).normal(size=(400, 6))
    ours = predict_forest(forest, queries, 5)
    np.testing.assert_allclose(ours, theirs.predict(queries), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(ours.sum(1), 1, rtol=1e-12)
    if bootstrap:
        assert outside is not None
        np.testing.assert_allclose(outside, theirs.oob_prediction_, rtol=1e-12, atol=1e-15)
    else:
        assert outside is None
    np.testing.assert_array_equal(grow_and_predict(X, q, queries, shape, 11), ours)


def test_forests_refuse_numbers_that_single_precision_has_no_room_for() -> None:
    X, S = draw_data(20)
    X[3, 1] = 1e39
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="infinity or a value too large"):
        grow_forest(X, share_equally(S), ForestShape(2, 1, "all", False), 0)


def test_logs_of_probabilities_are_scipys_bit_for_bit() -> None:
    scores = np.random.default_rng(4).normal(0, 30, size=(300, 16))
    np.testing.assert_array_equal(log_softmax(scores), scipy.special.log_softmax(scores, axis=1))


def test_an_example_in_every_bag_gets_equal_targets_again() -> None:
    X, S = draw_data(6)
    S[:] = True
    algorithm = build_fitted(RF_EM, X, S, n_estimators=1)
    algorithm.update()
    algorithm.update()
    _, outside = grow_forest(X, share_equally(S), algorithm.shape, algorithm.seed_for("fit", 1))
    assert outside is not None
    never = ~outside.any(1)
    assert never.any()
    np.testing.assert_allclose(algorithm.soft_targets[never], 0.2)


def test_thresholds_in_single_precision_send_every_number_the_same_way() -> None:
    # Neighbours among the numbers of single precision: halves between them are not such numbers.
    X = (np.float32(1) + np.arange(40, dtype=np.float32) * np.float32(2**-23))[:, None]
    q = np.eye(2)[np.arange(40) % 2]
    forest, _ = grow_forest(X, q, ForestShape(5, 1, "all", False), 0)
    theirs = ExtraTreesRegressor(5, max_features=1, random_state=0).fit(X, q)
    np.testing.assert_allclose(predict_forest(forest, X, 2), theirs.predict(X), atol=1e-15)


@pytest.mark.parametrize(("k", "D"), [(4, 9), (12, 30), (10, 5), (3, 1)])
def test_batched_least_squares_agree_with_scipy(k: int, D: int) -> None:
    random = np.random.default_rng(k)
    A, x = random.normal(size=(300, k, D)), random.normal(size=(300, D))
    A[:50, -1] = A[:50, 0]  # equal neighbours
    A[50:60] = 0.0
    x[60:70] = 0.0
    A[70:90] *= 1e6
    w = solve_nonnegative(A, x)
    assert (w >= 0).all()
    expected = [nnls(A[i].T, x[i])[0] for i in range(300)]
    left, least = (((x - np.einsum("nk,nkd->nd", v, A)) ** 2).sum(1) for v in (w, np.array(expected)))
    np.testing.assert_allclose(left, least, rtol=1e-7, atol=1e-9)
    if k <= D:
        np.testing.assert_allclose(w[90:], expected[90:], rtol=1e-6, atol=1e-9)


def test_neighbours_in_blocks_are_those_of_a_full_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    rows = random.integers(0, 3, (60, 2)).astype(np.float64)  # full of ties
    queries = random.integers(0, 3, (25, 2)).astype(np.float64)
    distances = np.sqrt(((queries[:, None] - rows) ** 2).sum(2))
    expected = np.argsort(distances, axis=1, kind="stable")[:, :7]
    monkeypatch.setattr("plench.algorithms.classical.parts.BLOCK", 400)
    index, found = find_neighbours(queries, rows, 7)
    np.testing.assert_array_equal(index, expected)
    np.testing.assert_array_equal(found, np.take_along_axis(distances, expected, 1))
    among = np.sqrt(((rows[:, None] - rows) ** 2).sum(2))
    np.fill_diagonal(among, np.inf)
    own, _ = find_neighbours(rows, rows, 59, first_excluded=0)
    np.testing.assert_array_equal(own, np.argsort(among, axis=1, kind="stable")[:, :59])


def make_answers(n: int, K: int, seed: int = 0) -> tuple[Answers, np.ndarray]:
    """Draw answers of five annotators, of whom one is always wrong by one class."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, K, n)
    item, annotator = (part.ravel() for part in np.meshgrid(np.arange(n), np.arange(5), indexing="ij"))
    given = np.where(random.random(len(item)) < 0.7, labels[item], random.integers(0, K, len(item)))
    given = np.where(annotator == 4, (labels[item] + 1) % K, given)
    return answer_by_labels(item, annotator, given, n, K), labels


def test_an_item_without_a_vote_may_be_anything() -> None:
    sets = np.array([[True, False, False], [False, False, False], [True, True, False]])
    answers = Answers(np.array([0, 1, 2]), np.array([0, 0, 1]), sets, 3)
    np.testing.assert_allclose(share_votes(answers), [[1, 0, 0], [1 / 3] * 3, [0.5, 0.5, 0]])
    assert np.isfinite(infer_labels(answers, 0.01, 10)).all()


@pytest.mark.parametrize("cls", [MV_LR, DS_LR])
def test_methods_of_answers_learn_from_answers_alone(cls: type[FittedAlgorithm]) -> None:
    answers, labels = make_answers(300, 4)
    random = np.random.default_rng(1)
    X = random.normal(size=(4, 6))[labels] + 0.5 * random.normal(size=(300, 6))
    everything = np.ones((300, 4), dtype=bool)
    algorithm = fit(build_fitted(cls, X, everything, answers=answers))
    assert (predict(algorithm, X).argmax(1) == labels).mean() > 0.85
    without = build_fitted(cls, X, everything)
    without.update()
    with pytest.raises(UsageError, match="answers of annotators"):
        without.update()


def test_no_round_after_the_last() -> None:
    algorithm = fit(build_fitted(PL_KNN, *draw_data()))
    with pytest.raises(ValueError, match="after the last of 1"):
        algorithm.update()


def test_a_fitted_method_stays_on_the_cpu_in_double_precision() -> None:
    algorithm = fit(build_fitted(CLPL, *draw_data())).to("meta").half()
    assert algorithm.targets.dtype == torch.float64
    assert algorithm.targets.device.type == "cpu"


def test_a_classifier_without_sample_weights_is_refused() -> None:
    from sklearn.neighbors import KNeighborsClassifier

    class Unweighted(Wrapped):
        def make_classifier(self, seed: int) -> KNeighborsClassifier:
            return KNeighborsClassifier()

    with pytest.raises(UsageError, match=r"KNeighborsClassifier cannot be wrapped.*sample_weight"):
        fit(build_fitted(Unweighted, *draw_data()))


def test_decision_values_of_pairs_of_classes_are_refused() -> None:
    from sklearn.svm import SVC

    class Pairs(Wrapped):
        def make_classifier(self, seed: int) -> SVC:
            return SVC(decision_function_shape="ovo")

    X, S = draw_data()
    for n_classes in (3, S.shape[1]):  # three classes have as many pairs
        few = S.copy()
        few[:, n_classes:] = 0
        few[few.sum(1) == 0, 0] = 1
        with pytest.raises(UsageError, match=r"SVC cannot be wrapped.*pairs of classes"):
            predict(fit(build_fitted(Pairs, X, few)), X)


def test_a_wrapped_classifier_equals_the_soft_form() -> None:
    X, S = draw_data()
    wrapped = predict(fit(build_fitted(Wrapped, X, S)), X)
    soft = predict(fit(build_fitted(LR_EM, X, S, rounds=1)), X)
    np.testing.assert_allclose(np.exp(wrapped), torch.from_numpy(soft).softmax(1), atol=5e-3)


def test_folds_keep_all_copies_of_an_example_together(monkeypatch: pytest.MonkeyPatch) -> None:
    X, S = draw_data()
    algorithm = build_fitted(WrappedEM, X, S)
    seen = []
    fit_classifier = WrappedEM.fit_classifier

    def note(self: WrappedEM, features: np.ndarray, targets: np.ndarray, seed: int) -> object:
        seen.append({row.tobytes() for row in features})
        return fit_classifier(self, features, targets, seed)

    monkeypatch.setattr(WrappedEM, "fit_classifier", note)
    algorithm.update()
    algorithm.update()
    everything = {row.tobytes() for row in X}
    whole, *folds = seen
    assert whole == everything
    assert len(folds) == 3
    left_out = [everything - fold for fold in folds]
    assert set.union(*left_out) == everything
    assert sum(map(len, left_out)) == len(everything)
