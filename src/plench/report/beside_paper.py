"""Our PLCIFAR10 results beside the paper's: difference, combined error, and what to know about each cell."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from plench.report.escape import clean
from plench.report.layout import ROUNDING, Notes, TableEntry, TableLayout, describe_gaps
from plench.report.leaderboard import Leaderboard
from plench.report.published import (
    HOLDOUT_FRACTION,
    N_HPARAMS,
    N_SPLITS,
    PUBLISHED_CRITERIA,
    STEPS,
    PublishedCell,
    load_published,
)
from plench.runs.records import Experiment, Run
from plench.runs.select import Cell
from plench.text import counted


@dataclass(frozen=True)
class Beside:
    """One of our cells and the paper's cell of the same name, in one `setting` of ours."""

    ours: Cell
    paper: PublishedCell
    setting: str

    @property
    def difference(self) -> float | None:
        """Ours less the paper's mean test accuracy."""
        return None if self.ours.mean is None else self.ours.mean - self.paper.mean

    @property
    def combined_error(self) -> float | None:
        """Both standard errors combined; None if ours has a single split."""
        if self.ours.stderr is None:
            return None
        return math.hypot(self.ours.stderr, self.paper.standard_error)

    @property
    def within(self) -> bool | None:
        """Whether the difference is within the combined error."""
        if self.difference is None or self.combined_error is None:
            return None
        return abs(self.difference) <= self.combined_error + ROUNDING

    @property
    def note(self) -> str:
        """What to know about our cell: its gaps, and whether it rests on fewer runs than the paper's."""
        n_runs = self.ours.n_finished - self.ours.n_absent
        fewer = ""
        if self.ours.n < N_SPLITS or n_runs < N_SPLITS * N_HPARAMS:
            fewer = (
                f"rests on {counted(self.ours.n, 'split')} and {counted(n_runs, 'run')}, the paper's on "
                f"{N_SPLITS} splits and {N_SPLITS * N_HPARAMS} runs"
            )
        return "; ".join(text for text in (fewer, describe_gaps(self.ours)) if text)


def pair_with_paper(board: Leaderboard, runs: Iterable[Run]) -> tuple[list[Beside], list[str]]:
    """Return the pairs that may be compared, and for each setting that may not, the reason."""
    published = load_published()
    names = {(dataset, model) for dataset, model, _, _ in published}
    runs = list(runs)
    verified = _verified_settings(runs)
    tabular = {run.experiment.setting for run in runs if _is_published_table(run)}
    pairs: list[Beside] = []
    reasons: list[str] = []
    for setting in board.settings:
        if (setting.dataset, setting.model) not in names:
            reasons.append(f"{board.labels[setting]}: {_explain_absence(setting, tabular)}")
            continue
        reason = _explain_difference(setting, setting in verified)
        if reason:
            reasons.append(f"{board.labels[setting]}: {reason}")
            continue
        unknown: dict[str, None] = {}
        for algorithm in board.algorithms:
            for criterion in board.criteria:
                cell = board.cell(setting, algorithm, criterion)
                paper = published.get((setting.dataset, setting.model, algorithm, criterion.name))
                if cell is not None and paper is not None:
                    pairs.append(Beside(cell, paper, board.labels[setting]))
                elif cell is not None:
                    unknown[algorithm if criterion.name in PUBLISHED_CRITERIA else criterion.title] = None
        if unknown:
            reasons.append(f"{board.labels[setting]}: the paper has no figure of {', '.join(unknown)}")
    return pairs, reasons


def _is_published_table(run: Run) -> bool:
    """Whether a run's dataset is one of the paper's tabular datasets, by its card."""
    card = run.info.get("dataset")
    return isinstance(card, dict) and card.get("kind") == "tabular" and bool(card.get("published"))


def _explain_absence(setting: Experiment, tabular: set[Experiment]) -> str:
    """Say why the paper's figures of a setting are not at hand."""
    if setting in tabular:
        return (
            "the paper has tables of tabular datasets, but their numbers are not in its source, from which "
            "ours are taken"
        )
    return "the paper has no table of it"


def _verified_settings(runs: Iterable[Run]) -> set[Experiment]:
    """Return the settings whose runs all say that their data had the public release's checksum."""
    verdicts: dict[Experiment, bool] = {}
    for run in runs:
        dataset = run.info.get("dataset")
        is_release = isinstance(dataset, dict) and dataset.get("verified") is True
        setting = run.experiment.setting
        verdicts[setting] = verdicts.get(setting, True) and is_release
    return {setting for setting, verdict in verdicts.items() if verdict}


def _explain_difference(setting: Experiment, is_release: bool) -> str:
    """Say why a setting is not the paper's, or nothing if it is."""
    candidates = setting.details.get("candidates")
    generated = isinstance(candidates, dict) and (
        candidates.get("pl_type") not in (None, "real") or candidates.get("drop_true_rate")
    )
    if generated:
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


def beside_rows(pairs: Iterable[Beside]) -> list[dict[str, Any]]:
    """Return the pairs as flat rows; accuracies are fractions."""
    return [
        {
            "setting": clean(pair.setting, None),
            "dataset": pair.paper.dataset,
            "model": pair.paper.model,
            "algorithm": pair.paper.algorithm,
            "criterion": pair.paper.criterion,
            "our_mean": pair.ours.mean,
            "our_standard_error": pair.ours.stderr,
            "our_n_splits": pair.ours.n,
            "paper_mean": pair.paper.mean,
            "paper_standard_error": pair.paper.standard_error,
            "difference": pair.difference,
            "combined_error": pair.combined_error,
            "within_combined_error": pair.within,
            "paper_faults": list(pair.paper.faults),
            "our_note": pair.note,
        }
        for pair in pairs
    ]


def beside_tables(pairs: Iterable[Beside]) -> list[TableLayout]:
    """Return one table per setting of ours and criterion."""
    groups: dict[tuple[str, str, str], list[Beside]] = {}
    for pair in pairs:
        groups.setdefault((pair.setting, pair.paper.model, pair.ours.criterion.title), []).append(pair)
    return [_grid(key, group) for key, group in groups.items()]


def _grid(key: tuple[str, str, str], pairs: list[Beside]) -> TableLayout:
    notes = Notes()
    rows = []
    for pair in pairs:
        ours = tuple(notes.mark(text) for text in (pair.note,) if text)
        faults = tuple(notes.mark(reason) for reason in pair.paper.faults)
        within = {True: "yes", False: "no", None: "unknown"}[pair.within]
        entries = (
            TableEntry(text=_show(pair.ours.mean, pair.ours.stderr), marks=ours),
            TableEntry(text=_show(pair.paper.mean, pair.paper.standard_error), marks=faults),
            TableEntry(text="none" if pair.difference is None else f"{100 * pair.difference:+.2f}"),
            TableEntry(text="none" if pair.combined_error is None else f"{100 * pair.combined_error:.2f}"),
            TableEntry(text=within),
        )
        rows.append((pair.paper.algorithm, entries))
    setting, model, title = key
    return TableLayout(
        f"{setting}, {model}, selected by {title}",
        ("Algorithm", "ours [error]", "paper [error]", "difference", "combined error", "within"),
        tuple(rows),
        notes.listed(),
        "Test accuracy in %, [standard error of the mean]. The paper prints the population standard "
        "deviation over √n; its errors here are turned into ours. A mark on the paper's figure says why it "
        "is not the method's.",
    )


def _show(mean: float | None, error: float | None) -> str:
    if mean is None:
        return "none"
    return f"{100 * mean:.2f}" + ("" if error is None else f" [{100 * error:.2f}]")
