"""Networks: a feature extractor chosen by the hyperparameter `model`, and one linear classifier on top.

A network is one file in this folder with a module-level `NETWORK`; it is found automatically. Third parties'
come by path (`path/to/file.py:NETWORK`), module or entry point.
"""

from plench.networks.base import FeatureExtractor, Network
from plench.networks.building import (
    NETWORKS,
    Classifier,
    Featurizer,
    describe_networks,
    find_network,
    networks,
)

__all__ = [
    "NETWORKS",
    "Classifier",
    "FeatureExtractor",
    "Featurizer",
    "Network",
    "describe_networks",
    "find_network",
    "networks",
]
