"""Scorers for scikit-learn's model selection that need no true label: `plench.scorers.covering` and others.

>>> cross_val_score(PartialLabelClassifier(), X, S, scoring=plench.scorers.covering)
>>> GridSearchCV(PartialLabelClassifier(), grid, scoring=plench.scorers.approximated).fit(X, S)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from plench.estimator.inputs import SEPARATOR, read_labels
from plench.estimator.quality import score_examples


def covering(estimator: Any, X: Any, S: Any) -> float:
    """Return the covering rate (CR): the share of examples whose prediction is a candidate.

    Parameters
    ----------
    estimator : classifier
        Any fitted classifier with `classes_` and `predict_proba`.
    X, S : array-like
        Features and candidate sets, as `PartialLabelClassifier.fit` takes them.

    Returns
    -------
    float
    """
    return _score(estimator, X, S, "CR")


def approximated(estimator: Any, X: Any, S: Any) -> float:
    """Return the approximated accuracy (AA): the prediction's share of the candidates' probability.

    Parameters
    ----------
    estimator : classifier
        Any fitted classifier with `classes_` and `predict_proba`.
    X, S : array-like
        Features and candidate sets, as `PartialLabelClassifier.fit` takes them.

    Returns
    -------
    float
    """
    return _score(estimator, X, S, "AA")


def _score(estimator: Any, X: Any, S: Any, criterion: str) -> float:
    probs = np.asarray(estimator.predict_proba(X))
    final = getattr(estimator, "_final_estimator", estimator)  # of a pipeline
    labels = read_labels(
        S,
        len(probs),
        classes=estimator.classes_,
        separator=getattr(final, "separator", SEPARATOR),
        ignore_unknown=True,
        answer_columns=getattr(final, "_answer_columns", None),
    )
    with np.errstate(divide="ignore"):
        return float(score_examples(np.log(probs), labels.candidates)[criterion].mean())
