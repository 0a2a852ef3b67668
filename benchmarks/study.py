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
from plench.report.figures import LEFT_OUT_BY_THE_PAPER
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
    adjust_holm,
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
Splits = dict[str, dict[str, dict[int, float]]]  # by dataset, method and split


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

    @property
    def network(self) -> str:
        """The network that the grid asks for."""
        return network_of(self.grid)

    @cached_property
    def ratios(self) -> dict[str, float]:
        """By dataset, what the corrected t-test allows for the overlap of splits."""
        found = {}
        for dataset, settings in self.board.datasets.items():
            cells = (self.board.cell(settings[0], name, CR) for name in self.board.algorithms)
            found[dataset] = next(find_test_ratio(cell) for cell in cells if cell is not None)
        return found

    @cached_property
    def tuned(self) -> Splits:
        """Test accuracies of the configurations that CR chooses."""
        board = self.board
        return {d: {n: board.dataset_splits(d, n, CR) for n in board.algorithms} for d in board.datasets}

    @cached_property
    def defaults(self) -> Splits:
        """Test accuracies of default configurations, at the checkpoints that CR chooses."""
        found: Splits = {d: {n: {} for n in self.board.algorithms} for d in self.board.datasets}
        for run in self.runs:
            if run.hparams_seed == 0 and (accuracy := accuracy_of(run)) is not None:
                found[run.experiment.dataset][run.experiment.algorithm][run.trial_seed] = accuracy
        return found

    def compare(self, splits: Splits, first: str, second: str) -> Interval:
        """Return the mean difference of two methods over datasets, on the same splits, with its interval."""
        pairs = [[own[first][t] - own[second][t] for t in own[first]] for own in splits.values()]
        return interval(pairs, list(self.ratios.values()))

    def compare_all(self, splits: Splits) -> dict[str, Interval]:
        """Return the mean differences of all methods to the reference; none if it is not there."""
        names = next(iter(splits.values()), {})
        others = [name for name in names if name != REFERENCE] if REFERENCE in names else []
        return {name: self.compare(splits, name, REFERENCE) for name in others}

    def defaults_after(self, step: int | None) -> Splits:
        """Return test accuracies of default configurations with a network after a step, or the last one."""
        found: Splits = {d: {n: {} for n in self.deep} for d in self.board.datasets}
        for run in self.runs:
            if run.hparams_seed == 0 and not run.experiment.fitted:
                at = [record for record in run.records if step is None or record.step == step]
                if at and (accuracy := at[-1].get("test_acc")) is not None:
                    found[run.experiment.dataset][run.experiment.algorithm][run.trial_seed] = accuracy
        n_splits = len(self.grid.trial_seeds)
        complete = [n for n in self.deep if all(len(own[n]) == n_splits for own in found.values())]
        return {dataset: {name: own[name] for name in complete} for dataset, own in found.items()}


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
    """The methods that are complete with both networks: the same configurations and splits, chosen by CR."""

    parts: tuple[Part, Part]
    methods: list[str]

    @property
    def networks(self) -> tuple[str, str]:
        """The names of the networks."""
        return self.parts[0].network, self.parts[1].network

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Mean accuracies by dataset, method and network."""
        means = [mean_accuracies(part.board) for part in self.parts]
        datasets = self.parts[0].grid.datasets
        return np.array([[[m[d][name] for m in means] for name in self.methods] for d in datasets])

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

    def best(self, n: int) -> NDArray[np.int64]:
        """Return the indices of the methods with the highest means over both networks."""
        return np.argsort(-self.values.mean(axis=(0, 2)))[:n]

    def changes(self, methods: Iterable[str]) -> dict[str, list[float]]:
        """Return the mean change of methods by the second network on each split, by dataset."""
        first, second, names = self.parts[0].tuned, self.parts[1].tuned, list(methods)
        return {
            d: [fmean(second[d][n][t] - first[d][n][t] for n in names) for t in second[d][names[0]]]
            for d in self.parts[0].grid.datasets
        }

    def describe_change(self) -> str:
        """Return the first thing to say of the networks."""
        first, second = self.parts
        changes, by_method = self.changes(self.methods), self.gains.mean(axis=0)
        whole = interval(list(changes.values()), [first.ratios[dataset] for dataset in changes])
        return (
            f"{second.network} instead of {first.network} changes the mean over methods and datasets by "
            f"{show_interval(whole)} points, and the median method by "
            f"{points(float(np.median(by_method)))}; {int((by_method > 0).sum())} of {len(by_method)} "
            "methods gain."
        )


def compare_networks(first: Part, second: Part | None) -> NetworkComparison | None:
    """Compare the methods that are complete with both networks; None if they are fewer than three."""
    methods = [name for name in (second.deep if second else ()) if name in first.deep]
    if second is None or len(methods) < 3:
        return None
    grid = replace(second.grid, algorithms=tuple(methods))
    parts = [take_part("", replace(grid, hparams=part.grid.hparams), part.runs) for part in (first, second)]
    return NetworkComparison((parts[0], parts[1]), methods)


def accuracy_of(run: Run) -> float | None:
    """Return the test accuracy at the checkpoint that CR chooses in a run."""
    chosen = offered(run, CR)
    return None if chosen is None else chosen[2]


def chance_of_test(runs: Sequence[Run]) -> float | None:
    """Return the standard deviation of a mean accuracy that the number of test examples alone explains."""
    n_test = part_of(runs[0].info, "dataset").get("n_test")
    known = [value for run in runs if (value := accuracy_of(run)) is not None]
    if not isinstance(n_test, int) or not known:
        return None
    return math.sqrt(fmean(known) * (1 - fmean(known)) / n_test)


def years_of(runs: Iterable[Run]) -> dict[str, int]:
    """Return the years of the methods' papers, from the BibTeX on their cards."""
    cards = {run.experiment.algorithm: part_of(run.info, "algorithm_card") for run in runs}
    found = {
        n: re.search(r"year\s*=\s*\{?(\d{4})", str(card.get("bibtex") or "")) for n, card in cards.items()
    }
    return {name: int(year[1]) for name, year in found.items() if year}


@dataclass
class ShortRuns:
    """Default runs of other lengths than those of a part: means over seeds, by dataset, method and split."""

    steps: int
    n_seeds: int
    n_splits: int
    splits: Splits


def find_short(part: Part, runs: Iterable[Run]) -> list[ShortRuns]:
    """Return default runs of other lengths, of methods that have as many on each dataset as the reference."""
    datasets = list(part.ratios)
    same = [
        run
        for run in runs
        if run.finished and run.hparams_seed == 0 and run.experiment.dataset in datasets
        and not run.experiment.fitted and run.experiment.model == part.network
        and run.experiment.steps != part.grid.steps
    ]  # fmt: skip
    found = []
    for steps, own in group_by(same, lambda run: run.experiment.steps).items():
        cells: dict[str, dict[str, dict[int, list[float]]]] = {
            d: {n: {} for n in part.deep} for d in datasets
        }
        for run in own:
            by_split = cells[run.experiment.dataset].get(run.experiment.algorithm)
            if by_split is not None and (accuracy := accuracy_of(run)) is not None:
                by_split.setdefault(run.trial_seed, []).append(accuracy)
        sizes = {n: [{t: len(v) for t, v in cells[d][n].items()} for d in datasets] for n in part.deep}
        wanted = sizes.get(REFERENCE)
        if wanted and all(wanted):
            splits = {
                d: {n: {t: fmean(v) for t, v in cells[d][n].items()} for n in part.deep if sizes[n] == wanted}
                for d in datasets
            }
            found.append(ShortRuns(steps or 0, min(wanted[0].values()), len(wanted[0]), splits))
    return found


def list_gains(found: dict[str, Interval]) -> str:
    """List what is detectably better than the reference, the largest difference first."""
    better = sorted((name for name in found if found[name][1] > 0), key=lambda name: -found[name][0])
    return ", ".join(f"{name} {show_interval(found[name])}" for name in better)


def rank_order(board: Leaderboard) -> list[str]:
    """Return the methods by average rank, the best first; of equal ranks the higher mean accuracy."""
    ranks, means = board.rank(CR), [board.dataset_means(dataset, CR) for dataset in board.datasets]
    return sorted(ranks, key=lambda name: (round(ranks[name][0], 9), -fmean(own[name] for own in means)))


def average(splits: Splits) -> dict[str, float]:
    """Return the means of methods over datasets of means over splits, the highest first."""
    names = next(iter(splits.values()), {})
    means = {name: fmean(fmean(own[name].values()) for own in splits.values()) for name in names}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


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


def tell_first(
    main: Part, other: Part | None, networks: NetworkComparison | None, runs: Sequence[Run]
) -> list[str]:
    """Return the answer in one sentence, and a list of what else to know first."""
    order, classical = rank_order(main.board), set(main.classical)
    if len(order) < 3:
        return ["There are too few complete methods for a result."]
    years, parts = years_of(main.runs), [main, *([other] if other and networks else [])]

    def dated(name: str) -> str:
        return f"{name} ({years[name]})" if name in years else name

    lines, tuned = [], [part.compare_all(part.tuned) for part in parts]
    if REFERENCE in order:
        better = [
            f"{name} with {part.network} and {len(part.grid.hparams_seeds)} configurations"
            for part, found in zip(parts, tuned, strict=True)
            for name in found
            if found[name][1] > 0
        ]
        tried = [
            f"{sum(name in part.deep for name in found)} deep ones with {part.network}"
            for part, found in zip(parts, tuned, strict=True)
        ]
        shown = ", ".join([*tried, f"{len(classical - {REFERENCE})} classical ones"])
        start = f"In the mean over {counted(len(main.grid.datasets), 'dataset')}, tuned without true labels,"
        lines += [
            f"{start} these are detectably better than {dated(REFERENCE)}: {', '.join(better)} (of {shown}, "
            "not corrected for their number)."
            if better
            else f"{start} none of the other methods ({shown}) is detectably better than {dated(REFERENCE)}.",
            "",
        ]
    if networks:
        lines.append(f"- {tell_network_first(networks)}")
    level = [own for found in tuned for own in found.values() if own[1] <= 0 <= own[2]]
    if level:
        halves = [(high - low) / 2 for _, low, high in level]
        worse = []
        for part, found in zip(parts, tuned, strict=True):
            counts = []
            for kind, names in (("deep", part.deep), ("classical", part.classical)):
                own = [found[name][2] < 0 for name in names if name in found]
                counts.append(f"{sum(own)} of {len(own)} {kind}")
            worse.append(f"with {part.network} {' and '.join(counts)} methods")
        lines.append(
            f"- Detectably worse than {REFERENCE} are {'; '.join(worse)}. The intervals of the others reach "
            f"{percent(min(halves))} to {percent(max(halves))} points to each side: smaller leads could go "
            "unnoticed. All intervals here are 95 %, over splits, for these datasets, and not corrected for "
            "the number of methods."
        )
    leads = []
    for part, found in zip(parts, tuned, strict=True):
        lead = rank_order(part.board)[0]
        gap = f", {show_interval(found[lead])} points compared with {REFERENCE}" if lead in found else ""
        if networks and part is main and (first := rank_order(networks.parts[0].board)[0]) != lead:
            n = len(networks.parts[0].grid.hparams_seeds)
            gap += f" (with {n} configurations {first} leads the deep methods)"
        leads.append(f"with {part.network} {dated(lead)}{gap}")
    lines.append(f"- Best average rank: {'; '.join(leads)}.")
    if REFERENCE in order:
        untuned = {part.network: part.compare_all(part.defaults) for part in parts}
        gained = [
            f"{name} with {network} by {show_interval(own[name])}"
            + "".join(
                f", but with {second} {show_interval(rest[name])}"
                for second, rest in untuned.items()
                if name in rest and rest[name][1] <= 0
            )
            for network, own in untuned.items()
            for name in own
            if own[name][1] > 0
        ]
        early = [
            f" After {short.steps:,} steps with {main.network}, on {short.n_splits} splits with "
            f"{short.n_seeds} seeds each, of {len(own)}, detectably better: {list_gains(own) or 'none'}."
            for short in find_short(main, runs)
            for own in [main.compare_all(short.splits)]
        ]
        lines.append(
            f"- Without tuning, of {sum(map(len, untuned.values()))} comparisons with {REFERENCE}'s "
            f"defaults, detectably better: {'; '.join(gained) or 'none'}.{''.join(early)} "
            "[By number of steps](#without-tuning)"
        )
    simple, means = [name for name in order if name in classical], average(main.tuned)
    if simple:
        ranks = main.board.rank(CR)
        equal = [name for name in simple if math.isclose(ranks[name][0], ranks[simple[0]][0])]
        place = 1 + sum(own < ranks[simple[0]][0] - 1e-9 for own, _ in ranks.values())
        best = next(name for name in means if name in classical)
        gap = f", {show_interval(tuned[0][best])} points compared with {REFERENCE}" if tuned[0] else ""
        leaders = {d: max(own, key=lambda n: own[n]) for d, own in mean_accuracies(main.board).items()}
        led = [f"{name} is best on {dataset}" for dataset, name in leaders.items() if name in classical]
        lines.append(
            f"- Best classical method with {main.network}: by rank {' and '.join(equal)}, in place {place} "
            f"of {len(order)}; by mean {best}{gap}. "
            f"{', '.join(led) or 'No classical method leads a dataset'}."
        )
    return lines


def tell_network_first(networks: NetworkComparison) -> str:
    """Return what the network changes, among all methods and among the best."""
    (first, second), gain = networks.networks, float(networks.gains.mean())
    plain, chosen = networks.overall[0], networks.best(networks.half)
    spreads = networks.values[:, chosen].mean(axis=2).std(axis=1, ddof=1)
    shares = explain_variance(networks.values)
    changes = networks.changes(networks.methods[i] for i in chosen)
    by_dataset = [
        f"{show_interval(interval([own], [networks.parts[0].ratios[dataset]]))} on {dataset}"
        for dataset, own in changes.items()
    ]
    decided = [d for (d, own), s in zip(changes.items(), spreads, strict=True) if abs(fmean(own)) > s]
    n_close = int((plain[1:] >= plain[0] - gain).sum())
    return (
        f"{networks.describe_change()} {second} is {first} with a batch normalisation. "
        f"With the same {len(networks.parts[0].grid.hparams_seeds)} configurations "
        f"{counted(n_close, 'other method')} {'is' if n_close == 1 else 'are'} within {percent(gain)} points "
        f"of the best with {first}. Among all methods, some of which fail, the method explains "
        f"{percent(shares[:, 0].min(), 0)} to {percent(shares[:, 0].max(), 0)} % of the variance within a "
        f"dataset, and the network {percent(shares[:, 1].min(), 0)} to {percent(shares[:, 1].max(), 0)} %. "
        f"Among the {networks.half} best the change is {', '.join(by_dataset)}; their standard deviations "
        f"are {', '.join(map(percent, spreads))}: the network matters more than the choice among them on "
        f"{', '.join(decided) or 'no dataset'}. They are the best by these same results, which makes them "
        "look more alike."
    )


def tell_setup(part: Part) -> list[str]:
    """Explain the words that the page uses, and say what the data are."""
    grid, described = part.grid, []
    cards = {run.experiment.dataset: part_of(run.info, "dataset") for run in part.runs}
    for dataset, card in sorted(cards.items()):
        sizes = {**part_of(card, "sizes"), **part_of(card, "published")}
        facts = [f"{sizes[key]:,} {key}" for key in ("examples", "features", "classes") if key in sizes]
        if card.get("train_mean_candidates"):
            facts.append(f"{card['train_mean_candidates']:.1f} candidates per example")
        facts += [f"{card['n_test']:,} test examples per split"] if "n_test" in card else []
        described.append(f"{dataset} ({', '.join(facts)})" if facts else dataset)
    return [
        "## How it was measured",
        "",
        f'The rules are those of PLENCH ("the paper" below). Data: {", ".join(described)}. Each of '
        f"{len(grid.trial_seeds)} splits holds out {100 * grid.tabular_test_fraction:.0f} % of the examples "
        f"for testing, and {100 * grid.holdout_fraction:.0f} % of the rest for validation. On every split "
        f"{len(grid.hparams_seeds)} configurations of each method are tried, its defaults and random ones; "
        f"networks learn for {grid.steps or 0:,} steps. A criterion chooses the checkpoint and the "
        "configuration on the validation examples: CR, the share of predictions that are candidates; AA, the "
        "prediction's share of the probability of the candidates; or, with true labels, their accuracy "
        "(OA w/ ES). The result is the test accuracy of this choice. MLP is the paper's network with a "
        "hidden layer of 500 units. All methods are compared with "
        f"{REFERENCE}, which the paper calls very strong in most cases. [Glossary](../glossary.md)",
    ]


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
    names, values, gains, half = found.networks, found.values, found.gains, found.half
    grid, boards = found.parts[0].grid, [part.board for part in found.parts]
    ranks = [{name: rank for name, (rank, _) in board.rank(CR).items()} for board in boards]
    rho = stats.spearmanr(*([own[name] for name in found.methods] for own in ranks)).statistic
    overall = found.overall
    spreads = [[percent(own[0] - own[n - 1]) for own in overall] for n in (len(found.methods), half, 2)]
    numbers = range(max(2, half - half // 3), min(len(found.methods), half + half // 3) + 1)
    several = np.stack([explain_variance(values[:, found.best(n)]) for n in numbers])
    rows = []
    for i, dataset in enumerate(grid.datasets):
        shares = [percent(share, 0) for share in explain_variance(values)[i]]
        ranges = [
            f"{percent(low, 0)} to {percent(high, 0)}"
            for low, high in zip(several[:, i].min(axis=0), several[:, i].max(axis=0), strict=True)
        ]
        rows.append([dataset, *shares, *ranges[:2], points(float(gains[i].mean()))])
    draw_networks(found, folder / "study-network.svg")
    ordered = sorted(enumerate(found.methods), key=lambda item: ranks[1][item[1]])
    best = f"{numbers[0]} to {numbers[-1]} best"
    return [
        title,
        "",
        f"{found.describe_change()} In means over datasets, the best and the worst method are "
        f"{spreads[0][0]} points apart with {names[0]} and {spreads[0][1]} with {names[1]}; the {half} best "
        f"of each network lie within {spreads[1][0]} and {spreads[1][1]} points, and the first leads the "
        f"second by {spreads[2][0]} and {spreads[2][1]}. Ranks under both correlate by {rho:.2f}. Both have "
        f"the same {len(grid.hparams_seeds)} configurations and {len(grid.trial_seeds)} splits, chosen by "
        "CR. The table has shares of the variance of mean accuracies within a dataset (ω², in percent): "
        "among all methods, and the lowest and highest shares among the best (by their means over both "
        f"networks), if {numbers[0]} to {numbers[-1]} of them are kept. Among all methods, those that fail "
        "make up most of the variance. The rest is interaction and chance.",
        *table(
            ["dataset", "method", "network", "rest", f"method, {best}", f"network, {best}",
             "change (points)"],
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


def draw_networks(found: NetworkComparison, path: Path) -> None:
    """Draw a row per method, from its mean accuracy with the first network to that with the second."""
    means = 100 * found.values.mean(axis=0)
    order = np.argsort(-means[:, 1])
    with drawing.figure_style():
        scale = drawing.find_range(means.ravel()).padded(0.03)
        figure = drawing.new_figure(WIDTH, 0.125 * len(order) + 0.4)
        axes = figure.add_subplot()
        for place, (first, second) in enumerate(means[order]):
            if not (scale.holds(first) and scale.holds(second)):
                low = min(first, second) < scale.low
                drawing.write_beyond(axes, place, f"{first:.1f} → {second:.1f}", low=low)
                continue
            axes.plot([first, second], [place, place], color=drawing.GREY, linewidth=1, zorder=1)
            axes.scatter([first], [place], s=12, facecolor="white", edgecolor=drawing.DARK, linewidth=0.8)
            axes.scatter([second], [place], s=12, color=drawing.DARK)
        drawing.name_rows(axes, [found.methods[i] for i in order])
        axes.set(xlabel="mean test accuracy (%)", xlim=scale)
        drawing.add_grid(axes, "x")
        networks, n = found.networks, counted(len(found.values), "dataset")
        drawing.add_title(figure, f"White: {networks[0]}, black: {networks[1]}; means over {n}")
        drawing.save_figure(figure, path)


def tell_leaderboard(part: Part, folder: Path, *, explained: bool = False) -> list[str]:
    board, network = part.board, part.network
    title, names = f"## Leaderboard with {network}", board.algorithms
    if len(names) < 3:
        return [title, "", f"Not yet: {counted(len(names), 'complete method')}; 3 are needed."]
    found, ranks, means = bootstrap_ranks(board, CR, names), board.rank(CR), average(part.tuned)
    limits, defaults, others = found.over_splits or {}, average(part.defaults), REFERENCE in names
    rows, gains = [], {name: means[name] - defaults[name] for name in means}
    for name in rank_order(board):
        within = "{:.1f} to {:.1f}".format(*limits[name]) if name in limits else "none"
        gap = show_interval(part.compare(part.tuned, name, REFERENCE)) if others and name != REFERENCE else ""
        by_dataset = (percent(fmean(own[name].values())) for own in part.tuned.values())
        figures_of = [percent(means[name]), *([gap] if others else []), *by_dataset, percent(defaults[name])]
        rows.append([name, f"{ranks[name][0]:.1f}", within, *figures_of])
    most, least = max(gains, key=lambda name: gains[name]), min(gains, key=lambda name: gains[name])
    extent = f"{counted(len(names), 'method')} on {counted(len(part.tuned), 'dataset')}"
    explanation = (
        "Ranks have 95 % bootstrap intervals over splits, which treat splits as independent and are somewhat "
        "too narrow. "
        + "".join(f"{reason[:1].upper()}{reason[1:]}. " for reason in found.reasons)
        + "Differences of means are of the same splits, with 95 % intervals that allow for their overlap "
        "(Nadeau and Bengio). The last column is the default configuration, without any search. "
    )
    columns = ["mean (%)", *([f"compared with {REFERENCE} (points)"] if others else []), *part.tuned]
    lines = [
        title,
        "",
        f"{extent}, {len(part.grid.hparams_seeds)} configurations on {len(part.grid.trial_seeds)} splits, "
        "chosen by CR; classical methods have no network. "
        + ("" if explained else explanation)
        + f"Tuning changes the median method by {points(median(gains.values()))} points ({most} "
        f"{points(gains[most])}, {least} {points(gains[least])}), and "
        f"{sum(gain < 0 for gain in gains.values())} of {len(names)} methods lose by it.",
        *([tell_single_datasets(part)] if others else []),
        *table(["method", "average rank", "95 % over splits", *columns, "defaults, mean (%)"], rows),
    ]
    if found.widest:
        with drawing.figure_style():
            name = f"study-ranks-{network}.svg"
            drawing.save_figure(figures.draw_rank_intervals(board, CR, WIDTH), folder / name)
        lines += ["", f"![Average ranks of {extent} with {network}, with intervals]({name})"]
    return lines


def tell_untuned(parts: Sequence[Part], runs: Sequence[Run]) -> list[str]:
    """Compare defaults by the number of steps, as the checkpoints of the runs tell it."""
    title, rows, kept = "## Without tuning", [], list[str]()
    for part in parts:
        lead = rank_order(part.board)[0] if len(part.board.algorithms) > 2 else REFERENCE
        kept += [name for name in (lead,) if name != REFERENCE and name not in kept]
    for part in parts:
        last = part.grid.steps or 0
        n_splits = f"{len(part.grid.trial_seeds)}"
        made = [
            (f"{step:,}", n_splits, part.defaults_after(step)) for step in (1000, 2000, 5000) if step < last
        ] + [(f"{last:,}", n_splits, part.defaults_after(None))]
        if part is parts[0]:
            made += [
                (f"{s.steps:,}, runs of this length, by CR", f"{s.n_splits} × {s.n_seeds} seeds", s.splits)
                for s in find_short(part, runs)
            ]
        for step, extent, splits in made:
            found = part.compare_all(splits)
            if found:
                shown = [show_interval(found[name]) if name in found else "" for name in kept]
                others = list_gains({name: found[name] for name in found if name not in kept}) or "none"
                n_worse = sum(high < 0 for *_, high in found.values())
                rows.append([part.network, step, extent, *shown, others, f"{n_worse} of {len(found)}"])
    if not rows:
        return [title, "", f"Not yet: no complete method to compare with {REFERENCE}."]
    return [
        title,
        "",
        f"Deep methods with default hyperparameters, compared with {REFERENCE}'s defaults after the same "
        "number of steps: points in the mean over datasets, with 95 % intervals over splits, not corrected "
        "for the number of methods. A method that leads by average rank with tuning has a column of its own. "
        "Rows of steps are checkpoints of the long runs, without any choice; where runs of this "
        "length were made, CR chooses the checkpoint.",
        *table(["network", "steps", "splits", *kept, "others detectably better", "detectably worse"], rows),
    ]


def tell_single_datasets(part: Part) -> str:
    """Say which methods are better than the reference on one of the datasets."""
    found = [
        (
            name,
            dataset,
            fmean(pair),
            1.0 if (p := corrected_t_test(pair, part.ratios[dataset])) is None else p,
        )
        for dataset, own in part.tuned.items()
        for name in own
        if name != REFERENCE
        for pair in [[own[name][trial] - own[REFERENCE][trial] for trial in own[name]]]
    ]
    holm = adjust_holm(np.array([p for *_, p in found]))
    better = [
        f"{name} on {dataset} ({points(mean)}, p {p:.2g}, corrected {float(corrected):.2g})"
        for (name, dataset, mean, p), corrected in zip(found, holm, strict=True)
        if p < ALPHA and mean > 0
    ]
    return (
        f"On single datasets, of {len(found)} comparisons with {REFERENCE}, significantly better at "
        f"{100 * ALPHA:.0f} % before Holm's correction: {', '.join(better) or 'none'}."
    )


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
        differences = [
            [(float(size), kind) for size, kind in re.findall(r"records? (\d\.\d+)(?: \((\w+))?", line)]
            for line in repeated
        ]
        n_equal = sum(all(size == 0 for size, _ in own) for own in differences)
        size, kind = max((own for line in differences for own in line), default=(0.0, ""))
        moved = [
            re.search(r"arithmetic ([^,)]+)", line)
            for line, own in zip(repeated, differences, strict=True)
            if any(value > 0 for value, _ in own)
        ]
        why = " and ".join(sorted({found[1] for found in moved if found})) if all(moved) else ""
        drawn = re.search(r"of ([\d,]+)\)", last)
        since = n_runs - int(drawn[1].replace(",", "")) if drawn else 0
        lines.append(
            f"{n_equal} of {len(repeated)} repeated runs have the same values to four digits at all "
            "checkpoints"
            + (
                f"; the largest difference of the others is {points(size)[1:]} points ({kind})"
                if size
                else ""
            )
            + (f", and all of these were repeated on another kind of processor ({why})" if why else "")
            + f". `plench results verify` says: {last}"
            + (f", before {since:,} more were added" if since else "")
            + ". It lets other versions and processors differ by up to 5 points at the last checkpoint. "
            "`results/verified.txt` has each run."
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
        network, leading = part.network, []
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
        f"{' '.join(said)} {n_found or 'None'} of these {len(rows)} differences "
        f"{'is' if n_found == 1 else 'are'} significant at {100 * ALPHA:.0f} % (corrected resampled t-test, "
        f"not corrected for the choice of the best). All have {len(grid.hparams_seeds)} configurations. The "
        f"best of a larger group looks better by chance, and there are {len(main.deep)} deep and "
        f"{len(main.classical)} classical methods.",
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
        f"Configurations 0 to {grid.n_hparams - 1} on {len(grid.trial_seeds)} splits, chosen by CR; the "
        f"slower methods were run on {', '.join(grid.datasets)} only.",
        "",
    ]
    for dataset in together.board.datasets:
        if others:
            best, difference, *_ = compare_best(together.board, dataset, (part.deep, others))
            slower = counted(len(part.deep), "slower method")
            lines.append(
                f"{dataset}: best of {slower} {best[0]} %, best of {len(others)} others {best[1]} %: "
                f"{difference}. Both were chosen by test accuracy, so that p only describes. "
                "[frontier.md](frontier.md) and [accuracy.md](accuracy.md) have slower methods on other "
                "datasets, with defaults."
            )
        means = sorted(together.board.dataset_means(dataset, CR).items(), key=lambda item: -item[1])
        kinds = [[n, "slower" if n in part.deep else "", percent(mean)] for n, mean in means]
        lines += table(["method", "kind", f"{dataset} (%)"], kinds)
    return lines


def tell_criteria(parts: Sequence[Part], folder: Path) -> list[str]:
    title, shown = "## What choosing without true labels costs", (CR, AA)
    if not parts[0].deep:
        return [title, "", "Not yet: no deep method is complete."]
    few, rows, said = min(5, *(len(part.grid.hparams_seeds) for part in parts)), [], []
    curves: dict[str, tuple[tuple[float, ...], ...]] = {}  # of the first part, by dataset and criterion
    for part in parts:
        n, costs = len(part.grid.hparams_seeds), list[list[float]]()
        runs = group_by(
            (run for run in part.runs if not run.experiment.fitted), lambda r: r.experiment.dataset
        )
        for dataset, own in sorted(runs.items()):
            curve = measure_subset_regret(own, shown)
            assert curve is not None
            row, chosen = [dataset, part.network, str(n)], []
            for criterion, values in zip(shown, curve.regrets, strict=True):
                row.append(" / ".join(signed(100 * values[k - 1], 1) for k in (1, few, n)))
                by_method = [
                    [part.board.dataset_splits(dataset, name, c) for name in part.deep]
                    for c in (OA_ES, criterion)
                ]
                by_split = [
                    fmean(best[t] - own[t] for best, own in zip(*by_method, strict=True))
                    for t in by_method[0][0]
                ]
                chosen.append(interval([by_split], [part.ratios[dataset]]))
            row += map(show_interval, chosen)
            rows.append([*row, " / ".join(percent(curve.accuracies[0][k - 1]) for k in (1, few, n))])
            costs.append([cost for cost, _, _ in chosen])
            if part is parts[0]:
                curves[dataset] = curve.regrets
        ranges = [f"{percent(min(own))} to {percent(max(own))}" for own in zip(*costs, strict=True)]
        defaults, by_cr = average(part.defaults), average(part.tuned)
        oracle = [part.board.dataset_means(dataset, OA_ES) for dataset in part.board.datasets]
        by_truth = {name: fmean(own[name] for own in oracle) for name in part.deep}
        gains = [
            points(median(means[name] - defaults[name] for name in part.deep)) for means in (by_cr, by_truth)
        ]
        said.append(
            f"With {part.network} and {n} configurations, choosing by CR costs {ranges[0]} points and by AA "
            f"{ranges[1]}; compared with its defaults the median deep method changes by {gains[0]} points if "
            f"CR chooses, and by {gains[1]} if true labels do."
        )
    with drawing.figure_style():
        figure, panels, _ = drawing.new_panels(WIDTH, len(curves), 2.0, 0.3, (0.3, 1.6), sharey=True)
        for axes, (dataset, regrets) in zip(panels, curves.items(), strict=True):
            for criterion, line, values in zip(shown, drawing.DASHES, regrets, strict=False):
                ys = [100 * value for value in values]
                axes.plot(
                    range(1, len(ys) + 1), ys, color=drawing.DARK, linestyle=line, label=criterion.title
                )
            axes.set(title=dataset, xlabel="configurations tried")
            drawing.add_grid(axes)
        panels[0].set_ylabel("points below choice by true labels")
        panels[0].legend(frameon=False)
        drawing.save_figure(figure, folder / "study-regret.svg")
    tried = f"1 / {few} / all"
    return [
        title,
        "",
        f"{' '.join(said)} The cost is what is lost compared with choosing by true validation labels (OA w/ "
        "ES), in points of test accuracy: means over the deep methods and splits, by the number of "
        "configurations tried (1: the mean of single ones), and with all of them 95 % intervals over splits. "
        f"The picture shows {parts[0].network}.",
        *table(
            ["dataset", "network", "all", *(f"{c.title}: {tried}" for c in shown),
             *(f"{c.title}, all, with interval" for c in shown), f"accuracy by CR: {tried} (%)"],
            rows,
        ),
        "",
        "![Cost of choosing by CR and AA by the number of configurations tried](study-regret.svg)",
    ]  # fmt: skip


def tell_spread(part: Part, everything: Sequence[Run]) -> list[str]:
    """Tell what split, configuration and seed add. Configurations are drawn for each split anew."""
    title = "## Split, seed or configuration?"

    def measure(runs: Iterable[Run]) -> dict[Experiment, tuple[float, float]]:
        found = {}
        for experiment, own in group_by(runs, lambda run: run.experiment).items():
            splits = group_by(own, lambda run: run.trial_seed).values()
            divided = divide_variance([[v for r in g if (v := accuracy_of(r)) is not None] for g in splits])
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
    rows, low = [], []
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
        within = {name: math.sqrt(own[name][1]) for name in names}
        middle = median(within.values())
        by_method = group_by(
            (run for run in part.runs if run.experiment.dataset == dataset),
            lambda run: run.experiment.algorithm,
        )
        values = {
            "test examples": [v for name in names if (v := chance_of_test(by_method[name])) is not None],
            "split": [math.sqrt(own[name][0]) for name in names],
            "configuration": [math.sqrt(max(own[n][1] - seeds[n][1], 0.0)) for n in names if n in seeds],
            "seed": [math.sqrt(seeds[name][1]) for name in names if name in seeds],
            "within a split": within.values(),
        }
        share = median(own[name][0] / sum(own[name]) for name in names)
        if values["test examples"] and median(values["split"]) < median(values["test examples"]):
            low.append(dataset)
        wide = sorted((name for name in names if within[name] > 3 * middle), key=lambda n: -within[n])
        rows.append(
            [dataset, f"{len(names)}", *(percent(median(v)) if v else "unknown" for v in values.values()),
             percent(share, 0), ", ".join(f"{name} {percent(within[name])}" for name in wide)]
        )  # fmt: skip
    lengths = " or ".join(sorted({experiment.budget for experiment in repeated})) or "none yet"
    below = f"; on {' and '.join(low)} that column is smaller, and says nothing" if low else ""
    freedom = len(part.grid.trial_seeds) - 1
    factors = [math.sqrt(freedom / float(stats.chi2.ppf(1 - q, freedom))) for q in (ALPHA / 2, 1 - ALPHA / 2)]
    return [
        title,
        "",
        f"Standard deviations of test accuracy in points with {part.network}, medians over methods, of "
        "checkpoints chosen by CR. Configurations are drawn anew for each split, and each has its own seed, "
        "so that runs of a split differ in configuration and seed. The seed's part is that of repeated "
        f"default runs ({lengths}), and the configuration's what remains of the variance; medians do not add "
        "up. Test examples alone: √(p(1 − p)/n) for accuracy p on n examples, which the column of splits "
        f"should hold{below}.",
        "",
        f"The column of splits is rough: all methods share the {freedom + 1} splits, and the 95 % interval "
        f"of a standard deviation from so few reaches from {factors[0]:.1f} to {factors[1]:.1f} times its "
        "value. What a split does to all methods alike cancels where methods are compared on the same "
        "splits. The last column names methods whose runs of a split differ by more than three times the "
        "median.",
        *table(
            ["dataset", "methods", "test examples alone", "split", "configuration", "seed", "within a split",
             "share of the split (%)", "far above the median within a split"],
            rows,
        ),
    ]  # fmt: skip


def tell_power(part: Part) -> list[str]:
    title = "## The smallest difference that can be found"
    names, n = [*part.deep, *part.classical], len(part.grid.trial_seeds)
    if len(names) < 2:
        return [title, "", "Not yet: two complete methods are needed."]
    rows, evident, observed = [], [], []
    limit = float(stats.t.ppf(1 - ALPHA / 2, n - 1))
    for dataset, ratio in part.ratios.items():
        splits = [part.tuned[dataset][name] for name in names]
        pairs = [[a[t] - b[t] for t in a if t in b] for a, b in combinations(splits, 2)]
        deviations = [float(np.std(pair, ddof=1)) for pair in pairs]
        spread, half = median(deviations), limit * math.sqrt(1 / n + ratio)
        found = [half * spread, *(spread * detectable(m, ratio) for m in (n, 10, 1000))]
        p_values = [corrected_t_test(pair, ratio) for pair in pairs]
        open_pairs = sum(p is not None and p >= ALPHA for p in p_values)
        near = [p for pair, p in zip(pairs, p_values, strict=True) if abs(fmean(pair)) <= 0.01]
        observed.append(f"{sum(p is not None and p < ALPHA for p in near)} of {len(near)} on {dataset}")
        evident.append(f"{sum(half * own <= 0.01 for own in deviations)} on {dataset}")
        rows.append([dataset, *map(percent, (spread, *found)), f"{open_pairs} of {len(pairs)}"])
    ratios = [part.ratios[dataset] for dataset in part.tuned]
    reach = []
    for first, second in combinations(names, 2):
        _, low, high = interval(
            [[own[first][t] - own[second][t] for t in own[first]] for own in part.tuned.values()], ratios
        )
        reach.append((high - low) / 2)
    return [
        title,
        "",
        f"Of the pairs of methods whose means differ by at most one point, significant at "
        f"{100 * ALPHA:.0f} % (corrected resampled t-test) are {', '.join(observed)}. The differences of few "
        f"pairs vary so little from split to split that a lead of one point would be significant: "
        f"{', '.join(evident)}, of {math.comb(len(names), 2)}. For all other pairs a published lead of one "
        f"point from {n} splits like these is not evidence by itself. For means over {len(rows)} datasets "
        f"the interval of the median pair reaches {percent(median(reach))} points to each side.",
        "",
        "The table has, in points and for the median spread of paired differences, the lead that is "
        f"significant, and the mean difference that is found in {100 * POWER:.0f} % of studies. Splits of "
        "one dataset overlap, so that more of them help down to a limit, about that with 1,000.",
        *table(
            ["dataset", "spread of differences", f"significant with {n} splits", f"found with {n}", "with 10",
             "with 1,000", f"pairs not significantly different with {n}"],
            rows,
        ),
    ]  # fmt: skip


def tell_crowd(part: Part | None, runs: Sequence[Run]) -> list[str]:
    title = "## Crowd data"
    if part is None:
        return [title, "", "Not yet: nothing is planned on crowd data."]
    fitted = sorted({run.experiment.algorithm for run in runs if run.experiment.fitted})
    names = tuple(dict.fromkeys((*part.grid.algorithms, *fitted)))
    by_dataset, said = dict[str, dict[str, float]](), []
    for dataset in part.grid.datasets:
        found = take_part("", replace(part.grid, algorithms=names, datasets=(dataset,)), runs)
        board, answers = found.board, sorted(found.board.answered)
        others = [name for name in board.algorithms if name not in answers]
        if not answers or not others:
            continue
        means = by_dataset[dataset] = board.dataset_means(dataset, CR)
        best, difference, *_ = compare_best(board, dataset, (others, answers))
        top = best[1].rpartition(" ")[0]
        behind = sum(means[name] < means[top] for name in others)
        n_deep = sum(name in found.deep for name in part.grid.algorithms)
        line = (
            f"- {dataset} ({n_deep} of {len(part.grid.algorithms)} planned deep methods are complete): best "
            f"of {len(others)} on candidate sets {best[0]} %, best of {len(answers)} on answers {best[1]} %: "
            f"{difference}. {behind} of the {len(others)} score lower than {top}."
        )
        if "LR_EM" in others:
            alike = [
                f"{rival[1]}: {shown}"
                for name in answers
                for rival, shown, *_ in [compare_best(board, dataset, (["LR_EM"], [name]))]
            ]
            line += (
                f" The linear model LR_EM on candidate sets, {percent(means['LR_EM'])} %, compared with the "
                f"same model on answers: {'; '.join(alike)}."
            )
        said.append(line)
    if not said:
        return [title, "", "Not yet: a complete method on candidate sets and one on answers are needed."]
    shown = {name: [means.get(name) for means in by_dataset.values()] for name in (
        name for own in by_dataset.values() for name in own)}  # fmt: skip

    def order(name: str) -> tuple[int, float]:
        known = [value for value in shown[name] if value is not None]
        return -len(known), -fmean(known)

    rows = [
        [name, *("" if value is None else percent(value) for value in shown[name])]
        for name in sorted(shown, key=order)
    ]
    return [
        title,
        "",
        "Candidate sets are the unions of all answers. Methods marked (answers) learn from the answers "
        "themselves: MV_LR from the majority vote, DS_LR from Dawid and Skene's estimate. Configurations 0 "
        f"to {part.grid.n_hparams - 1}, chosen by CR. All splits share one test set, so that p says nothing "
        "about other test sets, and the best of a larger group looks better by chance. No network learned "
        "from votes or estimates, so that the best methods of both kinds differ in more than their labels; "
        "LR_EM, MV_LR and DS_LR do not.",
        "",
        *said,
        *table(["method", *(f"{dataset} (%)" for dataset in by_dataset)], rows),
    ]


def tell_time(parts: Sequence[Part | None], dataset: str) -> list[str]:
    found: dict[tuple[str, str], dict[str, float]] = {}  # by processor and method, then by network
    single, largest, networks = set[str](), 1, ["none"]
    for part in parts:
        runs = [run for run in (part.runs if part else ()) if run.experiment.dataset == dataset]
        for name, own in group_by(runs, lambda run: run.experiment.algorithm).items():
            network = "none" if own[0].experiment.fitted else str(own[0].experiment.model)
            networks += [network] if network not in networks else []
            if network != "none":
                largest = max(largest, *(run.stack_size for run in own))
                single.update({name} if any(run.stack_size < 2 for run in own) else ())
            by_processor = group_by(
                own,
                lambda run: str(part_of(run.info, "versions").get("arithmetic", "unknown")).partition(",")[0],
            )
            for processor, same in by_processor.items():
                measured = [part_of(run.info, "timings").get("training_seconds") for run in same]
                if known := [value for value in measured if isinstance(value, int | float)]:
                    found.setdefault((processor, name), {}).setdefault(network, median(known))
    if not found:
        return ["## Time", "", "Not yet: no complete method."]
    alone = f"; those of {', '.join(sorted(single))} were trained alone" if single else ""
    rows = [
        [*key, *(f"{seconds[n]:.1f}" if n in seconds else "" for n in networks)]
        for key, seconds in sorted(found.items(), key=lambda item: (item[0][0], min(item[1].values())))
    ]
    return [
        "## Time",
        "",
        f"Median seconds of training per run on {dataset}, by network. Runs with a network "
        f"were trained in stacks of up to {largest}, with their share of the stack's time{alone}. This is "
        "what these runs took on machines that did other work as well, and not how fast the methods are: "
        "[step.md](step.md) compares them side by side.",
        *table(["arithmetic", "method", *networks], rows),
    ]


def tell_history(parts: Sequence[Part], folder: Path) -> list[str]:
    title, years = "## Has the field moved?", years_of(parts[0].runs)

    def dated(part: Part, names: Iterable[str]) -> list[tuple[int, str]]:
        return [(years[name], name) for name in names if name in years and name in part.board.rank(CR)]

    kinds: list[tuple[str, Callable[[Part], Iterable[str]]]] = [
        ("deep ones", lambda part: part.deep),
        (
            f"deep ones but {' and '.join(LEFT_OUT_BY_THE_PAPER)}",
            lambda part: [n for n in part.deep if n not in LEFT_OUT_BY_THE_PAPER],
        ),
        ("all but forests", lambda part: [n for n in part.board.algorithms if not n.startswith(UNDATED)]),
        ("all", lambda part: part.board.algorithms),
    ]
    drawn = dated(parts[0], kinds[2][1](parts[0]))
    if len(drawn) < 4:
        return [title, "", f"Not yet: {counted(len(drawn), 'dated method')}; 4 are needed."]
    rows, trends = [], dict[str, list[tuple[float, float]]]()  # by kind, towards newer methods, with p
    for part in parts:
        ranks, means = part.board.rank(CR), mean_accuracies(part.board)
        for kind, choose in kinds:
            kept = dated(part, choose(part))
            if len({year for year, _ in kept}) < 3:
                continue
            row = [kind, part.network, f"{len(kept)}"]
            for sign, values in (
                (1, [fmean(means[d][name] for d in means) for _, name in kept]),
                (-1, [ranks[name][0] for _, name in kept]),
            ):
                trend = stats.spearmanr([year for year, _ in kept], values)
                trends.setdefault(kind, []).append((sign * trend.statistic, trend.pvalue))
                row.append(f"{signed(trend.statistic, 2)} (p {trend.pvalue:.2g})")
            rows.append(row)
    ranks, means = parts[0].board.rank(CR), mean_accuracies(parts[0].board)
    xs = [year for year, _ in drawn]
    panels = {
        "mean test accuracy (%)": [100 * fmean(means[d][name] for d in means) for _, name in drawn],
        "average rank": [ranks[name][0] for _, name in drawn],
    }
    with drawing.figure_style():
        figure, notes = drawing.new_figure(WIDTH, 5.0), []
        for axes, (label, ys) in zip(figure.subplots(2, 1, sharex=True), panels.items(), strict=True):
            scale = drawing.find_range(ys).padded(0.1)
            points_of = [(x, y, n) for (x, n), y in zip(drawn, ys, strict=True) if scale.holds(y)]
            kept_xs, kept_ys, names = (list(column) for column in zip(*points_of, strict=True))
            axes.scatter(kept_xs, kept_ys, s=12, color=drawing.DARK)
            axes.set(ylabel=label, xlim=(min(xs) - 2, max(xs) + 2), ylim=scale)
            axes.locator_params(axis="x", integer=True)
            drawing.add_grid(axes, "both")
            if label == "average rank":
                axes.invert_yaxis()  # better is higher in both panels
            drawing.name_points(axes, kept_xs, kept_ys, names)
            beyond = [f"{n} ({x}) {y:.1f}" for (x, n), y in zip(drawn, ys, strict=True) if not scale.holds(y)]
            notes += [f"Beyond the scale of the {label}: {', '.join(beyond)}."] if beyond else []
        axes.set_xlabel("year of publication")
        drawing.add_notes(figure, notes)
        drawing.save_figure(figure, folder / "study-years.svg")
    counts = {kind: sum(value > 0 and p < ALPHA for value, p in own) for kind, own in trends.items()}
    shown = [f"{counts[kind]} of {len(own)} among {kind}" for kind, own in trends.items()]
    older = sum(value < 0 and p < ALPHA for own in trends.values() for value, p in own)
    start = "" if counts.get(kinds[0][0]) else "Newer deep methods are not detectably better. "
    return [
        title,
        "",
        f"{start}Correlations with the year of publication (Spearman's) that are significant at "
        f"{100 * ALPHA:.0f} % in favour of newer methods: {', '.join(shown)}; in favour of older ones: "
        f"{older}. A negative correlation with the rank is in favour of newer methods. They are not "
        "corrected for their number, and they are not independent: accuracy and rank are two views of one "
        "result, and most methods are in all rows. The oldest methods are "
        "classical, so that the last rows also compare deep with classical methods. Forests have the years "
        "of their own papers, which are not about partial labels; the picture leaves them out. The first "
        f"sentences say what newer methods gain over {REFERENCE}.",
        *table(["methods", "network", "number", "with mean accuracy", "with average rank"], rows),
        "",
        f"![Accuracy and rank of {len(drawn)} methods with {parts[0].network} by year of "
        "publication](study-years.svg)",
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
        f"- {len(part.grid.hparams_seeds)} configurations per split, the defaults and random ones: a method "
        "with many hyperparameters is searched less thoroughly than one with few.",
        "- Each split has its own random configurations, each run once. The effect of a configuration is "
        "therefore not measured by itself: it is what the spread of repeated default runs leaves.",
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
    both = [main, *([network] if network else [])]
    sections: list[list[str]] = [
        ["# The study", "", *tell_first(main, network, networks, runs)],
        [] if complete else [INCOMPLETE],
        tell_state(source, len(runs)),
        tell_setup(main),
        tell_extent(planned, main),
        tell_network(networks, folder),
        tell_leaderboard(main, folder),
        tell_leaderboard(network, folder, explained=True) if network else [],
        tell_untuned(both, runs),
        tell_odd(main),
        tell_classical(main, network),
        tell_slow(study.slow, main, runs),
        tell_criteria(both, folder),
        tell_spread(main, runs),
        tell_power(main),
        tell_crowd(study.crowd, runs),
        tell_time((main, network, study.slow), main.grid.datasets[0]),
        tell_history(both, folder),
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
