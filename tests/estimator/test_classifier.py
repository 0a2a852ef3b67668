"""The estimator: forms of input, scikit-learn's contract, and the same weights as runs."""

import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.fixes import parse_version

import plench
from plench import PartialLabelClassifier
from plench.data.answers import read_answer_matrix
from plench.errors import DataError, RunFailedError, UsageError
from plench.estimator.search import NETWORK

N, D, K = 90, 4, 3
NAMES = np.array(["cat", "dog", "emu"])


@pytest.fixture(scope="module")
def data():
    random = np.random.RandomState(0)
    labels = random.randint(K, size=N)
    features = (random.randn(N, D) + 3 * np.eye(K, D)[labels]).astype(np.float32)
    candidates = (random.rand(N, K) < 0.3) | np.eye(K, dtype=bool)[labels]
    return features, candidates, labels


def make(**settings):
    return PartialLabelClassifier(**{"steps": 60, "random_state": 0, **settings})


FORMS = {
    "matrix": lambda S, y: S,
    "numbers": lambda S, y: S.astype(float),
    "sparse": lambda S, y: sparse.csr_matrix(S.astype(int)),
    "sets": lambda S, y: [set(np.flatnonzero(row).tolist()) for row in S],
    "tuples": lambda S, y: [tuple(np.flatnonzero(row)) for row in S],
    "names": lambda S, y: [set(NAMES[row]) for row in S],
    "texts": lambda S, y: ["|".join(NAMES[row]) for row in S],
    "series": lambda S, y: pd.Series(["|".join(NAMES[row]) for row in S]),
    "frame": lambda S, y: pd.DataFrame(S.astype(int), columns=NAMES),
}


@pytest.mark.parametrize("form", FORMS)
def test_candidates_in_any_form_are_the_same_candidates(data, form):
    X, S, y = data
    expected = make().fit(X, S)
    found = make().fit(X, FORMS[form](S, y))
    assert np.array_equal(found.predict_proba(X), expected.predict_proba(X))
    assert found.classes_.tolist() == (list(NAMES) if found.classes_.dtype.kind in "UO" else [0, 1, 2])
    assert found.covering_score(X, FORMS[form](S, y)) == expected.covering_score(X, S)
    assert found.predict(X[:3]).tolist() == found.classes_[expected.predict(X[:3])].tolist()


def test_columns_of_a_frame_are_classes_by_their_names(data):
    X, S, _ = data
    frame = pd.DataFrame(S.astype(int), columns=NAMES)
    mixed = frame[["emu", "cat", "dog"]]
    expected = make().fit(X, frame)
    found = make(classes=NAMES).fit(X, mixed)
    assert np.array_equal(found.predict_proba(X), expected.predict_proba(X))
    assert expected.covering_score(X, mixed) == expected.covering_score(X, frame)
    assert plench.scorers.approximated(expected, X, mixed) == expected.approximated_score(X, frame)
    with pytest.raises(DataError, match="'cow' of S is not a class"):
        expected.score(X, frame.rename(columns={"dog": "cow"}))


def test_features_in_any_form_are_the_same_features(data):
    X, S, _ = data
    expected = make().fit(X, S).predict_proba(X)
    assert np.array_equal(make().fit(sparse.csr_array(X), S).predict_proba(sparse.csc_matrix(X)), expected)
    assert np.array_equal(make().fit(X.tolist(), S.tolist()).predict_proba(X.astype(np.float64)), expected)
    columns = [f"x{i}" for i in range(D)]
    for frame in (pd.DataFrame(X, columns=columns), pl.DataFrame(X, schema=columns)):
        model = make().fit(frame, S)
        assert np.allclose(model.predict_proba(frame), expected, atol=1e-6)
        assert model.feature_names_in_.tolist() == columns
        assert model.n_features_in_ == D
    mixed = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 1, "high", "low"), "c": [None, *X[1:, 2]]})
    model = make().fit(mixed, S)
    assert model.covering_score(mixed, S) > 0.7
    with pytest.raises(DataError, match="now missing"):
        model.predict(mixed[["a", "b"]])


def test_weights_answers_and_ordinary_labels(data):
    X, S, y = data
    weights = S * np.array([1.0, 2.0, 4.0])
    weighted, plain = make().fit(X, weights), make().fit(X, S)
    assert not np.array_equal(weighted.predict_proba(X), plain.predict_proba(X))
    outcome = make(algorithm="LR_EM").fit(X, weights)
    assert outcome.covering_score(X, S) > 0.9
    answers = np.column_stack(
        [y, np.where(np.arange(N) % 4, y, (y + 1) % K), np.where(np.arange(N) % 3, -1, y)]
    )
    frame = pd.DataFrame(
        {f"ann{i}": [NAMES[a] if a >= 0 else None for a in column] for i, column in enumerate(answers.T)}
    )
    models = [
        make(algorithm="DS_LR").fit(X, given) for given in (answers, read_answer_matrix(answers), frame)
    ]
    assert all(
        model.score(X, FORMS["names"](np.eye(K, dtype=bool)[y], y) if i == 2 else y) > 0.95
        for i, model in enumerate(models)
    )
    assert np.array_equal(models[0].predict_proba(X), models[2].predict_proba(X))
    labels = make().fit(X, NAMES[y])
    assert labels.score(X, NAMES[y]) > 0.95
    assert labels.classes_.tolist() == NAMES.tolist()
    assert make().fit(X, y + 5).classes_.tolist() == [5, 6, 7]
    assert make(classes=[0, 1, 2, 3]).fit(X, y).predict_proba(X).shape == (N, 4)


def test_what_is_scored_is_read_as_what_was_learned_from(data):
    X, S, y = data
    answers = np.column_stack([y, np.where(np.arange(N) % 3, (y + 1) % K, -1)])
    model = make(algorithm="CLPL").fit(X, answers)
    full = np.flatnonzero(np.arange(N) % 3)
    sets = [set(row.tolist()) for row in answers[full]]
    assert model.covering_score(X[full], answers[full]) == model.covering_score(X[full], sets)
    assert plench.scorers.covering(model, X[full], answers[full]) == model.covering_score(X[full], sets)
    assert model.covering_score(X, S) == model.covering_score(X, S.astype(int))
    frame = pd.DataFrame({"a": NAMES[y], "b": [None, "cow", *NAMES[y][2:]]})
    named = make(algorithm="CLPL").fit(X, NAMES[y])
    assert named.covering_score(X, frame) == named.score(X, NAMES[y])
    frame["a"] = "cow"
    assert named.covering_score(X[:2], frame[:2]) == 0
    texts = make(algorithm="CLPL", separator=";").fit(X, [";".join(NAMES[row]) for row in S])
    pipeline = make_pipeline(StandardScaler(), make(separator=";")).fit(X, texts.classes_[y])
    for scored in (texts, pipeline):
        given = [";".join(NAMES[row]) for row in S]
        sets = [set(NAMES[row]) for row in S]
        assert plench.scorers.covering(scored, X, given) == plench.scorers.covering(scored, X, sets) > 0.5


def test_networks_for_tables_are_normalised_unless_another_is_given(data):
    X, S, _ = data
    assert make(steps=2).fit(X, S).hparams_["model"] == NETWORK == "MLP_BN"
    assert make(steps=2, hparams={"model": "MLP"}).fit(X, S).hparams_["model"] == "MLP"
    assert "model" not in make(algorithm="CLPL").fit(X, S).hparams_


@pytest.mark.parametrize("early_stopping", [None, "CR", "AA"])
def test_the_same_split_and_seed_give_the_weights_of_a_run(data, tmp_path, early_stopping):
    X, S, _ = data
    model = make(random_state=7, early_stopping=early_stopping, validation_fraction=0.25).fit(X, S)
    holdout = 0.0 if early_stopping is None else 0.25
    outcome = plench.train(
        "PRODEN",
        (X, S),
        tmp_path,
        hparams={"model": NETWORK},
        steps=60,
        seed=7,
        trial_seed=7,
        holdout_fraction=holdout,
        tabular_test_fraction=0.0,
        checkpoint_freq=6,
        progress=False,
    )
    given = plench.load(outcome.folder, early_stopping or "last")
    parameters = dict(given.algorithm.named_parameters())
    assert len(parameters) >= 4
    for name, value in model.model_.algorithm.named_parameters():
        assert torch.equal(value, parameters[name]), name
    assert np.array_equal(model.predict_proba(X), given.predict_proba(X))
    assert [row["step"] for row in model.history_] == [*range(0, 60, 6), 59]
    assert (model.quality_ is None) == (early_stopping is None)
    if early_stopping:
        best = max(
            row["val_covering_rate" if early_stopping == "CR" else "val_approximated_acc"]
            for row in model.history_[1:]
        )
        assert getattr(model.quality_, early_stopping).value == pytest.approx(best)


def test_resolved_labels_are_candidates(data):
    X, S, y = data
    model = make(steps=300).fit(X, S)
    labels, probability = model.disambiguate()
    assert S[np.arange(N), labels].all()
    assert (labels == y).mean() > 0.95
    probs = np.where(S, model.predict_proba(X), 0)
    assert probability == pytest.approx(probs.max(1) / probs.sum(1))
    single = S.sum(1) == 1
    assert probability[single] == pytest.approx(1)


def test_pipelines_searches_clones_and_files(data, tmp_path):
    X, S, y = data
    pipeline = make_pipeline(StandardScaler(), make())
    assert pipeline.fit(X, S).predict(X).shape == (N,)
    scores = cross_val_score(make(), X, S, cv=3, scoring=plench.scorers.covering)
    assert scores.shape == (3,)
    assert scores.min() > 0.7
    assert cross_val_score(make(), X, FORMS["sets"](S, y), cv=KFold(3)).min() > 0.7
    grid = GridSearchCV(
        make(), {"hparams": [{"lr": 1e-9}, {"lr": 1e-2}]}, scoring=plench.scorers.approximated, cv=KFold(2)
    )
    assert grid.fit(X, S).best_params_ == {"hparams": {"lr": 1e-2}}
    model = make(algorithm="ET_AVG").fit(X, NAMES[y])
    assert not hasattr(clone(model), "classes_")
    joblib.dump(model, tmp_path / "m.joblib")
    assert joblib.load(tmp_path / "m.joblib").disambiguate().labels.tolist() == NAMES[y].tolist()
    model.save(tmp_path / "m.plench")
    for read in (
        pickle.loads(pickle.dumps(model)),
        joblib.load(tmp_path / "m.joblib"),
        plench.load(tmp_path / "m.plench"),
    ):
        assert np.array_equal(read.predict_proba(X), model.predict_proba(X))
        assert read.predict(X).tolist() == model.predict(X).tolist()
    numbers = make().fit(X, y * 10)
    numbers.save(tmp_path / "n.plench")
    assert plench.load(tmp_path / "n.plench").predict(X).tolist() == numbers.predict(X).tolist()


@pytest.mark.filterwarnings("ignore:A column-vector")
def test_bad_input_is_told_in_our_words_and_as_theirs(data):
    X, S, _ = data
    for given, message in (
        (np.zeros((N, K)), "candidate set of example 0 is empty"),
        (-0.5 * S, "expected 0 or more"),
        (np.ones((N, 1)), "two classes"),
        ([{0}] * (N - 1), "inconsistent numbers"),
        ([{0, "a"}] * N, "all texts or all numbers"),
        ([[2, 3]] * N, "sets or tuples"),
        (None, "y is None"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            make().fit(X, given)
        assert isinstance(caught.value, ValueError)
    with pytest.raises(DataError, match="one class twice"):
        make(classes=[0, 1, 1]).fit(X, S)
    assert make(steps=1, early_stopping="CR").fit(X, S).model_.updates == 1
    with pytest.raises(UsageError, match="early_stopping"):
        make(early_stopping="OA").fit(X, S)
    with pytest.raises(UsageError, match="unknown algorithm"):
        make(algorithm="PRODENT").fit(X, S)
    with pytest.raises(UsageError, match="answers of known annotators"):
        make(algorithm="DS_LR").fit(X, S)
    with pytest.raises((RunFailedError, UsageError)):
        make(hparams={"lr": 1e38}).fit(X, S)
    with pytest.raises(DataError, match="needs true labels, one per example"):
        make().fit(X, S).estimate_accuracy(X, S)


# Checks of scikit-learn that cannot hold, with the reason.
ORDER = "the check shuffles the rows, and batches and sums in float32 depend on their order"
EXCEPTED: dict[str, str] = {
    "check_sample_weight_equivalence_on_dense_data": ORDER,
    "check_sample_weight_equivalence_on_sparse_data": ORDER,
}


@pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.6"), reason="older ones cannot report their checks"
)
def test_scikit_learns_checks_hold():
    expected = dict(EXCEPTED)
    results = check_estimator(
        PartialLabelClassifier(steps=150, random_state=0), on_fail=None, expected_failed_checks=expected
    )
    failed = {each["check_name"]: repr(each["exception"]) for each in results if each["status"] == "failed"}
    assert failed == {}
    excepted = {each["check_name"] for each in results if each["status"] == "xfail"}
    assert excepted == set(EXCEPTED), "each exception is one that is needed"
    assert sum(each["status"] == "passed" for each in results) > 40
