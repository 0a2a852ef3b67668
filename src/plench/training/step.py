"""The updates of one run, with passes and Adam of the MLP written by hand: the same bits, less overhead.

The products of one run are those that autograd makes, in the same order, so that every bit is the same. What
is saved is the graph: gradients go into tensors that are allocated once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import optimizer as of_torch

from plench.algorithms import FittedAlgorithm
from plench.algorithms.base import Adam, Algorithm, Batch, LossAlgorithm, detach
from plench.algorithms.registry import own_card
from plench.networks import MLP, MLP_BN, Classifier, Linear
from plench.training.run import TrainingRun, predict_logits

# What a class must not override for the handwritten step: the order of a step.
ORDER_OF_A_STEP = ("update", "passes", "descend")
# Settings of the benchmark's Adam; an optimiser with other values is left to torch.
PLAIN_ADAM = {
    "amsgrad": False,
    "maximize": False,
    "fused": True,
    "capturable": False,
    "differentiable": False,
}
# Those of torch's batch normalisation.
NORM_MOMENTUM, NORM_EPS = 0.1, 1e-5


def is_plain_mlp(network: object) -> bool:
    """Return True for our MLP or MLP_BN with its classifier, in float32, without hooks and not compiled."""
    if type(network) is not nn.Sequential or len(network) != 2:
        return False
    featurizer, classifier = network
    if type(featurizer) not in (MLP, MLP_BN) or featurizer.precision != "float32":
        return False
    modules = (network, featurizer, *featurizer.children(), classifier)
    kinds = [type(module) for module in modules[2:]]
    norms = [module for module in modules if isinstance(module, nn.BatchNorm1d)]
    if kinds not in ([Linear, Classifier], [Linear, nn.BatchNorm1d, Classifier]):
        return False
    if any((norm.momentum, norm.eps) != (NORM_MOMENTUM, NORM_EPS) for norm in norms):
        return False
    return not any(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or module._compiled_call_impl is not None
        or "forward" in vars(module)
        for module in modules
    )


def is_plain_adam(optimizer: object, parameters: Sequence[nn.Parameter]) -> bool:
    """Return True for the benchmark's optimiser: a fused Adam on just these parameters."""
    if not isinstance(optimizer, torch.optim.Adam) or type(optimizer) not in (Adam, torch.optim.Adam):
        return False
    group = optimizer.param_groups[0]
    numbers = all(isinstance(group[name], float | int) for name in ("lr", "weight_decay", "eps"))
    return (
        len(optimizer.param_groups) == 1
        and list(map(id, group["params"])) == list(map(id, parameters))
        and all(group.get(name) == value for name, value in PLAIN_ADAM.items())
        and numbers
        and not group.get("decoupled_weight_decay", False)
    )


def is_better_turned(rows: int, classes: int) -> bool:
    """Return True if a CPU makes a stack's logits faster as (K, B) than as (B, K).

    A last axis that does not fill its registers takes up to twice the time. Below 12 rows or classes other
    kernels round differently, and a stack would no longer have the bits of its runs where it has them.
    """
    return rows >= 12 and classes >= 12 and classes % 16 != 0


class HandwrittenMLP:
    """Weights (…, H, D), (…, H), (…, K, H), (…, K) and their gradients, over runs (R,) or of one run ().

    MLP_BN has (…, H), (…, H) of its normalisation in between, and `statistics` (…, H), (…, H), (…,): running
    mean, running variance and number of batches. Normalisation is that of R·H channels.

    `forward` returns logits and keeps what `backward` needs, for one pass per step.
    """

    def __init__(self, weights: Sequence[Tensor], statistics: Sequence[Tensor] = ()) -> None:
        self.weights = [weight.detach() for weight in weights]
        self.gradients = [torch.empty_like(weight) for weight in self.weights]
        self.stacked = self.weights[0].dim() == 3
        hidden_weight, hidden_bias, *norm, weight, bias = self.weights
        # Views are made once; biases broadcast over rows.
        self.turned = hidden_weight.mT, weight.mT
        self.may_turn = self.stacked and weight.device.type == "cpu"
        self.biases = (hidden_bias[:, None], bias[:, None]) if self.stacked else (hidden_bias, bias)
        self.hidden = self.hidden_gradient = hidden_weight.new_empty(0)
        self.inputs: Tensor | None = None
        self.norm, self.batches = [each.flatten() for each in (*norm, *statistics[:2])], statistics[2:]
        self.normed: tuple[Tensor, ...] = ()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits (…, B, K) of inputs (…, B, D); they have no graph."""
        if self.hidden.shape[:-1] != inputs.shape[:-1]:
            shape = (*inputs.shape[:-1], self.weights[0].shape[-2])
            if self.norm and self.stacked:  # rows of all runs side by side
                self.hidden = inputs.new_empty(shape[1], shape[0], shape[2]).transpose(0, 1)
            else:
                self.hidden = inputs.new_empty(shape)
            self.hidden_gradient = torch.empty_like(self.hidden)
        self.inputs = inputs
        with torch.no_grad():
            features = self.features(inputs, self.hidden)
            return self.classify(self.normalise(features) if self.norm else features)

    def predict(self, inputs: Tensor) -> Tensor:
        """Return the logits of inputs of any number of rows, and keep nothing."""
        free = self.inputs is None and self.hidden.shape[:-1] == inputs.shape[:-1]
        with torch.no_grad():
            return self.classify(self.features(inputs, self.hidden if free else None))

    def features(self, inputs: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the features (…, B, H)."""
        product = torch.baddbmm if self.stacked else torch.addmm
        return product(self.biases[0], inputs, self.turned[0], out=out).relu_()

    def normalise(self, features: Tensor) -> Tensor:
        """Return the features of a batch, normalised; the running statistics move."""
        if features.shape[-2] < 2:
            raise ValueError(
                "batch normalisation needs at least two examples per batch: "
                "use a larger batch_size, or the network MLP"
            )
        self.batches[0].add_(1)
        weight, bias, *running = self.norm
        self.normed = torch.ops.aten.native_batch_norm(
            self.side_by_side(features), weight, bias, *running, True, NORM_MOMENTUM, NORM_EPS
        )
        return self.by_run(self.normed[0])

    def side_by_side(self, rows: Tensor) -> Tensor:
        """Return rows (…, B, H) as (B, R·H)."""
        return rows.transpose(0, 1).flatten(1) if self.stacked else rows

    def by_run(self, rows: Tensor) -> Tensor:
        """Return rows (B, R·H) as (…, B, H)."""
        return rows.unflatten(1, (len(self.weights[0]), -1)).transpose(0, 1) if self.stacked else rows

    def classify(self, features: Tensor) -> Tensor:
        """Return the logits of features."""
        if self.may_turn and is_better_turned(features.shape[-2], self.weights[-2].shape[-2]):
            return torch.baddbmm(self.biases[1].mT, self.weights[-2], features.mT).mT.contiguous()
        product = torch.baddbmm if self.stacked else torch.addmm
        return product(self.biases[1], features, self.turned[1])

    def backward(self, gradient: Tensor) -> None:
        """Write the gradients of the weights, given that of the logits (…, B, K) of the last forward."""
        assert self.inputs is not None, "backward follows forward"
        product = torch.bmm if self.stacked else torch.mm
        of_hidden_weight, of_hidden_bias, *of_norm, of_weight, of_bias = self.gradients
        hidden, below = self.hidden, self.hidden_gradient
        with torch.no_grad():
            product(gradient.mT, self.by_run(self.normed[0]) if self.norm else hidden, out=of_weight)
            torch.sum(gradient, -2, out=of_bias)
            product(gradient, self.weights[-2], out=below)
            if self.norm:
                weight, _, *running = self.norm
                rows = (self.side_by_side(below), self.side_by_side(hidden))
                below_norm, *found = torch.ops.aten.native_batch_norm_backward(
                    *rows, weight, *running, *self.normed[1:], True, NORM_EPS, [True, True, True]
                )
                below = self.by_run(below_norm)
                for place, own in zip(of_norm, found, strict=True):
                    place.copy_(own.view_as(place))
            torch.ops.aten.threshold_backward.grad_input(below, hidden, 0, grad_input=below)
            product(below.mT, self.inputs, out=of_hidden_weight)
            torch.sum(below, -2, out=of_hidden_bias)
        self.inputs = None


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
        if self.counters is None or any(
            of_torch._global_optimizer_pre_hooks
            or of_torch._global_optimizer_post_hooks
            or optimizer._optimizer_step_pre_hooks
            or optimizer._optimizer_step_post_hooks
            for optimizer in self.optimizers
        ):
            for optimizer in self.optimizers:
                optimizer.step()
            if self.counters is None:
                self.gather()
            return
        with torch.no_grad():
            self.counters.add_(1)
            for optimizer, arguments in zip(self.optimizers, self.calls, strict=True):
                group = optimizer.param_groups[0]
                torch._fused_adam_(
                    *arguments,
                    lr=group["lr"],
                    beta1=group["betas"][0],
                    beta2=group["betas"][1],
                    weight_decay=group["weight_decay"],
                    eps=group["eps"],
                    amsgrad=False,
                    maximize=False,
                    grad_scale=None,
                    found_inf=None,
                )

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


class HandwrittenStep:
    """Takes the steps of an algorithm: it gives the losses, autograd their gradient at the logits."""

    def __init__(self, algorithm: LossAlgorithm) -> None:
        self.algorithm = algorithm
        network = algorithm.network
        self.network = HandwrittenMLP(list(network.parameters()), list(network.buffers()))
        self.adam = FusedAdam([algorithm.optimizer], [self.network.gradients])

    def update(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch, as `LossAlgorithm.update` does."""
        algorithm = self.algorithm
        logits = self.network.forward(batch.weak.flatten(1)).requires_grad_()
        logged = dict(algorithm.losses(logits, batch))
        objective = logged.pop("objective", logged["loss"])
        assert isinstance(objective, Tensor)
        (gradient,) = torch.autograd.grad(objective, logits)
        self.network.backward(gradient)
        self.adam.step()
        algorithm.revise(logits.detach(), batch)
        algorithm.steps_done += 1
        return {**{name: detach(value) for name, value in logged.items()}, **algorithm.more_to_log()}


def find_step(algorithm: Algorithm) -> HandwrittenStep | None:
    """Return the handwritten step of an algorithm; None if only its own `update` is right."""
    cls = type(algorithm)
    card = own_card(cls)
    if not isinstance(algorithm, LossAlgorithm) or card is None or not card.stacked:
        return None
    if any(
        getattr(cls, name) is not getattr(LossAlgorithm, name) or name in vars(algorithm)
        for name in ORDER_OF_A_STEP
    ):
        return None
    parameters = list(algorithm.parameters())
    plain = is_plain_mlp(algorithm.network) and len(list(algorithm.network.parameters())) == len(parameters)
    learns = all(parameter.requires_grad for parameter in parameters)
    if not plain or not learns or not is_plain_adam(algorithm.optimizer, parameters):
        return None
    if list(algorithm.network.buffers()) and parameters[0].device.type != "cpu":
        return None  # other devices have several implementations of batch normalisation
    return HandwrittenStep(algorithm)


class SingleStep:
    """The updates and predictions of one run."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.by_hand = find_step(run.algorithm)

    def ambient(self) -> AbstractContextManager[None]:
        """Return a block in which the global random generators are the algorithm's."""
        return self.run.streams.ambient("algorithm")

    def update(self) -> Mapping[str, Tensor | float]:
        """Make the next update: a step on a batch, or a round of a fitted method, which needs none."""
        algorithm = self.run.algorithm
        if isinstance(algorithm, FittedAlgorithm):
            return algorithm.update()
        batch = self.run.training_set.next_batch()
        return algorithm.update(batch) if self.by_hand is None else self.by_hand.update(batch)

    def sync(self) -> None:
        """Do nothing: the run has its own state."""

    def predict(self, after_batch: Callable[[int], None]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the logits of the validation and the test set."""
        data = self.run.data
        with self.run.streams.ambient("evaluation"):
            validation, test = (
                predict_logits(self.run.algorithm, data.inputs, part.stored, after_batch)
                for part in (data.validation, data.test)
            )
        return [(validation, test)]
