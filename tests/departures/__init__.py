"""Departures as switches: our method turned into the other side's, a class for each row that changes numbers.

`@departure(PAGE, WHAT)` names the row of the page: WHAT stands in it. `tests/algorithms/test_departures.py`
shows for each where the numbers change; docs/results/defects.md has what some of them cost. Rows that
are not about numbers are in `table.OTHER`. Nothing here is part of the package.
"""

from tests.departures import frontier, hard, newer, vanilla
from tests.departures.table import DEPARTURES, OTHER, Departure

__all__ = ["DEPARTURES", "OTHER", "Departure", "frontier", "hard", "newer", "vanilla"]
