"""What classical methods share: soft targets, linear models, nearest neighbours, folds.

Arrays are float64, rows are examples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from plench.settings import seed_hash

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEAST_PROBABILITY = 1e-12


def narrow(features: Floats) -> NDArray[np.floating]:
    """Return features in single precision, in which runs hold them, if that loses nothing."""
    single = features.astype(np.float32)
    return single if np.array_equal(single, features) else features


def share_equally(candidates: NDArray[np.generic]) -> Floats:
    """Return equal weight on each candidate: S/|S|."""
    return normalise_rows(np.asarray(candidates != 0, dtype=np.float64))


def normalise_rows(weights: Floats) -> Floats:
    """Divide each row by its sum."""
    return np.asarray(weights / weights.sum(1, keepdims=True))


def take_logs(probabilities: Floats) -> Floats:
    """Return probabilities as logits, none below that of 1e-12."""
    return np.asarray(np.log(np.maximum(probabilities, LEAST_PROBABILITY)))


def restrict_softmax(logits: Floats, weights: NDArray[np.generic]) -> Floats:
    """Return q_j ∝ w_j p_j in log space, exactly 0 where the weight is 0; a mask means equal weights."""
    with np.errstate(divide="ignore"):
        return np.asarray(softmax(logits + np.log(weights.astype(np.float64)), axis=1))


def sharpen(probabilities: Floats, weights: NDArray[np.generic], sharpening: float, floor: float) -> Floats:
    """Return q_j ∝ w_j (P_j + ε)^γ, 0 where the weight is 0; a mask means equal weights."""
    return normalise_rows(weights.astype(np.float64) * (probabilities + floor) ** sharpening)


def mean_surprise(probabilities: Floats, candidates: Bools, floor: float) -> float:
    """Return the mean of −log Σ_{j∈S} (P_j + ε): how little the candidate sets agree with P."""
    covered = ((probabilities + floor) * candidates).sum(1)
    return float(-np.log(covered).mean())


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


Indices = NDArray[np.int64]

# Distances held at a time: 2²² of 8 bytes are 32 MB.
BLOCK = 2**22


def find_neighbours(
    queries: Floats, rows: Floats, k: int, first_excluded: int | None = None
) -> tuple[Indices, Floats]:
    """Return index and Euclidean distance (n, k) of each query's nearest rows, nearest first.

    Equal distances come by rising index. With `first_excluded`, query i is the row first_excluded + i, which
    is not its own neighbour.
    """
    if k == 0:
        return np.zeros((len(queries), 0), dtype=np.int64), np.zeros((len(queries), 0))
    block = max(1, BLOCK // len(rows))
    found = [
        _search(
            queries[start : start + block],
            rows,
            k,
            None if first_excluded is None else first_excluded + start,
        )
        for start in range(0, len(queries), block)
    ]
    return np.concatenate([index for index, _ in found]), np.concatenate([distance for _, distance in found])


def _search(queries: Floats, rows: Floats, k: int, first_excluded: int | None) -> tuple[Indices, Floats]:
    """Find the neighbours of one block of queries."""
    # By differences: the expansion into products gives equal rows a positive distance.
    distances = torch.cdist(
        torch.from_numpy(queries), torch.from_numpy(rows), compute_mode="donot_use_mm_for_euclid_dist"
    )
    if first_excluded is not None:
        own = torch.arange(len(queries))
        distances[own, first_excluded + own] = torch.inf
    nearest, index = distances.topk(k, largest=False)
    # topk takes any of the rows that are tied for the last place; such queries are sorted in full.
    tied = ((distances <= nearest[:, -1:]).sum(1) > k).nonzero()[:, 0]
    nearest[tied], index[tied] = (part[:, :k] for part in distances[tied].sort(stable=True))
    order = np.lexsort((index.numpy(), nearest.numpy()), axis=1)
    return np.take_along_axis(index.numpy(), order, 1), np.take_along_axis(nearest.numpy(), order, 1)


# From training features, targets, the features to predict and a seed to probabilities.
FitAndPredict = Callable[[Floats, Floats, Floats, int], Floats]


def assign_folds(n: int, folds: int, seed: int, number: int) -> NDArray[np.int64]:
    """Return the fold of every example in round `number`: by its place in a permutation, in turns."""
    order = np.random.RandomState(seed_hash(seed, "folds", number)).permutation(n)
    fold = np.empty(n, dtype=np.int64)
    fold[order] = np.arange(n) % folds
    return fold


def predict_by_folds(
    features: Floats, targets: Floats, folds: int, seed: int, number: int, fit_and_predict: FitAndPredict
) -> Floats:
    """Predict each fold's examples by a model of the other folds, in round `number`."""
    fold = assign_folds(len(features), folds, seed, number)
    found = np.zeros_like(targets)
    for j in range(min(folds, len(features))):
        held_out = fold == j
        seen = ~held_out
        if seen.any():
            found[held_out] = fit_and_predict(
                features[seen], targets[seen], features[held_out], seed_hash(seed, "fold", number, j)
            )
    return found
