"""A scikit-learn classifier that learns from candidate sets, and the automatic choice of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.estimator import scorers as scorers
    from plench.estimator.classifier import PartialLabelClassifier as PartialLabelClassifier

_names, __getattr__, __dir__ = lazy_attributes(__name__)
__all__ = [*_names]
