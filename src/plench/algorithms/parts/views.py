"""Passes over several views of a batch or over all training inputs, and mixup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributions import Beta
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from plench.algorithms.base import TrainingInputs

# Rows of the training inputs per pass.
INPUT_ROWS = 1024


def pass_views(network: nn.Module, *views: Tensor) -> Tensor:
    """Return the logits (V, B, K) of each view, from separate passes in the given order."""
    if one_pass_serves(network, *views):
        logits: Tensor = network(views[0])
        return logits.expand(len(views), *logits.shape)
    return torch.stack([network(view) for view in views])


def pass_together(network: nn.Module, *views: Tensor) -> Tensor:
    """Return the outputs (V, B, …) of each view, from one pass over the rows of all of them."""
    if one_pass_serves(network, *views):
        outputs: Tensor = network(views[0])
        return outputs.expand(len(views), *outputs.shape)
    axis = getattr(network, "row_axis", 0)  # of a stack (R, B, …) it is 1
    joined: Tensor = network(torch.cat(views, axis))
    outputs = joined.unflatten(axis, (len(views), -1)).movedim(axis, 0)
    return outputs


def one_pass_serves(network: nn.Module, *views: Tensor) -> bool:
    """Whether one pass gives the outputs of all views: one tensor, as on tables, and independent rows.

    Batch norm would count the rows of each pass in its running averages, and dropout would draw anew, so with
    either the passes stay separate.
    """
    if any(view is not views[0] for view in views):
        return False
    return not any(isinstance(module, _BatchNorm | _DropoutNd) for module in network.modules())


@torch.no_grad()
def pass_all_inputs(network: nn.Module, inputs: TrainingInputs) -> Tensor:
    """Return a network's outputs (N, …) on the original view of all training inputs, in evaluation mode."""
    with evaluating(network):
        return torch.cat([network(rows) for rows in read_inputs(inputs)])


def read_inputs(inputs: TrainingInputs) -> Iterator[Tensor]:
    """Yield the original view of all training inputs in order, some rows at a time."""
    for start in range(0, len(inputs), INPUT_ROWS):
        yield inputs.original(start, min(start + INPUT_ROWS, len(inputs)))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module in evaluation mode inside the block."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def draw_share(alpha: float) -> Tensor:
    """Draw l ~ Beta(α, α)."""
    share: Tensor = Beta(alpha, alpha, validate_args=False).sample()
    return share


def draw_mixing(alpha: float) -> Tensor:
    """Draw l ~ Beta(α, α) and return max(l, 1 − l), so that the first partner dominates."""
    share = draw_share(alpha)
    return torch.maximum(share, 1 - share)


def draw_partners(rows: Tensor) -> Tensor:
    """Draw a partner for each row of a batch: a permutation (B,)."""
    return torch.randperm(len(rows), device=rows.device)


def mix(first: Tensor, second: Tensor, share: Tensor | float) -> Tensor:
    """Return l · first + (1 − l) · second."""
    return share * first + (1 - share) * second
