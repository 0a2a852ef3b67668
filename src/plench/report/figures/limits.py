"""Axis limits without outliers: most values are drawn to scale, outliers at the edge."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

# Values further than this many interquartile ranges from the quartiles are outliers.
FAR = 2.0


@dataclass(frozen=True)
class Range:
    """The part of an axis that is drawn to scale."""

    low: float
    high: float

    @property
    def span(self) -> float:
        """How long it is."""
        return self.high - self.low

    def holds(self, value: float) -> bool:
        """Whether a value is drawn to scale."""
        return self.low <= value <= self.high

    def clip(self, value: float) -> float:
        """Return the value, or the end of the range that is nearest to it."""
        return min(max(value, self.low), self.high)

    def padded(self, share: float) -> "Range":
        """Return the range with this share of its length more at both ends."""
        return Range(self.low - share * self.span, self.high + share * self.span)


def find_range(values: Iterable[float], least: float = 1.0) -> Range:
    """Return the range of the values that are no outliers, at least `least` long."""
    found = np.array([value for value in values if np.isfinite(value)], dtype=float)
    if len(found) == 0:
        return Range(0.0, least)
    first, third = np.quantile(found, (0.25, 0.75))
    reach = FAR * max(third - first, least / FAR)
    kept = found[(found >= first - reach) & (found <= third + reach)]
    low, high = float(kept.min()), float(kept.max())
    lacking = max(least - (high - low), 0.0) / 2
    return Range(low - lacking, high + lacking)


def place_outside(values: Sequence[float], scale: Range, gap: float) -> list[float]:
    """Return where to draw each value: those outside the range stand beyond its ends, in their order."""
    placed = list(values)
    below = sorted((i for i, v in enumerate(values) if v < scale.low), key=lambda i: -values[i])
    above = sorted((i for i, v in enumerate(values) if v > scale.high), key=lambda i: values[i])
    for place, index in enumerate(below, start=2):
        placed[index] = scale.low - gap * place
    for place, index in enumerate(above, start=2):
        placed[index] = scale.high + gap * place
    return placed
