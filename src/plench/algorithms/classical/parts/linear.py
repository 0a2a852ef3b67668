"""Linear models z = XWᵀ + b: penalised objectives ½‖W‖² + C·Σ loss, and the one solver for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from plench.algorithms.classical.parts.targets import Bools, Floats

# Of scores (n, K) the sum of the examples' losses, and its gradient (n, K).
ScoreLoss = Callable[[Floats], tuple[float, Floats]]

TOLERANCE = 1e-5


@dataclass(frozen=True)
class LinearModel:
    """Weights (K, D) and biases (K,)."""

    weight: Floats
    bias: Floats

    @classmethod
    def zeros(cls, num_outputs: int, num_features: int) -> LinearModel:
        """Return the model that scores everything 0, from which fits start."""
        return cls(np.zeros((num_outputs, num_features)), np.zeros(num_outputs))

    def score(self, features: Floats) -> Floats:
        """Return scores (n, K)."""
        scores = np.asarray(features @ self.weight.T)
        scores += self.bias
        return scores


@dataclass(frozen=True)
class LinearObjective:
    """J(W, b) = ½‖W‖² + C·Σ_i loss_i; biases are free."""

    features: Floats
    loss: ScoreLoss
    C: float

    def evaluate(self, model: LinearModel) -> tuple[float, Floats, Floats]:
        """Return J and its gradients with respect to W and b."""
        total, slope = self.loss(model.score(self.features))
        value = 0.5 * float(np.vdot(model.weight, model.weight)) + self.C * total
        return value, model.weight + self.C * (slope.T @ self.features), self.C * slope.sum(0)

    def minimise(
        self, start: LinearModel, iterations: int = 200, tolerance: float = TOLERANCE
    ) -> tuple[LinearModel, float]:
        """Minimise J/(C·n) by L-BFGS until its largest slope is small; return the model and J/(C·n)."""
        from scipy.optimize import minimize  # takes long, and lists of algorithms import this file

        scale = 1 / (self.C * len(self.features))
        shape = start.weight.shape
        size = start.weight.size

        def unpack(values: Floats) -> LinearModel:
            return LinearModel(values[:size].reshape(shape), values[size:])

        def scaled(values: Floats) -> tuple[float, Floats]:
            value, weight_slope, bias_slope = self.evaluate(unpack(values))
            return scale * value, scale * np.concatenate([weight_slope.ravel(), bias_slope])

        found = minimize(
            scaled,
            np.concatenate([start.weight.ravel(), start.bias]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations, "gtol": tolerance, "ftol": 0},
        )
        return unpack(found.x), float(found.fun)


def soft_target_loss(targets: Floats) -> ScoreLoss:
    """Return the loss Σ_i Σ_j −q_ij log p_ij of soft targets."""
    mass = targets.sum(1, keepdims=True)

    def loss(scores: Floats) -> tuple[float, Floats]:
        log_probs = log_softmax(scores)
        total = -float(np.vdot(targets, log_probs))
        slope = np.exp(log_probs, out=log_probs)
        slope *= mass
        slope -= targets
        return total, slope

    return loss


def log_softmax(scores: Floats) -> Floats:
    """Return log p of each row: what scipy's function does, without what its calls cost."""
    shifted = scores - scores.max(1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(1, keepdims=True))
    return np.asarray(shifted)


def sum_candidate_surprise(scores: Floats, weights: Floats | Bools) -> float:
    """Return Σ_i −log Σ_j w_ij p_ij, the loss of CC; a mask means weight 1 on each candidate."""
    with np.errstate(divide="ignore"):
        logs = np.log(weights.astype(np.float64))
    return float((logsumexp(scores, axis=1) - logsumexp(scores + logs, axis=1)).sum())


def logistic_loss(signs: Floats) -> ScoreLoss:
    """Return the loss Σ log(1 + exp(−t·g)) of targets t = ±1 for scores (n, 1)."""

    def loss(scores: Floats) -> tuple[float, Floats]:
        margins = signs[:, None] * scores
        slope = -signs[:, None] * np.exp(-np.logaddexp(0, margins))
        return float(np.logaddexp(0, -margins).sum()), slope

    return loss
