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
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from plench.criteria import find_criterion
from plench.report import drawing, figures
from plench.report.criteria_quality import measure_subset_regret
from plench.report.leaderboard import (
    Leaderboard,
    bootstrap_ranks,
    build_leaderboard,
    group_by,
    offered,
    part_of,
)
from plench.report.results import read_results
from plench.report.statistics import (
    ALPHA,
    POWER,
    compare_splits,
    corrected_t_test,
    find_test_ratio,
    smallest_p,
)
from plench.report.tables import escape_markdown
from plench.runs.records import Experiment, Run
from plench.runs.sweep_spec import Grid, read_sweep
from plench.text import counted

CR, AA, OA_ES = (find_criterion(name) for name in ("CR", "AA", "OA_ES"))
CROWD, WIDTH = "_Crowd", 6.5
REFERENCE = "PRODEN"  # the paper's strong baseline, which later methods have to beat
UNDATED = ("RF_", "ET_")  # forests: their papers are not about partial labels
STATE = "study 2026-11"  # the name under which a frozen state is cited
INCOMPLETE = "**The study is not complete**: [What there is](#what-there-is) names the runs that are missing."
Rows = list[list[str]]
Interval = tuple[float, float, float]


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
    """Return the shares of method and network in the variance within each dataset, and the rest.

    `values` are mean accuracies by dataset, method and network; the result has a row for each dataset. The
    shares are ω²: what interaction and chance (the rest) add to them by themselves is taken away.
    """
    n_methods, n_networks = values.shape[1:]
    centred = values - values.mean(axis=(1, 2), keepdims=True)
    total = (centred**2).sum(axis=(1, 2))
    method = (centred.mean(axis=2) ** 2).sum(axis=1) * n_networks
    network = (centred.mean(axis=1) ** 2).sum(axis=1) * n_methods
    rest = (total - method - network) / ((n_methods - 1) * (n_networks - 1))
    by_method = np.maximum(method - (n_methods - 1) * rest, 0) / (total + rest)
    by_network = np.maximum(network - (n_networks - 1) * rest, 0) / (total + rest)
    return np.stack([by_method, by_network, 1 - by_method - by_network], axis=1)


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


def interval(differences: Sequence[Sequence[float]], ratios: Sequence[float]) -> Interval:
    """Return the mean over datasets of mean differences over splits, with the limits of its 95 % interval.

    Splits of a dataset overlap: their variance is corrected as Nadeau and Bengio do it, with `ratios` of test
    to training examples. The degrees of freedom are those of Welch and Satterthwaite; datasets are fixed.
    """
    mean = fmean(map(fmean, differences))
    variances = np.array(
        [np.var(own, ddof=1) * (1 / len(own) + r) for own, r in zip(differences, ratios, strict=True)]
    )
    if not variances.any():
        return mean, mean, mean
    freedom = variances.sum() ** 2 / sum(
        v**2 / (len(d) - 1) for v, d in zip(variances, differences, strict=True)
    )
    half = float(stats.t.ppf(1 - ALPHA / 2, freedom)) * math.sqrt(variances.sum()) / len(differences)
    return mean, mean - half, mean + half


def mean_difference(board: Leaderboard, first: str, second: str) -> Interval:
    """Return the mean difference of two methods over datasets, on the same splits, with its 95 % interval."""
    differences, ratios = [], []
    for dataset, settings in board.datasets.items():
        mine, others = (board.dataset_splits(dataset, name, CR) for name in (first, second))
        cell = board.cell(settings[0], first, CR)
        assert cell is not None
        differences.append([mine[trial] - others[trial] for trial in mine])
        ratios.append(find_test_ratio(cell))
    return interval(differences, ratios)


def compare_best(
    board: Leaderboard, dataset: str, groups: tuple[Collection[str], Collection[str]]
) -> tuple[list[str], str, float, float | None]:
    """Compare the best methods of two groups: names with means, the difference with its p, and both."""
    means = board.dataset_means(dataset, CR)
    first, second = (max(group, key=lambda name: means[name]) for group in groups)
    (found,) = compare_splits(replace(board, settings=tuple(board.datasets[dataset])), CR, first, second)
    p_value = "none" if found["p_value"] is None else f"{found['p_value']:.2g}"
    best = [f"{name} {percent(means[name])}" for name in (first, second)]
    shown = f"{points(found['difference'])} (p {p_value})"
    return best, shown, found["difference"], found["p_value"]


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
        """Shares of the variance by dataset: of all methods, then of the half with the highest means.

        Methods that fail inflate the method's share among all; choosing a half narrows it.
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


def rank_order(board: Leaderboard) -> list[str]:
    """Return the methods by average rank, the best first."""
    ranks = board.rank(CR)
    return sorted(ranks, key=lambda name: ranks[name][0])


def default_means(part: Part) -> dict[str, float]:
    """Return the mean test accuracy of each method's default configuration over datasets and splits."""
    found = group_by(
        (run for run in part.runs if run.hparams_seed == 0), lambda run: run.experiment.algorithm
    )
    return {name: fmean(v for run in own if (v := test_of(run)) is not None) for name, own in found.items()}


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


def show_interval(values: Interval) -> str:
    """Show a difference in points with its interval."""
    mean, low, high = map(points, values)
    return f"{mean} ({low} to {high})"


def signed(value: float, digits: int) -> str:
    """Show a number with its sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


# The sections. Each returns lines of Markdown, and says what it lacks while it cannot be written.


def tell_first(main: Part, other: Part | None, networks: NetworkComparison | None) -> list[str]:
    order = rank_order(main.board)
    if len(order) < 3:
        return ["There are too few complete methods for a result."]
    years, parts = years_of(main.runs), [main, *([other] if other and networks else [])]

    def dated(name: str) -> str:
        return f"{name} ({years[name]})" if name in years else name

    better, leads = [], []
    for part in parts:
        board, lead = part.board, rank_order(part.board)[0]
        setting = f"with {network_of(part.grid)} and {len(part.grid.hparams_seeds)} configurations"
        names = [name for name in board.algorithms if REFERENCE in board.algorithms and name != REFERENCE]
        found = {name: mean_difference(board, name, REFERENCE) for name in names}
        better += [f"{name} {setting}" for name in names if found[name][1] > 0]
        gap = f", {show_interval(found[lead])} points compared with {REFERENCE}" if lead in found else ""
        leads.append(f"{setting}: {dated(lead)}{gap}")
    lines = []
    if REFERENCE in order:
        extent = f"On {counted(len(main.grid.datasets), 'dataset')}, tuned without true labels,"
        found_none = (
            f"none of {len(order) - 1} other methods is detectably better than {dated(REFERENCE)} with "
            f"{'either' if len(parts) > 1 else 'the'} network"
        )
        found_some = f"these are detectably better than {dated(REFERENCE)}: {', '.join(better)}"
        lines.append(f"{extent} {found_some if better else found_none}.")
    lines.append(
        f"Best average rank {'; '.join(leads)}. These differences are means over datasets with 95 % "
        "intervals over splits, not corrected for the number of methods."
    )
    simple = [name for name in order if name in main.classical]
    if simple:
        leaders = {
            dataset: max(own, key=lambda name: own[name])
            for dataset, own in mean_accuracies(main.board).items()
        }
        led = [f"{name} is best on {dataset}" for dataset, name in leaders.items() if name in simple]
        lines.append(
            f"The best classical method, {simple[0]}, is in place {order.index(simple[0]) + 1} of "
            f"{len(order)} with {network_of(main.grid)}; "
            f"{', '.join(led) or 'no classical method leads a dataset'}."
        )
    if networks:
        plain, gain = networks.overall[0], float(networks.gains.mean())
        n_close = int((plain[1:] >= plain[0] - gain).sum())
        shares = "; ".join(
            f"on {dataset} the network explains {percent(own[4], 0)} % and the method {percent(own[3], 0)} %"
            for dataset, own in zip(networks.grid.datasets, networks.shares, strict=True)
        )
        first, second = networks.networks
        lines.append(
            f"{networks.describe_change()} {second} is {first} with a batch normalisation. With {first}, "
            f"{counted(n_close, 'other method')} come that close to the best. Of the variance among the "
            f"{networks.half} best methods, {shares}."
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
    for part in missing:
        lacking = "; ".join(part.missing) if part.n_finished else ", ".join(part.grid.algorithms)
        name = part.title.partition(":")[0]
        lines.append(f"- {name}, {'incomplete' if part.n_finished else 'not run'}: {lacking}.")
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
    sources = ("method", "network", "rest")
    return [
        title,
        "",
        f"{found.describe_change()} In means over datasets, the best and the worst method are "
        f"{spreads[0][0]} points apart with {names[0]} and {spreads[0][1]} with {names[1]}; the {half} best "
        f"of each network lie within {spreads[1][0]} and {spreads[1][1]} points, and the first leads the "
        f"second by {spreads[2][0]} and {spreads[2][1]}. Ranks under both correlate by {rho:.2f}. Both have "
        f"the same {len(grid.hparams_seeds)} configurations and {len(grid.trial_seeds)} splits, chosen by "
        "CR. The table has shares of the variance of mean accuracies within a dataset (ω², in percent), "
        f"among all methods and among the {half} with the highest means over both networks. Methods that "
        "fail inflate the method's share among all; choosing the best by these means narrows it. The rest "
        "is interaction and chance.",
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


def tell_leaderboard(part: Part, folder: Path) -> list[str]:
    board, title = part.board, "## Leaderboard"
    names = board.algorithms
    if len(names) < 3:
        return [title, "", f"Not yet: {counted(len(names), 'complete method')}; 3 are needed."]
    found, ranks, means = bootstrap_ranks(board, CR, names), board.rank(CR), mean_accuracies(board)
    limits, defaults = found.over_splits or {}, default_means(part)
    rows, gains = [], []
    for name in rank_order(board):
        within = "{:.1f} to {:.1f}".format(*limits[name]) if name in limits else "none"
        accuracies = [means[d][name] for d in means]
        compared = (
            [show_interval(mean_difference(board, name, REFERENCE)) if name != REFERENCE else ""]
            if REFERENCE in names
            else []
        )
        figures_of = [
            percent(fmean(accuracies)),
            *compared,
            *map(percent, accuracies),
            percent(defaults[name]),
        ]
        rows.append([name, f"{ranks[name][0]:.1f}", within, *figures_of])
        gains.append(fmean(accuracies) - defaults[name])
    extent = f"{counted(len(names), 'method')} on {counted(len(means), 'dataset')}"
    columns = ["mean (%)", *([f"compared with {REFERENCE} (points)"] if REFERENCE in names else []), *means]
    lines = [
        title,
        "",
        f"{extent}, network {network_of(part.grid)}, {len(part.grid.hparams_seeds)} configurations on "
        f"{len(part.grid.trial_seeds)} splits, chosen by CR. Ranks have 95 % bootstrap intervals over "
        "splits, which treat splits as independent and are somewhat too narrow. "
        + "".join(f"{reason[:1].upper()}{reason[1:]}. " for reason in found.reasons)
        + "Differences of means are of the same splits, with 95 % intervals that allow for their overlap "
        "(Nadeau and Bengio). The last column is the default configuration, without any search: tuning "
        f"changes a method by {points(fmean(gains))} points in the mean, and "
        f"{sum(gain < 0 for gain in gains)} of {len(names)} methods lose by it.",
        *table(["method", "average rank", "95 % over splits", *columns, "defaults, mean (%)"], rows),
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
                f" In {percent(fmean(shares), 0)} % of {name}'s steps at least one class has a negative risk "
                "estimate. By its definition such a step only pushes these risks up. The estimate is "
                "unbiased for complementary labels that are drawn uniformly, which candidate sets of people "
                "are not."
            )
        oracle = [part.board.dataset_means(dataset, OA_ES)[name] for dataset in means]
        line += (
            f" Chosen by true validation labels it has {percent(fmean(oracle))} % in the mean over datasets, "
            f"by CR {percent(fmean(own[name] for own in means.values()))} %."
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
        *repeated, last = verified.read_text(encoding="utf-8").splitlines()
        n_equal = sum(line.rpartition(": ")[2].startswith("bit-equal") for line in repeated)
        lines.append(
            f"`plench results verify`: {last}; {n_equal} are bit-equal, the others, from other versions or "
            "processors, agree in every accuracy of the last record within 0.05. `results/verified.txt` has "
            "each run."
        )
    return lines


def tell_classical(main: Part, second: Part | None) -> list[str]:
    title = "## Deep against classical"
    if not main.deep or not main.classical:
        return [title, "", "Not yet: a complete method of each kind is needed."]
    rows, said, p_values = [], [], []
    grid = replace(second.grid if second else main.grid, algorithms=main.grid.algorithms)
    for part in (take_part("", replace(grid, hparams=main.grid.hparams), main.runs), second):
        if part is None or not part.deep:
            said.append("With another network: not yet, no method is complete.")
            continue
        network, leading = network_of(part.grid), []
        for dataset in part.board.datasets:
            groups = (part.deep, part.classical)
            best, difference, value, p_value = compare_best(part.board, dataset, groups)
            means = part.board.dataset_means(dataset, CR)
            below = sum(means[name] < max(means[n] for n in part.classical) for name in part.deep)
            leading += [dataset] if value < 0 else []
            p_values.append(1.0 if p_value is None else p_value)
            rows.append([dataset, network, *best, difference, f"{below} of {len(part.deep)}"])
        where = f"on {', '.join(leading)}" if leading else "on no dataset"
        said.append(f"With {network} a classical method has the best mean {where}.")
    n_found = sum(p < ALPHA for p in p_values)
    header = ["dataset", "network", "best deep", "best classical", "difference (points)"]
    return [
        title,
        "",
        f"{' '.join(said)} {n_found} of these {len(rows)} differences {'is' if n_found == 1 else 'are'} "
        f"significant at {100 * ALPHA:.0f} % (corrected resampled t-test, not corrected for the choice of "
        f"the best). All have {len(grid.hparams_seeds)} configurations. The best of a larger group looks "
        f"better by chance, and there are {len(main.deep)} deep and {len(main.classical)} classical methods.",
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
            best, difference, *_ = compare_best(together.board, dataset, (part.deep, others))
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
    by_dataset = group_by(runs, lambda run: run.experiment.dataset)
    n, rows = len(part.grid.hparams_seeds), []
    few, spans = min(5, n), [list[float]() for _ in shown]
    with drawing.figure_style():
        figure, panels, _ = drawing.new_panels(WIDTH, len(by_dataset), 2.0, 0.3, (0.3, 1.6), sharey=True)
        for axes, (dataset, own) in zip(panels, sorted(by_dataset.items()), strict=True):
            curve = measure_subset_regret(own, shown)
            assert curve is not None
            row = [dataset]
            for i, criterion in enumerate(shown):
                values, line = [100 * value for value in curve.regrets[i]], drawing.DASHES[i]
                xs = range(1, len(values) + 1)
                axes.plot(xs, values, color=drawing.DARK, linestyle=line, label=criterion.title)
                row.append(" / ".join(signed(values[k - 1], 1) for k in (1, few, n)))
                spans[i].append(values[-1])
            row.append(" / ".join(percent(curve.accuracies[0][k - 1]) for k in (1, few, n)))
            axes.set(title=dataset, xlabel="configurations tried")
            drawing.add_grid(axes)
            rows.append(row)
        panels[0].set_ylabel("points below the oracle")
        panels[0].legend(frameon=False)
        drawing.save_figure(figure, folder / "study-regret.svg")
    tried = f"with 1 / {few} / {n}"
    said = [f"{c.title} {min(own):.1f} to {max(own):.1f}" for c, own in zip(shown, spans, strict=True)]
    return [
        title,
        "",
        "Points of test accuracy lost compared with choosing by true validation labels (OA w/ ES), means "
        f"over {counted(len(part.deep), 'deep method')} and {len(part.grid.trial_seeds)} splits, by the "
        f"number of configurations tried. By dataset, with all {n}: {', '.join(said)}. A negative cost is "
        "chance: validation sets are small.",
        *table(["dataset", *(f"{c.title} {tried}" for c in shown), f"accuracy by CR {tried} (%)"], rows),
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
        own, seeds = (
            {
                experiment.algorithm: found
                for experiment, found in group.items()
                if experiment.dataset == dataset
            }
            for group in (tuned, repeated)
        )
        names = sorted(own.keys() & seeds.keys() or own.keys())
        split, within = (fmean(own[name][i] for name in names) for i in (0, 1))
        seed = fmean(seeds[name][1] for name in names) if seeds else None
        parts = [split, None, None] if seed is None else [split, max(within - seed, 0.0), seed]
        deviations = ["unknown" if value is None else percent(math.sqrt(value)) for value in (*parts, within)]
        rows.append([dataset, f"{len(names)}", *deviations, percent(split / (split + within), 0)])
    lengths = " or ".join(sorted({experiment.budget for experiment in repeated})) or "none yet"
    return [
        title,
        "",
        "Standard deviations of test accuracy in points (roots of variances averaged over methods), of "
        "checkpoints chosen by CR. Configurations are drawn anew for each split, and each has its own seed, "
        "so that runs of a split differ in configuration and seed. The seed's part is that of repeated "
        f"default runs ({lengths}), and the configuration's what remains.",
        *table(
            [
                "dataset",
                "methods",
                "split",
                "configuration",
                "seed",
                "within a split",
                "share of the split (%)",
            ],
            rows,
        ),
    ]


def tell_power(part: Part) -> list[str]:
    title = "## The smallest difference that can be found"
    names, n = [*part.deep, *part.classical], len(part.grid.trial_seeds)
    if len(names) < 2:
        return [title, "", "Not yet: two complete methods are needed."]
    rows, n_found = [], 0
    for dataset in part.board.datasets:
        cell = part.board.cell(part.board.datasets[dataset][0], names[0], CR)
        assert cell is not None
        ratio = find_test_ratio(cell)
        splits = [part.board.dataset_splits(dataset, name, CR) for name in names]
        pairs = [[a[t] - b[t] for t in a if t in b] for a, b in combinations(splits, 2)]
        spread = median(float(np.std(pair, ddof=1)) for pair in pairs)
        found = [spread * detectable(m, ratio) for m in (n, 10, 1000)]
        n_found += found[0] <= 0.01
        open_pairs = sum((p := corrected_t_test(pair, ratio)) is not None and p >= ALPHA for pair in pairs)
        rows.append([dataset, *map(percent, (spread, *found)), f"{open_pairs} of {len(pairs)}"])
    claim = (
        f" On the {'others' if n_found else 'datasets here'}, a published lead of one point from so few "
        "splits is not evidence by itself."
        if n_found < len(rows)
        else ""
    )
    return [
        title,
        "",
        f"With {n} splits, the median pair of methods would need more than one point on "
        f"{len(rows) - n_found} of {counted(len(rows), 'dataset')}.{claim} The table has the mean difference "
        f"that the corrected resampled t-test finds at {100 * ALPHA:.0f} % in {100 * POWER:.0f} % of "
        "studies, for the median spread of paired differences, in points. Splits of one dataset overlap, so "
        "that even 1,000 splits cannot detect a smaller difference.",
        *table(
            ["dataset", "spread of differences", f"with {n} splits", "with 10", "with 1,000",
             f"pairs not significantly different with {n}"],
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
        "deep methods are complete. All splits share one test set, so that p says nothing about other test "
        "sets.",
        "",
    ]
    for dataset in board.datasets:
        means = board.dataset_means(dataset, CR)
        best, difference, *_ = compare_best(board, dataset, (others, answers))
        top = best[1].rpartition(" ")[0]
        behind = sum(means[name] < means[top] for name in others)
        lines.append(
            f"- {dataset}: best on candidate sets {best[0]} %, best on answers {best[1]} %: {difference}. "
            f"{behind} of {len(others)} methods on candidate sets score lower than {top}."
        )
        if "LR_EM" in others:
            (alike, shown, *_) = compare_best(board, dataset, (["LR_EM"], answers))
            lines[-1] += f" The same linear model on sets and on answers: {' and '.join(alike)}: {shown}."
    by_dataset = mean_accuracies(board)
    order = sorted(board.algorithms, key=lambda name: -fmean(own[name] for own in by_dataset.values()))
    rows = [[name, *(percent(own[name]) for own in by_dataset.values())] for name in order]
    return [*lines, *table(["method", *(f"{dataset} (%)" for dataset in by_dataset)], rows)]


def tell_time(parts: Sequence[Part | None]) -> list[str]:
    rows = []
    for part in parts:
        for name, own in group_by(part.runs if part else (), lambda run: run.experiment.algorithm).items():
            if own[0].experiment.fitted and part is not parts[0]:
                continue  # the same runs
            network = "none" if own[0].experiment.fitted else network_of(part.grid) if part else ""
            by_processor = group_by(
                own, lambda run: str(part_of(run.info, "versions").get("arithmetic")).partition(",")[0]
            )
            for processor, same in by_processor.items():
                seconds = [part_of(run.info, "timings").get("training_seconds") for run in same]
                known = [value for value in seconds if isinstance(value, int | float)]
                if known:
                    stacked = sum(run.stack_size > 1 for run in same)
                    shown = [
                        processor,
                        name,
                        network,
                        f"{median(known):.1f}",
                        f"{stacked:,} of {len(same):,}",
                    ]
                    rows.append((processor, median(known), shown))
    if not rows:
        return ["## Time", "", "Not yet: no complete method."]
    return [
        "## Time",
        "",
        "Median seconds of training per run; of a stacked run, its share of the stack's time. Compare only "
        "within one kind of processor, and only large differences: other load of the machines is not "
        "recorded. [step.md](step.md) compares methods side by side.",
        *table(
            ["arithmetic", "method", "network", "seconds", "stacked runs"],
            [row for *_, row in sorted(rows, key=lambda item: item[:2])],
        ),
    ]


def tell_history(part: Part, folder: Path) -> list[str]:
    title, board = "## Has the field moved?", part.board
    years, ranks, means = years_of(part.runs), board.rank(CR), mean_accuracies(board)
    dated = [
        (years[n], n) for n in board.algorithms if n in years and n in ranks and not n.startswith(UNDATED)
    ]
    if len(dated) < 4:
        return [title, "", f"Not yet: {counted(len(dated), 'dated method')}; 4 are needed."]
    accuracy = {name: fmean(means[d][name] for d in means) for _, name in dated}

    p_values: list[float] = []

    def correlate(kept: Sequence[tuple[int, str]]) -> str:
        by = {"mean accuracy": accuracy, "average rank": {name: ranks[name][0] for _, name in kept}}
        found = {
            what: stats.spearmanr([year for year, _ in kept], [values[name] for _, name in kept])
            for what, values in by.items()
        }
        p_values.extend(own.pvalue for own in found.values())
        return " and ".join(
            f"{signed(own.statistic, 2)} with the {what} (p = {own.pvalue:.2g})"
            for what, own in found.items()
        )

    deep = [item for item in dated if item[1] in part.deep]
    overall, alone = correlate(dated), "too few"
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
        f"{'No trend is significant.' if min(p_values) >= ALPHA else 'Some trend is significant.'} Over "
        f"{counted(len(dated), 'method')} from {min(xs)} to {max(xs)}, classical ones included, Spearman's "
        f"correlation of the year is {overall}; a negative one with the rank means that newer methods rank "
        f"better. Within deep methods alone: {alone}. Forests are left out: their papers are not about "
        "partial labels.",
        "",
        f"![Accuracy and rank of {len(dated)} methods by year of publication](study-years.svg)",
    ]


def tell_limits(part: Part) -> list[str]:
    n = len(part.grid.datasets)
    datasets = f"{counted(n, 'dataset')} do not stand for all partial-label data."
    if smallest_p(n) >= ALPHA:
        datasets = (
            f"{counted(n, 'dataset')}: the smallest p-value of a signed-rank test over them is "
            f"{smallest_p(n):.2g}, so that it cannot find any difference at {100 * ALPHA:.0f} %. What is "
            "said of means over datasets holds for these datasets."
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
    """The runs of the study, what was planned, the main part and the other network with classical methods,
    and the other parts."""

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

    network = find(lambda grid: network_of(grid) != model and grid.datasets == datasets)
    if network is not None:
        network = take_part(
            "", replace(network.grid, algorithms=(*network.grid.algorithms, *main.classical)), runs
        )
    return Study(
        runs,
        planned,
        main,
        network=network,
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
        ["# The study", "", *tell_first(main, network, networks)],
        [] if complete else [INCOMPLETE],
        tell_state(source, len(runs)),
        tell_extent(planned, main),
        tell_network(networks, folder),
        tell_leaderboard(main, folder),
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
