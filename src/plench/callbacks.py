"""Observers of a run: progress, logs, experiment trackers. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
