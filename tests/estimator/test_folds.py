"""Rows that a model is not trained on: the reserved share, and folds."""

from dataclasses import replace

import numpy as np
import pytest

import plench
from plench.data import make_dataset, make_table_dataset
from plench.errors import DataError, UsageError
from plench.estimator.folds import fit_folds, number_units, predict_out_of_fold, reserve_rows
from plench.estimator.search import TrainingData


def make(n, seed=0, **fields):
    random = np.random.RandomState(seed)
    labels = random.randint(3, size=n)
    features = (random.randn(n, 4) + 3 * np.eye(3, 4)[labels]).astype(np.float32)
    candidates = (random.rand(n, 3) < 0.3) | np.eye(3, dtype=bool)[labels]
    return replace(make_dataset(features, candidates), **fields)


def test_a_share_is_reserved_by_the_seed_in_whole_groups():
    data = make(1000)
    rows = reserve_rows(data, 0.2, 0)
    assert len(rows) == 200
    assert np.array_equal(rows, np.unique(rows))
    assert np.array_equal(rows, reserve_rows(data, 0.2, 0))
    assert not np.array_equal(rows, reserve_rows(data, 0.2, 1))
    assert len(reserve_rows(make(300), 0.1, 0)) == 50
    for few in (reserve_rows(make(299), 0.2, 0), reserve_rows(data, 0, 0)):
        assert len(few) == 0
    grouped = make(1000, groups=np.arange(1000) // 7)
    rows = reserve_rows(grouped, 0.2, 0)
    assert 200 <= len(rows) < 207
    assert not set(grouped.groups[rows]) & set(np.delete(grouped.groups, rows))
    assert len(reserve_rows(make(1000, groups=np.arange(1000) > 10), 0.2, 0)) == 0, "one group is nearly all"
    named = make(1000, items=tuple(f"photo{row // 2}" for row in range(1000)))
    kept = {named.items[row] for row in reserve_rows(named, 0.2, 0)}
    assert len(kept) == 100
    marked = make(1000, validation=np.arange(1000) < 500)
    assert reserve_rows(marked, 0.2, 0).min() >= 500
    with pytest.raises(UsageError, match="reserve is 20"):
        reserve_rows(data, 20, 0)


def test_rows_without_a_name_are_their_own_unit():
    assert number_units(make(4, items=("a", "", "", "a"))).tolist() == [0, 1, 2, 0]


def test_every_row_is_predicted_by_a_model_that_was_not_trained_on_its_group():
    data = TrainingData(make(90, groups=np.arange(90) // 3))
    model = plench.PartialLabelClassifier("PRODEN", steps=40, random_state=0).fit(data.dataset).model_
    folds = list(fit_folds(data, model))
    assert len(folds) == 5
    assert sorted(np.concatenate([fold.left_out for fold in folds])) == list(range(90))
    for fold in folds:
        assert not set(data.dataset.groups[fold.left_out]) & set(data.dataset.groups[fold.trained])
        assert fold.model.run["dataset"]["n_train"] == len(fold.trained)
        assert fold.model.updates == model.updates
        assert fold.model.run["config"]["hparams"] == model.run["config"]["hparams"]
    logits = predict_out_of_fold(data, model)
    fold = folds[2]
    features = data.dataset.features[fold.left_out]
    assert np.array_equal(logits[fold.left_out], fold.model.predict_logits(features))
    assert not np.array_equal(logits[fold.left_out], model.predict_logits(features))
    with pytest.raises(DataError, match="one group"):
        next(fit_folds(TrainingData(make(20, groups=np.zeros(20, int))), model))


def test_rows_of_a_table_keep_their_names_and_what_is_known_of_their_truth():
    data = make_table_dataset(
        {
            "id": [f"r{row}" for row in range(6)],
            "x": list(range(6)),
            "candidates": ["a|b", "b"] * 3,
            "truth": ["a", None, "a", "b", None, "b"],
        }
    )
    assert data.labels is None
    taken = data.take(np.array([1, 2]))
    assert taken.items == ("r1", "r2")
    assert taken.known_labels.tolist() == [-1, 0]
    assert taken.candidates.tolist() == [[False, True], [True, True]]
