"""PC: pairwise comparison on complementary labels."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register


def pairwise_comparison(logits: Tensor, candidates: Tensor, most_candidates: int) -> Tensor:
    """Return the mean over pairs of (K − 1) Σ_{c≠j} σ(z_j − z_c) − K(K − 1)/2 + K − 1.

    Two complementary labels of one example compare to σ(t) + σ(−t) = 1, so only comparisons of a
    complementary label with a candidate are computed. `most_candidates` bounds the size of any set in the
    batch; a row's candidates are gathered into that many slots, of which the rest are masked.
    """
    num_classes = logits.shape[-1]
    slots = candidates.byte().topk(most_candidates, -1, sorted=False).indices
    scores, is_candidate = logits.gather(-1, slots), candidates.gather(-1, slots)
    comparisons = (logits[..., None, :] - scores[..., :, None]).sigmoid()
    counted = (is_candidate[..., :, None] & ~candidates[..., None, :]).to(logits.dtype)
    total = (comparisons * counted).sum((-3, -2, -1))
    per_row = (~candidates).sum(-1)
    total = total + (per_row * (per_row - 1)).sum(-1) / 2
    num_pairs = per_row.sum(-1)
    constant = num_classes - 1 - num_classes * (num_classes - 1) / 2
    return ((num_classes - 1) * total + constant * num_pairs) / num_pairs.clamp(min=1)


@register(
    "PC",
    stacked=True,
    family="vanilla CLL",
    venue="NeurIPS 2017",
    cite="ishida2017learning",
)
class PC(LossAlgorithm):
    """Let every complementary label score below every other label, by the sigmoid loss.

    On candidate sets this is a ranking loss of candidates over non-candidates. Its constants make it an
    unbiased estimate of the ordinary pairwise-comparison risk for uniform complementary labels.

    Objective: (1/N) Σ_pairs [(K − 1) Σ_{c≠j} σ(z_ij − z_ic) − K(K − 1)/2 + K − 1], a pair being an example i
    with a label j ∉ S_i, N their number.
    """

    def setup(self, candidates: Tensor) -> None:
        """Find the largest candidate set, once."""
        self.most_candidates = int(candidates.sum(-1).max())

    def join(self, runs: Sequence[Any]) -> None:
        """Let the runs of a stack share one bound."""
        self.most_candidates = max(run.most_candidates for run in runs)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the pairwise-comparison loss."""
        return pairwise_comparison(logits, batch.candidates, self.most_candidates)
