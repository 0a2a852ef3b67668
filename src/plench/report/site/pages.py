"""The pages of algorithms, datasets and criteria."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy import stats

from plench.criteria import Criterion
from plench.data import CandidateSpec, dataset_names, draw_candidates, load_dataset
from plench.errors import PlenchError
from plench.report.criteria_quality import (
    CriterionQuality,
    average_quality,
    measure_sensitivity,
    measure_subset_regret,
)
from plench.report.dataset_stats import CandidateStats, describe_candidates
from plench.report.figures import StepCost
from plench.report.leaderboard import Leaderboard, group_by, part_of
from plench.report.results import Results
from plench.report.site.files import as_text
from plench.report.statistics import (
    compare_each_pair,
    compare_splits,
    describe_friedman,
    describe_power,
    describe_test,
    gather_scores,
    rank_algorithms,
)
from plench.runs.records import Experiment, Run, is_finite

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
    entries = card.get("hyperparameters")
    hyperparameters = [e for e in entries if isinstance(e, Mapping)] if isinstance(entries, list) else []
    return {
        "idea": as_text(card.get("idea") or ""),
        "objective": declared[name].objective if name in declared else "",
        "card": [
            [title, ", ".join(map(as_text, value)) if isinstance(value, list | tuple) else as_text(value)]
            for key, title in ALGORITHM_CARD
            if (value := card.get(key)) not in (None, "", [])
        ],
        "hyperparameters": [
            [as_text(entry.get(key)) for key in ("name", "default", "search", "meaning")]
            for entry in hyperparameters
        ],
        "bibtex": as_text(card.get("bibtex") or ""),
        "cost": [[number, *describe_cost(group)] for number, group in enumerate(by_setting)],
        "measured": [
            [cost.dataset, cost.ms, cost.floor_ms, cost.peak_mb] for cost in costs if cost.algorithm == name
        ],
        "sensitivity": [describe_sensitivity(runs, criterion) for criterion in shown],
    }


def describe_cost(runs: Sequence[Run]) -> list[Any]:
    """Return how many runs finished, median seconds per step and of training, and peak memory in GB.

    Times of stacked runs do not count.
    """

    def middle(values: Sequence[float | None]) -> float | None:
        found = [value for value in values if value is not None]
        return _four_digits(median(found)) if found else None

    finished = [run for run in runs if run.finished]
    timed = [run for run in finished if run.stack_size == 1]
    steps = [middle([record.get("step_time") for record in run.usable_records]) for run in timed]
    seconds = [part_of(run.info, "timings").get("training_seconds") for run in timed]
    memory = [record.get("mem_gb") for run in finished for record in run.records]
    most = max((value for value in memory if value is not None), default=None)
    return [len(finished), middle(steps), middle([s if is_finite(s) else None for s in seconds]), most]


def describe_sensitivity(runs: Sequence[Run], criterion: Criterion) -> list[dict[str, Any]]:
    """Return, for each hyperparameter that varies, the points of all configurations and what they add up to.

    Many numbers have their rank correlation and the medians of their quarters, few values the median of each.
    """
    described = []
    for measured in measure_sensitivity(runs, criterion):
        found: dict[str, Any] = {"name": measured.name}
        if measured.categories is None:
            y = np.array(measured.differences)
            found["log"] = measured.is_log
            found["rho"] = float(stats.spearmanr(measured.places, y).statistic) if np.ptp(y) > 0 else None
            found["bins"] = [
                [list(map(_four_digits, ends)), _four_digits(place), *more]
                for ends, place, *more in measured.bins
            ]
        else:
            found["categories"] = [as_text(value) for value in measured.categories]
            found["bins"] = [[as_text(value), *more] for value, *more in measured.bins]
        found["points"] = [
            [_four_digits(place), round(difference, 4), int(run.hparams_seed == 0)]
            for run, difference, place in zip(
                measured.runs, measured.differences, measured.places, strict=True
            )
        ]
        described.append(found)
    return described


def _four_digits(value: float) -> float:
    return float(f"{value:.4g}")


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
    card, candidates = part_of(run.info, "dataset"), part_of(setting.details, "candidates")
    shape, names = card.get("input_shape"), card.get("class_names")
    features = " × ".join(map(as_text, shape[1:])) if isinstance(shape, list) else ""
    if isinstance(names, list) and len(names) == card.get("n_classes"):
        names = [as_text(name) for name in names]
    else:  # older records do not name them
        names = None if measured is None else measured.class_names

    def list_entries(keys: Sequence[tuple[str, str]]) -> list[list[str]]:
        return [[title, as_text(card[key])] for key, title in keys if card.get(key) is not None]

    return {
        "card": list_entries(DATASET_CARD),
        "sizes": [*list_entries(_SIZES), *([["features", features]] if features else [])],
        "candidates": [
            [_CANDIDATES.get(name, name), as_text(candidates[name])]
            for name in sorted(candidates, key=lambda name: ([*_CANDIDATES, name].index(name), name))
            if candidates[name] is not None
        ],
        "published": [  # its row in the paper's table
            [name.replace("_", " "), as_text(value)] for name, value in part_of(card, "published").items()
        ],
        "experiment": [
            [name, as_text(value)]
            for name, value in setting.details.items()
            if name not in ("candidates", "algorithm", "dataset", "dataset_fingerprint") and value is not None
        ],
        "classes": names,
        "measured": None if measured is None else describe_measured(measured),
    }


def describe_measured(stats: CandidateStats) -> dict[str, Any]:
    """Return the figures of candidate sets that were measured; those that need true labels may be None."""
    return {
        "examples": stats.n_examples,
        "mean_size": stats.mean_size,
        "sizes": [[size, int(count)] for size, count in enumerate(stats.size_counts) if count],
        "noise": stats.noise_rate,
        "flipping": None if stats.flipping is None else np.round(stats.flipping, 4).tolist(),
        "counts": None if stats.label_counts is None else stats.label_counts.tolist(),
        "degree": stats.ambiguity_degree,
        "pair": stats.ambiguous_pair,
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


def describe_quality(
    board: Leaderboard,
    groups: Mapping[tuple[Experiment, str], Sequence[Run]],
    judged: Sequence[CriterionQuality],
) -> dict[str, Any]:
    """Return regret and rank correlation over all, by dataset, by algorithm, and regret by number tried."""
    cells = list(board.cells.items())
    by_setting = group_by(cells, lambda item: item[0][0])
    by_algorithm = group_by(cells, lambda item: item[0][1])

    def summarise(group: Sequence[Any]) -> list[dict[str, Any] | None]:
        """Return the summary of each criterion over the experiments of some cells."""
        experiments = {cell.experiment for _, cell in group}
        found = average_quality([q for q in judged if q.experiment in experiments], "all")
        summaries = (found.get((criterion.name, "all")) for criterion in board.criteria)
        return [None if summary is None else vars(summary) for summary in summaries]

    runs = [
        [run for (place, _), group in groups.items() if place == setting for run in group]
        for setting in board.settings
    ]
    everything = list({id(run): run for own in runs for run in own}.values())
    curves = []
    for number, own in ((None, everything), *enumerate(runs)):
        curve = measure_subset_regret(own, board.criteria)
        if curve is not None:
            curves.append({"setting": number, **vars(curve)})
    return {
        "tables": [
            {"by": "all", "rows": [summarise(cells)]},
            {"by": "dataset", "rows": [summarise(by_setting[setting]) for setting in board.settings]},
            {"by": "algorithm", "rows": [summarise(by_algorithm[name]) for name in board.algorithms]},
        ],
        "curves": curves,
    }


def describe_pairs(board: Leaderboard, criterion: Criterion) -> dict[str, Any]:
    """Return every pair of algorithms under one criterion, each with its test and power in words."""
    pairs = compare_each_pair(board, criterion)
    single = [replace(board, settings=(setting,)) for setting in board.settings]
    names = board.algorithms
    n_tested = sum(pair.p_value is not None for pair in pairs)
    labelled = replace(board, settings=tuple(s for s in board.settings if board.means(s, criterion)))
    ranked = rank_algorithms(labelled, gather_scores(labelled, criterion))
    return {
        "overall": f"{describe_friedman(ranked)} {ranked['averaging']}".strip(),
        "pairs": [
            {
                "at": [pair.first, pair.second],
                "n": pair.n_datasets,
                "wtl": [pair.wins, pair.ties, pair.losses],
                "mean": pair.mean_difference,
                "p": pair.p_value,
                "splits": [
                    [number, found.p_value]
                    for number, one in enumerate(single)
                    for found in compare_splits(one, criterion, names[pair.first], names[pair.second])
                ],
                "test": describe_test(pair, n_tested),
                "power": describe_power(pair),
            }
            for pair in pairs
        ],
    }
