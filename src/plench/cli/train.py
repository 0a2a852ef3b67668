"""`plench train`: one run from command to records."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from plench.cli.options import (
    add_candidate_options,
    add_compute_options,
    add_precision_options,
    add_split_options,
    read_candidates,
    read_hparams,
)
from plench.errors import UsageError

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


def add_parser(subparsers: Any) -> None:
    """Add `plench train`."""
    parser = subparsers.add_parser(
        "train", help="train one algorithm on one dataset", description=DESCRIPTION, epilog=EXAMPLES
    )
    add_options(parser)


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
        help="name (`plench list datasets`), path/to/arrays.npz or path/to/folder of images",
    )
    parser.add_argument(
        "--data_dir", metavar="DIR", help="folder with the data files; built-in data needs none"
    )
    parser.add_argument("--output_dir", default="runs", metavar="DIR", help="folder of runs (default: runs)")
    parser.add_argument(
        "--steps", type=int, metavar="N", help="updates (default: the dataset's number in the protocol)"
    )
    parser.add_argument(
        "--checkpoint_freq",
        type=int,
        default=1000,
        metavar="N",
        help="updates between evaluations (default: 1000)",
    )
    parser.add_argument("--hparams", metavar="JSON", help='hyperparameters to set, as {"lr": 0.01}')
    parser.add_argument(
        "--hparams_seed",
        type=int,
        default=0,
        metavar="N",
        help="random configuration N of the search; 0, the default: every hyperparameter's default",
    )
    parser.add_argument(
        "--trial_seed", type=int, default=0, metavar="N", help="split, and generated candidates (default: 0)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="initialisation, batches, views, the method's own draws (default: 0)",
    )
    parser.add_argument("--skip_model_save", action="store_true", help="keep no model after the run")
    parser.add_argument(
        "--save_model_every_checkpoint", action="store_true", help="keep a model of every evaluation"
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    add_candidate_options(parser)
    add_split_options(parser)
    add_precision_options(parser)
    add_compute_options(parser)


def train(arguments: argparse.Namespace) -> int:
    """Carry out the run that the options describe."""
    if arguments.skip_model_save and arguments.save_model_every_checkpoint:
        raise UsageError("--skip_model_save and --save_model_every_checkpoint contradict each other")
    from plench.algorithms import find_algorithm
    from plench.cli.progress import watch_run
    from plench.data import load_dataset
    from plench.training import RunOptions, configure_run, run_training

    entry = find_algorithm(arguments.algorithm)
    dataset = load_dataset(arguments.dataset, arguments.data_dir)
    config = configure_run(
        entry,
        dataset.card,
        hparams=read_hparams(arguments.hparams),
        steps=arguments.steps,
        candidates=read_candidates(arguments, dataset.card),
        hparams_seed=arguments.hparams_seed,
        trial_seed=arguments.trial_seed,
        seed=arguments.seed,
        checkpoint_freq=arguments.checkpoint_freq,
        precision=arguments.precision,
        compile=arguments.compile,
        holdout_fraction=arguments.holdout_fraction,
        tabular_test_fraction=arguments.tabular_test_fraction,
    )
    options = RunOptions(
        device=arguments.device,
        threads=arguments.threads,
        save_seconds=arguments.save_seconds,
        save_steps=arguments.save_steps,
        keep_models=not arguments.skip_model_save,
        keep_every_model=arguments.save_model_every_checkpoint,
        resume_anyway=arguments.resume_anyway,
    )
    with watch_run() as listener:
        outcome = run_training(config, dataset, entry, arguments.output_dir, options, listener)
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
