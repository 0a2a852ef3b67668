"""LWS: the leveraged weighted loss, in its sigmoid form."""

import torch
from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import over_rows
from plench.hparams import Choice, Hyperparameter

# Added to each of the K entries before a group is summed; part of the authors' definition.
GUARD = 1e-8


@register(
    "LWS",
    stacked=True,
    family="vanilla PLL",
    venue="ICML 2021",
    passes="2 (second without gradient)",
    state="weights N×K",
    hyperparameters=(
        Hyperparameter(
            "lw_weight", 2, "leverage of the non-candidate part", Choice(1, 2), type=float, at_least=0
        ),
    ),
    cite="wen2021leveraged",
)
class LWS(LossAlgorithm):
    """Weigh a sigmoid loss on the candidates against a leveraged one on the other labels.

    Within each of the two groups the weights follow the model's probabilities, so that the loss looks at the
    likeliest candidate and at the most dangerous non-candidate.

    Objective: (1/b) Σ_i Σ_j w_ij [S_ij σ(−z_ij) + β (1 − S_ij) σ(z_ij)], β = `lw_weight`; w is renewed by a
    second pass after each step.
    """

    def setup(self, candidates: Tensor) -> None:
        """Start from the weight 1/K on every label, candidate or not."""
        self.per_example("weights", torch.full(candidates.shape, 1 / self.num_classes))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the leveraged weighted loss with the stored weights."""
        leverage = over_rows(self.hparams["lw_weight"])
        losses = torch.where(batch.candidates, (-logits).sigmoid(), leverage * logits.sigmoid())
        return (self.rows("weights", batch.index) * losses).sum((-2, -1)) / logits.shape[-2]

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Renew the weights: a second pass's probabilities, normalised within each of the two groups."""
        with torch.no_grad():
            probs = self.network(batch.weak).softmax(-1)
        candidate_mass = torch.where(batch.candidates, probs, 0.0).sum(-1, keepdim=True)
        other_mass = torch.where(batch.candidates, 0.0, probs).sum(-1, keepdim=True)
        mass = torch.where(batch.candidates, candidate_mass, other_mass) + self.num_classes * GUARD
        self.write_rows("weights", batch.index, probs / mass)
