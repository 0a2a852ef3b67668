"""The benchmark's multilayer perceptron with batch normalisation."""

from torch import Tensor, nn

from plench.networks.base import Network
from plench.networks.mlp import MLP


class MLP_BN(MLP):
    """The hidden layer of `MLP`, ReLU, then batch normalisation; running statistics in evaluation."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.norm = nn.BatchNorm1d(self.n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 500)."""
        features: Tensor = self.norm(super().forward(x))
        return features


NETWORK = Network("MLP_BN", "MLP with batch normalisation behind its ReLU, for tabular data", MLP_BN)
