"""RECORDS: dynamic rebalancing for long-tailed partial labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, epoch_of, first_step_of, register
from plench.algorithms.parts.targets import (
    agree_on_target,
    divergence_from_target,
    over_rows,
    soft_cross_entropy,
    uniform_over,
)
from plench.algorithms.parts.views import pass_together
from plench.hparams import Choice, Hyperparameter

# Added to probabilities before the logarithm: bounds the push on non-candidates and the correction.
EPSILON = 1e-9


def log_prior(logits: Tensor) -> Tensor:
    """Return log(softmax(z) + 1e-9) for the logits of the mean features."""
    return (logits.softmax(-1) + EPSILON).log()


@register(
    "RECORDS",
    stacked=True,
    family="holistic PLL",
    venue="ICLR 2023",
    views=("weak", "strong"),
    passes="1 over both views joined (base PRODEN: 1 on the weak view)",
    state="confidence N×K, feature mean F",
    hyperparameters=(
        Hyperparameter(
            "base",
            "CORR",
            "wrapped method: CORR (consistency of two views) or PRODEN (one view)",
            one_of=("CORR", "PRODEN"),
        ),
        Hyperparameter(
            "m", 0.9, "momentum of the feature mean", Choice(0.8, 0.9, 0.99), at_least=0, at_most=1
        ),
        Hyperparameter(
            "upd_start", 1, "epochs before the confidence is revised", Choice(1, 5, 10), at_least=0
        ),
    ),
    logs={
        "loss_sup": "push on non-candidates, both views (base CORR)",
        "loss_con": "divergence of both views from the confidence (base CORR)",
    },
    cite="hong2023long",
)
class RECORDS(LossAlgorithm):
    """Take a class prior, estimated on the fly, out of the logits before they become targets.

    The prior is what the classifier says of a moving average of the features: near uniform at first, and as
    skewed as the model's beliefs later. So rare classes are not given up early. It is taken out of
    predictions too, which suits a balanced test set and no other.

    Objective: base CORR Σ_v (1/b) Σ_i [−Σ_{k∉S_i} log(1 − p_vik) + KL(c_i ‖ p_vi)], base PRODEN
    (1/b) Σ_i −Σ_k c_ik log p_ik; from epoch `upd_start` on c_i ← softmax over S_i of the views' mean logits
    − log softmax(W f̄ + w), f̄ the moving mean of the features, all from before the step.
    """

    must_match = ("base",)

    feature_mean: Tensor

    def setup(self, candidates: Tensor) -> None:
        """Start from equal confidence in each candidate and a feature mean of 0."""
        self.per_example("confidence", uniform_over(candidates))
        self.register_buffer("feature_mean", torch.zeros(self.network[0].n_outputs))

    @classmethod
    def choose_views(cls, declared: tuple[str, ...], hparams: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the weak view alone for base PRODEN."""
        return ("weak",) if hparams["base"] == "PRODEN" else declared

    def passes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits (V, B, K) of the views and, once the feature mean has moved, the log-prior."""
        featurizer, classifier = self.network
        views = self.choose_views(("weak", "strong"), self.hparams)
        features = pass_together(featurizer, *(batch.view(view) for view in views))
        momentum = over_rows(self.hparams["m"], 1)
        moved = momentum * self.feature_mean + (1 - momentum) * features.detach().mean(0).mean(-2)
        self.feature_mean.copy_(moved)
        return classifier(features), self.find_log_prior().detach()

    def find_log_prior(self) -> Tensor:
        """Return the logarithm of the prior (…, 1, K) that the classifier assigns to the feature mean."""
        return log_prior(self.network[1](self.feature_mean[..., None, :]))

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Return the loss of the base against the stored confidence; the prior plays no part in it."""
        logits, _ = outputs
        confidence = self.rows("confidence", batch.index)
        if self.hparams["base"] == "PRODEN":
            return {"loss": soft_cross_entropy(logits[0], confidence)}
        logs = ((1 - logits.softmax(-1)).abs() + EPSILON).log()
        push = -logs.masked_fill(batch.candidates, 0).sum(-1).mean(-1).sum(0)
        consistency = divergence_from_target(logits, confidence).sum(0)
        return {"loss": push + consistency, "loss_sup": push, "loss_con": consistency}

    def revise(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> None:
        """From epoch `upd_start` on, set the confidence to what the views agree on, the prior taken out."""
        logits, prior = outputs
        epoch = epoch_of(self.steps_done, self.num_data, self.hparams["batch_size"])
        due = torch.as_tensor(epoch >= self.hparams["upd_start"], device=logits.device)
        revised = agree_on_target(logits - prior, batch.candidates)
        kept = torch.where(due[..., None, None], revised, self.rows("confidence", batch.index))
        self.write_rows("confidence", batch.index, kept)

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K) for network inputs x, the prior taken out."""
        logits: Tensor = self.network(x)
        return logits - self.find_log_prior()

    def phases(self) -> Mapping[str, int]:
        """Return when the confidence is first revised."""
        first = first_step_of(self.hparams["upd_start"], self.num_data, self.hparams["batch_size"])
        return {"revision of the confidence (upd_start)": first}
