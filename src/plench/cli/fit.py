"""Fit a model to a table, arrays or any dataset with candidate sets or annotators' answers.

By default several methods and configurations are tried within a budget, and a criterion that is measured on
held-out candidate sets chooses; true labels are not used. Ctrl-C keeps the best so far.

examples:
  plench fit animals.csv -o model.plench                 20 runs
  plench fit animals.csv -o model.plench --time 60       a minute
  plench fit animals.csv -o model.plench -a PRODEN       one method with its default configuration
  plench fit 'songs.csv?answers=answers.csv' -o model.plench --criterion AA
  plench predict model.plench new.csv; plench resolve model.plench animals.csv; plench info model.plench
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plench.cli.options import check_outputs, read_hparams
from plench.data import Dataset, as_dataset
from plench.errors import UsageError

if TYPE_CHECKING:  # imports torch
    from plench.estimator import PartialLabelClassifier


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="table, .npz or .mat file, folder of images, export of an annotation tool, or a name",
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="model file to write (.plench)")
    parser.add_argument("-a", "--algorithm", default="auto", help="auto, or a method (default: auto)")
    parser.add_argument("--hparams", metavar="JSON", help='hyperparameters, as {"lr": 0.01}')
    time = "seconds of the search of auto, without the last training on all data"
    parser.add_argument("--time", type=float, metavar="S", help=time)
    parser.add_argument("--n-runs", type=int, metavar="N", help="number of runs of auto (default: 20)")
    parser.add_argument("--criterion", default="CR", help="criterion of auto: CR or AA (default: CR)")
    parser.add_argument("--steps", type=int, metavar="N", help="updates per run (default: 1000)")
    stopping = "keep the best model of one method by CR or AA"
    parser.add_argument("--early-stopping", metavar="NAME", help=stopping)
    parser.add_argument("--no-refit", action="store_true", help="do not retrain auto's choice on all data")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0)")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files of a named dataset")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or mps (default: cpu)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Fit, write the model, and report."""
    from plench.estimator import PartialLabelClassifier, hide_truth, number_rows

    output = Path(args.output)
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise UsageError(f"cannot write {args.output!r}: it is a folder, or its folder is not there")
    check_outputs({"--output": args.output}, {"the data themselves": args.data})
    data = hide_truth(as_dataset(args.data, args.data_dir))
    steps = {} if args.steps is None else {"steps": args.steps}
    model = PartialLabelClassifier(
        args.algorithm,
        hparams=read_hparams(args.hparams),
        time=args.time,
        n_runs=args.n_runs,
        criterion=args.criterion,
        early_stopping=args.early_stopping,
        refit=not args.no_refit,
        random_state=args.seed,
        device=args.device,
        verbose=True,
        **steps,
    ).fit(data)
    model.save(output)
    report = make_report(model, data, number_rows(args.data, len(data.candidates)))
    print(json.dumps(report, indent=1) if args.json else format_report(report, args.output))
    return 0


def make_report(model: PartialLabelClassifier, data: Dataset, rows: Sequence[int]) -> dict[str, Any]:
    """Describe a fitted model as plain values; `rows` are the numbers of the examples."""
    from plench.estimator import find_confused, find_hardest, items_of, resolve_items

    resolution = resolve_items(model.model_, items_of(data))
    probs = model.model_.predict_proba(data.features)
    names = [str(label) for label in model.classes_]
    return {
        "algorithm": model.algorithm_,
        "hparams": model.hparams_,
        "tried": None if model.leaderboard_ is None else len(model.leaderboard_),
        "quality": None if model.quality_ is None else model.quality_.to_json(),
        "quality_text": None if model.quality_ is None else str(model.quality_),
        "hardest": [
            {
                "example": rows[row],
                "label": names[resolution.label[row]],
                "probability": float(resolution.probability[row]),
            }
            for row in find_hardest(resolution)
        ],
        "confused": [
            {"label": names[first], "with": names[second], "probability": share}
            for first, second, share in find_confused(probs, resolution.label)
        ],
        "doubtful": int(resolution.doubtful.sum()),
        "examples": len(resolution.label),
    }


def format_report(report: dict[str, Any], output: str) -> str:
    """Return the report as text."""
    chosen = f", chosen among {report['tried']}" if report["tried"] else ""
    lines = [f"method: {report['algorithm']}{chosen}"]
    lines.append("configuration: " + ", ".join(f"{key}={value}" for key, value in report["hparams"].items()))
    if report["quality_text"]:
        lines.append("quality without true labels:")
        lines += [f"  {line}" for line in report["quality_text"].splitlines()]
    lines.append("hardest examples (rows as `plench resolve` counts them):")
    lines += [f"  {each['example']}: {each['label']} {each['probability']:.3f}" for each in report["hardest"]]
    lines.append("labels most confused (mean probability of the second where the first is resolved):")
    lines += [
        f"  {each['label']} with {each['with']} {each['probability']:.3f}" for each in report["confused"]
    ]
    lines.append(f"sets that probably miss the truth: {report['doubtful']} of {report['examples']}")
    return "\n".join([*lines, f"wrote {output}"])
