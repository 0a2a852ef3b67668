"""The dummy engine: prints the command of every run, and runs nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import ClassVar

from plench.settings import Settings, declared
from plench.sweeps.engines.base import Assignment
from plench.sweeps.plan import PlannedRun
from plench.text import flag


class DummyEngine:
    """Prints the commands, one per line, or hands them to `show`."""

    name: ClassVar[str] = "dummy"
    waits: ClassVar[bool] = False
    writes: ClassVar[bool] = False
    gpus_per_run: ClassVar[float] = 0.0

    def __init__(self, show: Callable[[str], None] = print) -> None:
        self.show = show

    def count_slots(self, settings: Settings) -> int | None:
        """Return 0: nothing is run."""
        return None

    def carry_out(self, assignment: Assignment) -> None:
        """Show the commands."""
        for run in assignment.todo:
            self.show(make_command(run, assignment))


def make_command(run: PlannedRun, assignment: Assignment) -> str:
    """Return the command that does one run by itself, in the same folder and with the same numbers."""
    config = run.config
    hparams = {name: value for name, value in config.hparams.items() if name != "max_steps"}
    words: dict[str, object] = {
        "algorithm": run.algorithm,
        "dataset": run.dataset,
        "data_dir": assignment.shelf.data_dir,
        "output_dir": assignment.output_dir,
        "hparams": json.dumps(hparams),
    }
    for name, setting in declared().items():
        if (setting.always_recorded and setting.affects_results) or getattr(config, name) != setting.default:
            words[name] = getattr(config, name)
    command = ["python", "-m", "plench.train"]
    for name, value in words.items():
        if value is True:
            command.append(flag(name))
        elif value is not None and value is not False:
            command += [flag(name), str(value)]
    return shlex.join(command)
