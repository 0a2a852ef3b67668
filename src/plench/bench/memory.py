"""The memory that this process has taken."""

from __future__ import annotations

import sys


def peak_megabytes() -> float | None:
    """Return the process's peak memory, interpreter and torch included; None where it is not known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / 2 ** (20 if sys.platform == "darwin" else 10), 1)
