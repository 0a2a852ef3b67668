"""How good each criterion is: regret, rank correlation, regret with fewer configurations; sensitivity.

Regret when fewer configurations are tried is exact, from the stored ones. Of m configurations of a split, k
are tried. If every subset of size k is equally likely, the j-th best of the m by the criterion (ties in
selection's own order) is chosen with probability C(m − j, k − 1) / C(m, k): it is in the subset, and so are
k − 1 of those after it. The expected test accuracy is a sum over order statistics, and no subset is drawn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import comb
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy import stats

from plench.criteria import Criterion, criteria, find_criterion
from plench.report.leaderboard import group_by, label_settings, offered, title_criterion
from plench.report.tables import TableLayout, text_entries
from plench.runs.records import Experiment, Run, is_finite
from plench.runs.select import place_experiments, select

REFERENCE = "OA_ES"
MOST_CONFIGURATIONS = 20
MOST_CATEGORIES = 8
QUARTERS = 4


@dataclass(frozen=True)
class CriterionQuality:
    """Figures of one criterion on one experiment, averaged over splits; None where they are not defined.

    `regret` is the test accuracy lost compared with choosing by true labels with early stopping, on the
    same splits (it may be negative: validation labels are few). `rank_correlation` is Spearman's ρ, over the
    configurations of a split, of the criterion at the checkpoint it chose with the test accuracy there.
    """

    experiment: Experiment
    criterion: Criterion
    regret: float | None
    n_regret: int
    rank_correlation: float | None
    n_correlation: int


def score_and_test(run: Run, criterion: Criterion) -> tuple[float, float] | None:
    """Return score and test accuracy of the checkpoint a finished run offers, if its test set has labels."""
    _, score, test = offered(run, criterion) or (0, 0.0, None)
    return None if test is None else (score, test)


@dataclass(frozen=True)
class Sensitivity:
    """Test accuracies against one hyperparameter, each less the median of its experiment and split.

    `places` are the values, or numbers of `categories` if these are few or not numbers. `bins` has a value
    (or the ends of a quarter of the points), its place, the number of runs and their median difference.
    """

    name: str
    runs: list[Run]
    differences: list[float]
    places: list[float]
    categories: list[Any] | None
    bins: list[tuple[Any, float, int, float]]

    @property
    def is_log(self) -> bool:
        """Whether the values are positive numbers that spread over more than a decade."""
        return self.categories is None and min(self.places) > 0 and max(self.places) / min(self.places) > 20


def measure_sensitivity(runs: Iterable[Run], criterion: Criterion) -> list[Sensitivity]:
    """Return the test accuracies of finished runs against every hyperparameter that varies.

    Accuracy is taken at the checkpoint the criterion chose, less the median of its experiment and split, so
    that several datasets can be shown together and a failed configuration does not shift the others.
    """
    found = [(run, point[1]) for run in runs if (point := score_and_test(run, criterion)) is not None]
    points: list[tuple[Run, float]] = []
    for group in group_by(found, lambda item: (item[0].experiment, item[0].trial_seed)).values():
        middle = median(test for _, test in group)
        points.extend((run, test - middle) for run, test in group)
    own, differences = [run for run, _ in points], [difference for _, difference in points]
    measured = []
    for name in sorted({name for run in own for name in run.hparams if name != "max_steps"}):
        values = [run.hparams.get(name) for run in own]
        by_value = group_by(zip(values, differences, strict=True), lambda point: str(point[0]))
        if len(by_value) < 2:
            continue
        numbers = [float(value) for value in values if is_finite(value)]
        categories: list[Any] | None = None
        bins: list[tuple[Any, float, int, float]] = []
        if len(numbers) == len(values) and len(by_value) > MOST_CATEGORIES:
            x, y = np.array(numbers), np.array(differences)
            for part in np.array_split(np.argsort(x, kind="stable"), QUARTERS):
                ends = (float(x[part[0]]), float(x[part[-1]]))
                bins.append((ends, float(np.median(x[part])), len(part), float(np.median(y[part]))))
        else:
            firsts = {text: group[0][0] for text, group in by_value.items()}
            # Numbers first, by size, then other texts.
            ordered = sorted(firsts, key=lambda t: (0, firsts[t], "") if is_finite(firsts[t]) else (1, 0, t))
            categories = [firsts[text] for text in ordered]
            numbers = [float(ordered.index(str(value))) for value in values]
            for place, text in enumerate(ordered):
                same = [difference for _, difference in by_value[text]]
                bins.append((categories[place], float(place), len(same), median(same)))
        measured.append(Sensitivity(name, own, differences, numbers, categories, bins))
    return measured


def judge_criteria(runs: Iterable[Run], shown: Iterable[Criterion] | None = None) -> list[CriterionQuality]:
    """Return the quality of every criterion on every experiment."""
    runs = list(runs)
    by_experiment = group_by(runs, lambda run: run.experiment)
    reference = {
        (cell.experiment, choice.trial_seed): choice.test_acc
        for cell in select(runs, find_criterion(REFERENCE))
        for choice in cell.choices
    }
    judged = []
    for criterion in shown or criteria.values():
        for cell in select(runs, criterion):
            losses = []
            for choice in cell.choices:
                best = reference.get((cell.experiment, choice.trial_seed))
                if best is not None and choice.test_acc is not None:
                    losses.append(best - choice.test_acc)
            correlations = correlate_with_test(by_experiment[cell.experiment], criterion)
            judged.append(CriterionQuality(cell.experiment, criterion, *_mean(losses), *_mean(correlations)))
    return judged


def correlate_with_test(runs: Iterable[Run], criterion: Criterion) -> list[float]:
    """Return Spearman's ρ of criterion and test accuracy for each split that has three configurations.

    A split where either is the same for all configurations has no ρ and is left out.
    """
    by_split = group_by(runs, lambda run: run.trial_seed)
    sign = 1 if criterion.higher_is_better else -1
    correlations = []
    for trial in sorted(by_split):
        points = [point for run in by_split[trial] if (point := score_and_test(run, criterion)) is not None]
        if len(points) >= 3 and np.ptp(points, axis=0).all():
            scores, tests = np.array(points).T
            correlations.append(float(stats.spearmanr(sign * scores, tests).statistic))
    return correlations


@dataclass(frozen=True)
class Summary:
    """Averages of one criterion over several experiments, each with the number of those that have it."""

    n_experiments: int
    regret: float | None
    n_regret: int
    rank_correlation: float | None
    n_correlation: int


def average_quality(judged: Iterable[CriterionQuality], by: str) -> dict[tuple[str, str], Summary]:
    """Average regret and rank correlation by criterion and, within it, by `dataset`, `algorithm` or `all`.

    A dataset in several settings (other steps, another network) has one place for each; averages over
    datasets count it once, with the mean over its settings.
    """
    judged = list(judged)
    tables = place_experiments(quality.experiment for quality in judged)
    labels = label_settings(dict.fromkeys(setting for settings in tables.values() for setting in settings))
    placed = []
    for quality in judged:
        datasets = [labels[setting] for setting in tables[quality.experiment]]
        places = {"all": ["all"], "dataset": datasets, "algorithm": [quality.experiment.algorithm]}
        placed += [((quality.criterion.name, place), quality) for place in places[by]]
    averages = {}
    for key, group in group_by(placed, lambda item: item[0]).items():
        qualities = (quality for _, quality in group)
        own = group_by(qualities, lambda q: (q.experiment.dataset, q.experiment.algorithm)).values()
        regrets = (_mean(q.regret for q in same)[0] for same in own)
        correlations = (_mean(q.rank_correlation for q in same)[0] for same in own)
        averages[key] = Summary(len(own), *_mean(regrets), *_mean(correlations))
    return averages


def _mean(values: Iterable[float | None]) -> tuple[float | None, int]:
    """Return the mean of the values that are known, and their number."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None, len(known)


def quality_rows(judged: Sequence[CriterionQuality]) -> list[dict[str, Any]]:
    """Return regret and rank correlation as flat rows: averages over everything, by dataset and by algorithm.

    The last rows, by `experiment`, are the single ones: one dataset (and setting) and one algorithm.
    """
    averages = [
        {"criterion": criterion, "by": by, "of": place, **asdict(summary)}
        for by in ("all", "dataset", "algorithm")
        for (criterion, place), summary in average_quality(judged, by).items()
    ]
    single = [
        {
            "criterion": quality.criterion.name,
            "by": "experiment",
            "of": quality.experiment.details,
            "regret": quality.regret,
            "rank_correlation": quality.rank_correlation,
        }
        for quality in judged
    ]
    return averages + single


def quality_tables(judged: Sequence[CriterionQuality], shown: Sequence[Criterion]) -> list[TableLayout]:
    """Return how good each criterion is as tables: over everything, by dataset, by algorithm."""
    titles = [title_criterion(c, [quality.experiment for quality in judged]) for c in shown]
    legend = (
        "Regret: test accuracy lost compared with OA w/ ES on the same splits, in points; "
        "ρ: Spearman's correlation of criterion and test accuracy over the configurations of a split. "
        "Means over experiments (one algorithm on one dataset); in brackets, over how many if not all."
    )
    grids = []
    for by in ("all", "dataset", "algorithm"):
        averages = average_quality(judged, by)
        rows = []
        for place in dict.fromkeys(place for _, place in averages):
            summaries = [averages[criterion.name, place] for criterion in shown]
            texts = [str(summaries[0].n_experiments), *map(_describe_summary, summaries)]
            rows.append((place, text_entries(*texts)))
        title = "Criteria over everything" if by == "all" else f"Criteria by {by}"
        header = (by.capitalize(), "experiments", *titles)
        grids.append(TableLayout(title, header, tuple(rows), legend=legend))
    return grids


def _describe_summary(summary: Summary) -> str:
    """Show regret and correlation, each with the number of experiments that have it, if not all."""
    regret = None if summary.regret is None else 100 * summary.regret
    rho = (summary.rank_correlation, "+.2f", summary.n_correlation)
    figures = ((regret, "z.2f", summary.n_regret), rho)
    return ", ρ ".join(
        "none" if value is None else f"{value:{form}}" + ("" if n == summary.n_experiments else f" ({n})")
        for value, form, n in figures
    )


@dataclass(frozen=True)
class SubsetRegret:
    """Expected regret and test accuracy of each criterion after k = 1 … K configurations.

    Means over the experiments whose every split has K configurations, those of an algorithm on several
    settings of one dataset as one; `n_left_out` others have fewer.
    """

    regrets: tuple[tuple[float, ...], ...]
    accuracies: tuple[tuple[float, ...], ...]
    n_experiments: int
    n_left_out: int


def expect_by_number(ordered: Sequence[float], n_configurations: int, most: int) -> list[float]:
    """Return the expected value of the best of k = 1 … `most` configurations drawn without replacement.

    `ordered` holds the values of the configurations that offer something, best choice first; the others of
    the `n_configurations` offer nothing. Subsets without anything to choose from do not count.
    """
    return [
        sum(w * value for w, value in zip(_weights(len(ordered), n_configurations, k), ordered, strict=True))
        for k in range(1, most + 1)
    ]


@cache
def _weights(n_offering: int, n_configurations: int, k: int) -> tuple[float, ...]:
    """Return the probability that each configuration, by rank, is the best of k drawn."""
    counts = [comb(n_configurations - j, k - 1) for j in range(1, n_offering + 1)]
    total = sum(counts)  # C(m, k), less the subsets in which none offers anything
    return tuple(count / total for count in counts)


def measure_subset_regret(runs: Iterable[Run], shown: Sequence[Criterion]) -> SubsetRegret | None:
    """Average over the experiments of these runs; None if none has test figures by the reference."""
    reference = find_criterion(REFERENCE)
    needed = list(dict.fromkeys([*shown, reference]))
    tables = []
    finished = group_by((run for run in runs if run.finished), lambda run: run.experiment)
    for experiment, own in finished.items():
        splits = group_by(own, lambda run: run.trial_seed)
        most = min(MOST_CONFIGURATIONS, *map(len, splits.values()))
        curves = [_expect_split(group, needed, most) for group in splits.values()]
        whole = [curve for curve in curves if curve is not None]
        if whole:
            tables.append((most, (experiment.dataset, experiment.algorithm), whole))
    if not tables:
        return None
    # As many configurations as half of the experiments have: unfinished ones do not shorten the curves.
    most = sorted((n for n, _, _ in tables), reverse=True)[(len(tables) - 1) // 2]
    kept = [table for table in tables if table[0] >= most]
    # Means over splits, then over settings of one dataset, then over algorithms and datasets.
    same = group_by(kept, lambda table: table[1]).values()
    means = {
        criterion: tuple(
            fmean(fmean(fmean(split[i][k] for split in curves) for _, _, curves in own) for own in same)
            for k in range(most)
        )
        for i, criterion in enumerate(needed)
    }
    return SubsetRegret(
        regrets=tuple(
            tuple(best - mean for best, mean in zip(means[reference], means[criterion], strict=True))
            for criterion in shown
        ),
        accuracies=tuple(means[criterion] for criterion in shown),
        n_experiments=len(same),
        n_left_out=len(tables) - len(kept),
    )


def _expect_split(runs: list[Run], needed: Sequence[Criterion], most: int) -> list[list[float]] | None:
    """Return a curve for each criterion; None if one of them has nothing to choose on this split."""
    ordered = sorted(runs, key=lambda run: (run.hparams_seed, run.seed, run.path.name))
    curves = []
    for criterion in needed:
        offers = [offer for run in ordered if (offer := score_and_test(run, criterion)) is not None]
        if not offers:
            return None
        # Sorting is stable: of equal scores the earlier configuration comes first, as in selection.
        offers.sort(key=lambda offer: offer[0], reverse=criterion.higher_is_better)
        curves.append(expect_by_number([test for _, test in offers], len(runs), most))
    return curves
