"""The leaderboard and its cells: what the page needs to open, and the runs behind every cell."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plench.data import dataset_names
from plench.data.sources import find_own_source
from plench.errors import UsageError
from plench.report.criteria_quality import REFERENCE, CriterionQuality
from plench.report.leaderboard import (
    Leaderboard,
    bootstrap_ranks,
    offered,
    part_of,
    score_cell,
    split_by_truth,
    title_criterion,
)
from plench.report.site.files import as_text, distinct
from plench.report.tables import describe_gaps, describe_plans, escape_latex, escape_markdown
from plench.runs.records import Experiment, Run, is_finite
from plench.runs.select import Cell
from plench.runs.sweep_spec import parse_sweep
from plench.text import flag, guard_formula

# Curves are drawn: a ten-thousandth is less than a pixel, and a whole number takes little room.
SCALE = 10_000


def describe_index(board: Leaderboard, first_runs: Mapping[Experiment, Run]) -> dict[str, Any]:
    """Return criteria, columns (settings) and rows (algorithms), and what copied tables replace.

    `first_runs` has a run of every setting, from whose record the number of classes is taken.
    """
    settings = []
    for label, setting in zip(
        distinct([board.labels[s] for s in board.settings]), board.settings, strict=True
    ):
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
    intervals = [
        bootstrap_ranks(part, criterion, part.algorithms) if criterion in part.criteria else None
        for criterion in board.criteria
    ]
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
        "intervals": [
            None
            if found is None
            else {
                "over": found.over,
                "limits": [found.widest.get(algorithm) for algorithm in board.algorithms],
                "reason": "" if found.widest else "; ".join(found.reasons),
            }
            for found in intervals
        ],
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
        described.append(
            {
                "at": [
                    board.settings.index(setting),
                    board.algorithms.index(algorithm),
                    board.criteria.index(cell.criterion),
                ],
                "mean": shown.mean,
                "std": shown.std,
                "se": shown.stderr,
                "n": shown.n,
                "splits": [
                    [trial, None if choice is None else choice.test_acc] for trial, choice in shown.by_split()
                ],
                "regret": regrets.get((cell.experiment, cell.criterion)),
                "planned": cell.plan.n_runs,
                "finished": cell.n_finished,
                "diverged": cell.n_diverged,
                "lacking": has_figure and not shown.complete,
                "note": describe_gaps(shown) if has_figure else "",
            }
        )
    return described


def describe_runs(runs: Sequence[Run], cells: Sequence[Cell], data_dir: str | None = None) -> dict[str, Any]:
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


def data_words(datasets: Iterable[str], data_dir: str | None) -> list[str]:
    """Return `--data-dir` with the folder (or a place for it), if one of our datasets needs files."""
    known = dataset_names(own_only=True)
    sources = (find_own_source(name) for name in datasets if name in known)
    needed = any(source is not None and (source.files or source.obtain) for source in sources)
    return ["--data-dir", data_dir or "DATA"] if needed else []


def launch_command(name: str, text: str, data_dir: str | None) -> str:
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


def repeat_command(run: Run, data_dir: str | None = None) -> str | None:
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
