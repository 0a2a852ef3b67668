"""Any scikit-learn classifier that takes sample weights, as an algorithm: averaged or by EM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from plench.algorithms.classical.parts import Floats, narrow, take_logs
from plench.algorithms.fitted import FOLDS, REVISION, TargetAlgorithm
from plench.errors import UsageError
from plench.hparams import Hyperparameter


class ClassifierAlgorithm(TargetAlgorithm):
    """A scikit-learn classifier on one copy of each example a candidate, weighted by the soft targets.

    A subclass has one method, `make_classifier(seed)`, which returns a new classifier; its own
    hyperparameters are in `self.hparams`. Fitted once on equal targets: see `ClassifierEM` for rounds.

    The classifier itself is never saved: a checkpoint or model holds what it was fitted on and its seed, and
    it is fitted again where it is needed, so it must give the same model for the same data and seed.
    """

    transient: ClassVar[tuple[str, ...]] = (*TargetAlgorithm.transient, "classifier")

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        self.classifier: FittedClassifier | None = None

    def make_classifier(self, seed: int) -> Any:
        """Return a new scikit-learn classifier; `seed` is for its `random_state`, if it draws anything."""
        raise NotImplementedError(f"{type(self).__name__} has no make_classifier(seed)")

    def fit_classifier(self, features: Floats, targets: Floats, seed: int) -> FittedClassifier:
        """Fit a new classifier on weighted copies."""
        return FittedClassifier(self.make_classifier(seed), features, targets)

    def fit_model(self, seed: int) -> None:
        """Fit the classifier, and keep what it can be fitted from again."""
        self.classifier = self.fit_classifier(self.features, self.soft_targets, seed)
        self.fitted = {
            "features": narrow(self.features),
            "targets": self.soft_targets.copy(),
            "seed": np.array(seed),
        }

    def fit_and_predict(self, features: Floats, targets: Floats, queries: Floats, seed: int) -> Floats:
        """Fit a classifier on some examples, all copies of each, and predict others."""
        return self.fit_classifier(features, targets, seed).predict(queries)

    def score(self, features: Floats) -> Floats:
        """Return the log of the classifier's probabilities."""
        if self.classifier is None:
            kept = self.fitted
            rows = kept["features"].astype(np.float64)
            self.classifier = self.fit_classifier(rows, kept["targets"], int(kept["seed"]))
        return take_logs(self.classifier.predict(features))


class ClassifierEM(ClassifierAlgorithm):
    """The same by expectation maximisation: classifiers of other folds of examples revise the targets."""

    uses_weights = True
    base_hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (*REVISION, FOLDS)


class FittedClassifier:
    """A classifier fitted on weighted copies, predicting all K classes."""

    def __init__(self, classifier: Any, features: Floats, targets: Floats) -> None:
        from sklearn.utils.validation import has_fit_parameter  # takes long, and lists import this file

        self.num_classes = targets.shape[1]
        example, label = np.nonzero(targets)
        self.present: NDArray[np.int64] = np.unique(label)
        self.classifier = classifier
        if not has_fit_parameter(classifier, "sample_weight"):
            raise UsageError(
                f"{type(classifier).__name__} cannot be wrapped: its fit() takes no sample_weight, by which "
                "the candidates of an example are weighted"
            )
        if len(self.present) > 1:  # most classifiers refuse to tell one class from none
            classifier.fit(features[example], label, sample_weight=targets[example, label])

    def predict(self, features: Floats) -> Floats:
        """Return probabilities (n, K), 0 for classes that no target named.

        A classifier without probabilities gives the softmax of its decision values.
        """
        found = np.zeros((len(features), self.num_classes))
        if len(self.present) == 1:
            found[:, self.present] = 1.0
            return found
        if hasattr(self.classifier, "predict_proba"):
            found[:, self.present] = self.classifier.predict_proba(features)
            return found
        values = np.asarray(self.classifier.decision_function(features), dtype=np.float64)
        if values.ndim == 1:  # of two classes, for the second
            values = np.stack([np.zeros_like(values), values], axis=1)
        shape = getattr(self.classifier, "decision_function_shape", "ovr")
        if values.shape[1] != len(self.present) or (shape == "ovo" and len(self.present) > 2):
            raise UsageError(
                f"{type(self.classifier).__name__} cannot be wrapped: its decision values are of pairs of "
                "classes, not of classes; decision_function_shape='ovr' or probabilities give those"
            )
        found[:, self.present] = softmax(values, axis=1)
        return found
