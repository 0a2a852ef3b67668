"""`plench train`: train one algorithm on one dataset."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

import plench
from plench.cli.shared.options import add_folder_options, add_settings, given_settings, read_hparams
from plench.settings import declared

if TYPE_CHECKING:
    from plench.training import RunOutcome

DESCRIPTION = """Train one algorithm on one dataset. The same command continues an interrupted run,
and leaves a finished one as it is."""

EXAMPLES = """examples:
  plench train -a PRODEN -d Digits_FPS --steps 500
  plench train -a PRODEN -d Lost --data_dir data --trial_seed 1 --hparams_seed 3
  plench train -a CC -d Digits_ID --id_rate 0.6 --drop_true_rate 0.1 --hparams '{"lr": 0.01}'
  plench train -a my_file.py:MyAlgorithm -d my_arrays.npz --output_dir mine --json

exit codes: 0 finished (diverged counts as finished), 1 the run failed, 2 bad usage or bad data,
            130 interrupted, the same command continues
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add every option of a run."""
    parser.set_defaults(handler=train)
    parser.add_argument(
        "-a", "--algorithm", required=True, help="name, path/to/file.py:ClassName or module:ClassName"
    )
    parser.add_argument(
        "-d",
        "--dataset",
        required=True,
        help="name (`plench list datasets`), or the path of an .npz or .mat file or of a folder of images",
    )
    parser.add_argument("--hparams", metavar="JSON", help='hyperparameters to set, as {"lr": 0.01}')
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    add_folder_options(parser)
    add_settings(parser, declared())


def train(arguments: argparse.Namespace) -> int:
    """Carry out the run that the options describe."""
    outcome = plench.train(
        arguments.algorithm,
        arguments.dataset,
        arguments.output_dir,
        data_dir=arguments.data_dir,
        hparams=read_hparams(arguments.hparams),
        **given_settings(arguments),
    )
    return report(outcome, arguments.json)


def report(outcome: RunOutcome, as_json: bool) -> int:
    """Say how the run ended; return the exit code."""
    if as_json:
        print(
            json.dumps(
                {
                    "status": outcome.status,
                    "folder": str(outcome.folder),
                    "updates_made": outcome.updates_made,
                    "message": outcome.message,
                }
            )
        )
    else:
        remark = f" ({outcome.message})" if outcome.message else ""
        print(f"{outcome.status}{remark}: {outcome.folder}")
    if outcome.status == "failed":
        print(f"plench: the run failed; its traceback is in {outcome.folder / 'run.json'}", file=sys.stderr)
        return 1
    return 130 if outcome.status == "interrupted" else 0
