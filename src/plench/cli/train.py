"""Train one algorithm on one dataset. The same command continues an interrupted run,
and leaves a finished one as it is.

examples:
  plench train -a PRODEN -d Digits_FPS --steps 500
  plench train -a PRODEN -d Lost --data-dir data --trial-seed 1 --hparams-seed 3
  plench train -a CC -d Digits_ID --id-rate 0.6 --drop-true-rate 0.1 --hparams '{"lr": 0.01}'
  plench train -a my_file.py:MyAlgorithm -d my_arrays.npz --output-dir mine --json

exit codes: 0 finished (diverged counts as finished), 1 the run failed, 2 bad usage or bad data,
            130 interrupted, the same command continues
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

import plench
from plench.cli.options import add_folder_options, add_settings, given_settings, read_hparams
from plench.criteria import criteria
from plench.runs.folder import RunStore
from plench.runs.records import read_run
from plench.runs.select import choose_checkpoint
from plench.settings import declared
from plench.text import clean_text

if TYPE_CHECKING:
    from plench.training import RunOutcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
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


def run(arguments: argparse.Namespace) -> int:
    """Carry out the run that the options describe."""
    outcome = plench.train(
        arguments.algorithm,
        arguments.dataset,
        arguments.output_dir,
        data_dir=arguments.data_dir,
        hparams=read_hparams(arguments.hparams),
        **given_settings(arguments),
    )
    return show_outcome(outcome, arguments.json)


def show_outcome(outcome: RunOutcome, as_json: bool) -> int:
    """Say how the run ended; return the exit code."""
    if as_json:
        print(
            json.dumps(
                {
                    "status": outcome.status,
                    "folder": str(outcome.folder),
                    "updates_made": outcome.updates_made,
                    "message": outcome.message,
                    **read_metrics(outcome),
                }
            )
        )
    else:
        remark = f" ({outcome.message})" if outcome.message else ""
        print(f"{outcome.status}{remark}: {outcome.folder}")
    if outcome.status == "failed":
        for line in last_frames(outcome):
            print(clean_text(line), file=sys.stderr)
        print(
            f"plench: the run failed; the whole traceback is in {outcome.folder / 'run.json'}",
            file=sys.stderr,
        )
        return 1
    return 130 if outcome.status == "interrupted" else 0


def last_frames(outcome: RunOutcome, count: int = 3) -> list[str]:
    """Return the last frames of a failed run's traceback, and what was raised, as lines."""
    described = RunStore(outcome.folder).read_run() or {}
    error = described.get("error")
    text = error.get("traceback") if isinstance(error, dict) else None
    lines = text.splitlines() if isinstance(text, str) else []
    begins = [place for place, line in enumerate(lines) if line.startswith("  File ")]
    return lines[begins[-count] :] if len(begins) >= count else lines


def read_metrics(outcome: RunOutcome) -> dict[str, Any]:
    """Return the last record, and for each criterion the checkpoint that it chooses, as plain data.

    A run without records, or one that is not finished, has None in their place.
    """
    run = read_run(outcome.folder)
    last = run.records[-1] if run.records else None
    chosen: dict[str, Any] = {}
    for name, criterion in criteria.items():
        found = choose_checkpoint(run, criterion) if run.finished else None
        if found is None:
            chosen[name] = None
        else:
            record, score = found
            chosen[name] = {"step": record.step, "value": score, "test_acc": record.get("test_acc")}
    figures = None if last is None else {"step": last.step, **last.values}
    return {
        "last_record": figures and {k: v for k, v in figures.items() if k not in ("args", "hparams")},
        "chosen": chosen,
    }
