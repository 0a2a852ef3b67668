"""Checks that an update is batched tensor work, and that stacked runs are what they are alone."""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from plench.contract.training import find_difference, snapshot
from plench.contract.under_test import (
    AlgorithmUnderTest,
    ContractViolation,
    NotChecked,
    advised,
    ensure,
    make_examples,
    only_for,
    required,
)
from plench.training.stack import StackedStep, StackError, choose_form
from plench.training.step import SingleStep

EPOCH = 6
# Updates of an epoch that neither begin nor end it: work once per epoch is allowed to differ.
MIDDLE = (2, 3)
# Operators that make the host wait for a result of the device.
WAITS = {
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
}
# Operators that do if they index by a bool tensor: the host must know the size of the result.
INDEXING = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}
OPTIMISERS = str(Path(torch.optim.__file__).parent)


class OperatorCounter(TorchDispatchMode):
    """Counts operator calls by name, and the lines of a file that make the host wait."""

    def __init__(self, file: str | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.file = file
        self.calls: Counter[str] = Counter()
        self.waits: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Count a call and make it."""
        name = func._schema.name
        self.calls[name] += 1
        if name in WAITS or (
            name in INDEXING and any(isinstance(i, Tensor) and i.dtype == torch.bool for i in args[1])
        ):
            self.waits += find_place(self.file)
        return func(*args, **(kwargs or {}))


def find_place(file: str | None) -> list[str]:
    """Return at which line of a file the running call was made; nothing if an optimiser of torch made it."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(OPTIMISERS):
            return []
        if file is not None and frame.f_code.co_filename == file:
            return [f"line {frame.f_lineno} ({linecache.getline(file, frame.f_lineno).strip()})"]
        frame = frame.f_back  # type: ignore[assignment]
    return ["code outside the algorithm's file"]


def count_operators(
    tested: AlgorithmUnderTest, batch_size: int, num_classes: int
) -> dict[int, OperatorCounter]:
    """Return the operators of updates in the middle of epochs, in every phase, by number of the update."""
    session = tested.start(make_examples(EPOCH * batch_size, num_classes), batch_size=batch_size)
    starts = list(session.algorithm.phases().values())
    changes = {first + offset for first in starts for offset in (-1, 0, 1)}
    # The first update in the middle of an epoch that lies in the last phase.
    last = max(starts, default=0) + 2
    last = next(number for number in range(last, last + 2 * EPOCH) if number % EPOCH == MIDDLE[-1])
    counters = {}
    with session.run.streams.ambient("algorithm"):
        for number in range(last + 1):
            batch = session.training_set.next_batch()
            if number % EPOCH not in MIDDLE or number in changes:
                session.update_once(batch)
                continue
            with OperatorCounter(tested.file) as counters[number]:
                session.algorithm.update(batch)
    return counters


def compare_operators(tested: AlgorithmUnderTest, many: tuple[int, int], sizes: tuple[str, str]) -> None:
    """Raise a violation if an update with more examples or classes takes another number of operators."""
    few_counters, many_counters = count_operators(tested, 16, 4), count_operators(tested, *many)
    for number in sorted(few_counters.keys() & many_counters.keys()):
        one, other = few_counters[number].calls, many_counters[number].calls
        changed = sorted(one.keys() | other.keys(), key=lambda name: -abs(one[name] - other[name]))
        names = ", ".join(f"{name} {one[name]} → {other[name]}" for name in changed[:4])
        ensure(
            one.total() == other.total(),
            f"update {number} takes {one.total()} tensor operations with {sizes[0]} and {other.total()} with "
            f"{sizes[1]} ({names}): replace the loop by operations on whole tensors",
        )


@only_for("batches")
@required
def does_not_loop_over_examples(tested: AlgorithmUnderTest) -> None:
    """An update takes the same number of tensor operations with 16 and with 256 examples."""
    compare_operators(tested, (256, 4), ("16 examples", "256"))


@only_for("batches")
@required
def does_not_loop_over_classes(tested: AlgorithmUnderTest) -> None:
    """An update takes the same number of tensor operations with 4 and with 40 classes."""
    compare_operators(tested, (16, 40), ("4 classes", "40"))


@only_for("batches")
@advised
def does_not_wait_for_the_device(tested: AlgorithmUnderTest) -> None:
    """An update does not wait for results of the device (`loss.item()` instead of `loss.detach()`, indexing
    by a mask), so that a GPU is never idle; work once per epoch may wait."""
    waits = [wait for counter in count_operators(tested, 16, 4).values() for wait in counter.waits]
    ensure(not waits, f"the host waits in {', '.join(dict.fromkeys(waits))}")


# Stacked runs --------------------------------------------------------------------------------------------

RUNS = 2
STACKED = {
    "stacked": "stacked: its losses and revisions act on stacks of runs",
    "mapped": "stacked: its loss is mapped over runs",
}
# What to do if stacked runs are not what they are alone.
ADVICE = {
    "stacked": "Losses and revisions must act on the last axes (…, B, K); without stacked=True the loss is "
    "mapped over runs if it is all that the class adds, and otherwise runs are trained one by one",
    "mapped": "A loss that is mapped over runs may depend on its arguments, hyperparameters, state and "
    'steps_done only; with not_stackable="the reason" in @register runs are trained one by one',
}
# For single-precision numbers after a few updates.
RTOL, ATOL = 1e-3, 1e-4


@only_for("stacks")
@advised
def trains_in_a_stack(tested: AlgorithmUnderTest) -> str:
    """Sweeps stack runs that differ in seed and configuration where an algorithm allows it: then each must
    become what it is alone. Without `stacked=True` in @register a loss written for one run is mapped over
    runs, or runs are trained one by one. With it, a single run may take a step written by hand, which must
    have the bits of `update`.
    """
    members = [tested.start(seed=seed) for seed in range(RUNS)]
    form = choose_form(tested.entry.cls)
    try:
        step = StackedStep([member.run for member in members])
    except StackError as reason:
        raise NotChecked(f"its runs are not stacked: {reason}") from None
    updates = members[0].updates
    try:
        for _ in range(updates):
            step.update()
        step.sync()
    except Exception as error:
        if form == "mapped":
            first_line = "".join(str(error).strip().splitlines()[:1])
            text = f"{type(error).__name__}: {first_line}".strip()
            raise NotChecked(f"its runs are not stacked: {text}") from None
        if isinstance(error, StackError):
            raise ContractViolation(
                f"its runs are not stacked, though it says stacked=True: {error}"
            ) from None
        raise
    for seed, member in enumerate(members):
        found, wanted = snapshot(member.algorithm), snapshot(tested.train(seed=seed).algorithm)
        different = find_difference(wanted, found, RTOL, ATOL)
        problem = f"after {updates} updates {different} of a stacked run is not that of the run alone"
        ensure(different is None, f"{problem}. {ADVICE[form]}")
    by_hand = tested.start(seed=RUNS - 1)
    single = SingleStep(by_hand.run)
    if single.by_hand is not None:
        with single.ambient():
            for _ in range(updates):
                single.update()
        different = find_difference(wanted, snapshot(by_hand.algorithm))
        problem = f"after {updates} updates {different} differs between update and the step written by hand"
        ensure(different is None, f"{problem}. Leave out stacked=True, or write update yourself")
    return STACKED[form]
