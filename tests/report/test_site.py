"""The page's data, without a browser: what is written, how it is escaped, and the figures behind it."""

import json
import re
import shlex
import shutil
import sys
from dataclasses import replace
from itertools import combinations
from statistics import fmean, median

import numpy as np
import pytest
from scipy import stats

from plench.algorithms import algorithms
from plench.algorithms.registry import own_cards
from plench.cli import main
from plench.criteria import criteria
from plench.data import dataset_card, draw_candidates, load_dataset
from plench.report.criteria_quality import (
    average_quality,
    expect_by_number,
    judge_criteria,
    measure_subset_regret,
)
from plench.report.dataset_stats import describe_candidates
from plench.report.drawing import figure_style
from plench.report.run_figures import draw_sensitivity
from plench.report.site import as_script, group_warnings
from plench.report.site.content import as_text, describe_sensitivity, distinct, repeat_command
from plench.report.statistics import (
    compare_algorithms,
    compare_each_pair,
    describe_power,
    describe_test,
    smallest_effect,
    smallest_p,
)
from plench.runs import read_run, read_runs
from plench.runs.sweep_spec import SweepSpec, parse_sweep
from plench.sweeps.plan import make_grids
from tests.report.conftest import read_board, records, write_page
from tests.report.site_sweep import MARKUP, UNLABELLED, write_benchmark
from tests.synthetic_sweep import write_run, write_sweep

SOME = ("PRODEN", "CC", "GA", "EXP", "NN", "VALEN", "PiCO", "POP")


@pytest.fixture(scope="module")
def benchmark_runs(tmp_path_factory):
    return write_benchmark(tmp_path_factory.mktemp("bench") / "runs", names=SOME)


@pytest.fixture(scope="module")
def site(benchmark_runs):
    return write_page(benchmark_runs)


def chunk(site, name):
    """Return the value that a data script hands over."""
    (path,) = site.glob(f"data/*/{name}.js")
    text = path.read_text(encoding="ascii")
    start = f'plench.receive("{name}",'
    assert text.startswith(start)
    assert text.endswith(");\n")
    return json.loads(text[len(start) : -3])


# Scripts


@pytest.mark.parametrize(
    "text", ["</script><script>alert(1)", "a & b", "\u2028\u2029", "it's", "\u202eflipped"]
)
def test_a_script_holds_nothing_that_could_be_read_as_markup(text):
    script = as_script("x", {"name": text, "list": [text]})
    assert not re.search(r"[<>&'\u2028\u2029\u202e]", script)
    assert script.isascii()


def test_a_script_gives_values_back_and_nan_as_nothing():
    script = as_script("x", [1, 0.1, None, True, float("nan"), float("inf"), "ä\nb", '"\\'])
    value = json.loads(script.removeprefix('plench.receive("x",').removesuffix(");\n"))
    assert value == [1, 0.1, None, True, None, None, "ä\nb", '"\\']


def test_values_of_records_as_text():
    shown = {"1": 1, "yes": True, "none": None, "0.5": 0.5, "a": "a", "[1]": [1]}
    assert [as_text(value) for value in shown.values()] == list(shown)
    cleaned = "a\N{REPLACEMENT CHARACTER}"
    assert distinct(["a\x00", "a\x01", "b"]) == [cleaned, f"{cleaned} (2)", "b"]


# The site


def test_cells_are_those_of_the_leaderboard(site, benchmark_runs):
    index = chunk(site, "index")
    runs = read_runs(benchmark_runs)
    board = read_board(benchmark_runs)
    regrets = {(q.experiment, q.criterion.name): q.regret for q in judge_criteria(runs)}
    assert [entry["label"] for entry in index["settings"]] == [board.labels[s] for s in board.settings]
    assert [entry["name"] for entry in index["algorithms"]] == list(board.algorithms)
    labelled = [number for number, entry in enumerate(index["settings"]) if entry["labelled"]]
    seen = 0
    for cell in index["cells"]:
        s, a, c = cell["at"]
        if s in labelled:
            criterion = board.criteria[c]
            found = board.cell(board.settings[s], board.algorithms[a], criterion)
            figures = (cell["mean"], cell["std"], cell["se"], cell["n"])
            assert figures == (found.mean, found.std, found.stderr, found.n)
            assert cell["regret"] == regrets[found.experiment, criterion.name]
            assert [value for _, value in cell["splits"] if value is not None] == found.accuracies
            assert cell["lacking"] == (not found.complete)
            seen += 1
    assert seen == len(index["cells"]) - len(board.algorithms) * len(board.criteria)


def test_data_without_true_labels_show_the_criterion_itself(site, benchmark_runs):
    index = chunk(site, "index")
    (number,) = [n for n, entry in enumerate(index["settings"]) if entry["label"] == UNLABELLED]
    assert not index["settings"][number]["labelled"]
    board = read_board(benchmark_runs)
    a = board.algorithms.index("PRODEN")
    by_place = {tuple(cell["at"]): cell for cell in index["cells"]}
    chosen = board.cell(board.settings[number], "PRODEN", criteria["CR"]).choices
    assert by_place[number, a, 0]["mean"] == fmean(choice.score for choice in chosen)
    assert by_place[number, a, 0]["note"] == ""
    assert by_place[number, a, 2]["mean"] is None  # OA needs true labels


def test_markup_in_names_and_messages_stays_out_of_pages_and_scripts(site):
    for path in [*site.rglob("*.js"), *site.rglob("*.html")]:
        assert "<script>alert" not in path.read_text(encoding="utf-8"), path.name
    assert MARKUP in [entry["name"] for entry in chunk(site, "index")["algorithms"]]
    assert f"RuntimeError: {MARKUP} & more\nsecond line" in chunk(site, "provenance")["failures"][0]


def test_the_page_names_every_script_and_forbids_all_others(site):
    page = (site / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r"assets/([\w.]+)\?", page))
    assert named == {path.name for path in (site / "assets").iterdir()}
    assert not re.search(r"<script(?![^>]*src=)", page)
    assert "script-src 'self';" in page
    assert "unsafe" not in page
    assert "{{" not in page
    assert not re.search(r"https?:", page)


def test_no_script_of_ours_makes_markup_from_text(site):
    makers = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function")
    for path in (site / "assets").glob("*.js"):
        assert not makers.search(path.read_text(encoding="utf-8")), path.name


def test_unfinished_runs_and_failures_are_told(site):
    progress = chunk(site, "index")["progress"]
    assert not progress["complete"]
    assert progress["finished"] < progress["planned"]
    assert dict(map(tuple, progress["statuses"]))["failed"] == 1
    made = chunk(site, "provenance")
    assert len(made["diverged"]) == 4 * 3  # EXP, one configuration, on every dataset and split


def test_downloads_hold_every_run(site, benchmark_runs):
    lines = (site / "download" / "runs.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(read_runs(benchmark_runs))
    assert {path.name for path in (site / "download").iterdir()} == set(chunk(site, "index")["downloads"])


def test_the_records_are_a_download_that_gives_the_same_answers(site, benchmark_runs, cli):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (plench[report])")
    places = (benchmark_runs, site / "download" / "results.parquet")
    first, second = (cli("collect", place, "--format", "csv").out for place in places)
    assert first == second
    assert first.count("\n") > 10


def test_without_pyarrow_the_page_says_what_it_does_not_offer(tmp_path, capsys, monkeypatch):
    runs = write_sweep(tmp_path / "runs", algorithms=("CC", "PRODEN"), n_trials=2, n_hparams=1)
    write_page(runs)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    folder = write_page(runs)
    told = "results.parquet is not among the downloads: Parquet needs pyarrow"
    assert told in capsys.readouterr().err
    assert not (folder / "download" / "results.parquet").exists()
    assert chunk(folder, "index")["downloads"] == ["cells.csv", "choices.csv", "runs.csv"]
    assert any(told in warning for warning in chunk(folder, "provenance")["warnings"])


def test_the_page_is_written_again_until_all_planned_runs_have_ended(tmp_path, capsys, monkeypatch):
    runs, waited = tmp_path / "runs", []

    def write_runs():
        shutil.rmtree(runs, ignore_errors=True)
        names = {"datasets": ("Lost",), "algorithms": ("CC", "PRODEN")}
        write_sweep(runs, **names, n_trials=2 + len(waited), n_hparams=1)

    def sleep(seconds):
        """While the command waits, the runs of one more split come in, and after that those of the last."""
        waited.append(seconds)
        assert not chunk(tmp_path / "site", "index")["progress"]["complete"]
        write_runs()

    monkeypatch.setattr("plench.cli.report.time.sleep", sleep)
    write_runs()
    folder = write_page(runs, "--planned_trials", "4", "--every", "7")
    assert waited == [7.0, 7.0]
    assert capsys.readouterr().out.count("index.html") == 3
    progress = chunk(folder, "index")["progress"]
    assert (progress["complete"], progress["finished"], progress["planned"]) == (True, 8, 8)
    assert len(list((folder / "data").iterdir())) == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_every_wants_a_positive_number_of_seconds(seconds, sweep, tmp_path, cli):
    said = cli("report", sweep, "-o", tmp_path / "site", f"--every={seconds}", code=2).err
    assert "--every must be a positive number of seconds" in said
    assert not (tmp_path / "site").exists()


def test_writing_again_gives_the_same_bytes_and_newer_data_replace_older(tmp_path, capsys):
    runs = write_sweep(tmp_path / "runs", algorithms=("CC", "PRODEN"), n_trials=2, n_hparams=2)
    folder = write_page(runs)
    assert str(folder / "index.html") in capsys.readouterr().out
    first = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_page(runs)
    assert first == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_run(runs / "new", records(), "Lost", "LWS")
    write_page(runs)
    (data,) = (folder / "data").iterdir()
    assert (folder / "stamp.txt").read_text().strip() == data.name
    assert data.name in (folder / "index.html").read_text()


def test_a_folder_with_something_else_is_refused_untouched(tmp_path, sweep, cli):
    (tmp_path / "index.html").write_text("my own page")
    assert "is not a folder of plench report" in cli("report", sweep, "-o", tmp_path, code=2).err
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert (tmp_path / "index.html").read_text() == "my own page"


def test_public_folders_make_a_page_too(tmp_path):
    site = write_page(write_sweep(tmp_path / "runs", n_trials=2, n_hparams=2, public=True))
    index = chunk(site, "index")
    assert {entry["family"] for entry in index["algorithms"]} == {"unknown"}
    assert chunk(site, "cell-0-0")["runs"][0]["command"] is None
    assert "defective" in index["criteria"][1]["title"]


def test_times_of_stacked_runs_are_not_the_cost_of_their_method(tmp_path):
    for number, (algorithm, size) in enumerate([("CC", 3), ("PRODEN", 1), ("PRODEN", 3)]):
        info = {"timings": {"training_seconds": 7.0 * (number + 1)}, "fleet_size": size}
        write_run(tmp_path / "runs" / str(number), records(), "Lost", algorithm, number, info=info)
    site = write_page(tmp_path / "runs")
    assert chunk(site, "algorithm-0")["cost"] == [[0, 1, None, None, None]]
    assert chunk(site, "algorithm-1")["cost"] == [[0, 2, 0.001, 14.0, None]]


def test_methods_fitted_in_rounds_stand_in_the_tables_of_the_others(site, benchmark_runs):
    index = chunk(site, "index")
    assert len(index["settings"]) == 4  # none of their own
    by_name = {entry["name"]: entry for entry in index["algorithms"]}
    assert (by_name["LR_EM"]["classical"], by_name["LR_EM"]["budget"]) == (True, "4 rounds")
    assert (by_name["CC"]["classical"], by_name["CC"]["budget"]) == (False, "10,000 steps")
    a = list(by_name).index("LR_EM")
    own = [run for run in read_runs(benchmark_runs) if run.experiment.algorithm == "LR_EM"]
    assert sum(len(chunk(site, f"cell-{s}-{a}")["runs"]) for s in range(4)) == len(own)
    rows = (site / "download" / "runs.csv").read_text(encoding="utf-8").splitlines()
    assert sum(row.startswith("Lost,Lost,LR_EM,") for row in rows) == len(own) / 4
    lost = [entry["label"] for entry in index["settings"]].index("Lost")
    quality = {table["by"]: table["rows"] for table in chunk(site, "criteria")["tables"]}
    assert quality["dataset"][lost][0]["n_experiments"] == len(by_name)


def test_class_names_of_records_name_the_flipping_matrix(tmp_path):
    names = [f"class <{n}>" for n in range(16)]
    info = {"dataset": {"name": "Lost", "n_classes": 16, "class_names": names}}
    write_run(tmp_path / "runs" / "one", records(), info=info)
    assert chunk(write_page(tmp_path / "runs"), "dataset-0")["classes"] == names


def test_planned_runs_of_what_never_started_count_as_unfinished(tmp_path):
    runs = write_sweep(tmp_path / "runs", algorithms=("CC",), datasets=("Lost",), n_trials=2, n_hparams=2)
    spec = SweepSpec(make_grids(["CC", "PRODEN"], ["Lost", "MSRCv2"], n_hparams=2, n_trials=2, steps=1000))
    spec.write(runs / spec.file_name)
    site = write_page(runs)
    progress = chunk(site, "index")["progress"]
    assert (progress["finished"], progress["planned"], progress["complete"]) == (4, 16, False)
    ((name, text, _),) = chunk(site, "provenance")["sweeps"]
    assert (name, text) == (spec.file_name, spec.to_toml())


def test_the_flipping_matrix_is_measured_where_the_data_are(tmp_path):
    options = ["--steps", "4", "--checkpoint_freq", "2", "--output_dir", str(tmp_path / "runs")]
    assert main(["train", "-a", "CC", "-d", "Digits_FPS", *options]) == 0
    assert chunk(write_page(tmp_path / "runs"), "dataset-0")["measured"] is None
    site = write_page(tmp_path / "runs", "--data_dir", str(tmp_path))
    measured = chunk(site, "dataset-0")["measured"]
    drawn = draw_candidates(load_dataset("Digits_FPS"), dataset_card("Digits_FPS").candidates, 0)
    expected = describe_candidates(drawn.candidates, drawn.labels)
    assert np.array(measured["flipping"]) == pytest.approx(expected.flipping, abs=1e-4)
    assert measured["mean_size"] == expected.mean_size


# Figures behind it


def test_expected_best_of_k_is_the_mean_over_all_subsets():
    rng = np.random.default_rng(0)
    m, n_offering = 7, 5
    values = list(rng.uniform(size=n_offering))  # by rank: the first is chosen wherever it is drawn
    found = expect_by_number(values, m, m)
    for k in range(1, m + 1):
        chosen = [values[min(subset)] for subset in combinations(range(m), k) if min(subset) < n_offering]
        assert found[k - 1] == pytest.approx(fmean(chosen), abs=1e-12)


def test_regret_of_all_configurations_is_the_regret_of_statistics(runs):
    shown = tuple(criteria.values())
    found = measure_subset_regret(runs, shown)
    judged = average_quality(judge_criteria(runs), "all")
    assert found.n_left_out == 0
    for criterion, curve in zip(shown, found.regrets, strict=True):
        assert len(curve) == 4
        assert curve[-1] == pytest.approx(judged[criterion.name, "all"].regret, abs=1e-12)


def test_an_experiment_with_fewer_configurations_does_not_cut_the_others(tmp_path):
    root = write_sweep(tmp_path, algorithms=("CC", "PRODEN", "NN"), datasets=("Lost",), n_hparams=5)
    for trial in range(3):
        write_run(root / f"few{trial}", records(0.5, trial), "Lost", "LWS", trial, 0)
    found = measure_subset_regret(read_runs(root), tuple(criteria.values()))
    assert (len(found.regrets[0]), found.n_experiments, found.n_left_out) == (5, 3, 1)


def test_pairs_agree_with_the_comparison_over_complete_algorithms(board):
    comparison = compare_algorithms(board, criteria["CR"])
    pairs = compare_each_pair(board, criteria["CR"])
    assert len(pairs) == len(comparison["pairs"])
    for pair, other in zip(pairs, comparison["pairs"], strict=True):
        names = [board.algorithms[pair.first], board.algorithms[pair.second]]
        assert names == [other["first"], other["second"]]
        assert (pair.wins, pair.ties, pair.losses) == (other["wins"], other["ties"], other["losses"])
        assert pair.p_holm == pytest.approx(other["p_wilcoxon_holm"])


def test_a_pair_is_compared_on_the_datasets_both_have(site, benchmark_runs):
    board = read_board(benchmark_runs)
    pairs = compare_each_pair(board, criteria["CR"])
    by_names = {(board.algorithms[pair.first], board.algorithms[pair.second]): pair for pair in pairs}
    both = by_names["CC", "PRODEN"]
    assert (both.n_datasets, by_names["PRODEN", "VALEN"].n_datasets) == (3, 2)
    assert "3 datasets" in describe_test(both, 10)
    assert "Power: none" in describe_power(both)


def test_the_detectable_difference_is_found_four_times_in_five():
    n = 8
    effect = smallest_effect(n)
    rng = np.random.default_rng(0)
    samples = rng.normal(effect, 1, size=(20_000, n))
    assert np.mean(stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.01)
    assert smallest_effect(5) is None
    assert smallest_p(5) == stats.wilcoxon(np.arange(1, 6)).pvalue


def test_sensitivity_averages_to_nothing_and_finds_what_matters(tmp_path):
    for configuration in range(12):
        own = records(0.3 + 0.05 * configuration, configuration, n_validation=1000)
        hparams = {"lr": 10.0 ** (-configuration / 4), "kind": "a" if configuration % 2 else "b"}
        write_run(tmp_path / str(configuration), own, "Lost", "CC", 0, configuration, hparams=hparams)
    runs = read_runs(tmp_path)
    kind, lr = describe_sensitivity(runs, criteria["OA"])
    assert (kind["name"], lr["name"]) == ("kind", "lr")
    assert lr["rho"] < -0.8
    assert lr["log"]
    assert median(point[1] for point in lr["points"]) == pytest.approx(0, abs=1e-3)
    assert [entry[:3] for entry in kind["bins"]] == [["a", 0, 6], ["b", 1, 6]]


def test_page_and_command_line_have_the_same_numbers(tmp_path, cli):
    names = ("CC", "LWS", "PRODEN")
    runs_folder = write_sweep(tmp_path / "runs", algorithms=names, n_trials=5, n_hparams=10)
    said = json.loads(cli("results", "stats", runs_folder, "--json").out)
    page = write_page(runs_folder)
    regrets = {row["criterion"]: row["regret"] for row in said["criteria"] if row["by"] == "all"}
    for c, (name, found) in enumerate(said["by_criterion"].items()):
        limits = chunk(page, "index")["intervals"][c]["limits"]
        assert limits == [pytest.approx(found["rank_intervals"]["over_splits"][a]) for a in names]
        for pair, told in zip(chunk(page, f"pairs-{c}")["pairs"], found["pairs"], strict=True):
            assert [p for _, p in pair["splits"]] == pytest.approx([s["p_value"] for s in told["splits"]])
            assert pair["wtl"] == [told["wins"], told["ties"], told["losses"]]
        assert chunk(page, "criteria")["tables"][0]["rows"][0][c]["regret"] == pytest.approx(regrets[name])
    (shown,) = chunk(page, "algorithm-0")["sensitivity"][0]
    runs = [run for run in read_runs(runs_folder) if run.experiment.algorithm == "CC"]
    with figure_style():
        axes = draw_sensitivity(runs, criteria["CR"]).axes[0]
    bars = [line.get_ydata()[0] for line in axes.lines if line.get_linewidth() == 1.3]
    assert bars == pytest.approx([100 * entry[3] for entry in shown["bins"]])


def test_provenance_has_commands_with_all_that_matters(tmp_path):
    runs = write_sweep(tmp_path / "runs", n_trials=1, n_hparams=1)
    launched = {"stack": 4, "stack_memory_gb": 0.5, "workers": 2}
    spec = SweepSpec(make_grids(["PRODEN"], ["Lost", "Digits_FPS"]), {}, launched)
    spec.write(runs / spec.file_name)
    assert parse_sweep(spec.to_toml(), "x") == spec
    assert spec.file_name == replace(spec, launched={}).file_name, "what was asked is the same"
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps([{"algorithm": "CC", "dataset": "Lost", "ms": 1.0}]))
    options = ["--datasets", "Lost", "--criteria", "CR", "--costs", str(costs), "--data-dir", str(tmp_path)]
    page = write_page(runs, *options)
    told = chunk(page, "provenance")
    more = f"--output {page} --datasets Lost --criteria CR --data-dir {tmp_path} --costs {costs}"
    assert told["command"] == f"plench report {runs} {more}"
    assert told["sweeps"][0][2] == (
        f"plench sweep launch --file {spec.file_name} --output-dir RUNS --data-dir {tmp_path} "
        "--stack 4 --stack-memory-gb 0.5 --workers 2"
    )
    command = chunk(page, "cell-0-0")["runs"][0]["command"]
    assert command.endswith(f"--data-dir {tmp_path}")
    assert repeat_command(read_run(runs / "Lost-CC-0-0")).endswith("--data-dir DATA")


def test_every_algorithm_of_ours_has_its_objective():
    assert all(card.objective for card in own_cards().values())
    assert set(own_cards()) == set(algorithms())


def test_the_same_warning_is_told_once():
    many = [f"run{n}/results.jsonl: loss is NaN" for n in range(10)]
    assert group_warnings([*many, "a: b", "plain"]) == [
        "loss is NaN: in 10 files, such as run0/results.jsonl, run1/results.jsonl",
        "a: b",
        "plain",
    ]


@pytest.mark.parametrize("algorithm", ["PRODEN", "PL_KNN"])
def test_the_command_repeats_the_run(algorithm, tmp_path, capsys):
    options = ["--steps=12", "--checkpoint_freq=4", "--trial_seed=1", "--hparams_seed=2", "--fps_rate=0.4"]
    command = ["train", "-a", algorithm, "-d", "Digits_FPS", *options]
    assert main([*command, "--output_dir", str(tmp_path / "a")]) == 0
    (folder,) = [path for path in (tmp_path / "a").iterdir() if path.is_dir()]
    run = read_run(folder)
    words = shlex.split(repeat_command(run))
    assert words[:2] == ["plench", "train"]
    capsys.readouterr()
    assert main([*words[1:], "--output_dir", str(tmp_path / "b")]) == 0
    assert "warning" not in capsys.readouterr().err
    again = read_run(tmp_path / "b" / folder.name)  # the same name: the same identity
    first, second = (
        [[record.get(key) for key in ("test_acc", "val_covering_rate", "loss")] for record in one.records]
        for one in (run, again)
    )
    assert first == second
