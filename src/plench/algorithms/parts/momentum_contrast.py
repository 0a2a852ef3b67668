"""What PiCO, ALIM and PiCO+ are built from: two networks, a queue of keys, prototypes and confidences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms.base import Algorithm, build_adam
from plench.algorithms.parts.momentum import copy_without_gradient, follow
from plench.algorithms.parts.prototypes import update_prototypes
from plench.algorithms.parts.queue import RingQueue, draw_empty_features
from plench.algorithms.parts.schedule import confidence_momentum, parse_range
from plench.algorithms.parts.targets import uniform_over
from plench.algorithms.parts.two_headed import TwoHeadedNetwork
from plench.hparams import Choice, Hyperparameter

SHARED_HPARAMS = (
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


class MomentumContrast(Algorithm):
    """The common state: `network` asks, `key_network` follows it, `queue` holds past keys with labels.

    `prototypes` (K, D) start at 0, `confidence` (N, K) at equal weight on each candidate. `steps_done` counts
    updates.
    """

    prototypes: Tensor
    confidence: Tensor

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        self.confidence_range = parse_range("conf_ema_range", self.hparams["conf_ema_range"])
        self.network = TwoHeadedNetwork(input_shape, self.num_classes, self.hparams)
        self.key_network = copy_without_gradient(self.network)
        self.queue = RingQueue(**self.empty_queue())
        self.register_buffer("prototypes", torch.zeros(self.num_classes, self.hparams["feat_dim"]))
        self.per_example("confidence", uniform_over(torch.from_numpy(np.asarray(train_givenY) != 0)))
        self.optimizer = build_adam(self.network.parameters(), self.hparams)
        self.steps_done = 0

    def empty_queue(self) -> dict[str, Tensor]:
        """Return the columns of the queue before the first batch: unit columns, and −1 for no label."""
        length = self.hparams["moco_queue"]
        features = draw_empty_features(length, self.hparams["feat_dim"], axis=0)
        return {"features": features, "labels": torch.full((length,), -1)}

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
        moved = momentum * self.confidence.index_select(0, index) + (1 - momentum) * targets
        self.confidence.index_copy_(0, index, moved)
        return moved

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K) for network inputs x."""
        return self.network.classify(x)
