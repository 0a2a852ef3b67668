"""Reports made from records alone: tables, statistics, figures. Nothing here imports torch.

The names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.report.best import describe_choice as describe_choice
    from plench.report.best import find_best as find_best
    from plench.report.results import read_results as read_results

__all__, __getattr__, __dir__ = lazy_attributes(__name__)
