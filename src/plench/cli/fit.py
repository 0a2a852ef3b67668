"""Learn from a table, arrays or any dataset with candidate sets or annotators' answers, and
write one model file. By default methods and configurations are tried within a budget, and a criterion that is
measured on held-out candidate sets chooses; no true label is used. Ctrl-C takes the best so far.

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
    parser.add_argument("data", metavar="DATA", help="table, .npz or .mat file, folder of images, or a name")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="model file to write (.plench)")
    parser.add_argument("-a", "--algorithm", default="auto", help="auto, or a method (default: auto)")
    parser.add_argument("--hparams", metavar="JSON", help='hyperparameters, as {"lr": 0.01}')
    parser.add_argument(
        "--time",
        type=float,
        metavar="S",
        help="seconds that auto may try for, without the last training on all data",
    )
    parser.add_argument("--n-runs", type=int, metavar="N", help="runs that auto may make (default: 20)")
    parser.add_argument("--criterion", default="CR", help="CR or AA, by which auto chooses (default: CR)")
    parser.add_argument("--steps", type=int, metavar="N", help="updates of a run (default: 1000)")
    parser.add_argument(
        "--early-stopping", metavar="NAME", help="CR or AA: keep one method's best model by it"
    )
    parser.add_argument(
        "--no-refit", action="store_true", help="do not train auto's choice on all data again"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides split and training (0)")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files of a named dataset")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or mps (default: cpu)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Learn, write the model, and report."""
    from plench.estimator import PartialLabelClassifier, hide_truth, number_rows

    output = Path(arguments.output)
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise UsageError(f"cannot write {arguments.output!r}: it is a folder, or its folder is not there")
    check_outputs({"--output": arguments.output}, {"the data themselves": arguments.data})
    data = hide_truth(as_dataset(arguments.data, arguments.data_dir))
    steps = {} if arguments.steps is None else {"steps": arguments.steps}
    model = PartialLabelClassifier(
        arguments.algorithm,
        hparams=read_hparams(arguments.hparams),
        time=arguments.time,
        n_runs=arguments.n_runs,
        criterion=arguments.criterion,
        early_stopping=arguments.early_stopping,
        refit=not arguments.no_refit,
        random_state=arguments.seed,
        device=arguments.device,
        verbose=True,
        **steps,
    ).fit(data)
    model.save(output)
    report = make_report(model, data, number_rows(arguments.data, len(data.candidates)))
    print(json.dumps(report, indent=1) if arguments.json else format_report(report, arguments.output))
    return 0


def make_report(model: PartialLabelClassifier, data: Dataset, rows: Sequence[int]) -> dict[str, Any]:
    """Return what is worth knowing of a fitted model, as plain values; `rows` number the examples."""
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
    chosen = report["algorithm"] + (f", chosen among {report['tried']}" if report["tried"] else "")
    lines = [f"method: {chosen}"]
    lines.append("configuration: " + ", ".join(f"{key}={value}" for key, value in report["hparams"].items()))
    if report["quality_text"]:
        lines += [
            "quality without true labels:",
            *(f"  {line}" for line in report["quality_text"].splitlines()),
        ]
    lines.append("hardest examples (rows as `plench resolve` counts them):")
    lines += [f"  {each['example']}: {each['label']} {each['probability']:.3f}" for each in report["hardest"]]
    lines.append("labels most confused (mean probability of the second where the first is resolved):")
    lines += [
        f"  {each['label']} with {each['with']} {each['probability']:.3f}" for each in report["confused"]
    ]
    lines.append(f"sets that probably miss the truth: {report['doubtful']} of {report['examples']}")
    return "\n".join([*lines, f"wrote {output}"])
