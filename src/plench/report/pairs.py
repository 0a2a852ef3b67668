"""Two algorithms on the datasets that both have: wins, Wilcoxon's test, and its power."""

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np
from scipy import optimize, stats

from plench.criteria import Criterion
from plench.report.leaderboard import Leaderboard
from plench.report.statistics import Matrix, Scores, adjust_holm, count_wins, signed_rank_p

ALPHA = 0.05
POWER = 0.8


@dataclass(frozen=True)
class Pair:
    """The first algorithm against the second: datasets won, tied and lost, and the test over them.

    `p_value` is None for fewer than two datasets; `p_holm` is corrected for all pairs tested beside it.
    `spread` is the standard deviation of the differences over datasets, `detectable` the mean difference that
    a test with so many datasets and this spread finds four times in five (None: none, however large).
    """

    first: int
    second: int
    n_settings: int
    wins: int
    ties: int
    losses: int
    mean_difference: float | None
    p_value: float | None
    p_holm: float | None
    spread: float | None
    detectable: float | None


def compare_each_pair(board: Leaderboard, criterion: Criterion) -> list[Pair]:
    """Compare every two algorithms, each pair on the settings in which both have a figure."""
    values = np.full((len(board.settings), len(board.algorithms)), np.nan)
    errors = np.full_like(values, np.nan)
    for row, setting in enumerate(board.settings):
        for column, algorithm in enumerate(board.algorithms):
            cell = board.cell(setting, algorithm, criterion)
            if cell is not None and cell.mean is not None:
                values[row, column] = cell.mean
                errors[row, column] = np.nan if cell.stderr is None else cell.stderr
    pairs = []
    for first, second in combinations(range(len(board.algorithms)), 2):
        columns = [first, second]
        both = ~np.isnan(values[:, columns]).any(axis=1)
        pairs.append(_compare_two(first, second, values[both][:, columns], errors[both][:, columns]))
    tested = [number for number, pair in enumerate(pairs) if pair.p_value is not None]
    adjusted = adjust_holm(np.array([pairs[number].p_value for number in tested], dtype=float))
    holm = dict(zip(tested, map(float, adjusted), strict=True))
    return [replace(pair, p_holm=holm.get(number)) for number, pair in enumerate(pairs)]


def _compare_two(first: int, second: int, values: Matrix, errors: Matrix) -> Pair:
    """Compare two columns of means, all of which are there."""
    n = len(values)
    wins = count_wins(Scores(("",) * n, ("", ""), values, errors, ()))[0, 1]
    differences = np.round(values[:, 0] - values[:, 1], 12)
    spread = float(np.std(differences, ddof=1)) if n > 1 else None
    effect = smallest_effect(n)
    return Pair(
        first=first,
        second=second,
        n_settings=n,
        wins=int(wins[0]),
        ties=int(wins[1]),
        losses=int(wins[2]),
        mean_difference=float(np.mean(differences)) if n else None,
        p_value=signed_rank_p(differences) if n > 1 else None,
        p_holm=None,
        spread=spread,
        detectable=None if spread is None or effect is None else spread * effect,
    )


def smallest_p(n_settings: int) -> float:
    """Return the smallest p-value that the signed-rank test can give: all differences of one sign."""
    return 2.0 ** (1 - n_settings) if n_settings else 1.0


@cache
def smallest_effect(n_settings: int, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """Return the mean difference, in standard deviations, that a test over n settings finds with this power.

    It is that of the paired t-test, which the signed-rank test comes within five percent of for normal
    differences. None where the signed-rank test cannot reach `alpha` at all.
    """
    if smallest_p(n_settings) >= alpha:
        return None
    freedom = n_settings - 1
    limit = float(stats.t.ppf(1 - alpha / 2, freedom))

    def lacking(effect: float) -> float:
        shift = effect * math.sqrt(n_settings)
        found = stats.nct.sf(limit, freedom, shift) + stats.nct.cdf(-limit, freedom, shift)
        return float(found) - power

    high = 1.0
    while lacking(high) < 0:
        high *= 1.5
    return float(optimize.brentq(lacking, 0.0, high))


def describe_test(pair: Pair, n_tested: int, alpha: float = ALPHA) -> str:
    """Say in words what the test over datasets found, whichever algorithm is first."""
    n = pair.n_settings
    if pair.p_value is None or pair.p_holm is None:
        return (
            "No test: Wilcoxon's signed-rank test compares two algorithms over datasets, and these two have "
            f"{_count(n)} in common. Splits of one dataset overlap in their training examples, so they "
            "cannot stand in for datasets."
        )
    test = f"Wilcoxon's signed-rank test over the {_count(n)} that both have: p = {pair.p_value:.2g}"
    level = f"{100 * alpha:g} %"
    if n_tested < 2:
        found = "a difference" if pair.p_value < alpha else "no difference"
        return f"{test}. At {level} that shows {found}."
    corrected = (
        f"{test}, and {pair.p_holm:.2g} after Holm's correction for the {n_tested:,} pairs of this page."
    )
    if pair.p_holm < alpha:
        return f"{corrected} At {level} they differ, even as one pair picked out of so many."
    if pair.p_value < alpha:
        return (
            f"{corrected} At {level} they differ only if this pair was the question before anyone looked; "
            "picked out of all pairs, it shows no difference."
        )
    return f"{corrected} At {level} that shows no difference."


def describe_power(pair: Pair, alpha: float = ALPHA) -> str:
    """Describe the test's power with so many datasets in words."""
    n, level = pair.n_settings, f"{100 * alpha:g} %"
    if pair.p_value is None:
        return ""
    if smallest_p(n) >= alpha:
        needed = next(m for m in range(n, 100) if smallest_p(m) < alpha)
        return (
            f"Power: none. With {_count(n)} the smallest p-value this test can give is {smallest_p(n):.2g}, "
            f"even if one algorithm wins on all of them; below {level} takes at least {needed} datasets. "
            "That nothing was found says nothing."
        )
    if pair.detectable is None or not pair.spread:
        return ""
    return (
        f"Power: with {_count(n)} whose differences spread as these do (standard deviation "
        f"{100 * pair.spread:.1f} points), a single test at {level} finds a true mean difference of about "
        f"{100 * pair.detectable:.1f} points four times in five, and smaller ones less often. After "
        "correction for many pairs it finds less."
    )


def _count(n: int) -> str:
    return f"{n} dataset{'' if n == 1 else 's'}"
