"""Checks that an update is batched tensor work: a constant number of operations, no wait for the device."""

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

from plench.contract.base import BreachError, advised, needs_batches, required
from plench.contract.examples import make_examples
from plench.contract.subject import Session, Subject, phase_starts

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
        if name in WAITS or indexes_by_mask(name, args):
            place = find_place(self.file)
            if place is not None:
                self.waits.append(place)
        return func(*args, **(kwargs or {}))


def indexes_by_mask(name: str, args: tuple[Any, ...]) -> bool:
    """Say whether a call indexes by a bool tensor, the size of whose result the host must learn."""
    if name not in ("aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"):
        return False
    return any(isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1])


def find_place(file: str | None) -> str | None:
    """Say at which line of a file the running call was made; None if an optimiser of torch made it."""
    frame = sys._getframe(2)
    place = "code outside the algorithm's file"
    while frame is not None:
        if frame.f_code.co_filename.startswith(OPTIMISERS):
            return None
        if file is not None and frame.f_code.co_filename == file:
            return f"line {frame.f_lineno} ({linecache.getline(file, frame.f_lineno).strip()})"
        frame = frame.f_back  # type: ignore[assignment]
    return place


Counters = dict[int, OperatorCounter]


def count_operators(subject: Subject, batch_size: int, num_classes: int) -> Counters:
    """Return the operators of updates in the middle of epochs, in every phase, by number of the update."""
    session = subject.start(make_examples(EPOCH * batch_size, num_classes), batch_size=batch_size)
    counters = {}
    updates = last_middle(session) + 1
    changes = {first + offset for first in phase_starts(session.algorithm) for offset in (-1, 0, 1)}
    with session.run.streams.ambient("algorithm"):
        for number in range(updates):
            batch = session.training_set.next_batch()
            if number % EPOCH not in MIDDLE or number in changes:
                session.update_once(batch)
                continue
            with OperatorCounter(subject.file) as counter:
                session.algorithm.update(batch)
            counters[number] = counter
    return counters


def last_middle(session: Session) -> int:
    """Return the first update in the middle of an epoch that lies in the last phase."""
    last = max(phase_starts(session.algorithm), default=0) + 2
    return next(number for number in range(last, last + 2 * EPOCH) if number % EPOCH == MIDDLE[-1])


def compare_operators(first: Counters, second: Counters, sizes: tuple[str, str]) -> None:
    """Raise a breach if any update took another number of operators."""
    for number in sorted(first.keys() & second.keys()):
        one, other = first[number].calls, second[number].calls
        if one.total() != other.total():
            changed = sorted(one.keys() | other.keys(), key=lambda name: -abs(one[name] - other[name]))
            names = ", ".join(f"{name} {one[name]} → {other[name]}" for name in changed[:4])
            raise BreachError(
                f"update {number} takes {one.total()} tensor operations with {sizes[0]} and {other.total()} "
                f"with {sizes[1]} ({names}): replace the loop by operations on whole tensors"
            )


@required
def does_not_loop_over_examples(subject: Subject) -> None:
    """An update takes the same number of tensor operations with 16 and with 256 examples."""
    needs_batches(subject)
    few, many = count_operators(subject, 16, 4), count_operators(subject, 256, 4)
    compare_operators(few, many, ("16 examples", "256"))


@required
def does_not_loop_over_classes(subject: Subject) -> None:
    """An update takes the same number of tensor operations with 4 and with 40 classes."""
    needs_batches(subject)
    few, many = count_operators(subject, 16, 4), count_operators(subject, 16, 40)
    compare_operators(few, many, ("4 classes", "40"))


@advised
def does_not_wait_for_the_device(subject: Subject) -> None:
    """An update does not wait for results of the device (`loss.item()` instead of `loss.detach()`, indexing
    by a mask), so that a GPU is never idle; work once per epoch may wait."""
    needs_batches(subject)
    waits = [wait for counter in count_operators(subject, 16, 4).values() for wait in counter.waits]
    if waits:
        found = ", ".join(dict.fromkeys(waits))
        raise BreachError(f"the host waits in {found}")
