"""Non-negative least squares for many small problems at once: the active-set method, batched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plench.algorithms.classical.parts.targets import Floats

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
