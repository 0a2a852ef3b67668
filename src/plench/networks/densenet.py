"""The benchmark's DenseNet: DenseNet-BC of depth 22, growth 12, compression 2."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plench.networks.base import FeatureExtractor, Network
from plench.networks.convolutions import need_images, pool_globally, prepare_convolutions

GROWTH = 12
LAYERS_PER_BLOCK = 3
BLOCKS = 3
COMPRESSION = 2


class DenseLayer(nn.Module):
    """A bottleneck (1×1 convolution to 4 · growth) and a 3×3 convolution whose maps join the input's."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.convolution1 = nn.Conv2d(in_channels, 4 * GROWTH, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * GROWTH)
        self.convolution2 = nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input's maps and `GROWTH` new ones."""
        inner = self.convolution1(self.norm1(x).relu_())
        return torch.cat([x, self.convolution2(self.norm2(inner).relu_())], dim=1)


class Transition(nn.Sequential):
    """Between dense blocks: fewer channels by a 1×1 convolution, half the side by average pooling."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__(
            nn.BatchNorm2d(in_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(in_channels, channels, 1, bias=False),
            nn.AvgPool2d(2),
        )


class DenseNet(FeatureExtractor):
    """3×3 convolution to 24 channels, three dense blocks of three layers with transitions, global pool."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        channels = 2 * GROWTH
        layers: list[nn.Module] = [nn.Conv2d(shape[0], channels, 3, padding=1, bias=False)]
        for block in range(BLOCKS):
            for _ in range(LAYERS_PER_BLOCK):
                layers.append(DenseLayer(channels))
                channels += GROWTH
            if block < BLOCKS - 1:
                layers.append(Transition(channels, channels // COMPRESSION))
                channels //= COMPRESSION
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        self.n_outputs = channels
        prepare_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 69)."""
        return pool_globally(self.layers(x))


NETWORK = Network(
    "DenseNet", "DenseNet-BC of depth 22 and growth 12", DenseNet, need_images(2 ** (BLOCKS - 1))
)
