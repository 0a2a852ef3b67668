"""The leaderboard and its cells: what the page needs to open, and the runs behind every cell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from plench.criteria import Criterion
from plench.report.criteria_quality import REFERENCE, CriterionQuality
from plench.report.leaderboard import Leaderboard, lacks_labels, score_cell, title_criterion
from plench.report.site.scripts import as_text, distinct
from plench.report.tables import describe_gaps, describe_plans, escape_latex, escape_markdown
from plench.runs.records import Experiment, Run, is_finite
from plench.runs.select import Cell, choose_checkpoint
from plench.text import clean, flag, guard_formula

Content = dict[str, Any]


def describe_criteria(board: Leaderboard) -> list[Content]:
    """Return what the page says of each criterion."""
    return [
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
    ]


def describe_escapes() -> Content:
    """Return what copied tables replace: each character in LaTeX and Markdown, and the signs of a formula."""
    characters = [chr(number) for number in range(ord(" "), 0x2300)]
    formats = {"LaTeX": escape_latex, "Markdown": escape_markdown}
    pairs = {
        name: [[text, escape(text)] for text in characters if escape(text) != text]
        for name, escape in formats.items()
    }
    return {**pairs, "formula": [text for text in characters if guard_formula(text) != text]}


def describe_columns(board: Leaderboard, first_runs: Mapping[Experiment, Run]) -> list[Content]:
    """Return the columns: a label, the dataset, the number of classes, and whether true labels are known."""
    labels = distinct([board.labels[setting] for setting in board.settings])
    described = []
    for label, setting in zip(labels, board.settings, strict=True):
        n_classes = count_classes(first_runs[setting])
        model = setting.details.get("model")
        described.append(
            {
                "label": label,
                "dataset": setting.dataset,
                "classes": n_classes,
                "chance": None if n_classes is None else 1 / n_classes,
                "labelled": not lacks_labels(board, setting),
                "plan": describe_plans(board, [setting]),
                "model": model if isinstance(model, str) else "–",
                "steps": setting.steps,
            }
        )
    return described


def count_classes(run: Run) -> int | None:
    """Return the number of classes that a run's record gives."""
    dataset = run.info.get("dataset")
    number = dataset.get("n_classes") if isinstance(dataset, dict) else None
    return number if isinstance(number, int) and number > 0 else None


def describe_rows(board: Leaderboard) -> list[Content]:
    """Return the rows: a name, family, venue and budget, and whether the method is fitted in rounds."""
    fitted = {algorithm for (_, algorithm, _), cell in board.cells.items() if cell.experiment.fitted}
    described = []
    for name, algorithm in zip(distinct(list(board.algorithms)), board.algorithms, strict=True):
        card = board.cards.get(algorithm, {})
        venue = card.get("venue")
        described.append(
            {
                "name": name,
                "family": board.family(algorithm),
                "venue": venue if isinstance(venue, str) else "",
                "classical": algorithm in fitted,
                "budget": board.budget(algorithm, board.settings),
            }
        )
    return described


def describe_cells(board: Leaderboard, judged: Sequence[CriterionQuality]) -> list[Content]:
    """Return every cell with its place (setting, algorithm, criterion) and all that a table shows of it."""
    regrets = {(q.experiment, q.criterion.name): q.regret for q in judged}
    cells = []
    for s, setting in enumerate(board.settings):
        labelled = not lacks_labels(board, setting)
        for a, algorithm in enumerate(board.algorithms):
            for c, criterion in enumerate(board.criteria):
                cell = board.cell(setting, algorithm, criterion)
                if cell is not None:
                    regret = regrets.get((cell.experiment, criterion.name))
                    cells.append({"at": [s, a, c], **describe_figures(cell, labelled, regret)})
    return cells


def describe_figures(cell: Cell, labelled: bool, regret: float | None) -> Content:
    """Return a cell's figures: of test accuracy or, without true labels, of the criterion itself."""
    shown = cell if labelled else score_cell(cell)
    splits = [[trial, None if choice is None else choice.test_acc] for trial, choice in shown.by_split()]
    needs_labels = cell.criterion.needs_labels and not labelled
    return {
        "mean": shown.mean,
        "std": shown.std,
        "se": shown.stderr,
        "n": shown.n,
        "splits": splits,
        "regret": regret,
        "planned": cell.plan.n_runs,
        "finished": cell.n_finished,
        "diverged": cell.n_diverged,
        "lacking": not shown.complete and not needs_labels,
        "note": "" if needs_labels else describe_gaps(shown),
    }


def group_runs(board: Leaderboard, runs: Sequence[Run]) -> dict[tuple[Experiment, str], list[Run]]:
    """Return the runs behind each row of each setting; those of a fitted method may stand in several."""
    by_experiment: dict[Experiment, list[Run]] = {}
    for run in runs:
        by_experiment.setdefault(run.experiment, []).append(run)
    return {
        (setting, algorithm): by_experiment.get(cell.experiment, [])
        for (setting, algorithm, _), cell in board.cells.items()
    }


def find_first_runs(groups: Mapping[tuple[Experiment, str], Sequence[Run]]) -> dict[Experiment, Run]:
    """Return a run of every setting that says most of its data: one with run.json if there is one."""
    first: dict[Experiment, Run] = {}
    for (setting, _), runs in groups.items():
        for run in runs:
            held = first.get(setting)
            if held is None or (not isinstance(held.info.get("dataset"), dict) and run.info.get("dataset")):
                first[setting] = run
    return first


# Curves are drawn: a ten-thousandth is less than a pixel, and a whole number takes little room.
SCALE = 10_000
NOT_VARIED = ("max_steps",)


def describe_runs(
    runs: Sequence[Run], cells: Mapping[str, Cell], shown: Sequence[Criterion]
) -> dict[str, Any]:
    """Return the runs of one experiment and what each criterion chose among them, by its position."""
    ordered = sorted(runs, key=lambda run: (run.trial_seed, run.hparams_seed, run.seed, run.path.name))
    place = {id(run): number for number, run in enumerate(ordered)}
    names = sorted({name for run in ordered for name in run.hparams if name not in NOT_VARIED})
    steps = _common_steps(ordered)
    keys = list(dict.fromkeys([*(criterion.record_key for criterion in shown), "test_acc"]))
    choices = [
        [
            [
                trial,
                None if choice is None else place[id(choice.run)],
                None if choice is None else choice.record.step,
            ]
            for trial, choice in cells[criterion.name].by_split()
        ]
        for criterion in shown
    ]
    chosen = {entry[1] for by_split in choices for entry in by_split}
    return {
        "hparams": names,
        "steps": steps,
        "keys": keys,
        "scale": SCALE,
        "choices": choices,
        "runs": [
            {
                **_describe_run(run, names, steps, keys, shown),
                "command": repeat_command(run) if number in chosen else None,
            }
            for number, run in enumerate(ordered)
        ],
    }


def _describe_run(
    run: Run, names: Sequence[str], steps: list[int], keys: Sequence[str], shown: Sequence[Criterion]
) -> dict[str, Any]:
    own_steps = [record.step for record in run.records]
    described: dict[str, Any] = {
        "split": run.trial_seed,
        "configuration": run.hparams_seed,
        "status": run.status,
        "folder": run.path.name,
        "hparams": [_hparam(run.hparams.get(name)) for name in names],
        "curves": [[_scaled(record.get(key)) for record in run.records] for key in keys],
        "loss": [_short(record.get("loss")) for record in run.records],
        "offers": [_offer(run, criterion) for criterion in shown],
    }
    if own_steps != steps:
        described["steps"] = own_steps
    if run.diverged:
        described["diverged"] = run.diverged_after_step
    return described


def _common_steps(runs: Sequence[Run]) -> list[int]:
    """Return the steps that most runs were evaluated at, so that only others have to say theirs."""
    counts: dict[tuple[int, ...], int] = {}
    for run in runs:
        steps = tuple(record.step for record in run.records)
        counts[steps] = counts.get(steps, 0) + 1
    if not counts:
        return []
    most, _ = max(counts.items(), key=lambda item: (item[1], len(item[0])))
    return list(most)


def _offer(run: Run, criterion: Criterion) -> list[float | int | None] | None:
    """Return the step, score and test accuracy of the checkpoint a run offers; None if it offers none."""
    offered = choose_checkpoint(run, criterion) if run.finished else None
    if offered is None:
        return None
    record, score = offered
    return [record.step, score, record.get("test_acc")]


def _hparam(value: object) -> float | int | str:
    return value if is_finite(value) else as_text(value)


def _scaled(value: float | None) -> int | None:
    return None if value is None else round(SCALE * value)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def run_rows(runs: Sequence[Run], board: Leaderboard) -> list[dict[str, Any]]:
    """Return one row per run: what it is, how it ended, and what it offers to each criterion."""
    labels: dict[Experiment, dict[str, None]] = {}  # those of the tables in which an experiment has a row
    for (setting, _, _), cell in board.cells.items():
        labels.setdefault(cell.experiment, {})[clean(board.labels[setting], None)] = None
    rows = []
    for run in runs:
        row: dict[str, Any] = {
            "setting": "; ".join(labels[run.experiment]),
            "dataset": clean(run.experiment.dataset, None),
            "algorithm": clean(run.experiment.algorithm, None),
            "trial_seed": run.trial_seed,
            "hparams_seed": run.hparams_seed,
            "seed": run.seed,
            "status": run.status,
            "hparams": json.dumps(run.hparams, sort_keys=True),
            "folder": clean(run.path.name, None),
        }
        for criterion in board.criteria:
            offered = choose_checkpoint(run, criterion) if run.finished else None
            step, score = (None, None) if offered is None else (offered[0].step, offered[1])
            row[f"{criterion.name}_step"] = step
            row[f"{criterion.name}_value"] = score
            row[f"{criterion.name}_test_accuracy"] = None if offered is None else offered[0].get("test_acc")
        rows.append(row)
    return rows


def repeat_command(run: Run) -> str | None:
    """Return the `plench train` command that gives the run's numbers again; None if the record does not say.

    Every entry of the run's configuration is an option of that name: a setting added later is there too.
    """
    config = run.info.get("config")
    if not isinstance(config, dict):
        return None
    options: dict[str, Any] = {"algorithm": _algorithm(run), "dataset": run.experiment.dataset}
    hparams = {name: value for name, value in run.hparams.items() if name != "max_steps"}
    options["hparams"] = json.dumps(hparams)
    for key, value in config.items():
        inner = value if key == "candidates" and isinstance(value, dict) else {key: value}
        options.update({name: v for name, v in inner.items() if name not in options})
    if "steps" not in options and run.experiment.steps is not None:
        options["steps"] = run.experiment.steps
    words = ["plench", "train"]
    for name, value in options.items():
        if value is True:
            words.append(flag(name))
        elif isinstance(value, str | int | float) and value is not False:
            words += [flag(name), str(value)]
    return shlex.join(words)


def _algorithm(run: Run) -> str:
    """Return the algorithm's name on a command line; one given by its file has a place for that file."""
    spec = run.info.get("algorithm_spec", run.experiment.algorithm)
    if isinstance(spec, str):
        return spec
    class_name = run.info.get("algorithm_class")
    return f"FILE.py:{class_name}" if isinstance(class_name, str) else run.experiment.algorithm
