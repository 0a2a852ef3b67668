"""Networks: a feature extractor chosen by the hyperparameter `model`, and one linear classifier on top.

A network is one file in this folder with a module-level `NETWORK`; it is found by itself. Third parties' come
by path (`path/to/file.py:NETWORK`), module or entry point. The names below are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.networks.base import FeatureExtractor, Network
    from plench.networks.building import (
        NETWORKS,
        Classifier,
        Featurizer,
        describe_networks,
        find_network,
        networks,
    )

__all__, __getattr__, __dir__ = lazy_attributes(__name__)
