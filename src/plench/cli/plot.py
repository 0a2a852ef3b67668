"""`plench plot`: draw figures (box plots, ranks, curves, …)."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plench.cli.shared.options import add_width_option
from plench.cli.shared.results_input import add_input_options, read_input
from plench.criteria import Criterion
from plench.errors import UsageError
from plench.names import find_name
from plench.report.escape import clean
from plench.report.grids import describe_incomplete
from plench.report.leaderboard import (
    Leaderboard,
    build_leaderboard,
    label_settings,
    title_criterion,
    warn_of_defects,
)
from plench.report.results import Results
from plench.storage.records import Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXAMPLES = """examples:
  plench plot boxes runs/ --output boxes.pdf
  plench plot ranks runs/ --criteria CR --post_hoc wilcoxon --output ranks.svg
  plench plot curves runs/ --datasets Lost --criteria AA --output curves.png
  plench plot slope runs_a/ runs_b/ --datasets Lost --output slope.svg
  plench plot cost step.json --output cost.pdf          (step.json: benchmarks/step.py --json)
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True)
    boxes = _add_kind(kinds, "boxes", "box plots of test accuracy, one panel per criterion", plot_boxes)
    boxes.add_argument("--leave_out", nargs="*", metavar="NAME", help="default: NN and GA, as in the paper")
    ranks = _add_kind(kinds, "ranks", "critical-difference diagram over datasets", plot_ranks)
    ranks.add_argument("--post_hoc", choices=("nemenyi", "wilcoxon"), default="nemenyi", help="which groups")
    ranks.add_argument("--alpha", type=float, default=0.05, help="level of significance (default 0.05)")
    _add_kind(kinds, "curves", "learning curves with the selected checkpoint", plot_curves)
    _add_kind(kinds, "criterion", "each criterion against test accuracy", plot_criterion)
    _add_kind(kinds, "sensitivity", "test accuracy against each hyperparameter", plot_sensitivity)
    pareto = _add_kind(kinds, "pareto", "accuracy against time per step, with the Pareto front", plot_pareto)
    pareto.add_argument(
        "--costs", type=Path, required=True, metavar="JSON", help="from benchmarks/step.py --json"
    )
    _add_kind(kinds, "slope", "two folders of runs side by side, with rank inversions", plot_slope, True)
    cost = kinds.add_parser("cost", help="time and memory of a step, by algorithm")
    cost.add_argument("costs", type=Path, metavar="JSON", help="from benchmarks/step.py --json")
    cost.add_argument("--dataset", metavar="NAME", help="which dataset, if the file has several")
    _add_output(cost)
    cost.set_defaults(handler=plot_cost)


def _add_kind(
    kinds: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    draw: Callable[[argparse.Namespace, Results], "Figure"],
    folders_apart: bool = False,
) -> argparse.ArgumentParser:
    parser = kinds.add_parser(name, help=text, description=text)
    add_input_options(parser)
    _add_output(parser)

    def handle(args: argparse.Namespace) -> int:
        found = read_input(args, folders_apart=folders_apart)
        board = _board(found)
        for notice in (*found.notices, *warn_of_defects(board), describe_incomplete(board)):
            if notice:
                print(f"notice: {notice}", file=sys.stderr)
        return _draw_and_save(args, lambda: draw(args, found))

    parser.set_defaults(handler=handle)
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="FILE.svg, FILE.pdf or FILE.png"
    )
    add_width_option(parser)


def _draw_and_save(args: argparse.Namespace, draw: Callable[[], "Figure"]) -> int:
    from plench.report.figures.style import check_format, check_width, figure_style, save_figure

    check_format(args.output)
    check_width(args.width)
    with figure_style():
        save_figure(draw(), args.output)
    print(args.output)
    return 0


def plot_boxes(args: argparse.Namespace, found: Results) -> "Figure":
    """Draw the paper's box plots."""
    from plench.report.figures.boxes import LEFT_OUT_BY_THE_PAPER, draw_boxes

    board = _board(found)
    if args.leave_out is None:
        return draw_boxes(board, LEFT_OUT_BY_THE_PAPER, args.width)
    left_out = [find_name(name, board.algorithms, "algorithm") for name in args.leave_out]
    return draw_boxes(board, left_out, args.width)


def plot_ranks(args: argparse.Namespace, found: Results) -> "Figure":
    """Draw a critical-difference diagram."""
    from plench.report.figures.ranks import draw_ranks

    if not 0 < args.alpha < 1:
        raise UsageError(f"--alpha must lie between 0 and 1, not {args.alpha}")
    return draw_ranks(_board(found), _one_criterion(args, found), args.post_hoc, args.alpha, args.width)


def plot_curves(args: argparse.Namespace, found: Results) -> "Figure":
    """Draw learning curves of one setting."""
    from plench.report.figures.curves import draw_curves

    board = _board(found)
    return draw_curves(board, _one_setting(board), _one_criterion(args, found), args.width)


def plot_criterion(args: argparse.Namespace, found: Results) -> "Figure":
    """Draw criteria against test accuracy."""
    from plench.report.figures.criterion import draw_criteria

    return draw_criteria(found.runs, found.criteria, args.width)


def plot_sensitivity(args: argparse.Namespace, found: Results) -> "Figure":
    """Draw the hyperparameters of one algorithm."""
    from plench.report.figures.sensitivity import draw_sensitivity

    algorithms = sorted({run.experiment.algorithm for run in found.runs})
    if len(algorithms) > 1:
        known = ", ".join(map(clean, algorithms))
        raise UsageError(f"one algorithm at a time: choose with --algorithms from {known}")
    return draw_sensitivity(found.runs, algorithms[0], _one_criterion(args, found), args.width)


def plot_pareto(args: argparse.Namespace, found: Results) -> "Figure":
    """Draw accuracy against cost."""
    from plench.report.costs import read_costs
    from plench.report.figures.pareto import draw_pareto

    return draw_pareto(_board(found), _one_criterion(args, found), read_costs(args.costs), args.width)


def plot_cost(args: argparse.Namespace) -> int:
    """Draw time and memory of a step."""
    from plench.report.costs import read_costs
    from plench.report.figures.cost import draw_costs

    costs = read_costs(args.costs)
    return _draw_and_save(args, lambda: draw_costs(costs, args.dataset, args.width))


def plot_slope(args: argparse.Namespace, found: Results) -> "Figure":
    """Draw the results of two folders side by side, for one dataset."""
    from plench.report.figures.slope import draw_slopes

    if len(args.folders) != 2:
        raise UsageError(f"a slope chart needs two folders of runs, not {len(args.folders)}")
    criterion = _one_criterion(args, found)
    sets: list[dict[str, float]] = []
    splits: list[int] = []
    settings: list[Experiment] = []
    for folder in args.folders:
        board = build_leaderboard(
            [run for run in found.runs if run.path.parent == Path(folder)], [criterion], found.plans
        )
        settings.append(_one_setting(board))
        sets.append(board.means(settings[-1], criterion))
        splits.append(max(cell.n for cell in board.cells.values()))
    labels = label_settings(set(settings))
    folders = _name_folders(args.folders)
    first, second = (f"{name}: {labels[s]}" for name, s in zip(folders, settings, strict=True))
    title = f"Mean test accuracy (%) selected by {title_criterion(criterion, settings)}"
    n = str(splits[0]) if splits[0] == splits[1] else f"{splits[0]} and {splits[1]}"
    return draw_slopes(sets[0], sets[1], (first, second), f"{title}, n = {n} splits", args.width)


def _name_folders(folders: Sequence[str]) -> list[str]:
    """Return the folders' own names, with as many of the folders above them as tell them apart."""
    parts = [Path(folder).resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts))):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(folders)


def _board(found: Results) -> Leaderboard:
    return build_leaderboard(found.runs, found.criteria, found.plans)


def _one_criterion(args: argparse.Namespace, found: Results) -> Criterion:
    """Return the criterion asked for; the first of all if none was."""
    if args.criteria and len(found.criteria) > 1:
        raise UsageError(f"this figure shows one criterion, not {', '.join(c.name for c in found.criteria)}")
    return found.criteria[0]


def _one_setting(board: Leaderboard) -> Experiment:
    if len(board.settings) != 1:
        known = ", ".join(clean(label) for label in board.labels.values()) or "none"
        raise UsageError(
            "this figure shows one dataset in one setting: choose with --datasets and --where "
            f"(there are {known})"
        )
    return board.settings[0]
