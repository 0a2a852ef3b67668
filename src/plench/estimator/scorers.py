"""Scorers for scikit-learn's model selection that need no true label: `plench.scorers.covering` and others.

>>> cross_val_score(PartialLabelClassifier(), X, S, scoring=plench.scorers.covering)
>>> GridSearchCV(PartialLabelClassifier(), grid, scoring=plench.scorers.approximated).fit(X, S)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    return float(score(estimator, X, S)["CR"].mean())


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
    return float(score(estimator, X, S)["AA"].mean())


def score(estimator: Any, X: Any, S: Any) -> dict[str, NDArray[np.float64]]:
    """Return what each example adds to CR and AA."""
    probs = np.asarray(estimator.predict_proba(X))
    with np.errstate(divide="ignore"):
        return score_examples(np.log(probs), read_candidates(estimator, S, len(probs)))


def read_candidates(estimator: Any, S: Any, n: int) -> NDArray[np.bool_]:
    """Read candidates in terms of the known classes; any other label is one that is never predicted."""
    final = getattr(estimator, "_final_estimator", estimator)  # of a pipeline
    labels = read_labels(
        S,
        n,
        classes=estimator.classes_,
        separator=getattr(final, "separator", SEPARATOR),
        ignore_unknown=True,
        answer_columns=getattr(final, "_answer_columns", None),
    )
    return labels.candidates
