"""Forward: forward correction for complementary labels."""

import math

import torch
from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import NEG_INF, mean_over_pairs


def log_complement(logits: Tensor) -> Tensor:
    """Return log(1 − p_j) for each class, exact also where p_j is 1 to working precision.

    The likeliest class gets the log-sum-exp of all others; any other has p_j ≤ 1/2, where log1p is exact.
    """
    likeliest = logits.argmax(-1, keepdim=True)
    others = logits.scatter(-1, likeliest, NEG_INF)
    of_likeliest = others.logsumexp(-1, keepdim=True) - logits.logsumexp(-1, keepdim=True)
    probs = logits.softmax(-1).scatter(-1, likeliest, 0.0)
    return torch.log1p(-probs).scatter(-1, likeliest, of_likeliest)


@register(
    "Forward",
    stacked=True,
    family="vanilla CLL",
    venue="ECCV 2018",
    cite="yu2018learning",
)
class Forward(LossAlgorithm):
    """Fit the complementary labels by cross entropy, after passing the class probabilities to them.

    The way from true to complementary label is a transition matrix. Partial labels say nothing of its bias,
    so it is the uniform one.

    Objective: (1/N) Σ_pairs −log((1 − p_ij)/(K − 1)), a pair being an example i with a label j ∉ S_i, N their
    number.
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over pairs of the forward loss."""
        losses = math.log(self.num_classes - 1) - log_complement(logits)
        return mean_over_pairs(losses, batch.candidates)
