"""A scikit-learn classifier that learns from candidate sets, and the automatic choice of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.estimator import scorers as scorers
    from plench.estimator.classifier import PartialLabelClassifier as PartialLabelClassifier
    from plench.estimator.inputs import hide_truth as hide_truth
    from plench.estimator.quality import Estimate as Estimate
    from plench.estimator.quality import Quality as Quality
    from plench.estimator.quality import bound_accuracy as bound_accuracy
    from plench.estimator.resolve import Items as Items
    from plench.estimator.resolve import Resolution as Resolution
    from plench.estimator.resolve import find_confused as find_confused
    from plench.estimator.resolve import find_hardest as find_hardest
    from plench.estimator.resolve import items_of as items_of
    from plench.estimator.resolve import number_rows as number_rows
    from plench.estimator.resolve import read_items as read_items
    from plench.estimator.resolve import resolve_items as resolve_items

_names, __getattr__, __dir__ = lazy_attributes(__name__)
__all__ = [*_names]
