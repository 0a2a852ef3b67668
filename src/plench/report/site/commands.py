"""The command that repeats a run, from its record alone."""

import json
import shlex
from typing import Any

from plench.runs.records import Run
from plench.text import flag


def repeat_command(run: Run) -> str | None:
    """Return the `plench train` command that gives the run's numbers again; None if the record does not say.

    Every entry of the run's configuration is an option of that name: a setting added later is there too.
    """
    config = run.info.get("config")
    if not isinstance(config, dict):
        return None
    options: dict[str, Any] = {"algorithm": _algorithm(run), "dataset": run.experiment.dataset}
    hparams = {name: value for name, value in run.hparams.items() if name != "max_steps"}
    options["hparams"] = json.dumps(hparams)
    for key, value in config.items():
        inner = value if key == "candidates" and isinstance(value, dict) else {key: value}
        options.update({name: v for name, v in inner.items() if name not in options})
    if "steps" not in options and run.experiment.steps is not None:
        options["steps"] = run.experiment.steps
    words = ["plench", "train"]
    for name, value in options.items():
        if value is True:
            words.append(flag(name))
        elif isinstance(value, str | int | float) and value is not False:
            words += [flag(name), str(value)]
    return shlex.join(words)


def _algorithm(run: Run) -> str:
    """Return the algorithm's name on a command line; one given by its file has a place for that file."""
    spec = run.info.get("algorithm_spec", run.experiment.algorithm)
    if isinstance(spec, str):
        return spec
    class_name = run.info.get("algorithm_class")
    return f"FILE.py:{class_name}" if isinstance(class_name, str) else run.experiment.algorithm
