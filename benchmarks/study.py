"""Writes the page of the study, docs/results/study.md, with its pictures; every number is computed.

    python benchmarks/study.py                                  results/study.parquet → docs/results
    python benchmarks/study.py FILE.parquet --sweeps A.toml B.toml --output DIR

The sweep files say what was planned. The first grid of the first file is the main part; grids that differ
from it in their methods only join it. The other parts are told by what they change: the network, the data
(crowd datasets), or fewer runs on fewer datasets (slow methods). Methods are compared only where all their
planned runs are finished, and the page names what is missing.
"""

import argparse
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from plench.criteria import find_criterion
from plench.report import drawing, figures
from plench.report.criteria_quality import average_quality, judge_criteria, measure_subset_regret
from plench.report.leaderboard import (
    Leaderboard,
    bootstrap_ranks,
    build_leaderboard,
    group_by,
    offered,
    part_of,
)
from plench.report.results import read_results
from plench.report.statistics import ALPHA, POWER, compare_splits, find_test_ratio, smallest_p
from plench.report.tables import escape_markdown
from plench.runs.records import Experiment, Run
from plench.runs.sweep_spec import Grid, read_sweep
from plench.text import counted

CR, AA, OA_ES = (find_criterion(name) for name in ("CR", "AA", "OA_ES"))
CROWD, WIDTH = "_Crowd", 6.5
STATE = "study 2026-11"  # the name under which a frozen state is cited
INCOMPLETE = "**The study is not complete**: [What there is](#what-there-is) names the runs that are missing."
Rows = list[list[str]]


@dataclass
class Part:
    """The runs of a grid: those of methods with all planned runs finished, and what the others lack."""

    title: str
    grid: Grid
    runs: list[Run]
    missing: list[str]
    n_planned: int
    n_finished: int

    @cached_property
    def board(self) -> Leaderboard:
        """Cells of the complete methods."""
        return build_leaderboard(self.runs, (CR, AA, OA_ES))

    @cached_property
    def classical(self) -> list[str]:
        """The complete methods without a network."""
        return sorted({run.experiment.algorithm for run in self.runs if run.experiment.fitted}, key=str.lower)

    @cached_property
    def deep(self) -> list[str]:
        """The complete methods with a network."""
        names = {run.experiment.algorithm for run in self.runs}
        return sorted(names.difference(self.classical), key=str.lower)


def take_part(title: str, grid: Grid, runs: Iterable[Run]) -> Part:
    """Return the part of the runs that a grid plans; a method needs all its runs on all datasets."""
    wanted = (network_of(grid), grid.steps)
    places = {(d, t, h) for d in grid.datasets for t in grid.trial_seeds for h in grid.hparams_seeds}
    found: dict[str, dict[tuple[str, int, int], Run]] = {name: {} for name in grid.algorithms}
    for run in runs:
        experiment = run.experiment
        same = experiment.fitted or (experiment.model, experiment.steps) == wanted
        place = (experiment.dataset, run.trial_seed, run.hparams_seed)
        if same and run.finished and place in places and experiment.algorithm in found:
            found[experiment.algorithm].setdefault(place, run)
    kept = [run for own in found.values() if len(own) == len(places) for run in own.values()]
    lacking = group_by((n for n in found if len(found[n]) < len(places)), lambda n: len(found[n]))
    missing = [f"{n:,} of {len(places):,} runs: {', '.join(names)}" for n, names in lacking.items()]
    return Part(title, grid, kept, missing, len(places) * len(found), sum(map(len, found.values())))


def network_of(grid: Grid) -> str:
    """Return the network that a grid asks for."""
    return str(grid.hparams.get("model", "MLP"))


def merge_grids(grids: Iterable[Grid]) -> list[Grid]:
    """Return the grids with those that differ in their methods only as one."""

    def shape(grid: Grid) -> str:
        return json.dumps({**grid.to_table(), "algorithms": None}, sort_keys=True)

    return [
        replace(same[0], algorithms=tuple(dict.fromkeys(name for grid in same for name in grid.algorithms)))
        for same in group_by(grids, shape).values()
    ]


# Computations. The tests compare them with known answers.


def explain_variance(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shares of method, network, and interaction with noise in the variance within each dataset.

    `values` are mean accuracies by dataset, method and network; the result has a row for each dataset.
    """
    centred = values - values.mean(axis=(1, 2), keepdims=True)
    total = (centred**2).sum(axis=(1, 2))
    method = (centred.mean(axis=2) ** 2).sum(axis=1) * values.shape[2] / total
    network = (centred.mean(axis=1) ** 2).sum(axis=1) * values.shape[1] / total
    return np.stack([method, network, 1 - method - network], axis=1)


def divide_variance(groups: Iterable[Sequence[float]]) -> tuple[float, float] | None:
    """Return the variance between groups and that within them; None without two groups of two values.

    That between groups is less what the variance within adds to the means, and not below 0.
    """
    several = [group for group in groups if len(group) > 1]
    if len(several) < 2:
        return None
    within = fmean(float(np.var(group, ddof=1)) for group in several)
    added = fmean(within / len(group) for group in several)
    return max(float(np.var([fmean(group) for group in several], ddof=1)) - added, 0.0), within


def detectable(n: int, ratio: float) -> float:
    """Return the difference, in standard deviations, that the corrected t-test over n splits finds."""
    limit = float(stats.t.ppf(1 - ALPHA / 2, n - 1))
    shift = optimize.brentq(lambda d: float(stats.nct.sf(limit, n - 1, d)) - POWER, 0.0, 50.0)
    return float(shift) * math.sqrt(1 / n + ratio)


def compare_best(
    board: Leaderboard, dataset: str, groups: tuple[Collection[str], Collection[str]]
) -> tuple[list[str], str, float]:
    """Compare the best methods of two groups: names with means, the difference with its p, its value."""
    means = board.dataset_means(dataset, CR)
    first, second = (max(group, key=lambda name: means[name]) for group in groups)
    (found,) = compare_splits(replace(board, settings=tuple(board.datasets[dataset])), CR, first, second)
    p_value = "none" if found["p_value"] is None else f"{found['p_value']:.2g}"
    best = [f"{name} {percent(means[name])}" for name in (first, second)]
    return best, f"{points(found['difference'])} (p {p_value})", found["difference"]


@dataclass
class NetworkComparison:
    """Mean accuracies by dataset, method and network: the same configurations and splits, chosen by CR."""

    networks: tuple[str, str]
    methods: list[str]
    grid: Grid
    boards: list[Leaderboard]
    values: NDArray[np.float64]

    @property
    def gains(self) -> NDArray[np.float64]:
        """The change by the second network, by dataset and method."""
        gains: NDArray[np.float64] = self.values[:, :, 1] - self.values[:, :, 0]
        return gains

    @property
    def overall(self) -> NDArray[np.float64]:
        """Means over datasets by network and method, the best method of each network first."""
        return -np.sort(-self.values.mean(axis=0).T, axis=1)

    @property
    def half(self) -> int:
        """How many methods the better half has."""
        return (len(self.methods) + 1) // 2

    @property
    def shares(self) -> NDArray[np.float64]:
        """Shares of the variance by dataset: of all methods, then of the better half.

        Methods that fail inflate the method's share; the half is of the means over datasets and networks.
        """
        better = np.argsort(-self.values.mean(axis=(0, 2)))[: self.half]
        return np.hstack([explain_variance(own) for own in (self.values, self.values[:, better])])

    def describe_change(self) -> str:
        """Return the first thing to say of the networks."""
        n_gaining, gain = int((self.gains.mean(axis=0) > 0).sum()), float(self.gains.mean())
        return (
            f"{self.networks[1]} instead of {self.networks[0]} changes the mean over methods and datasets by "
            f"{points(gain)} points; {n_gaining} of {len(self.methods)} methods gain."
        )


def compare_networks(first: Part, second: Part | None) -> NetworkComparison | None:
    """Compare the methods that are complete with both networks; None if they are fewer than three."""
    methods = [name for name in (second.deep if second else ()) if name in first.deep]
    if second is None or len(methods) < 3:
        return None
    grid = replace(second.grid, algorithms=tuple(methods))
    boards = [take_part("", replace(grid, hparams=p.grid.hparams), p.runs).board for p in (first, second)]
    means = [mean_accuracies(board) for board in boards]
    values = np.array([[[m[d][name] for m in means] for name in methods] for d in grid.datasets])
    return NetworkComparison((network_of(first.grid), network_of(second.grid)), methods, grid, boards, values)


def test_of(run: Run) -> float | None:
    """Return the test accuracy at the checkpoint that CR chooses in a run."""
    chosen = offered(run, CR)
    return None if chosen is None else chosen[2]


def years_of(runs: Iterable[Run]) -> dict[str, int]:
    """Return the years of the methods' papers, from the BibTeX on their cards."""
    cards = {run.experiment.algorithm: part_of(run.info, "algorithm_card") for run in runs}
    found = {
        n: re.search(r"year\s*=\s*\{?(\d{4})", str(card.get("bibtex") or "")) for n, card in cards.items()
    }
    return {name: int(year[1]) for name, year in found.items() if year}


def mean_accuracies(board: Leaderboard) -> dict[str, dict[str, float]]:
    """Return mean test accuracies chosen by CR, by dataset and method."""
    return {dataset: board.dataset_means(dataset, CR) for dataset in board.datasets}


def table(header: Sequence[str], rows: Rows) -> list[str]:
    """Return a Markdown table."""
    cells = [[escape_markdown(cell) for cell in row] for row in rows]
    lines = [list(header), ["---"] * len(header), *cells]
    return ["", *("| " + " | ".join(row) + " |" for row in lines)]


def percent(value: float, digits: int = 1) -> str:
    """Show a share in percent."""
    return f"{100 * value:.{digits}f}"


def points(value: float) -> str:
    """Show a difference of shares in points, with its sign."""
    return signed(100 * value, 1)


def signed(value: float, digits: int) -> str:
    """Show a number with its sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


# The sections. Each returns lines of Markdown, and says what it lacks while it cannot be written.


def tell_first(part: Part, networks: NetworkComparison | None) -> list[str]:
    board, n = part.board, counted(len(part.grid.datasets), "dataset")
    ranks, limits = board.rank(CR), bootstrap_ranks(board, CR, board.algorithms).over_splits or {}
    order = sorted(ranks, key=lambda name: ranks[name][0])
    if len(order) < 3:
        return ["There are too few complete methods for a result."]
    lead, second = order[:2]
    kind = "classical" if lead in part.classical else board.family(lead)
    close = [name for name in order[1:] if limits and limits[name][0] <= limits[lead][1]]
    by_dataset = mean_accuracies(board)
    means = {name: fmean(own[name] for own in by_dataset.values()) for name in (lead, second)}
    lines = [
        f"Of {len(order)} methods on {n}, tuned without true labels, {lead} ({kind}) has the best average "
        f"rank, and a mean accuracy {points(means[lead] - means[second])} points from that of {second}, the "
        f"second; the rank intervals of {len(close)} others overlap with its own."
    ]
    years = years_of(part.runs)
    dated = [name for name in close if name in years]
    if dated and lead in years:
        oldest = min(dated, key=lambda name: years[name])
        lines[0] += (
            f" {lead} was published in {years[lead]}, {oldest}, the oldest of these, in {years[oldest]}."
        )
    simple = [name for name in order if name in part.classical]
    if simple and lead not in simple:
        leads = [
            dataset for dataset, own in by_dataset.items() if max(own, key=lambda name: own[name]) in simple
        ]
        where = (
            f"it or another classical method is best on {', '.join(leads)}"
            if leads
            else "none leads a dataset"
        )
        lines.append(
            f"The best classical method, {simple[0]}, is at place {order.index(simple[0]) + 1}; {where}."
        )
    if networks:
        plain = networks.overall[0]
        n_close = int((plain[1:] >= plain[0] - float(networks.gains.mean())).sum())
        shares = ", ".join(
            f"{percent(own[4], 0)} % on {dataset} (the method {percent(own[3], 0)} %)"
            for dataset, own in zip(networks.grid.datasets, networks.shares, strict=True)
        )
        lines.append(
            f"{networks.describe_change()} {networks.networks[1]} only adds a batch normalisation; with "
            f"{networks.networks[0]}, {n_close} of the other methods are that close to the best. Among the "
            f"{networks.half} best methods the network explains this much of the variance: {shares}."
        )
    return lines


def tell_extent(parts: Sequence[Part], main: Part) -> list[str]:
    def row(part: Part, name: str) -> list[str]:
        grid = part.grid
        model = f", {grid.hparams['model']}" if "model" in grid.hparams else ""
        runs = f"{len(grid.hparams_seeds)} × {len(grid.trial_seeds)}{model}"
        n_complete = len(part.deep) + len(part.classical)
        return [
            name, ", ".join(grid.datasets), runs, f"{part.n_finished:,} of {part.n_planned:,}",
            f"{n_complete} of {len(grid.algorithms)}",
        ]  # fmt: skip

    header = ["planned", "datasets", "configurations × splits", "finished runs", "complete methods"]
    rows = [row(part, part.title) for part in parts]
    before = [name for name in main.classical if not any(name in part.grid.algorithms for part in parts)]
    if before:
        part = take_part("", replace(main.grid, algorithms=tuple(before)), main.runs)
        rows.append(row(part, "earlier: classical methods"))
    lines = ["## What there is", *table(header, rows), ""]
    missing = [part for part in parts if part.missing]
    lines += [
        f"- {'Incomplete' if part.n_finished else 'Not run'}, {part.title}: {'; '.join(part.missing)}."
        for part in missing
    ]
    said = "A method that lacks a planned run is left out of the comparisons of that part."
    return [*lines, *([""] if missing else []), said]


def tell_network(found: NetworkComparison | None, folder: Path) -> list[str]:
    title = "## Method or network?"
    if found is None:
        return [title, "", "Not yet: fewer than 3 methods are complete with both networks."]
    names, grid, values, gains = found.networks, found.grid, found.values, found.gains
    ranks = [{name: rank for name, (rank, _) in board.rank(CR).items()} for board in found.boards]
    rho = stats.spearmanr(*([own[name] for name in found.methods] for own in ranks)).statistic
    overall, half = found.overall, found.half
    spreads = [[percent(own[0] - own[n - 1]) for own in overall] for n in (len(found.methods), half, 2)]
    rows = [
        [d, *(percent(share, 0) for share in shares), points(float(gain.mean()))]
        for d, shares, gain in zip(grid.datasets, found.shares, gains, strict=True)
    ]
    with drawing.figure_style():
        by_method = values.mean(axis=0).T.tolist()
        slopes = [dict(zip(found.methods, own, strict=True)) for own in by_method]
        figure = figures.draw_slopes(slopes[0], slopes[1], names, "mean test accuracy (%)", WIDTH)
        drawing.save_figure(figure, folder / "study-network.svg")
    ordered = sorted(enumerate(found.methods), key=lambda item: ranks[1][item[1]])
    sources = ("method", "network", "interaction and noise")
    return [
        title,
        "",
        f"{found.describe_change()} In means over datasets, the best and the worst method are "
        f"{spreads[0][0]} points apart with {names[0]} and {spreads[0][1]} with {names[1]}; the "
        f"{half} best of each network lie within {spreads[1][0]} and {spreads[1][1]} points, and the first "
        f"leads the second by {spreads[2][0]} and {spreads[2][1]}. Ranks under both correlate by {rho:.2f}. "
        f"Both have the same {len(grid.hparams_seeds)} configurations and {len(grid.trial_seeds)} splits, "
        "chosen by CR. Shares of the variance of mean accuracies within a dataset, in percent, of all "
        f"methods and of the {half} with the highest means over both networks:",
        *table(
            ["dataset", *sources, *(f"{source}, {half} best" for source in sources), "change (points)"],
            rows,
        ),
        "",
        f"![Mean accuracy of {len(found.methods)} methods with {names[0]} and {names[1]}](study-network.svg)",
        *table(
            ["method", *(f"rank, {name}" for name in names), *(f"mean, {name} (%)" for name in names),
             "change (points)"],
            [
                [n, *(f"{r[n]:.1f}" for r in ranks), *map(percent, values[:, i].mean(axis=0)),
                 points(float(gains[:, i].mean()))]
                for i, n in ordered
            ],
        ),
    ]  # fmt: skip


def tell_leaderboard(board: Leaderboard, folder: Path) -> list[str]:
    names, title = board.algorithms, "## Leaderboard"
    if len(names) < 3:
        return [title, "", f"Not yet: {counted(len(names), 'complete method')}; 3 are needed."]
    found, ranks, means = bootstrap_ranks(board, CR, names), board.rank(CR), mean_accuracies(board)
    limits = found.over_splits or {}
    rows = []
    for name in sorted(names, key=lambda name: ranks[name][0]):
        interval = "{:.1f} to {:.1f}".format(*limits[name]) if name in limits else "none"
        accuracies = [means[d][name] for d in means]
        figures_of = [percent(fmean(accuracies)), *map(percent, accuracies)]
        rows.append([name, f"{ranks[name][0]:.1f}", interval, *figures_of])
    extent = f"{counted(len(names), 'method')} on {counted(len(means), 'dataset')}"
    lines = [
        title,
        "",
        f"{extent}, chosen by CR. Ranks have 95 % bootstrap intervals over splits. "
        + "".join(f"{reason[:1].upper()}{reason[1:]}. " for reason in found.reasons).rstrip(),
        *table(["method", "average rank", "95 % over splits", "mean (%)", *means], rows),
    ]
    if found.widest:
        with drawing.figure_style():
            drawing.save_figure(figures.draw_rank_intervals(board, CR, WIDTH), folder / "study-ranks.svg")
        lines += ["", f"![Average ranks of {extent}, with intervals](study-ranks.svg)"]
    return lines


def tell_odd(part: Part) -> list[str]:
    """Explain methods that are worse than guessing, and say what the paper's tables allow to compare."""
    title, means, lines = "## Methods that fail, and the paper", mean_accuracies(part.board), []
    classes = {
        run.experiment.dataset: n
        for run in part.runs
        if (n := part_of(run.info, "dataset").get("n_classes")) is not None
    }
    for name in part.deep:
        below = [d for d, n in classes.items() if means[d][name] < 1 / n]
        if not below:
            continue
        own = [run for run in part.runs if run.experiment.algorithm == name]
        line = f"- {name} is below guessing a class at random on {', '.join(sorted(below))}."
        logged = [record.values.get("logged") or {} for run in own for record in run.records if record.step]
        shares = [values["ascent"] for values in logged if values.get("ascent") is not None]
        if shares:
            line += (
                f" In {percent(fmean(shares), 0)} % of its steps some class's estimated risk is negative. "
                "Such a step pushes this risk up and ignores the others. That is the method; its assumption "
                "of uniform complementary labels does not hold here."
            )
        oracle = [part.board.dataset_means(dataset, OA_ES)[name] for dataset in means]
        line += (
            f" Choosing by true validation labels does not help: {percent(fmean(oracle))} % in the mean over "
            f"datasets, {percent(fmean(own[name] for own in means.values()))} % by CR."
        )
        lines.append(line)
    ranks = part.board.rank(CR)
    order = sorted((n for n in part.deep if "vanilla" in part.board.family(n)), key=lambda n: ranks[n][0])
    named = [n for n in ("PRODEN", "Forward", "SCL_EXP", "OP_W", "NN", "GA") if n in order]
    if named:
        places = ", ".join(f"{n} {order.index(n) + 1}" for n in named)
        lines.append(
            "- The paper's tables of these datasets are empty in its source, so that accuracies cannot be "
            "compared. Its text calls PRODEN very strong in most cases, Forward, SCL_EXP and OP_W good, and "
            f"leaves NN and GA out of its figure. Places here among {len(order)} vanilla methods: {places}."
        )
    return [title, "", *lines] if lines else []


def tell_state(source: Path, n_runs: int) -> list[str]:
    """Name the state of the results file, and say how many repeated runs agree."""
    if not source.is_file():
        return []
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    lines = [
        f"State: {STATE}, {n_runs:,} runs, `results/{source.name}` with SHA-256 `{digest[:16]}…`. "
        "`results/README.md` says how to cite it."
    ]
    verified = source.with_name("verified.txt")
    if verified.exists():
        *_, last = verified.read_text(encoding="utf-8").splitlines()
        lines.append(
            f"Repeated with `plench results verify`: {last[:1].lower()}{last[1:]}; `results/verified.txt` "
            "has each run. Runs from another processor need not be bit-equal."
        )
    return lines


def tell_classical(main: Part, second: Part | None) -> list[str]:
    title = "## Deep against classical"
    if not main.deep or not main.classical:
        return [title, "", "Not yet: a complete method of each kind is needed."]
    rows, said = [], []
    for part in (main, second):
        if part is None or not part.deep:
            said.append("With another network: not yet, no method is complete.")
            continue
        # The classical methods with as many configurations as the networks had.
        names = (*part.deep, *main.classical)
        board = take_part("", replace(part.grid, algorithms=names), [*part.runs, *main.runs]).board
        network, behind = network_of(part.grid), []
        for dataset in board.datasets:
            best, difference, value = compare_best(board, dataset, (part.deep, main.classical))
            means = board.dataset_means(dataset, CR)
            below = sum(means[name] < max(means[n] for n in main.classical) for name in part.deep)
            behind += [dataset] if value < 0 else []
            rows.append([dataset, network, *best, difference, f"{below} of {len(part.deep)}"])
        where = f"on {', '.join(behind)}" if behind else "nowhere"
        said.append(f"With {network} a classical method has the best mean {where}.")
    counts = f"{len(main.deep)} deep, {len(main.classical)} classical"
    header = ["dataset", "network", "best deep", "best classical", "difference (points)"]
    return [
        title,
        "",
        " ".join(said) + f" The best of a group is flattered by the group's size ({counts}). "
        "p: corrected resampled t-test, not corrected for the choice of the best.",
        *table([*header, "deep methods below the best classical"], rows),
    ]


def tell_slow(part: Part | None, main: Part, runs: Sequence[Run]) -> list[str]:
    title = "## Slower methods"
    if part is None or not part.deep:
        return [title, "", "Not yet: no slower method is complete."]
    grid = replace(part.grid, algorithms=(*part.deep, *main.grid.algorithms))
    together = take_part("", grid, runs)
    others = [name for name in (*together.deep, *together.classical) if name not in part.deep]
    lines = [
        title,
        "",
        f"Configurations 0 to {grid.n_hparams - 1} on {len(grid.trial_seeds)} splits, chosen by CR.",
    ]
    for dataset in together.board.datasets:
        if others:
            best, difference, _ = compare_best(together.board, dataset, (part.deep, others))
            slower = counted(len(part.deep), "slower method")
            lines.append(
                f"{dataset}: the best of {slower} has {best[0]} %, the best of {len(others)} others "
                f"{best[1]} %: {difference}."
            )
        means = sorted(together.board.dataset_means(dataset, CR).items(), key=lambda item: -item[1])
        kinds = [[n, "slower" if n in part.deep else "", percent(mean)] for n, mean in means]
        lines += table(["method", "kind", f"{dataset} (%)"], kinds)
    return lines


def tell_criteria(part: Part, folder: Path) -> list[str]:
    title = "## What choosing without true labels costs"
    runs = [run for run in part.runs if not run.experiment.fitted]
    if not runs:
        return [title, "", "Not yet: no deep method is complete."]
    shown = (CR, AA)
    averages = average_quality(judge_criteria(runs, shown), "dataset")
    by_dataset = group_by(runs, lambda run: run.experiment.dataset)
    n, rows = len(part.grid.hparams_seeds), []
    with drawing.figure_style():
        figure, panels, _ = drawing.new_panels(WIDTH, len(by_dataset), 2.0, 0.3, (0.3, 1.6), sharey=True)
        for axes, (dataset, own) in zip(panels, sorted(by_dataset.items()), strict=True):
            curve = measure_subset_regret(own, shown)
            assert curve is not None
            costs = [averages[criterion.name, dataset].regret for criterion in shown]
            row = [dataset, *("none" if cost is None else percent(cost) for cost in costs)]
            for i, criterion in enumerate(shown):
                values, line = [100 * value for value in curve.regrets[i]], drawing.DASHES[i]
                xs = range(1, len(values) + 1)
                axes.plot(xs, values, color=drawing.DARK, linestyle=line, label=criterion.title)
                few = min(5, n) - 1
                row.append(" / ".join(signed(values[k], 1) for k in (0, few, -1)))
            row.append(" / ".join(percent(curve.accuracies[0][k]) for k in (0, min(5, n) - 1, -1)))
            axes.set(title=dataset, xlabel="configurations tried")
            drawing.add_grid(axes)
            rows.append(row)
        panels[0].set_ylabel("points below the oracle")
        panels[0].legend(frameon=False)
        drawing.save_figure(figure, folder / "study-regret.svg")
    tried = f"with 1 / {min(5, n)} / {n} configurations"
    spans = [[float(row[i]) for row in rows if row[i] != "none"] for i in (1, 2)]
    said = [f"{c.title} {min(own):.1f} to {max(own):.1f}" for c, own in zip(shown, spans, strict=True) if own]
    return [
        title,
        "",
        "Points of test accuracy lost compared with choosing by true validation labels (OA w/ ES), means "
        f"over {counted(len(part.deep), 'deep method')} and {len(part.grid.trial_seeds)} splits. By "
        f"dataset: {', '.join(said)}. A negative cost is chance: validation sets are small.",
        *table(["dataset", "CR", "AA", f"CR {tried}", "AA likewise", "accuracy by CR likewise (%)"], rows),
        "",
        "![Cost of choosing by CR and AA by the number of configurations tried](study-regret.svg)",
    ]


def tell_spread(part: Part, everything: Sequence[Run]) -> list[str]:
    """Tell what split, configuration and seed add. Configurations are drawn for each split anew."""
    title = "## Split, seed or configuration?"

    def measure(runs: Iterable[Run]) -> dict[Experiment, tuple[float, float]]:
        found = {}
        for experiment, own in group_by(runs, lambda run: run.experiment).items():
            splits = group_by(own, lambda run: run.trial_seed).values()
            divided = divide_variance([[v for r in g if (v := test_of(r)) is not None] for g in splits])
            if divided is not None:
                found[experiment] = divided
        return found

    tuned = measure(run for run in part.runs if not run.experiment.fitted)
    if not tuned:
        return [title, "", "Not yet: no deep method is complete."]
    defaults = [
        run
        for run in everything
        if run.finished and run.hparams_seed == 0 and run.experiment.algorithm in part.deep
        and network_of(part.grid) == run.experiment.model
    ]  # fmt: skip
    repeated = measure(defaults)
    rows = []
    for dataset in sorted({experiment.dataset for experiment in tuned}):
        found = [divided for experiment, divided in tuned.items() if experiment.dataset == dataset]
        split, within = (fmean(values) for values in zip(*found, strict=True))
        seeds = [own[1] for experiment, own in repeated.items() if experiment.dataset == dataset]
        shown = [split, max(within - fmean(seeds), 0.0), fmean(seeds)] if seeds else [split]
        deviations = [percent(math.sqrt(value)) for value in shown] + ["unknown"] * (3 - len(shown))
        rows.append([dataset, *deviations, percent(math.sqrt(within)), percent(split / (split + within), 0)])
    lengths = " or ".join(sorted({experiment.budget for experiment in repeated})) or "none yet"
    return [
        title,
        "",
        "Standard deviations of test accuracy in points, roots of variances averaged over "
        f"{counted(len(part.deep), 'method')}, checkpoints by CR. Configurations are drawn anew for each "
        "split, and each has its own seed: what differs within a split is both. The seed's part is that of "
        f"repeated default runs ({lengths}), and the configuration's what remains.",
        *table(
            ["dataset", "split", "configuration", "seed", "within a split", "share of the split (%)"], rows
        ),
    ]


def tell_power(part: Part) -> list[str]:
    title = "## The smallest difference that can be found"
    names, n = [*part.deep, *part.classical], len(part.grid.trial_seeds)
    if len(names) < 2:
        return [title, "", "Not yet: two complete methods are needed."]
    rows, n_found = [], 0
    for dataset in part.board.datasets:
        splits = [part.board.dataset_splits(dataset, name, CR) for name in names]
        pairs = [[a[t] - b[t] for t in a if t in b] for i, a in enumerate(splits) for b in splits[:i]]
        cell = part.board.cell(part.board.datasets[dataset][0], names[0], CR)
        assert cell is not None
        ratio, spread = find_test_ratio(cell), median(float(np.std(pair, ddof=1)) for pair in pairs)
        found = [spread * detectable(m, ratio) for m in (n, 10, 1000)]
        n_found += found[0] <= 0.01
        smaller = sum(abs(fmean(pair)) < found[0] for pair in pairs)
        rows.append([dataset, *map(percent, (spread, *found)), f"{smaller} of {len(pairs)}"])
    where = "any of them" if n_found == 0 else "the other datasets"
    claim = (
        f" A published lead of one point from so few splits is not evidence on {where}."
        if n_found < len(rows)
        else ""
    )
    return [
        title,
        "",
        f"With {n} splits a difference of one point can be found on {n_found} of "
        f"{counted(len(rows), 'dataset')}.{claim} The table has the mean difference of two methods, in "
        f"points, that the corrected resampled t-test finds at {100 * ALPHA:.0f} % in {100 * POWER:.0f} % of "
        "studies. Splits of one dataset overlap, so that even a thousand of them are not enough for less.",
        *table(
            ["dataset", "spread of differences", f"with {n} splits", "with 10", "with 1,000",
             f"pairs of methods closer than found with {n}"],
            rows,
        ),
    ]  # fmt: skip


def tell_crowd(part: Part | None, runs: Sequence[Run]) -> list[str]:
    title = "## Crowd data"
    if part is None:
        return [title, "", "Not yet: nothing is planned on crowd data."]
    fitted = sorted({run.experiment.algorithm for run in runs if run.experiment.fitted})
    names = dict.fromkeys((*part.grid.algorithms, *fitted))
    found = take_part("", replace(part.grid, algorithms=tuple(names)), runs)
    answers, board = found.board.answered, found.board
    others = [name for name in board.algorithms if name not in answers]
    if not answers or not others:
        return [title, "", "Not yet: a complete method on candidate sets and one on answers are needed."]
    lines = [
        title,
        "",
        "Candidate sets are the unions of all answers. Methods marked (answers) also see who gave which: "
        "MV_LR takes the majority vote, DS_LR Dawid and Skene's estimate. Configurations 0 to "
        f"{part.grid.n_hparams - 1}, chosen by CR; {len(part.deep)} of {len(part.grid.algorithms)} planned "
        "deep methods are complete. The test set is the same for all splits, which makes the test cautious.",
        "",
    ]
    for dataset in board.datasets:
        means, (best, difference, _) = (
            board.dataset_means(dataset, CR), compare_best(board, dataset, (others, answers))
        )  # fmt: skip
        behind = sum(means[name] < max(means[own] for own in answers) for name in others)
        lines.append(
            f"- {dataset}: best on candidate sets {best[0]} %, best on answers {best[1]} %: {difference}. "
            f"{behind} of {len(others)} methods on candidate sets are behind the latter."
        )
    by_dataset = mean_accuracies(board)
    order = sorted(board.algorithms, key=lambda name: -fmean(own[name] for own in by_dataset.values()))
    rows = [[name, *(percent(own[name]) for own in by_dataset.values())] for name in order]
    return [*lines, *table(["method", *(f"{dataset} (%)" for dataset in by_dataset)], rows)]


def tell_time(parts: Iterable[Part | None]) -> list[str]:
    rows, machines = [], set()
    for part in parts:
        for name, own in group_by(part.runs if part else (), lambda run: run.experiment.algorithm).items():
            seconds = [part_of(run.info, "timings").get("training_seconds") for run in own]
            known = [value for value in seconds if isinstance(value, int | float)]
            machines |= {str(part_of(run.info, "versions").get("platform")) for run in own}
            if known and part:
                network = "none" if own[0].experiment.fitted else network_of(part.grid)
                stacked = sum(run.stack_size > 1 for run in own)
                shown = [name, network, f"{median(known):.1f}", f"{stacked:,} of {len(own):,}"]
                rows.append((median(known), shown))
    if not rows:
        return ["## Time", "", "Not yet: no complete method."]
    header = ["method", "network", "seconds", "stacked runs"]
    return [
        "## Time",
        "",
        "Median seconds of training per run; of a stacked run, its share of the stack's time. The runs come "
        f"from {counted(len(machines), 'kind')} of machine, whose other load is not recorded: only large "
        "differences mean anything. [step.md](step.md) compares methods side by side.",
        *table(header, [row for _, row in sorted(rows, key=lambda item: item[0])]),
    ]


def tell_history(part: Part, folder: Path) -> list[str]:
    title, board = "## Has the field moved?", part.board
    years, ranks, means = years_of(part.runs), board.rank(CR), mean_accuracies(board)
    dated = [(years[n], n) for n in board.algorithms if n in years and n in ranks]
    if len(dated) < 4:
        return [title, "", f"Not yet: {counted(len(dated), 'dated method')}; 4 are needed."]
    accuracy = {name: fmean(means[d][name] for d in means) for _, name in dated}

    def correlate(kept: Sequence[tuple[int, str]]) -> str:
        by = {"mean accuracy": accuracy, "average rank": {name: ranks[name][0] for _, name in kept}}
        found = {
            what: stats.spearmanr([year for year, _ in kept], [values[name] for _, name in kept])
            for what, values in by.items()
        }
        return " and ".join(
            f"{signed(own.statistic, 2)} with the {what} (p = {own.pvalue:.2g})"
            for what, own in found.items()
        )

    deep = [item for item in dated if item[1] in part.deep]
    alone = "too few"
    if len(deep) > 3 and len({year for year, _ in deep}) > 1:
        alone = f"{correlate(deep)}, over {len(deep)}"
    xs = [year for year, _ in dated]
    panels = {
        "mean test accuracy (%)": [100 * accuracy[name] for _, name in dated],
        "average rank": [ranks[name][0] for _, name in dated],
    }
    with drawing.figure_style():
        figure = drawing.new_figure(WIDTH, 5.0)
        for axes, (label, ys) in zip(figure.subplots(2, 1, sharex=True), panels.items(), strict=True):
            axes.scatter(xs, ys, s=12, color=drawing.DARK)
            room = 0.1 * (max(ys) - min(ys)) + 0.5
            axes.set(ylabel=label, xlim=(min(xs) - 2, max(xs) + 2), ylim=(min(ys) - room, max(ys) + room))
            axes.locator_params(axis="x", integer=True)
            drawing.add_grid(axes, "both")
            drawing.name_points(axes, xs, ys, [name for _, name in dated])
        axes.set_xlabel("year of publication")
        drawing.save_figure(figure, folder / "study-years.svg")
    return [
        title,
        "",
        f"Over {counted(len(dated), 'method')} from {min(xs)} to {max(xs)}, classical ones included, "
        f"Spearman's correlation of the year is {correlate(dated)}; a negative one with the rank means that "
        f"newer methods rank better. Within deep methods alone: {alone}.",
        "",
        f"![Accuracy and rank of {len(dated)} methods by year of publication](study-years.svg)",
    ]


def tell_limits(part: Part) -> list[str]:
    n = len(part.grid.datasets)
    datasets = f"{counted(n, 'dataset')} do not stand for all partial-label data."
    if smallest_p(n) >= ALPHA:
        datasets = (
            f"{counted(n, 'dataset')}: the smallest p-value of a signed-rank test over them is "
            f"{smallest_p(n):.2g}, so no difference over datasets can be significant at {100 * ALPHA:.0f} %."
        )
    return [
        "## What this cannot say",
        "",
        f"- {datasets}",
        "- Features are fixed tables; nothing here is about images, texts or learned features.",
        f"- {len(part.grid.hparams_seeds)} random configurations per split: a method with many "
        "hyperparameters is searched less thoroughly than one with few.",
        "- Configurations differ from split to split: their effect is what seeds do not explain.",
    ]


@dataclass
class Study:
    """The runs of the study, what was planned, the main part with classical methods, and the other parts."""

    runs: Sequence[Run]
    planned: list[Part]
    main: Part
    network: Part | None
    crowd: Part | None
    slow: Part | None


def read_study(source: Path, sweeps: Sequence[Path]) -> Study:
    """Read the runs and divide them by what the sweep files plan."""
    runs = read_results(source, criteria=["CR", "AA", "OA_ES"]).runs
    planned = []
    for path in sweeps:
        for grid in read_sweep(path).grids:
            names = grid.algorithms
            shown = ", ".join(names) if len(names) < 4 else f"{len(names)} methods"
            planned.append(take_part(f"{path.stem}: {shown}", grid, runs))
    first, *others = merge_grids(part.grid for part in planned)
    # Classical methods that were run before there were sweep files; those on answers are for crowd data only.
    fitted = {
        run.experiment.algorithm
        for run in runs
        if run.experiment.fitted and run.experiment.dataset in first.datasets
    }
    classical = sorted(fitted.difference(first.algorithms))
    main = take_part("main", replace(first, algorithms=(*first.algorithms, *classical)), runs)
    model, datasets = network_of(first), first.datasets

    def find(wanted: Callable[[Grid], bool]) -> Part | None:
        return next((take_part("", grid, runs) for grid in others if wanted(grid)), None)

    return Study(
        runs,
        planned,
        main,
        network=find(lambda grid: network_of(grid) != model and grid.datasets == datasets),
        crowd=find(lambda grid: all(name.endswith(CROWD) for name in grid.datasets)),
        slow=find(lambda grid: network_of(grid) == model and set(grid.datasets) < set(datasets)),
    )


def write_page(source: Path, sweeps: Sequence[Path], folder: Path) -> Path:
    """Write the page and its pictures; return its path."""
    study = read_study(source, sweeps)
    runs, planned, main, network = study.runs, study.planned, study.main, study.network
    networks = compare_networks(main, network)
    folder.mkdir(parents=True, exist_ok=True)
    complete = not any(part.missing for part in planned)
    sections: list[list[str]] = [
        ["# The study", "", *tell_first(main, networks)],
        [] if complete else [INCOMPLETE],
        tell_state(source, len(runs)),
        tell_extent(planned, main),
        tell_network(networks, folder),
        tell_leaderboard(main.board, folder),
        tell_odd(main),
        tell_classical(main, network),
        tell_slow(study.slow, main, runs),
        tell_criteria(main, folder),
        tell_spread(main, runs),
        tell_power(main),
        tell_crowd(study.crowd, runs),
        tell_time((main, network, study.slow)),
        tell_history(main, folder),
        tell_limits(main),
        ["Written by `benchmarks/study.py` from the records alone."],
    ]
    page = folder / "study.md"
    page.write_text("\n\n".join("\n".join(lines) for lines in sections if lines) + "\n", encoding="utf-8")
    return page


def main(words: Sequence[str] | None = None) -> None:
    """Write the page that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="?", default=Path("results/study.parquet"))
    default = sorted(Path("results").glob("study-*.toml"))
    parser.add_argument("--sweeps", type=Path, nargs="+", default=default, metavar="TOML")
    parser.add_argument("--output", type=Path, default=Path("docs/results"), metavar="DIR")
    args = parser.parse_args(words)
    print(write_page(args.results, args.sweeps, args.output))


if __name__ == "__main__":
    main()
