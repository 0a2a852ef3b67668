"""The figures of `results plot`, by name. A new one is a `FigureKind` in a module here and an entry below."""

from plench.report.drawing import FigureKind
from plench.report.figures.comparisons import BOXES, RANKS, SLOPE
from plench.report.figures.costs import COST, PARETO
from plench.report.figures.single_runs import CRITERION, CURVES, SENSITIVITY

FIGURES: dict[str, FigureKind] = {
    kind.name: kind for kind in (BOXES, COST, CRITERION, CURVES, PARETO, RANKS, SENSITIVITY, SLOPE)
}
