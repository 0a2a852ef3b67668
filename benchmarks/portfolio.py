"""Derives the portfolio of `auto` from the study, and says what the study recommends.

    python -m benchmarks.portfolio     results/study.parquet → docs/results/auto.md, docs/which-algorithm.md

A search of 20 runs is simulated from the study's records, as `auto` makes it: the default configuration of
each method of a portfolio, further configurations of the three methods that are best so far, and then the
run with the highest covering rate. Networks are those of the estimator, and both networks are compared in
the same search. A portfolio is built greedily: the method that adds most to the mean test accuracy comes
next, until none adds a tenth of a point. It is judged on a dataset that it was not chosen on.
Each page has one part between two comments that this script replaces; the rest is written elsewhere.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, median

from benchmarks.study import (
    CR,
    REFERENCE,
    Part,
    Study,
    average,
    compare_networks,
    interval,
    mean_accuracies,
    network_of,
    percent,
    points,
    rank_order,
    read_study,
    show_interval,
    table,
)
from plench.estimator.search import DEFAULT_RUNS, LEADERS, NETWORK, PORTFOLIO
from plench.report.leaderboard import offered

LEAST_GAIN = 0.001
FAR_BEHIND = 0.2
BEGIN, END = "<!-- benchmarks/portfolio.py: begin -->", "<!-- benchmarks/portfolio.py: end -->"
# Covering rate and test accuracy at the checkpoint that CR chooses, by configuration.
Runs = Mapping[int, tuple[float, float]]
# The runs of each method on one split.
Split = Mapping[str, Runs]
Splits = Mapping[str, Sequence[Split]]


def read_splits(part: Part) -> dict[str, list[Split]]:
    """Return what the choice needs to know of each dataset's splits."""
    found: dict[str, dict[int, dict[str, dict[int, tuple[float, float]]]]] = {}
    for run in part.runs:
        chosen = offered(run, CR)
        assert chosen is not None
        assert chosen[2] is not None
        split = found.setdefault(run.experiment.dataset, {}).setdefault(run.trial_seed, {})
        split.setdefault(run.experiment.algorithm, {})[run.hparams_seed] = (chosen[1], chosen[2])
    return {dataset: [own[trial] for trial in sorted(own)] for dataset, own in sorted(found.items())}


def search(split: Split, portfolio: Sequence[str], n_runs: int = DEFAULT_RUNS) -> float:
    """Return the test accuracy of what a search chooses: the run with the highest covering rate.

    Equal covering rates go to the earlier run, as in the estimator.
    """
    tried = [(name, 0) for name in portfolio[:n_runs]]
    counts = {name: 1 for name, _ in tried}
    best = {name: split[name][0][0] for name in counts}
    while len(tried) < n_runs:
        leaders = sorted(best, key=lambda name: -best[name])[:LEADERS]
        name = min(leaders, key=lambda leader: counts[leader])
        if counts[name] not in split[name]:
            break
        tried.append((name, counts[name]))
        best[name] = max(best[name], split[name][counts[name]][0])
        counts[name] += 1
    name, number = max(tried, key=lambda item: split[item[0]][item[1]][0])
    return split[name][number][1]


def build_portfolio(splits: Splits, names: Sequence[str], n_runs: int = DEFAULT_RUNS) -> list[str]:
    """Return methods in the order in which they add most to the accuracy of a search."""
    portfolio: list[str] = []
    accuracy = -math.inf
    while len(portfolio) < min(len(names), n_runs):
        found = {
            name: fmean(fmean(search(s, (*portfolio, name), n_runs) for s in own) for own in splits.values())
            for name in names
            if name not in portfolio
        }
        name = max(found, key=lambda each: found[each])
        if found[name] < accuracy + LEAST_GAIN:
            break
        portfolio.append(name)
        accuracy = found[name]
    return portfolio


def best_default(splits: Splits, names: Sequence[str]) -> str:
    """Return the method whose default configuration has the highest mean test accuracy."""
    return max(
        names, key=lambda name: fmean(fmean(split[name][0][1] for split in own) for own in splits.values())
    )


def join_networks(main: Part, other: Part) -> dict[str, dict[str, list[Split]]]:
    """Return the splits by network, of methods with both networks or none, with the same configurations."""
    both = read_splits(main), read_splits(other)
    numbers = set(other.grid.hparams_seeds)
    names = {*main.classical, *(name for name in main.deep if name in other.deep)}

    def join(first: Split, second: Split) -> Split:
        own = {**first, **second}
        return {name: {h: run for h, run in own[name].items() if h in numbers} for name in sorted(names)}

    return {
        network_of(part.grid): {
            dataset: [join(first, second) for first, second in zip(both[0][dataset], own, strict=True)]
            for dataset, own in splits.items()
        }
        for part, splits in zip((main, other), both, strict=True)
    }


def compare_searches(splits: Splits, portfolio: Sequence[str], others: Splits) -> list[list[float]]:
    """Return by how much a search with a portfolio beats one with today's on other runs, by dataset."""
    return [
        [search(a, portfolio) - search(b, PORTFOLIO) for a, b in zip(own, others[d], strict=True)]
        for d, own in splits.items()
    ]


def tell_portfolio(main: Part, other: Part | None) -> list[str]:
    """Return the part of docs/results/auto.md that follows from the study with both networks."""
    title = "## Network and portfolio, from the study"
    networks = join_networks(main, other) if other else {}
    splits = networks.get(NETWORK, {})
    names = sorted(next(iter(splits.values()))[0]) if splits else []
    n_each = max((len(runs) for own in splits.values() for runs in own[0].values()), default=0)
    missing = [name for name in PORTFOLIO if name not in names]
    if missing or len(splits) < 2:
        return [title, "", f"Not yet: runs of {', '.join(missing) or 'a second dataset'} are missing."]
    ratios = [main.ratios[dataset] for dataset in splits]

    (plain,) = (name for name in networks if name != NETWORK)
    by_network = compare_searches(splits, PORTFOLIO, networks[plain])
    per_dataset = ", ".join(f"{d} {points(fmean(own))}" for d, own in zip(splits, by_network, strict=True))
    rivals = ("default " + REFERENCE, "best default of the others", "today's portfolio")
    rows = []
    # Of the portfolio that was chosen on the other datasets, and of today's.
    differences: dict[str, dict[str, list[list[float]]]] = {
        who: {rival: [] for rival in rivals} for who in ("chosen", "today")
    }
    for ratio, (dataset, own) in zip(ratios, splits.items(), strict=True):
        others = {name: values for name, values in splits.items() if name != dataset}
        portfolio, default = build_portfolio(others, names), best_default(others, names)
        made = {
            "chosen": [search(split, portfolio) for split in own],
            "today": [search(split, PORTFOLIO) for split in own],
        }
        found = {
            rivals[0]: [split[REFERENCE][0][1] for split in own],
            rivals[1]: [split[default][0][1] for split in own],
            rivals[2]: made["today"],
        }
        for who, rival in product(made, rivals):
            differences[who][rival].append([a - b for a, b in zip(made[who], found[rival], strict=True)])
        shown = [show_interval(interval([differences["chosen"][rival][-1]], [ratio])) for rival in rivals]
        shown[1] += f", {default}"
        rows.append([dataset, ", ".join(portfolio), percent(fmean(made["chosen"])), *shown])
    overall = {rival: interval(own, ratios) for rival, own in differences["chosen"].items()}
    today = [show_interval(interval(differences["today"][rival], ratios)) for rival in rivals[:2]]
    by_fold = ", ".join(
        f"{points(fmean(own))} on {d}" for d, own in zip(splits, differences["today"][rivals[1]], strict=True)
    )
    rows.append(["mean", "", "", *(show_interval(overall[rival]) for rival in rivals)])
    decision = (
        "is better than today's beyond what chance explains, so that the estimator should take it"
        if overall[rivals[2]][1] > 0
        else "is not better than today's beyond what chance explains, so that the estimator keeps its own"
    )
    overall_best = build_portfolio(splits, names)
    untried = [name for name in overall_best if name not in PORTFOLIO]
    added = show_interval(interval(compare_searches(splits, (*untried, *PORTFOLIO), splits), ratios))
    return [
        title,
        "",
        f"For tables the estimator's network is {NETWORK}; the figures above were measured with {plain}, the "
        f"network of plench 0.2.0. With {NETWORK} instead of {plain}, the simulated search below over "
        f"today's portfolio changes by {show_interval(interval(by_network, ratios))} points: {per_dataset}.",
        "",
        f"`auto` tries {', '.join(PORTFOLIO)}, in this order. Compared with default {REFERENCE} the search "
        f"with it gains {today[0]} points, and {today[1]} compared with the best single default of the other "
        f"datasets ({by_fold}; the best single default of all {len(splits)} is "
        f"{best_default(splits, names)}). This portfolio was made with these datasets in view; the ones "
        "below were not.",
        "",
        f"A portfolio built from the study on the other datasets {decision}: the difference is "
        f"{show_interval(overall[rivals[2]])} points. Compared with default {REFERENCE} it is "
        f"{show_interval(overall[rivals[0]])}, and with the best single default "
        f"{show_interval(overall[rivals[1]])}. From all datasets together it would be "
        f"{', '.join(overall_best)}."
        + (
            f" Today's portfolio with {', '.join(untried)} in front: {added}, on the datasets that chose it."
            if untried
            else ""
        ),
        "",
        f"Each row is a dataset that was left out when the portfolio was chosen among {len(names)} methods, "
        f"deep ones with {NETWORK}. A search of {DEFAULT_RUNS} runs is simulated from the study's runs: the "
        f"default of each method, further configurations of the {LEADERS} best so far, and the run with the "
        f"highest CR; a method has {n_each} configurations, so that a single method makes only {n_each} "
        "runs. Test accuracy in percent, differences in points with 95 % intervals over splits (corrected "
        "resampled t-test). The estimator differs in three ways: its runs are shorter, its choice is more "
        "cautious and looks at further splits, and it trains the choice once more on all examples.",
        *table(["dataset", "portfolio", "accuracy", *(f"compared with {rival}" for rival in rivals)], rows),
    ]


def tell_auto(main: Part, other: Part) -> str:
    """Say what the search of `auto` gains, and what the method with the best rank would add to it."""
    splits = join_networks(main, other).get(NETWORK, {})
    names = set(next(iter(splits.values()))[0]) if splits else set()
    if not names.issuperset({*PORTFOLIO, REFERENCE}):
        return ""
    ratios = [main.ratios[dataset] for dataset in splits]
    lead = next(name for name in rank_order(other.board) if name in names)
    gains = [[search(split, PORTFOLIO) - split[REFERENCE][0][1] for split in own] for own in splits.values()]
    said = (
        f"A simulated search of {DEFAULT_RUNS} runs with {NETWORK} gains "
        f"{show_interval(interval(gains, ratios))} points compared with one run of default "
        f"{REFERENCE}"
    )
    if lead in PORTFOLIO:
        return f"{said}. "
    added = interval(compare_searches(splits, (lead, *PORTFOLIO), splits), ratios)
    return f"{said}; {lead}, which it does not try, would add {show_interval(added)}. "


def tell_advice(study: Study) -> list[str]:
    """Return the part of docs/which-algorithm.md that follows from the study."""
    networks = compare_networks(study.main, study.network)
    parts = [study.main, *([study.network] if study.network and networks else [])]
    lines = ["What the [study](results/study.md) says, all methods tuned without true labels:", ""]
    behind, failing = list[set[str]](), list[set[str]]()
    for part in parts:
        defaults, means = average(part.defaults), average(part.tuned)
        by_dataset, lead = mean_accuracies(part.board), rank_order(part.board)[0]
        level = [name for name in means if name == lead or part.compare(part.tuned, name, lead)[2] >= 0]
        gains = [means[name] - defaults[name] for name in means]
        first = next(iter(defaults))
        gap = show_interval(part.compare(part.defaults, first, REFERENCE))
        best = [
            f"{dataset} "
            f"{' and '.join(max(group, key=lambda n: own[n]) for group in (part.deep, part.classical))}"
            for dataset, own in by_dataset.items()
        ]
        lines.append(
            f"- **With the network {part.network}**"
            f"{', which the estimator takes for tables' if part.network == NETWORK else ''}, "
            f"{len(part.grid.hparams_seeds)} configurations: {lead} has the best average rank of "
            f"{len(means)} methods. In the mean over {', '.join(by_dataset)} (%) not detectably worse than "
            f"it: {', '.join(f'{name} {percent(means[name])}' for name in level)}. Without tuning {first} is "
            f"best ({percent(defaults[first])}; {gap} compared with {REFERENCE}); tuning changes the median "
            f"method by {points(median(gains))} points. Best deep and best classical method: "
            f"{'; '.join(best)}."
        )
        behind.append({name for name in means if means[name] < max(means.values()) - FAR_BEHIND})
        failing.append({name for name in means if defaults[name] < max(defaults.values()) - FAR_BEHIND})
    worst = sorted(set.intersection(*behind))
    untuned = sorted(set.intersection(*failing).difference(worst))
    return [
        *lines,
        *([f"- **Network:** {networks.describe_change()}"] if networks else []),
        *(
            [
                f"- **Avoid:** {', '.join(worst)}, more than {percent(FAR_BEHIND, 0)} points behind the best"
                + (f"; without tuning also {', '.join(untuned)}" if untuned else "")
                + "."
            ]
            if worst
            else []
        ),
        "- `auto` tries methods of several kinds on your data and chooses by CR. "
        + (tell_auto(study.main, study.network) if study.network else "")
        + "[How that was found](results/auto.md)",
    ]


def replace_part(page: Path, lines: Sequence[str]) -> None:
    """Replace what lies between the two comments of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{page} has no comment {BEGIN}"
    assert end, f"{page} has no comment {END}"
    page.write_text("\n".join([before + BEGIN, "", *lines, "", END]) + after, encoding="utf-8")


def main(words: Sequence[str] | None = None) -> None:
    """Write the parts of both pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="?", default=Path("results/study.parquet"))
    default = sorted(Path("results").glob("study-*.toml"))
    parser.add_argument("--sweeps", type=Path, nargs="+", default=default, metavar="TOML")
    parser.add_argument("--docs", type=Path, default=Path("docs"), metavar="DIR")
    args = parser.parse_args(words)
    study = read_study(args.results, args.sweeps)
    pages = {
        "results/auto.md": tell_portfolio(study.main, study.network),
        "which-algorithm.md": tell_advice(study),
    }
    for name, lines in pages.items():
        replace_part(args.docs / name, lines)
        print(args.docs / name)


if __name__ == "__main__":
    main()
