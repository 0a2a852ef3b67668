"""PL_ECOC: error-correcting output codes over candidate sets."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from plench.algorithms.base import register
from plench.algorithms.classical.parts import Bools, Floats, LinearModel, LinearObjective, logistic_loss
from plench.algorithms.fitted import LinearAlgorithm, UnfitError
from plench.hparams import Hyperparameter, LogRange

# Draws of a column per column that is wanted, and how many are judged at a time.
DRAWS = 1000
AT_A_TIME = 64
LARGEST_MARGIN = 20.0

Signs = NDArray[np.int64]


def assign_sides(candidates: Bools, codes: Signs) -> Signs:
    """Return +1, −1 or 0 (n, L): on which side of a column all candidates of an example lie, if on one."""
    sets = candidates.astype(np.float64)
    positive = sets @ (codes < 0) == 0
    negative = sets @ (codes > 0) == 0
    return np.asarray(np.subtract(positive, negative, dtype=np.int64))


def draw_code(candidates: Bools, length: int, min_fraction: float, seed: int) -> Signs:
    """Draw a coding matrix (K, L) of ±1 whose columns leave enough examples on both sides.

    A column and its mirror are one, so that the first class is +1 in each; `length` columns are wanted, and
    fewer are returned if the draws run out.
    """
    n, num_classes = candidates.shape
    random = np.random.RandomState(seed)
    used = {bytes(np.ones(num_classes, dtype=np.int8))}
    columns: list[Signs] = []
    for done in range(0, DRAWS * length, AT_A_TIME):
        drawn = 2 * random.randint(0, 2, (min(AT_A_TIME, DRAWS * length - done), num_classes)) - 1
        drawn = drawn * drawn[:, :1]
        sides = assign_sides(candidates, drawn.T)
        enough = (sides > 0).any(0) & (sides < 0).any(0) & ((sides != 0).sum(0) >= min_fraction * n)
        for column, good in zip(drawn, enough, strict=True):
            key = bytes(column.astype(np.int8))
            if good and key not in used and len(columns) < length:
                used.add(key)
                columns.append(column)
        if len(columns) == length:
            break
    if not columns:
        raise UnfitError(
            "the candidate sets are too large for PL_ECOC: no division of the classes into two leaves "
            f"{min_fraction:g} of the examples with all their candidates on one side; lower min_fraction "
            "or take another method"
        )
    return np.array(columns).T


def rate_columns(decisions: Floats, codes: Signs, candidates: Bools) -> Floats:
    """Return how well each column serves each class: shares of agreement (K, L), rows summing to 1.

    A class that is not a candidate, or that no column ever agrees with, trusts all columns equally.
    """
    count = candidates.sum(0)[:, None].astype(np.float64)
    positive = (candidates.T.astype(np.float64) @ (decisions > 0)) / np.maximum(count, 1.0)
    agreement = np.where(count > 0, np.where(codes > 0, positive, 1 - positive), 0.0)
    total = agreement.sum(1, keepdims=True)
    return np.where(total > 0, agreement / np.where(total > 0, total, 1.0), 1 / codes.shape[1])


def decode_scores(decisions: Floats, codes: Signs, performance: Floats) -> Floats:
    """Return scores z_c = −L·Σ_l G_cl·exp(−clip(g_l M_cl, ±20))."""
    margins = np.clip(decisions, -LARGEST_MARGIN, LARGEST_MARGIN)
    loss = np.exp(-margins) @ np.where(codes > 0, performance, 0.0).T
    loss += np.exp(margins) @ np.where(codes < 0, performance, 0.0).T
    return np.asarray(-codes.shape[1] * loss)


@register(
    "PL_ECOC",
    family="classical",
    venue="TKDE 2017",
    passes="a fit a column",
    hyperparameters=(
        Hyperparameter("C", 0.1, "weight of the binary losses against ½‖w‖²", LogRange(-3, 1), above=0),
        Hyperparameter(
            "min_fraction", 0.1, "least share of the examples in a binary problem", at_least=0, at_most=1
        ),
    ),
    cite="zhang2017disambiguation",
)
class PL_ECOC(LinearAlgorithm):
    """Binary problems that divide the classes in two and use only examples whose candidates lie on one side.

    Nothing is disambiguated: such an example's side is known, whichever candidate is right. Ten times log2 K
    random divisions are learnt and decoded together, each trusted by a class as far as it served it.

    Objective: ½‖w‖² + C·Σ log(1 + exp(−t·g)) for each division; z_c = −L·Σ_l G_cl exp(−g_l M_cl).

    Departures: the authors' binary learner is a support vector machine; a logistic loss has a unique smooth
    minimum. Margins are clipped at ±20.
    """

    def fit_round(self, number: int) -> float:
        """Draw the code, learn its columns, and measure how they serve the classes."""
        length = math.ceil(10 * math.log2(self.num_classes))
        codes = draw_code(self.candidates, length, float(self.hparams["min_fraction"]), self.seed_for("code"))
        start = LinearModel.zeros(1, self.features.shape[1])
        models = []
        for side in assign_sides(self.candidates, codes).T:
            rows = side != 0
            loss = logistic_loss(side[rows].astype(np.float64))
            objective = LinearObjective(self.features[rows], loss, float(self.hparams["C"]))
            models.append(objective.minimise(start)[0])
        weight = np.concatenate([model.weight for model in models])
        bias = np.concatenate([model.bias for model in models])
        decisions = LinearModel(weight, bias).score(self.features)
        performance = rate_columns(decisions, codes, self.candidates)
        self.fitted = {"weight": weight, "bias": bias, "codes": codes, "performance": performance}
        return 0.0

    def score(self, features: Floats) -> Floats:
        """Return the decoded scores."""
        return decode_scores(self.model.score(features), self.fitted["codes"], self.fitted["performance"])
