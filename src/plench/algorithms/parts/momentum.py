"""Moving averages: slow copies of a network, class prototypes, confidences, and a queue of past keys.

`MomentumContrast` puts them together; PiCO, ALIM and PiCO+ are built on it.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from plench.algorithms.parts.contrast import ContrastiveAlgorithm, normalise_rows
from plench.algorithms.parts.targets import uniform_over
from plench.errors import UsageError
from plench.hparams import Choice, Hyperparameter

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

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def copy_without_gradient(network: AnyModule) -> AnyModule:
    """Return an exact copy whose parameters collect no gradient."""
    return copy.deepcopy(network).requires_grad_(False)


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
    return normalise_rows(momentum ** counts[:, None] * prototypes + entering.T @ features)


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


class MomentumContrast(ContrastiveAlgorithm):
    """The state of PiCO, ALIM and PiCO+.

    `network` gives queries, `key_network` follows it and gives keys, `queue` holds past keys with their
    labels. `prototypes` (K, D) start at 0, `confidence` (N, K) at equal weight on each candidate.
    """

    prototypes: Tensor

    def setup(self, candidates: Tensor) -> None:
        """Copy the network, draw an empty queue, and start prototypes and confidence."""
        self.confidence_range = parse_range("conf_ema_range", self.hparams["conf_ema_range"])
        self.key_network = copy_without_gradient(self.network)
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
