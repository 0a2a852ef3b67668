"""LWS: the leveraged weighted loss, in its sigmoid form."""

import torch
from torch import Tensor

from plench.algorithms.base import LossAlgorithm, register
from plench.algorithms.parts.targets import over_rows
from plench.batch import Batch
from plench.hparams import Choice, Hyperparameter

# Added to each of the K entries before a group is summed; part of the authors' definition.
GUARD = 1e-8


def leveraged_loss(logits: Tensor, candidates: Tensor, weights: Tensor, leverage: Tensor | float) -> Tensor:
    """Return the mean over rows of Σ_j w_j (σ(−z_j) on candidates, leverage · σ(z_j) on the others)."""
    sigmoid_losses = torch.where(candidates, (-logits).sigmoid(), over_rows(leverage) * logits.sigmoid())
    return (weights * sigmoid_losses).sum((-2, -1)) / logits.shape[-2]


def group_weights(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the probabilities, normalised separately over candidates and over non-candidates."""
    probs = logits.softmax(-1)
    candidate_mass = torch.where(candidates, probs, 0.0).sum(-1, keepdim=True)
    other_mass = torch.where(candidates, 0.0, probs).sum(-1, keepdim=True)
    return probs / (torch.where(candidates, candidate_mass, other_mass) + logits.shape[-1] * GUARD)


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
        weights = self.rows("weights", batch.index)
        return leveraged_loss(logits, batch.candidates, weights, self.hparams["lw_weight"])

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Renew the weights from a second pass, with the new parameters."""
        with torch.no_grad():
            weights = group_weights(self.network(batch.weak), batch.candidates)
        self.write_rows("weights", batch.index, weights)
