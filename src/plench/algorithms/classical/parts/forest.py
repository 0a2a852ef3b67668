"""Forests on soft targets, grown tree by tree and kept as plain arrays, which any checkpoint can hold.

A tree of scikit-learn keeps a dense row of K numbers for every node; of a forest with K = 219 on 18,600
examples that is gigabytes. Here only one tree at a time is in that form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from plench.algorithms.classical.parts.targets import Floats

if TYPE_CHECKING:  # takes long to import, and lists of algorithms import this file
    from sklearn.tree import DecisionTreeRegressor

Array = NDArray[np.generic]

# Descents through trees that are followed at a time.
BLOCK = 2**20


@dataclass(frozen=True)
class ForestShape:
    """How a forest is grown: number and size of its trees, and whether each sees a sample of the examples.

    `max_features` is a word: log2, sqrt, third or all of the features are tried at a split.
    """

    n_estimators: int
    min_samples_leaf: int
    max_features: str
    bootstrap: bool

    def count_features(self, num_features: int) -> int:
        """Return how many features are tried at a split."""
        counts = {
            "log2": int(math.log2(num_features)),
            "sqrt": int(math.sqrt(num_features)),
            "third": num_features // 3,
            "all": num_features,
        }
        return max(1, counts[self.max_features])


@dataclass(frozen=True)
class Forest:
    """Trees as arrays over all their nodes. A leaf has feature −1 and a row of `values`."""

    roots: NDArray[np.int64]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    values: csr_array

    def predict(self, features: Array, trees: slice = slice(None)) -> Floats:
        """Return the mean over the trees of the target that x falls to, (n, K)."""
        rows = features.astype(np.float32)
        if self.feature.max() >= rows.shape[1]:
            raise ValueError(f"a forest splits by feature {self.feature.max()} of {rows.shape[1]}")
        roots = self.roots[trees]
        block = max(1, BLOCK // len(roots))
        parts = [self._sum_leaves(rows[i : i + block], roots) for i in range(0, len(rows), block)]
        return np.asarray(np.concatenate(parts) / len(roots))

    def _sum_leaves(self, rows: NDArray[np.float32], roots: NDArray[np.int64]) -> Floats:
        """Follow every row down every tree at once; return the sum of the leaves' targets."""
        node = np.tile(roots, len(rows))
        row = np.repeat(np.arange(len(rows)), len(roots))
        moving = np.flatnonzero(self.feature[node] >= 0)
        while len(moving):
            at = node[moving]
            goes_left = rows[row[moving], self.feature[at]] <= self.threshold[at]
            node[moving] = np.where(goes_left, self.left[at], self.right[at])
            moving = moving[self.feature[node[moving]] >= 0]
        starts = np.arange(0, len(node) + 1, len(roots))
        chosen = csr_array((np.ones(len(node)), node, starts), shape=(len(rows), len(self.feature)))
        return np.asarray((chosen @ self.values).toarray())

    def to_arrays(self) -> dict[str, Array]:
        """Return the forest as named arrays."""
        return {
            "roots": self.roots,
            "feature": self.feature,
            "threshold": self.threshold,
            "left": self.left,
            "right": self.right,
            "value_starts": self.values.indptr,
            "value_classes": self.values.indices,
            "value_shares": self.values.data,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], num_classes: int) -> Forest:
        """Rebuild from `to_arrays()`; raise ValueError unless the arrays are those of a forest."""
        check_nodes(arrays)
        parts = (arrays["value_shares"], arrays["value_classes"], arrays["value_starts"])
        values = csr_array(parts, shape=(len(arrays["feature"]), num_classes))
        values.check_format(full_check=True)
        nodes = {name: arrays[name] for name in ("roots", "feature", "threshold", "left", "right")}
        return cls(**nodes, values=values)  # type: ignore[arg-type]


def check_nodes(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise ValueError unless every way down from a root ends in a leaf: arrays may come from a file."""
    roots, feature, left, right = (arrays[name] for name in ("roots", "feature", "left", "right"))
    n_nodes = len(feature)
    if any(part.dtype.kind != "i" for part in (roots, feature, left, right)):
        raise ValueError("the nodes of a forest are not numbered by whole numbers")
    if {feature.shape, arrays["threshold"].shape, left.shape, right.shape} != {(n_nodes,)}:
        raise ValueError("the nodes of a forest have parts of different lengths")
    if roots.ndim != 1 or not len(roots) or roots.min() < 0 or roots.max() >= n_nodes:
        raise ValueError("a forest has no root, or one that is no node")
    inner = np.flatnonzero(feature >= 0)
    for child in (left[inner], right[inner]):
        if (child <= inner).any() or (child >= n_nodes).any():
            raise ValueError("a node of a forest has a child that is no later node")


@dataclass(frozen=True)
class Tree:
    """The arrays of one grown tree, its nodes counted from 0."""

    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    values: csr_array


def grow_forest(
    features: Array, targets: Floats, shape: ForestShape, seed: int
) -> tuple[Forest, Floats | None]:
    """Fit a forest by squared error; return it and, if it samples examples, their predictions out of the bag.

    The trees are those of scikit-learn's ExtraTreesRegressor or RandomForestRegressor with this seed. An
    example that is in the bag of every tree has a row of zeros.
    """
    rows = np.ascontiguousarray(features, dtype=np.float32)
    random = np.random.RandomState(seed)
    trees = []
    outside: Floats | None = np.zeros(targets.shape) if shape.bootstrap else None
    times = np.zeros((len(rows), 1))
    for _ in range(shape.n_estimators):
        tree_seed = random.randint(2**31 - 1)
        counts = None
        if shape.bootstrap:
            drawn = np.random.RandomState(tree_seed).randint(0, len(rows), len(rows))
            counts = np.bincount(drawn, minlength=len(rows))
        grown = _grow_tree(rows, targets, shape, tree_seed, counts)
        if counts is not None and outside is not None:
            left_out = np.flatnonzero(counts == 0)
            if len(left_out):
                outside[left_out] += grown.predict(rows[left_out]).reshape(len(left_out), -1)
            times[left_out] += 1
        trees.append(_compact(grown))
    return _join(trees), None if outside is None else outside / np.maximum(times, 1)


def _grow_tree(
    rows: Array, targets: Floats, shape: ForestShape, seed: int, counts: Array | None
) -> DecisionTreeRegressor:
    """Fit one tree; `counts` say how often each example is in its bag."""
    from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

    cls = DecisionTreeRegressor if shape.bootstrap else ExtraTreeRegressor
    tree = cls(
        min_samples_leaf=shape.min_samples_leaf,
        max_features=shape.count_features(rows.shape[1]),
        random_state=seed,
    )
    return tree.fit(rows, targets, sample_weight=counts)


def _compact(grown: DecisionTreeRegressor) -> Tree:
    """Keep what prediction needs of a tree: targets as sparse rows, and of leaves only."""
    tree = grown.tree_
    leaf = tree.children_left < 0
    # x ≤ t for single-precision x means the same as x ≤ the largest such number that is not above t.
    threshold = tree.threshold.astype(np.float32)
    above = threshold > tree.threshold
    threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
    return Tree(
        feature=np.where(leaf, -1, tree.feature).astype(np.int32),
        threshold=threshold,
        left=tree.children_left.astype(np.int32),
        right=tree.children_right.astype(np.int32),
        values=csr_array(np.where(leaf[:, None], tree.value[:, :, 0], 0.0)),
    )


def _join(trees: list[Tree]) -> Forest:
    """Put trees behind one another, their nodes counted through."""
    sizes = [len(tree.feature) for tree in trees]
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    moved = [np.int32(root) for root in roots]
    return Forest(
        roots=roots,
        feature=np.concatenate([tree.feature for tree in trees]),
        threshold=np.concatenate([tree.threshold for tree in trees]),
        left=np.concatenate([tree.left + root for tree, root in zip(trees, moved, strict=True)]),
        right=np.concatenate([tree.right + root for tree, root in zip(trees, moved, strict=True)]),
        values=csr_array(vstack([tree.values for tree in trees], format="csr")),
    )
