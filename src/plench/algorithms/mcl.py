"""EXP, MCL_GCE and MCL_MSE: learning with multiple complementary labels."""

import torch
from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import gce_of_classes, mse_of_classes

REVERSED = (
    "the public code divides by the complementary loss instead of multiplying: the gradient is reversed"
)
# The exponent of the paper's generalised cross entropy; not searched, so not a hyperparameter.
GCE_EXPONENT = 0.7


def unbiased_risk(class_losses: Tensor, candidates: Tensor) -> Tensor:
    """Return, for each row, the unbiased estimate Σ_j a_j ℓ_j of its loss; it may be negative.

    a is 1 on candidates and −(|S| − 1)/(K − |S|) elsewhere; 0 everywhere in a row with every label.
    """
    num_complementary = (~candidates).sum(-1, keepdim=True, dtype=class_losses.dtype)
    num_candidates = candidates.shape[-1] - num_complementary
    on_candidates = num_complementary.clamp(max=1)
    on_complementary = (1 - num_candidates) / num_complementary.clamp(min=1)
    return (torch.where(candidates, on_candidates, on_complementary) * class_losses).sum(-1)


@register(
    "EXP",
    stacked=True,
    family="vanilla PLL",
    venue="ICML 2020",
    cite="feng2020learning",
    public_fault="the public code divides by zero where every label is a candidate, and the weights turn NaN",
    public_fault_on=("PLCIFAR10_Aggregate",),
)
class EXP(LossAlgorithm):
    """Bound the loss of a candidate set by the exponential of its total probability.

    An example weighs the more, the more candidates it has: (K − 1)/s for s labels known to be wrong. Where
    every label is a candidate nothing is known, and the weight is 0.

    Objective: (1/b) Σ_i (K − 1)/s_i · exp(−Σ_{j∈S_i} p_ij), s_i = K − |S_i|.
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over rows of the weighted exponential loss."""
        num_complementary = (~batch.candidates).sum(-1, dtype=logits.dtype)
        weight = (self.num_classes - 1) / num_complementary.clamp(min=1)
        weight = torch.where(num_complementary > 0, weight, 0.0)
        candidate_mass = (logits.softmax(-1) * batch.candidates.to(logits.dtype)).sum(-1)
        return (weight * (-candidate_mass).exp()).mean(-1)


@register(
    "MCL_GCE",
    stacked=True,
    family="vanilla PLL",
    venue="ICML 2020",
    cite="feng2020learning",
    public_fault=REVERSED,
)
class MCL_GCE(LossAlgorithm):
    """Estimate the ordinary risk without bias from complementary labels, by generalised cross entropy.

    The losses of the candidates are added; those of the complementary labels, weighted by the set's size,
    are taken away. The loss of each class is bounded, so the estimate is left as it is, even if negative.

    Objective: (1/b) Σ_i [Σ_{j∈S_i} ℓ_ij − (|S_i| − 1)/(K − |S_i|) Σ_{j∉S_i} ℓ_ij], ℓ_ij = (1 − p_ij^0.7)/0.7.
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over rows of the unbiased risk."""
        return unbiased_risk(gce_of_classes(logits, GCE_EXPONENT), batch.candidates).mean(-1)


@register(
    "MCL_MSE",
    stacked=True,
    family="vanilla PLL",
    venue="ICML 2020",
    cite="feng2020learning",
    public_fault=REVERSED,
)
class MCL_MSE(LossAlgorithm):
    """Estimate the ordinary risk without bias from complementary labels, by squared error.

    The losses of the candidates are added; those of the complementary labels, weighted by the set's size,
    are taken away. The loss of each class is bounded, so the estimate is left as it is, even if negative.

    Objective: (1/b) Σ_i [Σ_{j∈S_i} ℓ_ij − (|S_i| − 1)/(K − |S_i|) Σ_{j∉S_i} ℓ_ij], ℓ_ij = ‖p_i − e_j‖².
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over rows of the unbiased risk."""
        return unbiased_risk(mse_of_classes(logits), batch.candidates).mean(-1)
