"""Fit a model to a table, arrays or any dataset with candidate sets or annotators' answers.

By default several methods and configurations are tried within a budget, and a criterion that is measured on
held-out candidate sets chooses; true labels are not used. Ctrl-C keeps the best so far.

A share of the rows is reserved (--reserve): they are neither trained on nor used to choose. The verdict, the
estimates, calibrated probabilities and prediction sets come from them. True labels of reserved rows, if the
data has any, are used to measure accuracy only.

examples:
  plench fit animals.csv -o model.plench                 20 runs
  plench fit animals.csv -o model.plench --time 60       a minute
  plench fit animals.csv -o model.plench -a PRODEN       one method with its default configuration
  plench fit 'songs.csv?answers=answers.csv' -o model.plench --criterion AA
  plench fit animals.csv -o model.plench --strict        exit code 3 for a model no better than guessing
  plench predict model.plench new.csv; plench resolve model.plench animals.csv; plench info model.plench
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plench.cli.options import check_outputs, read_hparams
from plench.data import Dataset, as_dataset
from plench.errors import UsageError

if TYPE_CHECKING:  # imports torch
    from plench.estimator import PartialLabelClassifier

STRICT_CODE = 3


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
    reserve = "share of the rows, at least 50, to estimate and calibrate with; 0 for none (default: 0.2)"
    parser.add_argument("--reserve", type=float, default=0.2, metavar="F", help=reserve)
    noise = "largest share of the candidate sets that miss the true label (default: 0)"
    parser.add_argument("--noise-rate", type=float, default=0.0, metavar="F", help=noise)
    strict = f"exit with code {STRICT_CODE} for a model no better than guessing, or not assessed"
    parser.add_argument("--strict", action="store_true", help=strict)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0)")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files of a named dataset")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or mps (default: cpu)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Fit, write the model, and report."""
    from plench.estimator import PartialLabelClassifier, hide_truth, number_rows
    from plench.estimator.verdict import GUESSING

    output = Path(args.output)
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise UsageError(f"cannot write {args.output!r}: it is a folder, or its folder is not there")
    if args.strict and args.reserve == 0:
        raise UsageError("--strict needs a verdict, which --reserve 0 leaves no rows for")
    check_outputs({"--output": args.output}, {"the data themselves": args.data})
    data = as_dataset(args.data, args.data_dir)
    steps = {} if args.steps is None else {"steps": args.steps}
    model = PartialLabelClassifier(
        args.algorithm,
        hparams=read_hparams(args.hparams),
        time=args.time,
        n_runs=args.n_runs,
        criterion=args.criterion,
        early_stopping=args.early_stopping,
        refit=not args.no_refit,
        reserve=args.reserve,
        noise_rate=args.noise_rate,
        random_state=args.seed,
        device=args.device,
        verbose=True,
        **steps,
    )
    try:
        model.fit(data)
    except KeyboardInterrupt:
        print(f"stopped before a model was trained: {args.output} was not written", file=sys.stderr)
        raise
    model.save(output)
    try:
        report = make_report(model, hide_truth(data), number_rows(args.data, len(data.candidates)))
        print(json.dumps(report, indent=1) if args.json else format_report(report, args.data, args.output))
    except KeyboardInterrupt:
        print(f"stopped before the report; wrote {args.output}", file=sys.stderr)
        raise
    print(f"wrote {args.output}", file=sys.stderr if args.json else sys.stdout)
    return STRICT_CODE if args.strict and report["verdict"] in (None, GUESSING) else 0


def make_report(model: PartialLabelClassifier, data: Dataset, rows: Sequence[int]) -> dict[str, Any]:
    """Describe a fitted model as plain values; `rows` are the numbers of the examples."""
    from plench.estimator import find_confused, find_hardest, items_of, resolve_items

    resolution = resolve_items(model.model_, items_of(data))
    probs = model.model_.predict_proba(data.features)
    names = [str(label) for label in model.classes_]
    quality, verdict, calibration = model.quality_, model.verdict_, model.calibration_
    return {
        "verdict": None if verdict is None else verdict.verdict,
        "reasons": [] if verdict is None else list(verdict.reasons),
        "measure": None if verdict is None else verdict.measure,
        "agreement": None if verdict is None else vars(verdict.agreement),
        "baselines": [] if verdict is None else verdict.to_json()["baselines"],
        "examples": data.n_examples,
        "classes": names,
        "mean_candidates": data.mean_candidates,
        "reserved": [rows[row] for row in model.reserved_],
        "algorithm": model.algorithm_,
        "hparams": model.hparams_,
        "tried": None if model.leaderboard_ is None else len(model.leaderboard_),
        "quality": None if quality is None else quality.to_json(),
        "quality_text": None if quality is None else str(quality),
        "calibration": None
        if calibration is None
        else {key: value for key, value in calibration.to_json().items() if key != "scores"},
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
    }


def format_report(report: dict[str, Any], data: str, output: str) -> str:
    """Return the report as text: what a reader acts on first, details below."""
    from plench.estimator.verdict import DOUBTFUL, GOOD, GUESSING, RULES

    quality, calibration = report["quality"], report["calibration"]
    source = quality["source"] if quality else None
    verdict = report["verdict"] or "not assessed"
    lines = [f"verdict: {verdict}" + "".join(f"; {reason}" for reason in report["reasons"])]
    rows = f"{report['examples']:,} rows, {len(report['classes'])} classes"
    rows += f", {report['mean_candidates']:.2f} candidates per row"
    if report["reserved"]:
        rows += f"; {len(report['reserved']):,} of the rows were reserved: not trained on"
    lines.append(f"learned from: {data}: {rows}")
    chosen = f", chosen among {report['tried']}" if report["tried"] else ""
    lines.append(f"method: {report['algorithm']}{chosen}")
    audit = f"label a few rows: plench audit {output} {data} -n 50 -o audit.csv"
    next_steps = {
        GOOD: f"predict new rows: plench predict {output} NEW; to be sure of the accuracy, {audit}",
        DOUBTFUL: f"before you rely on it, {audit}",
        GUESSING: f"do not use it; look at the data first: plench data info {data}",
        "not assessed": "fit with --reserve 0.2 for a verdict, estimates, and calibrated probabilities",
    }
    lines.append(f"next: {next_steps[verdict]}")
    if source == "cross-fitted":
        lines.append(
            "no guarantee holds: with so few rows none are reserved, and figures are those of models that "
            "were trained without a fifth of the rows each"
        )
    if verdict == "not assessed":
        lines.append(
            "without reserved rows there is no honest estimate of accuracy, no comparison with baselines, "
            "and probabilities are not calibrated"
        )
    if report["baselines"]:
        measure = {"CR": "covering rate", "accuracy": "accuracy on true labels"}[report["measure"]]
        lines.append(f"compared by {measure}, 95 % intervals:")
        lines.append(f"  {'this model':<44} {report['agreement']['value']:.3f}")
        for each in report["baselines"]:
            gain = each["advantage"]
            shown = f"{gain['value']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})"
            lines.append(f"  {each['name']:<44} {each['agreement']:.3f}; the model's advantage {shown}")
    if quality:
        lines.append("how good it is:")
        lines += [f"  {line}" for line in report["quality_text"].splitlines()]
    if calibration:
        text = f"temperature {calibration['temperature']:.2f}, fitted on {calibration['n']:,} rows"
        if not calibration["is_calibrated"]:
            text = "not calibrated: the rows do not determine a temperature"
        lines.append(f"probabilities: {text}")
    lines.append("configuration: " + ", ".join(f"{key}={value}" for key, value in report["hparams"].items()))
    lines.append("hardest examples (rows as `plench resolve` counts them):")
    lines += [f"  {each['example']}: {each['label']} {each['probability']:.3f}" for each in report["hardest"]]
    lines.append("labels most confused (mean probability of the second where the first is resolved):")
    lines += [
        f"  {each['label']} with {each['with']} {each['probability']:.3f}" for each in report["confused"]
    ]
    if report["verdict"]:
        lines.append("rules of the verdict:")
        lines += [f"  {line}" for line in RULES.splitlines()]
    return "\n".join(lines)
