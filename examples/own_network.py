"""A network of your own: two layers with dropout, by path and as an object.

plench train -a PRODEN -d Digits_FPS --hparams '{"model": "own_network.py:DEEP"}'
"""

import sys

from torch import Tensor, nn

import plench
from plench.networks import Network


class Deep(nn.Module):
    """Two hidden layers; `n_outputs` is the number of features that the classifier on top gets."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.n_outputs = 64
        self.layers = nn.Sequential(
            nn.Linear(shape[0], 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the features (B, 64)."""
        return self.layers(x)


def refuse(shape: tuple[int, ...]) -> str | None:
    """Say why inputs of a shape (without N) cannot be taken, or return None."""
    return None if len(shape) == 1 else "it takes tables only"


DEEP = Network("Deep", "two hidden layers with dropout", Deep, refuse)

if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "runs"
    outcome = plench.train("PRODEN", "Digits_FPS", folder, steps=300, hparams={"model": DEEP})
    print(outcome.status, outcome.folder.name)
    print("stored with the run:", ", ".join(sorted(path.name for path in outcome.folder.glob("*.py"))))
