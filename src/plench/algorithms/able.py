"""ABLE: ambiguity-induced contrastive learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms.base import Algorithm, build_adam, descend, register
from plench.algorithms.parts.contrast import BASE_TEMPERATURE, own_entries
from plench.algorithms.parts.passes import one_pass_serves
from plench.algorithms.parts.pseudo_labels import best_candidate
from plench.algorithms.parts.targets import NEG_INF, masked_softmax, soft_cross_entropy, uniform_over
from plench.algorithms.parts.two_headed import TwoHeadedNetwork
from plench.batch import Batch
from plench.hparams import Choice, Hyperparameter


def weigh_positives(confidence: Tensor, candidates: Tensor, labels: Tensor) -> Tensor:
    """Return W_ij = S_i,ŷj c_i,ŷj / n_ŷj (B, B): what example j, predicted ŷ_j, weighs for the anchor i.

    `confidence` (B, K) is the anchors' own, `labels` (B,) are the predictions ŷ, n_k is how many examples of
    the batch are predicted k. Each j is predicted one label, so one candidate of i at most brings it in.
    """
    counts = torch.zeros_like(confidence[0]).index_add_(0, labels, torch.ones_like(confidence[:, 0]))
    return (confidence * candidates)[:, labels] / counts[labels]


def ambiguous_contrast(features: Tensor, positives: Tensor, temperature: float) -> Tensor:
    """Return the contrastive loss of the rows [weak; strong] (2B, D) under positive weights (B, B)."""
    similarities = features @ features.T / temperature
    own = own_entries(similarities)
    weights = positives.repeat(2, 2).masked_fill(own, 0)
    log_denominator = similarities.masked_fill(own, NEG_INF).logsumexp(-1)
    losses = weights.sum(-1) * log_denominator - (weights * similarities).sum(-1)
    return temperature / BASE_TEMPERATURE * losses.mean()


@register(
    "ABLE",
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
    bibtex="""
@inproceedings{xia2022ambiguity,
  title     = {Ambiguity-Induced Contrastive Learning for Instance-Dependent Partial Label Learning},
  author    = {Xia, Shiyu and Lv, Jiaqi and Xu, Ning and Geng, Xin},
  booktitle = {International Joint Conference on Artificial Intelligence},
  pages     = {3615--3621},
  year      = {2022}
}""",
)
class ABLE(Algorithm):
    """Contrast with one group of positives for each candidate label, weighted by the label's confidence.

    An example that could be a cat or a dog is drawn to the batch's cats and to its dogs, each as strongly as
    it is believed to be one. A classifier learns from the same confidences, which follow its predictions.

    Objective: (1/b) Σ_i −Σ_k c_ik log p_ik + w L_con, with L_con = (τ/0.07) (1/2b) Σ_a Σ_b −W_ab log-softmax
    of the similarities of the 2b projections of both views; c_i ← softmax of the logits over S_i after it.

    Departure: the weights use the anchor's own confidences, as the paper says. The authors' code and the
    public benchmark look them up by position in the batch, in the rows of the first b training examples.
    """

    confidence: Tensor

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        self.network = TwoHeadedNetwork(input_shape, self.num_classes, self.hparams)
        self.per_example("confidence", uniform_over(torch.from_numpy(np.asarray(train_givenY) != 0)))
        self.optimizer = build_adam(self.network.parameters(), self.hparams)

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch."""
        index, candidates = minibatches.index, minibatches.candidates
        logits, features = self.pass_views(minibatches.weak, minibatches.strong)
        before_step = logits.detach()
        confidence = self.confidence.index_select(0, index)
        positives = weigh_positives(confidence, candidates, best_candidate(before_step, candidates))
        contrastive = ambiguous_contrast(features, positives, self.hparams["temperature"])
        classification = soft_cross_entropy(logits, confidence)
        loss = classification + self.hparams["loss_weight"] * contrastive
        descend(self.optimizer, loss)
        self.confidence.index_copy_(0, index, masked_softmax(before_step, candidates))
        return {
            "loss": loss.detach(),
            "loss_cls": classification.detach(),
            "loss_cont": contrastive.detach(),
        }

    def pass_views(self, weak: Tensor, strong: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weak view's logits (B, K) and the projections of both views (2B, D)."""
        if one_pass_serves(self.network, weak, strong):
            logits, features = self.network(weak)
            return logits, torch.cat([features, features])
        logits, features = self.network(torch.cat([weak, strong]))
        return logits[: len(weak)], features

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K) for network inputs x."""
        return self.network.classify(x)
