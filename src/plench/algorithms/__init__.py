"""Algorithms, one paper a file, found by themselves; third parties' by path, module or entry point.

What the author of an algorithm needs is here. The names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.algorithms.base import Algorithm, AlgorithmCard, LossAlgorithm, register
    from plench.algorithms.cards import cite
    from plench.algorithms.classical.any_classifier import ClassifierAlgorithm, ClassifierEM
    from plench.algorithms.fitted import FittedAlgorithm
    from plench.algorithms.registry import (
        AlgorithmEntry,
        algorithms,
        describe_algorithms,
        find_algorithm,
    )
    from plench.batch import Batch
    from plench.hparams import Choice, Constant, Hyperparameter, LogRange, PowerOfTwo, by_kind
    from plench.networks import Classifier, Featurizer

__all__, __getattr__, __dir__ = lazy_attributes(__name__)
