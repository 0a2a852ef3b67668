"""PiCO+: contrastive label disambiguation, robust to wrong candidate sets."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from plench.algorithms.base import Batch, first_step_of, register, starts_epoch
from plench.algorithms.parts.contrast import (
    BASE_TEMPERATURE,
    MOMENTUM_HPARAMS,
    MomentumContrast,
    Similarities,
    compare,
    instance_contrast,
    mean_similarity_by_label,
    own_entries,
    sum_by_label,
)
from plench.algorithms.parts.targets import best_candidate, mean_over, onehot_like, soft_cross_entropy
from plench.algorithms.parts.views import draw_mixing, draw_partners, mix
from plench.hparams import Choice, Constant, Hyperparameter, by_noise_rate

MIXUP_ALPHA = 4.0


def guess_labels(cosines: Tensor, temperature: float) -> Tensor:
    """Return the labels (…, B, K) that the prototypes suggest, whatever the candidates."""
    return (cosines / temperature).softmax(-1)


@register(
    "PiCO_plus",
    not_stackable="most of a step are products with its queue, of which a stack saves none",
    family="noisy PLL",
    venue="TPAMI 2024",
    views=("weak", "strong"),
    passes="2 in warm-up, then 3 (query on weak and on the mixed input; key on strong, without gradient)",
    state="confidence N×K, distances N, reliable N, queue Q×D, prototypes K×D, second network",
    hyperparameters=(
        Hyperparameter("prot_start", 250, "warm-up steps", Choice(1, 250), at_least=0),
        Hyperparameter(
            "loss_weight",
            0.5,
            "weight of the contrast in warm-up, and of reliable anchors after knn_start",
            Choice(0.5, 1.0),
            type=float,
            at_least=0,
        ),
        Hyperparameter(
            "pure_ratio",
            by_noise_rate(1.0, lambda rate: 1 - rate),
            "share of examples called reliable",
            by_noise_rate(Choice(0.6, 0.8, 0.95, 0.99, 1), lambda rate: Constant(1 - rate)),
            type=float,
            at_least=0,
            at_most=1,
        ),
        Hyperparameter(
            "knn_start", 5000, "step at which neighbours become positives", Choice(2, 5000, 100), at_least=0
        ),
        Hyperparameter(
            "chosen_neighbors", 16, "neighbours, the own query included", Choice(8, 16), at_least=1
        ),
        Hyperparameter("temperature_guess", 0.07, "temperature of the guess", Choice(0.1, 0.07), above=0),
        Hyperparameter("ur_weight", 0.1, "weight of the unreliable terms", Choice(0.1, 0.5), at_least=0),
        Hyperparameter(
            "cls_weight",
            2,
            "weight of the classification of reliable ones",
            Choice(2, 3, 5),
            type=float,
            at_least=0,
        ),
        *MOMENTUM_HPARAMS,
    ),
    logs={
        "loss_cls": "cross entropy against the confidence (of reliable examples, after the warm-up)",
        "loss_cont": "contrastive loss (unweighted in warm-up, then with its weights)",
        "loss_cont_rel": "contrastive loss with reliable positives (after the warm-up)",
        "loss_cont_all": "contrastive loss with all positives, unweighted (after the warm-up)",
        "loss_guess": "cross entropy of unreliable examples against the guess",
        "loss_mixup": "cross entropy on mixed inputs",
        "reliable": "share of reliable examples in the batch",
    },
    public_fault=(
        "the public code never counts its steps and so stays in warm-up for the whole run (the figures fit "
        "that, but whether they came from exactly this version is not known)"
    ),
    cite="wang2024picoplus",
)
class PiCOPlus(MomentumContrast):
    """PiCO on the examples whose candidate sets look right, and other means on the rest.

    Once per epoch the examples nearest to the prototype of their predicted candidate are called reliable. The
    others may take any label: they get guessed labels from the prototypes, nearest neighbours as positives,
    and take part in mixup.

    Objective: L_mix + a CE over reliable (c, p) + b CE over unreliable (guess, p) + L_rel + b L_all after a
    warm-up as in PiCO, with L_rel and L_all supervised contrastive losses with reliable and all positives.
    """

    distances: Tensor
    reliable: Tensor

    def setup(self, candidates: Tensor) -> None:
        """Start as PiCO does, with every example reliable."""
        super().setup(candidates)
        self.per_example("distances", torch.zeros(self.num_data))
        self.per_example("reliable", torch.ones(self.num_data, dtype=torch.bool))
        self.knn_start = max(self.hparams["prot_start"], self.hparams["knn_start"])
        self.all_reliable = int(self.num_data * self.hparams["pure_ratio"]) == self.num_data

    def empty_queue(self) -> dict[str, Tensor]:
        """Return PiCO's empty queue with a flag for each key: whether it is reliable."""
        columns = super().empty_queue()
        return {**columns, "reliable": torch.zeros(self.hparams["moco_queue"], dtype=torch.bool)}

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Return the losses of the phase; selection, prototypes and confidence move first, the queue last."""
        if self.selects_now():
            self.reliable.copy_(select_reliable(self.distances, self.hparams["pure_ratio"]))
        logits, queries = outputs
        reliable = self.rows("reliable", batch.index)
        inside = best_candidate(logits.detach(), batch.candidates)
        labels = torch.where(reliable, inside, logits.detach().argmax(-1))
        cosines = self.compare_with_prototypes(queries)
        self.move_prototypes(queries, labels, reliable)
        keys = self.encode_keys(batch.strong)
        if self.steps_done < self.hparams["prot_start"]:
            losses = self.warm_up_losses(batch, logits, queries, keys)
        else:
            aim = onehot_like(best_candidate(cosines, batch.candidates), logits)
            confidence = self.move_confidence(batch.index, aim)
            contrasts = self.contrast(queries, keys, labels, reliable)
            guess = guess_labels(cosines, self.hparams["temperature_guess"])
            targets = torch.where(reliable[:, None], confidence, guess)
            losses = self.main_losses(batch.weak, logits, targets, reliable, *contrasts)
        self.queue.push(features=keys, labels=labels, reliable=reliable)
        self.write_rows("distances", batch.index, -cosines.gather(-1, inside[:, None]).squeeze(-1))
        return {**losses, "reliable": reliable.to(logits.dtype).mean()}

    @property
    def first_selection(self) -> int:
        """The step of the first selection: after the warm-up, and one whole epoch of distances."""
        epoch = first_step_of(1, self.num_data, self.hparams["batch_size"])
        first: int = max(self.hparams["prot_start"], epoch)
        return first

    def selects_now(self) -> bool:
        """Whether reliable examples are selected at the start of this step: then and every epoch."""
        if self.steps_done <= self.first_selection:
            return self.steps_done == self.first_selection
        return starts_epoch(self.steps_done, self.num_data, self.hparams["batch_size"])

    def warm_up_losses(
        self, batch: Batch, logits: Tensor, queries: Tensor, keys: Tensor
    ) -> dict[str, Tensor]:
        """Return PiCO's warm-up losses: the confidence stays, the contrast is by instance."""
        classification = soft_cross_entropy(logits, self.rows("confidence", batch.index))
        contrast = instance_contrast(queries, keys, self.queue["features"], BASE_TEMPERATURE)
        loss = classification + self.hparams["loss_weight"] * contrast
        return {"loss": loss, "loss_cls": classification, "loss_cont": contrast}

    def contrast(
        self, queries: Tensor, keys: Tensor, labels: Tensor, reliable: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the contrastive losses L_rel, with positives among reliable examples, and L_all."""
        queue, queue_labels, classes = self.queue["features"], self.queue["labels"], self.num_classes
        similarities = compare(queries, keys, queue, BASE_TEMPERATURE)
        sums = sum_by_label(queue, queue_labels, classes)
        to_all = mean_similarity_by_label(similarities, queries, labels, sums, BASE_TEMPERATURE)
        sums = sum_by_label(queue, queue_labels, classes, self.queue["reliable"])
        to_reliable = mean_similarity_by_label(
            similarities, queries, labels, sums, BASE_TEMPERATURE, reliable
        )
        with_neighbours = self.steps_done >= self.knn_start
        if with_neighbours and not self.all_reliable:
            count = self.hparams["chosen_neighbors"]
            otherwise = mean_similarity_to_nearest(similarities, queries, queue, count)
        else:
            otherwise = similarities.keys.diagonal()
        losses = similarities.log_denominator - torch.where(reliable, to_reliable, otherwise)
        if with_neighbours:
            weights = self.hparams["loss_weight"], self.hparams["ur_weight"]
            losses = torch.where(reliable, weights[0] * losses, weights[1] * losses)
        return losses.mean(), (similarities.log_denominator - to_all).mean()

    def main_losses(
        self,
        x: Tensor,
        logits: Tensor,
        targets: Tensor,
        reliable: Tensor,
        contrast_reliable: Tensor,
        contrast_all: Tensor,
    ) -> dict[str, Tensor]:
        """Return the losses after the warm-up, given targets (B, K) and the contrastive losses."""
        losses = -(targets * logits.log_softmax(-1)).sum(-1)
        classification, guessed = mean_over(losses, reliable), mean_over(losses, ~reliable)
        contrastive = contrast_reliable + self.hparams["ur_weight"] * contrast_all
        mixed = self.mixup_loss(x, targets)
        loss = mixed + self.hparams["cls_weight"] * classification
        loss = loss + self.hparams["ur_weight"] * guessed + contrastive
        return {
            "loss": loss,
            "loss_cls": classification,
            "loss_cont": contrastive,
            "loss_cont_rel": contrast_reliable,
            "loss_cont_all": contrast_all,
            "loss_guess": guessed,
            "loss_mixup": mixed,
        }

    def mixup_loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy on inputs mixed within the batch."""
        partners, share = draw_partners(x), draw_mixing(MIXUP_ALPHA)
        logits = self.network.classify(mix(x, x[partners], share))
        return soft_cross_entropy(logits, mix(targets, targets[partners], share))

    def phases(self) -> Mapping[str, int]:
        """Return when warm-up ends, when reliable examples are selected, and when neighbours join."""
        return {
            "main losses (prot_start)": self.hparams["prot_start"],
            "selection of reliable examples": self.first_selection,
            "neighbours as positives (knn_start)": self.knn_start,
        }


def select_reliable(distances: Tensor, pure_ratio: float) -> Tensor:
    """Mark the share `pure_ratio` of examples with the smallest distances; the lower index first on ties."""
    nearest = distances.argsort(stable=True)[: int(len(distances) * pure_ratio)]
    return torch.zeros_like(distances, dtype=torch.bool).index_fill_(0, nearest, True)


def mean_similarity_to_nearest(
    similarities: Similarities, queries: Tensor, queue: Tensor, count: int
) -> Tensor:
    """Return the mean of s_ij (B,) over the own key and the `count` nearest contrasts, own query aside.

    Plainly: take the `count` largest entries of row i of q·[queries; keys; queue]ᵀ/τ. Here the nearest slots
    of the long queue are found first, without a gradient, and only the chosen ones are compared with one.
    """
    in_batch = torch.cat([similarities.queries, similarities.keys], dim=-1)
    with torch.no_grad():
        to_slots, slots = (queries / BASE_TEMPERATURE @ queue.T).topk(min(count, len(queue)))
        offered = torch.cat([in_batch, to_slots], dim=-1)
        chosen = offered.topk(min(count, offered.shape[-1])).indices
        is_slot = chosen >= in_batch.shape[-1]
        chosen_slots = slots.gather(-1, torch.where(is_slot, chosen - in_batch.shape[-1], 0))
        own = own_entries(similarities.queries)
        is_own = torch.cat([own, own, torch.zeros_like(to_slots, dtype=torch.bool)], dim=-1)
        counted = ~is_own.gather(-1, chosen)
    from_batch = in_batch.gather(-1, torch.where(is_slot, 0, chosen))
    from_queue = (queries[:, None] * queue[chosen_slots]).sum(-1) / BASE_TEMPERATURE
    total = (torch.where(is_slot, from_queue, from_batch) * counted).sum(-1)
    return (total + similarities.keys.diagonal()) / (counted.sum(-1) + 1)
