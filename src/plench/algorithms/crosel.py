"""CroSel: cross selection of confident pseudo labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from plench.algorithms.base import (
    Batch,
    LossAlgorithm,
    TrainingInputs,
    build_network,
    epoch_of,
    first_step_of,
    register,
    starts_epoch,
)
from plench.algorithms.parts.targets import candidate_nll, masked_softmax, mean_over, soft_cross_entropy
from plench.algorithms.parts.views import draw_mixing, draw_partners, mix, pass_all_inputs, pass_together
from plench.hparams import Choice, Hyperparameter


class Passes(NamedTuple):
    """What one network's passes give in the main phase.

    `labelled` are the logits of the second batch, `mixed` those (2B, K) of the mixed inputs, `targets` the
    targets of these.
    """

    labelled: Tensor
    mixed: Tensor
    targets: Tensor


@register(
    "CroSel",
    not_stackable="each step draws how inputs are mixed, and a run reads all training inputs once per epoch",
    family="holistic PLL",
    venue="CVPR 2024",
    views=("original", "weak", "strong"),
    second_batch=True,
    passes="1 of each of two networks in warm-up, then 3 (1 without gradient); each epoch, all inputs",
    state="of each network the labels and peaks of k records N×k, selected N, labels N; candidates N×K",
    hyperparameters=(
        Hyperparameter("warm_up", 10, "warm-up epochs", Choice(10, 20), at_least=0),
        Hyperparameter("k", 3, "records that must agree", at_least=1),
        Hyperparameter(
            "select_threshold",
            0.9,
            "the mean of the records' largest probabilities must be above it",
            Choice(0.8, 0.9, 0.95),
            at_least=0,
            at_most=1,
        ),
        Hyperparameter(
            "lambda_cr", 1.0, "weight of the loss on mixed inputs", Choice(1.0, 2.0, 4.0), at_least=0
        ),
        Hyperparameter("sharpen_T", 1.0, "temperature of the targets", Choice(0.5, 1.0), above=0),
        Hyperparameter("alpha", 0.75, "inputs are mixed by a share of Beta(a, a)", above=0),
    ),
    logs={
        "loss_1": "loss of the first network",
        "loss_2": "loss of the second network",
        "loss_sel": "cross entropy on selected examples, mean of the networks (main phase)",
        "loss_mix": "cross entropy on mixed inputs, unweighted, mean of the networks (main phase)",
        "selected": "share of the training examples that are selected, mean of the networks",
    },
    cite="tian2024crosel",
)
class CroSel(LossAlgorithm):
    """Two networks, each of which learns the labels that the other has long been sure of.

    A network keeps a short history of its predictions on the training set. An example on which it was
    steadily confident in one candidate becomes a labelled example for the other network. All examples also
    enter a consistency loss: both views take each other's predictions over the candidates as targets, mixed
    up.

    Objective: warm-up −(1/b) Σ_i log Σ_{j∈S_i} p_ij; then of each network L_sel + λ w L_mix, with L_sel the
    mean cross entropy over the second batch's examples that the other network has selected, L_mix the cross
    entropy on 2b mixed inputs, and λ = 1 − the share of examples selected.
    """

    transient = ("inputs",)

    candidates: Tensor
    record_labels: Tensor
    record_peaks: Tensor
    selected: Tensor
    labels: Tensor
    ratio: Tensor

    def build_networks(self, input_shape: Sequence[int]) -> None:
        """Build two networks, each with weights of its own."""
        networks = [build_network(input_shape, self.num_classes, self.hparams) for _ in range(2)]
        self.network = nn.ModuleList(networks)

    def setup(self, candidates: Tensor) -> None:
        """Start without records and with nothing selected; the second axis is that of the networks."""
        shape = (self.num_data, 2)
        records = (*shape, self.hparams["k"])
        self.per_example("candidates", candidates.clone())
        self.per_example("record_labels", torch.zeros(records, dtype=torch.int64))
        self.per_example("record_peaks", torch.zeros(records))
        self.per_example("selected", torch.zeros(shape, dtype=torch.bool))
        self.per_example("labels", torch.zeros(shape, dtype=torch.int64))
        self.register_buffer("ratio", torch.zeros(2))
        self.records_made = 0
        self.inputs: TrainingInputs | None = None

    def attach_inputs(self, inputs: TrainingInputs) -> None:
        """Take hold of the training inputs, for the records."""
        self.inputs = inputs

    @property
    def warming_up(self) -> bool:
        """Whether the step is one of the warm-up."""
        warming: bool = self.epoch < self.hparams["warm_up"]
        return warming

    @property
    def epoch(self) -> int:
        """The epoch of the step."""
        return epoch_of(self.steps_done, self.num_data, self.hparams["batch_size"])

    def passes(self, batch: Batch) -> tuple[Any, ...]:
        """Return each network's logits (B, K) in the warm-up, then its `Passes`.

        A new epoch begins with records of all training inputs and, after the warm-up, a new selection.
        """
        if starts_epoch(self.steps_done, self.num_data, self.hparams["batch_size"]):
            if self.inputs is None:
                raise RuntimeError("CroSel needs attach_inputs(inputs) before its second epoch")
            logits = [pass_all_inputs(network, self.inputs) for network in self.network]
            self.record(torch.stack(logits, dim=1).softmax(-1))
            if not self.warming_up:
                self.select()
        if self.warming_up:
            return tuple(network(batch.original) for network in self.network)
        return tuple(self.pass_network(network, batch) for network in self.network)

    def record(self, probs: Tensor) -> None:
        """Add the networks' probabilities (N, 2, K) to their records; the oldest record drops out."""
        peaks, labels = probs.max(-1)
        for records, newest in ((self.record_peaks, peaks), (self.record_labels, labels)):
            records.copy_(torch.cat([records[..., 1:], newest[..., None]], dim=-1))
        self.records_made += 1

    def select(self) -> None:
        """Select, for each network, the examples of which its last k records were sure, and their labels."""
        newest = self.record_labels[..., -1]
        steady = (self.record_labels == newest[..., None]).all(-1)
        inside = self.candidates.gather(-1, newest)
        sure = self.record_peaks.mean(-1) > self.hparams["select_threshold"]
        self.selected.copy_(steady & inside & sure & (self.records_made >= self.hparams["k"]))
        self.labels.copy_(newest)
        self.ratio.copy_(self.selected.to(self.ratio.dtype).mean(0))

    def pass_network(self, network: nn.Module, batch: Batch) -> Passes:
        """Pass the second batch, both views for the targets, and the views mixed, in this order."""
        if batch.second is None:
            raise ValueError("CroSel needs a second batch in every step")
        labelled = network(batch.second.weak)
        with torch.no_grad():
            crossed = pass_together(network, batch.strong, batch.weak)
        targets = masked_softmax(crossed / self.hparams["sharpen_T"], batch.candidates).flatten(0, 1)
        inputs = torch.cat([batch.weak, batch.strong])
        share, partners = draw_mixing(self.hparams["alpha"]), draw_partners(inputs)
        mixed = network(mix(inputs, inputs[partners], share))
        return Passes(labelled, mixed, mix(targets, targets[partners], share))

    def losses(self, outputs: tuple[Any, ...], batch: Batch) -> Mapping[str, Tensor]:
        """Return the networks' losses; their sum is minimised, their mean is the loss."""
        logged = {"selected": self.ratio.mean()}
        if self.warming_up:
            losses = [candidate_nll(logits, batch.candidates).mean(-1) for logits in outputs]
        else:
            first, second = outputs
            selected = torch.stack(
                [self.loss_of_selected(first, 1, batch), self.loss_of_selected(second, 0, batch)]
            )
            mixed = torch.stack([soft_cross_entropy(part.mixed, part.targets) for part in outputs])
            weight = (1 - self.ratio.mean()) * self.hparams["lambda_cr"]
            losses = list(selected + weight * mixed)
            logged |= {"loss_sel": selected.mean(), "loss_mix": mixed.mean()}
        total = losses[0] + losses[1]
        return {"loss": total / 2, "loss_1": losses[0], "loss_2": losses[1], **logged, "objective": total}

    def loss_of_selected(self, passes: Passes, other: int, batch: Batch) -> Tensor:
        """Return the mean cross entropy over the second batch's examples that the other network selected."""
        assert batch.second is not None
        labels = self.rows("labels", batch.second.index)[:, other]
        selected = self.rows("selected", batch.second.index)[:, other]
        losses = -passes.labelled.log_softmax(-1).gather(-1, labels[:, None]).squeeze(-1)
        return mean_over(losses, selected)

    def predict(self, x: Tensor) -> Tensor:
        """Return the mean of the networks' logits (B, K) for network inputs x."""
        first, second = self.network
        logits: Tensor = (first(x) + second(x)) / 2
        return logits

    def phases(self) -> Mapping[str, int]:
        """Return when the warm-up ends, and when examples can first be selected."""
        warm_up, k = self.hparams["warm_up"], self.hparams["k"]
        size = (self.num_data, self.hparams["batch_size"])
        after_warm_up = first_step_of(warm_up, *size)
        # A step makes one record at most, also where it is longer than an epoch.
        enough_records = max(k, first_step_of(k, *size))
        return {
            "mixed inputs (warm_up)": after_warm_up,
            "selection of labels (warm_up, k)": max(after_warm_up, enough_records),
        }
