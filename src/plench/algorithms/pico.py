"""PiCO: contrastive label disambiguation."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from plench.algorithms.base import Batch, register
from plench.algorithms.parts.contrast import (
    BASE_TEMPERATURE,
    MOMENTUM_HPARAMS,
    MomentumContrast,
    instance_contrast,
    supervised_contrast,
)
from plench.algorithms.parts.targets import best_candidate, onehot_like, soft_cross_entropy
from plench.hparams import Choice, Hyperparameter


@register(
    "PiCO",
    not_stackable="most of a step are products with its queue, of which a stack saves none",
    family="holistic PLL",
    venue="ICLR 2022",
    cite="wang2022pico",
    views=("weak", "strong"),
    passes="2 (query on weak; key on strong, without gradient)",
    state="confidence N×K, queue Q×D, prototypes K×D, second network",
    hyperparameters=(
        Hyperparameter("prot_start", 178, "steps before prototypes move the confidence", at_least=0),
        Hyperparameter(
            "loss_weight", 0.5, "weight of the contrastive loss", Choice(0.5, 1.0), type=float, at_least=0
        ),
        *MOMENTUM_HPARAMS,
    ),
    logs={"loss_cls": "cross entropy against the confidence", "loss_cont": "contrastive loss, unweighted"},
)
class PiCO(MomentumContrast):
    """Learn representations by contrast, and let class prototypes among them settle the labels.

    Examples with the same predicted candidate attract each other in the projection; each class's prototype
    is the moving average of its examples there; the confidence moves step by step to the candidate whose
    prototype is nearest.

    Objective: (1/b) Σ_i −Σ_k c_ik log p_ik + w L_cont, where L_cont is the supervised contrastive loss over
    queries, keys and queue with pseudo-labels as labels (instance contrast for the first `prot_start`
    steps), and c_i ← φ c_i + (1 − φ) onehot(argmax_{k∈S_i} q_i·μ_k) before each loss.
    """

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Return cross entropy and contrast; prototypes and confidence move first, the queue last."""
        logits, queries = outputs
        labels = best_candidate(logits.detach(), batch.candidates)
        nearest = best_candidate(self.compare_with_prototypes(queries), batch.candidates)
        self.move_prototypes(queries, labels)
        keys = self.encode_keys(batch.strong)
        queue, queue_labels = self.queue["features"], self.queue["labels"]
        if self.steps_done < self.hparams["prot_start"]:
            confidence = self.rows("confidence", batch.index)
            contrast = instance_contrast(queries, keys, queue, BASE_TEMPERATURE)
        else:
            confidence = self.move_confidence(batch.index, onehot_like(nearest, logits))
            contrast = supervised_contrast(queries, keys, labels, queue, queue_labels, self.num_classes)
        self.queue.push(features=keys, labels=labels)
        classification = soft_cross_entropy(logits, confidence)
        loss = classification + self.hparams["loss_weight"] * contrast
        return {"loss": loss, "loss_cls": classification, "loss_cont": contrast}

    def phases(self) -> Mapping[str, int]:
        """Return when the prototypes start to move the confidence."""
        return {"label disambiguation by prototypes (prot_start)": self.hparams["prot_start"]}
