"""plench: benchmark and toolbox for partial-label learning.

Importing this package is cheap; torch is imported when training or prediction needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plench.version import __version__

if TYPE_CHECKING:
    from plench.training.model import load

__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    if name == "load":
        from plench.training.model import load

        return load
    raise AttributeError(f"module 'plench' has no attribute {name!r}")
