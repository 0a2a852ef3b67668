"""CRDPLL: consistency regularisation, revisited for partial labels."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import (
    agree_on_target,
    divergence_from_target,
    push_non_candidates,
    uniform_over,
)
from plench.algorithms.parts.views import pass_views


def consistency_weight(step: int, max_steps: int) -> float:
    """Return λ: from 0 to 1 in a straight line over the first half of the run, then 1."""
    return min(2 * step / max_steps, 1.0)


@register(
    "CRDPLL",
    stacked=True,
    family="holistic PLL",
    venue="ICML 2022",
    cite="wu2022revisiting",
    views=("weak", "strong"),
    passes="2 (weak, strong)",
    state="confidence N×K",
    logs={
        "loss_cons": "consistency of the views with the confidence, unweighted",
        "loss_sup": "push on non-candidates",
    },
)
class CRDPLL(LossAlgorithm):
    """Push non-candidates down, and pull all views of an example to one common label distribution.

    The common distribution is what the views agree on: the geometric mean of their probabilities, restricted
    to the candidates. Its pull grows from nothing over the first half of the run.

    Objective: λ_t Σ_v (1/b) Σ_i KL(c_i ‖ p_vi) − (1/b) Σ_i Σ_{k∉S_i} log(1 − p_0ik), λ_t = min(2t/T, 1);
    c_i ← softmax over S_i of the views' mean logits, from before the step.
    """

    def setup(self, candidates: Tensor) -> None:
        """Start from equal confidence in each candidate."""
        self.per_example("confidence", uniform_over(candidates))

    def passes(self, batch: Batch) -> Tensor:
        """Return the logits (V, B, K) of the views, the weak one first."""
        return pass_views(self.network, batch.weak, batch.strong)

    def losses(self, logits: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Return the consistency of all views with the confidence, and the weak view's push."""
        confidence = self.rows("confidence", batch.index)
        consistency = divergence_from_target(logits, confidence).sum(0)
        push = push_non_candidates(logits[0], batch.candidates)
        weight = consistency_weight(self.steps_done, self.hparams["max_steps"])
        return {"loss": weight * consistency + push, "loss_cons": consistency, "loss_sup": push}

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Set the confidence to what the views agree on."""
        self.write_rows("confidence", batch.index, agree_on_target(logits, batch.candidates))
