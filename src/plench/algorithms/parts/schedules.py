"""Epochs by step number alone, in exact integers, so that a resumed run needs only the step counter.

An epoch has n/B steps, which need not be a whole number.
"""

from __future__ import annotations


def epoch_of(step: int, num_data: int, batch_size: int) -> int:
    """Return the epoch of a step: floor(t·B/n)."""
    return step * batch_size // num_data


def starts_epoch(step: int, num_data: int, batch_size: int) -> bool:
    """Say whether the step is the first of a new epoch; step 0 is not."""
    return step >= 1 and epoch_of(step, num_data, batch_size) != epoch_of(step - 1, num_data, batch_size)


def first_step_of(epoch: int, num_data: int, batch_size: int) -> int:
    """Return the first step of an epoch: ceil(e·n/B)."""
    return -(-epoch * num_data // batch_size)
