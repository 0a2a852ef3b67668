"""The page of the study: complete on complete results, and no comparison of different numbers of runs."""

import hashlib
import re
import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from benchmarks.portfolio import build_portfolio, join_networks, search, tell_advice, tell_portfolio
from benchmarks.study import (
    AA,
    CR,
    STATE,
    accuracy_of,
    detectable,
    divide_variance,
    explain_variance,
    find_short,
    interval,
    mean_accuracies,
    merge_grids,
    rank_order,
    read_study,
    take_part,
    tell_untuned,
    write_page,
)

from plench.estimator.search import NETWORK, PORTFOLIO
from plench.report.leaderboard import build_leaderboard
from plench.report.results import read_results
from plench.report.statistics import corrected_t_test
from plench.runs import read_runs
from plench.runs.sweep_spec import Grid, SweepSpec, read_sweep
from tests.conftest import ROOT
from tests.report.conftest import records
from tests.synthetic_sweep import experiment_of, write_run

DEEP, CLASSICAL, DATASETS = ("CC", "LWS", "PRODEN", "NN"), ("LR_EM", "RF_AVG"), ("Lost", "MSRCv2")
SLOW, ANSWERS = "VALEN", "MV_LR"
YEARS = {"CC": 2018, "LWS": 2021, "PRODEN": 2020, "NN": 2019, "LR_EM": 2002, "RF_AVG": 2001}


def write_study(folder):
    """Write runs of every kind that the study plans; return the sweep files."""
    grids = [
        (Grid(DEEP, DATASETS, n_hparams=3, n_trials=5, steps=1000),),
        (Grid(DEEP, DATASETS, n_hparams=2, n_trials=5, steps=1000, hparams={"model": "MLP_BN"}),),
        (
            Grid((SLOW,), DATASETS[:1], n_hparams=2, n_trials=5, steps=1000),
            Grid(DEEP, ("Some_Crowd",), n_hparams=2, n_trials=5, steps=1000),
        ),
    ]
    names = (*DEEP, *CLASSICAL, SLOW, ANSWERS)
    for name, dataset, h, t in product(names, (*DATASETS, "Some_Crowd"), range(3), range(5)):
        if (name == SLOW and (h > 1 or dataset != "Lost")) or (name == ANSWERS and dataset in DATASETS):
            continue
        fitted = name in (*CLASSICAL, ANSWERS)
        for network in (None,) if fitted else ("MLP", "MLP_BN") if name in DEEP else ("MLP",):
            if network == "MLP_BN" and (h > 1 or dataset not in DATASETS):
                continue
            steps, more = (5, {"fitted": True}) if fitted else (1000, {})
            bonus = 0.1 * (network == "MLP_BN") + 0.03 * len(name) + 0.02 * t
            card = {"name": name, "family": "made up", "answers": name == ANSWERS}
            if name in YEARS:
                card["bibtex"] = f"@misc{{x, year = {{{YEARS[name]}}}}}"
            write_run(
                folder / f"{name}-{network}-{dataset}-{h}-{t}",
                records(0.4 + bonus, 100 * h + t, steps=steps, n_records=min(steps, 5)),
                dataset,
                name,
                t,
                h,
                steps=steps,
                experiment=experiment_of(dataset, name, steps, model=network, **more),
                info={"algorithm_card": card, "timings": {"training_seconds": 1.0 + h}},
            )
    paths = []
    for number, own in enumerate(grids):
        paths.append(folder / f"plan-{number}.toml")
        SweepSpec(own).write(paths[-1])
    return paths


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return folder, write_study(folder)


def test_a_complete_study_answers_every_question(study, tmp_path):
    folder, sweeps = study
    text = write_page(folder, sweeps, tmp_path).read_text(encoding="utf-8")
    assert "Not yet" not in text
    assert "not complete" not in text
    pictures = re.findall(r"\]\((study-[\w-]+\.svg)\)", text)
    assert pictures == [
        f"study-{name}.svg" for name in ("network", "ranks-MLP", "ranks-MLP_BN", "regret", "years")
    ]
    assert all(re.findall(r"!\[(.{20,})\]\(study", text)), "alternative texts"
    assert all((tmp_path / name).stat().st_size > 1000 for name in pictures)
    assert "Accuracy and rank of 5 methods with MLP" in text, "forests have the year of another paper"
    assert re.findall(r"\| (all but forests|all) \| MLP \| (\d) \|", text) == [
        ("all but forests", "5"),
        ("all", "6"),
    ]
    assert "| unknown | CC |  | 2.0 | 1.5 |" in text, "seconds by network, all configurations of each"
    assert re.findall(r"\| (deep ones[^|]*) \| MLP \| (\d) \|", text) == [
        ("deep ones", "4"),
        ("deep ones but NN and GA", "3"),
    ]
    # The change by the network, from the same configurations, by hand.
    parts = [take_part("", read_sweep(path).grids[0], read_runs(folder)) for path in sweeps[:2]]
    runs = [[run for run in part.runs if run.hparams_seed < 2] for part in parts]
    plain, normalised = (mean_accuracies(build_leaderboard(own, (CR, AA))) for own in runs)
    gains = [normalised[d][name] - plain[d][name] for d in DATASETS for name in DEEP]
    by_method = np.reshape(gains, (len(DATASETS), -1)).mean(axis=0)
    changes = f"changes the mean over methods and datasets by {100 * np.mean(gains):+.1f} ("
    assert text.count(changes) == 2, "in the first sentences and in its section"
    assert f"and the median method by {100 * np.median(by_method):+.1f}; 4 of 4 methods gain" in text
    overall = [
        sorted((np.mean([means[d][name] for d in DATASETS]) for name in DEEP), reverse=True)
        for means in (plain, normalised)
    ]
    # The two best over both networks: the network's change, and how far they are from each other.
    both = np.array([[[m[d][name] for m in (plain, normalised)] for name in DEEP] for d in DATASETS])
    best = both[:, np.argsort(-both.mean(axis=(0, 2)))[:2]]
    changed = 100 * (best[:, :, 1] - best[:, :, 0]).mean(axis=1)
    spreads = 100 * best.mean(axis=2).std(axis=1, ddof=1)
    limits = r" \([+−][\d.]+ to [+−][\d.]+\)"
    assert re.search(
        re.escape(f"the change is {changed[0]:+.1f}") + limits
        + re.escape(f" on Lost, {changed[1]:+.1f}") + limits
        + re.escape(
            f" on MSRCv2; their standard deviations are {spreads[0]:.1f}, {spreads[1]:.1f}: the network "
            "matters more than the choice among them on Lost, MSRCv2."
        ),
        text,
    )  # fmt: skip
    shares = 100 * explain_variance(both)[:, 0]
    explained = f"the method explains {shares.min():.0f} to {shares.max():.0f} % of the variance within a"
    assert explained in text
    n_close = sum(mean >= overall[0][0] - np.mean(gains) for mean in overall[0][1:])
    assert re.search(
        rf"{n_close} other methods? (is|are) within {100 * np.mean(gains):.1f} points of the best with MLP",
        text,
    )
    assert "the 2 best of each network lie within {:.1f} and {:.1f} points".format(
        *(100 * (own[0] - own[1]) for own in overall)
    ) in " ".join(text.split())
    assert re.search(r"Lost: best of 1 slower method VALEN [\d.]+ %, best of 6 others \w+ [\d.]+ %: ", text)
    assert "best of 1 on answers MV_LR (answers)" in text
    assert "With MLP_BN a classical method has the best mean" in text


def test_methods_that_lack_a_run_are_named_and_not_compared(study, tmp_path):
    folder, sweeps = study
    part = shutil.copytree(folder, tmp_path / "runs")
    shutil.rmtree(part / "CC-MLP-Lost-2-4")
    for name in DEEP[1:]:
        shutil.rmtree(part / f"{name}-MLP_BN-MSRCv2-0-0")
    for path in part.glob(f"{SLOW}-*"):
        shutil.rmtree(path)
    text = write_page(part, sweeps, tmp_path / "page").read_text(encoding="utf-8")
    assert "The study is not complete" in text
    assert "- plan-0, incomplete: 29 of 30 runs: CC." in text
    assert "19 of 20 runs: LWS, PRODEN, NN" in text
    assert "- plan-2, not run: VALEN." in text
    assert "Not yet: fewer than 3 methods are complete with both networks." in text
    board = text.split("## Leaderboard with MLP\n")[1].split("##")[0]
    assert "5 methods on 2 datasets" in board
    assert "| CC |" not in board


def test_nothing_finished_is_said(study, tmp_path):
    folder, sweeps = study
    grid = replace(read_sweep(sweeps[0]).grids[0], steps=7)
    other = tmp_path / "other.toml"
    SweepSpec((grid,)).write(other)
    text = write_page(folder, [other, *sweeps[1:]], tmp_path).read_text(encoding="utf-8")
    assert "0 of 120" in text
    assert "4 methods complete" not in text


@pytest.mark.parametrize("reference", ["PRODEN", "NN"])
def test_methods_are_compared_with_the_reference(study, tmp_path, monkeypatch, reference):
    """A method is named in the first sentence if and only if its interval lies above 0."""
    folder, sweeps = study
    monkeypatch.setattr("benchmarks.study.REFERENCE", reference)
    found = read_study(folder, sweeps)
    parts = ((found.main, "MLP", 3), (found.network, "MLP_BN", 2))
    better = [
        f"{name} with {network} and {n} configurations"
        for part, network, n in parts
        for name in part.board.algorithms
        if name != reference and part.compare(part.tuned, name, reference)[1] > 0
    ]
    assert bool(better) == (reference == "NN")
    named = f"{reference} ({YEARS[reference]})"
    text = write_page(folder, sweeps, tmp_path).read_text(encoding="utf-8")
    first = text.splitlines()[2]
    if better:
        assert f"these are detectably better than {named}: {', '.join(better)} (of 3 deep ones with" in first
    else:
        expected = (
            "none of the other methods (3 deep ones with MLP, 3 deep ones with MLP_BN, 2 classical ones) is "
            f"detectably better than {named}."
        )
        assert first.endswith(expected)
    worse = [
        sum(part.compare(part.tuned, name, reference)[2] < 0 for name in names if name != reference)
        for part, *_ in parts
        for names in (part.deep, part.classical)
    ]
    if f"Detectably worse than {reference}" in text:
        expected = "with MLP {} of 3 deep and {} of 2 classical methods; with MLP_BN {} of 3 deep and {} of 2"
        assert expected.format(*worse) in text
    part = found.main
    mean, low, high = part.compare(part.tuned, "LWS", reference)
    assert low < mean < high
    means = mean_accuracies(part.board)
    assert mean == pytest.approx(np.mean([own["LWS"] - own[reference] for own in means.values()]))
    assert part.compare(part.tuned, reference, reference) == (0, 0, 0)
    # Configuration 0 of each split, without any choice among configurations.
    assert {len(own) for methods in part.defaults.values() for own in methods.values()} == {5}
    untuned = part.compare(part.defaults, "LWS", reference)
    shown = "LWS with MLP by {:+.1f} ({:+.1f} to {:+.1f})".format(
        *(100 * value for value in untuned)
    ).replace("-", "−")
    said = text.split("- Without tuning, of 10 comparisons")[1].split("\n")[0]
    assert (shown in said) == (untuned[1] > 0)
    # Every other method on every dataset, and Holm's correction for all of these.
    single = re.search(r"of (\d+) comparisons with \w+, significantly better .*: (.*)\.", text)
    assert int(single[1]) == 5 * len(DATASETS)
    p_values = [
        corrected_t_test([own[name][t] - own[reference][t] for t in range(5)], part.ratios[dataset])
        for dataset, own in part.tuned.items()
        for name in own
        if name != reference
    ]
    lowest = min(p_values) if reference == "NN" else None
    assert (single[2] == "none") == (reference == "PRODEN")
    if lowest is not None:
        assert f"corrected {len(p_values) * lowest:.2g}" in single[2]


def test_defaults_are_compared_by_the_number_of_steps(study, tmp_path):
    """Checkpoints of the long runs, and the means over seeds of shorter ones, without incomplete methods."""
    folder, sweeps = study
    part = read_study(folder, sweeps).main
    for name, dataset, t, copy in product(DEEP, DATASETS, range(4), range(2)):
        if (name, dataset, t, copy) != ("LWS", "Lost", 3, 1):
            write_run(
                tmp_path / f"{name}-{dataset}-{t}-{copy}",
                records(0.9 if name == "CC" else 0.4, 10 * t + copy, steps=200, n_records=5),
                dataset,
                name,
                t,
                steps=200,
                experiment=experiment_of(dataset, name, 200),
            )
    runs = read_runs(tmp_path)
    (short,) = find_short(part, [*runs, *part.runs])
    assert (short.steps, short.n_seeds, short.n_splits) == (200, 2, 4)
    assert set(short.splits["Lost"]) == set(short.splits["MSRCv2"]) == {"CC", "PRODEN", "NN"}
    for t in range(4):
        own = [
            accuracy_of(run)
            for run in runs
            if (run.experiment.algorithm, run.experiment.dataset, run.trial_seed) == ("CC", "Lost", t)
        ]
        assert short.splits["Lost"]["CC"][t] == pytest.approx(np.mean(own))
    last = {
        run.trial_seed: run.records[-1].get("test_acc")
        for run in part.runs
        if (run.experiment.algorithm, run.experiment.dataset, run.hparams_seed) == ("CC", "Lost", 0)
    }
    assert part.defaults_after(None)["Lost"]["CC"] == last
    assert part.defaults_after(250)["Lost"]["CC"] != last
    assert part.defaults_after(17)["Lost"] == {}, "no checkpoint"
    text = "\n".join(tell_untuned([part], runs))
    found = {name: part.compare(short.splits, name, "PRODEN") for name in ("CC", "NN")}
    assert found["CC"][1] > 0
    gap = "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * value for value in found["CC"]))
    rows = [line for line in text.splitlines() if "200, runs of this length" in line]
    assert len(rows) == 1
    assert "| 4 × 2 seeds |" in rows[0]
    assert gap in rows[0].replace("CC ", "")
    assert rows[0].endswith(f"| {sum(high < 0 for *_, high in found.values())} of 2 |")


def test_equal_ranks_are_ordered_by_means(study):
    """Two methods that are each best once share the rank; the one that fails less comes first."""
    folder, sweeps = study
    board = read_study(folder, sweeps).main.board
    values = {"Lost": {"A": 0.9, "B": 0.5}, "MSRCv2": {"A": 0.6, "B": 0.7}}

    class Tied:
        datasets = values

        def rank(self, criterion):
            return dict.fromkeys("BA", (1.5, 2))

        def dataset_means(self, dataset, criterion):
            return values[dataset]

    assert rank_order(Tied()) == ["A", "B"]
    order, ranks = rank_order(board), board.rank(CR)
    assert [ranks[name][0] for name in order] == sorted(own for own, _ in ranks.values())


def test_the_smallest_difference_has_a_floor():
    """More splits of one dataset cannot do better than the overlap of their training sets allows."""
    found = [detectable(n, 0.125) for n in (5, 50, 10**6)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx((1.95996 + 0.84162) * 0.125**0.5, rel=1e-3)


def test_variance_is_divided_as_it_was_made():
    """Method and network add up in the first dataset; in the second only their combination matters."""
    added = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])  # method ±2, network ±0.5
    crossed = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    shares = explain_variance(np.stack([added, crossed]))
    total = 6 * 0.25 + 4 * 4.0
    assert shares[0] == pytest.approx([16 / total, 1.5 / total, 0])
    assert shares[1] == pytest.approx([0, 0, 1])
    chance = explain_variance(np.random.default_rng(0).normal(size=(4000, 12, 2)))
    assert (chance.mean(axis=0)[:2] < 0.2).all(), "chance alone explains little"


def test_variance_between_and_within_groups():
    rng = np.random.default_rng(0)
    groups = [rng.normal(centre, 2.0, 50) for centre in rng.normal(0, 3.0, 2000)]
    between, within = divide_variance(groups)
    assert between == pytest.approx(9, rel=0.1)
    assert within == pytest.approx(4, rel=0.05)
    # Groups without any effect of their own: what chance adds to their means is taken away.
    between, within = divide_variance([rng.normal(0, 2.0, 5) for _ in range(4000)])
    assert between == pytest.approx(0, abs=0.1)
    assert divide_variance([[1.0, 2.0]]) is None
    assert divide_variance([[1.0], [2.0]]) is None


def test_grids_that_differ_in_methods_are_one():
    grid = Grid(("CC",), ("Lost",))
    other, fewer = replace(grid, algorithms=("CEL", "CC")), replace(grid, n_hparams=3)
    assert merge_grids([grid, other, fewer]) == [replace(grid, algorithms=("CC", "CEL")), fewer]


def test_the_sweep_files_of_the_study_are_as_planned():
    """The runs of each priority: 24 methods with two networks, newer, slow and crowd ones."""
    counts = {}
    for path in sorted((ROOT / "results").glob("study-*.toml")):
        grids = read_sweep(path).grids
        counts[path.stem] = sum(
            len(g.algorithms) * len(g.datasets) * len(g.hparams_seeds) * len(g.trial_seeds) for g in grids
        )
        assert {(g.steps, len(g.trial_seeds)) for g in grids} == {(10_000, 5)}
    assert counts == {"study-1": 7200, "study-2": 3600, "study-3": 775, "study-4": 200, "study-5": 2400}


def test_the_page_shows_the_state_of_the_file():
    """Number of runs and checksum on the page are those of the results file; the sample was repeated."""
    text = (ROOT / "docs" / "results" / "study.md").read_text(encoding="utf-8")
    source = ROOT / "results" / "study.parquet"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    assert f"State: {STATE}, {len(read_results(source, criteria=['CR']).runs):,} runs" in text
    assert f"SHA-256 `{digest}…`" in text
    *repeated, last = (ROOT / "results" / "verified.txt").read_text(encoding="utf-8").splitlines()
    assert last.startswith("20 of 20 repeated runs agree")
    n_equal = sum(not re.search(r"records? \d\.(?!0000)", line) for line in repeated)
    assert last in text
    assert f"\n{n_equal} of 20 repeated runs have the same values to four digits at all checkpoints" in text
    others = [line for line in repeated if re.search(r"records? \d\.(?!0000)", line)]
    same_processor = [line for line in others if "arithmetic" not in line]
    assert ("repeated on another kind of processor" in text) == (bool(others) and not same_processor)
    readme = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"\| {STATE} \| .* \| `{digest}` \|", readme), "a new state needs a new name"


def test_a_search_tries_defaults_then_leaders_and_takes_the_highest_covering_rate():
    split = {
        "A": {0: (0.5, 0.1), 1: (0.9, 0.2), 2: (0.9, 0.3)},
        "B": {0: (0.6, 0.4), 1: (0.7, 0.5), 2: (0.95, 0.6)},
    }
    assert search(split, ("A", "B"), 2) == 0.4
    assert search(split, ("A", "B"), 3) == 0.5, "the leader goes first where both were tried as often"
    assert search(split, ("A", "B"), 4) == 0.2
    assert search(split, ("A", "B"), 5) == 0.2, "equal rates go to the earlier run"
    assert search(split, ("A", "B"), 6) == 0.6


def test_a_portfolio_takes_what_adds_most_and_then_stops():
    """B is best alone, A helps on the second dataset, C never."""
    good, poor = {0: (0.9, 0.9)}, {0: (0.2, 0.1)}
    splits = {
        "one": [{"A": poor, "B": good, "C": poor}],
        "two": [{"A": good, "B": {0: (0.5, 0.4)}, "C": poor}],
    }
    assert build_portfolio(splits, ("A", "B", "C"), 3) == ["B", "A"]


def test_the_interval_of_a_mean_difference():
    """Equal variances add their degrees of freedom; if one dataset has nearly all, only its own count."""
    mean, low, high = interval([[0.01, 0.03], [0.05, 0.07]], [0.0, 0.0])
    assert mean == pytest.approx(0.04)
    assert high - mean == pytest.approx(4.302653 * (2 * 0.0002 / 2) ** 0.5 / 2, rel=1e-4)
    assert mean - low == pytest.approx(high - mean)
    mean, _, high = interval([[0.0, 0.2, 0.4], [0.1, 0.1, 0.1001]], [0.125, 0.125])
    assert high - mean == pytest.approx(4.302653 * (0.04 * (1 / 3 + 0.125)) ** 0.5 / 2, rel=1e-3)
    assert interval([[0.1, 0.1]], [0.1]) == pytest.approx((0.1, 0.1, 0.1))


def test_pages_agree_with_the_study(tmp_path):
    """The parts that the script writes are up to date, and the estimator's portfolio is the one they name."""
    sweeps = sorted((ROOT / "results").glob("study-*.toml"))
    found = read_study(ROOT / "results" / "study.parquet", sweeps)
    write_page(ROOT / "results" / "study.parquet", sweeps, tmp_path)
    text = (tmp_path / "study.md").read_text(encoding="utf-8")
    assert text == (ROOT / "docs" / "results" / "study.md").read_text(encoding="utf-8"), "run make study"
    pages = {
        "results/auto.md": tell_portfolio(found.main, found.network),
        "which-algorithm.md": tell_advice(found),
    }
    for name, lines in pages.items():
        assert "\n".join(lines) in (ROOT / "docs" / name).read_text(encoding="utf-8"), "run make study"
    assert f"`auto` tries {', '.join(PORTFOLIO)}, in this order" in "\n".join(pages["results/auto.md"])
    assert f"the estimator's network is {NETWORK}" in "\n".join(pages["results/auto.md"])
    # Both pages compute what `auto` gains, each in its own way.
    auto, advice = ("\n".join(pages[name]) for name in ("results/auto.md", "which-algorithm.md"))
    gained = re.search(
        rf"runs with {NETWORK} gains (\S+ \(.*?\)) points .*; (\w+), which .* add (.*?\))", advice
    )
    assert f"Compared with default PRODEN the search with it gains {gained[1]} points" in auto
    assert f"Today's portfolio with {gained[2]} in front: {gained[3]}," in auto


def test_networks_are_compared_on_the_same_configurations(study):
    """Deep methods have the runs of each network, in configurations that both have."""
    folder, sweeps = study
    found = read_study(folder, sweeps)
    networks = join_networks(found.main, found.network)
    assert set(networks) == {"MLP", "MLP_BN"}
    for plain, other in zip(networks["MLP"]["Lost"], networks["MLP_BN"]["Lost"], strict=True):
        assert set(plain) == set(other) == {*DEEP, *CLASSICAL}
        assert all(set(plain[name]) == set(other[name]) == {0, 1} for name in plain)
        assert plain["LR_EM"] == other["LR_EM"]
        assert plain["PRODEN"] != other["PRODEN"]
