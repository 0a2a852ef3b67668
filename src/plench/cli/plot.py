"""Draw figures (box plots, ranks, curves, …).

examples:
  plench results plot boxes runs/ --output boxes.pdf
  plench results plot ranks runs/ --criteria CR --post-hoc wilcoxon --output ranks.svg
  plench results plot curves runs/ --datasets Lost --criteria AA --output curves.png
  plench results plot slope runs_a/ runs_b/ --datasets Lost --output slope.svg
  plench results plot cost step.json --output cost.pdf          (step.json: plench bench step --output)
"""

import argparse
from pathlib import Path

from plench.cli.options import add_input_options, add_width_option, print_warnings, read_input
from plench.report.drawing import FigureKind, check_figure, figure_style, save_figure
from plench.report.figures import FIGURES
from plench.report.leaderboard import warn_of_defects
from plench.report.tables import describe_incomplete


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True)
    for name, figure in FIGURES.items():
        kind = kinds.add_parser(name, help=figure.meaning, description=figure.meaning)
        if figure.from_runs:
            add_input_options(kind)
        for flag, details in figure.options.items():
            kind.add_argument(flag, **details)
        kind.add_argument(
            "--output", type=Path, required=True, metavar="FILE", help="FILE.svg, FILE.pdf or FILE.png"
        )
        add_width_option(kind)
        kind.set_defaults(run=plot, figure=figure)


def plot(args: argparse.Namespace) -> int:
    """Read what the figure is made from, draw and save it."""
    figure: FigureKind = args.figure
    check_figure(args.output, args.width)
    found = read_input(args, folders_apart=figure.folders_apart) if figure.from_runs else None
    if found is not None:
        print_warnings([*found.warnings, *warn_of_defects(found.board), describe_incomplete(found.board)])
    with figure_style():
        save_figure(figure.draw(found, args), args.output)  # type: ignore[arg-type]
    print(args.output)
    return 0
