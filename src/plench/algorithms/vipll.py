"""VIPLL: amortised variational inference of the labels, with a generative model of the inputs."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import hardsigmoid, linear, mse_loss, softplus

from plench.algorithms.base import Adam, Batch, LossAlgorithm, TrainingInputs, build_adam, descend, register
from plench.algorithms.parts.views import read_inputs
from plench.hparams import Choice, Hyperparameter, LogRange

# Added to probabilities before the logarithm, and in the revision.
EPSILON = 1e-10
# Latent draws of the likelihood, and the share with which their density counts in it.
DRAWS, LATENT_SHARE = 10, 0.01
# Numbers of the likelihood's largest tensors, H + D for each draw and pair, that are held at a time.
LARGEST = 2**24
# Standard deviation of the input noise, in ranges of the inputs.
INPUT_NOISE = 0.01
# Rates of the generator's Adam in the pre-training and in the main phase.
PRE_TRAINING_RATE, MAIN_RATE = 1e-3, 1e-4
# Latent and hidden size of the generator.
OF_TABLES, OF_IMAGES = (32, 128), (128, 512)


class Generator(nn.Module):
    """A conditional variational autoencoder of inputs on the unit scale, given weights (B, K) of the labels.

    `low` and `high` are the range of the training inputs, to which the unit scale refers; `sigma` is the
    standard deviation of inputs around their reconstruction.
    """

    low: Tensor
    high: Tensor
    sigma: Tensor

    def __init__(self, shape: Sequence[int], num_classes: int, latent: int, hidden: int) -> None:
        super().__init__()
        width = math.prod(shape)
        self.enc = nn.Linear(width + num_classes, hidden)
        self.mean, self.logvar = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.dec = nn.Linear(latent + num_classes, hidden)
        self.out = nn.Linear(hidden, width)
        self.register_buffer("low", torch.zeros(tuple(shape)))
        self.register_buffer("high", torch.zeros(tuple(shape)))
        self.register_buffer("sigma", torch.ones(()))

    def read_range(self, inputs: TrainingInputs) -> None:
        """Set the range to that of all training inputs."""
        parts = [(rows.amin(0), rows.amax(0)) for rows in read_inputs(inputs)]
        lows, highs = zip(*parts, strict=True)
        self.low.copy_(torch.stack(lows).amin(0))
        self.high.copy_(torch.stack(highs).amax(0))

    def to_unit(self, x: Tensor) -> Tensor:
        """Return inputs (B, …) on the unit scale, flattened to (B, D); a constant column is 0."""
        units: Tensor = (x - self.low) / (self.high - self.low).clamp(min=EPSILON)
        return units.flatten(1)

    def encode(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of the latents, given what the first layer gives."""
        hidden = hidden.relu()
        return self.mean(hidden), self.logvar(hidden).clamp(-20, 20)

    def decode(self, hidden: Tensor) -> Tensor:
        """Return reconstructions, given what the decoder's first layer gives."""
        return hardsigmoid(self.out(hidden.relu()))

    def losses(self, units: Tensor, labels: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean squared error, and the mean divergence of the latents from a standard normal."""
        mean, logvar = self.encode(self.enc(torch.cat([units, labels], -1)))
        latents = mean + (logvar / 2).exp() * noise
        decoded = self.decode(self.dec(torch.cat([latents, labels], -1)))
        return mse_loss(decoded, units), -(1 + logvar - mean.square() - logvar.exp()).mean() / 2

    @torch.no_grad()
    def log_likelihoods(self, units: Tensor, candidates: Tensor, noise: Tensor, num_pairs: int) -> Tensor:
        """Return log p(x | label) (B, K) by importance sampling, for latent noise (M, B, L).

        It is computed for `num_pairs` pairs of a row and a label, all candidates and perhaps others among
        them; what is not a candidate has the least value of the row's candidates. A label is a column of the
        first layers' weights, so that only their other columns are multiplied.
        """
        pairs = candidates.flatten().byte().topk(num_pairs, sorted=False).indices
        rows, labels = pairs // candidates.shape[1], pairs % candidates.shape[1]
        of_units, of_label = self.enc.weight.split([units.shape[1], candidates.shape[1]], 1)
        mean, logvar = self.encode(linear(units, of_units, self.enc.bias)[rows] + of_label.T[labels])
        of_latents, of_label = self.dec.weight.split([noise.shape[2], candidates.shape[1]], 1)
        given = self.dec.bias + of_label.T[labels]
        targets, deviation = units[rows], (logvar / 2).exp()
        variance = self.sigma.clamp(min=1e-3).square()
        found = units.new_full((num_pairs,), -torch.inf)
        numbers = num_pairs * (len(self.dec.bias) + units.shape[1])
        for part in noise.split(max(1, LARGEST // numbers)):
            drawn = part[:, rows]
            latents = mean + deviation * drawn
            errors = (self.decode(linear(latents, of_latents) + given) - targets).square().mean(-1)
            densities = (latents.square() - drawn.square() - logvar).mean(-1)
            log_weights = -(errors / variance + (2 * math.pi * variance).log() + LATENT_SHARE * densities) / 2
            found = torch.logaddexp(found, log_weights.logsumexp(0))
        table = units.new_zeros(candidates.numel()).scatter(0, pairs, found - math.log(len(noise)))
        table = table.unflatten(0, candidates.shape)
        lowest = table.masked_fill(~candidates, torch.inf).amin(-1, keepdim=True)
        return torch.where(candidates, table, lowest)


class Terms(NamedTuple):
    """Means over rows: −entropy of the labels, and their log-probability by prior, inputs and sets."""

    labels: Tensor
    prior: Tensor
    inputs: Tensor
    sets: Tensor


def concentrate(logits: Tensor) -> Tensor:
    """Return the concentration α = 1 + log(1 + e^z) of the labels' Dirichlet distribution."""
    return 1 + softplus(logits)


def infer_terms(logits: Tensor, weights: Tensor, likelihoods: Tensor, prior: Tensor) -> Terms:
    """Return the four expectations over label distributions drawn from the Dirichlet, exactly."""
    alpha = concentrate(logits)
    total = alpha.sum(-1, keepdim=True)
    mean = alpha / total
    logs = (
        (alpha + 1).digamma() - (total + 1).digamma(),
        (prior + EPSILON).log(),
        likelihoods,
        (weights + EPSILON).log(),
    )
    return Terms(*((mean * log).sum(-1).mean() for log in logs))


def compete(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the candidates' expected probabilities, divided by the largest; 0 for other labels."""
    alpha = concentrate(logits)
    kept = (alpha / alpha.sum(-1, keepdim=True) + EPSILON) * candidates
    return kept / kept.amax(-1, keepdim=True)


def find_prior(candidates: Tensor) -> Tensor:
    """Return the class distribution (K,) of largest entropy that the candidates (N, K) allow.

    A class has at least the share of the examples whose only candidate it is, at most that of those with it
    as a candidate; within these bounds all are at one level. Counts keep the sums exact.
    """
    sets = candidates.cpu().double()
    lower, upper = sets[sets.sum(1) == 1].sum(0), sets.sum(0)
    corners = torch.cat([lower, upper]).sort().values
    sums = corners[:, None].clamp(lower, upper).sum(1)
    last = int((sums <= len(sets)).sum()) - 1
    free = ((lower <= corners[last]) & (corners[last] < upper)).sum().clamp(min=1)
    level = corners[last] + (len(sets) - sums[last]) / free
    return level.clamp(lower, upper) / len(sets)


@register(
    "VIPLL",
    not_stackable="each step draws noise, so runs would need each other's random numbers",
    family="holistic PLL",
    venue="arXiv 2025",
    views=("original", "weak"),
    passes="generator alone in pre-training, then 1 of each of two networks and 1 of the generator; without "
    "gradient, 10 of its decoder per candidate",
    state="label weights N×K, prior K, second network, generator, range of the inputs 2×D",
    hyperparameters=(
        Hyperparameter(
            "likelihood_weight", 10.0, "weight of the inputs' likelihood", LogRange(0, 2.4), at_least=0
        ),
        Hyperparameter("prior_weight", 0.0, "weight of the class prior", Choice(0.0, 2.0, 5.0), at_least=0),
    ),
    logs={
        "loss_label": "negative evidence of the labels (main phase)",
        "loss_gen": "reconstruction error and divergence of the generator",
        "term_x": "expected log-likelihood of the inputs, unweighted (main phase)",
    },
    cite="fuchs2025amortized",
)
class VIPLL(LossAlgorithm):
    """Infer the posterior of each label from how well a generative model explains the input with it.

    Two networks predict a Dirichlet distribution over label distributions. It is fitted to the posterior by
    an evidence lower bound: how spread the labels are, the class prior, the likelihood of the input given the
    label by a conditional autoencoder, and the candidate set, in which candidates compete softly. A first
    third of the run trains the autoencoder alone.

    Objective: L_gen + E_q[Σ_k q_k (log q_k − δ log π_k − β log p(x | k) − log w_k)], averaged over rows, for
    q ~ Dirichlet(1 + softplus(z)), z the mean logits of the networks on inputs with noise; after the step
    w_ik ← E[q_ik]/max_{j∈S_i} E[q_ij] on S_i. L_gen is the squared error of the reconstruction plus the
    divergence of the latents. In the first T/3 steps L_gen alone.
    """

    transient = ("inputs",)
    training_only = ("generator",)

    label_weights: Tensor
    prior: Tensor

    def build_networks(self, input_shape: Sequence[int]) -> None:
        """Build the network, its copy, which will see other noise, and the generator."""
        super().build_networks(input_shape)
        self.twin = copy.deepcopy(self.network)
        sizes = OF_TABLES if len(input_shape) == 2 else OF_IMAGES
        self.generator = Generator(input_shape[1:], self.num_classes, *sizes)

    def setup(self, candidates: Tensor) -> None:
        """Start from a weight of 1 on each candidate, and find the class prior."""
        self.per_example("label_weights", candidates.to(torch.get_default_dtype()))
        self.register_buffer("prior", find_prior(candidates).to(torch.get_default_dtype()))
        self.most_candidates = int(candidates.sum(-1).max())
        self.inputs: TrainingInputs | None = None

    def build_optimizers(self) -> None:
        """Build an Adam for both networks and one for the generator."""
        self.optimizer = build_adam(nn.ModuleList([self.network, self.twin]).parameters(), self.hparams)
        self.generator_optimizer = self.build_generator_optimizer()

    def build_generator_optimizer(self) -> Adam:
        """Build the generator's Adam for the phase of the step."""
        rate = PRE_TRAINING_RATE if self.pre_training else MAIN_RATE
        return build_adam(self.generator.parameters(), {"lr": rate, "weight_decay": 0})

    def attach_inputs(self, inputs: TrainingInputs) -> None:
        """Read the range of the training inputs."""
        self.inputs = inputs
        self.generator.read_range(inputs)

    @property
    def first_main_step(self) -> int:
        """The step in which the networks start to train."""
        step: int = self.hparams["max_steps"] // 3
        return step

    @property
    def pre_training(self) -> bool:
        """Whether the step trains the generator alone."""
        return self.steps_done < self.first_main_step

    def draw_noise(self, x: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Draw noise of inputs x for each network (2, B, …), of latents (M, B, L) and of the generator."""
        latent = self.generator.mean.out_features

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, dtype=x.dtype, device=x.device)

        if self.pre_training:
            return None, None, draw(len(x), latent)
        return draw(2, *x.shape), draw(DRAWS, len(x), latent), draw(len(x), latent)

    def passes(self, batch: Batch) -> tuple[Tensor | None, ...]:
        """Return mean logits and log-likelihoods (B, K), none in pre-training, and the generator's losses."""
        if self.inputs is None:
            raise RuntimeError("VIPLL needs attach_inputs(inputs) before its first update")
        input_noise, latent_noise, noise = self.draw_noise(batch.weak)
        generator, units = self.generator, self.generator.to_unit(batch.original)
        losses = generator.losses(units, self.rows("label_weights", batch.index), noise)
        if input_noise is None or latent_noise is None:
            return None, None, *losses
        pairs = self.count_pairs(batch.candidates)
        likelihoods = generator.log_likelihoods(units, batch.candidates, latent_noise, pairs)
        first, second = batch.weak + INPUT_NOISE * (generator.high - generator.low) * input_noise
        return (self.network(first) + self.twin(second)) / 2, likelihoods, *losses

    def count_pairs(self, candidates: Tensor) -> int:
        """Return the number of a batch's candidates; a bound off the CPU, where to count is to wait."""
        if candidates.device.type == "cpu":
            return int(np.count_nonzero(candidates.numpy()))
        return min(self.most_candidates * len(candidates), candidates.numel())

    def losses(self, outputs: tuple[Tensor, ...], batch: Batch) -> Mapping[str, Tensor]:
        """Return the generator's loss and, in the main phase, the negative evidence of the labels."""
        logits, likelihoods, error, divergence = outputs
        of_generator = error + divergence
        if self.pre_training:
            return {"loss": of_generator, "loss_gen": of_generator}
        weights = self.rows("label_weights", batch.index)
        terms = infer_terms(logits, weights, likelihoods, self.prior)
        of_labels = terms.labels - terms.sets - self.hparams["prior_weight"] * terms.prior
        of_labels = of_labels - self.hparams["likelihood_weight"] * terms.inputs
        logged = {"loss_label": of_labels, "loss_gen": of_generator, "term_x": terms.inputs}
        return {"loss": of_labels + of_generator, **logged}

    def descend(self, loss: Tensor) -> None:
        """Take a step of the generator and, in the main phase, of the networks; neither sees the other."""
        if self.pre_training:
            descend(self.generator_optimizer, loss)
            return
        if self.steps_done == self.first_main_step:
            self.generator_optimizer = self.build_generator_optimizer()
        self.generator_optimizer.zero_grad(set_to_none=True)
        super().descend(loss)
        self.generator_optimizer.step()

    def revise(self, outputs: tuple[Tensor, ...], batch: Batch) -> None:
        """Let sigma follow the generator's error in pre-training; later, renew the candidates' weights."""
        logits, _, error, _ = outputs
        if not self.pre_training:
            self.write_rows("label_weights", batch.index, compete(logits, batch.candidates))
        else:
            kept = 0.95 if self.steps_done else 0.0
            self.generator.sigma.mul_(kept).add_((1 - kept) * error.sqrt())

    def predict(self, x: Tensor) -> Tensor:
        """Return log α (B, K), whose softmax is the expected label distribution, for network inputs x."""
        return softplus((self.network(x) + self.twin(x)) / 2).log1p()

    def phases(self) -> Mapping[str, int]:
        """Return when the networks start to train."""
        return {"inference of the labels (max_steps)": self.first_main_step}
