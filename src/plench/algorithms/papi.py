"""PaPi: partial-label learning with a guided prototypical classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from plench.algorithms.base import Batch, register
from plench.algorithms.parts.contrast import (
    ContrastiveAlgorithm,
    confidence_momentum,
    parse_range,
    update_prototypes,
)
from plench.algorithms.parts.targets import (
    best_candidate,
    divergence_from_target,
    masked_softmax,
    soft_cross_entropy,
    uniform_over,
)
from plench.algorithms.parts.views import draw_partners, draw_share, mix, one_pass_serves
from plench.hparams import Choice, Hyperparameter


def similarity_ramp(step: int, max_steps: int) -> float:
    """Return the share of its weight that the similarity loss has: in a straight line to 1 at T/50."""
    return min(50 * step / max_steps, 1.0)


class Outputs(NamedTuple):
    """What the passes give: logits and projections of both views, projections (2, B, D) of the mixed inputs,
    and how these were mixed. Only `logits` and `mixed` carry a gradient.
    """

    logits: Tensor
    queries: Tensor
    strong_logits: Tensor
    strong_queries: Tensor
    mixed: Tensor
    share: Tensor
    partners: Tensor


@register(
    "PaPi",
    not_stackable="each step draws how inputs are mixed, so runs would need each other's random numbers",
    family="holistic PLL",
    venue="CVPR 2023",
    views=("weak", "strong"),
    passes="4 (weak; strong, without gradient; both views mixed)",
    state="confidence N×K, prototypes K×D",
    hyperparameters=(
        Hyperparameter(
            "tau_proto", 0.3, "temperature of the similarities to prototypes", Choice(0.1, 0.3, 1.0), above=0
        ),
        Hyperparameter(
            "alpha_mixup", 8.0, "inputs are mixed by a share of Beta(a, a)", Choice(0.05, 5.0, 8.0), above=0
        ),
        Hyperparameter(
            "alpha_weight", 1.0, "largest weight of the similarity loss", Choice(0.5, 1.0), at_least=0
        ),
        Hyperparameter("feat_dim", 128, "width of the projection", Choice(64, 128, 256), at_least=1),
        Hyperparameter(
            "pseudo_label_weight_range",
            "0.95,0.8",
            "momentum of the confidence at the first and the last step",
        ),
        Hyperparameter(
            "pro_weight_range", "0.9,0.5", "momentum of the prototypes at the first and the last step"
        ),
    ),
    logs={
        "loss_cls": "cross entropy against the confidence",
        "loss_sim": "divergence of the similarities to prototypes from the confidence, unweighted",
    },
    cite="xia2023towards",
)
class PaPi(ContrastiveAlgorithm):
    """Let the classifier guide the representation: similarities to class prototypes follow its beliefs.

    The confidence is a moving average of the classifier's own probabilities over the candidates. The
    similarities of mixed inputs to the prototypes are fitted to it, mixed alike; the prototypes are moving
    averages of both views' projections. There is no queue, no second network and no negative.

    Objective: (1/b) Σ_i −Σ_k c_ik log p_ik + α L_sim, L_sim = (1/b) Σ_i Σ_v [l KL(c_i ‖ s_vi) + (1 − l)
    KL(c_π(i) ‖ s_vi)], s_vi the softmax of q̃_vi·μ_k/τ, q̃ the projections of l x_i + (1 − l) x_π(i); before
    it c_i ← φ c_i + (1 − φ) softmax over S_i of the weak view's logits. α = w min(50 t/T, 1).
    """

    prototypes: Tensor

    def setup(self, candidates: Tensor) -> None:
        """Start from equal confidence in each candidate and prototypes of 0."""
        self.confidence_range, self.prototype_range = (
            parse_range(name, self.hparams[name])
            for name in ("pseudo_label_weight_range", "pro_weight_range")
        )
        self.per_example("confidence", uniform_over(candidates))
        self.register_buffer("prototypes", torch.zeros(self.num_classes, self.hparams["feat_dim"]))

    def passes(self, batch: Batch) -> Outputs:
        """Pass the weak view, the strong view, and both mixed, in this order."""
        weak, strong = batch.weak, batch.strong
        one_serves = one_pass_serves(self.network, weak, strong)
        share, partners = draw_share(self.hparams["alpha_mixup"]), draw_partners(weak)
        logits, queries = self.network(weak)
        if one_serves:
            strong_logits, strong_queries = logits, queries
            mixed = self.network.project(mix(weak, weak[partners], share)).expand(2, *queries.shape)
        else:
            with torch.no_grad():
                strong_logits, strong_queries = self.network(strong)
            views = (mix(view, view[partners], share) for view in (weak, strong))
            mixed = torch.stack([self.network.project(view) for view in views])
        given = (queries.detach(), strong_logits.detach(), strong_queries.detach())
        return Outputs(logits, *given, mixed, share, partners)

    def losses(self, outputs: Outputs, batch: Batch) -> Mapping[str, Tensor]:
        """Return both losses; the confidence moves first, the prototypes are those from before the batch."""
        similarities = outputs.mixed @ self.prototypes.T / self.hparams["tau_proto"]
        confidence = self.move_confidence(batch, outputs.logits.detach())
        classification = soft_cross_entropy(outputs.logits, confidence)
        own = divergence_from_target(similarities, confidence).sum(0)
        of_partner = divergence_from_target(similarities, confidence[outputs.partners]).sum(0)
        similarity = mix(own, of_partner, outputs.share)
        weight = self.hparams["alpha_weight"] * similarity_ramp(self.steps_done, self.hparams["max_steps"])
        loss = classification + weight * similarity
        return {"loss": loss, "loss_cls": classification, "loss_sim": similarity}

    def move_confidence(self, batch: Batch, logits: Tensor) -> Tensor:
        """Move the batch's confidences to φ c + (1 − φ) softmax over the candidates, and return them."""
        momentum = confidence_momentum(self.steps_done, self.hparams["max_steps"], self.confidence_range)
        moved = mix(self.rows("confidence", batch.index), masked_softmax(logits, batch.candidates), momentum)
        self.write_rows("confidence", batch.index, moved)
        return moved

    def revise(self, outputs: tuple[Tensor, ...], batch: Batch) -> None:
        """Move the prototypes towards the projections of the weak, then of the strong view."""
        given = Outputs(*outputs)
        scores = (given.logits, given.strong_logits)
        labels = torch.cat([best_candidate(logits, batch.candidates) for logits in scores])
        queries = torch.cat([given.queries, given.strong_queries])
        momentum = confidence_momentum(self.steps_done, self.hparams["max_steps"], self.prototype_range)
        self.prototypes.copy_(update_prototypes(self.prototypes, queries, labels, momentum))
