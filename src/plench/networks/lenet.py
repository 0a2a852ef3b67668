"""LeNet-5, which the public benchmark's code names beside its other networks."""

from __future__ import annotations

from torch import Tensor, channels_last, nn

from plench.networks.base import FeatureExtractor, Linear, Network
from plench.networks.convolutions import need_images

KERNEL = 5
MAPS = (6, 16)
WIDTHS = (120, 84)


def shrink(side: int) -> int:
    """Return what is left of a side after both convolutions and both poolings."""
    for _ in MAPS:
        side = (side - KERNEL + 1) // 2
    return side


class LeNet(FeatureExtractor):
    """Two 5×5 convolutions (6, 16 wide) with ReLU and 2×2 max pooling, then layers of 120 and 84 units."""

    n_outputs = WIDTHS[-1]

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        channels, height, width = shape
        layers: list[nn.Module] = []
        for maps in MAPS:
            convolution = nn.Conv2d(channels, maps, KERNEL)
            layers += [convolution.to(memory_format=channels_last), nn.ReLU(inplace=True), nn.MaxPool2d(2)]  # type: ignore[call-overload]
            channels = maps
        layers.append(nn.Flatten())
        inputs = channels * shrink(height) * shrink(width)
        for outputs in WIDTHS:
            layers += [Linear(inputs, outputs), nn.ReLU(inplace=True)]
            inputs = outputs
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 84)."""
        features: Tensor = self.layers(x)
        return features


NETWORK = Network("LeNet", "LeNet-5 with ReLU and max pooling, for small images", LeNet, need_images(16))
