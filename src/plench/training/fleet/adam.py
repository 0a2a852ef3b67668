"""Adam's fused step without what torch's optimiser does around it; its state stays in the optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import optimizer as of_torch

from plench.algorithms.optimizer import Adam

# An optimiser with other values than these is left to torch.
USUAL = {"amsgrad": False, "maximize": False, "fused": True, "capturable": False, "differentiable": False}


def is_plain_adam(optimizer: object, parameters: Sequence[nn.Parameter]) -> bool:
    """Say whether an optimiser is the benchmark's: a fused Adam on just these parameters."""
    if not isinstance(optimizer, torch.optim.Adam) or type(optimizer) not in (Adam, torch.optim.Adam):
        return False
    if len(optimizer.param_groups) != 1:
        return False
    group = optimizer.param_groups[0]
    same = len(group["params"]) == len(parameters) and all(
        one is other for one, other in zip(group["params"], parameters, strict=True)
    )
    usual = all(group.get(name) == value for name, value in USUAL.items())
    numbers = all(isinstance(group[name], float | int) for name in ("lr", "weight_decay", "eps"))
    return same and usual and numbers and not group.get("decoupled_weight_decay", False)


def is_watched(optimizer: torch.optim.Optimizer) -> bool:
    """Say whether an optimiser has step hooks."""
    return bool(
        of_torch._global_optimizer_pre_hooks
        or of_torch._global_optimizer_post_hooks
        or optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
    )


class FusedAdam:
    """The steps of several optimisers, each on its own parameters with its own rate.

    The first step is torch's, which makes the state. From then on the counters of all parameters are one
    tensor, of which the optimisers hold views, and the fused operation is called as torch calls it, with the
    rates that the optimisers have at the time: a method may change them as it goes.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Adam], gradients: Sequence[Sequence[Tensor]]) -> None:
        self.optimizers = list(optimizers)
        self.calls: list[tuple[Any, ...]] = []
        self.counters: Tensor | None = None
        for optimizer, own in zip(optimizers, gradients, strict=True):
            for parameter, gradient in zip(optimizer.param_groups[0]["params"], own, strict=True):
                parameter.grad = gradient

    def step(self) -> None:
        """Take a step of every optimiser on the gradients as they are now."""
        if self.counters is None or any(is_watched(optimizer) for optimizer in self.optimizers):
            for optimizer in self.optimizers:
                optimizer.step()
            if self.counters is None:
                self.gather()
            return
        with torch.no_grad():
            self.counters.add_(1)
            for optimizer, arguments in zip(self.optimizers, self.calls, strict=True):
                torch._fused_adam_(*arguments, **fused_settings(optimizer.param_groups[0]))

    def gather(self) -> None:
        """Make the lists of the fused operation, once."""
        groups = [optimizer.param_groups[0] for optimizer in self.optimizers]
        states = [
            [optimizer.state[parameter] for parameter in group["params"]]
            for optimizer, group in zip(self.optimizers, groups, strict=True)
        ]
        flat = [state for own in states for state in own]
        self.counters = torch.stack([state["step"] for state in flat])
        for state, counter in zip(flat, self.counters.unbind(), strict=True):
            state["step"] = counter
        for group, own in zip(groups, states, strict=True):
            parameters = [parameter.detach() for parameter in group["params"]]
            gradients = [parameter.grad for parameter in group["params"]]
            averages = [[state[name] for state in own] for name in ("exp_avg", "exp_avg_sq")]
            self.calls.append((parameters, gradients, *averages, [], [state["step"] for state in own]))


def fused_settings(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group's settings as the fused operation names them."""
    return {
        "lr": group["lr"],
        "beta1": group["betas"][0],
        "beta2": group["betas"][1],
        "weight_decay": group["weight_decay"],
        "eps": group["eps"],
        "amsgrad": False,
        "maximize": False,
        "grad_scale": None,
        "found_inf": None,
    }
