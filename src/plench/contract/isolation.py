"""Checks that an algorithm cannot see true labels and does not disturb what it shares with others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from plench.contract.base import BreachError, required
from plench.contract.examples import make_examples
from plench.contract.reach import walk
from plench.contract.subject import Subject
from plench.data import Dataset, split_dataset
from plench.training.streams import capture_global


@required
def sees_no_true_label(subject: Subject) -> None:
    """Nothing that can be reached from the algorithm or its batches holds true labels of any split."""
    seek_labels(subject, make_examples(sets="ambiguous"))


def seek_labels(subject: Subject, dataset: Dataset) -> None:
    """Raise a breach if labels of a dataset are within reach before or between updates."""
    assert dataset.labels is not None
    session = subject.start(dataset)
    split = split_dataset(dataset, session.run.config.trial_seed)
    assert split.test is not None
    secrets = {
        "the whole dataset": dataset.labels,
        "the training split": dataset.labels[split.train],
        "the validation split": dataset.labels[split.validation],
        "the test split": dataset.labels[split.test],
    }
    for _ in range(2):
        find_labels(session.algorithm, type(session.algorithm).__name__, secrets)
        with session.run.streams.ambient("algorithm"):
            batch = session.training_set.next_batch()
            of_batch = dataset.labels[split.train][batch.index.cpu().numpy()]
            find_labels(batch, "minibatches", {**secrets, "the batch": of_batch})
            session.update_once(batch)


def find_labels(root: object, name: str, secrets: dict[str, np.ndarray]) -> None:
    """Raise a breach if labels are found on the way from a root."""
    for path, value in walk(root, name):
        for which, labels in secrets.items():
            if any(np.array_equal(column, labels) for column in columns(value, len(labels))):
                raise BreachError(f"{path} holds the true labels of {which}, which no algorithm may see")


def columns(value: Any, n: int) -> Iterator[np.ndarray]:
    """Yield what could be labels of n examples: the values, a column, or the classes of one-hot rows."""
    if isinstance(value, Tensor):
        if value.device.type == "meta" or value.is_sparse:
            return
        value = value.detach().cpu().numpy() if value.dtype != torch.bfloat16 else value.float().cpu().numpy()
    elif isinstance(value, list | tuple) and len(value) == n:
        value = np.asarray(value) if all(isinstance(item, int | float) for item in value) else None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf" or value.size == 0:
        return
    if value.size == n:
        yield value.reshape(n)
    elif value.ndim == 2:
        table = value if len(value) == n else value.T
        if len(table) == n:
            yield from table.T
            if ((table != 0).sum(1) == 1).all():
                yield (table != 0).argmax(1)


@required
def seeds_nothing_global(subject: Subject) -> None:
    """It seeds no global generator, and the generators outside the run are as they were."""
    before = capture_global(torch.device("cpu"))
    with noting_seeds() as called:
        session = subject.start()
        session.update(subject.count_updates(session))
    if called:
        raise BreachError(f"{called[0]} was called: the run has its seed already, and another repeats draws")
    after = capture_global(torch.device("cpu"))
    if not (
        torch.equal(before["torch"], after["torch"])
        and torch.equal(before["numpy"]["state"]["key"], after["numpy"]["state"]["key"])
        and before["numpy"]["state"]["pos"] == after["numpy"]["state"]["pos"]
        and before["python"] == after["python"]
    ):
        raise BreachError("the global generators of torch, numpy or random were moved outside the run")


@contextmanager
def noting_seeds() -> Iterator[list[str]]:
    """Note calls that seed a global generator; they have no effect inside the block."""
    called: list[str] = []
    with ExitStack() as stack:
        for owner, name in ((torch, "manual_seed"), (torch, "seed"), (np.random, "seed"), (random, "seed")):
            title = f"{owner.__name__}.{name}"
            stack.enter_context(patch.object(owner, name, lambda *_, title=title: called.append(title)))
        yield called
