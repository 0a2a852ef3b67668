"""A network with a projection head, and contrastive losses over queries, keys and a queue of older keys.

Anchors are the queries q (B, D). Contrasts are the queries themselves, the keys (B, D) and the queue (Q, D),
in this order; keys and queue carry no gradient. A similarity is s_ij = q_i·x_j/τ. The loss of an anchor with
weights W_i over its positives is −Σ_j W_ij (s_ij − log Σ_{a≠i} exp s_ia). As the logarithm does not depend on
j, only it and Σ_j W_ij s_ij are needed, and the latter is a product with weighted sums of contrasts: no
matrix of B × Q entries is kept for the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from plench.algorithms.base import LossAlgorithm
from plench.algorithms.parts.targets import NEG_INF
from plench.networks import Classifier, Featurizer

BASE_TEMPERATURE = 0.07
# Added to the sum of exp(s − s_self); the authors' guard. It matters only if all other similarities are tiny.
GUARD = 1e-12
# Rows of the queue per product: a block of similarities then stays in the processor's cache.
PIECE = 1024


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
        return normalise_rows(self.projector(hidden).to(self.classifier.weight.dtype))


def normalise_rows(values: Tensor) -> Tensor:
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
