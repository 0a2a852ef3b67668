"""The page of an algorithm: its card, objective, cost, and how much each hyperparameter matters."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy import stats

from plench.criteria import Criterion
from plench.report.figures.costs import StepCost
from plench.report.site.scripts import as_text
from plench.runs.lines import is_finite
from plench.runs.records import Experiment, Run
from plench.runs.select import choose_checkpoint

MOST_CATEGORIES = 8
BINS = 4
_CARD = (
    ("family", "family"),
    ("venue", "venue"),
    ("views", "views of a batch"),
    ("second_batch", "second batch"),
    ("passes", "passes per step"),
    ("state", "state"),
    ("aliases", "other names"),
)


def describe_algorithm(
    card: Mapping[str, Any],
    by_setting: Sequence[Sequence[Run]],
    shown: Sequence[Criterion],
    costs: Sequence[StepCost],
) -> dict[str, Any]:
    """Return all that an algorithm's page shows, from its runs in each setting of the leaderboard."""
    from plench.algorithms.registry import own_cards  # imports torch

    declared = own_cards()
    runs = list({id(run): run for group in by_setting for run in group}.values())
    name = runs[0].experiment.algorithm  # that of the row may say more
    return {
        "idea": as_text(card.get("idea") or ""),
        "objective": declared[name].objective if name in declared else "",
        "card": [[title, _listed(card[key])] for key, title in _CARD if card.get(key) not in (None, "", [])],
        "hyperparameters": _hyperparameters(card),
        "bibtex": as_text(card.get("bibtex") or ""),
        "cost": [[number, *_cost(group)] for number, group in enumerate(by_setting)],
        "measured": [
            [cost.dataset, cost.ms, cost.floor_ms, cost.peak_mb] for cost in costs if cost.algorithm == name
        ],
        "sensitivity": [describe_sensitivity(runs, criterion) for criterion in shown],
    }


def _listed(value: object) -> str:
    return ", ".join(map(as_text, value)) if isinstance(value, list | tuple) else as_text(value)


def _hyperparameters(card: Mapping[str, Any]) -> list[list[str]]:
    entries = card.get("hyperparameters")
    entries = entries if isinstance(entries, list) else []
    keys = ("name", "default", "search", "meaning")
    return [[as_text(entry.get(key)) for key in keys] for entry in entries if isinstance(entry, Mapping)]


def _cost(runs: Sequence[Run]) -> list[Any]:
    """Return how many runs finished, median seconds per step and of training, and peak memory in GB.

    Times of runs that were trained as one with others do not count.
    """
    finished = [run for run in runs if run.finished]
    timed = [run for run in finished if run.fleet_size == 1]
    steps = [_median([record.get("step_time") for record in run.usable_records]) for run in timed]
    seconds = [_training_seconds(run) for run in timed]
    memory = [record.get("mem_gb") for run in finished for record in run.records]
    most = max((value for value in memory if value is not None), default=None)
    return [len(finished), _median(steps), _median(seconds), most]


def _training_seconds(run: Run) -> float | None:
    timings = run.info.get("timings")
    value = timings.get("training_seconds") if isinstance(timings, Mapping) else None
    return value if is_finite(value) else None


def _median(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return float(f"{median(found):.4g}") if found else None


def describe_sensitivity(runs: Sequence[Run], criterion: Criterion) -> list[dict[str, Any]]:
    """Return, for each hyperparameter that varies, the points of all configurations and what they add up to.

    Accuracy is taken at the checkpoint the criterion chose, less the mean of its setting and split, so that
    several datasets can be shown together.
    """
    points = relative_accuracies(runs, criterion)
    names = sorted({name for run, _ in points for name in run.hparams if name != "max_steps"})
    described = []
    for name in names:
        values = [run.hparams.get(name) for run, _ in points]
        texts = {as_text(value) for value in values}
        if len(texts) < 2:
            continue
        relative = [difference for _, difference in points]
        numbers = [float(value) for value in values if is_finite(value)]
        if len(numbers) == len(values) and len(texts) > MOST_CATEGORIES:
            described.append({"name": name, **_numeric(numbers, relative, points)})
        else:
            described.append({"name": name, **_categorical(values, relative, points)})
    return described


def relative_accuracies(runs: Sequence[Run], criterion: Criterion) -> list[tuple[Run, float]]:
    """Return each finished run with its test accuracy less the mean of its setting and split."""
    found: dict[tuple[Experiment, int], list[tuple[Run, float]]] = {}
    for run in runs:
        chosen = choose_checkpoint(run, criterion) if run.finished else None
        test = chosen[0].get("test_acc") if chosen is not None else None
        if test is not None:
            found.setdefault((run.experiment, run.trial_seed), []).append((run, test))
    points: list[tuple[Run, float]] = []
    for group in found.values():
        mean = fmean(test for _, test in group)
        points.extend((run, test - mean) for run, test in group)
    return points


def _numeric(numbers: list[float], relative: list[float], points: list[tuple[Run, float]]) -> dict[str, Any]:
    """Describe a hyperparameter with many values: all points, their rank correlation, means of quarters."""
    x, y = np.array(numbers), np.array(relative)
    order = np.argsort(x, kind="stable")
    quarters = [part for part in np.array_split(order, BINS) if len(part)]
    varies = np.ptp(y) > 0
    return {
        "log": bool(x.min() > 0 and x.max() / x.min() > 20),
        "rho": float(stats.spearmanr(x, y).statistic) if varies else None,
        "bins": [
            [
                [_short(x[part[0]]), _short(x[part[-1]])],
                _short(np.median(x[part])),
                len(part),
                float(y[part].mean()),
            ]
            for part in quarters
        ],
        "points": [
            [_short(a), round(b, 4), int(run.hparams_seed == 0)]
            for a, b, (run, _) in zip(numbers, relative, points, strict=True)
        ],
    }


def _categorical(
    values: list[object], relative: list[float], points: list[tuple[Run, float]]
) -> dict[str, Any]:
    """Describe a hyperparameter with few values: the mean of each."""
    by_text: dict[str, list[float]] = {}
    first: dict[str, object] = {}
    for value, difference in zip(values, relative, strict=True):
        by_text.setdefault(as_text(value), []).append(difference)
        first.setdefault(as_text(value), value)
    ordered = sorted(by_text, key=lambda text: _by_size(first[text], text))
    places = {text: number for number, text in enumerate(ordered)}
    return {
        "categories": ordered,
        "bins": [[text, places[text], len(by_text[text]), fmean(by_text[text])] for text in ordered],
        "points": [
            [places[as_text(value)], round(difference, 4), int(run.hparams_seed == 0)]
            for value, difference, (run, _) in zip(values, relative, points, strict=True)
        ],
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _by_size(value: object, text: str) -> tuple[int, float, str]:
    return (0, float(value), "") if is_finite(value) else (1, 0.0, text)
