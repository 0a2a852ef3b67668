"""`plench list`: what there is."""

from __future__ import annotations

import argparse
import json
import sys
from fnmatch import fnmatchcase
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

Row = dict[str, Any]

# Columns of a table that goes to a file or a pipe.
PLAIN_WIDTH = 200


def add_parser(subparsers: Any) -> None:
    """Add `plench list`."""
    parser = subparsers.add_parser(
        "list", help="list algorithms, datasets, criteria or models", allow_abbrev=False
    )
    parser.add_argument("what", choices=tuple(LISTS))
    parser.add_argument("pattern", nargs="*", default=["*"], help="only names like this, e.g. 'SCL_*'")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.set_defaults(handler=list_names)


def list_names(arguments: argparse.Namespace) -> int:
    """Print the rows whose name matches one of the patterns."""
    rows = [
        row
        for row in LISTS[arguments.what]()
        if any(fnmatchcase(row["name"].lower(), pattern.lower()) for pattern in arguments.pattern)
    ]
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    if not rows:
        print(f"no {arguments.what} match {' '.join(arguments.pattern)}")
        return 0
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in rows[0]:
        table.add_column(column, no_wrap=column == "name")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    console.print(table)
    return 0


def list_algorithms() -> list[Row]:
    """Describe each algorithm by its card."""
    from plench.algorithms import algorithms
    from plench.algorithms.base import FAMILIES

    cards = sorted(
        (entry.card for entry in algorithms().values()),
        key=lambda card: (FAMILIES.index(card.family), card.name.lower()),
    )
    return [
        {
            "name": card.name,
            "family": card.family,
            "venue": card.venue,
            "views": ", ".join(card.views),
            "passes": card.passes,
            "state": card.state,
        }
        for card in cards
    ]


def list_datasets() -> list[Row]:
    """Describe each dataset by its card."""
    from plench.data import dataset_card, dataset_names

    rows = []
    for name in dataset_names():
        card = dataset_card(name)
        published = card.published
        rows.append(
            {
                "name": name,
                "kind": card.kind,
                "task": card.task,
                "examples": f"{published.examples:,}" if published else "",
                "classes": published.classes if published else "",
                "candidates": f"{published.mean_candidates:.2f}" if published else card.candidates.pl_type,
                "noise": f"{published.noise_rate:.2%}" if published else "",
                "steps": card.default_steps,
            }
        )
    return rows


def list_criteria() -> list[Row]:
    """Describe each model-selection criterion."""
    from plench.criteria import criteria

    return [
        {
            "name": criterion.name,
            "needs true labels": "yes" if criterion.needs_labels else "no",
            "early stopping": "yes" if criterion.early_stopping else "no",
            "meaning": criterion.meaning,
        }
        for criterion in criteria.values()
    ]


def list_models() -> list[Row]:
    """Describe each network."""
    from plench.networks import networks

    return [{"name": network.name, "meaning": network.meaning} for network in networks().values()]


LISTS = {
    "algorithms": list_algorithms,
    "datasets": list_datasets,
    "criteria": list_criteria,
    "models": list_models,
}
