"""Targets over candidate sets, and losses against them. Tensors are (…, B, K); a leading axis stacks runs."""

from __future__ import annotations

import torch
from torch import Tensor

NEG_INF = float("-inf")
# 1 plus a little, so that the logarithm is finite at p = 1; the authors' constant (1 + 2⁻²³ in float32).
ABOVE_ONE = 1.0000001


def over_rows(value: Tensor | float, axes: int = 2) -> Tensor | float:
    """Shape a per-run hyperparameter, a number or a tensor over runs (R,), to act on (R, B, K).

    `axes` is the number of axes behind the runs: 2 for rows and classes, 1 for what has classes only.
    """
    return value.reshape(*value.shape, *[1] * axes) if isinstance(value, Tensor) else value


# Targets --------------------------------------------------------------------------------------------------


def uniform_over(candidates: Tensor) -> Tensor:
    """Return equal weight on each candidate: S/|S|."""
    weights = candidates.to(torch.get_default_dtype())
    return weights / weights.sum(-1, keepdim=True)


def restrict(weights: Tensor, candidates: Tensor) -> Tensor:
    """Return the weights restricted to the candidates and normalised; uniform where nothing is left."""
    kept = weights * candidates
    total = kept.sum(-1, keepdim=True)
    return torch.where(total == 0, uniform_over(candidates).to(kept.dtype), kept / total)


def mask_out(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the logits where the mask is set and −∞ elsewhere."""
    return torch.where(mask, logits, NEG_INF)


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the entries of a non-empty mask, exactly 0 elsewhere."""
    return mask_out(logits, mask).softmax(-1)


def agree_on_target(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the views' geometric mean Π_v p_v^(1/V), restricted to the candidates; logits are (V, …, B, K).

    In logs this is the softmax, over the candidates, of the mean logits: nothing can underflow.
    """
    return masked_softmax(logits.mean(0), candidates)


def best_candidate(scores: Tensor, candidates: Tensor) -> Tensor:
    """Return the candidate with the highest score (…, B), the lowest index on ties."""
    return mask_out(scores, candidates).argmax(-1)


def onehot_like(labels: Tensor, scores: Tensor) -> Tensor:
    """Return one-hot rows for labels (…, B), in the shape and type of scores (…, B, K)."""
    classes = torch.arange(scores.shape[-1], device=labels.device)
    return (labels[..., None] == classes).to(scores.dtype)


# Losses against targets -----------------------------------------------------------------------------------


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over rows of −Σ_j c_j log p_j, for targets c held constant."""
    return -(targets * logits.log_softmax(-1)).sum((-2, -1)) / logits.shape[-2]


def divergence_from_target(logits: Tensor, target: Tensor) -> Tensor:
    """Return KL(c ‖ p), the mean over rows, with 0·log 0 = 0; the target c is a constant."""
    entropy = torch.xlogy(target, target)
    return (entropy - target * logits.log_softmax(-1)).sum(-1).mean(-1)


def push_non_candidates(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the mean over rows of −Σ_{j∉S} log(1.0000001 − p_j)."""
    logs = (ABOVE_ONE - logits.softmax(-1)).log()
    return -logs.masked_fill(candidates, 0).sum(-1).mean(-1)


def candidate_nll(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return −log Σ_{j∈S} p_j for each row, as a log-sum-exp of log-probabilities."""
    return -mask_out(logits.log_softmax(-1), candidates).logsumexp(-1)


def mean_over(values: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean of values (…, B) over the chosen rows, 0 if there are none."""
    return (values * chosen).sum(-1) / chosen.sum(-1).clamp(min=1)


# Losses of each class, were it the true one ---------------------------------------------------------------


def mae_of_classes(logits: Tensor) -> Tensor:
    """Return the mean absolute error ‖p − e_j‖₁ = 2 − 2 p_j of each class j."""
    return 2 - 2 * logits.softmax(-1)


def mse_of_classes(logits: Tensor) -> Tensor:
    """Return the squared error ‖p − e_j‖² = Σ_k p_k² − 2 p_j + 1 of each class j."""
    probs = logits.softmax(-1)
    return probs.square().sum(-1, keepdim=True) - 2 * probs + 1


def gce_of_classes(logits: Tensor, q: Tensor | float) -> Tensor:
    """Return the generalised cross entropy (1 − p_j^q)/q of each class j.

    The power is taken in log space: the derivative of a direct power is infinite where p underflows to 0.
    """
    exponent = over_rows(q)
    return (1 - (exponent * logits.log_softmax(-1)).exp()) / exponent


def mean_over_pairs(losses: Tensor, candidates: Tensor) -> Tensor:
    """Return the mean of complementary losses over the pairs of an example and a non-candidate label.

    Without any pair it is 0. Every loss must be finite, those of candidates too: their gradient is
    multiplied by 0.
    """
    pairs = (~candidates).to(losses.dtype)
    return (losses * pairs).sum((-2, -1)) / pairs.sum((-2, -1)).clamp(min=1)
