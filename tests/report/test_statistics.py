"""Statistics against published examples, brute force and closed forms."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from plench.criteria import criteria
from plench.errors import UsageError
from plench.report.criteria_quality import average_quality, correlate_with_test, judge_criteria, quality_rows
from plench.report.statistics import (
    adjust_holm,
    bootstrap_mean,
    compare_algorithms,
    compare_columns,
    comparison_tables,
    critical_difference,
    describe_reach,
    find_groups,
    friedman,
    gather_scores,
    nemenyi,
    signed_rank_p,
    wilcoxon_holm,
)
from plench.runs import read_runs
from plench.runs.select import select
from tests.report.conftest import read_board, records
from tests.synthetic_sweep import experiment_of, write_run, write_sweep

CR = criteria["CR"]
# Table 6 of Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006: AUC of
# four variants of C4.5 on 14 datasets. The paper works its tests out on them. It ranked before rounding:
# where two of its entries read 0.975, the ranks it gives (2 and 3) say that the first was larger.
DEMSAR = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.97501, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)


def test_friedman_against_its_definition_and_demsars_example():
    ranks = stats.rankdata(-DEMSAR, axis=1)
    n, k = ranks.shape
    average = ranks.mean(axis=0)
    average_ranks, statistic, p_value = friedman(DEMSAR)
    assert average_ranks == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    plain = 12 * n / (k * (k + 1)) * (np.sum(average**2) - k * (k + 1) ** 2 / 4)
    assert plain == pytest.approx(9.28, abs=5e-3)  # the paper's figure, which does not allow for ties
    ties = sum(np.sum(c**3 - c) for c in (np.unique(row, return_counts=True)[1] for row in DEMSAR))
    corrected = plain / (1 - ties / (n * (k**3 - k)))
    assert statistic == pytest.approx(corrected)
    assert p_value == pytest.approx(stats.chi2.sf(corrected, k - 1))
    assert friedman(np.ones((4, 3)))[1:] == (0.0, 1.0)
    with pytest.raises(UsageError, match="3 algorithms and 2 datasets, not 2 and 14"):
        friedman(DEMSAR[:, :2])


@pytest.mark.parametrize(
    ("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (8, 3.031), (10, 3.164)]
)
def test_critical_difference_against_demsars_table(k, q):
    assert critical_difference(k, 14) == pytest.approx(q * math.sqrt(k * (k + 1) / (6 * 14)), rel=5e-4)


def test_nemenyi_agrees_with_the_critical_difference():
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)  # Demšar's example
    assert critical_difference(4, 14, alpha=0.10) == pytest.approx(1.12, abs=5e-3)
    for k, n in ((3, 5), (5, 9), (27, 11)):
        ranks = np.linspace(1, k, k)
        ranks[1] = ranks[0] + critical_difference(k, n)
        p_values = nemenyi(ranks, n)
        assert p_values[0, 1] == pytest.approx(0.05, abs=1e-6)
        assert np.allclose(p_values, p_values.T)
        assert np.allclose(np.diag(p_values), 1)


def exact_wilcoxon(difference):
    """Two-sided p-value by going through all 2ⁿ signs."""
    size = stats.rankdata(np.abs(difference))
    observed = abs(np.sum(np.sign(difference) * size))
    sums = [abs(np.dot(signs, size)) for signs in itertools.product((-1, 1), repeat=len(difference))]
    return np.mean([value >= observed - 1e-9 for value in sums])


def test_wilcoxon_holm_against_enumeration_and_holms_definition():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(9, 4)) + np.array([0, 0.3, 1.2, 2.5])
    pairs = list(itertools.combinations(range(4), 2))
    raw = [exact_wilcoxon(values[:, a] - values[:, b]) for a, b in pairs]
    adjusted = wilcoxon_holm(values)
    for (a, b), p in zip(pairs, raw, strict=True):
        # Holm: the largest of (number of p-values at least as large as q) × q over all q ≤ p
        expected = max(min(1, q * sum(r >= q for r in raw)) for q in raw if q <= p)
        assert adjusted[a, b] == adjusted[b, a] == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(4))
def test_signed_ranks_with_ties_and_zeros_against_enumeration_and_scipy(seed):
    difference = np.random.default_rng(seed).integers(-3, 5, size=9) / 113
    expected = exact_wilcoxon(difference[difference != 0])
    assert signed_rank_p(difference) == pytest.approx(expected)
    assert signed_rank_p(difference) == pytest.approx(stats.wilcoxon(difference).pvalue)
    assert signed_rank_p(-difference) == pytest.approx(expected)


def test_holm_on_worked_cases():
    assert adjust_holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert np.all(wilcoxon_holm(np.repeat(DEMSAR[:, :1], 3, axis=1)) == 1)


def test_win_tie_loss_counts():
    values = np.array([[0.9, 0.5, 0.9], [0.6, 0.61, 0.6], [0.3, 0.7, 0.3]])
    pairs = compare_columns(values, np.full((3, 3), 0.02))
    assert [(pair.wins, pair.ties, pair.losses) for pair in pairs] == [(1, 1, 1), (0, 3, 0), (1, 1, 1)]


def test_groups_are_the_longest_stretches_without_a_difference():
    ranks = np.array([3.0, 1.0, 2.0, 4.0])
    p_values = np.ones((4, 4))
    p_values[1, 3] = p_values[3, 1] = 0.01
    assert find_groups(ranks, p_values) == [[1, 2, 0], [2, 0, 3]]
    assert find_groups(ranks, np.ones((4, 4))) == [[1, 2, 0, 3]]
    assert find_groups(ranks, np.zeros((4, 4))) == []


def test_bootstrap_interval_of_a_mean():
    rng = np.random.default_rng(0)
    samples = [list(rng.normal(0.6, 0.05, size=40)), list(rng.normal(0.8, 0.05, size=40))]
    interval = bootstrap_mean(samples)
    expected = (np.mean(samples[0]) + np.mean(samples[1])) / 2
    half = 1.96 * math.sqrt(np.var(samples[0]) / 40 + np.var(samples[1]) / 40) / 2
    assert interval["mean"] == pytest.approx(expected)
    assert interval["low"] == pytest.approx(expected - half, abs=0.1 * half)
    assert interval["high"] == pytest.approx(expected + half, abs=0.1 * half)
    assert bootstrap_mean(samples) == interval


def test_bootstrap_with_single_splits(tmp_path, run):
    assert bootstrap_mean([[0.5], [0.7]]) is None
    assert bootstrap_mean([]) is None
    mixed = bootstrap_mean([[0.5], [0.6, 0.8]])
    assert mixed["mean"] == pytest.approx(0.6)
    assert (mixed["low"], mixed["high"]) == (pytest.approx(0.55), pytest.approx(0.65))
    board = read_board(write_sweep(tmp_path, n_trials=1, n_hparams=1))
    expected = np.mean([board.cell(s, "CC", CR).mean for s in board.settings])
    words = ["results", "stats", tmp_path, "--criteria", "CR"]
    content = json.loads(run(*words, "--json").out)["by_criterion"]["CR"]
    assert content["intervals"]["CC"] is None
    assert content["means"]["CC"] == pytest.approx(expected)
    assert f"{100 * expected:.2f}" in run(*words).out


RARE = [{"step": 999, "val_covering_rate": 0.5, "test_acc": 0.5}]


def test_comparison_covers_every_pair_and_leaves_out_the_incomplete(tmp_path):
    write_sweep(tmp_path, datasets=("A", "B", "C"), n_trials=2, n_hparams=2)
    write_run(tmp_path / "x", RARE, "A", "Rare")
    board = read_board(tmp_path)
    comparison = compare_algorithms(board, CR)
    assert comparison["left_out"] == ["Rare"]
    assert len(comparison["pairs"]) == 6
    assert all(pair["wins"] + pair["ties"] + pair["losses"] == 3 for pair in comparison["pairs"])
    scores = gather_scores(board, CR)
    expected = zip(scores.algorithms, stats.rankdata(-scores.values, axis=1).mean(axis=0), strict=True)
    assert comparison["average_ranks"] == pytest.approx(dict(expected))


def test_regret_and_correlation_by_hand(tmp_path):
    """Three configurations: the criterion orders split 0 like the test set and split 1 the other way."""
    for trial, tests in enumerate(([0.3, 0.5, 0.7], [0.7, 0.5, 0.3])):
        for h, test in enumerate(tests):
            record = {"step": 999, "val_covering_rate": 0.5 + h / 10, "val_accuracy": test, "test_acc": test}
            write_run(tmp_path / f"{trial}{h}", [record], "Lost", "CC", trial, h)
    runs = read_runs(tmp_path)
    (quality,) = judge_criteria(runs, [CR])
    assert quality.regret == pytest.approx(((0.7 - 0.7) + (0.7 - 0.3)) / 2)
    assert correlate_with_test(runs, CR) == [pytest.approx(1.0), pytest.approx(-1.0)]
    assert quality.rank_correlation == pytest.approx(0.0)
    (oracle,) = judge_criteria(runs, [criteria["OA_ES"]])
    assert (oracle.regret, oracle.rank_correlation) == (0.0, pytest.approx(1.0))


def test_quality_over_a_sweep(runs):
    judged = judge_criteria(runs)
    assert len(judged) == len(criteria) * 8
    reference = {c.experiment: c for c in select(runs, criteria["OA_ES"])}
    for quality in judged:
        if quality.criterion.name == "OA_ES":
            assert quality.regret == 0
        if quality.criterion.name == "CR":
            (cell,) = [c for c in select(runs, CR) if c.experiment == quality.experiment]
            assert quality.regret == pytest.approx(reference[cell.experiment].mean - cell.mean)
    everything = average_quality(judged, "all")["CR", "all"]
    assert everything.n_experiments == everything.n_regret == len(reference)
    assert everything.regret == pytest.approx(np.mean([q.regret for q in judged if q.criterion.name == "CR"]))
    rows = quality_rows(judged)
    assert {row["by"] for row in rows} == {"all", "dataset", "algorithm", "experiment"}
    single = [row for row in rows if row["by"] == "experiment"]
    assert [row["regret"] for row in single] == [quality.regret for quality in judged]
    assert single[0]["of"]["dataset"] == judged[0].experiment.dataset


def test_correlation_is_absent_where_it_is_not_defined(tmp_path):
    for configuration in range(3):
        record = {"step": 999, "val_covering_rate": 0.5, "val_accuracy": 0.5, "test_acc": configuration / 10}
        write_run(tmp_path / str(configuration), [record], hparams_seed=configuration)
    (quality,) = judge_criteria(read_runs(tmp_path), [CR])
    assert (quality.rank_correlation, quality.n_correlation) == (None, 0)


def test_quality_of_criteria_keeps_settings_apart_and_says_over_how_many_it_is(tmp_path, gapped, run):
    for steps, h in itertools.product((500, 1000), range(3)):
        write_run(
            tmp_path / f"{steps}{h}", records(0.4 + h / 10, h, steps=steps), "Lost", "CC", 0, h, steps=steps
        )
    rows = json.loads(run("results", "stats", tmp_path, "--criteria", "CR", "--json").out)["criteria"]
    assert {r["of"] for r in rows if r["by"] == "dataset"} == {"Lost (steps 1000)", "Lost (steps 500)"}
    out = run("results", "stats", gapped, "--criteria", "CR", "OA").out.split("Criteria by algorithm")[1]
    words = (line.split() for line in out.split("\n") if line[:3] in ("CC ", "LWS", "EXP"))
    found = {name: more for name, *more in words}
    assert [found[name][0] for name in ("CC", "LWS", "EXP")] == ["2", "1", "2"]
    assert ["(1)," in found[name] for name in ("CC", "LWS", "EXP")] == [False, False, True]


def test_command_says_what_means_and_tests_rest_on(tmp_path, run):
    write_sweep(tmp_path, algorithms=("PRODEN", "CC", "LWS"), n_trials=2, n_hparams=1)
    write_run(tmp_path / "x", RARE, "Lost", "Rare")
    words = ["results", "stats", tmp_path, "--criteria", "CR"]
    lines = run(*words).out.splitlines()
    assert next(line for line in lines if line.startswith("Rare")).endswith("1 of 2")
    assert next(line for line in lines if line.startswith("CC")).endswith("2 of 2")
    assert any("Friedman over 2 datasets" in line for line in lines)

    def write_longer(dataset, *names):
        for name in names:
            experiment = experiment_of(dataset, name, 2000)
            last = [{**RARE[0], "step": 1999}]
            write_run(tmp_path / f"{dataset}-{name}", last, dataset, name, experiment=experiment, steps=2000)

    write_longer("Lost", "PRODEN", "CC", "LWS")
    assert "Friedman over 3 settings of 2 datasets (not independent" in run(*words).out
    write_longer("MSRCv2", "PRODEN", "CC")
    assert "Left out, with no figure in some dataset: LWS, Rare." in run(*words).out


def test_what_rests_on_fewer_runs_than_planned_is_said(tmp_path, run):
    write_sweep(tmp_path, algorithms=("PRODEN", "CC", "LWS"), n_trials=2, n_hparams=2)
    commands = [["stats", tmp_path], ["plot", "boxes", tmp_path, "--output", tmp_path / "boxes.svg"]]
    assert not any("planned" in run("results", *command).err for command in commands)
    (tmp_path / "Lost-CC-1-1" / "done").unlink()
    for command in commands:
        assert "4 of 24 cells do not rest on all planned runs" in run("results", *command).err


def test_command(sweep, run):
    out = run("results", "stats", sweep, "--criteria", "CR", "OA_ES", "--pairs").out
    said = ("average rank", "95 % bootstrap interval", "Friedman over 2 datasets", "Wilcoxon–Holm", "Regret")
    assert all(text in out for text in said)
    content = json.loads(run("results", "stats", sweep, "--json").out)
    assert set(content["by_criterion"]) == set(criteria)
    assert len(content["by_criterion"]["CR"]["pairs"]) == 6
    assert "--alpha" in run("results", "stats", sweep, "--alpha", "0", code=2).err


@pytest.mark.parametrize("n_trials", [1, 2])
def test_wins_without_standard_errors_are_said_to_be_so(tmp_path, n_trials):
    board = read_board(write_sweep(tmp_path, n_trials=n_trials, n_hparams=1))
    comparison = compare_algorithms(board, CR)
    legend = comparison_tables(comparison, 0.05, all_pairs=True)[1].legend
    n_means = len(board.settings) * len(board.algorithms)
    assert comparison["means_without_error"] == (n_means if n_trials == 1 else 0)
    assert (f"single split ({n_means} here)" in legend) == (n_trials == 1)
    values = gather_scores(board, CR).values
    if n_trials == 1:
        for pair, (a, b) in zip(comparison["pairs"], itertools.combinations(range(4), 2), strict=True):
            assert pair["wins"] == np.sum(values[:, a] > values[:, b])
            assert pair["ties"] == np.sum(values[:, a] == values[:, b])


def test_stats_say_where_nothing_can_be_significant(tmp_path, run):
    write_sweep(tmp_path, algorithms=("CC", "LWS", "NN"), n_trials=2, n_hparams=1)
    said = run("results", "stats", tmp_path).out
    assert "With 2 datasets no p (Wilcoxon–Holm) of 3 pairs can be below 1" in said
    assert "that takes 7 datasets (or 6 and a single pair" in said
    # By the tests themselves: one algorithm ahead everywhere.
    for n in (6, 7):
        found = wilcoxon_holm(np.outer(np.arange(1.0, n + 1), [0.0, 1.0, 2.0]))[0, 2]
        comparison = {"settings": range(n), "pairs": [{"p_wilcoxon_holm": found}] * 3}
        assert (describe_reach(comparison, 0.05) == "") == (found <= 0.05)
