"""Contrastive learning: the network with a projection head, the losses, and slow copies of weights.

`MomentumContrast`, at the end, puts the parts together; PiCO, ALIM and PiCO+ are built on it.

Anchors are the queries q (B, D). Contrasts are the queries themselves, the keys (B, D) and the queue (Q, D),
in this order; keys and queue carry no gradient. A similarity is s_ij = q_i·x_j/τ. The loss of an anchor with
weights W_i over its positives is −Σ_j W_ij (s_ij − log Σ_{a≠i} exp s_ia). As the logarithm does not depend on
j, only it and Σ_j W_ij s_ij are needed, and the latter is a product with weighted sums of contrasts: no
matrix of B × Q entries is kept for the gradient.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from plench.algorithms.base import LossAlgorithm
from plench.algorithms.parts.targets import NEG_INF, uniform_over
from plench.errors import UsageError
from plench.hparams import Choice, Hyperparameter
from plench.networks import Classifier, Featurizer

BASE_TEMPERATURE = 0.07
# Added to the sum of exp(s − s_self); the authors' guard. It matters only if all other similarities are tiny.
GUARD = 1e-12
# Rows of the queue per product: a block of similarities then stays in the processor's cache.
PIECE = 1024
MOMENTUM_HPARAMS = (
    Hyperparameter("feat_dim", 128, "width of the projection", Choice(64, 128, 256), at_least=1),
    Hyperparameter("moco_queue", 8192, "length of the queue", Choice(4096, 8192), at_least=1),
    Hyperparameter("moco_m", 0.999, "momentum of the key network", Choice(0.9, 0.999), at_least=0, at_most=1),
    Hyperparameter("proto_m", 0.99, "momentum of the prototypes", Choice(0.99, 0.9), at_least=0, at_most=1),
    Hyperparameter("conf_ema_range", "0.95,0.8", "momentum of the confidence at the first and the last step"),
    Hyperparameter(
        "momentum",
        0.9,
        "read by nothing (left over from SGD): kept because the draws of the protocol include it",
        Choice(0.8, 0.9),
    ),
)


class TwoHeadedNetwork(nn.Module):
    """Featurizer, classifier, and projection head (two linear layers with a ReLU, then unit rows).

    Each head can be asked for alone; what the other would have given is then not computed. Both answer in
    the precision of their parameters, also under autocast, because their outputs become state.
    """

    def __init__(self, input_shape: Sequence[int], num_classes: int, hparams: Mapping[str, Any]) -> None:
        super().__init__()
        self.featurizer = Featurizer(input_shape, hparams)
        width = self.featurizer.n_outputs
        self.classifier = Classifier(width, num_classes)
        self.projector = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, hparams["feat_dim"])
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, K) and unit rows (B, D) from one pass."""
        hidden = self.featurizer(x)
        return self._classify(hidden), self._project(hidden)

    def classify(self, x: Tensor) -> Tensor:
        """Return logits (B, K)."""
        return self._classify(self.featurizer(x))

    def project(self, x: Tensor) -> Tensor:
        """Return unit rows (B, D)."""
        return self._project(self.featurizer(x))

    def _classify(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.classifier(hidden)
        return logits.to(self.classifier.weight.dtype)

    def _project(self, hidden: Tensor) -> Tensor:
        return to_unit_rows(self.projector(hidden).to(self.classifier.weight.dtype))


def to_unit_rows(values: Tensor) -> Tensor:
    """Divide each row by its Euclidean length (by 1e-12 if it is shorter than that)."""
    return normalize(values, dim=-1, eps=1e-12)


class ContrastiveAlgorithm(LossAlgorithm):
    """An algorithm with a two-headed network: a pass gives logits (B, K) and unit projections (B, D)."""

    network: TwoHeadedNetwork

    def build_networks(self, input_shape: Sequence[int]) -> None:
        """Build a network with a projection head."""
        self.network = TwoHeadedNetwork(input_shape, self.num_classes, self.hparams)

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K) for network inputs x."""
        return self.network.classify(x)


# Losses -----------------------------------------------------------------------------------------------------


class LogMass(torch.autograd.Function):
    """log Σ_j exp(q_i·x_j/τ) over constant rows x; the gradient, a weighted mean of them, comes along."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, rows: Tensor, temperature: float) -> Tensor:
        """Go through the rows in pieces, keeping a running maximum, sum and weighted sum."""
        with torch.autocast(queries.device.type, enabled=False):
            scaled = queries / temperature
            peak = torch.full_like(scaled[:, :1], NEG_INF)
            mass = torch.zeros_like(peak)
            pull = torch.zeros_like(scaled)
            for piece in rows.split(PIECE):
                similarities = scaled @ piece.T
                higher = torch.maximum(peak, similarities.amax(-1, keepdim=True))
                weights = similarities.sub_(higher).exp_()
                shrink = (peak - higher).exp_()
                mass = mass * shrink + weights.sum(-1, keepdim=True)
                pull = torch.addmm(pull * shrink, weights, piece)
                peak = higher
            ctx.save_for_backward(pull / (mass * temperature))
            return (mass.log() + peak).squeeze(-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Return the softmax-weighted mean of the rows, over τ."""
        (slope,) = ctx.saved_tensors
        return gradient[:, None] * slope, None, None


def log_mass(queries: Tensor, rows: Tensor, temperature: float) -> Tensor:
    """Return log Σ_j exp(q_i·x_j/τ) (B,) over rows x (M, D) that carry no gradient."""
    mass: Tensor = LogMass.apply(queries, rows, temperature)  # type: ignore[no-untyped-call]
    return mass


def instance_contrast(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Return the mean of −log of the own key's share among the own key and the queue ("MoCo")."""
    own = (queries * keys).sum(-1) / temperature
    return (torch.logaddexp(own, log_mass(queries, queue, temperature)) - own).mean()


class Similarities(NamedTuple):
    """Similarities of the anchors to the batch's queries and keys (B, B), and log Σ_{a≠i} exp s_ia (B,)."""

    queries: Tensor
    keys: Tensor
    log_denominator: Tensor


def compare(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> Similarities:
    """Compare the anchors with all contrasts. The own query is left out of the denominator."""
    to_queries = queries @ queries.T / temperature
    to_keys = queries @ keys.T / temperature
    to_queue = log_mass(queries, queue, temperature)
    guard = to_queries.detach().diagonal() + math.log(GUARD)
    others = to_queries.masked_fill(own_entries(to_queries), NEG_INF)
    terms = torch.cat([others, to_keys, to_queue[:, None], guard[:, None]], dim=-1)
    return Similarities(to_queries, to_keys, terms.logsumexp(-1))


def own_entries(square: Tensor) -> Tensor:
    """Return the mask of the diagonal of a matrix (B, B)."""
    return torch.eye(len(square), dtype=torch.bool, device=square.device)


class ClassSums(NamedTuple):
    """Of each class, the sum of its entries' features (K, D) and their number (K,)."""

    features: Tensor
    counts: Tensor


def sum_by_label(features: Tensor, labels: Tensor, num_classes: int, used: Tensor | None = None) -> ClassSums:
    """Sum features (M, D) by label (M,), those marked in `used` only, if given. Label −1 belongs nowhere."""
    members = torch.arange(num_classes, device=labels.device)[:, None] == labels
    if used is not None:
        members = members & used
    counted = members.to(features.dtype)
    return ClassSums(counted @ features, counted.sum(-1))


def mean_similarity_by_label(
    similarities: Similarities,
    queries: Tensor,
    labels: Tensor,
    queue: ClassSums,
    temperature: float,
    used: Tensor | None = None,
) -> Tensor:
    """Return the mean of s_ij over the positives j ≠ i with the anchor's label (B,).

    Only the batch's examples marked in `used` are positives, if given; `queue` must then be restricted as
    well. An anchor with no positive gets 0.
    """
    same = labels[:, None] == labels
    if used is not None:
        same = same & used
    keys = same.to(queries.dtype)
    others = keys.masked_fill(own_entries(keys), 0)
    total = (others * similarities.queries + keys * similarities.keys).sum(-1)
    total = total + (queries * queue.features[labels]).sum(-1) / temperature
    count = others.sum(-1) + keys.sum(-1) + queue.counts[labels]
    return total / count.clamp(min=1)


def supervised_contrast(
    queries: Tensor, keys: Tensor, labels: Tensor, queue: Tensor, queue_labels: Tensor, num_classes: int
) -> Tensor:
    """Return the mean contrastive loss in which contrasts with the anchor's label are equal positives.

    The own key always is one of them; the own query never is. Temperature: the base temperature.
    """
    similarities = compare(queries, keys, queue, BASE_TEMPERATURE)
    sums = sum_by_label(queue, queue_labels, num_classes)
    positive = mean_similarity_by_label(similarities, queries, labels, sums, BASE_TEMPERATURE)
    return (similarities.log_denominator - positive).mean()


# Moving averages and the queue of past keys -----------------------------------------------------------------


@torch.no_grad()
def follow(average: nn.Module, network: nn.Module, momentum: float) -> None:
    """Move the average's parameters: θ_avg ← m θ_avg + (1 − m) θ.

    Buffers, such as the running statistics of batch norm, are left alone: the average runs in training mode.
    """
    torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 1 - momentum)


@torch.no_grad()
def update_prototypes(
    prototypes: Tensor, features: Tensor, labels: Tensor, momentum: float, used: Tensor | None = None
) -> Tensor:
    """Return the prototypes (K, D) after μ_y ← γ μ_y + (1 − γ) q for each example in batch order, made unit.

    In closed form: an example with r later ones of its class enters with (1 − γ) γ^r, and the old prototype
    keeps γ^m after m examples. Only examples marked in `used` (B,) count, if given. A class that no example
    has had stays 0.
    """
    classes = torch.arange(len(prototypes), device=labels.device)
    members = labels[:, None] == classes
    if used is not None:
        members = members & used[:, None]
    counted = members.to(features.dtype)
    up_to_here = counted.cumsum(0)
    counts = up_to_here[-1]
    entering = counted * (1 - momentum) * momentum ** (counts - up_to_here)
    return to_unit_rows(momentum ** counts[:, None] * prototypes + entering.T @ features)


def confidence_momentum(step: int, max_steps: int, ends: tuple[float, float]) -> float:
    """Return the momentum φ of the confidence at a step.

    It goes in a straight line from the first to the second end, one step behind; the first step has 0.99.
    """
    if step == 0:
        return 0.99
    start, end = ends
    return start + (step - 1) / max_steps * (end - start)


def parse_range(name: str, text: str) -> tuple[float, float]:
    """Read a range such as "0.95,0.8", both ends in [0, 1]."""
    try:
        start, end = (float(part) for part in text.split(","))
    except ValueError:
        start = end = -1.0
    if not (0 <= start <= 1 and 0 <= end <= 1):
        raise UsageError(f"hyperparameter {name} must be two numbers in [0, 1] like '0.95,0.8', not {text!r}")
    return start, end


class RingQueue(nn.Module):
    """Named columns of Q slots each; the newest batch overwrites the oldest entries, in all columns alike.

    The columns given are the content of the empty queue; the caller makes them such that an empty slot is
    never taken for a real entry. Q need not be a multiple of the batch size.
    """

    position: Tensor

    def __init__(self, **columns: Tensor) -> None:
        super().__init__()
        self.length = len(next(iter(columns.values())))
        for name, slots in columns.items():
            self.register_buffer(name, slots)
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def __getitem__(self, column: str) -> Tensor:
        return self.get_buffer(column)

    @torch.no_grad()
    def push(self, **entries: Tensor) -> None:
        """Write a batch's entries in batch order, wrapping around; of more than Q entries the last Q stay."""
        count = len(next(iter(entries.values())))
        skipped = max(0, count - self.length)
        order = torch.arange(skipped, count, device=self.position.device)
        slots = (self.position + order) % self.length
        for name, values in entries.items():
            self[name].index_copy_(0, slots, values[skipped:])
        self.position.add_(count).remainder_(self.length)


def draw_empty_features(length: int, width: int, axis: int) -> Tensor:
    """Draw the features of an empty queue (Q, D): standard normal, scaled to length 1 along `axis`.

    Axis 0 makes the columns unit, so that rows are short (about √(D/Q)) and weak negatives; axis 1 the rows.
    """
    return normalize(torch.randn(length, width), dim=axis)


# All of it together -----------------------------------------------------------------------------------------


class MomentumContrast(ContrastiveAlgorithm):
    """The state of PiCO, ALIM and PiCO+.

    `network` gives queries, `key_network` follows it and gives keys, `queue` holds past keys with their
    labels. `prototypes` (K, D) start at 0, `confidence` (N, K) at equal weight on each candidate.
    """

    prototypes: Tensor

    def setup(self, candidates: Tensor) -> None:
        """Copy the network, draw an empty queue, and start prototypes and confidence."""
        self.confidence_range = parse_range("conf_ema_range", self.hparams["conf_ema_range"])
        self.key_network = copy.deepcopy(self.network).requires_grad_(False)
        self.queue = RingQueue(**self.empty_queue())
        self.register_buffer("prototypes", torch.zeros(self.num_classes, self.hparams["feat_dim"]))
        self.per_example("confidence", uniform_over(candidates))

    def empty_queue(self) -> dict[str, Tensor]:
        """Return the columns of the queue before the first batch: unit columns, and −1 for no label."""
        length = self.hparams["moco_queue"]
        features = draw_empty_features(length, self.hparams["feat_dim"], axis=0)
        return {"features": features, "labels": torch.full((length,), -1)}

    def compare_with_prototypes(self, queries: Tensor) -> Tensor:
        """Return the cosines q_i·μ_k (B, K), as constants."""
        return queries.detach() @ self.prototypes.T

    def move_prototypes(self, queries: Tensor, labels: Tensor, used: Tensor | None = None) -> None:
        """Move the prototypes towards the queries of their labels."""
        moved = update_prototypes(self.prototypes, queries.detach(), labels, self.hparams["proto_m"], used)
        self.prototypes.copy_(moved)

    @torch.no_grad()
    def encode_keys(self, x: Tensor) -> Tensor:
        """Let the key network follow, then return its projections (B, D)."""
        follow(self.key_network, self.network, self.hparams["moco_m"])
        return self.key_network.project(x)

    def move_confidence(self, index: Tensor, targets: Tensor) -> Tensor:
        """Move the batch's confidences to φ c + (1 − φ) target, and return them."""
        momentum = confidence_momentum(self.steps_done, self.hparams["max_steps"], self.confidence_range)
        moved = momentum * self.rows("confidence", index) + (1 - momentum) * targets
        self.write_rows("confidence", index, moved)
        return moved
