"""Figures, each drawn on a matplotlib Figure (extra `report`). No pyplot, no global state.

One file here is one figure: a module with a `FIGURE`, found automatically; third parties' come by entry
point.
"""

from plench.registry import Registry
from plench.report.figures.base import FigureKind

FIGURES = Registry[FigureKind](
    "figure",
    __name__,
    "a plench.report.figures.base.FigureKind",
    lambda value: isinstance(value, FigureKind),
    lambda figure: figure.name,
    group="plench.figures",
)
