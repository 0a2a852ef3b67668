"""Callbacks that observe a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from plench.training.config import RunConfig


class Callback(Protocol):
    """Observes a run: a progress bar, a log, a sweep's live view.

    Two more methods are called where a callback has them: `evaluating(done, total)`, with numbers of
    examples, between the batches of an evaluation, and `stopping()` as soon as a stop is requested, from
    within a signal's handler.
    """

    def started(self, config: RunConfig, updates: int) -> None:
        """Training starts, or continues after `updates` updates."""

    def advanced(self, updates: int, loss: float) -> None:
        """Some updates were made (a few times per second); `loss` is the mean since the last record."""

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """A record was written."""


class NoCallback:
    """Observes nothing."""

    def started(self, config: RunConfig, updates: int) -> None:
        """Do nothing."""

    def advanced(self, updates: int, loss: float) -> None:
        """Do nothing."""

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Do nothing."""
