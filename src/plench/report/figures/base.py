"""How a figure is declared, and what figures of one criterion or one setting share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.escape import clean
from plench.report.leaderboard import Leaderboard
from plench.report.results import Results
from plench.runs.records import Experiment

if TYPE_CHECKING:
    import argparse

    from matplotlib.figure import Figure


def no_options(parser: argparse.ArgumentParser) -> None:
    """Add no option beyond those that every figure has."""


@dataclass(frozen=True)
class FigureKind:
    """A kind of figure: `draw(found, options)` draws runs that were read, with the options of its command.

    With `folders_apart` each folder's runs count, also those that are copies of another's. A figure that is
    not made from runs (`from_runs` false) names its input itself among its options.
    """

    name: str
    meaning: str
    draw: Callable[[Results, Any], Figure]
    add_options: Callable[[argparse.ArgumentParser], None] = no_options
    folders_apart: bool = False
    from_runs: bool = True


def one_criterion(found: Results, options: Any) -> Criterion:
    """Return the criterion asked for; the first of all if none was."""
    if options.criteria and len(found.criteria) > 1:
        raise UsageError(f"this figure shows one criterion, not {', '.join(c.name for c in found.criteria)}")
    return found.criteria[0]


def one_setting(board: Leaderboard) -> Experiment:
    """Return the setting of a figure that shows one."""
    if len(board.settings) != 1:
        known = ", ".join(clean(label) for label in board.labels.values()) or "none"
        raise UsageError(
            "this figure shows one dataset in one setting: choose with --datasets and --where "
            f"(there are {known})"
        )
    return board.settings[0]
