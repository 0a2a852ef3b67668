"""CAVL: class activation value learning."""

import torch
from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import best_candidate, onehot_like, soft_cross_entropy, uniform_over


def activation_value(logits: Tensor) -> Tensor:
    """Return the class activation value z·|1 − z| of each logit."""
    return logits * (1 - logits).abs()


@register(
    "CAVL",
    stacked=True,
    family="vanilla PLL",
    venue="ICLR 2022",
    passes="2 (second without gradient)",
    state="confidence N×K",
    public_fault="the public code may choose a label outside the candidates as the target",
    cite="zhang20222exploiting",
)
class CAVL(LossAlgorithm):
    """Train on the candidate with the largest class activation value, chosen anew after each visit.

    The class activation value z·|1 − z| of a logit says how strongly the network's attention speaks for a
    class; the first visit of an example uses all of its candidates equally.

    Objective: (1/b) Σ_i Σ_j −c_ij log p_ij, with c_i ← one-hot of arg max_{j∈S_i} z'_ij·|1 − z'_ij|, z' from
    a second pass after the step.
    """

    def setup(self, candidates: Tensor) -> None:
        """Start from equal confidence in each candidate."""
        self.per_example("confidence", uniform_over(candidates))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the cross entropy against the stored choice."""
        return soft_cross_entropy(logits, self.rows("confidence", batch.index))

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Choose among the candidates by a second pass, with the new parameters."""
        with torch.no_grad():
            values = activation_value(self.network(batch.weak))
        chosen = onehot_like(best_candidate(values, batch.candidates), values)
        self.write_rows("confidence", batch.index, chosen)
