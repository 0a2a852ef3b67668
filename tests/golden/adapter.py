"""All that the golden runs touch of plench and of its files; when those move, this file alone follows."""

import contextlib
import io
import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import plench
from plench.algorithms import FittedAlgorithm
from plench.cli import main
from plench.training.environment import MUST_AGREE, choose_device, describe_environment

# Parts of a checkpoint that hold conditions and times; records are compared from their own file.
UNSTABLE = ("environment", "records", "window_seconds", "seconds", "begun")
# What files have gained since the recordings: the run that they belong to, and the processor.
ADDED = ("run_id", "arithmetic", "processor")
MEASURED = ("step_time", "mem_gb")  # times and memory in records, which no two runs share
# What `sweep status --json` has gained.
ADDED_STATUS = re.compile(r'^ "(ended_last_hour|runs_per_minute|seconds_left)": .*\n', re.MULTILINE)
# The step counter of an algorithm is `steps_done` today. Recordings of these have it under this name, those
# of the others lack it.
RECORDED_COUNTER = {
    **dict.fromkeys(("POP", "IDGP"), "updates"),
    **dict.fromkeys(("VALEN", "PiCO", "CRDPLL", "DIRK", "FREDIS", "ALIM", "PiCOPlus"), "steps_done"),
}
# Words of the saved form that say nothing of what is saved; names of samples leave them out.
FILLING = ("modules", "tensors", "attributes", "value", "items")

# Sentences of viewing commands that were reworded since the recordings: today's → recorded.
REWORDED = {
    "warning: ": "notice: ",
    "Cells without a letter are complete.": "Cells without a letter lack nothing that was planned.",
    "lost compared with OA w/ ES": "lost against OA w/ ES",
    **{f"Average rank over {n} datasets": f"Average rank over {n} settings" for n in (2, 4)},
    "of a dataset; n = number of datasets ranked in. Ranks over different datasets do": (
        "of a setting; n = number of settings ranked in. Ranks over different settings do"
    ),
}


def as_recorded(text: str) -> str:
    """Return the output of a viewing command in the words of the recordings."""
    for today, recorded in REWORDED.items():
        text = text.replace(today, recorded)
    return ADDED_STATUS.sub("", text)


def command(*words: str) -> tuple[int, str, str]:
    """Run a `plench` command in this process; return exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def stop_after(number: int, fitted: bool) -> Iterator[None]:
    """Press Ctrl-C after so many optimiser steps, counted by torch itself, or rounds of a fitted method."""
    made = 0

    def count(*_: Any) -> None:
        nonlocal made
        made += 1
        if made == number:
            signal.raise_signal(signal.SIGINT)

    update = FittedAlgorithm.update

    def update_and_count(self: FittedAlgorithm, *batch: Any) -> Any:
        outcome = update(self, *batch)
        count()
        return outcome

    with (
        mock.patch.object(FittedAlgorithm, "update", update_and_count)
        if fitted
        else register_optimizer_step_post_hook(count)
    ):
        yield


def predict(folder: Path, features: np.ndarray) -> list[int]:
    """Return what a run's last model predicts."""
    return [int(label) for label in plench.load(folder).predict(features)]


def read_saved(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint or model."""
    payload: dict[str, Any] = torch.load(path, weights_only=True)
    return payload


def name_keys(content: dict[str, Any]) -> list[str]:
    """Return the keys that a file had when the recordings were made."""
    return [key for key in content if key not in ADDED]


def flatten(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield everything in a saved file by its path, tensors and plain values."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from flatten(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list | tuple):
        for position, value in enumerate(node):
            yield from flatten(value, f"{path}.{position}")
    else:
        yield path, node


def list_leaves(path: Path) -> dict[str, Any]:
    """Return what a saved file holds by path, conditions and times aside."""
    payload = read_saved(path)
    attributes = payload["algorithm"]["attributes"]
    counter = RECORDED_COUNTER.get(payload["algorithm"]["type"])
    if "steps_done" in attributes:
        steps = attributes.pop("steps_done")
        attributes.update({counter: steps} if counter else {})
    return dict(flatten({key: value for key, value in payload.items() if key not in (*UNSTABLE, *ADDED)}))


def name_states(leaves: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors that the algorithm holds by short names, those of its optimisers aside."""
    named = {}
    for path, value in leaves.items():
        words = path.split(".")
        if isinstance(value, torch.Tensor) and words[0] == "algorithm" and "pairs" not in words:
            if words[-1] == "gradient":
                continue
            name = ".".join(word for word in words[1:] if word not in FILLING)
            assert name not in named, f"{name} stands for two values"
            named[name] = value
    return named


def conditions_agree(checkpoint: Path) -> bool:
    """Whether a run may be resumed here and now: same versions, source, threads, device."""
    now = describe_environment(choose_device("cpu"), 1)
    before = read_saved(checkpoint)["environment"]
    return all(before.get(key) == now[key] for key in MUST_AGREE)


def change_saved(checkpoint: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the content of a checkpoint or model."""
    payload = read_saved(checkpoint)
    change(payload)
    torch.save(payload, checkpoint)


def algorithm_names() -> list[str]:
    """Return the names of the package's algorithms."""
    _, out, _ = command("list", "algorithms", "--json")
    return [row["name"] for row in json.loads(out)]


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Return a run's records without times and memory."""
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [{key: value for key, value in record.items() if key not in MEASURED} for record in records]
