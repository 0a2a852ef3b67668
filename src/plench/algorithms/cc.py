"""CC: the classifier-consistent method."""

from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import candidate_nll


def weighted_nll(logits: Tensor, weights: Tensor) -> Tensor:
    """Return −log Σ_j w_j p_j for each row; with equal weights on S, `candidate_nll` + log|S|."""
    return -(logits.log_softmax(-1) + weights.log()).logsumexp(-1)


@register(
    "CC",
    stacked=True,
    family="vanilla PLL",
    venue="NeurIPS 2020",
    aliases=("LOG",),
    cite="feng2020provably",
)
class CC(LossAlgorithm):
    """Maximise the total probability of the candidate set.

    If every label of a set is as likely to have brought it about, minimising the negative log of the set's
    probability leads to the same classifier as learning from true labels.

    Objective: (1/b) Σ_i −log Σ_{j∈S_i} p_ij; with weights of candidates, (1/b) Σ_i −log Σ_j w_ij p_ij.
    """

    uses_weights = True

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean negative log-probability of the candidate sets, each candidate with its weight."""
        if batch.weights is not None:
            return weighted_nll(logits, batch.weights).mean(-1)
        return candidate_nll(logits, batch.candidates).mean(-1)
