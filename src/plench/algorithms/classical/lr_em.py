"""LR_EM: a linear softmax model by expectation maximisation over the candidates."""

from __future__ import annotations

from typing import ClassVar

from plench.algorithms.base import register
from plench.algorithms.classical.parts import (
    TOLERANCE,
    LinearModel,
    LinearObjective,
    restrict_softmax,
    soft_target_loss,
    sum_candidate_surprise,
)
from plench.algorithms.fitted import LinearAlgorithm
from plench.hparams import Hyperparameter, LogRange


@register(
    "LR_EM",
    family="classical",
    venue="NIPS 2002",
    passes="a fit a round",
    state="targets N×K",
    hyperparameters=(
        Hyperparameter("C", 0.1, "weight of the loss against ½‖W‖²", LogRange(-3, 1), above=0),
        Hyperparameter("rounds", 40, "rounds of M-step and E-step", at_least=1),
    ),
    cite="jin2002learning",
)
class LR_EM(LinearAlgorithm):
    """Logistic regression on soft targets that its own probabilities over the candidates replace each round.

    Each round lowers the penalised loss of CC or leaves it, so that its fixed points are those of CC with a
    linear network. The first round, on equal targets, is a convex problem with one answer.

    Objective: ½‖W‖² + C·Σ_i Σ_j −q_ij log p_ij, with q_i ← softmax of the logits over S_i after each fit.

    Departures: the paper has no penalty; ours is that of scikit-learn, biases being free.
    """

    uses_weights = True
    iterations: ClassVar[int] = 200
    tolerance: ClassVar[float] = TOLERANCE

    def fit_round(self, number: int) -> float:
        """Fit from where the last round ended, then renormalise the probabilities over the candidates."""
        C = float(self.hparams["C"])
        features = self.features
        start = self.model if self.fitted else LinearModel.zeros(self.num_classes, features.shape[1])
        objective = LinearObjective(features, soft_target_loss(self.soft_targets), C)
        model, _ = objective.minimise(start, self.iterations, self.tolerance)
        self.keep(model)
        scores = model.score(features)
        if number < self.rounds:
            self.set_targets(restrict_softmax(scores, self.prior_weights))
        surprise = sum_candidate_surprise(scores, self.prior_weights)
        penalty = 0.5 * float((model.weight**2).sum())
        return (penalty / C + surprise) / len(features)
