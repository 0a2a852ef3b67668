"""The base class of feature extractors, and how a network is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn


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
        """Return what the layer makes of the input."""
        if input.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
            return cast(Tensor, super().forward(input))
        with torch.autocast("cpu", enabled=False):
            return cast(Tensor, super().forward(input.to(self.weight.dtype)))


class Linear(Float32OnCPU, nn.Linear):
    """A fully connected layer inside a featurizer."""


def accept_all(shape: tuple[int, ...]) -> str | None:
    """Refuse no input shape."""
    return None


@dataclass(frozen=True)
class Network:
    """A featurizer by name: how to build it for an input shape (without N), and which shapes it refuses."""

    name: str
    meaning: str
    build: Callable[[tuple[int, ...]], FeatureExtractor]
    refuse: Callable[[tuple[int, ...]], str | None] = accept_all
