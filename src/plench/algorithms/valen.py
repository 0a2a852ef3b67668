"""VALEN: variational label enhancement for instance-dependent partial labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Dirichlet
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

from plench.algorithms.base import (
    Batch,
    LossAlgorithm,
    TrainingInputs,
    build_adam,
    build_network,
    descend,
    device_with_doubles,
    register,
)
from plench.algorithms.parts.targets import mask_out, restrict, uniform_over
from plench.algorithms.parts.views import pass_all_inputs
from plench.hparams import Choice, Hyperparameter

# Added to probabilities before the logarithm and in the revision: caps the loss and prevents 0/0.
EPSILON = 1e-12
# Weight of the reconstruction of inputs and of candidates, and floor of every concentration.
SMALL = 0.01
# Rows of distances held at once: the graph's memory is 256·N numbers.
DISTANCE_ROWS = 256


def smoothed_cross_entropy(probs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over rows of −Σ_k o_k log(p_k + ε)."""
    return -(targets * (probs + EPSILON).log()).sum(-1).mean(-1)


def concentrate(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the concentration κ of the label distribution: softmax over the candidates, plus 0.01.

    The normaliser is a constant to the gradient, which therefore differs from that of a softmax.
    """
    log_probs = mask_out(logits.log_softmax(-1), candidates)
    return (log_probs - log_probs.logsumexp(-1, keepdim=True).detach()).exp() + SMALL


@register(
    "VALEN",
    not_stackable="each step samples labels, and a run builds a neighbour graph of all training inputs",
    family="holistic PLL",
    venue="NeurIPS 2021",
    views=("weak",),
    passes="1 in warm-up, then 3 (network, encoder, decoder); once, all training inputs",
    state="two distributions N×K, neighbours N×k, encoder, decoder",
    hyperparameters=(
        Hyperparameter("warm_up", 1000, "warm-up steps", Choice(1000, 2000, 3000, 4000, 5000), at_least=0),
        Hyperparameter("knn", 3, "neighbours of each example in the graph", Choice(3, 4), at_least=1),
        Hyperparameter("alpha", 1.0, "weight of the reconstruction", at_least=0),
        Hyperparameter("beta", 1.0, "weight of the encoder's divergence from uniform", at_least=0),
        Hyperparameter("gamma", 1.0, "weight of the encoder's cross entropy", at_least=0),
        Hyperparameter("theta", 1.0, "weight of the network's cross entropy", at_least=0),
        Hyperparameter("correct", 1.0, "share of the sample in the new targets", at_least=0, at_most=1),
        Hyperparameter("lambda", 1.0, "read by nothing, as in the authors' code; part of the protocol"),
        Hyperparameter("sigma", 1.0, "read by nothing, as in the authors' code; part of the protocol"),
    ),
    logs={
        "loss_rec": "reconstruction (main phase)",
        "loss_alpha": "divergence of the encoder's Dirichlet from uniform (main phase)",
        "loss_enc": "cross entropy of the encoder (main phase)",
        "loss_net": "cross entropy of the network",
    },
    cite="xu2021instance",
)
class VALEN(LossAlgorithm):
    """Infer each example's label distribution as a latent Dirichlet variable, and learn from samples of it.

    An encoder proposes the distribution; samples of it must tell the inputs, the candidates and a graph of
    nearest neighbours. The network that predicts learns from the samples, after a warm-up by self-training in
    which the features for the graph are learned.

    Objective: warm-up −(1/b) Σ o log(p + ε), o renewed from p over S; then α L_rec + β KL(Dir(a) ‖ Dir(1)) +
    γ CE(o, encoder) + θ CE(d, network), d ~ Dirichlet(κ(encoder)) restricted to S.
    """

    transient = ("inputs",)

    targets: Tensor
    sampled_targets: Tensor
    neighbours: Tensor

    def build_networks(self, input_shape: Sequence[int]) -> None:
        """Build network, encoder and decoder."""
        super().build_networks(input_shape)
        self.encoder = build_network(input_shape, self.num_classes, self.hparams)
        self.decoder = build_decoder(self.num_classes, math.prod(input_shape[1:]))

    def setup(self, candidates: Tensor) -> None:
        """Start both kinds of targets from equal weight on each candidate."""
        self.per_example("targets", uniform_over(candidates))
        self.per_example("sampled_targets", uniform_over(candidates))
        neighbours = min(self.hparams["knn"], self.num_data - 1)
        self.per_example("neighbours", torch.zeros(self.num_data, neighbours, dtype=torch.int64))
        self.inputs: TrainingInputs | None = None

    def build_optimizers(self) -> None:
        """Build SGD for the warm-up and Adam for what follows.

        Adam is made now although first used then: it has no state before its first step, and the encoder's
        parameters are overwritten in place.
        """
        rates = {name: self.hparams[name] for name in ("lr", "weight_decay")}
        self.warm_up_optimizer = torch.optim.SGD(self.network.parameters(), momentum=0.9, **rates)
        networks = nn.ModuleList([self.network, self.encoder, self.decoder])
        self.optimizer = build_adam(networks.parameters(), self.hparams)

    def attach_inputs(self, inputs: TrainingInputs) -> None:
        """Take hold of the training inputs, for the pass at the end of the warm-up."""
        self.inputs = inputs

    @property
    def warming_up(self) -> bool:
        """Whether the step is one of the warm-up."""
        return bool(self.steps_done < self.hparams["warm_up"])

    def passes(self, batch: Batch) -> tuple[Tensor | None, ...]:
        """Return the network's logits and, after the warm-up, the encoder's and a sample of theirs."""
        if self.steps_done == self.hparams["warm_up"]:
            self.end_warm_up()
        logits = self.network(batch.weak)
        if self.warming_up:
            return logits, None, None
        encoded = self.encoder(batch.weak)
        # d ~ Dirichlet(κ), with a gradient through κ. Its sampler computes with doubles inside, so a device
        # without them lets the CPU draw.
        concentration = concentrate(encoded, batch.candidates)
        place = device_with_doubles(concentration.device)
        sample = Dirichlet(concentration.to(place), validate_args=False).rsample()
        return logits, encoded, sample.to(concentration.device)

    @torch.no_grad()
    def end_warm_up(self) -> None:
        """Build the graph from the network's features, and start the encoder as a copy of the network."""
        if self.inputs is None:
            raise RuntimeError("VALEN needs attach_inputs(inputs) before its main phase")
        features = pass_all_inputs(self.network[0], self.inputs)
        self.neighbours.copy_(find_nearest_rows(features, self.hparams["knn"]))
        self.encoder.load_state_dict(self.network.state_dict())
        self.sampled_targets.copy_(self.targets)

    def losses(self, outputs: tuple[Tensor, ...], batch: Batch) -> Mapping[str, Tensor]:
        """Return the network's loss alone in the warm-up, then the four terms."""
        logits, encoded, sample = outputs
        targets = self.rows("targets", batch.index)
        if self.warming_up:
            loss = smoothed_cross_entropy(logits.softmax(-1), targets)
            return {"loss": loss, "loss_net": loss}
        block = graph_block(self.rows("neighbours", batch.index), batch.index)
        decoded = self.decoder(sample)
        reconstruction = reconstruct(sample, batch.weak.flatten(1), decoded, batch.candidates, block)
        sampled_targets = self.rows("sampled_targets", batch.index)
        terms = {
            "loss_rec": torch.stack(reconstruction).sum(),
            "loss_alpha": divergence_from_uniform(encoded),
            "loss_enc": smoothed_cross_entropy(encoded.softmax(-1), targets),
            "loss_net": smoothed_cross_entropy(logits.softmax(-1), sampled_targets),
        }
        weights = [self.hparams[name] for name in ("alpha", "beta", "gamma", "theta")]
        weighted = [weight * term for weight, term in zip(weights, terms.values(), strict=True)]
        return {"loss": torch.stack(weighted).sum(), **terms}

    def descend(self, loss: Tensor) -> None:
        """Take a step of SGD in the warm-up, of Adam afterwards."""
        descend(self.warm_up_optimizer if self.warming_up else self.optimizer, loss)

    def revise(self, outputs: tuple[Tensor, ...], batch: Batch) -> None:
        """Renew the batch's targets from the network, and those of the sample from the old ones and it."""
        logits, _, sample = outputs
        if not self.warming_up:
            kept = sample * batch.candidates
            sampled = kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(sample.dtype).tiny)
            correct, targets = self.hparams["correct"], self.rows("targets", batch.index)
            self.write_rows("sampled_targets", batch.index, correct * sampled + (1 - correct) * targets)
        self.write_rows("targets", batch.index, restrict(logits.softmax(-1) + EPSILON, batch.candidates))

    def phases(self) -> Mapping[str, int]:
        """Return when the encoder starts to train."""
        return {"inference of label distributions (warm_up)": self.hparams["warm_up"]}


def clamped_concentration(logits: Tensor) -> Tensor:
    """Return a = exp(z/4) clamped to [0.01, 30], the concentration that is kept near uniform.

    Where the clamp acts the gradient is 0; the first clamp keeps it so where the exponential would overflow.
    """
    return (logits / 4).clamp(max=10).exp().clamp(0.01, 30)


def divergence_from_uniform(logits: Tensor) -> Tensor:
    """Return the mean KL(Dir(a) ‖ Dir(1, …, 1)) of the clamped concentration a."""
    a = clamped_concentration(logits)
    total = a.sum(-1, keepdim=True)
    log_norms = total.lgamma().squeeze(-1) - a.lgamma().sum(-1) - math.lgamma(logits.shape[-1])
    return (log_norms + ((a - 1) * (a.digamma() - total.digamma())).sum(-1)).mean(-1)


class Reconstruction(NamedTuple):
    """The three terms: inputs, candidates and graph, weighted as in the objective."""

    inputs: Tensor
    candidates: Tensor
    graph: Tensor


def reconstruct(d: Tensor, x: Tensor, decoded: Tensor, candidates: Tensor, block: Tensor) -> Reconstruction:
    """Return the losses of reconstructing inputs, candidates and graph from the distributions d (B, K)."""
    graph = (d @ d.T).sigmoid().softmax(-1)
    return Reconstruction(
        SMALL * mse_loss(decoded, x),
        SMALL * binary_cross_entropy_with_logits(d, candidates.to(d.dtype)),
        mse_loss(graph, block.to(graph.dtype)),
    )


def find_nearest_rows(features: Tensor, k: int) -> Tensor:
    """Return the k nearest other rows (N, k) of each row, Euclidean, the lowest index first on ties.

    Exact, in double precision, a few rows at a time: no N × N matrix exists at any time. With fewer than
    k + 1 rows all others are neighbours.
    """
    centred = features.to(device_with_doubles(features.device)).double()
    centred = centred - centred.mean(0)
    squares = centred.square().sum(-1)
    rows = len(centred)
    nearest = torch.empty(rows, min(k, rows - 1), dtype=torch.int64, device=centred.device)
    room = centred.new_empty(min(DISTANCE_ROWS, rows), rows)
    for start in range(0, rows, DISTANCE_ROWS):
        chunk = centred[start : start + DISTANCE_ROWS]
        own = torch.arange(len(chunk), device=centred.device)
        # The row's own square is the same for all its columns and does not change their order.
        distances = torch.addmm(squares, chunk, centred.T, alpha=-2, out=room[: len(chunk)])
        distances[own, own + start] = torch.inf
        for j in range(nearest.shape[1]):
            closest = distances.argmin(-1)
            nearest[start : start + len(chunk), j] = closest
            distances[own, closest] = torch.inf
    return nearest


def graph_block(neighbours: Tensor, index: Tensor) -> Tensor:
    """Return the rows and columns `index` (B,) of the graph's matrix (adjacency + identity)/(k + 1).

    `neighbours` (B, k) are those of the rows `index`.
    """
    near = (neighbours[:, :, None] == index).any(1)
    return (near | (index[:, None] == index)) / (neighbours.shape[1] + 1)


def build_decoder(num_classes: int, width: int) -> nn.Sequential:
    """Build Linear(K, D), ReLU, Linear(D, D) with Xavier-normal weights and biases of 0.01."""
    decoder = nn.Sequential(nn.Linear(num_classes, width), nn.ReLU(), nn.Linear(width, width))
    for layer in decoder:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.constant_(layer.bias, 0.01)
    return decoder
