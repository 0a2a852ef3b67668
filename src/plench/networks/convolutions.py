"""What the convolutional networks share: the benchmark's initialisation, channels-last, checks of shapes."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, channels_last, nn

from plench.networks.base import Float32OnCPU


class StridedConv2d(Float32OnCPU, nn.Conv2d):
    """A strided convolution."""


def prepare_convolutions(module: nn.Module) -> None:
    """Initialise as the benchmark does and store the weights channels-last.

    Convolutions are normal with variance 2/(kernel area · out channels); batch norms start as the identity.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            height, width = layer.kernel_size
            nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / (height * width * layer.out_channels)))
            layer.weight.data = layer.weight.data.contiguous(memory_format=channels_last)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)


def pool_globally(maps: Tensor) -> Tensor:
    """Average feature maps (B, C, H, W) over all their pixels: (B, C), whatever the size of the input."""
    return maps.mean(dim=(2, 3))


def need_images(least: int) -> Callable[[tuple[int, ...]], str | None]:
    """Make the check that an input shape is C×H×W with sides of `least` pixels or more."""

    def refuse(shape: tuple[int, ...]) -> str | None:
        if len(shape) != 3:
            return "it takes images, C×H×W; tabular data go with MLP"
        if min(shape[1:]) < least:
            return f"its images need at least {least}×{least} pixels"
        return None

    return refuse
