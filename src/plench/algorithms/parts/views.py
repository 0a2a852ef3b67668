"""Passes over several views of a batch, and mixup."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Beta
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


def pass_views(network: nn.Module, *views: Tensor) -> Tensor:
    """Return the logits (V, B, K) of each view, from separate passes in the given order."""
    if one_pass_serves(network, *views):
        logits: Tensor = network(views[0])
        return logits.expand(len(views), *logits.shape)
    return torch.stack([network(view) for view in views])


def one_pass_serves(network: nn.Module, *views: Tensor) -> bool:
    """Say whether one pass gives the outputs of all views: one tensor, as on tables, and independent rows.

    Batch norm would count the rows of each pass in its running averages, and dropout would draw anew, so with
    either the passes stay separate.
    """
    if any(view is not views[0] for view in views):
        return False
    return not any(isinstance(module, _BatchNorm | _DropoutNd) for module in network.modules())


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
