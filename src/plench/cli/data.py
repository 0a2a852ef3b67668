"""Describe, download or draw a dataset.

examples:
  plench data info Digits_USS --trial-seed 1
  plench data download Lost MSRCv2 --data-dir data
  plench data download --suite tabular --data-dir data
  plench data info Lost --data-dir data --pl-type fps --fps-rate 0.5 --json
  plench data views DigitImages -o sheet.png
  plench data stats Lost --data-dir data --output lost.svg
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from plench.cli.data_answers import format_answers, summarise_answers
from plench.cli.data_stats import add_stats_command, format_histogram
from plench.cli.data_views import add_views_command
from plench.cli.options import CANDIDATE_SETTINGS, add_settings, read_candidates, settings_of
from plench.data import CandidateSpec, Dataset, download_dataset, draw_candidates
from plench.data.sources import find_source
from plench.data.tables import Table
from plench.errors import DataError, UsageError
from plench.text import clean

COLUMNS_SHOWN = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    commands = parser.add_subparsers(dest="data_command", required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="card, sizes, candidate sets and notices of a dataset")
    info.add_argument("name", metavar="NAME", help="a dataset, in any spelling (`plench list datasets`)")
    info.add_argument("--data-dir", help="folder of the data files; built-in datasets need none")
    info.add_argument("--json", action="store_true", help="print JSON")
    add_settings(info, ("trial_seed", *CANDIDATE_SETTINGS))
    info.set_defaults(run=show_info)

    download = commands.add_parser("download", help="download public datasets and verify their checksums")
    download.add_argument("names", nargs="*", metavar="NAME", help="datasets, in any spelling")
    download.add_argument("--suite", metavar="NAME", help="the datasets of a suite: tabular, image or full")
    download.add_argument("--data-dir", required=True, help="folder to put the files into")
    download.set_defaults(run=run_download)

    add_views_command(commands)
    add_stats_command(commands)


def show_info(arguments: argparse.Namespace) -> int:
    """Print what is known of a dataset, as text or JSON: of its files, if they are there, else its card."""
    source = find_source(arguments.name)
    if arguments.data_dir is None and source.obtain is not None:
        info: dict[str, Any] = {"card": asdict(source.card), "obtain": source.obtain}
        print(json.dumps(info, indent=2, ensure_ascii=False) if arguments.json else format_card(info))
        return 0
    folder = None if arguments.data_dir is None else Path(arguments.data_dir)
    loaded = source.load(folder)  # not load_dataset: notices are part of the output
    spec = read_candidates(arguments, loaded.card)
    trial_seed = settings_of(arguments).trial_seed
    dataset = draw_candidates(loaded, spec, trial_seed)
    info = describe_data(dataset, spec, trial_seed, loaded.fingerprint)
    print(json.dumps(info, indent=2, ensure_ascii=False) if arguments.json else format_info(info))
    return 0


def run_download(arguments: argparse.Namespace) -> int:
    """Fetch datasets' files and print where they are; one that fails does not keep the others."""
    from plench.sweeps.suites import make_suite

    names = list(arguments.names)
    if arguments.suite is not None:
        suite = [name for grid in make_suite(arguments.suite) for name in grid.datasets]
        names += [name for name in suite if find_source(name).obtain is not None]
    if not names:
        raise UsageError("say which datasets to download, by name or with --suite tabular, image or full")
    names = list(dict.fromkeys(find_source(name).card.name for name in names))
    failures = []
    for name in names:
        try:
            for path in download_dataset(name, arguments.data_dir):
                print(path, flush=True)
        except DataError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise DataError("\n".join([f"{len(failures)} of {len(names)} failed:", *map(str, failures)]))
    return 0


def describe_data(dataset: Dataset, spec: CandidateSpec, trial_seed: int, fingerprint: str) -> dict[str, Any]:
    """Everything `data info` shows, as data. The fingerprint is that of the data as loaded."""
    sizes, counts = np.unique(dataset.candidates.sum(axis=1), return_counts=True)
    more: dict[str, Any] = {}
    if dataset.class_names is not None:
        more["class_names"] = list(dataset.class_names)
    if isinstance(dataset.features, Table):
        more["columns"] = [
            {"name": column.name, "kind": column.kind, "categories": len(column.categories)}
            for column in dataset.features.columns
        ]
    if dataset.answers is not None:
        more["answers"] = summarise_answers(dataset.answers, dataset.labels)
    return {
        "card": asdict(dataset.card),
        "examples": dataset.n_examples,
        "test_examples": None if dataset.test is None else len(dataset.test.labels),
        "input_shape": list(dataset.input_shape),
        "classes": dataset.n_classes,
        "has_labels": dataset.labels is not None,
        "candidates": asdict(spec),
        "trial_seed": trial_seed,
        "mean_candidates": dataset.mean_candidates,
        "noise_rate": dataset.noise_rate,
        "set_sizes": {int(size): int(count) for size, count in zip(sizes, counts, strict=True)},
        "fingerprint": fingerprint,
        "notices": list(dataset.warnings),
        **more,
    }


def list_card_rows(card: dict[str, Any]) -> dict[str, str]:
    """The rows of a card."""
    rows = {
        "task": card["task"],
        "source": card["source"],
        "terms": card["terms"],
        "reference": card["citation"],
        "steps": f"{card['default_steps']:,} by default",
    }
    if card["protocol_noise_rate"] is not None:
        rows["given noise"] = f"{card['protocol_noise_rate']:.3%}, given to noise-aware methods"
    return rows


def format_card(info: dict[str, Any]) -> str:
    """The text form of what is known of a dataset whose files are not at hand."""
    card, rows = info["card"], list_card_rows(info["card"])
    sizes = card["published"] or card["sizes"]
    if sizes is not None:
        rows |= {name: f"{sizes[name]:,}" for name in ("examples", "features", "classes")}
    if card["published"] is not None:
        rows["mean set size"] = f"{card['published']['mean_candidates']:.2f}"
        rows["noise rate"] = f"{card['published']['noise_rate']:.2%}"
    rows["the files"] = f"{info['obtain']}, and name their folder with --data-dir"
    return format_rows(card, rows)


def format_rows(card: dict[str, Any], rows: dict[str, str]) -> str:
    """The dataset's name, and a line for each row."""
    return "\n".join(
        [f"{card['name']} ({card['kind']})", *(f"  {key:<14}{value}" for key, value in rows.items())]
    )


def format_columns(columns: list[dict[str, Any]]) -> str:
    """Name the columns of a table by what they were taken for, the first of each kind."""
    parts = []
    for kind, title in (("number", "numbers"), ("boolean", "truth values"), ("category", "categories")):
        found = [column for column in columns if column["kind"] == kind]
        names = [
            clean(column["name"]) + (f" ({column['categories']:,})" if kind == "category" else "")
            for column in found[:COLUMNS_SHOWN]
        ]
        if found:
            parts.append(f"{title} {', '.join(names)}{' …' if len(found) > COLUMNS_SHOWN else ''}")
    return "; ".join(parts)


def format_info(info: dict[str, Any]) -> str:
    """The text form of `describe_data`."""
    card, spec = info["card"], info["candidates"]
    rates = ", ".join(f"{key} {value}" for key, value in spec.items() if key != "pl_type" and value)
    noise = "unknown (no true labels)" if info["noise_rate"] is None else f"{info['noise_rate']:.2%}"
    own_test = "" if info["test_examples"] is None else f", and {info['test_examples']:,} in its own test set"
    rows = {
        **list_card_rows(card),
        "examples": f"{info['examples']:,}{own_test}",
        "features": " × ".join(f"{size:,}" for size in info["input_shape"][1:]),
        "classes": f"{info['classes']:,}",
        "candidates": spec["pl_type"] + (f" ({rates})" if rates else ""),
        "mean set size": f"{info['mean_candidates']:.2f}",
        "noise rate": noise,
        "fingerprint": info["fingerprint"][:16],
    }
    if info.get("class_names"):
        shown = ", ".join(clean(name) for name in info["class_names"][:10]) + (
            " …" if len(info["class_names"]) > 10 else ""
        )
        rows["classes"] += f": {shown}"
    if info.get("columns"):
        rows["features"] += f": {format_columns(info['columns'])}"
    lines = [format_rows(card, rows), "  set sizes", *format_histogram(info["set_sizes"])]
    if info.get("answers"):
        lines += format_answers(info["answers"])
    lines += [f"  notice: {notice}" for notice in info["notices"]]
    return "\n".join(lines)
