"""Our PLCIFAR10 results compared with the paper's (Wang et al., ICLR 2025) and its known faults."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from plench.criteria import find_criterion
from plench.report.leaderboard import Leaderboard
from plench.report.tables import ROUNDING, Notes, TableEntry, TableLayout, describe_gaps, show_mean
from plench.runs.records import Experiment, Run
from plench.runs.select import Cell
from plench.text import clean, counted

# The paper's image experiments use three splits, 60,000 steps, 20 configurations per split (protocol).
N_SPLITS = 3
STEPS = 60_000
N_HPARAMS = 20
HOLDOUT_FRACTION = 0.1
PUBLISHED_CRITERIA = ("CR", "AA", "OA", "OA_ES")


@dataclass(frozen=True)
class PublishedCell:
    """One cell of the paper, as fractions. `printed_error` is the population standard deviation over √n."""

    dataset: str
    model: str
    algorithm: str
    criterion: str
    mean: float
    printed_error: float

    @property
    def standard_error(self) -> float:
        """The standard error as we report it: from the sample standard deviation."""
        return self.printed_error * math.sqrt(N_SPLITS / (N_SPLITS - 1))

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the number is not the method's, if it is known not to be."""
        from plench.algorithms.registry import own_cards  # imports torch

        card = own_cards()[self.algorithm]
        concerned = self.dataset in (card.public_fault_on or (self.dataset,))
        reasons = (card.public_fault if concerned else "", find_criterion(self.criterion).public_defect)
        return tuple(reason for reason in reasons if reason)


@cache
def load_published() -> dict[tuple[str, str, str, str], PublishedCell]:
    """Return the paper's cells by (dataset, model, algorithm, criterion)."""
    text = (files("plench.report") / "published.json").read_text(encoding="utf-8")
    cells = {}
    for table in json.loads(text)["tables"]:
        for row in table["rows"]:
            for criterion in PUBLISHED_CRITERIA:
                mean, error = row[criterion]
                key = (table["dataset"], table["model"], row["algorithm"], criterion)
                cells[key] = PublishedCell(*key, mean=mean / 100, printed_error=error / 100)
    return cells


@dataclass(frozen=True)
class CellPair:
    """One of our cells, in a `setting` of ours, and the paper's cell of the same name."""

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
        error = self.ours.stderr
        return None if error is None else math.hypot(error, self.paper.standard_error)

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
        return "; ".join(filter(None, (fewer, describe_gaps(self.ours))))


def pair_with_paper(board: Leaderboard, runs: Iterable[Run]) -> tuple[list[CellPair], list[str]]:
    """Return the pairs that may be compared, and for each setting that may not, the reason."""
    published = load_published()
    is_release: dict[Experiment, bool] = {}  # whether all runs had data with the public release's checksum
    tabular: set[Experiment] = set()  # settings of the paper's tabular datasets
    for run in runs:
        described, setting = run.info.get("dataset"), run.experiment.setting
        card = described if isinstance(described, dict) else {}
        is_release[setting] = is_release.get(setting, True) and card.get("verified") is True
        if card.get("kind") == "tabular" and card.get("published"):
            tabular.add(setting)
    pairs: list[CellPair] = []
    reasons: list[str] = []
    for setting in board.settings:
        label = board.labels[setting]
        reason = _explain_difference(setting, is_release.get(setting, False))
        if (setting.dataset, setting.model) not in {key[:2] for key in published}:
            reason = "the paper has no table of it"
            if setting in tabular:
                reason = (
                    "the paper has tables of tabular datasets, but their numbers are not in its source, from "
                    "which ours are taken"
                )
        if reason:
            reasons.append(f"{label}: {reason}")
            continue
        unknown: dict[str, None] = {}
        for algorithm in board.algorithms:
            for criterion in board.criteria:
                cell = board.cell(setting, algorithm, criterion)
                paper = published.get((setting.dataset, setting.model, algorithm, criterion.name))
                if cell is not None and paper is not None:
                    pairs.append(CellPair(cell, paper, label))
                elif cell is not None:
                    unknown[algorithm if criterion.name in PUBLISHED_CRITERIA else criterion.title] = None
        if unknown:
            reasons.append(f"{label}: the paper has no figure of {', '.join(unknown)}")
    return pairs, reasons


def _explain_difference(setting: Experiment, is_release: bool) -> str:
    """Return why a setting is not the paper's; empty if it is."""
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


def paper_rows(pairs: Iterable[CellPair]) -> list[dict[str, Any]]:
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


def paper_tables(pairs: Iterable[CellPair]) -> list[TableLayout]:
    """Return one table per setting of ours and criterion."""
    groups: dict[str, list[CellPair]] = {}
    for pair in pairs:
        title = f"{pair.setting}, {pair.paper.model}, selected by {pair.ours.criterion.title}"
        groups.setdefault(title, []).append(pair)
    header = ("Algorithm", "ours [error]", "paper [error]", "difference", "combined error", "within")
    legend = (
        "Test accuracy in %, [standard error of the mean]. The paper prints the population standard "
        "deviation over √n; its errors here are converted to ours. A mark on the paper's figure says why it "
        "is not the method's."
    )
    grids = []
    for title, group in groups.items():
        notes = Notes()
        rows = []
        for pair in group:
            ours, paper, difference, error = pair.ours, pair.paper, pair.difference, pair.combined_error
            entries = (
                TableEntry(text=show_mean(ours.mean, ours.stderr), marks=notes.mark(pair.note)),
                TableEntry(text=show_mean(paper.mean, paper.standard_error), marks=notes.mark(*paper.faults)),
                TableEntry(text="none" if difference is None else f"{100 * difference:+.2f}"),
                TableEntry(text="none" if error is None else f"{100 * error:.2f}"),
                TableEntry(text={True: "yes", False: "no", None: "unknown"}[pair.within]),
            )
            rows.append((paper.algorithm, entries))
        grids.append(TableLayout(title, header, tuple(rows), notes.listed(), legend))
    return grids
