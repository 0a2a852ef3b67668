"""SCL_EXP and SCL_NL: surrogate complementary losses."""

from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import mean_over_pairs

# Inside the logarithm of SCL_NL; part of its definition in the authors' laboratory's code.
NL_CONSTANT = 1e-6


@register("SCL_EXP", stacked=True, family="vanilla CLL", venue="ICML 2020", cite="chou2020unbiased")
class SCL_EXP(LossAlgorithm):
    """Lower the probability of complementary labels, by its exponential.

    The surrogate is put on the complementary label directly instead of correcting an ordinary loss, which
    trades bias for a far smaller variance of the gradient.

    Objective: (1/N) Σ_pairs e^{p_ij}, a pair being an example i with a label j ∉ S_i, N their number.
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over pairs of the exponential loss."""
        return mean_over_pairs(logits.softmax(-1).exp(), batch.candidates)


@register("SCL_NL", stacked=True, family="vanilla CLL", venue="ICML 2020", cite="chou2020unbiased")
class SCL_NL(LossAlgorithm):
    """Lower the probability of complementary labels, by negative learning.

    The surrogate is put on the complementary label directly instead of correcting an ordinary loss, which
    trades bias for a far smaller variance of the gradient.

    Objective: (1/N) Σ_pairs −log(1 − p_ij + 1e-6), a pair being an example i with a label j ∉ S_i, N their
    number.
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over pairs of the negative-learning loss."""
        losses = -(1 - logits.softmax(-1) + NL_CONSTANT).log()
        return mean_over_pairs(losses, batch.candidates)
