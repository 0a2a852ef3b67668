"""Writes the page of the study, docs/results/study.md, with its pictures; every number is computed.

    python benchmarks/study.py                                  results/study.parquet → docs/results
    python benchmarks/study.py FILE.parquet --sweeps A.toml B.toml --output DIR

The sweep files say what was planned: the first with the paper's network, the second with another one. Methods
are compared only where all their planned runs are finished, and the page names what is missing.
"""

import argparse
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
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
from plench.report.statistics import compare_splits, find_test_ratio, smallest_p
from plench.report.tables import escape_markdown
from plench.runs.records import Run
from plench.runs.sweep_spec import Grid, read_sweep
from plench.text import counted

CR, AA, OA_ES = (find_criterion(name) for name in ("CR", "AA", "OA_ES"))
CROWD = "_Crowd"
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

    @property
    def board(self) -> Leaderboard:
        """Cells of the complete methods."""
        return build_leaderboard(self.runs, (CR, AA, OA_ES))

    @property
    def methods(self) -> list[str]:
        """The complete methods."""
        return sorted({run.experiment.algorithm for run in self.runs}, key=str.lower)


def take_part(title: str, grid: Grid, runs: Iterable[Run], *, fitted: bool = False) -> Part:
    """Return the part of the runs that a grid plans; a method needs all its runs on all datasets."""
    network = str(grid.hparams.get("model", "MLP"))
    places = {(d, t, h) for d in grid.datasets for t in grid.trial_seeds for h in grid.hparams_seeds}
    found: dict[str, dict[tuple[str, int, int], Run]] = {name: {} for name in grid.algorithms}
    for run in runs:
        experiment = run.experiment
        same = experiment.fitted if fitted else (experiment.model, experiment.steps) == (network, grid.steps)
        place = (experiment.dataset, run.trial_seed, run.hparams_seed)
        if same and run.finished and place in places and experiment.algorithm in found:
            found[experiment.algorithm].setdefault(place, run)
    kept = [run for own in found.values() if len(own) == len(places) for run in own.values()]
    lacking = group_by((n for n in found if len(found[n]) < len(places)), lambda n: len(found[n]))
    missing = [f"{n:,} of {len(places):,} runs: {', '.join(names)}" for n, names in lacking.items()]
    n_finished = sum(map(len, found.values()))
    return Part(title, grid, kept, missing, len(places) * len(found), n_finished)


def table(header: Sequence[str], rows: Rows) -> list[str]:
    """Return a Markdown table."""
    cells = [[escape_markdown(cell) for cell in row] for row in rows]
    lines = [list(header), ["---"] * len(header), *cells]
    return ["", *("| " + " | ".join(row) + " |" for row in lines), ""]


def percent(value: float, digits: int = 1) -> str:
    """Show a share in percent."""
    return f"{100 * value:.{digits}f}"


def points(value: float) -> str:
    """Show a difference of shares in points, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def year_of(run: Run) -> int | None:
    """Return the year of a method's paper, from the BibTeX on its card."""
    year = re.search(r"year\s*=\s*\{?(\d{4})", str(part_of(run.info, "algorithm_card").get("bibtex") or ""))
    return int(year[1]) if year else None


def mean_accuracies(board: Leaderboard) -> dict[str, dict[str, float]]:
    """Return mean test accuracies chosen by CR, by dataset and method."""
    return {dataset: board.dataset_means(dataset, CR) for dataset in board.datasets}


# The sections. Each returns lines of Markdown.


def tell_extent(parts: Sequence[Part]) -> list[str]:
    rows = [
        [
            part.title,
            f"{part.n_finished:,} of {part.n_planned:,}",
            f"{len(part.methods)} of {len(part.grid.algorithms)}",
        ]
        for part in parts
    ]
    lines = ["## What there is", *table(["part", "finished runs", "complete methods"], rows)]
    lines += [f"- incomplete, {part.title}: {'; '.join(part.missing)}" for part in parts if part.missing]
    return [*lines, "", "Methods that lack a planned run are in no comparison of that part."]


def tell_network(first: Part, second: Part) -> list[str]:
    title = "## Method or network?"
    shared = [name for name in second.methods if name in first.methods]
    if len(shared) < 3:
        return [
            title,
            "",
            f"Not yet: {counted(len(shared), 'method')} complete with both networks; 3 are needed.",
        ]
    places = {(h, t) for h in second.grid.hparams_seeds for t in second.grid.trial_seeds}
    boards = [
        build_leaderboard(
            [
                r
                for r in part.runs
                if r.experiment.algorithm in shared and (r.hparams_seed, r.trial_seed) in places
            ],
            (CR,),
        )
        for part in (first, second)
    ]
    means = [mean_accuracies(board) for board in boards]
    datasets = [name for name in means[0] if name in means[1]]
    values = np.array([[[m[d][name] for m in means] for name in shared] for d in datasets])  # (D, methods, 2)
    centred = values - values.mean(axis=(1, 2), keepdims=True)
    of_method = np.broadcast_to(centred.mean(axis=2, keepdims=True), centred.shape)
    of_network = np.broadcast_to(centred.mean(axis=1, keepdims=True), centred.shape)
    total = (centred**2).sum(axis=(1, 2))
    shares = [(part**2).sum(axis=(1, 2)) / total for part in (of_method, of_network)]
    gains = values[:, :, 1] - values[:, :, 0]
    ranks = [{name: rank for name, (rank, _) in board.rank(CR).items()} for board in boards]
    rho = stats.spearmanr([ranks[0][n] for n in shared], [ranks[1][n] for n in shared]).statistic
    names = [str(part.grid.hparams.get("model", "MLP")) for part in (first, second)]
    per_dataset = "; ".join(
        f"{d}: method {percent(m, 0)} %, network {percent(n, 0)} %, both together {percent(1 - m - n, 0)} %"
        for d, m, n in zip(datasets, *shares, strict=True)
    )
    spread = [np.ptp(values[:, :, i], axis=1).mean() for i in (0, 1)]
    rows = [
        [name, f"{ranks[0][name]:.1f}", f"{ranks[1][name]:.1f}", points(float(gains[:, i].mean()))]
        for i, name in sorted(enumerate(shared), key=lambda item: ranks[1][item[1]])
    ]
    return [
        title,
        "",
        f"{counted(len(shared), 'method')} with {names[0]} and {names[1]}, the same "
        f"{len(second.grid.hparams_seeds)} configurations and {len(second.grid.trial_seeds)} splits, chosen "
        "by CR. "
        f"Variance of mean accuracies within a dataset: {per_dataset}. {names[1]} changes the mean over "
        "methods and "
        f"datasets by {points(float(gains.mean()))} points; {int((gains.mean(axis=0) > 0).sum())} of "
        f"{len(shared)} "
        f"methods gain. The distance from the best to the worst method is {percent(spread[0])} points with "
        f"{names[0]} "
        f"and {percent(spread[1])} with {names[1]}, means over datasets. Ranks under both correlate with ρ "
        f"= {rho:.2f}.",
        *table(["method", f"rank, {names[0]}", f"rank, {names[1]}", "change (points)"], rows),
    ]


def tell_leaderboard(board: Leaderboard, folder: Path) -> list[str]:
    names = board.algorithms
    if len(names) < 3:
        return ["## Leaderboard", "", f"Not yet: {counted(len(names), 'complete method')}; 3 are needed."]
    found, ranks, means = bootstrap_ranks(board, CR, names), board.rank(CR), mean_accuracies(board)
    limits = found.over_splits or {}
    rows = []
    for name in sorted(names, key=lambda name: ranks[name][0]):
        interval = "{:.1f} to {:.1f}".format(*limits[name]) if name in limits else "none"
        accuracies = [means[d][name] for d in means]
        rows.append(
            [name, f"{ranks[name][0]:.1f}", interval, percent(fmean(accuracies)), *map(percent, accuracies)]
        )
    lines = [
        "## Leaderboard",
        "",
        f"{counted(len(names), 'method')} on {counted(len(means), 'dataset')}, chosen by CR. Ranks have 95 "
        "% bootstrap "
        f"intervals over splits. {'; '.join(found.reasons).capitalize()}{'.' if found.reasons else ''}",
        *table(["method", "average rank", "95 % over splits", "mean (%)", *means], rows),
    ]
    if found.widest:
        with drawing.figure_style():
            drawing.save_figure(figures.draw_rank_intervals(board, CR, 6.5), folder / "study-ranks.svg")
        lines.append("![Average ranks with intervals](study-ranks.svg)")
    return lines


def tell_classical(deep: Part, classical: Part) -> list[str]:
    title = "## Deep against classical"
    if not deep.methods or not classical.methods:
        return [title, "", "Not yet: a complete method of each kind is needed."]
    board = build_leaderboard([*deep.runs, *classical.runs], (CR,))
    rows = []
    for dataset in board.datasets:
        single = replace(board, settings=tuple(board.datasets[dataset]))
        means = board.dataset_means(dataset, CR)
        first, second = (max(part.methods, key=lambda n: means[n]) for part in (deep, classical))
        (compared,) = compare_splits(single, CR, first, second)
        below = sum(means[name] < means[second] for name in deep.methods)
        p_value = "none" if compared.p_value is None else f"{compared.p_value:.2g}"
        difference = f"{points(compared.difference)} (p {p_value})"
        best = [f"{name} {percent(means[name])}" for name in (first, second)]
        rows.append([dataset, *best, difference, f"{below} of {len(deep.methods)}"])
    header = [
        "dataset",
        "best deep",
        "best classical",
        "difference (points)",
        "deep methods below the best classical",
    ]
    said = "Best by mean test accuracy of what CR chose, so both are flattered by their number"
    return [
        title,
        "",
        f"{said} ({len(deep.methods)} deep, {len(classical.methods)} classical). p: corrected resampled "
        "t-test.",
        *table(header, rows),
    ]


def tell_criteria(part: Part, folder: Path) -> list[str]:
    title = "## What choosing without true labels costs"
    if not part.methods:
        return [title, "", "Not yet: no complete method."]
    averages = average_quality(judge_criteria(part.runs, (CR, AA)), "dataset")
    places = sorted({place for _, place in averages})
    by_dataset = group_by(part.runs, lambda run: run.experiment.dataset)
    rows = []
    with drawing.figure_style():
        figure, panels, _ = drawing.new_panels(6.5, len(places), 2.0, 0.3, (0.3, 1.6), sharey=True)
        for axes, place in zip(panels, places, strict=True):
            curve = measure_subset_regret(by_dataset[place.split(" (")[0]], (CR, AA))
            found = [averages[criterion.name, place] for criterion in (CR, AA)]
            ends = []
            for number, criterion in enumerate((CR, AA)):
                assert curve is not None
                values = [100 * value for value in curve.regrets[number]]
                axes.plot(
                    range(1, len(values) + 1), values, color=drawing.DARK, linestyle=drawing.DASHES[number],
                    label=criterion.title,
                )  # fmt: skip
                middle = values[min(4, len(values) - 1)]
                ends.append(f"{values[0]:.1f} / {middle:.1f} / {values[-1]:.1f}")
            axes.set(title=place, xlabel="configurations tried")
            drawing.add_grid(axes)
            shown = [f"{100 * q.regret:.2f}" if q.regret is not None else "none" for q in found]
            rows.append([place, *shown, *ends])
        panels[0].set_ylabel("regret (points)")
        panels[0].legend(frameon=False)
        drawing.save_figure(figure, folder / "study-regret.svg")
    n = len(part.grid.hparams_seeds)
    header = ["dataset", "CR", "AA", f"CR with 1 / {min(5, n)} / {n} configurations", "AA likewise"]
    return [
        title,
        "",
        "Points of test accuracy lost compared with choosing by true validation labels (OA w/ ES), means "
        "over "
        f"{counted(len(part.methods), 'method')} and {len(part.grid.trial_seeds)} splits.",
        *table(header, rows),
        "![Regret against the number of configurations](study-regret.svg)",
    ]


def tell_spread(part: Part, everything: Sequence[Run]) -> list[str]:
    lines = ["## Split, seed or configuration?", ""]
    shares = []
    for own in group_by(part.runs, lambda run: run.experiment).values():
        splits, configurations = part.grid.trial_seeds, part.grid.hparams_seeds
        found = {(r.trial_seed, r.hparams_seed): test_of(r) for r in own}
        grid = np.array([[found[t, h] for h in configurations] for t in splits], dtype=float)
        if np.isnan(grid).any() or grid.size < 4 or np.ptp(grid) == 0:
            continue
        centred = grid - grid.mean()
        parts = [(centred.mean(axis=a) ** 2).sum() * centred.shape[a] for a in (1, 0)]
        shares.append([part / (centred**2).sum() for part in parts])
    if shares:
        of_split, of_configuration = np.mean(shares, axis=0)
        lines.append(
            f"Of the variance of a method's test accuracies on a dataset, {percent(of_split, 0)} % is the "
            "split, "
            f"{percent(of_configuration, 0)} % the configuration, and "
            f"{percent(1 - of_split - of_configuration, 0)} % the "
            f"rest, seed included (means over {len(shares)} pairs of method and dataset, checkpoints by CR)."
        )
    seeds = []
    defaults = (r for r in everything if r.finished and r.hparams_seed == 0 and not r.experiment.fitted)
    for own in group_by(defaults, lambda run: run.experiment).values():
        by_split = [
            [v for r in g if (v := test_of(r)) is not None]
            for g in group_by(own, lambda r: r.trial_seed).values()
        ]
        several = [group for group in by_split if len(group) > 1]
        if len(several) > 1:
            within = fmean(float(np.var(group, ddof=1)) for group in several)
            size = fmean(map(len, several))
            between = max(float(np.var([fmean(group) for group in several], ddof=1)) - within / size, 0.0)
            if within + between > 0:
                seeds.append((between / (within + between), math.sqrt(within)))
    if seeds:
        lines.append(
            "At default hyperparameters with several seeds per split, "
            f"{percent(fmean(s for s, _ in seeds), 0)} % of the "
            "variance is the split and the rest the seed, whose standard deviation is "
            f"{percent(median(d for _, d in seeds))} "
            f"points (median over {len(seeds)} pairs)."
        )
    return lines if len(lines) > 2 else [*lines, "Not yet: no complete method."]


def test_of(run: Run) -> float | None:
    """Return the test accuracy at the checkpoint that CR chooses in a run."""
    chosen = offered(run, CR)
    return None if chosen is None else chosen[2]


def tell_power(part: Part) -> list[str]:
    title = "## The smallest difference that can be found"
    if len(part.methods) < 2:
        return [title, "", "Not yet: two complete methods are needed."]
    board, n_found = part.board, 0
    rows: Rows = []
    for dataset in board.datasets:
        splits = [board.dataset_splits(dataset, name, CR) for name in part.methods]
        spreads = [
            float(np.std([a[t] - b[t] for t in a], ddof=1)) for i, a in enumerate(splits) for b in splits[:i]
        ]
        cell = board.cell(board.datasets[dataset][0], part.methods[0], CR)
        assert cell is not None
        n, ratio, spread = len(splits[0]), find_test_ratio(cell), median(spreads)
        found = [spread * detectable(m, ratio) for m in (n, 10, 1000)]
        n_found += found[0] <= 0.01
        rows.append([dataset, percent(spread), *(percent(value) for value in found)])
    return [
        title,
        "",
        "Mean difference of two methods, in points, that the corrected resampled t-test finds at 5 % four "
        "times in five. Splits of one dataset overlap, so that even a thousand of them leave the last "
        "column. "
        f"One point can be found with {len(part.grid.trial_seeds)} splits on {n_found} of "
        f"{counted(len(rows), 'dataset')}.",
        *table(
            [
                "dataset",
                "spread of differences",
                f"with {len(part.grid.trial_seeds)} splits",
                "with 10",
                "with 1,000",
            ],
            rows,
        ),
    ]


def detectable(n: int, ratio: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the difference, in standard deviations, that the corrected t-test over n splits finds."""
    limit = float(stats.t.ppf(1 - alpha / 2, n - 1))
    shift = optimize.brentq(lambda d: float(stats.nct.sf(limit, n - 1, d)) - power, 0.0, 50.0)
    return float(shift) * math.sqrt(1 / n + ratio)


def tell_crowd(runs: Sequence[Run], grid: Grid) -> list[str]:
    title = "## Crowd data"
    places = {(t, h) for t in grid.trial_seeds for h in grid.hparams_seeds}
    crowd = [
        run
        for run in runs
        if run.experiment.dataset.endswith(CROWD)
        and run.finished
        and (run.trial_seed, run.hparams_seed) in places
    ]
    whole = [
        run
        for own in group_by(crowd, lambda run: run.experiment).values()
        if {(run.trial_seed, run.hparams_seed) for run in own} == places
        for run in own
    ]
    if not whole:
        return [title, "", "Not yet: no method has all runs on crowd data."]
    board = build_leaderboard(whole, (CR,))
    lines = [
        title,
        "",
        "Candidate sets are all answers; methods marked (answers) also see who gave which. Chosen by CR.",
    ]
    for dataset in board.datasets:
        means = board.dataset_means(dataset, CR)
        answers = {name: mean for name, mean in means.items() if name in board.answered}
        others = {name: mean for name, mean in means.items() if name not in board.answered}
        if answers and others:
            best = [max(group.items(), key=lambda item: item[1]) for group in (others, answers)]
            lines.append(
                f"{dataset}: the best of {len(others)} methods on candidate sets, {best[0][0]}, has "
                f"{percent(best[0][1])} %, the best of {len(answers)} on answers, {best[1][0]}, "
                f"{percent(best[1][1])} %."
            )
        ordered = sorted(means.items(), key=lambda item: -item[1])
        lines += table(["method", dataset], [[name, percent(mean)] for name, mean in ordered])
    return lines


def tell_time(parts: Sequence[Part]) -> list[str]:
    rows = []
    for part in parts:
        for name, own in group_by(part.runs, lambda run: run.experiment.algorithm).items():
            seconds = [part_of(run.info, "timings").get("training_seconds") for run in own]
            known = [value for value in seconds if isinstance(value, int | float)]
            stacked = sum(run.stack_size > 1 for run in own)
            if known:
                rows.append(
                    (
                        median(known),
                        [name, part.title, f"{median(known):.1f}", f"{stacked:,} of {len(own):,}"],
                    )
                )
    lines = [
        "## Time",
        "",
        "Median seconds of training per run; of a stacked run, its share of the stack's time.",
    ]
    header = ["method", "part", "seconds", "stacked runs"]
    return (
        [*lines, *table(header, [row for _, row in sorted(rows, key=lambda r: r[0])])]
        if rows
        else [*lines[:2], "Not yet."]
    )


def tell_history(board: Leaderboard, runs: Sequence[Run], folder: Path) -> list[str]:
    title = "## Has the field moved?"
    years = {run.experiment.algorithm: year_of(run) for run in runs}
    ranks, means = board.rank(CR), mean_accuracies(board)
    dated = [(y, n) for n in board.algorithms if (y := years.get(n)) is not None and n in ranks]
    if len(dated) < 4:
        return [title, "", f"Not yet: {counted(len(dated), 'dated method')}; 4 are needed."]
    xs = [year for year, _ in dated]
    accuracies = [fmean(means[d][name] for d in means) for _, name in dated]
    found = [stats.spearmanr(xs, values) for values in (accuracies, [ranks[name][0] for _, name in dated])]
    with drawing.figure_style():
        figure = drawing.new_figure(6.5, 3.0)
        axes = figure.add_subplot()
        ys = [100 * value for value in accuracies]
        axes.scatter(xs, ys, s=12, color=drawing.DARK)
        axes.set(xlabel="year of publication", ylabel="mean test accuracy (%)")
        axes.set_xlim(min(xs) - 2, max(xs) + 2)
        scale = drawing.find_range(ys).padded(0.1)
        axes.set_ylim(min(scale.low, min(ys) - 1), max(scale.high, max(ys) + 1))
        axes.locator_params(axis="x", integer=True)
        drawing.add_grid(axes, "both")
        drawing.name_points(axes, xs, ys, [name for _, name in dated])
        drawing.save_figure(figure, folder / "study-years.svg")
    return [
        title,
        "",
        f"Over {counted(len(dated), 'method')} from {min(xs)} to {max(xs)}, year and mean accuracy "
        "correlate with "
        f"ρ = {found[0].statistic:+.2f} (Spearman, p = {found[0].pvalue:.2g}), year and average rank with "
        f"ρ = {found[1].statistic:+.2f} (p = {found[1].pvalue:.2g}; a negative one means that newer methods "
        "rank "
        "better).".replace("-", "−"),
        "",
        "![Accuracy against year](study-years.svg)",
    ]


def tell_limits(part: Part) -> list[str]:
    n = len(part.grid.datasets)
    return [
        "## What this cannot say",
        "",
        f"- {counted(n, 'dataset')}: the smallest p-value of a signed-rank test over them is "
        f"{smallest_p(n):.2g}, so no "
        "difference over datasets can be significant at 5 %."
        if smallest_p(n) >= 0.05
        else f"- {counted(n, 'dataset')} do not stand for all partial-label data.",
        "- Features are fixed tables; nothing here is about images or text, or about networks that learn "
        "features.",
        f"- {len(part.grid.hparams_seeds)} random configurations per split: a method with many "
        "hyperparameters is searched "
        "less thoroughly than one with few.",
        "- Splits overlap, and each run has a seed of its own: seed and configuration are separated only at "
        "the defaults.",
    ]


def first_sentence(board: Leaderboard, classical: Iterable[str]) -> str:
    """Return the sentence on who leads, with what kind of method it is."""
    ranks = board.rank(CR)
    order = sorted(ranks, key=lambda name: ranks[name][0])
    if len(order) < 3:
        return "There are too few complete methods for a result."
    simple = [name for name in classical if name in ranks]
    lead = "classical" if order[0] in simple else board.family(order[0])
    best = min(simple, key=lambda name: ranks[name][0], default=None)
    told = (
        f"; the best classical method, {best}, is at rank {order.index(best) + 1}"
        if best and best != order[0]
        else ""
    )
    n = counted(len(board.datasets), "dataset")
    return f"Of {len(order)} methods on {n}, {order[0]} ({lead}) has the best average rank{told}."


def write_page(source: Path, sweeps: Sequence[Path], folder: Path) -> Path:
    """Write the page and its pictures; return its path."""
    found = read_results(source, criteria=["CR", "AA", "OA_ES"])
    grids = [read_sweep(path).grids[0] for path in sweeps]
    names = sorted({run.experiment.algorithm for run in found.runs if run.experiment.fitted})
    on_answers = {name.removesuffix(" (answers)") for name in found.board.answered}
    plain = tuple(name for name in names if name not in on_answers)
    networks = [str(grid.hparams.get("model", "MLP")) for grid in grids]
    parts = [
        take_part(f"{network}, {grid.steps:,} steps", grid, found.runs)
        for grid, network in zip(grids, networks, strict=True)
    ]
    simple = replace(grids[0], algorithms=plain or ("none",))
    classical = take_part("classical", simple, found.runs, fitted=True)
    first, second = parts[0], parts[1]
    together = build_leaderboard([*first.runs, *classical.runs], (CR, AA, OA_ES))
    folder.mkdir(parents=True, exist_ok=True)
    complete = not any(part.missing for part in (*parts, classical))
    sections: list[list[str]] = [
        ["# The study", "", first_sentence(together, classical.methods)],
        [] if complete else ["**The study is not complete**, and this page changes with it."],
        tell_extent([*parts, classical]),
        tell_network(first, second),
        tell_leaderboard(together, folder),
        tell_classical(first, classical),
        tell_criteria(first, folder),
        tell_spread(first, found.runs),
        tell_power(first),
        tell_crowd(found.runs, grids[0]),
        tell_time([*parts, classical]),
        tell_history(together, [*first.runs, *classical.runs], folder),
        tell_limits(first),
        ["Written by `benchmarks/study.py` from the records alone."],
    ]
    page = folder / "study.md"
    page.write_text("\n\n".join("\n".join(lines) for lines in sections if lines) + "\n", encoding="utf-8")
    return page


def main(words: Sequence[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="?", default=Path("results/study.parquet"))
    default = [Path("results/study-1.toml"), Path("results/study-2.toml")]
    parser.add_argument("--sweeps", type=Path, nargs=2, default=default, metavar="TOML")
    parser.add_argument("--output", type=Path, default=Path("docs/results"), metavar="DIR")
    args = parser.parse_args(words)
    print(write_page(args.results, args.sweeps, args.output))


if __name__ == "__main__":
    main()
