"""The benchmark's optimiser: torch's fused Adam, whose first use does not import torch's compiler."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn


class Adam(torch.optim.Adam):
    """Adam with the weight decay added to the gradient.

    torch wraps these methods to keep its compiler out of them, and imports the compiler to do so: two
    seconds of every process. Nobody compiles an optimiser here, so the methods within the wraps are taken.
    """

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


def build_adam(parameters: Iterable[nn.Parameter], hparams: Mapping[str, Any]) -> Adam:
    """Build the optimiser of a run."""
    return Adam(parameters, lr=hparams["lr"], weight_decay=hparams["weight_decay"], fused=True)


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one optimiser step on a loss."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
