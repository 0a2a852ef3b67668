"""Statistics against published examples, brute force and closed forms."""

import itertools
import json
import math
import shutil

import numpy as np
import pytest
from scipy import stats

from plench.criteria import criteria
from plench.errors import UsageError
from plench.report.criteria_quality import average_quality, correlate_with_test, judge_criteria
from plench.report.leaderboard import bootstrap_ranks
from plench.report.statistics import (
    adjust_holm,
    compare_algorithms,
    compare_columns,
    compare_splits,
    comparison_tables,
    corrected_t_test,
    critical_difference,
    describe_reach,
    find_groups,
    find_interval,
    friedman,
    gather_scores,
    nemenyi,
    signed_rank_p,
    wilcoxon_holm,
)
from plench.report.tables import build_tables
from plench.runs import read_runs
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


def test_below_five_splits_an_interval_is_that_of_a_t_test():
    sample = [0.61, 0.58, 0.66, 0.60]
    expected = stats.t.interval(0.95, 3, loc=np.mean(sample), scale=stats.sem(sample))
    found = find_interval([sample])
    assert (found["low"], found["high"]) == pytest.approx(expected)
    assert found["method"] == "t"
    # Two samples of the same spread: Welch's degrees of freedom are those of both together.
    both = find_interval([sample, [value + 0.1 for value in sample]])
    reach = stats.t.ppf(0.975, 6) * stats.sem(sample) / math.sqrt(2)
    assert both["high"] - both["mean"] == pytest.approx(reach)
    assert find_interval([[0.5, 0.5], [0.7, 0.7]])["low"] == pytest.approx(0.6)
    assert find_interval([[*sample, 0.63]])["method"] == "bootstrap"


def test_corrected_t_test_by_its_formula():
    differences = [0.02, 0.05, -0.01, 0.03, 0.04]
    t = np.mean(differences) / math.sqrt(np.var(differences, ddof=1) * (1 / 5 + 0.125))
    assert corrected_t_test(differences, 0.125) == pytest.approx(2 * stats.t.sf(t, 4))
    assert corrected_t_test(differences, 0.0) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert corrected_t_test([0.01, 0.01], 0.1) is None
    assert corrected_t_test([0.0, 0.0], 0.1) == 1.0
    assert corrected_t_test([0.3], 0.1) is None


def test_splits_are_compared_in_pairs_with_the_recorded_sizes(tmp_path):
    board = read_board(write_sweep(tmp_path, n_trials=5, n_hparams=1))
    lost, _ = compare_splits(board, CR, "CC", "LWS")
    cells = [board.cell(board.settings[0], name, CR).accuracies for name in ("CC", "LWS")]
    differences = np.subtract(*cells)
    assert (lost["dataset"], lost["n_splits"]) == ("Lost", 5)
    assert lost["difference"] == pytest.approx(differences.mean())
    assert lost["p_value"] == pytest.approx(corrected_t_test(differences, 113 / 909))


def test_splits_with_one_test_set_differ_in_what_is_held_out(tmp_path):
    """A larger test set of its own does not make the test weaker."""
    sizes = {"n_train": 900, "n_validation": 100, "n_test": 1188, "sizes": {"examples": 1000}}
    for name, trial in itertools.product(("CC", "LWS"), range(5)):
        own = records(0.5, trial + 10 * (name == "CC"))
        write_run(tmp_path / f"{name}-{trial}", own, "Own", name, trial, info={"dataset": sizes})
    board = read_board(tmp_path)
    (found,) = compare_splits(board, CR, "CC", "LWS")
    cells = [board.cell(board.settings[0], name, CR).accuracies for name in ("CC", "LWS")]
    assert found["p_value"] == pytest.approx(corrected_t_test(np.subtract(*cells), 100 / 900))


def test_a_dataset_with_several_settings_counts_once(tmp_path):
    write_sweep(tmp_path, datasets=("A", "B"), n_trials=2, n_hparams=1)
    for name, accuracy in (("CC", 0.9), ("LWS", 0.1), ("NN", 0.5)):  # PRODEN lacks this setting
        longer = {"experiment": experiment_of("A", name, 2000), "steps": 2000}
        for trial in range(2):
            last = [{**records()[-1], "step": 1999, "test_acc": accuracy}]
            write_run(tmp_path / f"long-{name}-{trial}", last, "A", name, trial, **longer)
    board = read_board(tmp_path)
    assert [len(settings) for settings in board.datasets.values()] == [2, 1]
    means = board.dataset_means("A", CR)
    short = next(s for s in board.datasets["A"] if s.steps == 1000)
    assert means["CC"] == pytest.approx((board.cell(short, "CC", CR).mean + 0.9) / 2)
    assert "PRODEN" not in means
    scores = gather_scores(board, CR)
    assert (scores.values.shape, scores.left_out) == ((2, 3), ("PRODEN",))
    comparison = compare_algorithms(board, CR)
    assert comparison["n_datasets_of"] == {"CC": 2, "LWS": 2, "NN": 2, "PRODEN": 1}
    assert comparison["means"]["CC"] == pytest.approx(
        (means["CC"] + board.cell(board.settings[-1], "CC", CR).mean) / 2
    )
    assert {n for _, n in board.rank(CR).values()} == {1, 2}
    title = build_tables(board)[-1].title
    assert title == "Average rank over 2 datasets"
    judged = judge_criteria(read_runs(tmp_path), [CR])
    everything = average_quality(judged, "all")["CR", "all"]
    assert everything.n_experiments == 8  # four algorithms on two datasets, of 11 experiments


def test_rank_intervals_by_brute_force(tmp_path):
    """Two algorithms, one dataset, five splits: the first is ahead in a resample with a known chance."""
    for trial, (first, second) in enumerate([(0.9, 0.5), (0.8, 0.5), (0.7, 0.5), (0.1, 0.5), (0.2, 0.5)]):
        for name, accuracy in (("CC", first), ("LWS", second)):
            last = [{**records()[-1], "test_acc": accuracy}]
            write_run(tmp_path / f"{name}{trial}", last, "A", name, trial)
    board = read_board(tmp_path)
    found = bootstrap_ranks(board, CR, board.algorithms)
    draws = itertools.product(range(5), repeat=5)
    ahead = [sum((0.4, 0.3, 0.2, -0.4, -0.3)[i] for i in draw) > 1e-9 for draw in draws]
    assert 0.025 < np.mean(ahead) < 0.975
    assert found.over_splits == {"CC": (1.0, 2.0), "LWS": (1.0, 2.0)}
    assert found.over_datasets is None
    assert found.reasons == ("no rank intervals over datasets: there are 1, and 5 are needed",)


def test_rank_intervals_need_five_splits_or_datasets_and_hold_the_rank(tmp_path, cli):
    few = read_board(write_sweep(tmp_path / "few", n_trials=4, n_hparams=1))
    found = bootstrap_ranks(few, CR, few.algorithms)
    assert (found.over_splits, found.over_datasets) == (None, None)
    assert "only 4 splits that all algorithms share" in found.reasons[0]
    names = tuple("ABCDEF")
    folder = write_sweep(tmp_path / "many", datasets=names, n_trials=5, n_hparams=1)
    board = read_board(folder)
    found = bootstrap_ranks(board, CR, board.algorithms)
    for algorithm, (rank, _) in board.rank(CR).items():
        inner, outer = found.over_splits[algorithm], found.over_datasets[algorithm]
        assert inner[0] <= rank <= inner[1]
        assert outer[0] <= rank <= outer[1]
        assert outer[1] - outer[0] > 0
    write_run(folder / "rare", records(), "A", "Rare")  # on one of six datasets: no interval over datasets
    gapped = read_board(folder)
    assert "Rare" not in bootstrap_ranks(gapped, CR, gapped.algorithms).over_datasets
    assert bootstrap_ranks(gapped, CR, gapped.algorithms).over == "datasets"  # A has one split that all share
    shutil.rmtree(folder / "rare")
    out = cli("results", "stats", folder, "--criteria", "CR").out
    assert all(text in out for text in ("95 % over splits", "95 % over datasets", "corrected resampled"))
    table = cli("collect", folder, "--criteria", "CR", "--format", "latex").out
    best, (low, high) = min((r, found.over_datasets[a]) for a, (r, _) in board.rank(CR).items())
    assert f"{best:.2f} [{low:.1f} to {high:.1f}] (n=6)" in table
    assert "bootstrap over datasets and splits" in table


def test_bootstrap_interval_of_a_mean():
    rng = np.random.default_rng(0)
    samples = [list(rng.normal(0.6, 0.05, size=40)), list(rng.normal(0.8, 0.05, size=40))]
    interval = find_interval(samples)
    expected = (np.mean(samples[0]) + np.mean(samples[1])) / 2
    half = 1.96 * math.sqrt(np.var(samples[0]) / 40 + np.var(samples[1]) / 40) / 2
    assert interval["mean"] == pytest.approx(expected)
    assert interval["low"] == pytest.approx(expected - half, abs=0.1 * half)
    assert interval["high"] == pytest.approx(expected + half, abs=0.1 * half)
    assert find_interval(samples) == interval


def test_bootstrap_with_single_splits(tmp_path, cli):
    assert find_interval([[0.5], [0.7]]) is None
    assert find_interval([]) is None
    assert find_interval([[0.5], [0.6, 0.8]]) is None
    board = read_board(write_sweep(tmp_path, n_trials=1, n_hparams=1))
    expected = np.mean([board.cell(s, "CC", CR).mean for s in board.settings])
    words = ["results", "stats", tmp_path, "--criteria", "CR"]
    content = json.loads(cli(*words, "--json").out)["by_criterion"]["CR"]
    assert content["intervals"]["CC"] is None
    assert content["means"]["CC"] == pytest.approx(expected)
    assert f"{100 * expected:.2f}" in cli(*words).out


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


def test_correlation_is_absent_where_it_is_not_defined(tmp_path):
    for configuration in range(3):
        record = {"step": 999, "val_covering_rate": 0.5, "val_accuracy": 0.5, "test_acc": configuration / 10}
        write_run(tmp_path / str(configuration), [record], hparams_seed=configuration)
    (quality,) = judge_criteria(read_runs(tmp_path), [CR])
    assert (quality.rank_correlation, quality.n_correlation) == (None, 0)


def test_quality_of_criteria_keeps_settings_apart_and_says_over_how_many_it_is(tmp_path, gapped, cli):
    for steps, h in itertools.product((500, 1000), range(3)):
        write_run(
            tmp_path / f"{steps}{h}", records(0.4 + h / 10, h, steps=steps), "Lost", "CC", 0, h, steps=steps
        )
    rows = json.loads(cli("results", "stats", tmp_path, "--criteria", "CR", "--json").out)["criteria"]
    assert {r["of"] for r in rows if r["by"] == "dataset"} == {"Lost (steps 1000)", "Lost (steps 500)"}
    out = cli("results", "stats", gapped, "--criteria", "CR", "OA").out.split("Criteria by algorithm")[1]
    words = (line.split() for line in out.split("\n") if line[:3] in ("CC ", "LWS", "EXP"))
    found = {name: more for name, *more in words}
    assert [found[name][0] for name in ("CC", "LWS", "EXP")] == ["2", "1", "2"]
    assert ["(1)," in found[name] for name in ("CC", "LWS", "EXP")] == [False, False, True]


def test_command_says_what_means_and_tests_rest_on(tmp_path, cli):
    write_sweep(tmp_path, algorithms=("PRODEN", "CC", "LWS"), n_trials=2, n_hparams=1)
    write_run(tmp_path / "x", RARE, "Lost", "Rare")
    words = ["results", "stats", tmp_path, "--criteria", "CR"]
    lines = cli(*words).out.splitlines()
    assert next(line for line in lines if line.startswith("Rare")).endswith("1 of 2")
    assert next(line for line in lines if line.startswith("CC")).endswith("2 of 2")
    assert any("Friedman over 2 datasets" in line for line in lines)

    def write_longer(dataset, *names):
        for name in names:
            experiment = experiment_of(dataset, name, 2000)
            last = [{**RARE[0], "step": 1999}]
            write_run(tmp_path / f"{dataset}-{name}", last, dataset, name, experiment=experiment, steps=2000)

    write_longer("Lost", "PRODEN", "CC", "LWS")
    said = cli(*words).out
    assert "Friedman over 2 datasets" in said
    assert "Settings per dataset: Lost 2. A dataset counts once, with the mean over its settings" in said
    write_longer("MSRCv2", "PRODEN", "CC")
    assert "Left out, with no figure in some dataset: LWS, Rare." in cli(*words).out


def test_what_rests_on_fewer_runs_than_planned_is_said(tmp_path, cli):
    write_sweep(tmp_path, algorithms=("PRODEN", "CC", "LWS"), n_trials=2, n_hparams=2)
    commands = [["stats", tmp_path], ["plot", "boxes", tmp_path, "--output", tmp_path / "boxes.svg"]]
    assert not any("planned" in cli("results", *command).err for command in commands)
    (tmp_path / "Lost-CC-1-1" / "done").unlink()
    incomplete = f"{len(criteria)} of {2 * 3 * len(criteria)} cells"
    for command in commands:
        assert f"{incomplete} do not rest on all planned runs" in cli("results", *command).err


def test_command(sweep, cli):
    out = cli("results", "stats", sweep, "--criteria", "CR", "OA_ES", "--pairs").out
    said = ("average rank", "95 % interval", "(t)", "Friedman over 2 datasets", "Wilcoxon–Holm", "Regret")
    assert all(text in out for text in said)
    content = json.loads(cli("results", "stats", sweep, "--json").out)
    assert set(content["by_criterion"]) == set(criteria)
    assert len(content["by_criterion"]["CR"]["pairs"]) == 6
    assert "--alpha" in cli("results", "stats", sweep, "--alpha", "0", code=2).err


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


def test_stats_say_where_nothing_can_be_significant(tmp_path, cli):
    write_sweep(tmp_path, algorithms=("CC", "LWS", "NN"), n_trials=2, n_hparams=1)
    said = cli("results", "stats", tmp_path).out
    assert "With 2 datasets no p (Wilcoxon–Holm) of 3 pairs can be below 1" in said
    assert "that takes 7 datasets (or 6 and a single pair" in said
    # By the tests themselves: one algorithm ahead everywhere.
    for n in (6, 7):
        found = wilcoxon_holm(np.outer(np.arange(1.0, n + 1), [0.0, 1.0, 2.0]))[0, 2]
        comparison = {"datasets": range(n), "pairs": [{"p_wilcoxon_holm": found}] * 3}
        assert (describe_reach(comparison, 0.05) == "") == (found <= 0.05)
