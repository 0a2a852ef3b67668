"""Algorithms, one paper per file, found automatically; third-party ones by path, module or entry point.

What the author of an algorithm needs is here.
"""

from plench.algorithms.base import Algorithm, AlgorithmCard, Batch, LossAlgorithm, register
from plench.algorithms.classical.any_classifier import ClassifierAlgorithm, ClassifierEM
from plench.algorithms.fitted import FittedAlgorithm
from plench.algorithms.registry import AlgorithmEntry, algorithms, cite, describe_algorithms, find_algorithm
from plench.hparams import Choice, Constant, Hyperparameter, LogRange, PowerOfTwo, by_kind
from plench.networks import Classifier, Featurizer

__all__ = [
    "Algorithm",
    "AlgorithmCard",
    "AlgorithmEntry",
    "Batch",
    "Choice",
    "Classifier",
    "ClassifierAlgorithm",
    "ClassifierEM",
    "Constant",
    "Featurizer",
    "FittedAlgorithm",
    "Hyperparameter",
    "LogRange",
    "LossAlgorithm",
    "PowerOfTwo",
    "algorithms",
    "by_kind",
    "cite",
    "describe_algorithms",
    "find_algorithm",
    "register",
]
