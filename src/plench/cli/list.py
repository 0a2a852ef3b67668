"""List algorithms, datasets, criteria, models or encoders, or print the citations of algorithms.

examples:
  plench list algorithms
  plench list algorithms 'SCL_*' 'pico*'
  plench list datasets --json
  plench list citations PRODEN pico+ > methods.bib
"""

from __future__ import annotations

import argparse
import json
import sys
from fnmatch import fnmatchcase
from typing import Any

import plench
from plench.hparams import SHARED, DataTraits
from plench.text import find_name

LISTS = ("algorithms", "datasets", "criteria", "models", "encoders", "citations")
SINGULAR = {"criteria": "criterion"}
ABOUT_ANSWERS = (
    "answers: kept ones weigh candidates (--candidate-weights votes) and are used by MV_LR and DS_LR; "
    "combined ones are only in the candidate sets"
)
PLAIN_WIDTH = 200  # characters per line if the table goes to a file or a pipe
# Columns of sentences, which may be wrapped to so many characters; other columns are not wrapped.
SENTENCES = {"task": 10, "views": 10, "passes": 16, "state": 16, "meaning": 24, "idea": 40}
GAP, EDGES = 3, 2  # spaces between columns, and at the edges of a table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("what", choices=LISTS, metavar="LIST", help=", ".join(LISTS))
    parser.add_argument("pattern", nargs="*", metavar="NAME", help="only names that match, e.g. 'SCL_*'")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the rows whose name matches one of the patterns, or the citations of these algorithms."""
    if args.what == "citations":
        from plench.algorithms import cite

        print("\n\n".join(cite(args.pattern or ["*"])))
        return 0
    rows = list_rows(args.what)
    if args.pattern:
        names = [row["name"] for row in rows]
        found = set()
        for pattern in args.pattern:
            matching = [name for name in names if fnmatchcase(name.lower(), pattern.lower())]
            found.update(matching or [find_name(pattern, names, SINGULAR.get(args.what, args.what[:-1]))])
        rows = [row for row in rows if row["name"] in found]
    shown = rows
    if args.pattern and args.what == "algorithms":
        rows = [{**row, "hyperparameters": list_hyperparameters(row["name"])} for row in rows]
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    print_table(shown)
    for row in rows:
        if "hyperparameters" in row:
            print(f"hyperparameters of {row['name']}")
            print_table(row["hyperparameters"])
    if args.what == "datasets" and not args.pattern:
        from plench.data.sources import dataset_patterns

        for pattern, meaning in dataset_patterns().items():
            print(f"also {pattern}: {meaning}")
        print(ABOUT_ANSWERS)
    return 0


def list_rows(what: str) -> list[dict[str, Any]]:
    """Return the rows of a list."""
    if what == "algorithms":
        return plench.list_algorithms()
    if what == "datasets":
        return plench.list_datasets()
    if what == "models":
        from plench.networks import networks

        return [{"name": name, "meaning": network.meaning} for name, network in networks().items()]
    if what == "encoders":
        from plench.data.encoders import describe_encoders

        return describe_encoders()
    from plench.criteria import CRITERIA

    keys = ("needs_labels", "early_stopping", "meaning")
    return [
        {"name": name, **{key: getattr(entry.member, key) for key in keys}}
        for name, entry in CRITERIA.items.items()
    ]


def list_hyperparameters(name: str) -> list[dict[str, Any]]:
    """Describe the hyperparameters of an algorithm: default, search and bounds."""
    from plench.algorithms import find_algorithm

    card = find_algorithm(name).card
    rows: list[dict[str, Any]] = []
    for parameter in (*(SHARED if card.shared else ()), *card.hyperparameters):
        (default, search), (image_default, image_search) = (
            (parameter.default_for(traits), str(parameter.search_for(traits)))
            for traits in (DataTraits("tabular"), DataTraits("image"))
        )
        rows.append(
            {
                "name": parameter.name,
                "default": default,
                "search": search,
                "range": parameter.range_text(),
                "meaning": parameter.meaning,
                "image_default": image_default if image_default != default else None,
                "image_search": image_search if image_search != search else None,
            }
        )
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table of the columns that fit, and name the others."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    cells = [{column: format_value(column, value) for column, value in row.items()} for row in rows]
    columns = choose_columns(cells, console.width)
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), no_wrap=column not in SENTENCES)
    for cell in cells:
        table.add_row(*(cell[column] for column in columns))
    console.print(table)
    others = [column.replace("_", " ") for column in cells[0] if column not in columns]
    if others:
        print(f"in a wider window, or with --json: {', '.join(others)}")


def choose_columns(cells: list[dict[str, str]], width: int) -> list[str]:
    """Return the first columns that fit into a width; sentences may be wrapped, all else may not."""
    chosen: list[str] = []
    width += GAP - EDGES
    for column in cells[0]:
        needed = max(len(column), *(len(cell[column]) for cell in cells))
        width -= GAP + min(needed, SENTENCES.get(column, needed))
        if width < 0:
            break
        chosen.append(column)
    return chosen


def format_value(column: str, value: Any) -> str:
    """Return a value as text for people."""
    if value is None or isinstance(value, bool):
        return {None: "", True: "yes", False: "no"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return format(value, "g" if "default" in column else ".2%" if column.endswith("rate") else ".2f")
    return ", ".join(value) if isinstance(value, list) else str(value)
