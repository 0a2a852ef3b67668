"""Runs of an algorithm update by update, made of the training loop's own pieces."""

from typing import Any

import torch

from plench.algorithms import find_algorithm
from plench.contract import AlgorithmUnderTest
from plench.contract.under_test import Session, make_examples
from plench.runs.folder import RunStore
from plench.training.checkpoint import read_newest

# Small networks and queues, so that a test takes a moment.
SMALL = {"feat_dim": 8, "moco_queue": 40}


def start(
    name: str,
    *,
    batch_size: int = 16,
    train_size: int = 64,
    images: bool = False,
    store: RunStore | None = None,
    **hparams: Any,
) -> Session:
    """Start a run on random examples, tabular or images: 64 of them make an epoch of four updates."""
    subject = AlgorithmUnderTest(find_algorithm(name))
    own = {parameter.name for parameter in subject.entry.card.hyperparameters}
    small = {key: value for key, value in SMALL.items() if key in own}
    dataset = make_examples(train_size, sets="ambiguous", images=images)
    return subject.start(dataset, batch_size=batch_size, store=store, hparams={**small, **hparams})


def save(session: Session, store: RunStore) -> None:
    """Write the run's checkpoint."""
    store.folder.mkdir(exist_ok=True)
    session.run.store = store
    session.run.write_checkpoint()


def resume(name: str, store: RunStore, **settings: Any) -> Session:
    """Build a fresh run and continue it from the checkpoint."""
    session = start(name, store=store, **settings)
    checkpoint = read_newest(store)
    assert checkpoint is not None
    with session.run.streams.ambient("algorithm"):
        session.run.restore(checkpoint)
    return session


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return what a tensor holds now."""
    return tensor.detach().clone()
