"""What a record holds: means of what updates log, and every criterion from one evaluation pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms import Algorithm
from plench.criteria import Criterion, accuracy, criteria, measure_all
from plench.data.splits import THIRDS
from plench.training.data import PreparedData
from plench.training.inputs import Inputs, Stored

# Examples per forward pass without gradients. On a CPU the numbers that enter a pass are limited as well:
# the maps of more images leave the cache (docs/results/image_step.md).
CHUNK = 1024
CHUNK_NUMBERS_ON_CPU = 2**18


def choose_chunk(stored: Stored) -> int:
    """Return how many examples go into one pass without gradients."""
    if stored.device.type != "cpu":
        return CHUNK
    return max(1, min(CHUNK, CHUNK_NUMBERS_ON_CPU // math.prod(stored.shape[1:])))


def predict_logits(
    algorithm: Algorithm, inputs: Inputs, stored: Stored, after_batch: Callable[[int], None] | None = None
) -> np.ndarray:
    """Return logits (n, K) of stored examples, in evaluation mode and without gradients.

    `after_batch` is called with the number of examples of each batch; what it raises ends the pass.
    """
    if len(stored) == 0:  # the run leaves this part out
        return np.empty((0, algorithm.num_classes))
    chunk = choose_chunk(stored)
    modes = {module: module.training for module in algorithm.modules()}
    algorithm.eval()
    try:
        with torch.no_grad():
            parts = []
            for start in range(0, len(stored), chunk):
                parts.append(algorithm.predict(inputs.original(stored[start : start + chunk])))
                if after_batch is not None:
                    after_batch(len(parts[-1]))
            return torch.cat(parts).cpu().double().numpy()
    finally:
        for module, training in modes.items():  # an algorithm may keep parts of itself in evaluation mode
            module.training = training


def evaluate(algorithm: Algorithm, data: PreparedData) -> dict[str, float | None] | None:
    """Return the figures of a record, or None if a logit is not finite."""
    validation = predict_logits(algorithm, data.inputs, data.validation.stored)
    return measure(validation, predict_logits(algorithm, data.inputs, data.test.stored), data)


def measure(
    validation: np.ndarray, test: np.ndarray, data: PreparedData, more_criteria: Sequence[Criterion] = ()
) -> dict[str, float | None] | None:
    """Return the record's figures from the logits (n, K) of both sets; None if one is not finite."""
    if not (np.isfinite(validation).all() and np.isfinite(test).all()):
        return None
    held_out = data.validation
    assert held_out.candidates is not None
    if len(validation):
        figures = measure_all(validation, held_out.candidates, held_out.labels, more_criteria)
    else:  # the run holds nothing out
        figures = {c.record_key: None for c in (*criteria.values(), *more_criteria)}
    labels = data.test.labels
    figures["test_acc"] = None if labels is None or not len(labels) else accuracy(test, labels)
    if labels is not None and data.test.thirds is not None:
        figures |= accuracy_by_third(test, labels, data.test.thirds)
    return figures


def accuracy_by_third(logits: np.ndarray, labels: np.ndarray, thirds: np.ndarray) -> dict[str, float | None]:
    """Return the accuracy on the classes with many, medium and few training examples; None without any."""
    figures: dict[str, float | None] = {}
    for third, name in enumerate(THIRDS):
        chosen = thirds[labels] == third
        figures[f"test_acc_{name}"] = accuracy(logits[chosen], labels[chosen]) if chosen.any() else None
    return figures


class Totals:
    """Sums of what updates log since the last record, kept on the device so that no update waits for it."""

    def __init__(self) -> None:
        self.count = 0
        self.counts: dict[str, int] = {}
        self.sums: dict[str, Tensor | float] = {}

    def add(self, logged: Mapping[str, Tensor | float]) -> None:
        """Add what one update logged."""
        if "loss" not in logged:
            raise TypeError(f"update must return a mapping with the key 'loss', not {logged!r}")
        self.count += 1
        for name, value in logged.items():
            value = value.detach() if isinstance(value, Tensor) else float(value)
            if name in self.sums:
                self.sums[name] = self.sums[name] + value
                self.counts[name] += 1
            else:  # a copy, because an algorithm may log a buffer that it changes in place later
                self.sums[name] = value.clone() if isinstance(value, Tensor) else value
                self.counts[name] = 1

    @classmethod
    def stack(cls, totals: Sequence[Totals]) -> Totals:
        """Return the sums of several runs as tensors (R,)."""
        together, first = cls(), totals[0]
        if any((each.count, each.counts) != (first.count, first.counts) for each in totals):
            raise ValueError("they have logged at different steps")
        together.count, together.counts = first.count, dict(first.counts)
        for name in first.sums:
            together.sums[name] = torch.stack([torch.as_tensor(each.sums[name]) for each in totals])
        return together

    def of_run(self, number: int) -> Totals:
        """Return one run's part of the sums of a stack."""
        own = Totals()
        own.count, own.counts = self.count, dict(self.counts)
        for name, value in self.sums.items():
            stacked = isinstance(value, Tensor) and value.dim() > 0
            own.sums[name] = value[number].clone() if stacked else value  # type: ignore[index]
        return own

    def means(self) -> dict[str, float]:
        """Return each name's mean over the updates that logged it; this waits for the device."""
        return {name: float(value) / self.counts[name] for name, value in self.sums.items()}

    def state(self) -> dict[str, Any]:
        """Return counts and sums."""
        sums = {k: v.cpu() if isinstance(v, Tensor) else v for k, v in self.sums.items()}
        return {"count": self.count, "counts": self.counts, "sums": sums}

    def load_state(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Resume from `state()`."""
        self.count = state["count"]
        self.counts = dict(state["counts"])
        self.sums = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in state["sums"].items()}
