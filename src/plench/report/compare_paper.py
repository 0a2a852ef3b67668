"""Our PLCIFAR10 results compared with the paper's (Wang et al., ICLR 2025) and its known faults."""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from plench.criteria import find_criterion
from plench.report.leaderboard import Leaderboard, group_by, part_of
from plench.report.tables import (
    ROUNDING,
    Notes,
    TableEntry,
    TableLayout,
    describe_gaps,
    show_mean,
    text_entries,
)
from plench.runs.records import Experiment, Run
from plench.runs.select import Cell
from plench.text import clean, counted

# The paper's image experiments use three splits, 60,000 steps, 20 configurations per split (protocol).
N_SPLITS = 3
STEPS = 60_000
N_HPARAMS = 20
HOLDOUT_FRACTION = 0.1
TABULAR = (
    "the paper has tables of tabular datasets, but their numbers are not in its source, from which ours are "
    "taken"
)
PUBLISHED_CRITERIA = ("CR", "AA", "OA", "OA_ES")


@cache
def load_published() -> dict[tuple[str, str, str, str], tuple[float, float]]:
    """Return the paper's means and errors by (dataset, model, algorithm, criterion), as fractions.

    Its errors are the population standard deviation over √n.
    """
    text = (files("plench.report") / "published.json").read_text(encoding="utf-8")
    cells = {}
    for table in json.loads(text)["tables"]:
        for row in table["rows"]:
            for criterion in PUBLISHED_CRITERIA:
                mean, error = row[criterion]
                key = (table["dataset"], table["model"], row["algorithm"], criterion)
                cells[key] = (mean / 100, error / 100)
    return cells


def find_faults(dataset: str, algorithm: str, criterion: str) -> list[str]:
    """Return why a number of the paper is not the method's, if it is known not to be."""
    from plench.algorithms.registry import own_cards  # imports torch

    card = own_cards()[algorithm]
    concerned = dataset in (card.public_fault_on or (dataset,))
    reasons = (card.public_fault if concerned else "", find_criterion(criterion).public_defect)
    return [reason for reason in reasons if reason]


def compare_cell(ours: Cell, setting: str, key: tuple[str, str, str, str]) -> dict[str, Any]:
    """Return one of our cells and the paper's of this key as a flat row; accuracies are fractions.

    The paper's error is converted to ours, which comes from the sample standard deviation.
    """
    dataset, model, algorithm, criterion = key
    mean, printed_error = load_published()[key]
    error = printed_error * math.sqrt(N_SPLITS / (N_SPLITS - 1))
    difference = None if ours.mean is None else ours.mean - mean
    combined = None if ours.stderr is None else math.hypot(ours.stderr, error)
    within = None
    if difference is not None and combined is not None:
        within = abs(difference) <= combined + ROUNDING
    n_runs = ours.n_finished - ours.n_absent
    fewer = ""
    if ours.n < N_SPLITS or n_runs < N_SPLITS * N_HPARAMS:
        fewer = (
            f"rests on {counted(ours.n, 'split')} and {counted(n_runs, 'run')}, the paper's on "
            f"{N_SPLITS} splits and {N_SPLITS * N_HPARAMS} runs"
        )
    return {
        "setting": clean(setting, None),
        "dataset": dataset,
        "model": model,
        "algorithm": algorithm,
        "criterion": criterion,
        "our_mean": ours.mean,
        "our_standard_error": ours.stderr,
        "our_n_splits": ours.n,
        "paper_mean": mean,
        "paper_standard_error": error,
        "difference": difference,
        "combined_error": combined,
        "within_combined_error": within,
        "paper_faults": find_faults(dataset, algorithm, criterion),
        "our_note": "; ".join(filter(None, (fewer, describe_gaps(ours)))),
    }


def compare_with_paper(board: Leaderboard, runs: Iterable[Run]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row per cell that may be compared, and for each setting that may not, the reason."""
    published = load_published()
    is_release: dict[Experiment, bool] = {}  # whether all runs had data with the public release's checksum
    tabular: set[Experiment] = set()  # settings of the paper's tabular datasets
    for run in runs:
        card, setting = part_of(run.info, "dataset"), run.experiment.setting
        is_release[setting] = is_release.get(setting, True) and card.get("verified") is True
        if card.get("kind") == "tabular" and card.get("published"):
            tabular.add(setting)
    rows: list[dict[str, Any]] = []
    reasons: list[str] = []
    for setting in board.settings:
        label = board.labels[setting]
        reason = _explain_difference(setting, is_release.get(setting, False))
        if (setting.dataset, setting.model) not in {key[:2] for key in published}:
            reason = TABULAR if setting in tabular else "the paper has no table of it"
        if reason:
            reasons.append(f"{label}: {reason}")
            continue
        unknown: dict[str, None] = {}
        for _, algorithm, cell in replace(board, settings=(setting,)).walk():
            key = (setting.dataset, setting.model, algorithm, cell.criterion.name)
            if key in published:
                rows.append(compare_cell(cell, label, key))
            else:
                known = cell.criterion.name in PUBLISHED_CRITERIA
                unknown[algorithm if known else cell.criterion.title] = None
        if unknown:
            reasons.append(f"{label}: the paper has no figure of {', '.join(unknown)}")
    return rows, reasons


def _explain_difference(setting: Experiment, is_release: bool) -> str:
    """Return why a setting is not the paper's; empty if it is."""
    candidates = part_of(setting.details, "candidates")
    if candidates.get("pl_type") not in (None, "real") or candidates.get("drop_true_rate"):
        return "its candidates are generated, the paper's are the annotators'"
    if not is_release:
        return "not run on the public release (its checksum was not seen), so it is not comparable"
    if setting.steps != STEPS:
        return f"it has {setting.steps} steps, the paper's runs have {STEPS}"
    held_out = setting.details.get("holdout_fraction")
    if held_out != HOLDOUT_FRACTION:
        return f"its validation share is {held_out}, the paper's is {HOLDOUT_FRACTION}"
    if setting.details.get("imbalance") is not None:
        return "its training splits were made long-tailed, the paper's are not"
    return ""


def paper_tables(rows: Iterable[dict[str, Any]]) -> list[TableLayout]:
    """Return one table per setting of ours and criterion."""
    header = ("Algorithm", "ours [error]", "paper [error]", "difference", "combined error", "within")
    legend = (
        "Test accuracy in %, [standard error of the mean]. The paper prints the population standard "
        "deviation over √n; its errors here are converted to ours. A mark on the paper's figure says why it "
        "is not the method's."
    )
    grids = []
    by_table = group_by(rows, lambda row: (row["setting"], row["model"], row["criterion"]))
    for (setting, model, criterion), group in by_table.items():
        notes = Notes()
        shown = []
        for row in group:
            difference, error = row["difference"], row["combined_error"]
            ours = show_mean(row["our_mean"], row["our_standard_error"])
            paper = show_mean(row["paper_mean"], row["paper_standard_error"])
            marked = (
                TableEntry(text=ours, marks=notes.mark(row["our_note"])),
                TableEntry(text=paper, marks=notes.mark(*row["paper_faults"])),
            )
            texts = (
                "none" if difference is None else f"{100 * difference:+.2f}",
                "none" if error is None else f"{100 * error:.2f}",
                {True: "yes", False: "no", None: "unknown"}[row["within_combined_error"]],
            )
            shown.append((row["algorithm"], (*marked, *text_entries(*texts))))
        title = f"{setting}, {model}, selected by {find_criterion(criterion).title}"
        grids.append(TableLayout(title, header, tuple(shown), notes.listed(), legend))
    return grids
