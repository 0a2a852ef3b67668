"""Means of what updates log, without waiting for the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


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

    def means(self) -> dict[str, float]:
        """Return each name's mean over the updates that logged it; this waits for the device."""
        return {name: float(value) / self.counts[name] for name, value in self.sums.items()}

    def state(self) -> dict[str, Any]:
        """Return counts and sums."""
        sums = {k: v.cpu() if isinstance(v, Tensor) else v for k, v in self.sums.items()}
        return {"count": self.count, "counts": self.counts, "sums": sums}

    def load_state(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Continue from `state()`."""
        self.count = state["count"]
        self.counts = dict(state["counts"])
        self.sums = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in state["sums"].items()}
