"""Consistency of several views with one target, and a push on non-candidates. Logits are (V, …, B, K)."""

from __future__ import annotations

import torch
from torch import Tensor

from plench.algorithms.parts.targets import masked_softmax

# 1 plus a little, so that the logarithm is finite at p = 1; the authors' constant (1 + 2⁻²³ in float32).
ABOVE_ONE = 1.0000001


def divergence_from_target(logits: Tensor, target: Tensor) -> Tensor:
    """Return KL(c ‖ p), the mean over rows, with 0·log 0 = 0; the target c is a constant."""
    entropy = torch.xlogy(target, target)
    return (entropy - target * logits.log_softmax(-1)).sum(-1).mean(-1)


def push_non_candidates(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the mean over rows of −Σ_{j∉S} log(1.0000001 − p_j)."""
    logs = (ABOVE_ONE - logits.softmax(-1)).log()
    return -logs.masked_fill(candidates, 0).sum(-1).mean(-1)


def agree_on_target(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the normalised geometric mean of the views' probabilities over the candidates.

    In logs this is the softmax, over the candidates, of the mean logits: nothing can underflow.
    """
    return masked_softmax(logits.mean(0), candidates)
