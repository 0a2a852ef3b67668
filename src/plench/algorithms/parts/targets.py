"""Targets over candidate sets, in log space. Tensors are (…, B, K); a leading axis stacks runs."""

from __future__ import annotations

import torch
from torch import Tensor

NEG_INF = float("-inf")


def over_rows(value: Tensor | float, axes: int = 2) -> Tensor | float:
    """Shape a per-run hyperparameter, a number or a tensor over runs (R,), to act on (R, B, K).

    `axes` is the number of axes behind the runs: 2 for rows and classes, 1 for what has classes only.
    """
    return value.reshape(*value.shape, *[1] * axes) if isinstance(value, Tensor) else value


def uniform_over(candidates: Tensor) -> Tensor:
    """Return equal weight on each candidate: S/|S|."""
    weights = candidates.to(torch.get_default_dtype())
    return weights / weights.sum(-1, keepdim=True)


def mask_out(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the logits where the mask is set and −∞ elsewhere."""
    return torch.where(mask, logits, NEG_INF)


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the entries of a non-empty mask, exactly 0 elsewhere."""
    return mask_out(logits, mask).softmax(-1)


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over rows of −Σ_j c_j log p_j, for targets c held constant."""
    return -(targets * logits.log_softmax(-1)).sum((-2, -1)) / logits.shape[-2]


def read_rows(state: Tensor, index: Tensor) -> Tensor:
    """Return the rows `index` of per-example state."""
    return state.index_select(0, index)


def write_rows(state: Tensor, index: Tensor, rows: Tensor) -> None:
    """Replace the rows `index` (all different) of per-example state, in place."""
    state.index_copy_(0, index, rows.to(state.dtype))
