"""L_W: discriminative complementary-label learning with a weighted loss."""

from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import mean_over_pairs


@register(
    "L_W",
    stacked=True,
    family="vanilla CLL",
    venue="ICML 2021",
    cite="gao2021discriminative",
)
class L_W(LossAlgorithm):
    """Model the complementary label directly, as a softmax of how unlikely each class is.

    The loss of a complementary label is weighted by its share of that unlikeliness; the gradient goes through
    the weight too. The softmax of numbers in [0, 1] is nearly flat, so gradients are weak by design.

    Objective: (1/N) Σ_pairs −(1 + w_ij) log v_ij with u = 1 − p, v = softmax(u), w = u/(K − 1), a pair being
    an example i with a label j ∉ S_i, N their number.
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over pairs of the weighted loss."""
        unlikeliness = 1 - logits.softmax(-1)
        weights = unlikeliness / (self.num_classes - 1)
        return mean_over_pairs(-(1 + weights) * unlikeliness.log_softmax(-1), batch.candidates)
