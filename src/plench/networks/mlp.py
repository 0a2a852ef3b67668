"""The benchmark's multilayer perceptron."""

import math

from torch import Tensor

from plench.networks.base import FeatureExtractor, Linear, Network


class MLP(FeatureExtractor):
    """Flatten, one hidden layer of 500, ReLU; PyTorch's default initialisation."""

    n_outputs = 500

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.hidden = Linear(math.prod(shape), self.n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 500)."""
        hidden: Tensor = self.hidden(x.flatten(1))
        return hidden.relu()


NETWORK = Network("MLP", "one hidden layer of 500 units with ReLU, for tabular data", MLP)
