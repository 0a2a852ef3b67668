"""Observers of a run: third-party callbacks, and the progress that is shown. Needs no torch.

Progress is a bar on a terminal and in a notebook, and a line per evaluation in a log.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from plench.criteria import criteria
from plench.registry import Registry


class Callback:
    """Observes a run. Every method does nothing unless a subclass overrides it.

    What a callback does never changes a run: the random numbers it draws are not the run's, and after an
    error, which is logged, it is not called again. A stacked run that is trained separately after all is
    opened and started a second time.

    Examples
    --------
    >>> class Print(plench.Callback):
    ...     def evaluated(self, record):
    ...         print(record["step"], record["loss"], record["test_acc"])
    >>> plench.train("PRODEN", "Digits_FPS", steps=100, callbacks=[Print()])
    """

    def opened(self, folder: Path) -> None:
        """Called first, with the run's folder. On Ray it may be a folder of another machine."""

    def started(self, config: Any, updates: int) -> None:
        """Called when training starts, or resumes after `updates` updates.

        `config`, a `RunConfig`, has `algorithm`, `dataset`, `hparams` and settings; `config.to_json()` has
        all of it.
        """

    def advanced(self, updates: int, loss: float) -> None:
        """Called a few times per second; `loss` is the mean since the last record."""

    def evaluating(self, done: int, total: int) -> None:
        """Called between the batches of an evaluation, with numbers of examples."""

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Called when a record was written: `step`, `loss`, the criteria (`val_…`) and `test_acc`."""

    def stopping(self) -> None:
        """Called as soon as a stop is requested, within the handler of a signal."""

    def ended(self, outcome: Any) -> None:
        """Called last, with the `RunOutcome`: `status` (done, failed, …), `folder` and `message`."""


CALLBACKS = Registry[type[Callback]](
    "callback",
    __name__,
    "a subclass of plench.Callback",
    lambda value: isinstance(value, type) and issubclass(value, Callback) and value is not Callback,
    lambda cls: None,
)


@contextmanager
def watch_run(console: Console | None = None) -> Iterator[Callback]:
    """Show one run on standard error during the block."""
    console = console or Console(stderr=True)
    bar = RunView()
    if console.is_jupyter:
        with watch_in_notebook(bar, lambda: bar.view) as shown:
            yield shown
        return
    if not console.is_terminal:
        yield LogLines()
        return
    with Live(bar.view, console=console, refresh_per_second=4):
        yield bar


@contextmanager
def watch_in_notebook(view: Any, render: Callable[[], RenderableType]) -> Iterator[Any]:
    """Draw a view in the output of a notebook's cell during the block."""
    shown = NotebookView(view, render)
    try:
        yield shown
    finally:
        shown.draw()


class NotebookView:
    """Forwards events to a view, and redraws it in the cell's output at most four times per second."""

    def __init__(self, view: Any, render: Callable[[], RenderableType]) -> None:
        from IPython.display import display  # every notebook has it

        self._view = view
        self._render = render
        self._drawn_at = time.monotonic()
        self._handle = display({"text/plain": "…"}, raw=True, display_id=True)

    def __getattr__(self, event: str) -> Callable[..., None]:
        handle = getattr(self._view, event)

        def forward(*arguments: Any) -> None:
            handle(*arguments)
            if time.monotonic() - self._drawn_at >= 0.25:
                self.draw()

        return forward

    def draw(self) -> None:
        """Draw the view as it is now."""
        self._drawn_at = time.monotonic()
        text = io.StringIO()
        Console(file=text, width=100).print(self._render())
        self._handle.update({"text/plain": text.getvalue().rstrip()}, raw=True)


class LogLines(Callback):
    """A plain line for each record."""

    def started(self, config: Any, updates: int) -> None:
        """Print what starts."""
        where = f"resumes at update {updates}" if updates else "starts"
        write(f"{config.algorithm} on {config.dataset} {where}, {config.steps} updates in all")

    def stopping(self) -> None:
        """Acknowledge a stop; the handler of a signal may not use a stream that is being written."""
        os.write(2, b"stopping: the run is saved first; Ctrl-C again stops at once\n")

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Write the record's figures."""
        figures = summarise(record)
        write(f"step {record['step']}: loss {record['loss']:.4f}" + (f", {figures}" if figures else ""))


class RunView(Callback):
    """A bar with count, rate and time left, and below it the loss and the current criteria."""

    def __init__(self) -> None:
        self.progress = Progress(
            BarColumn(20), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn()
        )
        self.title = Text()
        self.figures = Text()
        self.criteria = ""
        self.doing = Text()
        self.stop = Text()
        self.view = Group(self.title, self.progress, self.figures, self.doing, self.stop)

    def started(self, config: Any, updates: int) -> None:
        """Show the bar."""
        self.title.append(f"{config.algorithm} on {config.dataset}")
        self.task = self.progress.add_task("", total=config.steps, completed=updates, rate="")

    def advanced(self, updates: int, loss: float) -> None:
        """Move the bar."""
        self.show(updates, loss)

    def evaluating(self, done: int, total: int) -> None:
        """Show the progress of an evaluation."""
        self.doing.plain = f"evaluating: {done:,} of {total:,} examples" if done < total else ""

    def stopping(self) -> None:
        """Acknowledge a stop."""
        self.stop.plain = "stopping: the run is saved first; Ctrl-C again stops at once"

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Show the record's figures."""
        self.criteria = f"  step {record['step']}: {summarise(record)}"
        self.show(record["step"] + 1, record["loss"])

    def show(self, updates: int, loss: float) -> None:
        """Update bar and figures."""
        speed = self.progress.tasks[0].speed
        self.progress.update(self.task, completed=updates, rate=f"{speed:.0f}/s" if speed else "")
        self.figures.plain = f"loss {loss:.4f}{self.criteria}"


def summarise(record: Mapping[str, Any]) -> str:
    """Return a record's criteria and test accuracy in short."""
    keys = {criterion.record_key: criterion.name for criterion in reversed([*criteria.values()])}
    shown = [(name, record.get(key)) for key, name in reversed(keys.items())] + [("test", record["test_acc"])]
    return " ".join(f"{name} {value:.3f}" for name, value in shown if value is not None)


def write(line: str) -> None:
    """Write a line to the log at once."""
    print(line, file=sys.stderr, flush=True)
