"""Networks: a feature extractor chosen by the hyperparameter `model`, and one linear classifier on top.

A network is one file in this folder with a module-level `NETWORK`; it is found automatically. Third parties'
come by path (`path/to/file.py:NETWORK`), module or entry point. The names below are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.networks.base import FeatureExtractor as FeatureExtractor
    from plench.networks.base import Network as Network
    from plench.networks.building import NETWORKS as NETWORKS
    from plench.networks.building import Classifier as Classifier
    from plench.networks.building import Featurizer as Featurizer
    from plench.networks.building import describe_networks as describe_networks
    from plench.networks.building import find_network as find_network
    from plench.networks.building import networks as networks

__all__, __getattr__, __dir__ = lazy_attributes(__name__)
