"""CLPL: a convex loss on the mean score of the candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from plench.algorithms.base import register
from plench.algorithms.classical.parts import (
    TOLERANCE,
    Bools,
    Floats,
    LinearModel,
    LinearObjective,
    ScoreLoss,
    share_equally,
)
from plench.algorithms.fitted import LinearAlgorithm
from plench.hparams import Hyperparameter, LogRange

# Of margins the losses and their slopes.
MarginLoss = Callable[[Floats], tuple[Floats, Floats]]


def squared_hinge(margins: Floats) -> tuple[Floats, Floats]:
    """Return ψ(u) = max(0, 1 − u)² and its slope."""
    short = np.maximum(0.0, 1.0 - margins)
    return short**2, -2.0 * short


def candidate_loss(
    scores: Floats, candidates: Bools, psi: MarginLoss = squared_hinge
) -> tuple[Floats, Floats]:
    """Return each example's ψ(mean candidate score) + Σ_{j∉S} ψ(−g_j), and the gradients (n, K)."""
    shares = share_equally(candidates)
    inside, inside_slope = psi((shares * scores).sum(1))
    outside, outside_slope = psi(-scores)
    losses = inside + np.where(candidates, 0.0, outside).sum(1)
    return losses, np.where(candidates, inside_slope[:, None] * shares, -outside_slope)


def total_loss(candidates: Bools, psi: MarginLoss = squared_hinge) -> ScoreLoss:
    """Return the sum of the examples' losses as a function of scores."""

    def loss(scores: Floats) -> tuple[float, Floats]:
        losses, slopes = candidate_loss(scores, candidates, psi)
        return float(losses.sum()), slopes

    return loss


@register(
    "CLPL",
    family="classical",
    venue="JMLR 2011",
    passes="one fit",
    hyperparameters=(
        Hyperparameter("C", 0.01, "weight of the loss against ½‖W‖²", LogRange(-4, 0), above=0),
    ),
    cite="cour2011learning",
)
class CLPL(LinearAlgorithm):
    """Linear scores whose mean over the candidates is pushed up, and each other class's score down.

    The mean inside the convex loss is what tells it from one-against-all: one high candidate is enough. The
    objective is convex, so that there is one minimum.

    Objective: ½‖W‖² + C·Σ_i [ψ(mean_{j∈S_i} g_ij) + Σ_{j∉S_i} ψ(−g_ij)], ψ(u) = max(0, 1 − u)².

    Departures: biases are free, and the solver is L-BFGS; the authors use LIBLINEAR.
    """

    iterations: ClassVar[int] = 500
    tolerance: ClassVar[float] = TOLERANCE

    def fit_round(self, number: int) -> float:
        """Minimise the objective from zeros."""
        objective = LinearObjective(self.features, total_loss(self.candidates), float(self.hparams["C"]))
        start = LinearModel.zeros(self.num_classes, self.features.shape[1])
        model, loss = objective.minimise(start, self.iterations, self.tolerance)
        self.keep(model)
        return loss
