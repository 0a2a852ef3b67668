"""Compares the whole state of two algorithms, and names the first place where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from plench.training.checkpoint import dump, parse
from plench.training.state import saved_values, take_snapshot


def snapshot(owner: nn.Module) -> dict[str, Any]:
    """Return all values that an algorithm holds, by path."""
    return dict(saved_values(take_snapshot(owner).tree, type(owner).__name__))


def find_difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> str | None:
    """Return the first path at which two states differ in any bit, or None."""
    for path in [*first, *(path for path in second if path not in first)]:
        if path not in first or path not in second or not equal(first[path], second[path]):
            return path
    return None


def equal(first: Any, second: Any) -> bool:
    """Say whether two saved values are the same, bit for bit."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        same_kind = first.dtype == second.dtype and first.shape == second.shape
        return same_kind and torch.equal(first.nan_to_num(), second.nan_to_num())
    if isinstance(first, dict) and isinstance(second, dict):
        return find_difference(first, second) is None
    if isinstance(first, float) and isinstance(second, float) and first != first:
        return second != second
    return type(first) is type(second) and bool(first == second)


def find_unreadable(owner: nn.Module) -> list[str]:
    """Return the paths of what an algorithm holds that is saved but could not be read back."""
    found = []
    for path, value in snapshot(owner).items():
        try:
            parse(dump({"value": value}))
        except ValueError:
            found.append(f"{path} ({type(value).__name__})")
    return found


def find_not_finite(owner: nn.Module) -> str | None:
    """Return the path of a tensor or array with a value that is NaN or infinite, or None."""
    for path, value in snapshot(owner).items():
        if isinstance(value, Tensor) and value.is_floating_point() and not value.isfinite().all():
            return path
    return None
