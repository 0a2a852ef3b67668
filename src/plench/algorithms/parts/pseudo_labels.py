"""Hard labels read off scores."""

from __future__ import annotations

import torch
from torch import Tensor

from plench.algorithms.parts.targets import mask_out


def best_candidate(scores: Tensor, candidates: Tensor) -> Tensor:
    """Return the candidate with the highest score (…, B), the lowest index on ties."""
    return mask_out(scores, candidates).argmax(-1)


def onehot_like(labels: Tensor, scores: Tensor) -> Tensor:
    """Return one-hot rows for labels (…, B), in the shape and type of scores (…, B, K)."""
    classes = torch.arange(scores.shape[-1], device=labels.device)
    return (labels[..., None] == classes).to(scores.dtype)
