"""The regret of a criterion when fewer configurations are tried: exact, from the stored ones.

Of m configurations of a split, k are tried. If every subset of size k is as likely as any other, the j-th
best of the m by the criterion (ties in selection's own order) is the one chosen with probability
C(m − j, k − 1) / C(m, k): it is in the subset, and so are k − 1 of those after it. The expected test accuracy
is a sum over order statistics, and no subset has to be drawn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb
from statistics import fmean

from plench.criteria import Criterion, find_criterion
from plench.report.criterion_quality import REFERENCE
from plench.runs.records import Experiment, Run
from plench.runs.select import choose_checkpoint

MOST = 20


@dataclass(frozen=True)
class SubsetRegret:
    """Expected regret and test accuracy of each criterion after k = 1 … K configurations.

    Means over the experiments whose every split has K configurations; `n_left_out` others have fewer.
    """

    criteria: tuple[Criterion, ...]
    regrets: tuple[tuple[float, ...], ...]
    accuracies: tuple[tuple[float, ...], ...]
    n_experiments: int
    n_left_out: int


def expect_by_number(ordered: Sequence[float], n_configurations: int, most: int) -> list[float]:
    """Return the expected value of the best of k = 1 … `most` configurations drawn without replacement.

    `ordered` holds the values of the configurations that offer something, best choice first; the others of
    the `n_configurations` offer nothing. Subsets without anything to choose from do not count.
    """
    expected = []
    for k in range(1, most + 1):
        weights = _weights(len(ordered), n_configurations, k)
        expected.append(sum(weight * value for weight, value in zip(weights, ordered, strict=True)))
    return expected


@cache
def _weights(n_offering: int, n_configurations: int, k: int) -> tuple[float, ...]:
    """Return the probability that each configuration, by rank, is the best of k drawn."""
    counts = [comb(n_configurations - j, k - 1) for j in range(1, n_offering + 1)]
    total = sum(counts)  # C(m, k), less the subsets in which none offers anything
    return tuple(count / total for count in counts)


def measure_subset_regret(runs: Iterable[Run], shown: Sequence[Criterion]) -> SubsetRegret | None:
    """Average over the experiments of these runs; None if none has test figures by the reference."""
    by_experiment: dict[Experiment, dict[int, list[Run]]] = {}
    for run in runs:
        if run.finished:
            by_experiment.setdefault(run.experiment, {}).setdefault(run.trial_seed, []).append(run)
    reference = find_criterion(REFERENCE)
    needed = list(dict.fromkeys([*shown, reference]))
    tables = []
    for splits in by_experiment.values():
        most = min(MOST, min(map(len, splits.values())))
        curves = [_expect_split(group, needed, most) for group in splits.values()]
        whole = [curve for curve in curves if curve is not None]
        if whole:
            tables.append((most, whole))
    if not tables:
        return None
    # As many configurations as half of the experiments have: one that has only begun does not cut the others.
    most = sorted((n for n, _ in tables), reverse=True)[(len(tables) - 1) // 2]
    kept = [curves for n, curves in tables if n >= most]
    accuracies = [_average(kept, needed.index(criterion), most) for criterion in shown]
    best = _average(kept, needed.index(reference), most)
    return SubsetRegret(
        criteria=tuple(shown),
        regrets=tuple(tuple(b - a for b, a in zip(best, curve, strict=True)) for curve in accuracies),
        accuracies=tuple(map(tuple, accuracies)),
        n_experiments=len(kept),
        n_left_out=len(tables) - len(kept),
    )


def _expect_split(runs: list[Run], needed: Sequence[Criterion], most: int) -> list[list[float]] | None:
    """Return a curve for each criterion; None if one of them has nothing to choose on this split."""
    ordered_runs = sorted(runs, key=lambda run: (run.hparams_seed, run.seed, run.path.name))
    curves = []
    for criterion in needed:
        offers = []
        for run in ordered_runs:
            chosen = choose_checkpoint(run, criterion)
            test = None if chosen is None else chosen[0].get("test_acc")
            if chosen is not None and test is not None:
                offers.append((chosen[1], test))
        if not offers:
            return None
        # Sorting is stable: of equal scores the earlier configuration comes first, as in selection.
        offers.sort(key=lambda offer: offer[0], reverse=criterion.higher_is_better)
        curves.append(expect_by_number([test for _, test in offers], len(runs), most))
    return curves


def _average(experiments: list[list[list[list[float]]]], criterion: int, most: int) -> list[float]:
    """Average over splits, then over experiments."""
    return [
        fmean(fmean(split[criterion][k] for split in splits) for splits in experiments) for k in range(most)
    ]
