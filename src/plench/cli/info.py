"""Print what a model file says of its model: method, data, classes, quality, versions. Nothing
in it is run, and its hash is not checked: `plench predict` and `plench.load` do that.

examples:
  plench info model.plench
  plench info model.plench --json         all of it
  plench info model.plench --code         a third party's code that the file brings along, to read it first
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from plench.model_file import read_head
from plench.text import clean_text, short_repr

MOST_ROWS = 10
MOST_NAMES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="model file (.plench)")
    parser.add_argument("--json", action="store_true", help="print all that the file says, as JSON")
    parser.add_argument("--code", action="store_true", help="print third parties' code in the file")


def run(arguments: argparse.Namespace) -> int:
    """Print the description."""
    head, sources = read_head(arguments.model)
    if arguments.json:
        print(json.dumps(head, indent=1))
    elif arguments.code:
        for name, source in sources.items():
            print(f"# {name}\n{clean_text(source.decode('utf-8', 'replace'))}")
    else:
        for name, text in describe_model_file(head, sources):
            print(clean_text(f"{name + ':' if name else '':<14} {text}", keep=""))
    return 0


def describe_model_file(head: Mapping[str, Any], sources: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Yield what a file says, line by line; whatever is missing or of another type is left out."""
    run, notes = block(head, "run"), block(head, "notes")
    config, data = block(run, "config"), block(run, "dataset")
    hparams = block(config, "hparams")
    yield "model", f"{show(config.get('algorithm'))}, after {show(head.get('updates'))} updates"
    yield (
        "configuration",
        ", ".join(f"{key}={show(value)}" for key, value in list(hparams.items())[:MOST_NAMES]),
    )
    shape = show_list(data.get("input_shape"), 1)
    yield "trained on", f"{show(data.get('name'))}: {show(data.get('n_train'))} examples, inputs {shape}"
    classes = notes.get("classes") or data.get("class_names")
    yield "classes", f"{show(data.get('n_classes'))}" + (f": {show_list(classes)}" if classes else "")
    quality = block(notes, "quality")
    for name in ("CR", "AA", "accuracy"):
        found = block(quality, name)
        if found:
            yield name, " ".join(f"{key} {show(value)}" for key, value in found.items())
    if quality.get("accuracy") is not None:
        yield "accuracy if", show_list(quality.get("assumptions"))
    if quality.get("refitted") is True:
        yield "measured", "before the model was trained once more on all data"
    rows = notes.get("leaderboard")
    if isinstance(rows, list) and rows:
        yield "tried", f"{len(rows)} configurations"
        for row in rows[:MOST_ROWS]:
            if isinstance(row, dict):
                shown = ("algorithm", "configuration", "CR", "AA", "step", "status")
                yield "", ", ".join(f"{key} {show(row.get(key))}" for key in shown)
    versions = {"plench": head.get("plench"), **block(run, "versions")}
    shown_versions = [
        f"{key} {show(versions[key])}" for key in ("plench", "python", "torch", "numpy") if key in versions
    ]
    yield "made with", ", ".join(shown_versions)
    yield "made", show(block(run, "timings").get("written"))
    for name, source in sources.items():
        yield (
            "brings code",
            f"{name}, {len(source):,} bytes: run only if you say so (--run-code); read it with --code",
        )


def block(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object of a description, an empty one where there is none."""
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def show(value: Any) -> str:
    """Return a value of a file in short."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value[:80] if isinstance(value, str) else short_repr(value)


def show_list(values: Any, first: int = 0) -> str:
    """Return the values of a list in short."""
    if not isinstance(values, list):
        return short_repr(values)
    more = " …" if len(values) - first > MOST_NAMES else ""
    return ", ".join(show(value) for value in values[first : first + MOST_NAMES]) + more
