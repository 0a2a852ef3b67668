"""ET_AVG, ET_EM, RF_AVG, RF_EM: forests on soft targets, once or by expectation maximisation.

Forests are grown tree by tree and kept as plain arrays, which any checkpoint can hold.

A tree of scikit-learn keeps a dense row of K numbers for every node; of a forest with K = 219 on 18,600
examples that is gigabytes. Here only one tree at a time is in that form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from plench.algorithms.base import register
from plench.algorithms.classical.parts import Floats, take_logs
from plench.algorithms.fitted import FLOOR, FOLDS, ROUNDS, SHARPENING, TargetAlgorithm
from plench.hparams import Choice, Hyperparameter

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


# The arrays of a forest, over the nodes of all its trees (the first node of each is in `roots`): `feature`,
# `threshold`, `left` and `right` of a node, and the targets above 0 of the leaves, in three arrays as rows of
# a sparse matrix. A leaf has feature −1.
Forest = dict[str, np.ndarray]


def predict_forest(forest: Mapping[str, np.ndarray], features: Array, num_classes: int) -> Floats:
    """Return the mean over the trees of the target that x falls to, (n, K)."""
    rows = features.astype(np.float32)
    feature, threshold, roots = forest["feature"], forest["threshold"], forest["roots"]
    if feature.max() >= rows.shape[1]:
        raise ValueError(f"a forest splits by feature {feature.max()} of {rows.shape[1]}")
    parts = (forest["value_shares"], forest["value_classes"], forest["value_starts"])
    values = csr_array(parts, shape=(len(feature), num_classes))
    block = max(1, BLOCK // len(roots))
    sums = []
    for start in range(0, len(rows), block):
        part = rows[start : start + block]
        # Every row goes down every tree at once.
        node = np.tile(roots, len(part))
        row = np.repeat(np.arange(len(part)), len(roots))
        moving = np.flatnonzero(feature[node] >= 0)
        while len(moving):
            at = node[moving]
            goes_left = part[row[moving], feature[at]] <= threshold[at]
            node[moving] = np.where(goes_left, forest["left"][at], forest["right"][at])
            moving = moving[feature[node[moving]] >= 0]
        starts = np.arange(0, len(node) + 1, len(roots))
        chosen = csr_array((np.ones(len(node)), node, starts), shape=(len(part), len(feature)))
        sums.append((chosen @ values).toarray())
    return np.asarray(np.concatenate(sums) / len(roots))


def grow_forest(
    features: Array, targets: Floats, shape: ForestShape, seed: int
) -> tuple[Forest, Floats | None]:
    """Fit a forest by squared error; return it and, if it samples examples, their predictions out of the bag.

    The trees are those of scikit-learn's ExtraTreesRegressor or RandomForestRegressor with this seed. An
    example that is in the bag of every tree has a row of zeros.
    """
    rows = to_rows(features)
    trees = []
    outside: Floats | None = np.zeros(targets.shape) if shape.bootstrap else None
    times = np.zeros((len(rows), 1))
    for grown, counts in _grow_trees(rows, targets, shape, seed):
        if counts is not None and outside is not None:
            left_out = np.flatnonzero(counts == 0)
            if len(left_out):
                outside[left_out] += _predict(grown, rows[left_out])
            times[left_out] += 1
        trees.append(_compact(grown))
    # Trees stand behind one another, their nodes counted through.
    joined = {name: np.concatenate([tree[name] for tree in trees]) for name in trees[0]}
    sizes = [len(tree["feature"]) for tree in trees]
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    shift = np.repeat(roots, sizes).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(joined["value_counts"])])
    index = np.int32 if starts[-1] <= np.iinfo(np.int32).max else np.int64
    forest = {
        "roots": roots,
        "feature": joined["feature"],
        "threshold": joined["threshold"],
        "left": joined["left"] + shift,
        "right": joined["right"] + shift,
        "value_starts": starts.astype(index),
        "value_classes": joined["value_classes"].astype(index),
        "value_shares": joined["value_shares"],
    }
    return forest, None if outside is None else outside / np.maximum(times, 1)


def grow_and_predict(
    features: Array, targets: Floats, queries: Array, shape: ForestShape, seed: int
) -> Floats:
    """Return what the forest of `grow_forest` predicts for queries, without keeping its trees."""
    asked = to_rows(queries)
    found = np.zeros((len(asked), targets.shape[1]))
    for grown, _ in _grow_trees(to_rows(features), targets, shape, seed):
        found += _predict(grown, asked)
    return np.asarray(found / shape.n_estimators)


def to_rows(features: Array) -> NDArray[np.float32]:
    """Return features as scikit-learn's trees take them; raise its ValueError unless they are finite."""
    from sklearn.utils import assert_all_finite

    rows = np.ascontiguousarray(features, dtype=np.float32)
    assert_all_finite(rows)
    return rows


def _grow_trees(
    rows: NDArray[np.float32], targets: Floats, shape: ForestShape, seed: int
) -> Iterator[tuple[DecisionTreeRegressor, NDArray[np.int64] | None]]:
    """Fit tree after tree; give each with how often every example is in its bag, if it has one."""
    from sklearn import config_context
    from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor
    from sklearn.utils import assert_all_finite

    assert_all_finite(targets)
    D = rows.shape[1]
    tried = {"log2": int(math.log2(D)), "sqrt": int(math.sqrt(D)), "third": D // 3, "all": D}
    cls = DecisionTreeRegressor if shape.bootstrap else ExtraTreeRegressor
    random = np.random.RandomState(seed)
    for _ in range(shape.n_estimators):
        tree_seed = random.randint(2**31 - 1)
        counts = None
        if shape.bootstrap:
            drawn = np.random.RandomState(tree_seed).randint(0, len(rows), len(rows))
            counts = np.bincount(drawn, minlength=len(rows))
        tree = cls(
            min_samples_leaf=shape.min_samples_leaf,
            max_features=max(1, tried[shape.max_features]),
            random_state=tree_seed,
        )
        # To check the same inputs for every tree takes as long as to grow a small one.
        with config_context(skip_parameter_validation=True):
            tree.fit(rows, targets, sample_weight=counts, check_input=False)
        yield tree, counts


def _predict(grown: DecisionTreeRegressor, rows: NDArray[np.float32]) -> Floats:
    """Return the targets (n, K) that rows fall to in one tree."""
    return np.asarray(grown.predict(rows, check_input=False)).reshape(len(rows), -1)


def _compact(grown: DecisionTreeRegressor) -> Forest:
    """Keep what prediction needs of a tree: targets as sparse rows, and of leaves only."""
    tree = grown.tree_
    leaf = tree.children_left < 0
    # x ≤ t for single-precision x means the same as x ≤ the largest such number that is not above t.
    threshold = tree.threshold.astype(np.float32)
    above = threshold > tree.threshold
    threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
    values = tree.value[:, :, 0][leaf]
    row, classes = np.nonzero(values)
    counts = np.zeros(len(leaf), dtype=np.int64)
    counts[leaf] = np.bincount(row, minlength=len(values))
    return {
        "feature": np.where(leaf, -1, tree.feature).astype(np.int32),
        "threshold": threshold,
        "left": tree.children_left.astype(np.int32),
        "right": tree.children_right.astype(np.int32),
        "value_counts": counts,
        "value_classes": classes.astype(np.int32),
        "value_shares": values[row, classes],
    }


FEATURE_WORDS = ("log2", "sqrt", "third", "all")

GROWTH = (
    Hyperparameter("n_estimators", 100, "trees", at_least=1),
    Hyperparameter("min_samples_leaf", 1, "least examples in a leaf", Choice(1, 2, 3, 5, 10), at_least=1),
    Hyperparameter(
        "max_features",
        "sqrt",
        "features tried at a split, of D: log2 D, √D, D/3 or all",
        Choice(*FEATURE_WORDS),
        one_of=FEATURE_WORDS,
    ),
)


class ForestAlgorithm(TargetAlgorithm):
    """A forest of regression trees with K outputs on soft targets; its leaves hold mean targets."""

    bootstrap: ClassVar[bool]

    @property
    def shape(self) -> ForestShape:
        """How the forest is grown."""
        return ForestShape(
            n_estimators=int(self.hparams["n_estimators"]),
            min_samples_leaf=int(self.hparams["min_samples_leaf"]),
            max_features=str(self.hparams["max_features"]),
            bootstrap=self.bootstrap,
        )

    def fit_model(self, seed: int) -> Floats | None:
        """Grow the forest; with bootstrap its out-of-bag predictions are out of sample."""
        self.fitted, outside = grow_forest(self.features, self.soft_targets, self.shape, seed)
        return outside

    def fit_and_predict(self, features: Floats, targets: Floats, queries: Floats, seed: int) -> Floats:
        """Grow a forest on some examples and predict others."""
        return grow_and_predict(features, targets, queries, self.shape, seed)

    def score(self, features: Floats) -> Floats:
        """Return the log of the forest's mean targets."""
        return take_logs(predict_forest(self.fitted, features, self.num_classes))


@register(
    "ET_AVG",
    family="classical",
    venue="Machine Learning 2006",
    passes="one fit",
    hyperparameters=GROWTH,
    cite="geurts2006extremely",
)
class ET_AVG(ForestAlgorithm):
    """Extremely randomised trees on equal targets over the candidates.

    The squared error of K outputs scores a split as Gini impurity does over one copy of the example for each
    candidate, but leaves of n examples hold examples, not copies.

    Objective: squared error of the mean target in each leaf, against q_i = S_i/|S_i|.

    Departures: none; the use of forests on averaged candidates is folklore, the reference is of the trees.
    """

    bootstrap = False


@register(
    "ET_EM",
    family="classical",
    venue="Machine Learning 2006",
    passes="1 + 3 fits a round",
    state="targets N×K",
    hyperparameters=(*GROWTH, SHARPENING, ROUNDS, FOLDS, FLOOR),
    cite="geurts2006extremely",
)
class ET_EM(ForestAlgorithm):
    """Extremely randomised trees whose out-of-fold probabilities revise the targets between rounds.

    Trees whose leaves hold one example give their own targets back, so that only models that have not seen
    an example can tell anything new about it: three folds of examples.

    Objective: squared error in each leaf against q, with q_ij ∝ (P_ij + ε)^γ over S_i after each round.

    Departures: none; EM around forests is folklore, the reference is of the trees.
    """

    uses_weights = True
    bootstrap = False


@register(
    "RF_AVG",
    family="classical",
    venue="Machine Learning 2001",
    passes="one fit",
    hyperparameters=GROWTH,
    cite="breiman2001random",
)
class RF_AVG(ForestAlgorithm):
    """A random forest on equal targets over the candidates.

    As ET_AVG, with the best of all splits instead of the best of random ones, each tree on a bootstrap sample
    of the examples (not of copies of them).

    Objective: squared error of the mean target in each leaf, against q_i = S_i/|S_i|.

    Departures: none; the use of forests on averaged candidates is folklore, the reference is of the forest.
    """

    bootstrap = True


@register(
    "RF_EM",
    family="classical",
    venue="Machine Learning 2001",
    passes="1 fit a round",
    state="targets N×K",
    hyperparameters=(*GROWTH, SHARPENING, ROUNDS, FLOOR),
    cite="breiman2001random",
)
class RF_EM(ForestAlgorithm):
    """A random forest whose out-of-bag probabilities revise the targets between rounds.

    An example is out of the bag of about a third of the trees, whose mean revises its targets: no further
    fits. One that is in every bag gets equal targets again.

    Objective: squared error in each leaf against q, with q_ij ∝ (P_ij + ε)^γ over S_i after each round.

    Departures: none; EM around forests is folklore, the reference is of the forest.
    """

    uses_weights = True
    bootstrap = True
