import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from plench.data import Dataset, DatasetCard, TestSet
from plench.errors import DataError

TABULAR = DatasetCard("Toy", "tabular", "task", "source", "terms", "citation", default_steps=10)
IMAGE = dataclasses.replace(TABULAR, kind="image")


def make(n=6, n_classes=3, **changes):
    labels = np.arange(n) % n_classes
    parts = {
        "features": np.arange(2.0 * n).reshape(n, 2),
        "candidates": labels[:, None] == np.arange(n_classes),
        "labels": labels,
        "card": TABULAR,
    }
    return Dataset(**{**parts, **changes})


def test_a_valid_dataset_has_the_agreed_types_sizes_and_figures():
    candidates = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1]], dtype=np.int16)
    dataset = make(4, candidates=candidates, labels=np.array([0, 0, 0, 2], dtype=np.uint8))
    assert dataset.features.dtype == np.float32
    assert dataset.candidates.dtype == np.bool_
    assert dataset.labels.dtype == np.int64
    assert (dataset.n_examples, dataset.n_classes, dataset.input_shape) == (4, 3, (4, 2))
    assert dataset.mean_candidates == 2.0
    assert dataset.noise_rate == 0.25  # the second label is outside its set: allowed, and counted
    assert make(labels=None).noise_rate is None


def test_arrays_are_read_only_and_the_ones_given_stay_writable():
    features = np.ones((6, 2), dtype=np.float32)
    dataset = make(features=features)
    for array in (dataset.features, dataset.candidates, dataset.labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert features.flags.writeable
    assert np.shares_memory(features, dataset.features)


def test_images_are_kept_as_uint8_without_a_copy_and_may_have_a_test_set():
    images = np.zeros((6, 3, 8, 8), dtype=np.uint8)
    test = TestSet(images[:2], np.array([0, 2]))
    dataset = make(features=images, card=IMAGE, test=test)
    assert np.shares_memory(images, dataset.features)
    assert dataset.features.dtype == np.uint8
    assert dataset.input_shape == (6, 3, 8, 8)
    assert dataset.test.labels.tolist() == [0, 2]


ONE_HOT = np.eye(3)[np.arange(6) % 3]


def with_value(array, place, value):
    changed = np.array(array, dtype=float)
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidates": with_value(ONE_HOT, 4, 0)}, "candidate set of example 4 is empty"),
        ({"candidates": with_value(ONE_HOT, (2, 1), 0.5)}, "candidate 1 of example 2 is 0.5; expected 0"),
        ({"candidates": with_value(ONE_HOT, (2, 1), -1)}, "example 2 is -1"),
        ({"candidates": with_value(ONE_HOT, (3, 0), np.nan)}, "example 3 is nan"),
        ({"candidates": np.ones((5, 3))}, r"N = 6, the number of examples, not of shape \(5, 3\)"),
        ({"candidates": np.ones(6)}, r"not of shape \(6,\)"),
        ({"candidates": np.ones((6, 1)), "labels": None}, "two classes are needed, candidates have 1"),
        ({"candidates": np.full((6, 3), "1")}, "candidates must be 0 or 1"),
        ({"features": with_value(np.ones((6, 2)), (3, 1), np.nan)}, "feature 1 of example 3 is nan"),
        ({"features": with_value(np.ones((6, 2)), (5, 0), -np.inf)}, "feature 0 of example 5 is -inf"),
        ({"features": with_value(np.ones((6, 2)), (1, 1), 1e300)}, "feature 1 of example 1 is inf"),
        ({"features": np.ones(6)}, r"must be N×D and not empty, not of shape \(6,\)"),
        ({"features": np.ones((0, 2))}, "not empty"),
        ({"features": np.ones((6, 0))}, "not empty"),
        ({"features": np.ones((6, 2), dtype=complex)}, "real numbers, not complex128"),
        ({"features": np.full((6, 2), None)}, "real numbers, not object"),
        ({"features": np.ones((6, 2)), "card": IMAGE}, "must be N×C×H×W"),
        ({"features": np.ones((6, 1, 2, 2)), "card": IMAGE}, "images must be uint8"),
        ({"card": dataclasses.replace(TABULAR, kind="sound")}, "unknown kind 'sound'"),
        ({"labels": np.array([0, 1, 2, 0, 3, 2])}, "label of example 4 is 3; expected 0…2"),
        ({"labels": np.array([0, -1, 2, 0, 1, 2])}, "label of example 1 is -1"),
        ({"labels": np.zeros(5, dtype=int)}, "for each of 6 examples"),
        ({"labels": np.zeros(6)}, "labels must be one integer .* not float64"),
        ({"test": TestSet(np.ones((2, 3)), np.zeros(2, int))}, r"\(test set\): features have shape \(3,\)"),
        ({"test": TestSet(np.ones((2, 2)), np.array([0, 3]))}, r"\(test set\): the label of example 1 is 3"),
    ],
)
def test_an_invalid_dataset_is_refused_with_row_and_reason(changes, message):
    with pytest.raises(DataError, match=message):
        make(**changes)


def test_the_fingerprint_is_that_of_the_content():
    test = TestSet(np.ones((2, 2)), np.array([0, 1]))
    first = make(test=test)
    others = [
        make(),
        make(test=TestSet(np.ones((2, 2)), np.array([0, 2]))),
        make(test=test, labels=None),
        make(test=test, features=np.zeros((6, 2))),
        make(test=test, candidates=np.ones((6, 3))),
    ]
    assert make(test=test, card=dataclasses.replace(TABULAR, name="Renamed")).fingerprint == first.fingerprint
    assert make(test=test, features=np.asfortranarray(first.features)).fingerprint == first.fingerprint
    assert len({dataset.fingerprint for dataset in [first, *others]}) == 6
    assert len(first.fingerprint) == 64


def test_other_candidates_and_warnings_leave_the_rest():
    dataset = make(warnings=("first",))
    full = dataset.with_candidates(np.ones((6, 3))).with_warnings(["second"])
    assert full.mean_candidates == 3.0
    assert full.warnings == ("first", "second")
    assert np.array_equal(full.features, dataset.features)
    with pytest.raises(DataError, match="empty"):
        dataset.with_candidates(np.zeros((6, 3)))


def test_importing_the_data_package_imports_neither_torch_nor_pandas():
    code = "import sys, plench.data; sys.exit(bool({'torch', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
