"""Networks: a featurizer chosen by the hyperparameter `model`, and one linear classifier on top.

A network is one file in this folder with a module-level `NETWORK`; it is found by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from torch import nn

from plench.discovery import find_members
from plench.errors import UsageError
from plench.names import find_name
from plench.networks.base import Featurizer as FeaturizerModule
from plench.networks.base import Network

__all__ = [
    "Classifier",
    "Featurizer",
    "FeaturizerModule",
    "Network",
    "describe_networks",
    "find_network",
    "networks",
]


@cache
def networks() -> dict[str, Network]:
    """Return every network by name."""
    return find_members(__name__, "network", lambda value: value.name if isinstance(value, Network) else None)


@cache
def find_network(name: str) -> Network:
    """Return the network that `name` means, regardless of case and punctuation."""
    return networks()[find_name(name, networks(), "model")]


def Featurizer(input_shape: Sequence[int], hparams: Mapping[str, Any]) -> FeaturizerModule:
    """Build the featurizer `hparams["model"]` for training features of shape (N, …)."""
    shape = tuple(input_shape[1:])
    network = find_network(hparams["model"])
    reason = network.refuse(shape)
    if reason:
        raise UsageError(f"model {network.name} cannot take inputs of shape {shape}: {reason}")
    return network.build(shape)


class Classifier(nn.Linear):
    """One linear layer from features to logits."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)


def describe_networks() -> list[dict[str, Any]]:
    """Describe each network, as rows."""
    return [{"name": network.name, "meaning": network.meaning} for network in networks().values()]
