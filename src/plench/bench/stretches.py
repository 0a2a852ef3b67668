"""Timing in turns: stretches of what is measured and of its floor alternate on the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def time_stretch(step: Callable[[], object], count: int) -> float:
    """Return the milliseconds that a call takes, over a stretch of calls."""
    begun = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - begun) / count * 1000


def take_turns(measured: Callable[[], float], floor: Callable[[], float], repeats: int) -> dict[str, float]:
    """Return the medians of both, and that of the ratios of neighbouring stretches."""
    pairs = [(measured(), floor()) for _ in range(repeats)]
    return {
        "ms": round(statistics.median(ms for ms, _ in pairs), 4),
        "floor_ms": round(statistics.median(ms for _, ms in pairs), 4),
        "ratio": round(statistics.median(ms / least for ms, least in pairs), 3),
    }
