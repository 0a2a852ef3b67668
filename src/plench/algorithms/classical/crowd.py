"""MV_LR and DS_LR: logistic regression on labels that annotators' answers, not candidate sets, tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from plench.algorithms.base import register
from plench.algorithms.classical.parts.annotators import AnswerArrays, infer_labels, take_majority
from plench.algorithms.classical.parts.linear import LinearModel, LinearObjective, soft_target_loss
from plench.algorithms.classical.parts.targets import Floats
from plench.algorithms.fitted import FittedAlgorithm
from plench.errors import UsageError
from plench.hparams import Choice, Hyperparameter, LogRange

WEIGHT = Hyperparameter("C", 0.1, "weight of the loss against ½‖W‖²", LogRange(-3, 1), above=0)


class AnswerAlgorithm(FittedAlgorithm):
    """Logistic regression, fitted once on soft targets made of answers; a subclass says how."""

    transient: ClassVar[tuple[str, ...]] = (*FittedAlgorithm.transient, "answers")

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        self.answers: AnswerArrays | None = None

    def attach_answers(self, answers: AnswerArrays) -> None:
        """Receive the answers to the training examples."""
        self.answers = answers

    def infer_targets(self, answers: AnswerArrays) -> Floats:
        """Return targets (N, K) made of the answers."""
        raise NotImplementedError(f"{type(self).__name__} has no infer_targets(answers)")

    def fit_round(self, number: int) -> float:
        """Make the targets and fit the linear model to them."""
        if self.answers is None:
            raise UsageError(
                f"{type(self).__name__} learns from the answers of annotators, which this dataset lacks"
            )
        loss = soft_target_loss(self.infer_targets(self.answers))
        objective = LinearObjective(self.features, loss, float(self.hparams["C"]))
        model, value = objective.minimise(LinearModel.zeros(self.num_classes, self.features.shape[1]))
        self.fitted = {"weight": model.weight, "bias": model.bias}
        return value

    def score(self, features: Floats) -> Floats:
        """Return the linear model's logits."""
        return LinearModel(self.fitted["weight"], self.fitted["bias"]).score(features)


@register(
    "MV_LR",
    family="classical",
    venue="KDD 2008",
    passes="one fit",
    hyperparameters=(WEIGHT,),
    answers=True,
    cite="sheng2008get",
)
class MV_LR(AnswerAlgorithm):
    """Logistic regression on the label that most annotators gave, tied labels sharing it.

    Objective: ½‖W‖² + C·Σ_i Σ_j −t_ij log p_ij, t_i equal over the labels with most votes.

    Departures: none.
    """

    def infer_targets(self, answers: AnswerArrays) -> Floats:
        """Return the majority's labels."""
        return take_majority(answers)


@register(
    "DS_LR",
    family="classical",
    venue="Applied Statistics 1979",
    passes="one fit",
    hyperparameters=(
        WEIGHT,
        Hyperparameter(
            "smoothing",
            0.01,
            "added to every count of answers",
            Choice(0.001, 0.01, 0.1, 1.0),
            above=0,
        ),
        Hyperparameter("iterations", 100, "most iterations of the estimate of the labels", at_least=1),
    ),
    answers=True,
    cite="dawid1979maximum",
)
class DS_LR(AnswerAlgorithm):
    """Logistic regression on labels estimated together with each annotator's confusions.

    Dawid and Skene's EM: who errs often, or mistakes one class for another, counts for less. It starts from
    the shares of votes, which fixes the classes' names.

    Objective: ½‖W‖² + C·Σ_i Σ_j −q_ij log p_ij, q_ik ∝ π_k Π_(a,l) θ^a_kl over the answers to i.

    Departures: counts are smoothed, so that no logarithm of 0 occurs.
    """

    def infer_targets(self, answers: AnswerArrays) -> Floats:
        """Return the estimated labels."""
        return infer_labels(answers, float(self.hparams["smoothing"]), int(self.hparams["iterations"]))
