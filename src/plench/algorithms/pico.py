"""PiCO: contrastive label disambiguation."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from plench.algorithms.base import descend, register
from plench.algorithms.parts.contrast import BASE_TEMPERATURE, instance_contrast, supervised_contrast
from plench.algorithms.parts.momentum_contrast import SHARED_HPARAMS, MomentumContrast
from plench.algorithms.parts.pseudo_labels import best_candidate, onehot_like
from plench.algorithms.parts.targets import soft_cross_entropy
from plench.batch import Batch
from plench.hparams import Choice, Hyperparameter


@register(
    "PiCO",
    family="holistic PLL",
    venue="ICLR 2022",
    views=("weak", "strong"),
    passes="2 (query on weak; key on strong, without gradient)",
    state="confidence N×K, queue Q×D, prototypes K×D, second network",
    hyperparameters=(
        Hyperparameter("prot_start", 178, "steps before prototypes move the confidence", at_least=0),
        Hyperparameter(
            "loss_weight", 0.5, "weight of the contrastive loss", Choice(0.5, 1.0), type=float, at_least=0
        ),
        *SHARED_HPARAMS,
    ),
    logs={"loss_cls": "cross entropy against the confidence", "loss_cont": "contrastive loss, unweighted"},
    bibtex="""
@inproceedings{wang2022pico,
  title     = {{PiCO}: Contrastive Label Disambiguation for Partial Label Learning},
  author    = {Wang, Haobo and Xiao, Ruixuan and Li, Yixuan and Feng, Lei and Niu, Gang and Chen, Gang and
               Zhao, Junbo},
  booktitle = {International Conference on Learning Representations},
  year      = {2022}
}""",
)
class PiCO(MomentumContrast):
    """Learn representations by contrast, and let class prototypes among them settle the labels.

    Examples with the same predicted candidate attract each other in the projection; each class's prototype
    is the moving average of its examples there; the confidence moves step by step to the candidate whose
    prototype is nearest.

    Objective: (1/b) Σ_i −Σ_k c_ik log p_ik + w L_cont, where L_cont is the supervised contrastive loss over
    queries, keys and queue with pseudo-labels as labels (instance contrast for the first `prot_start`
    steps), and c_i ← φ c_i + (1 − φ) onehot(argmax_{k∈S_i} q_i·μ_k) before each loss.

    No departure from the authors' mathematics; `prot_start` counts steps and φ changes per step, as in the
    public benchmark.
    """

    def phases(self) -> Mapping[str, int]:
        """Return when the prototypes start to move the confidence."""
        return {"label disambiguation by prototypes (prot_start)": self.hparams["prot_start"]}

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch."""
        index, candidates = minibatches.index, minibatches.candidates
        logits, queries = self.network(minibatches.weak)
        labels = best_candidate(logits.detach(), candidates)
        nearest = best_candidate(queries.detach() @ self.prototypes.T, candidates)
        self.move_prototypes(queries, labels)
        keys = self.encode_keys(minibatches.strong)
        queue = self.queue["features"]
        if self.steps_done < self.hparams["prot_start"]:
            confidence = self.confidence.index_select(0, index)
            contrastive = instance_contrast(queries, keys, queue, BASE_TEMPERATURE)
        else:
            confidence = self.move_confidence(index, onehot_like(nearest, logits))
            contrastive = supervised_contrast(
                queries, keys, labels, queue, self.queue["labels"], self.num_classes
            )
        self.queue.push(features=keys, labels=labels)
        classification = soft_cross_entropy(logits, confidence)
        loss = classification + self.hparams["loss_weight"] * contrastive
        descend(self.optimizer, loss)
        self.steps_done += 1
        return {
            "loss": loss.detach(),
            "loss_cls": classification.detach(),
            "loss_cont": contrastive.detach(),
        }
