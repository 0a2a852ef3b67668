"""The benchmark's ResNet: depth 32, for images of CIFAR's size."""

from __future__ import annotations

from torch import Tensor, nn

from plench.networks.base import FeatureExtractor, Network
from plench.networks.convolutions import StridedConv2d, need_images, pool_globally, prepare_convolutions

WIDTHS = (16, 32, 64)
BLOCKS_PER_STAGE = 5


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with batch norm, added to the input (projected where its shape changes)."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        first = nn.Conv2d if stride == 1 else StridedConv2d
        self.convolution1 = first(in_channels, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.convolution2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                StridedConv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of `channels` channels."""
        inner = self.norm1(self.convolution1(x)).relu_()
        outer: Tensor = self.norm2(self.convolution2(inner))
        return outer.add_(self.shortcut(x)).relu_()


class ResNet(FeatureExtractor):
    """3×3 convolution to 16 channels, three stages of five blocks (16, 32, 64 wide), global average pool."""

    n_outputs = WIDTHS[-1]

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(shape[0], WIDTHS[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTHS[0])
        blocks: list[nn.Module] = []
        in_channels = WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            for position in range(BLOCKS_PER_STAGE):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(ResidualBlock(in_channels, width, stride))
                in_channels = width
        self.blocks = nn.Sequential(*blocks)
        prepare_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 64)."""
        return pool_globally(self.blocks(self.norm(self.convolution(x)).relu_()))


NETWORK = Network("ResNet", "CIFAR ResNet of depth 32, the benchmark's for images", ResNet, need_images(1))
