"""What a network is to the rest of the house."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn


class Featurizer(nn.Module):
    """A module from inputs (B, …) to features (B, n_outputs)."""

    n_outputs: int


def accept_all(shape: tuple[int, ...]) -> str | None:
    """Refuse no input shape."""
    return None


@dataclass(frozen=True)
class Network:
    """A featurizer by name: how to build it for an input shape (without N), and which shapes it refuses."""

    name: str
    meaning: str
    build: Callable[[tuple[int, ...]], Featurizer]
    refuse: Callable[[tuple[int, ...]], str | None] = accept_all
