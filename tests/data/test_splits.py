from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plench.data import Dataset, DatasetCard, TestSet, load_dataset, split_dataset
from plench.errors import DataError, UsageError

CARD = DatasetCard("Toy", "tabular", "task", "source", "terms", "citation", default_steps=10)


def make(n, test=None):
    return Dataset(np.zeros((n, 1)), np.ones((n, 2)), None, CARD, test)


@pytest.mark.parametrize(
    ("n", "trial", "sizes", "firsts"),
    [  # the protocol's check values: Lost, Lost, Birdsong
        (1122, 0, [909, 100, 113], ["135 572 447 365 15", "159 735 115 1068 903", "80 261 1105 1027 1084"]),
        (1122, 1, [909, 100, 113], ["924 449 999 840 580", "748 978 846 676 937", "602 631 208 721 171"]),
        (
            4998,
            0,
            [4049, 449, 500],
            ["2720 3670 347 4676 1037", "3717 4642 3668 561 1509", "4649 147 2638 4031 1362"],
        ),
    ],
)
def test_splits_are_those_of_the_protocol(n, trial, sizes, firsts):
    split = split_dataset(make(n), np.int64(trial))  # NumPy's integers are the same seed
    parts = (split.train, split.validation, split.test)
    assert [len(part) for part in parts] == sizes
    assert [" ".join(map(str, part[:5])) for part in parts] == firsts
    assert np.array_equal(split.train, split_dataset(make(n), trial).train)


def test_real_datasets_split_as_the_protocol_says(real_data):
    split = split_dataset(load_dataset("Lost", real_data), 0)
    assert split.train[:5].tolist() == [135, 572, 447, 365, 15]


@given(st.integers(20, 400), st.integers(0, 2**31), st.floats(0.1, 0.4), st.floats(0.1, 0.9))
def test_a_split_is_a_partition_of_the_asked_sizes(n, trial, test_fraction, holdout_fraction):
    split = split_dataset(make(n), trial, test_fraction, holdout_fraction)
    kept = int(n * (1 - test_fraction))
    assert (len(split.test), len(split.validation)) == (n - kept, int(kept * holdout_fraction))
    assert sorted(np.concatenate([split.train, split.validation, split.test])) == list(range(n))


def test_with_its_own_test_set_only_validation_is_cut_off():
    dataset = make(1000, TestSet(np.zeros((5, 1)), np.zeros(5, dtype=int)))
    split = split_dataset(dataset, 3)
    assert (split.test, len(split.validation)) == (None, 100)
    assert sorted(np.concatenate([split.train, split.validation])) == list(range(1000))
    for fraction in (0, 0.5):
        with pytest.raises(UsageError, match=f"fraction is {fraction}, but .* has a test set of its own"):
            split_dataset(dataset, 3, test_fraction=fraction)


@pytest.mark.parametrize("n", [1, 2, 9, 11])
def test_too_few_examples_are_refused(n):
    with pytest.raises(DataError, match=rf"too few examples to split: of {n}, .* part is empty"):
        split_dataset(make(n), 0)


@pytest.mark.parametrize("value", [1, -0.1, 1.5, float("nan"), "0.1", None, True])
@pytest.mark.parametrize("which", ["test_fraction", "holdout_fraction"])
def test_fractions_are_checked(value, which):
    with pytest.raises(UsageError, match="must be a number of at least 0 and below 1"):
        split_dataset(make(100), 0, **{which: value})


@pytest.mark.parametrize(("holdout", "sizes"), [(0, [100, 0, 0]), (0.1, [90, 10, 0])])
def test_a_fraction_of_zero_leaves_the_part_out(holdout, sizes):
    split = split_dataset(make(100), 0, test_fraction=0, holdout_fraction=holdout)
    assert [len(split.train), len(split.validation), len(split.test)] == sizes


def test_given_validation_rows_and_groups():
    given = np.arange(100) % 10 == 0
    dataset = replace(make(100), validation=given)
    split = split_dataset(dataset, 3)
    assert split.validation.tolist() == list(range(0, 100, 10))
    assert len(split.test) == 9
    assert not given[split.train].any()
    with pytest.raises(UsageError, match="says which rows are validation"):
        split_dataset(dataset, 0, holdout_fraction=0.2)
    with pytest.raises(DataError, match="a group stays in one"):
        split_dataset(replace(dataset, groups=np.zeros(100, int)), 0)


def make_labelled(labels, n_classes=None):
    candidates = np.ones((len(labels), n_classes or max(labels) + 1))
    return Dataset(np.zeros((len(labels), 1)), candidates, np.asarray(labels), CARD)


def count(dataset, index, n_classes):
    return np.bincount(dataset.labels[index], minlength=n_classes).tolist()


def test_a_long_tail_falls_by_a_constant_factor():
    dataset = make_labelled(np.tile(np.arange(5), 2000))
    whole, tailed = split_dataset(dataset, 3), split_dataset(dataset, 3, imbalance=16)
    first = count(dataset, whole.train, 5)[0]
    assert count(dataset, tailed.train, 5) == [round(first / 2**k) for k in range(5)]
    assert np.array_equal(tailed.validation, whole.validation)
    assert np.array_equal(tailed.test, whole.test)
    assert tailed.thirds.tolist() == [0, 0, 1, 1, 2]
    assert whole.thirds is None


def test_a_long_tail_keeps_what_comes_first_in_the_order_of_the_split():
    dataset = make_labelled(np.tile(np.arange(3), 100))
    whole, tailed = split_dataset(dataset, 1), split_dataset(dataset, 1, imbalance=4)
    kept = count(dataset, tailed.train, 3)
    for label in range(3):
        of_class = [i for i in whole.train if dataset.labels[i] == label]
        assert [i for i in tailed.train if dataset.labels[i] == label] == of_class[: kept[label]]
    order = {example: place for place, example in enumerate(whole.train)}
    assert [order[i] for i in tailed.train] == sorted(order[i] for i in tailed.train)


def test_a_long_tail_of_uneven_classes_keeps_at_most_what_there_is_and_at_least_one():
    labels = [0] * 60 + [1] * 8 + [2] * 60 + [3] * 60
    dataset = make_labelled(labels, n_classes=5)
    tailed = split_dataset(dataset, 0, imbalance=1e6)
    counts = count(dataset, tailed.train, 5)
    assert counts[2:4] == [1, 1], "the share rounds to 0"
    assert counts[4] == 0, "there is none"
    whole = count(dataset, split_dataset(dataset, 0).train, 5)
    level = count(dataset, split_dataset(dataset, 0, imbalance=1).train, 5)
    assert level == [min(number, whole[0]) for number in whole]
    assert split_dataset(dataset, 0, imbalance=1).thirds.tolist() == sort_into_thirds(level)


def test_of_two_classes_the_rare_one_has_few():
    assert split_dataset(make_labelled([0, 1] * 50), 0, imbalance=5).thirds.tolist() == [0, 2]


def sort_into_thirds(counts):
    """Of five classes the two largest are many, the next two medium, the last few."""
    order = sorted(range(5), key=lambda label: (-counts[label], label))
    return [[0, 0, 1, 1, 2][order.index(label)] for label in range(5)]


@pytest.mark.parametrize(
    ("dataset", "imbalance", "message"),
    [
        (make(100), 10, "imbalance needs true labels, which Toy does not have"),
        (make_labelled([0, 1] * 20), 0.5, r"imbalance must be a number of at least 1, not 0\.5"),
        (make_labelled([1, 2] * 20), 10, "Toy cannot be made long-tailed: .* no example of the first class"),
    ],
)
def test_a_long_tail_that_cannot_be_made_is_refused(dataset, imbalance, message):
    with pytest.raises((DataError, UsageError), match=message):
        split_dataset(dataset, 0, imbalance=imbalance)
