"""Work with the results of finished runs: folders of runs, or results files (`plench results export`).

examples:
  plench results stats runs/                             tests between algorithms, quality of criteria
  plench results plot boxes runs/ --output boxes.pdf     one of the figures
  plench results export runs/ -o results.parquet         all records in one file
  plench results verify results.parquet --sample 5       repeat a few runs and compare
"""

import argparse

from plench.cli import add_commands

COMMANDS = {
    "stats": "test differences between algorithms and judge the criteria",
    "plot": "draw a figure (box plots, ranks, curves, …)",
    "compare-paper": "compare PLCIFAR10 results with the paper's",
    "export": "write all records to one Parquet file",
    "verify": "repeat a random sample of runs and compare their records",
    "submit": "check runs of a new algorithm, and merge them into a results file",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    add_commands(parser.add_subparsers(title="commands", metavar="COMMAND", required=True), COMMANDS)
