"""Soft targets over candidate sets, and probabilities as logits. Arrays are float64, rows are examples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

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
