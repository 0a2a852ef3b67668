"""Class prototypes: unit rows (K, D), moving averages of the features of each class's examples."""

from __future__ import annotations

import torch
from torch import Tensor

from plench.algorithms.parts.two_headed import normalise_rows


@torch.no_grad()
def update_prototypes(
    prototypes: Tensor, features: Tensor, labels: Tensor, momentum: float, used: Tensor | None = None
) -> Tensor:
    """Return the prototypes after μ_y ← γ μ_y + (1 − γ) q for each example in batch order, rows made unit.

    The sequence has a closed form: an example with r later ones of its class enters with (1 − γ) γ^r, and the
    old row keeps γ^m after m examples. Only examples marked in `used` (B,) count, if given. A class that no
    example has had stays 0.
    """
    classes = torch.arange(len(prototypes), device=labels.device)
    members = labels[:, None] == classes
    if used is not None:
        members = members & used[:, None]
    counted = members.to(features.dtype)
    up_to_here = counted.cumsum(0)
    counts = up_to_here[-1]
    entering = counted * (1 - momentum) * momentum ** (counts - up_to_here)
    return normalise_rows(momentum ** counts[:, None] * prototypes + entering.T @ features)
