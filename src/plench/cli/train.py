"""Train one algorithm on one dataset.

The same command resumes an interrupted run and skips a finished one.

examples:
  plench train -a PRODEN -d Digits_FPS --steps 500
  plench train -a PRODEN -d Lost --data-dir data --trial-seed 1 --hparams-seed 3
  plench train -a CC -d Digits_ID --id-rate 0.6 --drop-true-rate 0.1 --hparams '{"lr": 0.01}'
  plench train -a my_file.py:MyAlgorithm -d my_arrays.npz --output-dir mine --json

exit codes: 0 finished (diverged counts as finished), 1 the run failed, 2 bad usage or bad data,
            130 interrupted, the same command resumes
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

import plench
from plench.cli.options import (
    add_encoder_options,
    add_folder_options,
    add_settings,
    given_encoders,
    given_settings,
    read_hparams,
)
from plench.runs.folder import RunStore
from plench.runs.records import read_run
from plench.settings import declared
from plench.text import clean_text

if TYPE_CHECKING:  # imports torch
    from plench.cli import Parser
    from plench.training import RunOutcome

FRAMES_SHOWN = 3
REFIT_PAGE = """Train the configuration that a criterion chose, for the chosen number of steps, on all data.

Nothing is held out for validation or test, so no accuracy is measured. FOLDER is the folder of a run, or of
many runs on one dataset, among which the criterion chooses.

examples:
  plench sweep refit runs -d pets.csv                      the best of a sweep by CR, on every row
  plench sweep refit runs/Lost-PRODEN-h3-t0-0123456789ab --data-dir data --criterion AA
  plench predict refit/FOLDER new.csv -o predictions.csv
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every option of a run."""
    algorithm = "name, path/to/file.py:ClassName or module:ClassName"
    parser.add_argument("-a", "--algorithm", required=True, help=algorithm)
    data = "name (`plench list datasets`), or path of a table, an .npz or .mat file or a folder of images"
    parser.add_argument("-d", "--dataset", required=True, help=data)
    parser.add_argument("--hparams", metavar="JSON", help='hyperparameters to set, as {"lr": 0.01}')
    text = "observers: classes as path/to/file.py:NAME or module:NAME (docs/callbacks.md)"
    parser.add_argument("--callback", nargs="+", default=[], metavar="SPEC", help=text)
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    add_folder_options(parser)
    add_encoder_options(parser)
    add_settings(parser, declared())


def add_refit(parser: Parser) -> None:
    """Add the options of `plench sweep refit`."""
    parser.set_page(REFIT_PAGE)
    parser.add_argument("folder", metavar="FOLDER", help="folder of a run, or of runs")
    parser.add_argument("--criterion", default="CR", metavar="NAME", help="criterion (default: CR)")
    parser.add_argument("-d", "--dataset", metavar="DATA", help="dataset of the run, if it was given by path")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    add_folder_options(parser, output="refit")
    parser.set_defaults(run=refit)


def run(args: argparse.Namespace) -> int:
    """Train."""
    outcome = plench.train(
        args.algorithm,
        args.dataset,
        args.output_dir,
        data_dir=args.data_dir,
        hparams=read_hparams(args.hparams),
        callbacks=args.callback,
        **given_encoders(args),
        **given_settings(args),
    )
    return print_outcome(outcome, args.json)


def refit(args: argparse.Namespace) -> int:
    """Retrain what a criterion chose."""
    outcome = plench.refit(
        args.folder, args.dataset, args.output_dir, criterion=args.criterion, data_dir=args.data_dir
    )
    return print_outcome(outcome, args.json)


def print_outcome(outcome: RunOutcome, as_json: bool) -> int:
    """Print how the run ended; return the exit code."""
    if as_json:
        print(json.dumps(describe_outcome(outcome)))
    else:
        remark = f" ({outcome.message})" if outcome.message else ""
        print(f"{outcome.status}{remark}: {outcome.folder}")
    if outcome.status != "failed":
        return 130 if outcome.status == "interrupted" else 0
    error = (RunStore(outcome.folder).read_run() or {}).get("error")
    text = error.get("traceback") if isinstance(error, dict) else None
    lines = text.splitlines() if isinstance(text, str) else []
    frames = [place for place, line in enumerate(lines) if line.startswith("  File ")]
    for line in lines[frames[-FRAMES_SHOWN] :] if len(frames) >= FRAMES_SHOWN else lines:
        print(clean_text(line), file=sys.stderr)
    where = outcome.folder / "run.json"
    print(f"plench: the run failed; the whole traceback is in {where}", file=sys.stderr)
    return 1


def describe_outcome(outcome: RunOutcome) -> dict[str, Any]:
    """Return how a run ended, its last record, and the checkpoint that each criterion chooses, as plain data.

    The last two are None for a run without records, or one that is not finished.
    """
    from plench.criteria import criteria  # imports numpy, which other commands of this module do not need
    from plench.runs.select import choose_checkpoint

    run = read_run(outcome.folder)
    content = {key: getattr(outcome, key) for key in ("status", "folder", "updates_made", "message")}
    content |= {"folder": str(outcome.folder), "last_record": None, "chosen": dict.fromkeys(criteria)}
    if run.records:
        last = run.records[-1]
        values = {k: v for k, v in last.values.items() if k not in ("args", "hparams")}
        content["last_record"] = {"step": last.step, **values}
    for name, criterion in criteria.items():
        found = choose_checkpoint(run, criterion) if run.finished else None
        if found is not None:
            record, score = found
            figures = {"step": record.step, "value": score, "test_acc": record.get("test_acc")}
            content["chosen"][name] = figures
    return content
