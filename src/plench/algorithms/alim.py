"""ALIM: adjusting label importance for noisy candidate sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms.base import descend, register
from plench.algorithms.parts.contrast import BASE_TEMPERATURE, supervised_contrast
from plench.algorithms.parts.mixup import draw_mixing, mix
from plench.algorithms.parts.momentum_contrast import SHARED_HPARAMS, MomentumContrast
from plench.algorithms.parts.pseudo_labels import onehot_like
from plench.algorithms.parts.queue import draw_empty_features
from plench.algorithms.parts.schedule import epoch_of, first_step_of, starts_epoch
from plench.algorithms.parts.targets import soft_cross_entropy
from plench.batch import Batch
from plench.hparams import Choice, Constant, DataTraits, Distribution, Hyperparameter, Value

# Keeps the margin finite where no label is outside the candidates; the authors' constant.
GUARD = 1e-9


def weigh_labels(scores: Tensor, candidates: Tensor, importance: float) -> Tensor:
    """Add log W to scores (…, B, K), W = 1 on candidates and λ elsewhere (−∞ for λ = 0)."""
    log_importance = math.log(importance) if importance > 0 else -math.inf
    return torch.where(candidates, scores, scores + log_importance)


def find_margins(scores: Tensor, candidates: Tensor) -> Tensor:
    """Return how far the best candidate is above the best other label, as a ratio of scores (…, B)."""
    inside = scores.masked_fill(~candidates, 0).amax(-1)
    outside = scores.masked_fill(candidates, 0).amax(-1)
    return inside / (GUARD + outside)


def choose_importance(margins: Tensor, noise_rate: float) -> float:
    """Return λ in [0, 1] such that a share `noise_rate` of the examples would choose a non-candidate."""
    if noise_rate == 0:
        return 0.0
    rank = min(int(len(margins) * noise_rate), len(margins) - 1)
    return min(1.0, float(margins.sort().values[rank]))  # not kthvalue, which MPS lacks


def renews_importance(step: int, num_data: int, batch_size: int, start_epoch: int) -> bool:
    """Say whether λ is chosen anew at the start of a step."""
    in_time = epoch_of(step, num_data, batch_size) >= start_epoch
    return in_time and starts_epoch(step, num_data, batch_size)


def default_noise_rate(traits: DataTraits) -> Value:
    """Return the protocol's noise rate of the data, else 0.2."""
    return 0.2 if traits.protocol_noise_rate is None else traits.protocol_noise_rate


def search_noise_rate(traits: DataTraits) -> Distribution:
    """Return the protocol's noise rate of the data, else a choice."""
    if traits.protocol_noise_rate is None:
        return Choice(0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
    return Constant(traits.protocol_noise_rate)


@register(
    "ALIM",
    family="noisy PLL",
    venue="NeurIPS 2023",
    views=("weak", "strong"),
    second_batch=True,
    passes="3 (query on weak and on the mixed input; key on strong, without gradient)",
    state="confidence N×K, queue Q×D, prototypes K×D, second network, margins N",
    hyperparameters=(
        Hyperparameter("prot_start", 178, "first step that moves the confidence", at_least=0),
        Hyperparameter(
            "loss_weight", 0.5, "weight of the contrastive loss", Choice(0.5, 1.0), type=float, at_least=0
        ),
        Hyperparameter(
            "start_epoch",
            40,
            "epochs before labels outside the candidates count",
            Choice(20, 40, 80, 100, 140),
            at_least=0,
        ),
        Hyperparameter("loss_weight_mixup", 1.0, "weight of the mixup loss", at_least=0),
        Hyperparameter("mixup_alpha", 4, "parameter of mixup's Beta distribution", type=float, above=0),
        Hyperparameter(
            "noise_rate",
            default_noise_rate,
            "assumed share of candidate sets without the true label",
            search_noise_rate,
            at_least=0,
        ),
        Hyperparameter(
            "normalisation",
            "onehot",
            "target of the confidence: the best label, or all in proportion",
            one_of=("onehot", "scale"),
        ),
        *SHARED_HPARAMS,
    ),
    logs={
        "loss_cls": "cross entropy against the confidence",
        "loss_cont": "contrastive loss, unweighted",
        "loss_mixup": "cross entropy on mixed inputs, unweighted (0 when switched off)",
        "importance": "λ, the weight of labels outside the candidates",
    },
    bibtex="""
@inproceedings{xu2023alim,
  title     = {{ALIM}: Adjusting Label Importance Mechanism for Noisy Partial Label Learning},
  author    = {Xu, Mingyu and Lian, Zheng and Feng, Lei and Liu, Bin and Tao, Jianhua},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {36},
  year      = {2023}
}""",
)
class ALIM(MomentumContrast):
    """Let labels outside the candidate set count, with a weight λ that follows from the noise rate.

    Everything PiCO restricts to the candidates is weighted instead, by 1 inside and λ outside. Once an epoch
    λ is set such that as many examples prefer an outside label as there are expected to be wrong sets.
    Mixup between two independent batches steadies the classifier.

    Objective: CE(c, p) + w L_cont + v CE(mixed c, mixed p), with L_cont the supervised contrastive loss and
    c_i ← φ c_i + (1 − φ) onehot(argmax_k r_ik W_ik), W = S + λ (1 − S), r the softmax of q_i·μ_k/0.07.

    Departures, all following the authors: in the public benchmark the step counter never moves, so that c, λ
    and φ stay at their first values; there λ has no cap, pseudo-labels ignore it, scores have no temperature,
    the contrast starts as instance contrast, and the second batch is the next one of the same stream.
    """

    margins: Tensor

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        self.importance = 0.0
        self.margin_count = 0
        batch_size = self.hparams["batch_size"]
        self.register_buffer("margins", torch.zeros(first_step_of(1, self.num_data, batch_size) * batch_size))

    def empty_queue(self) -> dict[str, Tensor]:
        """Return PiCO's empty queue with unit rows instead of unit columns, as ALIM's authors have it."""
        length, width = self.hparams["moco_queue"], self.hparams["feat_dim"]
        return {**super().empty_queue(), "features": draw_empty_features(length, width, axis=1)}

    def phases(self) -> Mapping[str, int]:
        """Return when the confidence starts to move, and when λ is first chosen."""
        epoch = max(1, self.hparams["start_epoch"])
        return {
            "confidence by prototypes (prot_start)": self.hparams["prot_start"],
            "label importance (start_epoch)": first_step_of(epoch, self.num_data, self.hparams["batch_size"]),
        }

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch."""
        self.renew_importance()
        index, candidates = minibatches.index, minibatches.candidates
        logits, queries = self.network(minibatches.weak)
        labels = weigh_labels(logits.detach(), candidates, self.importance).argmax(-1)
        cosines = queries.detach() @ self.prototypes.T / BASE_TEMPERATURE
        self.move_prototypes(queries, labels)
        keys = self.encode_keys(minibatches.strong)
        contrastive = supervised_contrast(
            queries, keys, labels, self.queue["features"], self.queue["labels"], self.num_classes
        )
        self.queue.push(features=keys, labels=labels)
        if self.steps_done >= self.hparams["prot_start"]:
            confidence = self.move_confidence(index, self.aim(cosines, candidates))
        else:
            confidence = self.confidence.index_select(0, index)
        classification = soft_cross_entropy(logits, confidence)
        mixed = self.mixup_loss(minibatches, confidence)
        weights = self.hparams["loss_weight"], self.hparams["loss_weight_mixup"]
        loss = classification + weights[0] * contrastive + weights[1] * mixed
        descend(self.optimizer, loss)
        self.remember_margins(find_margins(cosines.softmax(-1), candidates))
        self.steps_done += 1
        return {
            "loss": loss.detach(),
            "loss_cls": classification.detach(),
            "loss_cont": contrastive.detach(),
            "loss_mixup": mixed.detach(),
            "importance": self.importance,
        }

    def aim(self, cosines: Tensor, candidates: Tensor) -> Tensor:
        """Return the target (B, K) of the confidence, from the weighted prototype scores."""
        weighted = weigh_labels(cosines, candidates, self.importance)
        if self.hparams["normalisation"] == "scale":
            return weighted.softmax(-1)
        return onehot_like(weighted.argmax(-1), weighted)

    def mixup_loss(self, batch: Batch, confidence: Tensor) -> Tensor:
        """Return the cross entropy on inputs mixed with those of the second batch."""
        second = batch.second
        if second is None:
            raise ValueError("ALIM needs a second batch in every step")
        if self.hparams["loss_weight_mixup"] == 0:
            return torch.zeros_like(confidence[0, 0])
        share = draw_mixing(self.hparams["mixup_alpha"])
        logits = self.network.classify(mix(batch.weak, second.weak, share))
        targets = mix(confidence, self.confidence.index_select(0, second.index), share)
        return soft_cross_entropy(logits, targets)

    def renew_importance(self) -> None:
        """At the start of an epoch choose λ from the last epoch's margins, if it is time, and forget them."""
        batch_size = self.hparams["batch_size"]
        if not starts_epoch(self.steps_done, self.num_data, batch_size):
            return
        start_epoch = self.hparams["start_epoch"]
        due = renews_importance(self.steps_done, self.num_data, batch_size, start_epoch)
        if due and self.margin_count:
            margins = self.margins[: self.margin_count]
            self.importance = choose_importance(margins, self.hparams["noise_rate"])
        self.margin_count = 0

    def remember_margins(self, margins: Tensor) -> None:
        """Append the batch's margins to those of the running epoch."""
        end = self.margin_count + len(margins)
        self.margins[self.margin_count : end] = margins
        self.margin_count = end
