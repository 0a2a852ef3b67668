"""What observes a run, and what stops it: callbacks, Ctrl-C, SIGTERM and SIGHUP."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Protocol, Self

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


class StopRequest:
    """Notes a request to stop; a second Ctrl-C stops immediately.

    Signal handlers belong to the main thread; in another one this never asks for a stop. `acknowledge` is
    called immediately, at the first request. A request within another one passes a stop on to it,
    and has been asked already if that one has. `ends_at`, by the monotonic clock, is when the time of this
    process ends.
    """

    def __init__(self, acknowledge: Callable[[], None] | None = None, ends_at: float = math.inf) -> None:
        self.asked = False
        self.ends_at = ends_at
        self._acknowledge = acknowledge
        self._before: dict[int, Any] = {}
        self._outer: StopRequest | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)  # Windows has no SIGHUP
                if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):
                    continue  # nohup: the run is to outlive its terminal
                self._before[number] = signal.signal(number, self._ask)
        outer = [getattr(handler, "__self__", None) for handler in self._before.values()]
        self._outer = next((found for found in outer if isinstance(found, StopRequest)), None)
        if self._outer is not None and self._outer.asked:
            self.asked = True
        return self

    def has_time(self, seconds: float) -> bool:
        """Return True if at least so many seconds are left."""
        return time.monotonic() + seconds <= self.ends_at

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        first = not self.asked
        self._remember()
        if first and self._acknowledge is not None:
            self._acknowledge()

    def _remember(self) -> None:
        self.asked = True
        if self._outer is not None:
            self._outer._remember()

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
