"""The benchmark's MLP with forward and backward written by hand, for one run or for a stack of runs.

The products of one run are those that autograd makes, in the same order, so that numbers are the same to the
bit. What is saved is the graph: gradients go into tensors that are made once. A stack may make its logits
turned over, where that is faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from plench.networks import MLP, Classifier, Linear


def layers_of(network: object) -> tuple[nn.Linear, nn.Linear] | None:
    """Return both linear layers of an MLP of ours with its classifier; None for any other network."""
    if type(network) is not nn.Sequential or len(network) != 2:
        return None
    featurizer, classifier = network
    if type(featurizer) is not MLP or type(classifier) is not Classifier or featurizer.precision != "float32":
        return None
    hidden = featurizer.hidden
    modules = (network, featurizer, hidden, classifier)
    if type(hidden) is not Linear or any(has_hooks(module) for module in modules):
        return None
    return hidden, classifier


def has_hooks(module: nn.Module) -> bool:
    """Say whether a module does more than its class says: hooks of others', or compiled code."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return any(hooks) or module._compiled_call_impl is not None or "forward" in vars(module)


def is_better_turned(rows: int, classes: int) -> bool:
    """Say whether a CPU makes a stack's logits faster as (K, B) than as (B, K).

    A last axis that does not fill its registers takes up to twice the time. Below 12 rows or classes other
    kernels round differently, and a stack would no longer have the bits of its runs where it has them.
    """
    return rows >= 12 and classes >= 12 and classes % 16 != 0


class HandwrittenMLP:
    """Weights (…, H, D), (…, H), (…, K, H), (…, K) and their gradients, over runs (R,) or of one run ().

    `forward` gives logits and remembers what `backward` needs; it is one pass a step.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights = [weight.detach() for weight in weights]
        self.gradients = [torch.empty_like(weight) for weight in self.weights]
        self.stacked = self.weights[0].dim() == 3
        hidden_weight, hidden_bias, weight, bias = self.weights
        # Views are made once; biases broadcast over rows.
        self.turned = hidden_weight.mT, weight.mT
        self.may_turn = self.stacked and weight.device.type == "cpu"
        self.biases = (hidden_bias[:, None], bias[:, None]) if self.stacked else (hidden_bias, bias)
        self.hidden = self.hidden_gradient = hidden_weight.new_empty(0)
        self.inputs: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits (…, B, K) of inputs (…, B, D); they have no graph."""
        if self.hidden.shape[:-1] != inputs.shape[:-1]:
            self.hidden = inputs.new_empty(*inputs.shape[:-1], self.weights[0].shape[-2])
            self.hidden_gradient = torch.empty_like(self.hidden)
        with torch.no_grad():
            self.inputs = inputs
            features = self.features(inputs, self.hidden)
            return self.classify(features)

    def predict(self, inputs: Tensor) -> Tensor:
        """Return the logits of inputs of any number of rows, and remember nothing."""
        free = self.inputs is None and self.hidden.shape[:-1] == inputs.shape[:-1]
        with torch.no_grad():
            return self.classify(self.features(inputs, self.hidden if free else None))

    def features(self, inputs: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the features (…, B, H)."""
        product = torch.baddbmm if self.stacked else torch.addmm
        return product(self.biases[0], inputs, self.turned[0], out=out).relu_()

    def classify(self, features: Tensor) -> Tensor:
        """Return the logits of features."""
        if self.may_turn and is_better_turned(features.shape[-2], self.weights[2].shape[-2]):
            return torch.baddbmm(self.biases[1].mT, self.weights[2], features.mT).mT.contiguous()
        product = torch.baddbmm if self.stacked else torch.addmm
        return product(self.biases[1], features, self.turned[1])

    def backward(self, gradient: Tensor) -> None:
        """Write the gradients of the weights, given that of the logits (…, B, K) of the last forward."""
        assert self.inputs is not None, "backward follows forward"
        product = torch.bmm if self.stacked else torch.mm
        of_hidden_weight, of_hidden_bias, of_weight, of_bias = self.gradients
        hidden, below = self.hidden, self.hidden_gradient
        with torch.no_grad():
            product(gradient.mT, hidden, out=of_weight)
            torch.sum(gradient, -2, out=of_bias)
            product(gradient, self.weights[2], out=below)
            torch.ops.aten.threshold_backward.grad_input(below, hidden, 0, grad_input=below)
            product(below.mT, self.inputs, out=of_hidden_weight)
            torch.sum(below, -2, out=of_hidden_bias)
        self.inputs = None
