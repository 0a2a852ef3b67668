"""Finding networks, and building them for a shape of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from plench.errors import UsageError
from plench.networks.base import FeatureExtractor, Network
from plench.registry import Entry, Registry

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


def find_network(spec: str) -> Entry[Network]:
    """Return the network that `spec` means: a name, `path/to/file.py:NETWORK` or `module:NETWORK`."""
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


def describe_networks() -> list[dict[str, Any]]:
    """Describe each network, as rows."""
    return [{"name": name, "meaning": network.meaning} for name, network in networks().items()]
