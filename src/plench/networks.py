"""Networks: a feature extractor chosen by the hyperparameter `model`, and one linear classifier on top.

A network is a class here and a module-level `Network` that declares it. Third-party networks come by path
(`path/to/file.py:NETWORK`), module or entry point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, channels_last, nn

from plench.errors import UsageError
from plench.registry import Entry, Registry


class FeatureExtractor(nn.Module):
    """A module from inputs (B, …) to features (B, n_outputs).

    With `precision` "bf16" its layers compute in bfloat16 where that is safe (autocast). Weights and the
    features it returns are float32 all the same, so what follows it, the losses above all, is not affected.
    """

    n_outputs: int
    precision: str = "float32"

    def __call__(self, x: Tensor) -> Tensor:
        """Return features (B, n_outputs)."""
        if self.precision == "float32":
            return cast(Tensor, super().__call__(x))
        with torch.autocast(x.device.type, torch.bfloat16):
            features: Tensor = super().__call__(x)
        return features.float()


class Float32OnCPU(nn.Module):
    """Mixed into a kind of layer: on a CPU it is computed in float32, whatever autocast says.

    Some layers in bfloat16 end the process with an illegal instruction on some processors with AMX (torch
    2.13, oneDNN).
    """

    weight: Tensor

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to the input."""
        if input.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
            return cast(Tensor, super().forward(input))
        with torch.autocast("cpu", enabled=False):
            return cast(Tensor, super().forward(input.to(self.weight.dtype)))


class Linear(Float32OnCPU, nn.Linear):
    """A fully connected layer inside a featurizer."""


@dataclass(frozen=True)
class Network:
    """A featurizer by name: how to build it for an input shape (without N), and which shapes it refuses."""

    name: str
    meaning: str
    build: Callable[[tuple[int, ...]], FeatureExtractor]
    refuse: Callable[[tuple[int, ...]], str | None] = lambda shape: None


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


CNN_WIDTHS = (32, 64, 128)


class CNN(FeatureExtractor):
    """Three 3×3 convolutions (32, 64, 128 wide) with batch norm and ReLU, each later one at half the side."""

    n_outputs = CNN_WIDTHS[-1]

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        in_channels = shape[0]
        for position, width in enumerate(CNN_WIDTHS):
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


CNN_NETWORK = Network("CNN", "three convolutions, 32, 64 and 128 wide, for small images", CNN, need_images(4))


DENSENET_GROWTH = 12
DENSENET_LAYERS_PER_BLOCK = 3
DENSENET_BLOCKS = 3
DENSENET_COMPRESSION = 2


class DenseLayer(nn.Module):
    """A bottleneck (1×1 convolution to 4 · growth) and a 3×3 convolution whose maps join the input's."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.convolution1 = nn.Conv2d(in_channels, 4 * DENSENET_GROWTH, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * DENSENET_GROWTH)
        self.convolution2 = nn.Conv2d(4 * DENSENET_GROWTH, DENSENET_GROWTH, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input's maps and `DENSENET_GROWTH` new ones."""
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
        channels = 2 * DENSENET_GROWTH
        layers: list[nn.Module] = [nn.Conv2d(shape[0], channels, 3, padding=1, bias=False)]
        for block in range(DENSENET_BLOCKS):
            for _ in range(DENSENET_LAYERS_PER_BLOCK):
                layers.append(DenseLayer(channels))
                channels += DENSENET_GROWTH
            if block < DENSENET_BLOCKS - 1:
                layers.append(Transition(channels, channels // DENSENET_COMPRESSION))
                channels //= DENSENET_COMPRESSION
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        self.n_outputs = channels
        prepare_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 69)."""
        return pool_globally(self.layers(x))


DENSENET_NETWORK = Network("DenseNet", "DenseNet-BC of depth 22 and growth 12", DenseNet, need_images(4))


LENET_KERNEL = 5
LENET_MAPS = (6, 16)
LENET_WIDTHS = (120, 84)


def shrink(side: int) -> int:
    """Return what is left of a side after both convolutions and both poolings."""
    for _ in LENET_MAPS:
        side = (side - LENET_KERNEL + 1) // 2
    return side


class LeNet(FeatureExtractor):
    """Two 5×5 convolutions (6, 16 wide) with ReLU and 2×2 max pooling, then layers of 120 and 84 units."""

    n_outputs = LENET_WIDTHS[-1]

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        channels, height, width = shape
        layers: list[nn.Module] = []
        for maps in LENET_MAPS:
            convolution = nn.Conv2d(channels, maps, LENET_KERNEL)
            layers += [convolution.to(memory_format=channels_last), nn.ReLU(inplace=True), nn.MaxPool2d(2)]  # type: ignore[call-overload]
            channels = maps
        layers.append(nn.Flatten())
        inputs = channels * shrink(height) * shrink(width)
        for outputs in LENET_WIDTHS:
            layers += [Linear(inputs, outputs), nn.ReLU(inplace=True)]
            inputs = outputs
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 84)."""
        return cast(Tensor, self.layers(x))


LENET_NETWORK = Network(
    "LeNet", "LeNet-5 with ReLU and max pooling, for small images", LeNet, need_images(16)
)


class MLP(FeatureExtractor):
    """Flatten, one hidden layer of 500, ReLU; PyTorch's default initialisation."""

    n_outputs = 500

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.hidden = Linear(math.prod(shape), self.n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 500)."""
        return cast(Tensor, self.hidden(x.flatten(1)).relu())


MLP_NETWORK = Network("MLP", "one hidden layer of 500 units with ReLU, for tabular data", MLP)


class MLP_BN(MLP):
    """The hidden layer of `MLP`, ReLU, then batch normalisation; running statistics in evaluation."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.norm = nn.BatchNorm1d(self.n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 500)."""
        return cast(Tensor, self.norm(super().forward(x)))


MLP_BN_NETWORK = Network("MLP_BN", "MLP with batch normalisation behind its ReLU, for tabular data", MLP_BN)


RESNET_WIDTHS = (16, 32, 64)
RESNET_BLOCKS = 5


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

    n_outputs = RESNET_WIDTHS[-1]

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(shape[0], RESNET_WIDTHS[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(RESNET_WIDTHS[0])
        blocks: list[nn.Module] = []
        in_channels = RESNET_WIDTHS[0]
        for stage, width in enumerate(RESNET_WIDTHS):
            for position in range(RESNET_BLOCKS):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(ResidualBlock(in_channels, width, stride))
                in_channels = width
        self.blocks = nn.Sequential(*blocks)
        prepare_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 64)."""
        return pool_globally(self.blocks(self.norm(self.convolution(x)).relu_()))


RESNET_NETWORK = Network(
    "ResNet", "CIFAR ResNet of depth 32, the benchmark's for images", ResNet, need_images(1)
)


NETWORKS = Registry[Network](
    "model",
    "plench.networks",
    "a plench.networks.Network",
    lambda value: isinstance(value, Network),
    lambda network: network.name,
    group="plench.networks",
    rename=lambda network, name: replace(network, name=name),
)


def networks() -> dict[str, Network]:
    """Return every network of the package and of the installed entry points, by name."""
    return {name: entry.member for name, entry in NETWORKS.items.items()}


def find_network(spec: str | Network) -> Entry[Network]:
    """Return the network that `spec` means: a name, `file.py:NETWORK`, `module:NETWORK` or a `Network`."""
    return NETWORKS.find(spec)


def Featurizer(input_shape: Sequence[int], hparams: Mapping[str, Any]) -> FeatureExtractor:
    """Build the featurizer `hparams["model"]` for training features of shape (N, …)."""
    shape = tuple(input_shape[1:])
    network = find_network(hparams["model"]).member
    reason = network.refuse(shape)
    if reason:
        raise UsageError(f"model {network.name} cannot take inputs of shape {shape}: {reason}")
    return network.build(shape)


class Classifier(nn.Linear):
    """One linear layer from features to logits."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
