"""PL_AKNN: a vote of as many nearest neighbours as the query needs."""

from __future__ import annotations

import math

import numpy as np

from plench.algorithms.base import register
from plench.algorithms.classical.parts import Bools, Floats, Indices, find_neighbours, narrow
from plench.algorithms.fitted import FittedAlgorithm
from plench.hparams import Choice, Hyperparameter

# Probability, at a threshold of 1, with which the true label may be eliminated.
CONFIDENCE = 0.1
# The local geometry: neighbours that a row is mixed with and their share, neighbours that scale it.
MIXED, SHARE, SCALED = 10, 0.1, 50
# Added to lengths, scales and sums that a quotient has below.
TINY = 1e-12


def squared_bound(threshold: float, num_data: int, num_classes: int) -> float:
    """Return A²: a label leaves once (m − τ)² ≥ A²·k, m the leader's votes of k neighbours."""
    return threshold**2 * (math.log(num_data) + math.log(num_classes / CONFIDENCE))


def eliminate(candidates: Bools, index: Indices, bound: float) -> Floats:
    """Return scores (q, K) of queries, given their neighbours (q, N), nearest first; `bound` is A².

    Neighbours vote one by one, each for all its candidates, until one label is left. A survivor's score is
    half its best sign(d)·d²/k over the steps k, d its lead over the second; a label that left has minus half
    its (m − τ)²/k then. Votes are whole numbers, so equal scores are equal in floating point.
    """
    queries, num_classes = len(index), candidates.shape[1]
    votes = np.zeros((queries, num_classes))
    scores = np.full((queries, num_classes), -np.inf)
    survivors = np.ones((queries, num_classes), dtype=bool)
    for k in range(1, index.shape[1] + 1):
        open_ = np.flatnonzero(survivors.sum(1) > 1)
        if not len(open_):
            break
        votes[open_] += candidates[index[open_, k - 1]]
        own, stay = votes[open_], survivors[open_]
        ranked = np.partition(np.where(stay, own, -np.inf), -2, axis=1)
        second, first = ranked[:, -2, None], ranked[:, -1, None]
        lead, lag = own - second, first - own
        leaves = stay & (lag**2 >= bound * k)
        best = np.maximum(scores[open_], np.sign(lead) * lead**2 / k / 2)
        scores[open_] = np.where(leaves, -(lag**2) / k / 2, np.where(stay, best, scores[open_]))
        survivors[open_] = stay & ~leaves
    return scores


def to_unit(rows: Floats) -> Floats:
    """Divide rows by their length."""
    return np.asarray(rows / (np.linalg.norm(rows, axis=1, keepdims=True) + TINY))


def mix_in(rows: Floats, others: Floats, index: Indices, distances: Floats) -> Floats:
    """Move unit rows (n, D) a little to their neighbours among others, the nearer ones most; make them unit.

    Weights are those of a Gaussian whose width is the median distance.
    """
    width = np.median(distances, axis=1, keepdims=True) + TINY
    weights = np.exp(-(distances**2) / (2 * width**2))
    weights /= weights.sum(1, keepdims=True) + TINY
    mean = np.zeros_like(rows)
    for a in range(index.shape[1]):
        mean += weights[:, a, None] * others[index[:, a]]
    return to_unit((1 - SHARE) * rows + SHARE * mean)


def smooth_rows(features: Floats) -> tuple[Floats, Floats]:
    """Return training rows G (n, D) of the local geometry and their radii (n,); neighbours are by G/radius.

    Signed cube roots of length 1, mixed with their neighbours. The radius is the mean distance to the nearest
    others, so that dense and sparse regions come to one scale.
    """
    rows = to_unit(np.cbrt(features))
    if len(rows) == 1:
        return rows, np.ones(1)
    others = len(rows) - 1
    smoothed = mix_in(rows, rows, *find_neighbours(rows, rows, min(MIXED, others), first_excluded=0))
    _, distances = find_neighbours(smoothed, smoothed, min(SCALED, others), first_excluded=0)
    return smoothed, distances.mean(1) + TINY


def place_queries(features: Floats, smoothed: Floats) -> Floats:
    """Return queries in the local geometry of training rows G, divided by their radii."""
    rows = to_unit(np.cbrt(features))
    if len(smoothed) == 1:
        return rows
    near = find_neighbours(rows, smoothed, min(MIXED, len(smoothed)))
    placed = mix_in(rows, smoothed, *near)
    _, distances = find_neighbours(placed, smoothed, min(SCALED, len(smoothed) - 1))
    return np.asarray(placed / (distances.mean(1, keepdims=True) + TINY))


@register(
    "PL_AKNN",
    family="classical",
    venue="AISTATS 2026",
    passes="none (local geometry: two searches among the training rows)",
    hyperparameters=(
        Hyperparameter("neighbours", 50, "most neighbours looked at", Choice(10, 20, 50, 100), at_least=1),
        Hyperparameter(
            "threshold",
            0.5,
            "constant of the test by which labels leave",
            Choice(0.1, 0.25, 0.5, 1.0),
            above=0,
        ),
        Hyperparameter(
            "geometry",
            "local",
            "distances between features (plain), or after smoothing and scaling by density (local)",
            Choice("plain", "local"),
            one_of=("plain", "local"),
        ),
    ),
    cite="errandonea2026learnability",
)
class PL_AKNN(FittedAlgorithm):
    """Look at neighbours one by one; a label leaves once its votes trail by more than chance allows.

    So the number of neighbours adapts to the query: a neighbourhood that agrees decides early, a mixed one is
    widened. Nothing is learnt beforehand, the training data is the model; the local geometry moves rows to
    their neighbours and divides them by how far those are.

    Objective: none; with τ the votes of k neighbours a label leaves once (max τ − τ_j)² ≥ A²·k, with
    A² = c²·(ln n + ln(K/0.1)). Of several survivors the one with the largest (τ_j − second)/√k at any k wins.

    Departures: ties are exact and go to the smaller class; scores, whose arg max is the published choice, are
    ours: ±(difference of votes)²/2k, the exponent of Hoeffding's bound.
    """

    def fit_round(self, number: int) -> float:
        """Keep the training data, in the geometry of the distances."""
        if self.hparams["geometry"] == "plain":
            geometry = {"rows": narrow(self.features)}
        else:
            smoothed, radii = smooth_rows(self.features)
            geometry = {"smoothed": smoothed, "radii": radii}
        self.fitted = {**geometry, "candidates": self.candidates.copy()}
        return 0.0

    def score(self, features: Floats) -> Floats:
        """Return the scores of the elimination."""
        candidates = self.fitted["candidates"]
        index = self.find_nearest(features)
        bound = squared_bound(float(self.hparams["threshold"]), *candidates.shape)
        return eliminate(candidates, index, bound)

    def find_nearest(self, features: Floats) -> Indices:
        """Return the nearest training rows (q, N) of queries, nearest first."""
        if self.hparams["geometry"] == "plain":
            queries, rows = features, self.fitted["rows"].astype(np.float64)
        else:
            smoothed = self.fitted["smoothed"]
            queries, rows = place_queries(features, smoothed), smoothed / self.fitted["radii"][:, None]
        index, _ = find_neighbours(queries, rows, min(int(self.hparams["neighbours"]), len(rows)))
        return index
