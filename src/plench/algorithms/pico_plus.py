"""PiCO+: contrastive label disambiguation, robust to wrong candidate sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms.base import descend, register
from plench.algorithms.parts.contrast import (
    BASE_TEMPERATURE,
    Similarities,
    compare,
    instance_contrast,
    mean_similarity_by_label,
    sum_by_label,
)
from plench.algorithms.parts.mixup import draw_mixing, draw_partners, mix
from plench.algorithms.parts.momentum_contrast import SHARED_HPARAMS, MomentumContrast
from plench.algorithms.parts.pseudo_labels import best_candidate, onehot_like
from plench.algorithms.parts.schedule import first_step_of, starts_epoch
from plench.algorithms.parts.targets import soft_cross_entropy
from plench.batch import Batch
from plench.hparams import Choice, Constant, DataTraits, Distribution, Hyperparameter, Value

MIXUP_ALPHA = 4.0


def first_selection(num_data: int, batch_size: int, prot_start: int) -> int:
    """Return the step of the first selection: after the warm-up and one whole epoch."""
    return max(prot_start, first_step_of(1, num_data, batch_size))


def selects(step: int, num_data: int, batch_size: int, prot_start: int) -> bool:
    """Say whether reliable examples are selected at the start of a step."""
    first = first_selection(num_data, batch_size, prot_start)
    return step == first or (step > first and starts_epoch(step, num_data, batch_size))


def select_reliable(distances: Tensor, pure_ratio: float) -> Tensor:
    """Mark the share `pure_ratio` of examples with the smallest distances; the lower index first on ties."""
    nearest = distances.argsort(stable=True)[: int(len(distances) * pure_ratio)]
    return torch.zeros_like(distances, dtype=torch.bool).index_fill_(0, nearest, True)


def mean_over(values: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean of values (B,) over the chosen rows, 0 if there are none."""
    return (values * chosen).sum(-1) / chosen.sum(-1).clamp(min=1)


def guess_labels(cosines: Tensor, temperature: float) -> Tensor:
    """Return the labels (…, B, K) that the prototypes suggest, whatever the candidates."""
    return (cosines / temperature).softmax(-1)


@torch.no_grad()
def find_nearest_columns(similarities: Similarities, queries: Tensor, queue: Tensor, count: int) -> Tensor:
    """Return the columns (B, count) of [queries; keys; queue] most similar to each query."""
    in_batch = torch.cat([similarities.queries, similarities.keys], dim=-1)
    to_queue, slots = (queries / BASE_TEMPERATURE @ queue.T).topk(min(count, len(queue)))
    nearest = torch.cat([in_batch, to_queue], dim=-1)
    nearest = nearest.topk(min(count, nearest.shape[-1])).indices
    columns = torch.arange(in_batch.shape[-1], device=slots.device).expand_as(in_batch)
    return torch.cat([columns, slots + in_batch.shape[-1]], dim=-1).gather(-1, nearest)


def mean_similarity_of_columns(
    similarities: Similarities, queries: Tensor, queue: Tensor, columns: Tensor
) -> Tensor:
    """Return the mean similarity (B,) to the given columns and the own key, without the own query."""
    size = len(queries)
    own = torch.arange(size, device=columns.device)[:, None]
    in_batch = torch.cat([similarities.queries, similarities.keys], dim=-1)
    to_batch = in_batch.gather(-1, columns.clamp(max=2 * size - 1))
    to_queue = (queries[:, None] * queue[(columns - 2 * size).clamp(min=0)]).sum(-1) / BASE_TEMPERATURE
    found = torch.where(columns < 2 * size, to_batch, to_queue)
    counted = (columns != own) & (columns != own + size)
    total = (found * counted).sum(-1) + similarities.keys.diagonal()
    return total / (counted.sum(-1) + 1)


def default_pure_ratio(traits: DataTraits) -> Value:
    """Return the share of right candidate sets by the protocol, else 1."""
    return 1.0 if traits.protocol_noise_rate is None else 1 - traits.protocol_noise_rate


def search_pure_ratio(traits: DataTraits) -> Distribution:
    """Return the share of right candidate sets by the protocol, else a choice."""
    if traits.protocol_noise_rate is None:
        return Choice(0.6, 0.8, 0.95, 0.99, 1)
    return Constant(1 - traits.protocol_noise_rate)


@register(
    "PiCO_plus",
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
            default_pure_ratio,
            "share of examples called reliable",
            search_pure_ratio,
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
        *SHARED_HPARAMS,
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
    bibtex="""
@article{wang2024picoplus,
  title   = {{PiCO+}: Contrastive Label Disambiguation for Robust Partial Label Learning},
  author  = {Wang, Haobo and Xiao, Ruixuan and Li, Yixuan and Feng, Lei and Niu, Gang and Chen, Gang and
             Zhao, Junbo},
  journal = {IEEE Transactions on Pattern Analysis and Machine Intelligence},
  volume  = {46},
  number  = {5},
  pages   = {3183--3198},
  year    = {2024}
}""",
)
class PiCOPlus(MomentumContrast):
    """PiCO on the examples whose candidate sets look right, and other means on the rest.

    Once an epoch the examples nearest to the prototype of their predicted candidate are called reliable. The
    others may take any label: they get guessed labels from the prototypes, nearest neighbours as positives,
    and take part in mixup.

    Objective: L_mix + a CE over reliable (c, p) + b CE over unreliable (guess, p) + L_rel + b L_all after a
    warm-up as in PiCO, with L_rel and L_all supervised contrastive losses with reliable and all positives.

    Departures: in the public benchmark the step counter never moves, so that it stays in warm-up; ours
    leaves it. Selection is once an epoch and waits for one whole epoch of distances. The mean over an empty
    set is 0 (in the authors' code it is not a number).
    """

    distances: Tensor
    reliable: Tensor

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        self.per_example("distances", torch.zeros(self.num_data))
        self.per_example("reliable", torch.ones(self.num_data, dtype=torch.bool))
        self.knn_start = max(self.hparams["prot_start"], self.hparams["knn_start"])
        self.all_reliable = int(self.num_data * self.hparams["pure_ratio"]) == self.num_data

    def empty_queue(self) -> dict[str, Tensor]:
        """Return PiCO's empty queue with flags that say whether a key is reliable."""
        columns = super().empty_queue()
        return {**columns, "reliable": torch.zeros(self.hparams["moco_queue"], dtype=torch.bool)}

    def phases(self) -> Mapping[str, int]:
        """Return when warm-up ends, when reliable examples are selected, and when neighbours join."""
        batch_size, prot_start = self.hparams["batch_size"], self.hparams["prot_start"]
        return {
            "main losses (prot_start)": prot_start,
            "selection of reliable examples": first_selection(self.num_data, batch_size, prot_start),
            "neighbours as positives (knn_start)": self.knn_start,
        }

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch."""
        index, candidates = minibatches.index, minibatches.candidates
        if selects(self.steps_done, self.num_data, self.hparams["batch_size"], self.hparams["prot_start"]):
            self.reliable.copy_(select_reliable(self.distances, self.hparams["pure_ratio"]))
        reliable = self.reliable.index_select(0, index)
        logits, queries = self.network(minibatches.weak)
        scores = logits.detach()
        inside = best_candidate(scores, candidates)
        labels = torch.where(reliable, inside, scores.argmax(-1))
        cosines = queries.detach() @ self.prototypes.T
        self.move_prototypes(queries, labels, reliable)
        keys = self.encode_keys(minibatches.strong)
        if self.steps_done < self.hparams["prot_start"]:
            logged = self.warm_up_losses(index, logits, queries, keys)
        else:
            confidence = self.move_confidence(index, onehot_like(best_candidate(cosines, candidates), logits))
            contrasts = self.contrast(queries, keys, labels, reliable)
            guess = guess_labels(cosines, self.hparams["temperature_guess"])
            targets = torch.where(reliable[:, None], confidence, guess)
            logged = self.main_losses(minibatches.weak, logits, targets, reliable, *contrasts)
        self.queue.push(features=keys, labels=labels, reliable=reliable)
        self.distances.index_copy_(0, index, -cosines.gather(-1, inside[:, None]).squeeze(-1))
        descend(self.optimizer, logged["loss"])
        self.steps_done += 1
        share = reliable.to(scores.dtype).mean()
        return {**{name: value.detach() for name, value in logged.items()}, "reliable": share}

    def warm_up_losses(
        self, index: Tensor, logits: Tensor, queries: Tensor, keys: Tensor
    ) -> dict[str, Tensor]:
        """Return PiCO's warm-up losses: the confidence stays, the contrast is by instance."""
        classification = soft_cross_entropy(logits, self.confidence.index_select(0, index))
        contrastive = instance_contrast(queries, keys, self.queue["features"], BASE_TEMPERATURE)
        loss = classification + self.hparams["loss_weight"] * contrastive
        return {"loss": loss, "loss_cls": classification, "loss_cont": contrastive}

    def contrast(
        self, queries: Tensor, keys: Tensor, labels: Tensor, reliable: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the contrastive losses L_rel, with positives among reliable examples, and L_all."""
        queue, queue_labels = self.queue["features"], self.queue["labels"]
        similarities = compare(queries, keys, queue, BASE_TEMPERATURE)
        sums = sum_by_label(queue, queue_labels, self.num_classes)
        to_all = mean_similarity_by_label(similarities, queries, labels, sums, BASE_TEMPERATURE)
        sums = sum_by_label(queue, queue_labels, self.num_classes, self.queue["reliable"])
        to_reliable = mean_similarity_by_label(
            similarities, queries, labels, sums, BASE_TEMPERATURE, reliable
        )
        with_neighbours = self.steps_done >= self.knn_start
        if with_neighbours and not self.all_reliable:
            columns = find_nearest_columns(similarities, queries, queue, self.hparams["chosen_neighbors"])
            otherwise = mean_similarity_of_columns(similarities, queries, queue, columns)
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
