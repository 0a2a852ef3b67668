"""How the networks of a run compute: precision and compilation."""

from __future__ import annotations

from plench.algorithms import Algorithm
from plench.errors import UsageError
from plench.networks import FeatureExtractor


def set_execution(algorithm: Algorithm, precision: str, compiled: bool) -> None:
    """Let every network of an algorithm compute in a precision and, if asked, as compiled code."""
    featurizers = [module for module in algorithm.modules() if isinstance(module, FeatureExtractor)]
    if not featurizers and (compiled or precision != "float32"):
        raise UsageError(
            f"{type(algorithm).__name__} has no network made by plench.networks.Featurizer, "
            "so precision and compile have nothing to act on"
        )
    for featurizer in featurizers:
        featurizer.precision = precision
        if compiled:
            # One code per shape: code for shapes in general would depend on which shapes came first, so a
            # resumed run could differ.
            featurizer.compile(dynamic=False)
