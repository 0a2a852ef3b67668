"""Checks that a run can be repeated and resumed exactly."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from plench.contract.base import BreachError, advised, needs_batches, required
from plench.contract.differences import find_difference, find_unreadable, snapshot
from plench.contract.subject import Session, Subject, phase_starts
from plench.runs.folder import RunStore
from plench.training.checkpoint import read_newest
from plench.training.evaluation import evaluate
from plench.training.state import take_snapshot


def train_phases(
    subject: Subject, seed: int = 0, evaluating: bool = False
) -> tuple[list[float], dict[str, Any]]:
    """Train through every phase; return the losses and the whole final state."""
    session = subject.start(seed=seed)
    losses = []
    for _ in range(subject.count_updates(session)):
        losses += session.update(1)
        if evaluating:
            with session.run.streams.ambient("evaluation"):
                evaluate(session.algorithm, session.run.data)
    return losses, snapshot(session.algorithm)


@required
def repeats_with_the_same_seed(subject: Subject) -> None:
    """Two runs with the same seed agree in every bit."""
    first, second = train_phases(subject), train_phases(subject)
    different = find_difference(first[1], second[1])
    if different or first[0] != second[0]:
        raise BreachError(
            f"two runs with the same seed differ (first in {different or 'the losses'}): draw from the "
            "default generators of torch, numpy or random, which the run seeds, not from the clock or a "
            "generator that seeds itself"
        )


@required
def differs_with_another_seed(subject: Subject) -> None:
    """Two runs with different seeds differ."""
    needs_batches(subject)
    if find_difference(train_phases(subject, seed=0)[1], train_phases(subject, seed=1)[1]) is None:
        raise BreachError("runs with the seeds 0 and 1 are the same: is a fixed seed set somewhere?")


@required
def is_not_disturbed_by_evaluation(subject: Subject) -> None:
    """Evaluating after every update changes nothing in the training."""
    different = find_difference(train_phases(subject)[1], train_phases(subject, evaluating=True)[1])
    if different:
        raise BreachError(
            f"a run that is evaluated more often ends with another {different}: predict must not "
            "change state or count calls"
        )


@required
def resumes_exactly(subject: Subject) -> None:
    """Saved, loaded into a new object and continued, a run ends as if it had never stopped, in every bit of
    weights, state and losses, wherever it is cut."""
    with tempfile.TemporaryDirectory() as folder:
        session = subject.start()
        updates = subject.count_updates(session)
        starts = [first for first in phase_starts(session.algorithm) if 0 < first < updates]
        cuts = sorted({1, updates // 2, updates - 2, *starts})
        if subject.fitted:
            cuts = list(range(1, updates))
        losses = []
        for done in range(updates):
            if done in cuts:
                session.run.store = store_at(folder, done)
                session.run.write_checkpoint()
            losses += session.update(1)
        final = describe_state(session)
        for cut in cuts:
            resumed = resume(subject, store_at(folder, cut), session)
            again = resumed.update(updates - cut)
            different = find_difference(
                {**final, "the losses": losses[cut:]}, {**describe_state(resumed), "the losses": again}
            )
            if different:
                unsaved = take_snapshot(session.algorithm).unsaved
                raise BreachError(
                    f"cut after update {cut} of {updates} and resumed, the run differs (first in "
                    f"{different}). Saved are tensors, arrays, numbers, optimisers, "
                    "generators and containers of these found on the object: keep all state there, and "
                    "create the objects that hold it in __init__"
                    + (f". Not saved: {', '.join(unsaved)}" if unsaved else "")
                )


def describe_state(session: Session) -> dict[str, Any]:
    """Return the whole state of a run: that of the algorithm, and the sums of what its updates logged."""
    return {**snapshot(session.algorithm), "what update logs": session.run.totals.state()}


def store_at(folder: str, cut: int) -> RunStore:
    """Return the place of the checkpoint of a cut."""
    path = Path(folder) / str(cut)
    path.mkdir(exist_ok=True)
    return RunStore(path)


def resume(subject: Subject, store: RunStore, saved: Session) -> Session:
    """Build a fresh run and continue it from the checkpoint that a session left."""
    session = subject.start(store=store)
    checkpoint = read_newest(store)
    if checkpoint is None:
        found = ", ".join(find_unreadable(saved.algorithm)) or "nothing by itself"
        raise BreachError(
            "a checkpoint was written but cannot be read back, so that the run would start over (the cause "
            f"is {found}). Checkpoints hold plain tensors, arrays and numbers: keep no tensors of types of "
            "your own, or name them in the class attribute `transient` if they hold no state"
        )
    with session.run.streams.ambient("algorithm"):
        session.run.restore(checkpoint)
    return session


@advised
def holds_only_what_can_be_saved(subject: Subject) -> None:
    """Everything on the object can be saved, or is named in the class's `transient`."""
    session = subject.start()
    session.update(1)
    unsaved = take_snapshot(session.algorithm).unsaved
    if unsaved:
        raise BreachError(
            f"cannot be saved: {', '.join(unsaved)}. What holds no state can be named in the class "
            "attribute `transient`"
        )
