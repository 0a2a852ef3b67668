"""Whether runs of an algorithm can be trained as one, and whether they are then what they are alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from plench.algorithms.base import LossAlgorithm
from plench.contract.base import BreachError, NotCheckedError, advised, needs_batches
from plench.contract.subject import Session, Subject
from plench.training.fleet.single import find_step
from plench.training.fleet.stack import StackedRuns, StackError, choose_form, is_plain_value, stack_runs
from plench.training.fleet.stacked_batches import StackedBatches

RUNS = 2
HOW = {
    "stacked": "trained as one: its losses and revisions act on stacks of runs",
    "mapped": "trained as one: its loss is mapped over runs",
}
# What to do about runs that are not what they are alone.
CURE = {
    "stacked": "Losses and revisions must act on the last axes (…, B, K); without stacked=True the loss is "
    "mapped over runs if it is all that the class adds, and otherwise runs are trained one by one",
    "mapped": "A loss that is mapped over runs may depend on its arguments, hyperparameters, state and "
    'steps_done only; with alone="the reason" in @register runs are trained one by one',
}
# Of single-precision numbers after a few updates.
RTOL, ATOL = 1e-3, 1e-4


@advised
def runs_trained_as_one(subject: Subject) -> str:
    """Sweeps train runs that differ in seed and configuration as one where an algorithm allows it: then each
    must become what it is alone. Without `stacked=True` in @register a loss written for one run is mapped
    over runs, or runs are trained one by one. With it, a run alone may take a step written by hand, which
    must have the bits of `update`.
    """
    needs_batches(subject)
    try:
        form = choose_form(subject.entry.cls)
        together, members = start_stack(subject)
    except StackError as reason:
        raise NotCheckedError(f"its runs are trained alone: {reason}") from None
    alone = [subject.start(seed=seed) for seed in range(RUNS)]
    updates = subject.count_updates(alone[0])
    batches = StackedBatches([member.training_set for member in members])
    try:
        for _ in range(updates):
            together.update(batches.next())
        together.hand_out()
    except Exception as error:
        if form == "mapped":
            raise NotCheckedError(f"its runs are trained alone: {show_error(error)}") from None
        if isinstance(error, StackError):
            raise BreachError(f"its runs are trained alone, though it says stacked=True: {error}") from None
        raise
    for one, other in zip(alone, members, strict=True):
        one.update(updates)
        compare_with_alone(one, other, updates, CURE[form])
    compare_by_hand(subject, alone[0], updates)
    return HOW[form]


def start_stack(subject: Subject) -> tuple[StackedRuns, Sequence[Session]]:
    """Start runs and make one of them."""
    members = [subject.start(seed=seed) for seed in range(RUNS)]
    algorithms = [member.algorithm for member in members]
    own = [algorithm for algorithm in algorithms if isinstance(algorithm, LossAlgorithm)]
    return stack_runs(own, [member.run.streams for member in members]), members


def compare_with_alone(alone: Session, member: Session, updates: int, cure: str) -> None:
    """Raise BreachError if a run of a stack is not what it is alone; `cure` says what to do about it."""
    found = member.algorithm.state_dict()
    for name, value in alone.algorithm.state_dict().items():
        if not torch.allclose(value.float(), found[name].float(), rtol=RTOL, atol=ATOL, equal_nan=True):
            apart = float((value.float() - found[name].float()).abs().max())
            raise BreachError(
                f"after {updates} updates {name} of a run trained as one with others is {apart:.2g} away "
                f"from that of the run alone. {cure}"
            )
    for name, value in vars(alone.algorithm).items():
        if is_plain_value(value) and not is_close(value, vars(member.algorithm).get(name)):
            raise BreachError(
                f"after {updates} updates the attribute {name} of a run trained as one with others is "
                f"{vars(member.algorithm).get(name)}, that of the run alone {value}. {cure}"
            )


def is_close(one: Any, other: Any) -> bool:
    """Say whether plain values are equal, numbers to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=RTOL, abs_tol=ATOL)
    return bool(one == other)


def compare_by_hand(subject: Subject, alone: Session, updates: int) -> None:
    """Raise BreachError if the step written by hand, where one is taken, differs in a bit from `update`."""
    session = subject.start(seed=0)
    step = find_step(session.algorithm)
    if step is None:
        return
    with session.run.streams.ambient("algorithm"):
        for _ in range(updates):
            step.update(session.training_set.next_batch())
    found = session.algorithm.state_dict()
    for name, value in alone.algorithm.state_dict().items():
        if not torch.equal(value.nan_to_num(), found[name].nan_to_num()):
            raise BreachError(
                f"after {updates} updates {name} is another with the step that is written by hand, which "
                "stacked=True allows, than with update. Leave out stacked=True, or write update yourself"
            )


def show_error(error: Exception) -> str:
    """Say in one line what was raised."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".strip()
