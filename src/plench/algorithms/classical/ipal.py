"""IPAL: labels spread between neighbours that reconstruct one another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from plench.algorithms.base import register
from plench.algorithms.classical.parts import (
    Bools,
    Floats,
    Indices,
    find_neighbours,
    narrow,
    share_equally,
    take_logs,
)
from plench.algorithms.fitted import FittedAlgorithm
from plench.hparams import Choice, Hyperparameter

# Added to the diagonal, relative to the largest squared length of a neighbour: equal neighbours share a
# weight instead of making the system singular.
RIDGE = 1e-13
# A slope counts as positive above this share of the largest product of neighbour and target.
SLACK = 1e-11


def solve_nonnegative(neighbours: Floats, targets: Floats) -> Floats:
    """Return w (n, k) that minimises ‖x_i − Σ_a w_ia A_ia‖² over w ≥ 0, for A (n, k, D) and x (n, D).

    Lawson and Hanson's method: as long as some weight that is 0 would lower the residual by rising, the
    steepest one is freed, and the free weights are solved for; where that would make one negative, the step
    ends where the first becomes 0, which is fixed again. Problems leave the batch as they are solved.
    """
    gram = neighbours @ neighbours.transpose(0, 2, 1)
    products = np.einsum("nkd,nd->nk", neighbours, targets)
    scale = np.einsum("nkk->nk", gram).max(1, initial=0.0)
    gram = gram + (RIDGE * scale)[:, None, None] * np.eye(gram.shape[1])
    limit = SLACK * np.maximum(np.abs(products).max(1, initial=0.0), np.finfo(np.float64).tiny)
    weights = np.zeros_like(products)
    free = np.zeros(products.shape, dtype=bool)
    open_ = np.arange(len(products))
    for _ in range(3 * products.shape[1]):
        slope = products[open_] - np.einsum("nkl,nl->nk", gram[open_], weights[open_])
        slope[free[open_]] = -np.inf
        steepest = slope.argmax(1)
        rows = np.arange(len(open_))
        rising = slope[rows, steepest] > limit[open_]
        open_, steepest = open_[rising], steepest[rising]
        if not len(open_):
            break
        free[open_, steepest] = True
        weights[open_], free[open_] = _settle(gram[open_], products[open_], weights[open_], free[open_])
    return np.asarray(weights)


def _settle(
    gram: Floats, products: Floats, weights: Floats, free: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Move to the minimum over the free weights, fixing those that would become negative on the way."""
    weights, free = weights.copy(), free.copy()
    moving = np.arange(len(weights))
    for _ in range(weights.shape[1]):
        solved = _solve_free(gram[moving], products[moving], free[moving])
        now, loose = weights[moving], free[moving]
        negative = loose & (solved <= 0)
        # How far each can go before it is 0; one that starts at 0 cannot go at all.
        fall = np.where(negative & (now > 0), now - solved, 1.0)
        steps = np.where(negative, now / fall, np.inf)
        step = np.minimum(steps.min(1, keepdims=True), 1.0)
        reached = np.where(loose, now + step * (solved - now), 0.0)
        done: NDArray[np.bool_] = ~np.asarray(negative.any(1))
        # Rounding may leave the weight that ends the step a little off 0: it is fixed by name.
        fixed = negative & (steps <= step)
        reached = np.where(done[:, None], solved, np.where(fixed, 0.0, np.maximum(reached, 0.0)))
        weights[moving] = reached
        free[moving] = loose & ~fixed
        moving = moving[~done]
        if not len(moving):
            break
    return weights, free


def _solve_free(gram: Floats, products: Floats, free: NDArray[np.bool_]) -> Floats:
    """Solve for the free weights of each problem, the others being 0."""
    both = free[:, :, None] & free[:, None, :]
    size = gram.shape[1]
    system = np.where(both, gram, 0.0)
    # A fixed weight's equation becomes w = 0, at the scale of the others.
    diagonal = np.where(free, 0.0, np.einsum("nkk->nk", gram).max(1)[:, None])
    system[:, np.arange(size), np.arange(size)] += np.where(diagonal > 0, diagonal, ~free)
    return np.asarray(np.linalg.solve(system, np.where(free, products, 0.0)[:, :, None])[:, :, 0])


# Examples whose neighbours' features are held at a time.
BLOCK = 1024


def weigh_neighbours(queries: Floats, rows: Floats, index: Indices) -> tuple[Floats, Floats]:
    """Return the non-negative weights (n, k) with which neighbours reconstruct queries, and what is left.

    The second is the squared residual (n,).
    """
    weights = np.zeros(index.shape)
    residuals = np.empty(len(queries))
    for start in range(0, len(queries), BLOCK):
        part = slice(start, start + BLOCK)
        neighbours = rows[index[part]]
        weights[part] = solve_nonnegative(neighbours, queries[part])
        left = queries[part] - np.einsum("nk,nkd->nd", weights[part], neighbours)
        residuals[part] = (left**2).sum(1)
    return weights, residuals


def normalise_weights(weights: Floats) -> Floats:
    """Divide each row by its sum; a row without weight stays zero."""
    total = weights.sum(1, keepdims=True)
    return np.asarray(weights / np.where(total > 0, total, 1.0))


def propagate(index: Indices, weights: Floats, candidates: Bools, alpha: float, iterations: int) -> Floats:
    """Return confidences (n, K) after spreading them along the neighbours' weights, within the candidates."""
    n, k = index.shape
    links = csr_array((weights.ravel(), index.ravel(), k * np.arange(n + 1)), shape=(n, n))
    start = share_equally(candidates)
    confidence = start
    for _ in range(iterations):
        spread = candidates * (alpha * (links @ confidence) + (1 - alpha) * start)
        total = spread.sum(1, keepdims=True)
        confidence = np.where(total > 0, spread / np.where(total > 0, total, 1.0), start)
    return confidence


def balance_classes(confidence: Floats, candidates: Bools) -> Floats:
    """Return the factor of each class: its mass before the spreading over its mass after."""
    after = confidence.sum(0)
    return np.where(after > 0, share_equally(candidates).sum(0) / np.where(after > 0, after, 1.0), 1.0)


def choose_labels(confidence: Floats, candidates: Bools) -> NDArray[np.int64]:
    """Return the candidate with the highest balanced confidence."""
    balanced = balance_classes(confidence, candidates) * confidence
    return np.asarray(np.where(candidates, balanced, -np.inf).argmax(1))


def measure_classes(
    queries: Floats,
    rows: Floats,
    labels: NDArray[np.int64],
    index: Indices,
    weights: Floats,
    num_classes: int,
) -> Floats:
    """Return what is left of each query, squared, when only one class's neighbours reconstruct it, (n, K)."""
    residuals = np.repeat((queries**2).sum(1)[:, None], num_classes, axis=1)
    for start in range(0, len(queries), BLOCK):
        part = slice(start, start + BLOCK)
        chosen = labels[index[part]]
        same = chosen[:, :, None] == chosen[:, None, :]
        by_class = (same * weights[part][:, None, :]) @ rows[index[part]]
        left = queries[part][:, None, :] - by_class
        np.put_along_axis(residuals[part], chosen, (left**2).sum(2), axis=1)
    return residuals


def rate_classes(residuals: Floats) -> Floats:
    """Return probabilities that fall with the residual, equal where all residuals are."""
    gain = residuals.max(1, keepdims=True) - residuals
    total = gain.sum(1, keepdims=True)
    return np.asarray(np.where(total > 0, gain / np.where(total > 0, total, 1.0), 1 / residuals.shape[1]))


@register(
    "IPAL",
    family="classical",
    venue="IJCAI 2015",
    passes="one fit",
    hyperparameters=(
        Hyperparameter("k", 10, "neighbours", Choice(5, 8, 10, 15, 20), at_least=1),
        Hyperparameter(
            "alpha",
            0.95,
            "share of the neighbours in an example's new confidence",
            Choice(0.5, 0.8, 0.9, 0.95, 0.99),
            at_least=0,
            at_most=0.999999,
        ),
        Hyperparameter("iterations", 100, "times that confidences are spread", at_least=0),
    ),
    cite="zhang2015solving",
)
class IPAL(FittedAlgorithm):
    """Confidences spread between neighbours; the class whose neighbours reconstruct an input best wins.

    Each example is reconstructed from its k nearest with weights that are not negative; along these weights
    confidences spread, within the candidates, and settle on one label per example.

    Objective: min_{w≥0} ‖x_i − Σ_a w_a x_a‖² for each example; F_i ∝ S_i·(α Σ_a h_a F_a + (1 − α) S_i/|S_i|).

    Departures: the paper predicts the class with the smallest residual r_c only; probabilities
    (max r − r_c)/Σ_j (max r − r_j), which have the same arg max, are ours.
    """

    def fit_round(self, number: int) -> float:
        """Weigh neighbours, spread confidences, choose labels."""
        features = self.features
        k = min(int(self.hparams["k"]), len(features) - 1)
        index, _ = find_neighbours(features, features, k, first_excluded=0)
        weights, residuals = weigh_neighbours(features, features, index)
        confidence = propagate(
            index,
            normalise_weights(weights),
            self.candidates,
            float(self.hparams["alpha"]),
            int(self.hparams["iterations"]),
        )
        labels = choose_labels(confidence, self.candidates)
        self.fitted = {"features": narrow(features), "labels": labels}
        return float(residuals.mean())

    def score(self, features: Floats) -> Floats:
        """Return the log of probabilities that fall with the classes' residuals."""
        rows = self.fitted["features"].astype(np.float64)
        index, _ = find_neighbours(features, rows, min(int(self.hparams["k"]), len(rows)))
        weights, _ = weigh_neighbours(features, rows, index)
        residuals = measure_classes(features, rows, self.fitted["labels"], index, weights, self.num_classes)
        return take_logs(rate_classes(residuals))
