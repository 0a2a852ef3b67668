"""Passes over several views of a batch, made once where the views are one tensor (tabular data)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


def one_pass_serves(network: nn.Module, *views: Tensor) -> bool:
    """Say whether one pass gives the outputs of all views: they are one tensor and rows do not interact.

    Batch norm would count the rows of each pass in its running averages, and dropout would draw anew, so with
    either the passes stay separate.
    """
    if any(view is not views[0] for view in views):
        return False
    return not any(isinstance(module, _BatchNorm | _DropoutNd) for module in network.modules())


def pass_views(network: nn.Module, *views: Tensor) -> Tensor:
    """Return the logits (V, B, K) of each view, from separate passes in the given order."""
    if one_pass_serves(network, *views):
        logits: Tensor = network(views[0])
        return logits.expand(len(views), *logits.shape)
    return torch.stack([network(view) for view in views])
