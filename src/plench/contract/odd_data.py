"""Checks on data that is odd but allowed. Loss, weights and state must stay finite on all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from plench.algorithms.fitted import UnfitError
from plench.contract.base import BreachError, NotCheckedError, needs_batches, required
from plench.contract.basics import predict_in_evaluation, train_and_predict
from plench.contract.examples import make_examples
from plench.contract.subject import BATCH_SIZE, Session, Subject
from plench.data import Dataset

HUGE = 200.0


def train_on(subject: Subject, dataset: Dataset, hint: str = "") -> None:
    """Train through every phase on a dataset; add a hint to what goes wrong."""
    session = subject.start(dataset)
    with hinting(hint):
        try:
            train_and_predict(session, subject.count_updates(session))
        except UnfitError as refused:  # refusing with a reason counts as passing
            raise NotCheckedError(f"it refuses such data: {refused}") from None


@contextmanager
def hinting(hint: str) -> Iterator[None]:
    """Add a hint to a breach."""
    try:
        yield
    except BreachError as breach:
        raise BreachError(f"{breach}. {hint}".rstrip(". ")) from None


@required
def trains_on_single_candidates(subject: Subject) -> None:
    """It trains where every candidate set holds one label only."""
    train_on(
        subject,
        make_examples(sets="single"),
        "A set of one label has no wrong candidate: a mean over those divides by zero",
    )


@required
def trains_on_full_sets(subject: Subject) -> None:
    """It trains where every candidate set holds all labels."""
    train_on(
        subject,
        make_examples(sets="full"),
        "A full set leaves no label out: a mean over those divides by 0, and the log of an empty sum is −∞",
    )


@required
def trains_without_a_candidate(subject: Subject) -> None:
    """It trains where a class is in no candidate set and no example's label."""
    train_on(
        subject,
        make_examples(without_candidate=2),
        "A quantity per class needs a value for a class that no set contains",
    )


@required
def trains_without_a_label(subject: Subject) -> None:
    """It trains where a class is a candidate but never the true label."""
    train_on(subject, make_examples(without_label=0))


@required
def trains_on_two_classes(subject: Subject) -> None:
    """It trains with two classes, where every set holds one label or all."""
    train_on(
        subject,
        make_examples(num_classes=2),
        "With K = 2 a set that is not full has one label: mind |S| − 1",
    )


@required
def trains_on_fewer_examples_than_a_batch(subject: Subject) -> None:
    """It trains with fewer examples than a batch; each batch is then all of them."""
    train_on(
        subject,
        make_examples(BATCH_SIZE // 2 + 1),
        "Use the number of rows of the batch, and for schedules min(batch_size, num_data)",
    )


@required
def trains_on_short_batches(subject: Subject) -> None:
    """It trains when batches have fewer rows than `hparams["batch_size"]`, down to one."""
    needs_batches(subject)
    session = subject.start()
    with hinting("Take the number of rows from the batch, not from hparams"):
        for size in (BATCH_SIZE - 3, 2, 1):
            session.update(2)
            session.update(2, session.resize_batches(size))
            train_and_predict(session, 2)


@required
def survives_huge_logits(subject: Subject) -> None:
    """Loss, weights and state stay finite in float32 when logits reach ±200."""
    needs_batches(subject)
    session = subject.start()
    updates = subject.count_updates(session)
    for done in (1, updates - 2):
        session.update(done)
        reached = enlarge_logits(session)
        hint = (
            f"Logits had been scaled to ±{reached:.0f}. In float32 softmax is exactly 0 from a gap of 104 "
            "on: compute in log space (log_softmax, logsumexp over the candidates), not log(softmax(x)) or "
            "ratios of sums of probabilities"
        )
        with hinting(hint):
            train_and_predict(session, 2)


def enlarge_logits(session: Session) -> float:
    """Scale the last layers so that logits reach ±200; return what predictions for training inputs reach.

    Every linear layer with K outputs, in whichever network of the algorithm, is scaled by its own outputs in
    an update and in a prediction; then all of them alike, as a prediction may be a mean of several. If the
    logits do not come from such a layer, the inputs are scaled.
    """
    num_classes = session.training_set.candidates.shape[1]
    peaks: dict[nn.Linear, float] = {}

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if isinstance(layer, nn.Linear):
            peaks[layer] = max(peaks.get(layer, 0.0), float(output.detach().abs().max()))

    layers = [
        layer
        for layer in session.algorithm.modules()
        if isinstance(layer, nn.Linear) and layer.out_features == num_classes
    ]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    x = session.training_set.original(0, len(session.training_set))
    session.update(1)
    predict_in_evaluation(session, x)
    for hook in hooks:
        hook.remove()
    scale_layers({layer: HUGE / max(peak, 1e-3) for layer, peak in peaks.items()})
    reached = float(predict_in_evaluation(session, x).abs().max())
    if HUGE / 2 <= reached < HUGE:
        scale_layers(dict.fromkeys(peaks, HUGE / reached))
        reached = float(predict_in_evaluation(session, x).abs().max())
    elif reached < HUGE / 2:
        session.training_set.stored[:].mul_(HUGE / max(reached, 1e-3))
        reached = float(predict_in_evaluation(session, session.training_set.original(0, len(x))).abs().max())
    return reached


@torch.no_grad()
def scale_layers(factors: dict[nn.Linear, float]) -> None:
    """Multiply the outputs of linear layers."""
    for layer, factor in factors.items():
        for parameter in layer.parameters():
            parameter.mul_(factor)
