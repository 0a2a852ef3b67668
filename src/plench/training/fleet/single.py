"""The step of one run with forward and backward of its MLP written by hand: the same bits, less overhead."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from plench.algorithms.base import Algorithm, LossAlgorithm, detach
from plench.algorithms.registry import own_card
from plench.batch import Batch
from plench.training.fleet.adam import FusedAdam, is_plain_adam
from plench.training.fleet.layers import HandwrittenMLP, layers_of

# What a class must leave as it is: the order of a step.
ORDER_OF_A_STEP = ("update", "passes", "descend")


class HandwrittenStep:
    """Takes the steps of an algorithm: it gives the losses, autograd their gradient at the logits."""

    def __init__(self, algorithm: LossAlgorithm) -> None:
        self.algorithm = algorithm
        parameters = list(algorithm.network.parameters())
        self.network = HandwrittenMLP(parameters)
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
    """Return the handwritten step of an algorithm, None where only its own `update` will do."""
    cls = type(algorithm)
    card = own_card(cls)
    if not isinstance(algorithm, LossAlgorithm) or card is None or not card.stacked:
        return None
    if any(getattr(cls, name) is not getattr(LossAlgorithm, name) for name in ORDER_OF_A_STEP):
        return None
    if any(name in vars(algorithm) for name in ORDER_OF_A_STEP):
        return None
    layers = layers_of(algorithm.network)
    if layers is None:
        return None
    parameters = list(algorithm.parameters())
    of_network = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    same = len(parameters) == len(of_network) and all(
        one is other for one, other in zip(parameters, of_network, strict=True)
    )
    learns = all(parameter.requires_grad for parameter in parameters)
    if not same or not learns or not is_plain_adam(algorithm.optimizer, parameters):
        return None
    return HandwrittenStep(algorithm)
