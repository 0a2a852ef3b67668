"""Describe a model file: method, data, classes, quality, versions.

Nothing in the file is run, and its hash is not checked: `plench predict` and `plench.load` do that.

examples:
  plench info model.plench
  plench info model.plench --json         everything in the description
  plench info model.plench --code         third-party code in the file, to read it first
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from plench.errors import DataError
from plench.model_file import read_head
from plench.text import clean_text

ROWS_SHOWN = 10
NAMES_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="model file (.plench)")
    parser.add_argument("--json", action="store_true", help="print the whole description as JSON")
    parser.add_argument("--code", action="store_true", help="print the third-party code in the file")


def run(args: argparse.Namespace) -> int:
    """Print the description."""
    head, sources = read_head(args.model)
    if args.json:
        print(json.dumps(head, indent=1))
    elif args.code:
        for name, source in sources.items():
            print(f"# {name}\n{clean_text(source.decode('utf-8', 'replace'))}")
    else:
        try:
            lines = [*describe_model(head)]
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{args.model} does not describe its model as plench does ({error!r})") from None
        for name, text in lines:
            print(clean_text(f"{name + ':' if name else '':<14} {text}", keep=""))
        for name, source in sources.items():
            text = f"{name}, {len(source):,} bytes: runs only with --run-code; read it with --code"
            print(clean_text(f"has code:      {text}", keep=""))
    return 0


def describe_model(head: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines about a model."""
    run, notes = head["run"], head.get("notes") or {}
    config, data = run["config"], run["dataset"]
    yield "model", f"{config['algorithm']}, after {head['updates']} updates"
    yield "configuration", ", ".join(f"{key}={show(value)}" for key, value in config["hparams"].items())
    shape = join(data["input_shape"][1:])
    yield "trained on", f"{data['name']}: {data['n_train']} examples, inputs {shape}"
    classes = notes.get("classes") or data.get("class_names")
    yield "classes", f"{data['n_classes']}" + (f": {join(classes)}" if classes else "")
    if head.get("columns"):
        yield "needs columns", join([f"{name} ({kind})" for name, kind in head["columns"]])
    verdict, quality = notes.get("verdict"), notes.get("quality") or {}
    if verdict:
        yield "verdict", "; ".join([verdict["verdict"], *verdict["reasons"]])
    about = {
        "CR": ("CR", ""),
        "AA": ("AA", ""),
        "certain": ("accuracy", ", certain if sets are complete"),
        "uniform": ("", ", if distractors are uniform"),
        "confusable": ("", ", if distractors are confusable"),
        "truth": ("", ", measured with true labels"),
        "own_test": ("", ", measured on the data's own test set"),
    }
    for key, (name, meaning) in about.items():
        if quality.get(key):
            value, low, high, n = (show(quality[key][part]) for part in ("value", "low", "high", "n"))
            yield name, f"{'' if key == 'certain' else value + ' '}({low} to {high}) on {n} rows{meaning}"
    if quality.get("refitted"):
        yield "measured", "before the model was trained once more on all data"
    reserved, calibration = notes.get("reserved") or {}, notes.get("calibration")
    if reserved.get("rows"):
        yield "reserved", f"{len(reserved['rows'])} of {reserved['n_examples']} rows, not trained on"
    if calibration:
        is_calibrated = f"temperature {show(calibration['temperature'])}"
        text = is_calibrated if calibration["is_calibrated"] else "probabilities are not calibrated"
        yield "calibration", f"{text}; prediction sets: {join(list(calibration['scores']))}"
    rows = notes.get("leaderboard") or []
    if rows:
        yield "tried", f"{len(rows)} configurations"
    for row in rows[:ROWS_SHOWN]:
        shown = ("algorithm", "configuration", "CR", "AA", "step", "status")
        yield "", ", ".join(f"{key} {show(row.get(key))}" for key in shown)
    versions = {"plench": head["plench"], **run["versions"]}
    libraries = ("plench", "python", "torch", "numpy", "scipy", "scikit-learn")
    yield "made with", ", ".join(f"{name} {versions[name]}" for name in libraries if name in versions)
    yield "made", str(run["timings"]["written"])


def show(value: Any) -> str:
    """Return a value in short."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def join(values: list[Any]) -> str:
    """Return the first values of a list in short."""
    return ", ".join(map(show, values[:NAMES_SHOWN])) + (" …" if len(values) > NAMES_SHOWN else "")
