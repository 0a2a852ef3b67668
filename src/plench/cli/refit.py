"""Train the configuration that a criterion chose for the number of steps that it chose, on all
data: nothing is held out for validation or test, so no accuracy is measured. FOLDER is a run's folder, or one
of many runs of one dataset, among which the criterion chooses.

examples:
  plench sweep refit runs -d pets.csv                      the best of a sweep by CR, on every row
  plench sweep refit runs/Lost-PRODEN-h3-t0-0123456789ab --data-dir data --criterion AA
  plench predict refit/FOLDER new.csv -o predictions.csv
"""

from __future__ import annotations

import argparse

import plench
from plench.cli.options import add_folder_options
from plench.cli.train import show_outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", metavar="FOLDER", help="folder of a run, or of runs")
    parser.add_argument("--criterion", default="CR", metavar="NAME", help="criterion (default: CR)")
    parser.add_argument("-d", "--dataset", metavar="DATA", help="dataset of the run, if it was given by path")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    add_folder_options(parser)
    parser.set_defaults(output_dir="refit")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the run."""
    outcome = plench.refit(
        arguments.folder,
        arguments.dataset,
        arguments.output_dir,
        criterion=arguments.criterion,
        data_dir=arguments.data_dir,
    )
    return show_outcome(outcome, arguments.json)
