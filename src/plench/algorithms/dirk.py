"""DIRK: distilling reliable knowledge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from plench.algorithms.base import Batch, register
from plench.algorithms.parts.contrast import (
    BASE_TEMPERATURE,
    ContrastiveAlgorithm,
    RingQueue,
    TwoHeadedNetwork,
    compare,
    draw_empty_features,
    follow,
    instance_contrast,
    own_entries,
    to_unit_rows,
)
from plench.algorithms.parts.targets import mask_out, masked_softmax, onehot_like, soft_cross_entropy
from plench.algorithms.parts.views import one_pass_serves
from plench.hparams import Choice, Hyperparameter


def rectify(logits: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rectified distribution r (…, B, K) and the share a (…, B) that the candidates get.

    r = a c⁺ + (1 − a) c⁻, with c⁺ and c⁻ the softmax over candidates and over the others, and a such that no
    non-candidate stands above a candidate. Where every label is a candidate, a = 1.
    """
    inside = masked_softmax(logits, candidates)
    # Over an empty set the softmax is not a number; there every label is a candidate and is filled with 0.
    outside = masked_softmax(logits, ~candidates).masked_fill(candidates, 0)
    mass = (mask_out(logits, candidates).logsumexp(-1) - logits.logsumexp(-1)).exp()
    upper = outside.amax(-1)
    lower = inside.masked_fill(~candidates, 1).amin(-1)
    product = mass * lower
    share = (upper / (upper + product)).masked_fill(candidates.all(-1), 1)
    # The rest is not 1 − share, which next to 1 has lost the digits that keep non-candidates below.
    rest = (product / (upper + product)).masked_fill(candidates.all(-1), 0)
    return share[..., None] * inside + rest[..., None] * outside, share


@register(
    "DIRK",
    not_stackable="most of a step are products with its queue, of which a stack saves none",
    family="holistic PLL",
    venue="AAAI 2024",
    views=("weak", "strong", "distill"),
    passes="4 (student on strong and distill; teacher on weak and distill, without gradient)",
    state="queues Q×(D+2K), second network",
    hyperparameters=(
        Hyperparameter(
            "momentum", 0.99, "momentum of the teacher", Choice(0.5, 0.9, 0.99), at_least=0, at_most=1
        ),
        Hyperparameter("moco_queue", 8192, "length of the queue", Choice(4096, 8192), at_least=1),
        Hyperparameter("feat_dim", 128, "width of the projection", Choice(64, 128, 256), at_least=1),
        Hyperparameter("prot_start", 178, "steps of instance contrast", at_least=0),
        Hyperparameter(
            "weight",
            1.0,
            "weight of the contrastive loss (0: plain DIRK)",
            Choice(0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
            at_least=0,
        ),
        Hyperparameter(
            "dist_temperature", 0.4, "temperature of the positives' weights", Choice(0.2, 0.4, 0.6), above=0
        ),
        Hyperparameter(
            "feat_temperature", 0.07, "temperature of the contrast", Choice(0.03, 0.05, 0.07, 0.09), above=0
        ),
    ),
    logs={"loss_teach": "cross entropy against the teacher", "loss_cont": "contrastive loss, unweighted"},
    cite="wu2024distilling",
)
class DIRK(ContrastiveAlgorithm):
    """A slowly moving teacher, whose distribution is rectified, teaches the student.

    Rectified means that no non-candidate is above a candidate, while the teacher's own order is kept within
    both groups. A contrastive loss refines the representation: its positives are weighted by how alike the
    rectified distributions are (the paper's DIRK-REF).

    Objective: (1/b) Σ_i −Σ_k r_ik log p_ik + w L_cont, with r the teacher's rectified distribution; the
    teacher follows the student as a moving average after each step.
    """

    def build_networks(self, input_shape: Sequence[int]) -> None:
        """Build student and teacher, each with its own first weights."""
        super().build_networks(input_shape)
        self.teacher = TwoHeadedNetwork(input_shape, self.num_classes, self.hparams).requires_grad_(False)

    def setup(self, candidates: Tensor) -> None:
        """Draw an empty queue."""
        length = self.hparams["moco_queue"]
        self.queue = RingQueue(
            features=draw_empty_features(length, self.hparams["feat_dim"], axis=0),
            distributions=torch.full((length, self.num_classes), 1 / self.num_classes),
            candidates=torch.zeros(length, self.num_classes),
        )

    def passes(self, batch: Batch) -> tuple[Tensor | None, ...]:
        """Return keys and logits of the teacher, queries and logits of the student."""
        with torch.no_grad():
            keys, teacher_logits = self.project_and_classify(self.teacher, batch, "weak")
        queries, logits = self.project_and_classify(self.network, batch, "strong")
        return keys, teacher_logits, queries, logits

    def project_and_classify(
        self, network: TwoHeadedNetwork, batch: Batch, view: str
    ) -> tuple[Tensor | None, Tensor]:
        """Return the projections of one view (none without a contrastive loss) and the logits of distill."""
        if self.hparams["weight"] == 0:
            return None, network.classify(batch.distill)
        projected = batch.view(view)
        if one_pass_serves(network, projected, batch.distill):
            logits, features = network(batch.distill)
            return features, logits
        return network.project(projected), network.classify(batch.distill)

    def losses(self, outputs: tuple[Tensor, Tensor, Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Return the cross entropy against the rectified teacher, and the contrast if there is one."""
        keys, teacher_logits, queries, logits = outputs
        rectified, _ = rectify(teacher_logits, batch.candidates)
        teaching = soft_cross_entropy(logits, rectified)
        if self.hparams["weight"] == 0:
            return {"loss": teaching, "loss_teach": teaching}
        candidates = batch.candidates.to(rectified.dtype)
        contrast = self.contrast(queries, keys, rectified, candidates)
        self.queue.push(features=keys, distributions=rectified, candidates=candidates)
        loss = teaching + self.hparams["weight"] * contrast
        return {"loss": loss, "loss_teach": teaching, "loss_cont": contrast}

    def contrast(self, queries: Tensor, keys: Tensor, rectified: Tensor, candidates: Tensor) -> Tensor:
        """Return the contrastive loss of the phase; later −(τ/0.07) (1/B) Σ_ij ω_ij log-softmax."""
        features, temperature = self.queue["features"], self.hparams["feat_temperature"]
        if self.steps_done < self.hparams["prot_start"]:
            return instance_contrast(queries, keys, features, temperature)
        closeness = self.hparams["dist_temperature"]
        within = find_affinities(rectified, candidates, rectified, candidates, closeness)
        beyond = find_affinities(
            rectified, candidates, self.queue["distributions"], self.queue["candidates"], closeness
        )
        # ω, the affinities over their sum: for queries (the own one aside) and keys of the batch, and for the
        # queue. The own key has affinity 1, so the sum is not 0.
        similarities = compare(queries, keys, features, temperature)
        others = within.masked_fill(own_entries(within), 0)
        total = others.sum(-1) + within.sum(-1) + beyond.sum(-1)
        positive = (others * similarities.queries + within * similarities.keys).sum(-1)
        positive = positive + (queries * (beyond @ features)).sum(-1) / temperature
        losses = similarities.log_denominator - positive / total
        contrast: Tensor = temperature / BASE_TEMPERATURE * losses.mean()
        return contrast

    def revise(self, outputs: tuple[Tensor, ...], batch: Batch) -> None:
        """Let the teacher follow the student."""
        follow(self.teacher, self.network, self.hparams["momentum"])

    @classmethod
    def choose_views(cls, declared: tuple[str, ...], hparams: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the distill view alone where there is no contrastive loss."""
        return ("distill",) if hparams["weight"] == 0 else declared

    def phases(self) -> Mapping[str, int]:
        """Return when the contrast, if there is one, starts to use the rectified distributions."""
        if self.hparams["weight"] == 0:
            return {}
        return {"refined contrast (prot_start)": self.hparams["prot_start"]}


@torch.no_grad()
def find_affinities(
    rectified: Tensor, candidates: Tensor, distributions: Tensor, rows: Tensor, temperature: float
) -> Tensor:
    """Return exp((cos(r_i, R_j) − 1)/temperature) (B, M) where i and j are positives of each other, else 0.

    Positives share a candidate and the most probable label. `candidates` (B, K) and `rows` (M, K) hold 0 and
    1 as floats, so that both conditions are products, which are faster than comparisons.
    """
    closeness = to_unit_rows(rectified) @ to_unit_rows(distributions).T
    closeness.sub_(1).div_(temperature).exp_()
    same_label = mark_highest(rectified) @ mark_highest(distributions).T
    shared = (candidates @ rows.T).clamp_(max=1)
    return closeness.mul_(same_label).mul_(shared)


def mark_highest(distributions: Tensor) -> Tensor:
    """Return one-hot rows of the most probable labels."""
    return onehot_like(distributions.argmax(-1), distributions)
