"""The dummy engine: shows the command of every run that is to be done, and does nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import ClassVar

from plench.sweeps.engines.base import Assignment
from plench.sweeps.plan import PlannedRun
from plench.training.run import RunOptions


class DummyEngine:
    """Hands the commands to `show`, one a line."""

    name: ClassVar[str] = "dummy"
    waits: ClassVar[bool] = False
    writes: ClassVar[bool] = False

    def __init__(self, show: Callable[[str], None]) -> None:
        self.show = show

    def count_slots(self, options: RunOptions) -> int | None:
        """Nothing is carried out here."""
        return None

    def carry_out(self, assignment: Assignment) -> None:
        """Show the commands."""
        for run in assignment.todo:
            self.show(make_command(run, assignment))


def make_command(run: PlannedRun, assignment: Assignment) -> str:
    """Return the command that does one run by itself, in the same folder and with the same numbers."""
    config, options = run.config, assignment.options
    candidates = config.candidates
    hparams = {name: value for name, value in config.hparams.items() if name != "max_steps"}
    words: dict[str, object] = {
        "algorithm": run.algorithm,
        "dataset": run.dataset,
        "data_dir": assignment.shelf.data_dir,
        "output_dir": assignment.output_dir,
        "steps": config.steps,
        "checkpoint_freq": config.checkpoint_freq,
        "hparams": json.dumps(hparams),
        "hparams_seed": config.hparams_seed,
        "trial_seed": config.trial_seed,
        "seed": config.seed,
        "holdout_fraction": config.holdout_fraction,
        "tabular_test_fraction": config.tabular_test_fraction,
        "pl_type": candidates.pl_type,
        "fps_rate": candidates.fps_rate,
        "id_rate": candidates.id_rate,
        "drop_true_rate": candidates.drop_true_rate,
        "precision": config.precision,
        "device": options.device,
        "threads": options.threads,
    }
    command = ["python", "-m", "plench.train"]
    for name, value in words.items():
        if value is not None:
            command += [f"--{name}", str(value)]
    if config.compile:
        command.append("--compile")
    if not options.keep_models:
        command.append("--skip_model_save")
    return shlex.join(command)
