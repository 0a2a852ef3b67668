"""Bounded losses of each class, were it the true one: (…, B, K) from logits (…, B, K)."""

from __future__ import annotations

from torch import Tensor

from plench.algorithms.parts.targets import over_rows


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
