"""Checks of what the loop calls: build, update, predict."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from plench.contract.base import BreachError, advised, needs_batches, required
from plench.contract.differences import find_difference, find_not_finite, snapshot
from plench.contract.examples import make_examples
from plench.contract.subject import Session, Subject
from plench.data import Dataset, dataset_card, draw_candidates, load_dataset

BUILT_IN = ("Digits_USS", "Digits_FPS", "Digits_ID")


def predict_in_evaluation(session: Session, x: Tensor) -> Tensor:
    """Return predictions as evaluation makes them."""
    session.algorithm.eval()
    with session.run.streams.ambient("evaluation"), torch.no_grad():
        logits = session.algorithm.predict(x)
    session.algorithm.train()
    return logits


def test_inputs(session: Session) -> Tensor:
    """Return the network inputs of the test split."""
    data = session.run.data
    return data.inputs.original(data.test.stored[:])


def train_and_predict(session: Session, updates: int) -> None:
    """Make updates and a prediction; demand finite numbers and logits of the right shape."""
    for count, loss in enumerate(session.update(updates)):
        if loss != loss or loss in (float("inf"), float("-inf")):
            raise BreachError(f"the loss of update {count} (counted from 0) is {loss}")
    broken = find_not_finite(session.algorithm)
    if broken:
        raise BreachError(f"after {updates} updates {broken} holds NaN or infinite values")
    x = test_inputs(session)
    logits = predict_in_evaluation(session, x)
    wanted = (len(x), session.training_set.candidates.shape[1])
    if not isinstance(logits, Tensor) or tuple(logits.shape) != wanted:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BreachError(f"predict(x) must return logits of shape (B, K) = {wanted}, not {shape}")
    if not logits.isfinite().all():
        raise BreachError(f"after {updates} updates predict(x) returns NaN or infinite logits")


@required
def trains_and_predicts(subject: Subject) -> None:
    """`update(minibatches)` returns a mapping with a finite `loss`, through every phase of the schedule, and
    `predict(x)` returns logits (B, K)."""
    session = subject.start()
    train_and_predict(session, subject.count_updates(session))


@required
def learns_weights(subject: Subject) -> None:
    """Updates change what `predict` returns."""
    session = subject.start()
    x = test_inputs(session)
    before = predict_in_evaluation(session, x)
    session.update(subject.count_updates(session))
    if torch.equal(before, predict_in_evaluation(session, x)):
        raise BreachError(
            "predictions are the same after training: does the optimiser hold the parameters of the network "
            "that predict uses, and does update call backward and step?"
        )


@required
def predicts_each_example_alone(subject: Subject) -> None:
    """In evaluation mode `predict` gives the same logits twice, for an example alone as among others, and
    changes no state."""
    session = subject.start()
    session.update(min(BEFORE_PREDICTION, session.run.config.steps))
    x = test_inputs(session)
    before = snapshot(session.algorithm)
    together = predict_in_evaluation(session, x)
    again = predict_in_evaluation(session, x)
    if not torch.equal(together, again):
        raise BreachError("two calls of predict(x) in evaluation mode differ")
    changed = find_difference(before, snapshot(session.algorithm))
    if changed:
        raise BreachError(f"predict(x) in evaluation mode changed {changed}")
    alone = torch.cat([predict_in_evaluation(session, x[:1]), predict_in_evaluation(session, x[1:])])
    if not torch.allclose(alone, together, rtol=1e-4, atol=1e-4):
        raise BreachError("the prediction for an example depends on the others it is predicted with")


BEFORE_PREDICTION = 3


@cache
def load_built_in(name: str) -> Dataset:
    """Return built-in data with candidates drawn."""
    return draw_candidates(load_dataset(name), dataset_card(name).candidates, 0)


@required
def trains_on_built_in_data(subject: Subject) -> None:
    """It trains and predicts on the built-in datasets, in their default configuration."""
    for name in BUILT_IN:
        session = subject.start(load_built_in(name), hparams={}, batch_size=32)
        train_and_predict(session, min(3, session.run.config.steps))


@advised
def trains_on_images(subject: Subject) -> None:
    """It trains and predicts on images too; `networks.Featurizer` builds a network that suits the data."""
    needs_batches(subject)
    session = subject.start(make_examples(32, images=True), batch_size=8)
    train_and_predict(session, subject.count_updates(session))
