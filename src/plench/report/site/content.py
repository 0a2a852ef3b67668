"""What the pages of the site show: leaderboard and cells, runs, algorithms, datasets, criteria and pairs."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy import stats

from plench.criteria import Criterion
from plench.data import CandidateSpec, dataset_names, draw_candidates, load_dataset
from plench.data.sources import find_own_source
from plench.errors import PlenchError, UsageError
from plench.report.criteria_quality import (
    REFERENCE,
    CriterionQuality,
    average_quality,
    measure_sensitivity,
    measure_subset_regret,
)
from plench.report.dataset_stats import CandidateStats, describe_candidates
from plench.report.figures import StepCost
from plench.report.leaderboard import (
    Leaderboard,
    bootstrap_ranks,
    group_by,
    offered,
    part_of,
    score_cell,
    split_by_truth,
    title_criterion,
)
from plench.report.results import Results
from plench.report.statistics import (
    compare_each_pair,
    compare_splits,
    describe_friedman,
    describe_power,
    describe_test,
    gather_scores,
    rank_algorithms,
)
from plench.report.tables import describe_gaps, describe_plans, escape_latex, escape_markdown
from plench.runs.records import Experiment, Run, is_finite
from plench.runs.select import Cell
from plench.runs.sweep_spec import parse_sweep
from plench.text import clean, flag, guard_formula

# Curves are drawn: a ten-thousandth is less than a pixel, and a whole number takes little room.
SCALE = 10_000


def as_text(value: object) -> str:
    """Show a value of any type from a record as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value, ensure_ascii=False)


def distinct(names: list[str]) -> list[str]:
    """Return names as shown, cleaned and told apart by a number where cleaning made two the same."""
    shown: list[str] = []
    for name in names:
        text, number = clean(name, None), 2
        while text in shown:
            text = f"{clean(name, None)} ({number})"
            number += 1
        shown.append(text)
    return shown


def describe_index(board: Leaderboard, first_runs: Mapping[Experiment, Run]) -> dict[str, Any]:
    """Return criteria, columns (settings) and rows (algorithms), and what copied tables replace.

    `first_runs` has a run of every setting, from whose record the number of classes is taken.
    """
    settings = []
    labels = distinct([board.labels[setting] for setting in board.settings])
    for label, setting in zip(labels, board.settings, strict=True):
        classes = part_of(first_runs[setting].info, "dataset").get("n_classes")
        classes = classes if isinstance(classes, int) and classes > 0 else None
        model = setting.details.get("model")
        settings.append(
            {
                "label": label,
                "dataset": setting.dataset,
                "classes": classes,
                "chance": None if classes is None else 1 / classes,
                "labelled": setting not in board.unlabelled,
                "plan": describe_plans(board, [setting]),
                "model": model if isinstance(model, str) else "–",
                "steps": setting.steps,
            }
        )
    part = next(filter(None, split_by_truth(board)))
    intervals: list[dict[str, Any] | None] = [None] * len(board.criteria)
    for number, criterion in enumerate(board.criteria):
        if criterion in part.criteria:
            found = bootstrap_ranks(part, criterion, part.algorithms)
            reason = "" if found.widest else "; ".join(found.reasons)
            limits = [found.widest.get(algorithm) for algorithm in board.algorithms]
            intervals[number] = {"over": found.over, "limits": limits, "reason": reason}
    fitted = {algorithm for (_, algorithm, _), cell in board.cells.items() if cell.experiment.fitted}
    venues = {name: card["venue"] for name, card in board.cards.items() if isinstance(card.get("venue"), str)}
    characters = [chr(number) for number in range(ord(" "), 0x2300)]
    escapes = {"LaTeX": escape_latex, "Markdown": escape_markdown}
    return {
        "criteria": [
            {
                "name": criterion.name,
                "title": title_criterion(criterion, board.settings),
                "meaning": criterion.meaning,
                "labels": criterion.needs_labels,
                "key": criterion.record_key,
                "higher": criterion.higher_is_better,
                "reference": criterion.name == REFERENCE,
            }
            for criterion in board.criteria
        ],
        "escapes": {
            **{to: [[c, escape(c)] for c in characters if escape(c) != c] for to, escape in escapes.items()},
            "formula": [c for c in characters if guard_formula(c) != c],
        },
        "settings": settings,
        "intervals": intervals,
        "algorithms": [
            {
                "name": name,
                "family": board.family(algorithm),
                "venue": venues.get(algorithm, ""),
                "classical": algorithm in fitted,
                "budget": board.budget(algorithm, board.settings),
            }
            for name, algorithm in zip(distinct(list(board.algorithms)), board.algorithms, strict=True)
        ],
    }


def describe_cells(board: Leaderboard, judged: Sequence[CriterionQuality]) -> list[dict[str, Any]]:
    """Return every cell with its place (setting, algorithm, criterion) and all that a table shows of it.

    Figures are of test accuracy or, without true labels, of the criterion itself.
    """
    regrets = {(quality.experiment, quality.criterion): quality.regret for quality in judged}
    described = []
    for setting, algorithm, cell in board.walk():
        labelled = setting not in board.unlabelled
        shown = cell if labelled else score_cell(cell)
        has_figure = labelled or not cell.criterion.needs_labels
        row, column = board.algorithms.index(algorithm), board.criteria.index(cell.criterion)
        splits = [[trial, None if choice is None else choice.test_acc] for trial, choice in shown.by_split()]
        described.append(
            {
                "at": [board.settings.index(setting), row, column],
                "mean": shown.mean,
                "std": shown.std,
                "se": shown.stderr,
                "n": shown.n,
                "splits": splits,
                "regret": regrets.get((cell.experiment, cell.criterion)),
                "planned": cell.plan.n_runs,
                "finished": cell.n_finished,
                "diverged": cell.n_diverged,
                "lacking": has_figure and not shown.complete,
                "note": describe_gaps(shown) if has_figure else "",
            }
        )
    return described


def describe_runs(runs: Sequence[Run], cells: Sequence[Cell], data_dir: Path | None = None) -> dict[str, Any]:
    """Return the runs of one experiment, and for the cell of each criterion what it chose among them.

    Most runs were evaluated at the same `steps`; only the others have their own.
    """
    ordered = sorted(runs, key=lambda run: run.order)
    place = {id(run): number for number, run in enumerate(ordered)}
    names = sorted({name for run in ordered for name in run.hparams if name != "max_steps"})
    steps_of = [tuple(record.step for record in run.records) for run in ordered]
    counts = Counter(steps_of)
    steps = max(counts, key=lambda taken: (counts[taken], len(taken)))
    keys = list(dict.fromkeys([*(cell.criterion.record_key for cell in cells), "test_acc"]))
    choices = [
        [
            [trial, *((None, None) if choice is None else (place[id(choice.run)], choice.record.step))]
            for trial, choice in cell.by_split()
        ]
        for cell in cells
    ]
    chosen = {number for by_split in choices for _, number, _ in by_split}
    described = []
    for number, (run, own_steps) in enumerate(zip(ordered, steps_of, strict=True)):
        curves = [[record.get(key) for record in run.records] for key in keys]
        losses = [record.get("loss") for record in run.records]
        values = [run.hparams.get(name) for name in names]
        described.append(
            {
                "split": run.trial_seed,
                "configuration": run.hparams_seed,
                "status": run.status,
                "folder": run.path.name,
                "hparams": [value if is_finite(value) else as_text(value) for value in values],
                "curves": [[None if v is None else round(SCALE * v) for v in curve] for curve in curves],
                "loss": [None if loss is None else float(f"{loss:.4g}") for loss in losses],
                "offers": [offered(run, cell.criterion) for cell in cells],
                **({} if own_steps == steps else {"steps": own_steps}),
                **({"diverged": run.diverged_after_step} if run.diverged else {}),
                "command": repeat_command(run, data_dir) if number in chosen else None,
                **({"stack": run.stack_size} if run.stack_size > 1 else {}),
            }
        )
    shared = {"hparams": names, "steps": steps, "keys": keys, "scale": SCALE}
    return {**shared, "choices": choices, "runs": described}


def data_words(datasets: Iterable[str], data_dir: Path | None) -> list[str]:
    """Return `--data-dir` with the folder (or a place for it), if one of our datasets needs files."""
    known = dataset_names(own_only=True)
    sources = (find_own_source(name) for name in datasets if name in known)
    needed = any(source is not None and (source.files or source.obtain) for source in sources)
    return ["--data-dir", str(data_dir or "DATA")] if needed else []


def launch_command(name: str, text: str, data_dir: Path | None) -> str:
    """Return the command that repeats a sweep from its file, with the options that its stacks depend on."""
    words = ["plench", "sweep", "launch", "--file", name, "--output-dir", "RUNS"]
    try:
        spec = parse_sweep(text, name)
    except UsageError:
        return shlex.join(words)
    words += data_words({d for grid in spec.grids for d in grid.datasets}, data_dir)
    for option, value in spec.launched.items():
        words += [flag(option), str(value)]
    return shlex.join(words)


def repeat_command(run: Run, data_dir: Path | None = None) -> str | None:
    """Return the `plench train` command that gives the run's numbers again; None if the record does not say.

    Every entry of the run's configuration is an option of that name: a setting added later is there too. An
    algorithm that was given by its file has a place for that file.
    """
    config = part_of(run.info, "config")
    if not config:
        return None
    algorithm = run.info.get("algorithm_spec", run.experiment.algorithm)
    if not isinstance(algorithm, str):
        class_name = run.info.get("algorithm_class")
        algorithm = f"FILE.py:{class_name}" if isinstance(class_name, str) else run.experiment.algorithm
    hparams = {name: value for name, value in run.hparams.items() if name != "max_steps"}
    options: dict[str, Any] = {"algorithm": algorithm, "dataset": run.experiment.dataset}
    options["hparams"] = json.dumps(hparams)
    for key, value in config.items():
        inner = value if key == "candidates" and isinstance(value, dict) else {key: value}
        options.update({name: v for name, v in inner.items() if name not in options})
    if run.experiment.steps is not None:
        options.setdefault("steps", run.experiment.steps)
    if run.experiment.fitted:  # a step is a round, of which there are as many as `hparams` says
        options.pop("steps", None)
    threads = part_of(run.info, "versions").get("threads")
    if isinstance(threads, int) and threads > 1:
        options["threads"] = threads
    words = ["plench", "train"]
    for name, value in options.items():
        if value is True:
            words.append(flag(name))
        elif isinstance(value, str | int | float) and value is not False:
            words += [flag(name), str(value)]
    return shlex.join([*words, *data_words([run.experiment.dataset], data_dir)])


# Algorithms, datasets, criteria and pairs.

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
        points = zip(measured.runs, measured.differences, measured.places, strict=True)
        found["points"] = [
            [_four_digits(place), round(difference, 4), int(run.hparams_seed == 0)]
            for run, difference, place in points
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
        "measured": None
        if measured is None
        else {  # those that need true labels may be None
            "examples": measured.n_examples,
            "mean_size": measured.mean_size,
            "sizes": [[size, int(count)] for size, count in enumerate(measured.size_counts) if count],
            "noise": measured.noise_rate,
            "flipping": None if measured.flipping is None else np.round(measured.flipping, 4).tolist(),
            "counts": None if measured.label_counts is None else measured.label_counts.tolist(),
            "degree": measured.ambiguity_degree,
            "pair": measured.ambiguous_pair,
        },
    }


def measure_candidates(
    results: Results, data_dir: Path | None
) -> tuple[dict[Experiment, CandidateStats], list[str]]:
    """Measure the candidate sets of every setting whose data are here; name the others with the reason.

    Only our datasets are loaded, and only if they are those of the runs: viewing runs no third-party code.
    """
    measured: dict[Experiment, CandidateStats] = {}
    missed = []
    for setting in results.board.settings if data_dir is not None else ():
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
                    [number, found["p_value"]]
                    for number, one in enumerate(single)
                    for found in compare_splits(one, criterion, names[pair.first], names[pair.second])
                ],
                "test": describe_test(pair, n_tested),
                "power": describe_power(pair),
            }
            for pair in pairs
        ],
    }
