"""SCARCE: complementary labels selected completely at random."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import uniform_over
from plench.hparams import Choice, Hyperparameter


class RisksAgainstRest(NamedTuple):
    """Of each class (…, K): the risk of its known negatives, and the rest, which should not be negative."""

    negative: Tensor
    rest: Tensor


def risks_against_rest(logits: Tensor, candidates: Tensor, prior: Tensor) -> RisksAgainstRest:
    """Return the two parts of each class's one-versus-rest risk, for class priors π (…, K).

    a_k = (1 − π_k) mean of log(1 + e^z) over the examples without k; r_k = mean of log(1 + e^−z) over all
    examples − (1 − π_k) mean of it over those without k. A mean over no example is 0.
    """
    without = (~candidates).to(logits.dtype)
    share = (1 - prior) / without.sum(-2).clamp(min=1)
    as_positive, as_negative = softplus(-logits), softplus(logits)
    negative = share * (without * as_negative).sum(-2)
    return RisksAgainstRest(negative, as_positive.mean(-2) - share * (without * as_positive).sum(-2))


@register(
    "SCARCE",
    stacked=True,
    family="vanilla CLL",
    venue="ICML 2024",
    state="prior K",
    hyperparameters=(
        Hyperparameter(
            "prior",
            "uniform",
            "class prior: 1/K (uniform), or the mean over the training sets of S/|S| (candidates)",
            Choice("uniform", "candidates"),
            one_of=("uniform", "candidates"),
        ),
    ),
    cite="wang2024learning",
)
class SCARCE(LossAlgorithm):
    """Tell each class from the rest, with the examples known not to have it as negatives.

    The other examples are unlabelled: their risk follows from all examples, the negatives and the class
    prior. That part cannot be negative in expectation, so its absolute value is minimised.

    Objective: Σ_k a_k + Σ_k |r_k|, a_k = (1 − π_k) mean_{i: k∉S_i} ψ(−z_ik), r_k = mean_i ψ(z_ik) − (1 − π_k)
    mean_{i: k∉S_i} ψ(z_ik), ψ(u) = log(1 + e^−u).
    """

    prior: Tensor

    def setup(self, candidates: Tensor) -> None:
        """Fix the class prior."""
        prior = torch.full((self.num_classes,), 1 / self.num_classes)
        if self.hparams["prior"] == "candidates":
            prior = uniform_over(candidates).mean(0)
        self.register_buffer("prior", prior)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the sum over classes of the negatives' risk and of the rest's absolute value."""
        negative, rest = risks_against_rest(logits, batch.candidates, self.prior)
        return (negative + rest.abs()).sum(-1)
