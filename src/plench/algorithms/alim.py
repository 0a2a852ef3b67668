"""ALIM: adjusting label importance for noisy candidate sets."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from plench.algorithms.base import Batch, epoch_of, first_step_of, register, starts_epoch
from plench.algorithms.parts.contrast import (
    BASE_TEMPERATURE,
    MOMENTUM_HPARAMS,
    MomentumContrast,
    draw_empty_features,
    supervised_contrast,
)
from plench.algorithms.parts.targets import onehot_like, soft_cross_entropy
from plench.algorithms.parts.views import draw_mixing, mix
from plench.hparams import Choice, Constant, Hyperparameter, by_noise_rate

# Keeps the margin finite where no label is outside the candidates; the authors' constant.
GUARD = 1e-9


def weigh_labels(scores: Tensor, candidates: Tensor, importance: float) -> Tensor:
    """Add log W to scores (…, B, K), W = 1 on candidates and λ elsewhere (−∞ for λ = 0)."""
    log_importance = math.log(importance) if importance > 0 else -math.inf
    return torch.where(candidates, scores, scores + log_importance)


def choose_importance(margins: Tensor, noise_rate: float) -> float:
    """Return λ in [0, 1] such that a share `noise_rate` of the examples would choose a non-candidate."""
    if noise_rate == 0:
        return 0.0
    rank = min(int(len(margins) * noise_rate), len(margins) - 1)
    return min(1.0, float(margins.sort().values[rank]))  # not kthvalue, which MPS lacks


@register(
    "ALIM",
    not_stackable="most of a step are products with its queue, of which a stack saves none",
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
            by_noise_rate(0.2, lambda rate: rate),
            "assumed share of candidate sets without the true label",
            by_noise_rate(Choice(0.1, 0.2, 0.3, 0.4, 0.5, 0.7), Constant),
            at_least=0,
        ),
        Hyperparameter(
            "normalisation",
            "onehot",
            "target of the confidence: the best label, or all in proportion",
            one_of=("onehot", "scale"),
        ),
        *MOMENTUM_HPARAMS,
    ),
    logs={
        "loss_cls": "cross entropy against the confidence",
        "loss_cont": "contrastive loss, unweighted",
        "loss_mixup": "cross entropy on mixed inputs, unweighted (0 when switched off)",
        "importance": "λ, the weight of labels outside the candidates",
    },
    public_fault=(
        "the public code never counts its steps and so stays in warm-up for the whole run (the figures fit "
        "that, but whether they came from exactly this version is not known)"
    ),
    cite="xu2023alim",
)
class ALIM(MomentumContrast):
    """Let labels outside the candidate set count, with a weight λ that follows from the noise rate.

    Everything PiCO restricts to the candidates is weighted instead, by 1 inside and λ outside. Once per epoch
    λ is set such that as many examples prefer an outside label as there are expected to be wrong sets. Mixup
    between two independent batches steadies the classifier.

    Objective: CE(c, p) + w L_cont + v CE(mixed c, mixed p), with L_cont the supervised contrastive loss and
    c_i ← φ c_i + (1 − φ) onehot(argmax_k r_ik W_ik), W = S + λ (1 − S), r the softmax of q_i·μ_k/0.07.
    """

    margins: Tensor

    def setup(self, candidates: Tensor) -> None:
        """Start as PiCO does, with λ = 0 and room for the margins of an epoch."""
        super().setup(candidates)
        self.importance = 0.0
        self.margin_count = 0
        batch_size = self.hparams["batch_size"]
        self.register_buffer("margins", torch.zeros(first_step_of(1, self.num_data, batch_size) * batch_size))

    def empty_queue(self) -> dict[str, Tensor]:
        """Return PiCO's empty queue with unit rows instead of unit columns, as ALIM's authors have it."""
        length, width = self.hparams["moco_queue"], self.hparams["feat_dim"]
        return {**super().empty_queue(), "features": draw_empty_features(length, width, axis=1)}

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor | float]:
        """Return cross entropy, contrast and mixup; λ, prototypes and confidence move first."""
        self.renew_importance()
        logits, queries = outputs
        labels = weigh_labels(logits.detach(), batch.candidates, self.importance).argmax(-1)
        scores = self.compare_with_prototypes(queries) / BASE_TEMPERATURE
        self.move_prototypes(queries, labels)
        keys = self.encode_keys(batch.strong)
        queue, queue_labels = self.queue["features"], self.queue["labels"]
        contrast = supervised_contrast(queries, keys, labels, queue, queue_labels, self.num_classes)
        self.queue.push(features=keys, labels=labels)
        self.remember_margins(scores.softmax(-1), batch.candidates)
        if self.steps_done < self.hparams["prot_start"]:
            confidence = self.rows("confidence", batch.index)
        else:
            confidence = self.move_confidence(batch.index, self.aim(scores, batch.candidates))
        classification = soft_cross_entropy(logits, confidence)
        mixed = self.mixup_loss(batch, confidence)
        weights = self.hparams["loss_weight"], self.hparams["loss_weight_mixup"]
        return {
            "loss": classification + weights[0] * contrast + weights[1] * mixed,
            "loss_cls": classification,
            "loss_cont": contrast,
            "loss_mixup": mixed,
            "importance": self.importance,
        }

    def aim(self, scores: Tensor, candidates: Tensor) -> Tensor:
        """Return the target (B, K) of the confidence, from the weighted prototype scores."""
        weighted = weigh_labels(scores, candidates, self.importance)
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
        targets = mix(confidence, self.rows("confidence", second.index), share)
        return soft_cross_entropy(logits, targets)

    def renew_importance(self) -> None:
        """At the start of an epoch choose λ from the last epoch's margins, if it is time, and forget them."""
        step, batch_size = self.steps_done, self.hparams["batch_size"]
        if not starts_epoch(step, self.num_data, batch_size):
            return
        in_time = epoch_of(step, self.num_data, batch_size) >= self.hparams["start_epoch"]
        if in_time and self.margin_count:
            margins = self.margins[: self.margin_count]
            self.importance = choose_importance(margins, self.hparams["noise_rate"])
        self.margin_count = 0

    def remember_margins(self, scores: Tensor, candidates: Tensor) -> None:
        """Append the batch's margins: the best candidate's score over that of the best other label."""
        inside = scores.masked_fill(~candidates, 0).amax(-1)
        margins = inside / (GUARD + scores.masked_fill(candidates, 0).amax(-1))
        end = self.margin_count + len(margins)
        self.margins[self.margin_count : end] = margins
        self.margin_count = end

    def phases(self) -> Mapping[str, int]:
        """Return when the confidence starts to move, and when λ is first chosen."""
        epoch = max(1, self.hparams["start_epoch"])
        return {
            "confidence by prototypes (prot_start)": self.hparams["prot_start"],
            "label importance (start_epoch)": first_step_of(epoch, self.num_data, self.hparams["batch_size"]),
        }
