"""Write a static site from folders of runs: leaderboard, every cell down to its runs,
comparisons, criteria, datasets, algorithms, and how it was made. It opens from disk.

Of a model file of `plench fit`: one HTML file with verdict, baselines, classes, calibration, what to relabel,
annotators, methods and provenance.

examples:
  plench report model.plench -o report.html        the page of a model
  plench report model.plench -o report.html --data animals.csv     with the texts or images of rows to relabel
  plench report runs/ -o site                      then open site/index.html
  plench report runs/ -o site --data-dir data      with flipping matrices, measured on the data
  plench report runs/ -o site --every 60           while a sweep runs: rewritten every minute
  plench report runs/ --paper paper                LaTeX tables, PDF figures, their CSV, paper.tex
"""

import argparse
import math
import shlex
import time
from pathlib import Path

from plench.cli.options import add_input_options, add_plan_options, print_warnings, read_input
from plench.data import as_dataset
from plench.errors import DataError, UsageError
from plench.model_file import is_model_file, read_head
from plench.report.figures import read_costs
from plench.report.fit_page import MAX_ROWS, show_rows, write_fit_page
from plench.report.site import list_sweep_files, write_site
from plench.report.tables import describe_incomplete
from plench.text import flag

FILTERS = ("datasets", "algorithms", "where", "criteria")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_input_options(parser)
    add_plan_options(parser)
    text = "folder of the site: a new one, or that of an earlier page; the HTML file of a model's page"
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help=text)
    text = "write tables, figures, references and the protocol for a paper (LaTeX) into this folder"
    parser.add_argument("--paper", type=Path, metavar="DIR", help=text)
    text = "data of a model, whose texts or images are shown where rows are to be relabelled"
    parser.add_argument("--data", metavar="DATA", help=text)
    text = "also show statistics of candidate sets of datasets in this folder or built in"
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help=text)
    text = "also show the cost of a step (plench bench step --output)"
    parser.add_argument("--costs", type=Path, metavar="JSON", help=text)
    text = "rewrite it every S seconds until all planned runs have ended"
    parser.add_argument("--every", type=float, metavar="S", help=text)


def describe_command(args: argparse.Namespace) -> str:
    """Return the command that makes the same page, with all that decides what is on it."""
    words = ["plench", "report", *map(str, args.folders)]
    for name in ("output", "paper", *FILTERS, "planned_trials", "planned_hparams", "data_dir", "costs"):
        value = getattr(args, name)
        if value is not None:
            words += [flag(name), *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


def run(args: argparse.Namespace) -> int:
    """Write the site or the page of a model, and print its path."""
    if args.output is None and (args.paper is None or args.every is not None):
        raise UsageError("say where to write: --output PATH for a page, --paper DIR for a paper")
    if is_model_file(args.folders[0]):
        return write_model_page(args)
    if args.data is not None:
        raise UsageError("--data is for the page of a model; name its file (model.plench)")
    if args.every is not None and not 0 < args.every < math.inf:
        raise UsageError(f"--every must be a positive number of seconds, not {args.every:g}")
    if args.paper is not None:
        from plench.report.paper import DOCUMENT, write_paper

        found = read_input(args)
        sweeps = list_sweep_files(args.folders)
        warnings = write_paper(found, args.paper, sweeps, describe_command(args), args.data_dir)
        print(args.paper / DOCUMENT)
        print_warnings([*found.warnings, *warnings, describe_incomplete(found.board)])
    if args.output is None:
        return 0
    while True:
        found, sweeps = read_input(args), list_sweep_files(args.folders)
        costs = () if args.costs is None else read_costs(args.costs)
        given = sweeps, describe_command(args), costs, args.data_dir
        page, is_complete, warnings = write_site(found, args.output, *given)
        sizes = [path.stat().st_size for path in args.output.rglob("*") if path.is_file()]
        print(f"{page}  ({len(sizes)} files, {sum(sizes) / 1e6:.1f} MB)", flush=True)
        if args.every is None or is_complete:
            break
        time.sleep(args.every)
    print_warnings(warnings)
    return 0


def write_model_page(args: argparse.Namespace) -> int:
    """Write the page of a model."""
    if args.output is None or args.paper is not None:
        raise UsageError("a model has a page, --output FILE.html, and no paper")
    if len(args.folders) > 1:
        raise UsageError(f"one page is of one model; {len(args.folders)} files were given")
    if args.output.is_dir() or args.output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--output is {str(args.output)!r}; expected an HTML file for the page of a model")
    head, _ = read_head(args.folders[0])
    notes, shown = head.get("notes") or {}, {}
    if args.data is not None:
        from plench.estimator.review import find_stored  # imports torch

        if "rows" not in notes or "review" not in notes:
            raise DataError(
                f"{args.folders[0]} has no rows to relabel, so --data has nothing to show; they are found by "
                "`plench fit` without --no-review"
            )
        data = as_dataset(args.data, args.data_dir)
        places = {int(row): place for place, row in enumerate(find_stored(notes["rows"], data.features))}
        listed = [each for each in notes["review"]["relabel"][:MAX_ROWS] if each["place"] in places]
        shown = show_rows(data.features, {each["row"]: places[each["place"]] for each in listed})
        n_missing = len(notes["review"]["relabel"][:MAX_ROWS]) - len(listed)
        print_warnings([f"{n_missing} rows to relabel are not in {args.data}"] if n_missing else [])
    write_fit_page(head, args.output, shown)
    print(args.output)
    return 0
