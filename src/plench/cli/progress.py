"""How a run is shown: a progress bar on a terminal, a line per evaluation in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from plench.criteria import criteria

if TYPE_CHECKING:  # these import torch, and every command imports this module
    from plench.training.config import RunConfig
    from plench.training.listener import Listener


@contextmanager
def watch_run(config: RunConfig) -> Iterator[Listener]:
    """Show one run on standard error while the block lasts."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LogLines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield ProgressBar(progress)


class LogLines:
    """A plain line for each record."""

    def started(self, config: RunConfig, updates: int) -> None:
        """Say what starts."""
        where = f"continues at update {updates}" if updates else "starts"
        write(f"{config.algorithm} on {config.dataset} {where}, {config.steps} updates in all")

    def advanced(self, updates: int, loss: float) -> None:
        """Say nothing between records."""

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Write the record's figures."""
        write(f"step {record['step']}: loss {record['loss']:.4f}, {summarise(record)}")


class ProgressBar:
    """A bar with rate, time left, loss and the current criteria."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.figures = ""

    def started(self, config: RunConfig, updates: int) -> None:
        """Show the bar at its place."""
        self.task = self.progress.add_task(
            f"{config.algorithm} on {config.dataset}",
            total=config.steps,
            completed=updates,
            rate="",
            figures="",
        )

    def advanced(self, updates: int, loss: float) -> None:
        """Move the bar."""
        speed = self.progress.tasks[0].speed
        self.progress.update(
            self.task,
            completed=updates,
            rate=f"{speed:.0f}/s" if speed else "",
            figures=f"loss {loss:.4f} {self.figures}",
        )

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Show the record's figures from now on."""
        self.figures = summarise(record)
        self.progress.update(
            self.task, completed=record["step"] + 1, figures=f"loss {record['loss']:.4f} {self.figures}"
        )


def summarise(record: Mapping[str, Any]) -> str:
    """Return a record's criteria and test accuracy in short."""
    keys = {criterion.record_key: criterion.name for criterion in reversed(criteria.values())}
    shown = [(name, record[key]) for key, name in reversed(keys.items())] + [("test", record["test_acc"])]
    return " ".join(f"{name} {value:.3f}" for name, value in shown if value is not None)


def write(line: str) -> None:
    """Write a line to the log at once."""
    print(line, file=sys.stderr, flush=True)
