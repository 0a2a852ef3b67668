"""`plench data views`: a contact sheet of what the networks see of a few images."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from plench.data import load_dataset
from plench.data.tables import Table
from plench.errors import UsageError


def add_views_command(commands: Any) -> None:
    """Register `data views` among the commands of `plench data`."""
    parser = commands.add_parser("views", help="draw every view and every operation of a few images")
    parser.add_argument("name", metavar="NAME", help="an image dataset, in any spelling or by path")
    parser.add_argument("--data-dir", help="folder of the data files; built-in datasets need none")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.png", help="where to write the sheet")
    parser.add_argument("--count", type=int, default=8, metavar="N", help="images on the sheet (default 8)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides the draws (default 0)")
    parser.set_defaults(run=draw_views)


def draw_views(arguments: argparse.Namespace) -> int:
    """Write the contact sheet and print its path."""
    if arguments.count < 1:
        raise UsageError(f"--count must be at least 1, not {arguments.count}")
    if not arguments.output.lower().endswith(".png"):
        raise UsageError(f"--output must be a file ending in .png, not {arguments.output}")
    dataset = load_dataset(arguments.name, arguments.data_dir)
    if dataset.card.kind != "image":
        raise UsageError(f"{dataset.card.name} is {dataset.card.kind} data: all its views are the same")
    from plench.data.views.sheet import draw_sheet  # imports torch

    assert not isinstance(dataset.features, Table)  # a table is tabular data
    draw_sheet(dataset.features[: arguments.count], arguments.seed, Path(arguments.output))
    print(arguments.output)
    return 0
