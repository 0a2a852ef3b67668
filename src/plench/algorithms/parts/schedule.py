"""Schedules that depend on the step number alone, in exact integers, so that a resumed run needs only it."""

from __future__ import annotations

from plench.errors import UsageError


def epoch_of(step: int, num_data: int, batch_size: int) -> int:
    """Return the epoch of a step: floor(t·B/n)."""
    return step * batch_size // num_data


def starts_epoch(step: int, num_data: int, batch_size: int) -> bool:
    """Say whether the step is the first of a new epoch; step 0 is not."""
    return step >= 1 and epoch_of(step, num_data, batch_size) != epoch_of(step - 1, num_data, batch_size)


def first_step_of(epoch: int, num_data: int, batch_size: int) -> int:
    """Return the first step of an epoch: ceil(e·n/B)."""
    return -(-epoch * num_data // batch_size)


def confidence_momentum(step: int, max_steps: int, ends: tuple[float, float]) -> float:
    """Return the momentum φ of the confidence at a step.

    It goes in a straight line from the first to the second end, one step behind; the first step has 0.99.
    """
    if step == 0:
        return 0.99
    start, end = ends
    return start + (step - 1) / max_steps * (end - start)


def parse_range(name: str, text: str) -> tuple[float, float]:
    """Read a range such as "0.95,0.8", both ends in [0, 1]."""
    try:
        start, end = (float(part) for part in text.split(","))
    except ValueError:
        start = end = -1.0
    if not (0 <= start <= 1 and 0 <= end <= 1):
        raise UsageError(f"hyperparameter {name} must be two numbers in [0, 1] like '0.95,0.8', not {text!r}")
    return start, end
