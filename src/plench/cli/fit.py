"""Fit a model to a table, arrays or any dataset with candidate sets or annotators' answers.

By default several methods and configurations are tried within a budget, and a criterion that is measured on
held-out candidate sets chooses; true labels are not used. Ctrl-C keeps the best so far.

A share of the rows is reserved (--reserve): they are neither trained on nor used to choose. The verdict, the
estimates, calibrated probabilities and prediction sets come from them. True labels, if the data has any, are
used on reserved rows only: for accuracy and verdict, and for the calibration if all of these rows have one.

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

import numpy as np

from plench.cli.options import (
    add_encoder_options,
    check_outputs,
    given_encoders,
    print_warnings,
    read_hparams,
)
from plench.data import Dataset
from plench.data.sources import add_encoders, find_source, log_warnings
from plench.errors import DataError, RunFailedError, UsageError
from plench.model_file import read_head
from plench.text import counted

if TYPE_CHECKING:  # imports torch
    from plench.estimator import PartialLabelClassifier

STRICT_CODE = 3
ROWS_SHOWN = 5


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
    page = "also write the report as one HTML page, with texts or images of rows to relabel"
    parser.add_argument("--report", metavar="FILE", help=page)
    drop = "leave out the answers of these annotators, and compare with a model that has them"
    parser.add_argument("--drop-annotators", metavar="A,B", help=drop)
    review = "do not look for rows to relabel and annotators to check, which trains five more models"
    parser.add_argument("--no-review", action="store_true", help=review)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0)")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files of a named dataset")
    add_encoder_options(parser, "; none: train on pixels (default: one that is installed)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or mps (default: cpu)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def load_data(args: argparse.Namespace) -> Dataset:
    """Load the data; where a network is trained on pixels, say so before warnings about the data."""
    from plench.algorithms import find_algorithm
    from plench.estimator import hide_truth
    from plench.estimator.classifier import STEPS
    from plench.estimator.folds import FOLDS
    from plench.estimator.search import DEFAULT_RUNS, PORTFOLIO, TrainingData, announce_pixels

    encoders = {**given_encoders(args), "image_encoder": args.image_encoder or "auto"}
    source = find_source(add_encoders(args.data, **encoders))
    data = source.load(None if args.data_dir is None else Path(args.data_dir))
    if data.card.kind == "image":
        is_auto = args.algorithm == "auto"
        entry = find_algorithm(PORTFOLIO[0] if is_auto else args.algorithm)
        settings = {"steps": args.steps or STEPS, "device": args.device}
        runs = (args.n_runs or DEFAULT_RUNS) if is_auto else 1
        further = (is_auto and not args.no_refit) + (0 if args.no_review else FOLDS)
        announce_pixels(TrainingData(hide_truth(data)), entry, settings, runs, args.time, further)
    return log_warnings(data)


def run(args: argparse.Namespace) -> int:
    """Fit, write the model, and report."""
    from plench.estimator import PartialLabelClassifier, hide_truth, number_rows
    from plench.estimator.review import drop_annotators, store_rows
    from plench.estimator.verdict import GUESSING
    from plench.report.fit_page import MAX_ROWS, show_rows, write_fit_page

    output = Path(args.output)
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise UsageError(f"cannot write {args.output!r}: it is a folder, or its folder is not there")
    if args.strict and args.reserve == 0:
        raise UsageError("--strict needs a verdict, which --reserve 0 leaves no rows for")
    outputs = {"--output": args.output, "--report": args.report}
    check_outputs(outputs, {"the data themselves": args.data})
    if args.report is not None and not args.report.lower().endswith((".html", ".htm")):
        raise UsageError(f"--report is {args.report!r}; expected an HTML file")
    data = load_data(args)
    numbers = number_rows(args.data, data.n_examples)
    whole, kept = data, np.arange(data.n_examples)
    dropped = [name.strip() for name in (args.drop_annotators or "").split(",") if name.strip()]
    if dropped:
        data, kept = drop_annotators(data, dropped)
        numbers = [numbers[row] for row in kept]
        if len(kept) < whole.n_examples:
            n_lost = counted(whole.n_examples - len(kept), "row")
            print_warnings([f"{n_lost} with no answer but those of {', '.join(dropped)} left out"])
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
        hidden = hide_truth(data)
        model.model_.notes["rows"] = store_rows(hidden, model.model_, model.reserved_, None, numbers)
        model.save(output)  # it can be audited, even if the review does not end
        review = None if args.no_review else review_model(model, data, hidden, numbers, args)
        model.save(output)
        comparison = None
        if dropped:
            comparison = describe_dropped(model, hide_truth(whole), hidden, kept, dropped, args)
        report = make_report(model, hidden, numbers) | {"review": review, "dropped": comparison}
        if args.report is not None:
            relabel = [] if review is None else review["relabel"][:MAX_ROWS]
            shown = show_rows(hidden.features, {each["row"]: each["place"] for each in relabel})
            write_fit_page(read_head(output)[0], Path(args.report), shown)
        print(json.dumps(report, indent=1) if args.json else format_report(report, args.data, args.output))
    except KeyboardInterrupt:
        print(f"stopped before the report; wrote {args.output}", file=sys.stderr)
        raise
    written = " and ".join(filter(None, (args.output, args.report)))
    print(f"wrote {written}", file=sys.stderr if args.json else sys.stdout)
    return STRICT_CODE if args.strict and report["verdict"] in (None, GUESSING) else 0


def review_model(
    model: PartialLabelClassifier,
    data: Dataset,
    hidden: Dataset,
    numbers: Sequence[int],
    args: argparse.Namespace,
) -> dict[str, Any] | None:
    """Find rows to relabel and rate annotators, and store both in the model; None if that is not possible."""
    from plench.algorithms import find_algorithm
    from plench.estimator.review import describe_review, review_fit, store_rows
    from plench.estimator.search import TrainingData

    logits = model._fold_logits  # those that assessed the model serve here too
    if logits is None:
        print("training five more models to find rows to relabel", file=sys.stderr, flush=True)
    entry = None if args.algorithm == "auto" else find_algorithm(args.algorithm)
    try:
        found = review_fit(TrainingData(hidden), model.model_, model.reserved_, args.seed, entry, logits)
    except (DataError, RunFailedError) as error:
        print_warnings([f"no rows to relabel are found: {error}"])
        return None
    truth = data.known_labels if data.labels is None else data.labels
    model.model_.notes["rows"] = store_rows(hidden, model.model_, model.reserved_, found, numbers)
    review = describe_review(found, hidden, numbers, truth)
    model.model_.notes["review"] = review
    return review


def describe_dropped(
    model: PartialLabelClassifier,
    whole: Dataset,
    reduced: Dataset,
    kept: Any,
    names: Sequence[str],
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Return what leaving out annotators changed in the criterion on reserved rows."""
    from plench.algorithms import find_algorithm
    from plench.estimator.review import compare_dropped

    who, criterion = ", ".join(names), args.criterion
    if not len(model.reserved_):
        return {"text": f"without {who}: no rows are reserved, so there is no comparison with a model of all"}
    entry = None if args.algorithm == "auto" else find_algorithm(args.algorithm)
    own, theirs, gain = compare_dropped(model.model_, whole, reduced, kept, model.reserved_, criterion, entry)
    verdict = "improved" if gain.low > 0 else "worse" if gain.high < 0 else "no clear difference"
    difference = f"{gain.value:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})"
    text = (
        f"without {who}: {criterion} {own}, with them {theirs}; difference {difference} "
        f"on {gain.n:,} reserved rows with the sets of the other annotators: {verdict}"
    )
    figures = {"without": vars(own), "with": vars(theirs), "difference": vars(gain)}
    return {"annotators": list(names), "criterion": criterion, **figures, "verdict": verdict, "text": text}


def list_review(review: dict[str, Any] | None) -> list[str]:
    """Return the lines about rows to relabel, confused labels and annotators."""
    from plench.estimator.review import TOO_FEW, AnnotatorRating

    if review is None:
        return []
    lines = [f"what to relabel ({sum(review['doubts'].values()):,} of {review['measured']:,} rows), first:"]
    lines += [
        f"  {each['item'] or 'row ' + str(each['row'])}: {each['reason']}"
        for each in review["relabel"][:ROWS_SHOWN]
    ]
    pairs = [
        (n, first, second)
        for first, counts in zip(review["classes"], review["confusion"], strict=True)
        for second, n in zip(review["classes"], counts, strict=True)
        if first != second and n
    ]
    lines.append("labels most confused (rows resolved to the first whose prediction is the second):")
    lines += [
        f"  {first} with {second}: {counted(n, 'row')}"
        for n, first, second in sorted(pairs, reverse=True)[:ROWS_SHOWN]
    ]
    if review["annotators"]:
        lines.append("annotators to check (0 is the skill of one who always gives the same answer):")
        flagged = [each for each in review["annotators"] if each["flag"] not in ("", TOO_FEW)]
        lines += [f"  {AnnotatorRating(**each)}" for each in flagged[:ROWS_SHOWN]]
        if not flagged:
            lines.append("  none stands out")
    return lines


def make_report(model: PartialLabelClassifier, data: Dataset, rows: Sequence[int]) -> dict[str, Any]:
    """Describe a fitted model as plain values; `rows` are the numbers of the examples."""
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
    if not report["reserved"]:
        audit = f"label a few rows of other data: plench audit {output} OTHER -n 50 -o audit.csv"
    next_steps = {
        GOOD: f"predict new rows: plench predict {output} NEW; to be sure of the accuracy, {audit}",
        DOUBTFUL: f"before you rely on it, {audit}",
        GUESSING: f"do not use it; look at the data first: plench data info {data}",
        "not assessed": "fit with --reserve 0.2 for a verdict, estimates, and calibrated probabilities",
    }
    lines.append(f"next: {next_steps[verdict]}")
    if source == "cross-fitted":
        lines.append(
            "no guarantee holds: with so few rows or groups none are reserved, and figures are those of "
            "models that were trained without a fifth of the rows each"
        )
    if verdict == "not assessed":
        lines.append(
            "without reserved rows there is no honest estimate of accuracy, no comparison with baselines, no "
            "prediction set, no row to audit, and probabilities are not calibrated"
        )
    if report["baselines"]:
        measure = {"CR": "covering rate", "accuracy": "accuracy on true labels"}[report["measure"]]
        lines.append(f"compared by {measure}, 95 % intervals:")
        ours = report["agreement"]
        lines.append(f"  {'this model':<44} {ours['value']:.3f} ({ours['low']:.3f} to {ours['high']:.3f})")
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
    if verdict == GUESSING and report["review"]:
        lines.append("the model does not beat guessing, so the lists of rows and annotators mean little:")
    lines += [*list_review(report["review"]), *([report["dropped"]["text"]] if report["dropped"] else [])]
    if report["verdict"]:
        lines.append("rules of the verdict:")
        lines += [f"  {line}" for line in RULES.splitlines()]
    return "\n".join(lines)
