"""Algorithms, one paper per file, found automatically; third parties' by path, module or entry point.

What the author of an algorithm needs is here. The names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.algorithms.base import Algorithm as Algorithm
    from plench.algorithms.base import AlgorithmCard as AlgorithmCard
    from plench.algorithms.base import LossAlgorithm as LossAlgorithm
    from plench.algorithms.base import register as register
    from plench.algorithms.cards import cite as cite
    from plench.algorithms.cards import describe_algorithms as describe_algorithms
    from plench.algorithms.classical.any_classifier import ClassifierAlgorithm as ClassifierAlgorithm
    from plench.algorithms.classical.any_classifier import ClassifierEM as ClassifierEM
    from plench.algorithms.fitted import FittedAlgorithm as FittedAlgorithm
    from plench.algorithms.registry import AlgorithmEntry as AlgorithmEntry
    from plench.algorithms.registry import algorithms as algorithms
    from plench.algorithms.registry import find_algorithm as find_algorithm
    from plench.batch import Batch as Batch
    from plench.hparams import Choice as Choice
    from plench.hparams import Constant as Constant
    from plench.hparams import Hyperparameter as Hyperparameter
    from plench.hparams import LogRange as LogRange
    from plench.hparams import PowerOfTwo as PowerOfTwo
    from plench.hparams import by_kind as by_kind
    from plench.networks import Classifier as Classifier
    from plench.networks import Featurizer as Featurizer

__all__, __getattr__, __dir__ = lazy_attributes(__name__)
