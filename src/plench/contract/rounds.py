"""Checks of methods that are fitted in rounds instead of trained on batches."""

from __future__ import annotations

import torch

from plench.algorithms import FittedAlgorithm
from plench.contract.base import BreachError, NotCheckedError, required
from plench.contract.basics import predict_in_evaluation, test_inputs
from plench.contract.subject import Session, Subject

FAR = 1e6


def start_fitted(subject: Subject) -> tuple[Session, FittedAlgorithm]:
    """Start a run of a fitted method; end the check for others."""
    if not subject.fitted:
        raise NotCheckedError("it makes steps on batches")
    session = subject.start()
    algorithm = session.algorithm
    if not isinstance(algorithm, FittedAlgorithm):
        raise BreachError("a card without the shared hyperparameters is for subclasses of FittedAlgorithm")
    return session, algorithm


@required
def leaves_single_candidates_alone(subject: Subject) -> None:
    """Soft targets stay within the candidates, sum to 1, and never change where there is one candidate."""
    session, algorithm = start_fitted(subject)
    candidates = torch.from_numpy(algorithm.candidates)
    single = candidates.sum(1) == 1
    for number in range(subject.count_updates(session)):
        session.update(1)
        targets = algorithm.targets
        if not torch.equal(targets[single], candidates[single].double()):
            raise BreachError(f"update {number} changed the targets of examples with one candidate")
        if targets[~candidates].any() or not torch.allclose(targets.sum(1), torch.ones_like(targets[:, 0])):
            raise BreachError(f"update {number} leaves targets outside the candidates, or not summing to 1")


@required
def predicts_any_input(subject: Subject) -> None:
    """After every update `predict` is finite for any input, zeros and distant ones too; before the first
    round all inputs have the same logits."""
    session, _ = start_fitted(subject)
    x = test_inputs(session)
    odd = torch.cat([x, torch.zeros_like(x[:1]), torch.full_like(x[:1], FAR), -FAR * x[:1]])
    for number in range(subject.count_updates(session)):
        session.update(1)
        logits = predict_in_evaluation(session, odd)
        if not logits.isfinite().all():
            raise BreachError(f"after update {number} predict(x) returns NaN or infinite logits")
        if number == 0 and not torch.equal(logits, logits[:1].expand_as(logits)):
            raise BreachError("before the first round predict(x) must give the candidate prior to all inputs")


@required
def repeats_every_round(subject: Subject) -> None:
    """A round depends on the seed and the round before alone: whatever else draws random numbers in between
    changes nothing."""
    session, _ = start_fitted(subject)
    other, _ = start_fitted(subject)
    x = test_inputs(session)
    for number in range(subject.count_updates(session)):
        session.update(1)
        with other.run.streams.ambient("algorithm"):
            torch.rand(7 + number)
        other.update(1)
        if not torch.equal(predict_in_evaluation(session, x), predict_in_evaluation(other, x)):
            raise BreachError(f"update {number} depends on a running stream: draw by self.seed_for(...)")
