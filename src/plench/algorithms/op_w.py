"""OP_W: order-preserving losses for complementary labels, weighted."""

from torch import Tensor

from plench.algorithms.base import LossAlgorithm, register
from plench.algorithms.parts.targets import mean_over_pairs
from plench.batch import Batch

# Both are part of the authors' definition: the first bounds reciprocals at 1e18, which float32 can hold.
SMALLEST_PROB = 1e-18
SMALLEST_WEIGHT = 1e-6


def order_preserving_losses(logits: Tensor) -> Tensor:
    """Return −w_j log b_j, b = softmax(−z), the loss of each label were it complementary.

    The weight w = softmax(z)·softmax(1/b), up to small constants, is not held constant: the gradient goes
    through it as well.
    """
    liked = logits.softmax(-1) + SMALLEST_PROB
    disliked = (-logits).softmax(-1) + SMALLEST_PROB
    weights = liked * disliked.reciprocal().softmax(-1) + SMALLEST_WEIGHT
    return -weights * disliked.log()


@register(
    "OP_W",
    stacked=True,
    family="vanilla CLL",
    venue="AISTATS 2023",
    cite="liu2023consistent",
)
class OP_W(LossAlgorithm):
    """Fit the softmax of the negated logits to the complementary labels, so that their order is reversed.

    The weight of a label is close to 0 unless the model likes it best, so the loss acts on complementary
    labels that are the current prediction.

    Objective: (1/N) Σ_pairs −w_ij log b_ij with a = softmax(z) + 1e-18, b = softmax(−z) + 1e-18,
    w = a·softmax(1/b) + 1e-6, a pair being an example i with a label j ∉ S_i, N their number.
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over pairs of the weighted order-preserving loss."""
        return mean_over_pairs(order_preserving_losses(logits), batch.candidates)
