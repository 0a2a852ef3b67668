"""CEL: class-wise embeddings for instance-dependent partial labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, build_network, register
from plench.algorithms.parts.contrast import to_unit_rows
from plench.algorithms.parts.targets import (
    best_candidate,
    masked_softmax,
    onehot_like,
    soft_cross_entropy,
    uniform_over,
)
from plench.algorithms.parts.views import one_pass_serves
from plench.hparams import Choice, Hyperparameter

# Added to numbers of pairs, so that a row without any gives 0.
GUARD = 1e-6


def compare_classes(embeddings: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Return, of embeddings (…, B, K, E), mean cosines of candidates and of candidates with other labels.

    The first is the mean of e_j·e_k over pairs of two candidates, the second that of |e_j·e_k| over pairs of
    a candidate and another label, both averaged over rows.
    """
    inside = candidates.to(embeddings.dtype)
    size, others = inside.sum(-1), (1 - inside).sum(-1)
    cosines = embeddings @ embeddings.mT
    own = (inside * cosines.diagonal(dim1=-2, dim2=-1)).sum(-1)
    together = torch.einsum("...j,...jk,...k->...", inside, cosines, inside) - own
    apart = 2 * torch.einsum("...j,...jk,...k->...", inside, cosines.abs(), 1 - inside)
    positive = together / (size * (size - 1) + GUARD)
    negative = apart / (2 * size * others + GUARD)
    return positive.mean(-1), negative.mean(-1)


def compare_with_prototypes(embeddings: Tensor, labels: Tensor, prototypes: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean cosines of the labels' embeddings with their own prototype and, absolute, with others.

    Embeddings are (…, B, K, E), labels (…, B), prototypes (…, K, E).
    """
    chosen = onehot_like(labels, embeddings[..., 0])
    own = torch.einsum("...bk,...bke->...be", chosen, embeddings)
    cosines = own @ prototypes.mT
    positive = (chosen * cosines).sum(-1) / (1 + GUARD)
    negative = ((1 - chosen) * cosines.abs()).sum(-1) / (chosen.shape[-1] - 1 + GUARD)
    return positive.mean(-1), negative.mean(-1)


@register(
    "CEL",
    stacked=True,
    family="holistic PLL",
    venue="KDD 2025",
    views=("weak", "strong"),
    passes="2 (weak, strong)",
    state="confidence N×K, prototypes K×E",
    hyperparameters=(
        Hyperparameter(
            "alpha", 0.5, "weight of the loss between a row's embeddings", Choice(0.1, 0.5), at_least=0
        ),
        Hyperparameter(
            "gamma1", 1.0, "weight of candidates against other labels in it", Choice(1.0, 2.0), at_least=0
        ),
        Hyperparameter("beta", 1.0, "weight of the loss to the prototypes", Choice(0.5, 1.0), at_least=0),
        Hyperparameter(
            "gamma2", 1.0, "weight of the other prototypes in it", Choice(0.5, 1.0, 2.0, 5.0), at_least=0
        ),
        Hyperparameter("embed_dim", 32, "width of each class's embedding", at_least=1),
    ),
    logs={
        "loss_cls": "cross entropy of both views against the confidence",
        "loss_cal": "loss between the class-wise embeddings of a row, unweighted",
        "loss_pdl": "loss to the class prototypes, unweighted (second half)",
    },
    cite="yang2025mixed",
)
class CEL(LossAlgorithm):
    """Give every example one embedding per class; its candidates' embeddings attract each other.

    Instance-dependent candidates look alike, so their embeddings are drawn together and kept orthogonal to
    those of the other labels. In the second half of the run the embedding of the predicted candidate is also
    drawn to the prototype of its class and kept orthogonal to the other prototypes. The classifier learns
    from its own probabilities over the candidates, as in PRODEN.

    Objective: Σ_v (1/b) Σ_i [−Σ_k c_ik log p_vik + α (1 − pos_vi + γ₁ neg_vi)], from step T/2 on also
    β (1 − e_viŷ·μ_ŷ + γ₂ mean_{j≠ŷ} |e_viŷ·μ_j|), with pos and neg the mean cosine of two candidates and the
    mean absolute cosine of a candidate and another label, ŷ the weak view's best candidate. First μ_k moves
    by the weak embeddings e_ik with ŷ_i = k and is made unit; last c_i ← softmax over S_i of the weak logits.
    """

    must_match = ("embed_dim",)

    prototypes: Tensor

    def build_networks(self, input_shape: Sequence[int]) -> None:
        """Build one linear layer for both heads: the first K outputs are logits, the rest embeddings."""
        outputs = self.num_classes * (1 + self.hparams["embed_dim"])
        self.network = build_network(input_shape, outputs, self.hparams)

    def setup(self, candidates: Tensor) -> None:
        """Start from equal confidence in each candidate and prototypes of 0."""
        self.per_example("confidence", uniform_over(candidates))
        self.register_buffer("prototypes", torch.zeros(self.num_classes, self.hparams["embed_dim"]))

    def passes(self, batch: Batch) -> Tensor:
        """Return logits and embeddings (V, B, K + K·E) of the views; one pass stands for both on tables."""
        one_serves = one_pass_serves(self.network, batch.weak, batch.strong)
        views = (batch.weak,) if one_serves else (batch.weak, batch.strong)
        return torch.stack([self.network(view) for view in views])

    def losses(self, outputs: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Return cross entropy and both losses of embeddings; the prototypes move first."""
        logits, raw = outputs[..., : self.num_classes], outputs[..., self.num_classes :]
        embeddings = to_unit_rows(raw.unflatten(-1, (self.num_classes, -1)))
        labels = best_candidate(logits[0].detach(), batch.candidates)
        self.move_prototypes(embeddings[0].detach(), labels)

        def sum_views(losses: Tensor) -> Tensor:  # where one pass stands for both, it counts twice
            return 2 * losses.mean(0)

        classification = sum_views(soft_cross_entropy(logits, self.rows("confidence", batch.index)))
        alike, mixed = compare_classes(embeddings, batch.candidates)
        calibration = sum_views(1 - alike + self.hparams["gamma1"] * mixed)
        loss = classification + self.hparams["alpha"] * calibration
        logged = {"loss_cls": classification, "loss_cal": calibration}
        if self.steps_done >= self.hparams["max_steps"] // 2:
            near, far = compare_with_prototypes(embeddings, labels, self.prototypes)
            distance = sum_views(1 - near + self.hparams["gamma2"] * far)
            loss = loss + self.hparams["beta"] * distance
            logged["loss_pdl"] = distance
        return {"loss": loss, **logged}

    def move_prototypes(self, embeddings: Tensor, labels: Tensor) -> None:
        """Add to each class's prototype its embeddings of the rows labelled so, and make it unit."""
        chosen = onehot_like(labels, embeddings[..., 0])
        sums = torch.einsum("...bk,...bke->...ke", chosen, embeddings)
        self.prototypes.copy_(to_unit_rows(self.prototypes + sums))

    def revise(self, outputs: Tensor, batch: Batch) -> None:
        """Set the confidence to the weak view's probabilities over the candidates."""
        logits = outputs[0, ..., : self.num_classes]
        self.write_rows("confidence", batch.index, masked_softmax(logits, batch.candidates))

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K) for network inputs x."""
        logits: Tensor = self.network(x)[..., : self.num_classes]
        return logits

    def phases(self) -> Mapping[str, int]:
        """Return when the prototypes start to enter the loss."""
        return {"loss to the prototypes (max_steps)": self.hparams["max_steps"] // 2}
