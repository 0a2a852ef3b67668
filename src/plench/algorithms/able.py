"""ABLE: ambiguity-induced contrastive learning."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from plench.algorithms.base import Batch, register
from plench.algorithms.parts.contrast import BASE_TEMPERATURE, ContrastiveAlgorithm, own_entries
from plench.algorithms.parts.targets import (
    NEG_INF,
    best_candidate,
    masked_softmax,
    soft_cross_entropy,
    uniform_over,
)
from plench.algorithms.parts.views import one_pass_serves
from plench.hparams import Choice, Hyperparameter


def weigh_positives(confidence: Tensor, candidates: Tensor, labels: Tensor) -> Tensor:
    """Return W_ij = S_i,ŷj c_i,ŷj / n_ŷj (B, B): what example j, predicted ŷ_j, weighs for the anchor i.

    `confidence` (B, K) is the anchors' own, `labels` (B,) are the predictions ŷ, n_k is how many examples of
    the batch are predicted k. Each j is predicted one label, so one candidate of i at most brings it in.
    """
    counts = torch.zeros_like(confidence[0]).index_add_(0, labels, torch.ones_like(confidence[:, 0]))
    return (confidence * candidates)[:, labels] / counts[labels]


@register(
    "ABLE",
    not_stackable="most of a step are products of all pairs in a batch, of which a stack saves none",
    family="holistic PLL",
    venue="IJCAI 2022",
    views=("weak", "strong"),
    passes="1 over both views joined",
    state="confidence N×K",
    hyperparameters=(
        Hyperparameter("feat_dim", 128, "width of the projection", Choice(64, 128, 256), at_least=1),
        Hyperparameter(
            "loss_weight", 1.0, "weight of the contrastive loss", Choice(0.5, 1.0, 2.0), at_least=0
        ),
        Hyperparameter(
            "temperature", 0.07, "temperature of the contrast", Choice(0.03, 0.05, 0.07, 0.09), above=0
        ),
    ),
    logs={"loss_cls": "cross entropy against the confidence", "loss_cont": "contrastive loss, unweighted"},
    public_fault="the public code weights each batch by the confidences of the first training examples",
    cite="xia2022ambiguity",
)
class ABLE(ContrastiveAlgorithm):
    """Contrast with one group of positives for each candidate label, weighted by the label's confidence.

    An example that could be a cat or a dog is drawn to the batch's cats and to its dogs, each as strongly as
    it is believed to be one. A classifier learns from the same confidences, which follow its predictions.

    Objective: (1/b) Σ_i −Σ_k c_ik log p_ik + w L_con, with L_con = (τ/0.07) (1/2b) Σ_a Σ_b −W_ab log-softmax
    of the similarities of the 2b projections of both views; c_i ← softmax of the logits over S_i after it.
    """

    def setup(self, candidates: Tensor) -> None:
        """Start from equal confidence in each candidate."""
        self.per_example("confidence", uniform_over(candidates))

    def passes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the weak view's logits (B, K) and the projections of both views (2B, D)."""
        weak, strong = batch.weak, batch.strong
        if one_pass_serves(self.network, weak, strong):
            logits, features = self.network(weak)
            return logits, torch.cat([features, features])
        logits, features = self.network(torch.cat([weak, strong]))
        return logits[: len(weak)], features

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Return the cross entropy against the confidence, and the contrast weighted by it."""
        logits, features = outputs
        confidence = self.rows("confidence", batch.index)
        labels = best_candidate(logits.detach(), batch.candidates)
        positives = weigh_positives(confidence, batch.candidates, labels)
        temperature = self.hparams["temperature"]
        similarities = features @ features.T / temperature
        own = own_entries(similarities)
        weights = positives.repeat(2, 2).masked_fill(own, 0)
        log_denominator = similarities.masked_fill(own, NEG_INF).logsumexp(-1)
        contrasts = weights.sum(-1) * log_denominator - (weights * similarities).sum(-1)
        contrast = temperature / BASE_TEMPERATURE * contrasts.mean()
        classification = soft_cross_entropy(logits, confidence)
        loss = classification + self.hparams["loss_weight"] * contrast
        return {"loss": loss, "loss_cls": classification, "loss_cont": contrast}

    def revise(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> None:
        """Renormalise the weak view's probabilities over the candidates."""
        logits, _ = outputs
        self.write_rows("confidence", batch.index, masked_softmax(logits, batch.candidates))
