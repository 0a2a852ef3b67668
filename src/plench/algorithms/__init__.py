"""Algorithms, one paper a file, found by themselves; third parties' by path, module or entry point."""

from plench.algorithms.base import Algorithm, AlgorithmCard, LossAlgorithm, register
from plench.algorithms.registry import AlgorithmEntry, algorithms, find_algorithm

__all__ = [
    "Algorithm",
    "AlgorithmCard",
    "AlgorithmEntry",
    "LossAlgorithm",
    "algorithms",
    "find_algorithm",
    "register",
]
