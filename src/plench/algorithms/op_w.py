"""OP_W: order-preserving losses for complementary labels, weighted."""

from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import mean_over_pairs

# Both are part of the authors' definition: the first bounds reciprocals at 1e18, which float32 can hold.
SMALLEST_PROB = 1e-18
SMALLEST_WEIGHT = 1e-6


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
        """Return the mean over pairs of the weighted loss; the gradient goes through the weight as well."""
        liked = logits.softmax(-1) + SMALLEST_PROB
        disliked = (-logits).softmax(-1) + SMALLEST_PROB
        weights = liked * disliked.reciprocal().softmax(-1) + SMALLEST_WEIGHT
        return mean_over_pairs(-weights * disliked.log(), batch.candidates)
