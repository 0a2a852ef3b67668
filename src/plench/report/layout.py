"""Tables before they get a format: a title, a header, rows of cells, and notes that cells refer to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from plench.criteria import Criterion
from plench.report.best import describe_choice, find_best
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.report.unlabelled import LEGEND as SCORED_LEGEND
from plench.report.unlabelled import split_by_truth
from plench.runs.records import Experiment
from plench.runs.select import Cell, ChosenRun, Plan

# Accuracies are shares of a few hundred examples, so that differences just as large as an error do come up.
ROUNDING = 1e-12
LEGEND = (
    "Test accuracy in %: mean ± sample standard deviation over splits (divisor n − 1), "
    "[standard error of the mean], n = number of splits. "
    "Cells without a letter lack nothing that was planned."
)


@dataclass(frozen=True)
class TableEntry:
    """One cell as shown: either figures or a plain text, and the letters of the notes it refers to."""

    mean: float | None = None
    std: float | None = None
    stderr: float | None = None
    n: int = 0
    text: str = ""
    best: bool = False
    tied: bool = False
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableLayout:
    """A table that a format can render. The first column holds the names of the rows.

    `basis` says what was planned of its cells.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, tuple[TableEntry, ...]], ...]
    notes: tuple[tuple[str, str], ...] = ()
    legend: str = ""
    basis: str = ""

    @cached_property
    def n(self) -> int | None:
        """The number of splits if all cells rest on the same, else None: then every cell shows its own."""
        numbers = {entry.n for _, entries in self.rows for entry in entries if entry.mean is not None}
        return numbers.pop() if len(numbers) == 1 else None


@dataclass
class Notes:
    """Letters for notes, the same letter for the same text."""

    letters: dict[str, str] = field(default_factory=dict)

    def mark(self, text: str) -> str:
        """Return the letter of a note, a new one for a new text."""
        return self.letters.setdefault(text, _letter(len(self.letters)))

    def listed(self) -> tuple[tuple[str, str], ...]:
        """Return (letter, text) of every note, in the order they came up."""
        return tuple((letter, text) for text, letter in self.letters.items())


def build_tables(board: Leaderboard, by: str = "dataset") -> list[TableLayout]:
    """Return the tables of a leaderboard, then the average ranks where there are several settings.

    `by="dataset"` gives one table per setting with criteria as columns; `by="criterion"` one table per
    criterion with settings as columns. Settings without true labels have tables of their own.
    """
    labelled, scored = split_by_truth(board)
    grids = [] if labelled is None else _arrange(labelled, by)
    return grids if scored is None else [*grids, *_arrange(scored, by)]


def _arrange(board: Leaderboard, by: str) -> list[TableLayout]:
    if by == "dataset":
        grids = [_grid(board, board.labels[s], [(s, c) for c in board.criteria]) for s in board.settings]
    else:
        grids = [
            _grid(board, f"selected by {c.title}", [(s, c) for s in board.settings]) for c in board.criteria
        ]
    if len(board.settings) > 1:
        grids.append(_rank_grid(board))
    return grids


def build_chosen_tables(board: Leaderboard) -> list[TableLayout]:
    """Return one table per setting and criterion: what was chosen on each split of each algorithm.

    A planned split on which there was nothing to choose from has a row that says so.
    """
    header = ("Algorithm", "split", "configuration", "step", "criterion", "test accuracy", "hyperparameters")
    grids = []
    for setting in board.settings:
        for criterion in board.criteria:
            rows = []
            for algorithm in board.algorithms:
                cell = board.cell(setting, algorithm, criterion)
                for trial, choice in cell.by_split() if cell is not None else ():
                    texts = _describe_choice(trial, choice)
                    rows.append((algorithm, tuple(TableEntry(text=text) for text in texts)))
            title = f"{board.labels[setting]}, chosen by {title_criterion(criterion, [setting])}"
            grids.append(TableLayout(title, header, tuple(rows)))
    return grids


def _describe_choice(trial_seed: int, choice: ChosenRun | None) -> tuple[str, ...]:
    if choice is None:
        return (str(trial_seed), "none", "none", "none", "none", "no run with a checkpoint that counts")
    accuracy = choice.test_acc
    hparams = ", ".join(f"{key}={_short(value)}" for key, value in sorted(choice.run.hparams.items()))
    return (
        str(trial_seed),
        str(choice.run.hparams_seed),
        str(choice.record.step),
        f"{100 * choice.score:.2f}",
        "none" if accuracy is None else f"{100 * accuracy:.2f}",
        hparams,
    )


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def describe_gaps(cell: Cell) -> str:
    """Say which planned runs a cell lacks and what else to know about it, or nothing."""
    parts = []
    if not cell.complete:
        plan = cell.plan
        parts.append(
            f"rests on {cell.n} of {len(plan.trial_seeds)} splits and "
            f"{cell.n_finished - cell.n_absent} of {plan.n_runs} planned runs"
        )
    for number, what in (
        (cell.n_missing - cell.n_unfinished, "not started"),
        (cell.n_unfinished - cell.n_failed, "not finished"),
        (cell.n_failed, "failed"),
        (cell.n_diverged, "diverged"),
        (cell.n_absent, "without a checkpoint that counts here"),
    ):
        if number > 0:
            parts.append(f"{number} {what}")
    if cell.criterion.public_defect and cell.experiment.origin == "public":
        parts.append(cell.criterion.public_defect)
    return "; ".join([*parts, *cell.notices])


def describe_incomplete(board: Leaderboard) -> str:
    """Say how many cells lack planned runs, for output without notes on cells."""
    cells = [
        part.cell(setting, algorithm, criterion)
        for part in split_by_truth(board)
        if part is not None
        for setting in part.settings
        for algorithm in part.algorithms
        for criterion in part.criteria
    ]
    lacking = sum(cell is None or not cell.complete for cell in cells)
    if not lacking:
        return ""
    return f"{lacking} of {len(cells)} cells do not rest on all planned runs: `plench collect` says which"


def _grid(board: Leaderboard, title: str, columns: Sequence[tuple[Experiment, Criterion]]) -> TableLayout:
    """Arrange one table whose columns are (setting, criterion) pairs, marking the best cells."""
    one_setting = len({setting for setting, _ in columns}) == 1 and len(columns) == len(board.criteria)
    header = [c.title if one_setting else board.labels[s] for s, c in columns]
    marks = Notes()
    entries: dict[str, list[TableEntry]] = {a: [] for a in board.algorithms}
    for setting, criterion in columns:
        means = board.means(setting, criterion)
        top = max(means, key=lambda a: means[a]) if means else None
        best = board.cell(setting, top, criterion) if top is not None else None
        for algorithm in board.algorithms:
            cell = board.cell(setting, algorithm, criterion)
            entry = _entry(cell, best, marks, "" if board.scored or cell is None else describe_chance(cell))
            if board.scored and algorithm == top:
                chosen = find_best(board, setting, criterion)
                assert chosen is not None
                entry = replace(entry, marks=(*entry.marks, marks.mark(describe_choice(chosen, criterion))))
            entries[algorithm].append(entry)
    present = [a for a in board.algorithms if any(e.text != "" or e.n for e in entries[a])]
    settings = list(dict.fromkeys(setting for setting, _ in columns))
    kind = ("Family", "Budget") if board.is_mixed else ()
    rows = tuple((a, (*_describe_row(board, a, settings), *entries[a])) for a in present)
    basis = describe_plans(board, settings)
    legend = SCORED_LEGEND if board.scored else LEGEND
    title = f"{title}, no true labels" if board.scored else title
    return TableLayout(title, ("Algorithm", *kind, *header), rows, marks.listed(), legend, basis)


def _describe_row(
    board: Leaderboard, algorithm: str, settings: Sequence[Experiment]
) -> tuple[TableEntry, ...]:
    """Show family and budget of a row, where rows differ in them."""
    if not board.is_mixed:
        return ()
    return TableEntry(text=board.family(algorithm)), TableEntry(text=board.budget(algorithm, settings))


def describe_plans(board: Leaderboard, settings: Sequence[Experiment]) -> str:
    """Say how many splits and configurations were planned of each cell in these settings."""
    texts = {}
    for setting in settings:
        by_plan: dict[str, list[str]] = {}
        for algorithm in board.algorithms:
            cell = board.cell(setting, algorithm, board.criteria[0])
            if cell is not None:
                by_plan.setdefault(_describe_plan(cell.plan), []).append(algorithm)
        named = [f"{plan} ({', '.join(algorithms)})" for plan, algorithms in by_plan.items()]
        texts[setting] = "; ".join(by_plan if len(by_plan) == 1 else named)
    if len(set(texts.values())) == 1:
        return f"Planned: {texts[settings[0]]}."
    return "Planned: " + "; ".join(f"{board.labels[s]}: {text}" for s, text in texts.items()) + "."


def _describe_plan(plan: Plan) -> str:
    splits, configurations = len(plan.trial_seeds), len(plan.hparams_seeds)
    counted = f"{splits} split{'' if splits == 1 else 's'}"
    if plan.n_runs == splits * configurations:
        return f"{counted} × {configurations} configuration{'' if configurations == 1 else 's'}"
    return f"{counted}, {plan.n_runs} runs"


def describe_chance(cell: Cell) -> str:
    """Say that a mean accuracy is below that of a guess, or nothing where it is not or cannot be told."""
    described = cell.choices[0].run.info.get("dataset") if cell.choices else None
    classes = described.get("n_classes") if isinstance(described, dict) else None
    if cell.mean is None or type(classes) is not int or classes < 2 or cell.mean >= 1 / classes:
        return ""
    return f"below chance: a guess among {classes:,} classes has {100 / classes:.2f} %"


def drop_errors(grids: Sequence[TableLayout]) -> list[TableLayout]:
    """Return tables without the standard errors of the means."""
    return [
        replace(
            grid,
            rows=tuple(
                (name, tuple(replace(e, stderr=None) for e in entries)) for name, entries in grid.rows
            ),
            legend=grid.legend.replace(" [standard error of the mean],", ""),
        )
        for grid in grids
    ]


def _entry(cell: Cell | None, best: Cell | None, marks: Notes, remark: str = "") -> TableEntry:
    if cell is None:
        return TableEntry()
    gaps = "; ".join(text for text in (describe_gaps(cell), remark) if text)
    letters = (marks.mark(gaps),) if gaps else ()
    if cell.mean is None:
        return TableEntry(text="none", marks=letters)
    is_best = best is not None and best.mean is not None and math.isclose(cell.mean, best.mean)
    is_tied = not is_best and best is not None and is_within(cell, best)
    return TableEntry(cell.mean, cell.std, cell.stderr, cell.n, best=is_best, tied=is_tied, marks=letters)


def is_within(cell: Cell, best: Cell) -> bool:
    """Whether a mean lies within one standard error (the best cell's) of the best mean."""
    if cell.mean is None or best.mean is None or best.stderr is None:
        return False
    return cell.mean >= best.mean - best.stderr - ROUNDING


def _rank_grid(board: Leaderboard) -> TableLayout:
    """Average rank over settings, by criterion; the best is one of those ranked in most settings."""
    ranks = {c.name: board.rank(c) for c in board.criteria}
    most = {name: max((n for _, n in ranked.values()), default=0) for name, ranked in ranks.items()}
    rows = []
    for algorithm in board.algorithms:
        entries = []
        for criterion in board.criteria:
            rank = ranks[criterion.name].get(algorithm)
            whole = most[criterion.name]
            lowest = min((r for r, n in ranks[criterion.name].values() if n == whole), default=math.inf)
            if rank is None:
                entries.append(TableEntry(text="none"))
            else:
                entries.append(
                    TableEntry(
                        text=f"{rank[0]:.2f} (n={rank[1]})",
                        best=rank[1] == whole and math.isclose(rank[0], lowest),
                    )
                )
        rows.append((algorithm, tuple(entries)))
    return TableLayout(
        f"Average rank over {len(board.settings)} settings{' without true labels' if board.scored else ''}",
        ("Algorithm", *(c.title for c in board.criteria)),
        tuple(rows),
        legend=f"Rank 1 is the highest mean {'criterion' if board.scored else 'test accuracy'} of a setting; "
        "n = number of settings ranked in. "
        "Ranks over different settings do not compare: the best is one of those with the largest n.",
    )


def _letter(index: int) -> str:
    letters = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, 26)
        letters = chr(ord("a") + digit) + letters
    return letters
