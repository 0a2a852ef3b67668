"""Mixup: convex combinations of inputs and of targets, with one coefficient per step."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Beta


def draw_mixing(alpha: float) -> Tensor:
    """Draw l ~ Beta(α, α) and return max(l, 1 − l), so that the first partner dominates."""
    share = Beta(alpha, alpha, validate_args=False).sample()
    return torch.maximum(share, 1 - share)


def draw_partners(rows: Tensor) -> Tensor:
    """Draw a partner for each row of a batch: a permutation (B,)."""
    return torch.randperm(len(rows), device=rows.device)


def mix(first: Tensor, second: Tensor, share: Tensor | float) -> Tensor:
    """Return l · first + (1 − l) · second."""
    return share * first + (1 - share) * second
