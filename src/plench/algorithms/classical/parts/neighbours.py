"""Nearest training rows, exactly: by distance, then by index."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from plench.algorithms.classical.parts.targets import Floats

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
