"""Work with the results of finished runs: folders of runs, or results files (`plench results export`).

`stats` prints Friedman, Nemenyi and Wilcoxon–Holm over datasets, win/tie/loss, bootstrap intervals, regret
and rank correlation of every criterion. `compare-paper` compares runs on the real PLCIFAR10 release with the
paper's number of steps, and marks figures of the paper that came from a faulty implementation.

`export` writes one row per record, with configuration, criteria, test figures, timing, versions and identity
(columns: docs/results-file.md); every command that reads folders of runs reads that file too. `verify`
repeats runs: records must be bit-equal where versions, platform, device and threads are the same, elsewhere
criteria and test accuracy of the last record must agree within --tolerance, and the largest difference is
printed. A stacked run is repeated with its stack, if the results have all of it. Exit code 1 if a run differs
or cannot be repeated. `submit check` executes nothing of a submission unless --run-code is given.

examples:
  plench results stats runs/ --criteria CR --alpha 0.1 --pairs
  plench results plot boxes runs/ --output boxes.pdf
  plench results plot ranks runs/ --criteria CR --post-hoc wilcoxon --output ranks.svg
  plench results plot slope runs_a/ runs_b/ --datasets Lost --output slope.svg
  plench results plot cost step.json --output cost.pdf      step.json: plench bench step --output
  plench results compare-paper runs/ --criteria CR OA
  plench results export runs/ -o results.parquet
  plench results verify results.parquet --sample 5 --data-dir DIR
  plench results verify theirs.parquet --run-code --source their_method.py
  plench results submit check mine.parquet --source my_method.py --against results.parquet
  plench results submit merge results.parquet mine.parquet --source my_method.py -o new.parquet
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from plench.cli import Parser, add_command
from plench.cli.options import (
    add_input_options,
    add_plan_options,
    add_width_option,
    print_warnings,
    read_input,
    terminal_width,
)
from plench.errors import UsageError
from plench.report.leaderboard import split_by_truth, warn_of_defects
from plench.report.tables import SCORED_LEGEND, describe_incomplete, render_text
from plench.runs.records import Run
from plench.runs.results import StoredResults, check_name, gather_results, write_results_file
from plench.runs.verify import TOLERANCE, check_submission, choose_sample, merge_results
from plench.settings import PROTOCOL_VERSION
from plench.text import clean

RESULTS: dict[str, Any] = {"metavar": "DIR", "help": "folder of runs, or results file"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "test differences between algorithms and judge the criteria"
    stats = add_command(commands, "stats", text, show_statistics)
    add_input_options(stats)
    stats.add_argument("--alpha", type=float, default=0.05, help="level of significance (default: 0.05)")
    stats.add_argument("--pairs", action="store_true", help="list all pairs, not only those with the best")
    stats.add_argument("--json", action="store_true", help="print JSON (with all pairs)")
    commands.add_parser("plot", help="draw a figure (box plots, ranks, curves, …)", fill=add_figures)
    text = "compare PLCIFAR10 results with the paper's"
    paper = add_command(commands, "compare-paper", text, compare_with_paper)
    add_input_options(paper)
    add_plan_options(paper)
    paper.add_argument("--json", action="store_true", help="print JSON")
    export = add_command(commands, "export", "write all records to one Parquet file", export_results)
    export.add_argument("folders", **RESULTS, nargs="+")
    text = "repeat a random sample of runs and compare their records"
    verify = add_command(commands, "verify", text, repeat_sample)
    submit = commands.add_parser("submit", help="check runs of a new algorithm, or merge them into results")
    steps = submit.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "check that runs are complete and match their description"
    check = add_command(steps, "check", text, check_submitted)
    check.add_argument("--against", metavar="FILE", help="results file that they would be added to")
    for command in (verify, check):
        command.add_argument("results", **RESULTS)
        add_repeat_options(command)
    text = "add a submission that passes the check to a results file"
    merge = add_command(steps, "merge", text, merge_submission)
    merge.add_argument("into", metavar="FILE", help="results file, or folder of runs")
    merge.add_argument("results", metavar="DIR", help="the submission: folder of runs, or results file")
    merge.add_argument("--source", type=Path, required=True, metavar="FILE", help="the algorithm's file")
    for command in (export, merge):
        command.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="FILE.parquet")


def add_repeat_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose which runs are repeated, and how."""
    parser.add_argument("--sample", type=int, default=5, metavar="N", help="how many runs (default: 5)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the sample (default: 0)")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files")
    parser.add_argument("--device", default="cpu", help="device to repeat them on (default: cpu)")
    text = f"largest difference of accuracies where they need not be bit-equal (default: {TOLERANCE})"
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, metavar="T", help=text)
    text = "the runs were made on another kind of processor: they need not be bit-equal"
    parser.add_argument("--other-processor", action="store_true", help=text)
    text = "also repeat runs of third-party algorithms, which executes their code"
    parser.add_argument("--run-code", action="store_true", help=text)
    parser.add_argument("--source", type=Path, metavar="FILE", help="file of the third-party algorithm")


def add_figures(parser: Parser) -> None:
    """Add a command for each figure."""
    from plench.report.figures import FIGURES  # imports scipy.stats

    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True)
    for name, figure in FIGURES.items():
        kind = kinds.add_parser(name, help=figure.meaning, description=figure.meaning)
        if figure.from_runs:
            add_input_options(kind)
        for flag, details in figure.options.items():
            kind.add_argument(flag, **details)
        text = "FILE.svg, FILE.pdf or FILE.png"
        kind.add_argument("--output", type=Path, required=True, metavar="FILE", help=text)
        add_width_option(kind)
        kind.set_defaults(run=plot, figure=figure)


def show_statistics(args: argparse.Namespace) -> int:
    """Print the statistics of the runs in the given folders."""
    from plench.report.criteria_quality import judge_criteria, quality_rows, quality_tables
    from plench.report.statistics import compare_algorithms, comparison_tables

    if not 0 < args.alpha < 1:
        raise UsageError(f"--alpha must lie between 0 and 1, not {args.alpha}")
    found = read_input(args)
    comparisons, without_labels = (
        {} if board is None else {c.name: compare_algorithms(board, c, args.alpha) for c in board.criteria}
        for board in split_by_truth(found.board)
    )
    judged = judge_criteria(found.runs, found.criteria)
    if args.json:
        content = {"alpha": args.alpha, "by_criterion": comparisons, "criteria": quality_rows(judged)}
        more = {"without_labels": without_labels} if without_labels else {}
        print(json.dumps({**content, **more}, indent=2))
    else:
        width = terminal_width()
        for comparison in (*comparisons.values(), *without_labels.values()):
            print(render_text(comparison_tables(comparison, args.alpha, args.pairs), width) + "\n")
        if without_labels:
            print(f"{SCORED_LEGEND}\n")
        if comparisons:
            print(render_text(quality_tables(judged, found.criteria), width))
    print_warnings([*found.warnings, *warn_of_defects(found.board), describe_incomplete(found.board)])
    return 0


def plot(args: argparse.Namespace) -> int:
    """Read the data of the figure, draw and save it."""
    from plench.report.drawing import check_figure, figure_style, save_figure

    figure = args.figure
    check_figure(args.output, args.width)
    found = read_input(args, folders_apart=figure.folders_apart) if figure.from_runs else None
    if found is not None:
        print_warnings([*found.warnings, *warn_of_defects(found.board), describe_incomplete(found.board)])
    with figure_style():
        save_figure(figure.draw(found, args), args.output)
    print(args.output)
    return 0


def compare_with_paper(args: argparse.Namespace) -> int:
    """Print the comparison with the paper."""
    from plench.report import compare_paper

    found = read_input(args)
    rows, reasons = compare_paper.compare_with_paper(found.board, found.runs)
    if args.json:
        print(json.dumps({"cells": rows, "not_compared": reasons}, indent=2))
    else:
        tables = render_text(compare_paper.paper_tables(rows), terminal_width())
        print(tables if rows else "nothing here can be compared with the paper")
        for reason in reasons:
            print(f"not compared: {clean(reason, None)}")
    print_warnings(found.warnings)
    return 0


def export_results(args: argparse.Namespace) -> int:
    """Write the results file and print what it has."""
    check_name(args.output)
    results = gather_results(args.folders)
    write_results_file(results, args.output)
    print_warnings(results.warnings)
    print(f"{args.output}: {results.describe()}")
    return 0


def repeat_sample(args: argparse.Namespace, runs: list[Run] | None = None) -> int:
    """Repeat `args.sample` of the runs, by default of all; return 1 if one does not agree, else 0."""
    from plench.training import verify_runs

    if args.sample < 1:
        raise UsageError(f"--sample must be at least 1, not {args.sample}")
    if not 0 <= args.tolerance <= 1:
        raise UsageError(f"--tolerance must lie between 0 and 1, not {args.tolerance}")
    runs = gather_results([args.results]).runs if runs is None else runs
    sample, warnings = choose_sample(runs, args.sample, args.seed, args.run_code)
    print_warnings(warnings)
    if not sample:
        raise UsageError("there is no finished run that could be repeated")
    n_good = 0
    for verdict in verify_runs(
        sample,
        others=runs,
        data_dir=args.data_dir,
        source=args.source,
        device=args.device,
        tolerance=args.tolerance,
        other_processor=args.other_processor,
    ):
        n_good += verdict.good
        text = "bit-equal"
        if verdict.differences:
            more = len(verdict.differences) - 3
            text = "DIFFERS: " + "; ".join(clean(text, 300) for text in verdict.differences[:3])
            text += f"; and {more} more" if more > 0 else ""
            if verdict.repeated and not verdict.conditions:
                text += " (if the runs were made on another kind of processor, add --other-processor)"
        elif verdict.conditions:
            conditions = clean(", ".join(verdict.conditions), 300)
            text = f"within {args.tolerance:g}, {verdict.largest} (different here: {conditions})"
        print(f"{clean(verdict.run.path.name, None)}: {text}", flush=True)
    print(f"{n_good} of {len(sample)} repeated runs agree (drawn with seed {args.seed} of {len(runs):,})")
    return 0 if n_good == len(sample) else 1


def check_submitted(args: argparse.Namespace) -> int:
    """Print what every check found; return 1 if anything is wrong."""
    if args.source is None:
        raise UsageError("the algorithm's file is needed: --source FILE")
    results = gather_results([args.results])
    others = gather_results([args.against]) if args.against else None
    if not _print_checks(results, args.source, others):
        return 1
    if not args.run_code:
        print("No run was repeated: --run-code does that, and executes the submission's code.")
        return 0
    submitted = [run for run in results.runs if "@" in run.experiment.algorithm]
    return repeat_sample(args, submitted)


def merge_submission(args: argparse.Namespace) -> int:
    """Write a results file with both, if the submission passes."""
    check_name(args.output)
    into, submission = gather_results([args.into]), gather_results([args.results])
    if not _print_checks(submission, args.source, into):
        return 1
    merged = merge_results([into, submission])
    write_results_file(merged, args.output)
    print(f"{args.output}: {merged.describe()}")
    return 0


def _print_checks(results: StoredResults, source: Path, others: StoredResults | None) -> bool:
    found = check_submission(results, source, PROTOCOL_VERSION, others.runs if others is not None else ())
    for name, problems in found.items():
        print(f"{name}: {'' if problems else 'good'}".rstrip())
        for problem in problems:
            print(f"  {clean(problem, None)}")
    good = not any(found.values())
    print(f"{results.describe()}: " + ("passed" if good else "NOT passed"))
    return good
