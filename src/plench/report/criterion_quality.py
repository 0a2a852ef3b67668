"""How good each criterion is: what choosing by it costs, and how well it orders configurations."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from scipy import stats

from plench.criteria import Criterion, criteria, find_criterion
from plench.report.leaderboard import label_settings
from plench.runs.records import Experiment, Run
from plench.runs.select import choose_checkpoint, place_experiments, select

REFERENCE = "OA_ES"


@dataclass(frozen=True)
class CriterionQuality:
    """Figures of one criterion on one experiment, averaged over splits; None where they are not defined.

    `regret` is how much test accuracy is lost against choosing by true labels with early stopping, on the
    same splits (it may be negative: validation labels are few). `rank_correlation` is Spearman's ρ, over the
    configurations of a split, of the criterion at the checkpoint it chose with the test accuracy there.
    """

    experiment: Experiment
    criterion: Criterion
    regret: float | None
    n_regret: int
    rank_correlation: float | None
    n_correlation: int


def judge_criteria(runs: Iterable[Run], shown: Iterable[Criterion] | None = None) -> list[CriterionQuality]:
    """Return the quality of every criterion on every experiment."""
    runs = list(runs)
    by_experiment: dict[Experiment, list[Run]] = {}
    for run in runs:
        by_experiment.setdefault(run.experiment, []).append(run)
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
            judged.append(
                CriterionQuality(
                    experiment=cell.experiment,
                    criterion=criterion,
                    regret=fmean(losses) if losses else None,
                    n_regret=len(losses),
                    rank_correlation=fmean(correlations) if correlations else None,
                    n_correlation=len(correlations),
                )
            )
    return judged


def correlate_with_test(runs: Iterable[Run], criterion: Criterion) -> list[float]:
    """Return Spearman's ρ of criterion and test accuracy for each split that has three configurations.

    A split where either is the same for all configurations has no ρ and is left out.
    """
    points: dict[int, list[tuple[float, float]]] = {}
    for run in runs:
        chosen = choose_checkpoint(run, criterion) if run.finished else None
        test = chosen[0].get("test_acc") if chosen is not None else None
        if chosen is not None and test is not None:
            score = chosen[1] if criterion.higher_is_better else -chosen[1]
            points.setdefault(run.trial_seed, []).append((score, test))
    found = []
    for trial in sorted(points):
        scores, tests = np.array(points[trial]).T
        if len(scores) >= 3 and np.ptp(scores) > 0 and np.ptp(tests) > 0:
            found.append(float(stats.spearmanr(scores, tests).statistic))
    return found


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

    A dataset in several settings (other steps, another network) has one place for each.
    """
    judged = list(judged)
    tables = place_experiments(quality.experiment for quality in judged)
    labels = label_settings(dict.fromkeys(setting for settings in tables.values() for setting in settings))
    groups: dict[tuple[str, str], list[CriterionQuality]] = {}
    for quality in judged:
        datasets = [labels[setting] for setting in tables[quality.experiment]]
        places = {"all": ["all"], "dataset": datasets, "algorithm": [quality.experiment.algorithm]}
        for place in places[by]:
            groups.setdefault((quality.criterion.name, place), []).append(quality)
    return {key: _average(group) for key, group in groups.items()}


def _average(group: list[CriterionQuality]) -> Summary:
    regrets = [quality.regret for quality in group if quality.regret is not None]
    correlations = [q.rank_correlation for q in group if q.rank_correlation is not None]
    return Summary(
        n_experiments=len(group),
        regret=fmean(regrets) if regrets else None,
        n_regret=len(regrets),
        rank_correlation=fmean(correlations) if correlations else None,
        n_correlation=len(correlations),
    )
