"""The dummy engine: prints the command of every run, and runs nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import ClassVar

from plench.settings import Settings, declared
from plench.sweeps.scheduler import Assignment
from plench.text import flag


class DummyEngine:
    """Prints one command per run, or passes it to `show`."""

    name: ClassVar[str] = "dummy"
    waits: ClassVar[bool] = False
    writes: ClassVar[bool] = False
    gpus_per_run: ClassVar[float] = 0.0

    def __init__(self, show: Callable[[str], None] = print) -> None:
        self.show = show

    def count_slots(self, settings: Settings) -> int | None:
        """Return None: nothing is run."""
        return None

    def run(self, assignment: Assignment) -> None:
        """Show the commands; each trains one run, in the same folder and with the same numbers."""
        for run in assignment.todo:
            config = run.config
            hparams = {name: value for name, value in config.hparams.items() if name != "max_steps"}
            options: dict[str, object] = {
                "algorithm": run.algorithm,
                "dataset": run.dataset,
                "data_dir": assignment.datasets.data_dir,
                "output_dir": assignment.output_dir,
                "hparams": json.dumps(hparams),
            }
            for name, setting in declared().items():
                if (setting.always_recorded and setting.affects_results) or getattr(
                    config, name
                ) != setting.default:
                    options[name] = getattr(config, name)
            command = ["python", "-m", "plench.train"]
            for name, value in options.items():
                if value is True:
                    command.append(flag(name))
                elif value is not None and value is not False:
                    command += [flag(name), str(value)]
            self.show(shlex.join(command))
