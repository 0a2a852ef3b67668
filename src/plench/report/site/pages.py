"""The pages of algorithms, datasets and criteria."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy import stats

from plench.criteria import Criterion
from plench.data import CandidateSpec, dataset_names, draw_candidates, load_dataset
from plench.errors import PlenchError
from plench.report.criteria_quality import (
    CriterionQuality,
    SubsetRegret,
    average_quality,
    measure_subset_regret,
)
from plench.report.dataset_stats import CandidateStats, describe_candidates
from plench.report.figures.costs import StepCost
from plench.report.leaderboard import Leaderboard
from plench.report.results import Results
from plench.report.site.scripts import as_text
from plench.report.statistics import (
    compare_each_pair,
    critical_difference,
    describe_power,
    describe_test,
    friedman,
    gather_scores,
)
from plench.runs.records import Experiment, Run, is_finite
from plench.runs.select import choose_checkpoint

MOST_CATEGORIES = 8
BINS = 4
ALGORITHM_CARD = (
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
        "card": [
            [title, _listed(card[key])]
            for key, title in ALGORITHM_CARD
            if card.get(key) not in (None, "", [])
        ],
        "hyperparameters": _hyperparameters(card),
        "bibtex": as_text(card.get("bibtex") or ""),
        "cost": [[number, *_describe_cost(group)] for number, group in enumerate(by_setting)],
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


def _describe_cost(runs: Sequence[Run]) -> list[Any]:
    """Return how many runs finished, median seconds per step and of training, and peak memory in GB.

    Times of stacked runs do not count.
    """
    finished = [run for run in runs if run.finished]
    timed = [run for run in finished if run.stack_size == 1]
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
                [_four_digits(x[part[0]]), _four_digits(x[part[-1]])],
                _four_digits(np.median(x[part])),
                len(part),
                float(y[part].mean()),
            ]
            for part in quarters
        ],
        "points": [
            [_four_digits(a), round(b, 4), int(run.hparams_seed == 0)]
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


def _four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def _by_size(value: object, text: str) -> tuple[int, float, str]:
    return (0, float(value), "") if is_finite(value) else (1, 0.0, text)


# What a record's `dataset` says, in the order of the page, under names for people.
DATASET_CARD = (
    ("task", "task"),
    ("kind", "kind of data"),
    ("source", "source"),
    ("terms", "terms"),
    ("citation", "citation"),
    ("fingerprint", "fingerprint"),
    ("verified", "files have the public release's checksums"),
)
_SIZES = (
    ("n_train", "training examples"),
    ("n_validation", "validation examples"),
    ("n_test", "test examples"),
    ("n_classes", "classes"),
    ("train_mean_candidates", "candidates per training example, mean"),
    ("train_noise_rate", "noise rate of the training split"),
)
_CANDIDATES = {
    "pl_type": "candidate sets",
    "fps_rate": "flipping probability",
    "id_rate": "flipping rate (instance-dependent)",
    "drop_true_rate": "rate at which true labels are dropped",
}


def describe_dataset(setting: Experiment, run: Run, measured: CandidateStats | None) -> dict[str, Any]:
    """Return a setting's data as lists of (what, value), with the flipping matrix if it was measured."""
    card = run.info.get("dataset")
    card = card if isinstance(card, Mapping) else {}
    candidates = setting.details.get("candidates")
    candidates = candidates if isinstance(candidates, Mapping) else {}
    return {
        "card": _pairs(card, DATASET_CARD),
        "sizes": [*_pairs(card, _SIZES), *_features(card)],
        "candidates": [
            [_CANDIDATES.get(name, name), as_text(candidates[name])]
            for name in sorted(candidates, key=lambda name: ([*_CANDIDATES, name].index(name), name))
            if candidates[name] is not None
        ],
        "published": _published(card),
        "experiment": [
            [name, as_text(value)]
            for name, value in setting.details.items()
            if name not in ("candidates", "algorithm", "dataset", "dataset_fingerprint") and value is not None
        ],
        "classes": _class_names(card, measured),
        "measured": None if measured is None else _describe_measured(measured),
    }


def measure_candidates(
    results: Results, data_dir: Path
) -> tuple[dict[Experiment, CandidateStats], list[str]]:
    """Measure the candidate sets of every setting whose data are here; say of the others why they are not.

    Only our datasets are loaded, and only if they are those of the runs: viewing runs no third-party code.
    """
    measured: dict[Experiment, CandidateStats] = {}
    missed = []
    for setting in results.board.settings:
        try:
            if setting.dataset not in dataset_names(own_only=True):
                raise PlenchError("not one of the named datasets")
            dataset = load_dataset(setting.dataset, data_dir)
            if dataset.fingerprint != setting.details.get("dataset_fingerprint"):
                raise PlenchError("the data here are not those of the runs")
            spec = CandidateSpec(**setting.details["candidates"])
            drawn = draw_candidates(dataset, spec, trial_seed=0)
        except (PlenchError, TypeError, KeyError) as error:
            missed.append(f"{setting.dataset}: candidate sets not measured: {error}")
            continue
        measured[setting] = describe_candidates(drawn.candidates, drawn.labels, drawn.class_names)
    return measured, missed


def _pairs(card: Mapping[str, Any], keys: tuple[tuple[str, str], ...]) -> list[list[str]]:
    return [[shown, as_text(card[key])] for key, shown in keys if card.get(key) is not None]


def _features(card: Mapping[str, Any]) -> list[list[str]]:
    shape = card.get("input_shape")
    if not isinstance(shape, list) or len(shape) < 2:
        return []
    return [["features", " × ".join(as_text(size) for size in shape[1:])]]


def _published(card: Mapping[str, Any]) -> list[list[str]]:
    """Return the dataset's row in the paper's table, if its card has one."""
    row = card.get("published")
    if not isinstance(row, Mapping):
        return []
    return [[name.replace("_", " "), as_text(value)] for name, value in row.items()]


def _class_names(card: Mapping[str, Any], measured: CandidateStats | None) -> list[str] | None:
    """Return the names that the run's card has, else, for older records, those of the data."""
    names = card.get("class_names")
    if isinstance(names, list) and len(names) == card.get("n_classes"):
        return [as_text(name) for name in names]
    return None if measured is None or measured.class_names is None else list(measured.class_names)


def _describe_measured(stats: CandidateStats) -> dict[str, Any]:
    flipping = None
    if stats.flipping is not None:
        flipping = [[None if p != p else round(float(p), 4) for p in row] for row in stats.flipping]
    return {
        "examples": stats.n_examples,
        "mean_size": stats.mean_size,
        "sizes": [[size, int(count)] for size, count in enumerate(stats.size_counts) if count],
        "noise": stats.noise_rate,
        "flipping": flipping,
        "counts": None if stats.label_counts is None else [int(n) for n in stats.label_counts],
        "degree": stats.ambiguity_degree,
        "pair": None if stats.ambiguous_pair is None else list(stats.ambiguous_pair),
    }


def describe_quality(
    board: Leaderboard,
    groups: Mapping[tuple[Experiment, str], Sequence[Run]],
    judged: Sequence[CriterionQuality],
) -> dict[str, Any]:
    """Return regret and rank correlation over all, by dataset, by algorithm, and regret by number tried."""
    by_setting: dict[Experiment, set[Experiment]] = {}
    by_algorithm: dict[str, set[Experiment]] = {}
    for (setting, algorithm, _), cell in board.cells.items():
        by_setting.setdefault(setting, set()).add(cell.experiment)
        by_algorithm.setdefault(algorithm, set()).add(cell.experiment)
    tables = [
        {"by": "all", "rows": [_summarise(board, judged)]},
        {"by": "dataset", "rows": [_summarise(board, judged, by_setting[s]) for s in board.settings]},
        {"by": "algorithm", "rows": [_summarise(board, judged, by_algorithm[a]) for a in board.algorithms]},
    ]
    runs = {setting: _runs_of(setting, groups) for setting in board.settings}
    everything = {id(run): run for own in runs.values() for run in own}
    over: list[tuple[int | None, list[Run]]] = [(None, list(everything.values()))]
    over += [(number, runs[setting]) for number, setting in enumerate(board.settings)]
    found = [(number, measure_subset_regret(own, board.criteria)) for number, own in over]
    curves = [{"setting": number, **_curve(curve)} for number, curve in found if curve is not None]
    return {"tables": tables, "curves": curves}


def _summarise(
    board: Leaderboard, judged: Sequence[CriterionQuality], experiments: set[Experiment] | None = None
) -> list[dict[str, Any] | None]:
    """Return the summary of each criterion over some experiments, or all."""
    kept = [quality for quality in judged if experiments is None or quality.experiment in experiments]
    summary = average_quality(kept, "all")
    found = (summary.get((criterion.name, "all")) for criterion in board.criteria)
    return [None if entry is None else vars(entry) for entry in found]


def _runs_of(setting: Experiment, groups: Mapping[tuple[Experiment, str], Sequence[Run]]) -> list[Run]:
    return [run for (place, _), runs in groups.items() if place == setting for run in runs]


def _curve(found: SubsetRegret) -> dict[str, Any]:
    return {
        "regrets": found.regrets,
        "accuracies": found.accuracies,
        "n": found.n_experiments,
        "left_out": found.n_left_out,
    }


def describe_pairs(board: Leaderboard, criterion: Criterion) -> dict[str, Any]:
    """Return every pair of algorithms under one criterion, each with its test and power in words."""
    pairs = compare_each_pair(board, criterion)
    n_tested = sum(pair.p_value is not None for pair in pairs)
    return {
        "overall": describe_overall(board, criterion),
        "pairs": [
            {
                "at": [pair.first, pair.second],
                "n": pair.n_settings,
                "wtl": [pair.wins, pair.ties, pair.losses],
                "mean": pair.mean_difference,
                "p": pair.p_value,
                "test": describe_test(pair, n_tested),
                "power": describe_power(pair),
            }
            for pair in pairs
        ],
    }


def describe_overall(board: Leaderboard, criterion: Criterion) -> str:
    """Return what Friedman's test finds over algorithms with a figure in every setting with true labels."""
    labelled = tuple(setting for setting in board.settings if board.means(setting, criterion))
    scores = gather_scores(replace(board, settings=labelled), criterion)
    n, k = scores.values.shape
    left_out = (
        f" Left out, with no figure on some dataset: {', '.join(scores.left_out)}." if scores.left_out else ""
    )
    if k < 3 or n < 2:
        needs = "Friedman's test needs 3 algorithms with a figure on each of 2 or more datasets"
        return f"Do any differ at all? {needs}; here are {k} on {n}.{left_out}"
    ranking = friedman(scores.values)
    datasets = len({setting.dataset for setting in labelled})
    apart = "" if datasets == n else f" ({n} settings of {datasets} datasets, which are not independent)"
    return (
        f"Do any differ at all? Friedman's test over {k} algorithms on {n} datasets{apart}: "
        f"χ² = {ranking.statistic:.2f}, p = {ranking.p_value:.2g}. Two average ranks differ at 5 % by "
        f"Nemenyi's test if they are more than {critical_difference(k, n):.2f} apart.{left_out}"
    )
