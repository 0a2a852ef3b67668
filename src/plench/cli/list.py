"""List algorithms, datasets, criteria or models.

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
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

import plench
from plench.criteria import CRITERIA
from plench.data.sources import dataset_patterns
from plench.hparams import SHARED, DataTraits
from plench.text import normalise

# Characters in a line of a table that goes to a file or a pipe.
PLAIN_WIDTH = 200
# Columns of sentences, which may be wrapped to so many characters; the space between columns, and at the
# edges of a table.
SENTENCES = {"task": 10, "views": 10, "passes": 16, "state": 16, "meaning": 24, "idea": 40}
GAP = 3
EDGES = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("what", choices=(*LISTS, "citations"))
    parser.add_argument("pattern", nargs="*", default=["*"], help="only names that match, e.g. 'SCL_*'")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the rows whose name matches one of the patterns, or the citations of these algorithms."""
    if arguments.what == "citations":
        from plench.algorithms import cite

        print("\n\n".join(cite(arguments.pattern)))
        return 0
    rows = [
        row
        for row in LISTS[arguments.what]()
        if any(is_meant(row["name"], pattern) for pattern in arguments.pattern)
    ]
    named = arguments.what == "algorithms" and arguments.pattern != ["*"]
    if named:
        rows = [{**row, "hyperparameters": list_hyperparameters(row["name"])} for row in rows]
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    if not rows:
        print(f"no {arguments.what} match {' '.join(arguments.pattern)}")
        return 0
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    print_table(console, [{k: v for k, v in row.items() if k != "hyperparameters"} for row in rows])
    for row in rows if named else ():
        console.print(f"hyperparameters of {row['name']}", highlight=False)
        print_table(console, row["hyperparameters"])
    if arguments.what in REMARKS and arguments.pattern == ["*"]:
        console.print(*REMARKS[arguments.what](), sep="\n", markup=False, highlight=False)
    return 0


def print_table(console: Console, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table of the columns that fit, and say which do not."""
    cells = [{column: format_value(column, value) for column, value in row.items()} for row in rows]
    columns = choose_columns(cells, console.width)
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), no_wrap=column not in SENTENCES)
    for cell in cells:
        table.add_row(*(cell[column] for column in columns))
    console.print(table)
    left_out = [column.replace("_", " ") for column in cells[0] if column not in columns]
    if left_out:
        console.print(f"in a wider window, or with --json: {', '.join(left_out)}", highlight=False)


def list_hyperparameters(name: str) -> list[dict[str, Any]]:
    """Describe the hyperparameters of an algorithm: default, search and bounds."""
    from plench.algorithms import find_algorithm

    card = find_algorithm(name).card
    table, image = DataTraits("tabular"), DataTraits("image")
    rows: list[dict[str, Any]] = []
    for parameter in (*(SHARED if card.shared else ()), *card.hyperparameters):
        defaults = [parameter.default_for(traits) for traits in (table, image)]
        searches = [str(parameter.search_for(traits)) for traits in (table, image)]
        rows.append(
            {
                "name": parameter.name,
                "default": defaults[0],
                "search": searches[0],
                "range": parameter.range_text(),
                "meaning": parameter.meaning,
                "image_default": defaults[1] if defaults[1] != defaults[0] else None,
                "image_search": searches[1] if searches[1] != searches[0] else None,
            }
        )
    return rows


def is_meant(name: str, pattern: str) -> bool:
    """Say whether a pattern matches a name, or is another spelling of it."""
    return fnmatchcase(name.lower(), pattern.lower()) or normalise(name) == normalise(pattern)


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
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float) and "default" in column:
        return f"{value:g}"
    if isinstance(value, float):
        return f"{value:.2%}" if column.endswith("rate") else f"{value:.2f}"
    return ", ".join(value) if isinstance(value, list) else str(value)


def explain_patterns() -> list[str]:
    """Say how datasets without a fixed name are asked for, and what becomes of annotators' answers."""
    return [
        *(f"also {pattern}: {meaning}" for pattern, meaning in dataset_patterns().items()),
        "answers: kept ones weigh candidates (--candidate-weights votes) and teach MV_LR and DS_LR; "
        "combined ones are in the candidate sets alone",
    ]


def list_networks() -> list[dict[str, Any]]:
    """Describe each network."""
    from plench.networks import describe_networks

    return describe_networks()


def list_criteria() -> list[dict[str, Any]]:
    """Describe each model-selection criterion."""
    return [
        {
            "name": name,
            "needs_labels": criterion.needs_labels,
            "early_stopping": criterion.early_stopping,
            "meaning": criterion.meaning,
        }
        for name, criterion in ((name, entry.member) for name, entry in CRITERIA.items.items())
    ]


LISTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "algorithms": lambda: plench.list_algorithms(),
    "datasets": lambda: plench.list_datasets(),
    "criteria": list_criteria,
    "models": list_networks,
}
# Printed under a whole table.
REMARKS = {"datasets": explain_patterns}
