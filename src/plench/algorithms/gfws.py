"""GFWS: a general framework for learning from weak supervision, on partial labels."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import masked_softmax, push_non_candidates, soft_cross_entropy
from plench.algorithms.parts.views import pass_together
from plench.hparams import Choice, Hyperparameter

# What a class's mean probability counts as at least, so that its logarithm is finite.
SMALLEST_MEAN = 1e-6


@register(
    "GFWS",
    stacked=True,
    family="holistic PLL",
    venue="ICML 2024",
    views=("weak", "strong"),
    passes="1 over both views joined",
    aliases=("GLWS",),
    hyperparameters=(
        Hyperparameter(
            "entropy_weight",
            0.1,
            "weight of the term that spreads predictions over the classes",
            Choice(0.0, 0.1, 0.5),
            at_least=0,
        ),
    ),
    logs={
        "loss_sup": "push on non-candidates",
        "loss_em": "cross entropy of all views against the weak view's posterior over the candidates",
        "loss_ent": "spread of the mean prediction over the classes, unweighted",
    },
    cite="chen2024general",
)
class GFWS(LossAlgorithm):
    """Expectation–maximisation: the posterior over the candidates is at once the target of all views.

    The expectation is the weak view's probabilities restricted to the candidates. In addition non-candidates
    are pushed down, and the batch's mean prediction is kept spread over the classes.

    Objective: −(1/b) Σ_i Σ_{k∉S_i} log(1 − p_0ik) − (1/Vb) Σ_v Σ_i Σ_k y_ik log p_vik − w (1/K) Σ_k log p̄_k,
    with y_i the softmax of the weak view's logits over S_i, held constant, and p̄ the batch mean of p_0.
    """

    def passes(self, batch: Batch) -> Tensor:
        """Return the logits (V, B, K) of the views, the weak one first."""
        return pass_together(self.network, batch.weak, batch.strong)

    def losses(self, logits: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Return the push, the cross entropy against the posterior, and the spread."""
        weak = logits[0]
        posterior = masked_softmax(weak.detach(), batch.candidates)
        push = push_non_candidates(weak, batch.candidates)
        fit = soft_cross_entropy(logits, posterior).mean(0)
        means = weak.softmax(-1).mean(-2)
        spread = -means.clamp(SMALLEST_MEAN, 1).log().mean(-1)
        loss = push + fit + self.hparams["entropy_weight"] * spread
        return {"loss": loss, "loss_sup": push, "loss_em": fit, "loss_ent": spread}
