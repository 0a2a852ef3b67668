"""PRODEN: progressive identification of true labels."""

from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import masked_softmax, soft_cross_entropy, uniform_over


@register(
    "PRODEN",
    stacked=True,
    family="vanilla PLL",
    venue="ICML 2020",
    passes="1",
    state="confidence N×K",
    aliases=("RC",),
    cite="lv2020progressive",
)
class PRODEN(LossAlgorithm):
    """Self-training: cross entropy against soft targets that the model's own probabilities replace.

    After each step the targets of the batch become the probabilities of that step's pass, renormalised over
    the candidates, so that the weight moves, example by example, to the candidate the model believes in.

    Objective: (1/b) Σ_i Σ_j −c_ij log p_ij, with c_i ← softmax of the logits over S_i after each visit.
    Weights of candidates are a prior: c starts as w, and each revision is c_ij ∝ w_ij p_ij.
    """

    uses_weights = True

    def setup(self, candidates: Tensor) -> None:
        """Start from equal confidence in each candidate."""
        self.per_example("confidence", uniform_over(candidates))

    def weigh_candidates(self, weights: Tensor) -> None:
        """Start from the weights instead."""
        self.get_buffer("confidence").copy_(weights)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the cross entropy against the stored confidence."""
        return soft_cross_entropy(logits, self.rows("confidence", batch.index))

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Renormalise the pass's probabilities over the candidates, times their weights if they have any."""
        if batch.weights is not None:
            logits = logits + batch.weights.log()
        self.write_rows("confidence", batch.index, masked_softmax(logits, batch.candidates))
