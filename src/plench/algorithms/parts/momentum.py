"""A network that follows another as a moving average of its parameters."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def copy_without_gradient(network: AnyModule) -> AnyModule:
    """Return an exact copy whose parameters collect no gradient."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(average: nn.Module, network: nn.Module, momentum: float) -> None:
    """Move the average's parameters: θ_avg ← m θ_avg + (1 − m) θ.

    Buffers, such as the running statistics of batch norm, are left alone: the average runs in training mode.
    """
    torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 1 - momentum)
