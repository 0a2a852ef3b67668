"""A scikit-learn classifier that learns from candidate sets, and the automatic choice of one."""

from plench.estimator import scorers
from plench.estimator.classifier import PartialLabelClassifier
from plench.estimator.inputs import hide_truth
from plench.estimator.quality import Estimate, Quality, bound_accuracy
from plench.estimator.review import (
    Resolution,
    number_rows,
    read_items,
    resolve_items,
)

__all__ = [
    "Estimate",
    "PartialLabelClassifier",
    "Quality",
    "Resolution",
    "bound_accuracy",
    "hide_truth",
    "number_rows",
    "read_items",
    "resolve_items",
    "scorers",
]
