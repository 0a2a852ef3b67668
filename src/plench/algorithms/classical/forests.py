"""ET_AVG, ET_EM, RF_AVG, RF_EM: forests on soft targets, once or by expectation maximisation."""

from __future__ import annotations

from typing import ClassVar

from plench.algorithms.base import register
from plench.algorithms.classical.expectation_maximisation import (
    FLOOR,
    FOLDS,
    ROUNDS,
    SHARPENING,
    TargetAlgorithm,
)
from plench.algorithms.classical.parts.forest import Forest, ForestShape, grow_and_predict, grow_forest
from plench.algorithms.classical.parts.targets import Floats, take_logs
from plench.hparams import Choice, Hyperparameter

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
        forest, outside = grow_forest(self.features, self.soft_targets, self.shape, seed)
        self.fitted = forest.to_arrays()
        return outside

    def fit_and_predict(self, features: Floats, targets: Floats, queries: Floats, seed: int) -> Floats:
        """Grow a forest on some examples and predict others."""
        return grow_and_predict(features, targets, queries, self.shape, seed)

    def score(self, features: Floats) -> Floats:
        """Return the log of the forest's mean targets."""
        return take_logs(Forest.from_arrays(self.fitted, self.num_classes).predict(features))


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
