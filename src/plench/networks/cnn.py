"""A small convolutional network for small images."""

from __future__ import annotations

from torch import Tensor, nn

from plench.networks.base import FeatureExtractor, Network
from plench.networks.convolutions import need_images, pool_globally, prepare_convolutions

WIDTHS = (32, 64, 128)


class CNN(FeatureExtractor):
    """Three 3×3 convolutions (32, 64, 128 wide) with batch norm and ReLU, each later one at half the side."""

    n_outputs = WIDTHS[-1]

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        in_channels = shape[0]
        for position, width in enumerate(WIDTHS):
            if position > 0:
                layers.append(nn.MaxPool2d(2))
            layers += [
                nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            in_channels = width
        self.layers = nn.Sequential(*layers)
        prepare_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 128)."""
        return pool_globally(self.layers(x))


LEAST_SIDE = 2 ** (len(WIDTHS) - 1)
NETWORK = Network(
    "CNN", "three convolutions, 32, 64 and 128 wide, for small images", CNN, need_images(LEAST_SIDE)
)
