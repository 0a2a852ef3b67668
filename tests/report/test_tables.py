"""Tables and rows in every format: figures, marks, notes, what was planned, odd names, copies of runs."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import product

import pytest

import plench
from plench.cli import main as main_cli
from plench.collect_results import main
from plench.criteria import criteria
from plench.errors import UsageError
from plench.report.leaderboard import split_by_truth
from plench.report.results import cell_rows, read_results
from plench.report.statistics import compare_algorithms
from plench.report.tables import (
    build_tables,
    escape_latex,
    escape_markdown,
    is_within,
    render_text,
)
from plench.runs import drop_copies, read_runs
from plench.text import clean, guard_formula
from tests.report.conftest import plan, read_board, records
from tests.synthetic_sweep import experiment_of, write_run, write_sweep

CR = criteria["CR"]


def test_best_is_marked_and_ties_within_one_standard_error(board):
    for grid, setting in zip(build_tables(board), board.settings, strict=False):
        for column, criterion in enumerate(board.criteria):
            best = max((board.cell(setting, a, criterion) for a in board.algorithms), key=lambda c: c.mean)
            for algorithm, entries in grid.rows:
                entry, mean = entries[column], board.cell(setting, algorithm, criterion).mean
                assert entry.best == (mean == best.mean)
                assert entry.tied == (best.mean - best.stderr <= mean < best.mean)


def test_a_difference_of_just_one_standard_error_is_a_tie(tmp_path):
    """Accuracies are shares of few examples: 0.9694… less 0.0083… must be 0.9611…, whatever the rounding."""
    for name, hits in (("CC", (346, 352)), ("LWS", (340, 352)), ("NN", (340, 351))):
        for trial, n in enumerate(hits):
            last = [{**records()[-1], "test_acc": n / 360}]
            write_run(tmp_path / f"{name}{trial}", last, "Lost", name, trial)
    board = read_board(tmp_path)
    best, tied, below = (board.cell(board.settings[0], name, CR) for name in ("CC", "LWS", "NN"))
    assert best.mean - best.stderr == pytest.approx(tied.mean, abs=1e-12)
    assert is_within(tied, best)
    assert not is_within(below, best)


def test_an_algorithm_absent_from_a_setting_is_ranked_where_it_is_and_never_the_best(tmp_path):
    write_sweep(tmp_path, algorithms=("CC", "LWS"), n_trials=2, n_hparams=1)
    perfect = [{**record, "test_acc": 1.0} for record in records()]
    write_run(tmp_path / "extra", perfect, "Lost", "NN")
    write_run(tmp_path / "alone", perfect, "Birdsong", "NN")
    board = read_board(tmp_path)
    ranks = board.rank(board.criteria[0])
    assert ranks["NN"] == (1.0, 1)
    assert {ranks[name][1] for name in ("CC", "LWS")} == {2}
    assert {row["ranked_settings"] for row in cell_rows(board) if row["algorithm"] == "NN"} == {1}
    rows = dict(build_tables(board)[-1].rows)
    assert not rows["NN"][0].best
    assert rows[min(("CC", "LWS"), key=lambda name: ranks[name][0])][0].best
    assert "–" in render_text(build_tables(board, by="criterion"))


def test_without_true_labels_the_lowest_is_the_best_where_lower_is_better(tmp_path):
    loss = replace(CR, name="loss", title="Loss", record_key="loss", higher_is_better=False)
    unlabelled = {**records()[-1], "test_acc": None, "val_accuracy": None}
    for (name, value), dataset, trial in product({"CC": 0.2, "LWS": 0.5, "NN": 0.9}.items(), "AB", range(2)):
        last = [{**unlabelled, "loss": value + trial / 100}]
        write_run(tmp_path / f"{dataset}{name}{trial}", last, dataset, name, trial)
    board = read_board(tmp_path, [loss])
    for grid in build_tables(board):
        assert [name for name, entries in grid.rows if entries[0].best] == ["CC"], grid.title
        assert all("chooses CC" in note for _, note in grid.notes)
    comparison = compare_algorithms(split_by_truth(board)[1], loss)
    assert comparison["average_ranks"] == {"CC": 1.0, "LWS": 2.0, "NN": 3.0}
    assert [pair["wins"] for pair in comparison["pairs"]] == [2, 2, 2]


def test_a_paper_has_tables_figures_their_numbers_and_what_was_done(sweep, board, tmp_path, cli):
    folder = tmp_path / "paper"
    said = cli("report", sweep, "--paper", folder, "--criteria", "CR")
    assert said.out == f"{folder / 'paper.tex'}\n"
    assert "rank-intervals-CR is not drawn" in said.err  # three splits
    document = (folder / "paper.tex").read_text()
    names = re.findall(r"input\{tables/([^}]+)\}", document)
    assert names == ["accuracy-CR", "ranks", "comparison-CR", "pairs-CR"]
    for name in names:
        table = (folder / "tables" / f"{name}.tex").read_text()
        assert rf"\label{{tab:{name}}}" in table
        assert re.findall(r"\\caption\{[^A-Z]", table) == []
        assert (folder / "csv" / f"{name}.csv").read_text().count("\n") > 1
    drawn = re.findall(r"figures/([^}]+)\.pdf", document)
    assert drawn == ["critical-difference-CR", "boxes", "criterion"]
    for name in drawn:
        assert (folder / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (folder / "csv" / f"{name}.csv").exists()
    rows = list(csv.DictReader(io.StringIO((folder / "csv" / "comparison-CR.csv").read_text())))
    expected = compare_algorithms(board, CR)["average_ranks"]
    assert {row["algorithm"]: float(row["average_rank"]) for row in rows} == pytest.approx(expected)
    protocol = (folder / "protocol.tex").read_text()
    for text in (r"PRODEN~\cite{lv2020progressive}", "10 \\% of a dataset", "For each of 3 splits, 4 config"):
        assert text in protocol
    assert "Of 96 planned runs 96 are finished, of which 0 diverged." in protocol
    assert "@inproceedings{lv2020progressive" in (folder / "references.bib").read_text()
    command = (folder / "commands.txt").read_text().splitlines()[-1]
    assert command == f"plench report {sweep} --paper {folder} --criteria CR"
    assert main_cli([*command.split()[1:]]) == 0, "the folder of an earlier paper is written again"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.tex").write_text("mine")
    said = cli("report", sweep, "--paper", tmp_path / "full", code=2).err
    assert "give a new or empty folder with --paper" in said
    assert "--output PATH for a page, --paper DIR" in cli("report", sweep, code=2).err


def test_a_criterion_more_is_a_column_more(tmp_path):
    """Selection and tables take any criterion whose figure the records have."""
    taken = [{**record, "val_margin": step / 10} for step, record in enumerate(records())]
    write_run(tmp_path / "a", taken)
    margin = replace(CR, name="margin", title="Margin", record_key="val_margin")
    board = read_board(tmp_path, [*criteria.values(), margin])
    assert board.cell(board.settings[0], "PRODEN", margin).mean == taken[-1]["test_acc"]
    assert "Margin" in render_text(build_tables(board))


def test_results_below_chance_are_flagged(tmp_path):
    for name, accuracy in (("CC", 0.05), ("LWS", 0.07)):
        write_run(tmp_path / name, [{**record, "test_acc": accuracy} for record in records()], "Lost", name)
    (grid,) = build_tables(read_board(tmp_path))
    notes = {name: [dict(grid.notes)[mark] for mark in entries[0].marks] for name, entries in grid.rows}
    assert "below chance: a guess among 16 classes has 6.25 %" in notes["CC"][0]
    assert not any("below chance" in note for note in notes["LWS"])


def test_settings_of_one_dataset_are_named_by_what_differs_and_can_be_chosen(tmp_path, cli):
    for number, change in enumerate([{}, {"model": "DenseNet"}, {"steps": 500}]):
        write_run(tmp_path / str(number), records(), experiment=experiment_of("Lost", "CC") | change)
    assert sorted(read_board(tmp_path).labels.values()) == [
        "Lost (model DenseNet, steps 1000)",
        "Lost (model MLP, steps 1000)",
        "Lost (model MLP, steps 500)",
    ]
    out = cli("collect", tmp_path, "--format", "csv", "--where", "steps=500", "model=MLP").out
    assert {row["steps"] for row in csv.DictReader(io.StringIO(out))} == {"500"}
    for condition, said in (("steps=7", "steps is 1000, 500"), ("colour=red", "with one of algorithm,")):
        assert said in cli("collect", tmp_path, "--where", condition, code=2).err


def test_methods_without_network_and_steps_stay_in_a_table_that_is_chosen_by_them(tmp_path):
    for steps in (500, 1000):
        write_run(tmp_path / f"CC-{steps}", records(steps=steps), "Lost", "CC", steps=steps)
    fitted = experiment_of("Lost", "LR_EM", 5, fitted=True, model=None)
    write_run(tmp_path / "LR_EM", records(steps=5, n_records=5), "Lost", "LR_EM", steps=5, experiment=fitted)

    def choose(*conditions):
        runs = read_results(tmp_path, where=conditions).runs
        return sorted((run.experiment.algorithm, run.experiment.steps) for run in runs)

    assert choose("steps=500", "model=MLP") == [("CC", 500), ("LR_EM", 5)]
    assert choose("steps=5") == [("LR_EM", 5)], "its own number of rounds"
    assert choose("algorithm=CC") == [("CC", 500), ("CC", 1000)]


def test_csv_json_parquet_and_frames_agree(sweep, cli, tmp_path):
    from pyarrow import parquet

    from_csv = list(csv.DictReader(io.StringIO(cli("collect", sweep, "--format", "csv").out)))
    from_json = json.loads(cli("collect", sweep, "--json").out)["cells"]
    cli("collect", sweep, "--format", "parquet", "--output", tmp_path / "t.parquet")
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == from_json
    means = [row["mean_test_accuracy"] for row in from_json]
    assert [float(row["mean_test_accuracy"]) for row in from_csv] == means
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
    results = plench.results(sweep)
    assert results.frame().mean_test_accuracy.tolist() == means
    assert len(results.frame("records")) == sum(len(run.records) for run in results.runs)
    for wrong in (("cell", "pandas"), ("cells", "numpy")):
        with pytest.raises(UsageError, match="expected"):
            results.frame(*wrong)


def test_command_filters_dashes_and_chosen(sweep, cli, board):
    out = cli("collect", sweep, "--algorithms", "l*", "--criteria", "oa with es", "cr").out
    assert "LWS" in out
    assert "PRODEN" not in out
    assert re.search(r"Algorithm +OA w/ ES +CR\n", out)
    for form in ("text", "markdown", "latex", "csv"):
        out = cli("collect", sweep, "--chosen", "--format", form).out
        assert str(board.cell(board.settings[0], "CC", board.criteria[0]).choices[0].record.step) in out
        assert "lr" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere"),
        (["{sweep}", "--algorithms", "zzz"], "expected one of CC, LWS, NN, PRODEN"),
        (["{sweep}", "--criteria", "zzz"], "unknown criterion 'zzz'"),
        (["{sweep}", "--format", "parquet"], "--output"),
        (["{sweep}", "--planned_trials", "0"], "must be from 1 to"),
        (["{empty}"], "no runs"),
        (["{sweep}", "--output", "/dev/null/x"], "cannot write"),
    ],
)
def test_command_bad_usage(sweep, tmp_path, capsys, words, said):
    """Also by the public benchmark's name of the command."""
    assert main(["--input_dir", *(word.format(sweep=sweep, empty=tmp_path) for word in words)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_reading_commands_import_no_torch(sweep, tmp_path):
    commands = [
        ["collect", str(sweep)],
        ["stats", str(sweep)],
        ["compare-paper", str(sweep)],
        ["plot", "ranks", str(sweep), "--output", str(tmp_path / "ranks.svg")],
        ["data", "stats", "Digits_FPS", "--output", str(tmp_path / "digits.svg")],
    ]
    code = (
        "import json, sys; import plench.report.site; from plench.cli import main; "
        "codes = [main(words) for words in json.loads(sys.argv[1])]; "
        "sys.exit(any(codes) or 'torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code, json.dumps(commands)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "OA w/ ES" in done.stdout


# What was planned.


def test_tables_say_what_was_planned_where_it_differs(cli, tmp_path):
    for name, dataset, algorithm in (("a", "Lost", "CC"), ("b", "Lost", "LWS"), ("c", "MSRCv2", "LWS")):
        write_run(tmp_path / name, records(), dataset, algorithm)
    plan(tmp_path, (("CC",), ("Lost",), {"n_hparams": 3, "n_trials": 4}))
    planned = "4 splits × 3 configurations (CC); 1 split × 1 configuration (LWS)"
    assert f"Planned: {planned}.\n" in cli("collect", tmp_path).out
    by_criterion = cli("collect", tmp_path, "--by", "criterion").out
    assert f"Planned: Lost: {planned}; MSRCv2: 1 split × 1 configuration." in by_criterion


def test_command_reads_what_a_sweep_was_asked_to_do(sweep, tmp_path, cli):
    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC", "LWS"), n_trials=2, n_hparams=2)
    plan(tmp_path, (("CC", "LWS", "PRODEN"), ("Lost",), {"n_hparams": 5, "n_trials": 3}))
    (tmp_path / "sweep-broken.toml").write_text("[[")
    said = cli("collect", tmp_path)
    assert "rests on 2 of 3 splits and 4 of 15 planned runs; 11 not started" in said.out
    assert "Lost: planned, but without any run: PRODEN" in said.err
    assert "sweep-broken.toml is not a TOML file" in said.err
    out = cli("collect", sweep, "--planned_hparams", 20, "--planned_trials", 5).out
    assert "rests on 3 of 5 splits and 12 of 100 planned runs; 88 not started" in out


@pytest.mark.parametrize(
    "change",
    [
        {"steps": None},
        {"pl_type": "uss"},
        {"holdout_fraction": 0.2},
        {"tabular_test_fraction": 0.2},
        {"hparams": {"model": "ResNet"}},
        {"precision": "bf16"},
    ],
)
def test_what_was_planned_of_another_setting_is_not_missed(tmp_path, cli, change):
    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC",), n_trials=2, n_hparams=2)
    plan(tmp_path, (("CC",), ("Lost",), {"n_hparams": 2, "n_trials": 2}))
    plan(tmp_path, (("CC",), ("Lost",), change))
    assert "rests on" not in cli("collect", tmp_path).out


def test_planned_datasets_and_algorithms_by_path_without_runs(tmp_path, cli):
    write_run(tmp_path / "a", records(), "Lost", "Mine@01234567")
    plan(tmp_path, (("some/file.py:Mine", "some/file.py:Other"), ("Lost", "MSRCv2"), {}), steps=None)
    assert [line for line in cli("collect", tmp_path).err.splitlines() if "planned" in line] == [
        "warning: Lost: planned, but without any run: some/file.py:Other",
        "warning: MSRCv2: planned, but without any run of any algorithm",
    ]
    assert "MSRCv2" not in cli("collect", tmp_path, "--datasets", "Lost").err


def test_grids_of_other_ranges_and_fewer_configurations_are_no_gaps(tmp_path, cli):
    """What was planned is a set of runs per algorithm, not all splits × configurations of a setting."""
    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC",), n_trials=2, n_hparams=3)
    write_run(tmp_path / "more", records(), "Lost", "CC", trial_seed=2, hparams_seed=5)
    write_run(tmp_path / "fewer", records(), "Lost", "LWS")
    later = {"n_hparams_from": 5, "n_hparams": 6, "n_trials_from": 2, "n_trials": 3}
    plan(
        tmp_path,
        (("CC",), ("Lost",), {"n_hparams": 3, "n_trials": 2}),
        (("CC",), ("Lost",), later),
        (("LWS",), ("Lost",), {"n_hparams": 1, "n_trials": 1}),
    )
    assert "rests on" not in cli("collect", tmp_path).out
    shutil.rmtree(tmp_path / "Lost-CC-1-2")
    out = cli("collect", tmp_path).out
    assert "rests on 3 of 3 splits and 6 of 7 planned runs; 1 not started" in out
    assert out.count("planned runs") == 1


# Copies of runs.


def test_copies_of_a_run_count_once_with_a_warning(tmp_path, cli):
    first, second = tmp_path / "first", tmp_path / "second"
    write_sweep(first, datasets=("Lost",), algorithms=("CC",), n_trials=2, n_hparams=2)
    alone = cli("collect", first)
    assert alone.err == ""
    twice = cli("collect", first, f"{first}/../first")
    assert twice.out == alone.out
    assert "first/../first: named more than once, read once" in twice.err
    shutil.copytree(first, second)
    shutil.copytree(first / "Lost-CC-0-0", second / "renamed")
    merged = cli("collect", first, second)
    assert merged.out == alone.out
    (warning,) = merged.err.splitlines()
    assert "5 folders are copies of runs that count once" in warning
    assert "second/Lost-CC-0-0" in warning


def test_of_copies_the_one_that_finished_counts(tmp_path):
    for name, status in (("a", "interrupted"), ("b", "done"), ("c", "done")):
        write_run(tmp_path / name / "run", records(), status=status)
    write_run(tmp_path / "d" / "run", records(), hparams_seed=1)
    write_run(tmp_path / "e" / "run", records(), public=True)
    write_run(tmp_path / "f" / "run", records(), public=True)
    kept, warnings = drop_copies(run for name in "abcdef" for run in read_runs(tmp_path / name))
    assert sorted(run.path.parent.name for run in kept) == ["b", "d", "e", "f"]
    assert warnings == ["2 folders are copies of runs that count once; left out: a/run, c/run"]


# Formats.


def test_tables_fit_into_a_terminal_and_say_what_is_left_out(board):
    whole = max(len(line) for line in render_text(build_tables(board)[:1]).splitlines()[:3])
    for width in (200, 80, 60, 40):
        text = render_text(build_tables(board), width)
        assert max(len(line) for line in text.splitlines()) <= width
        for cell in board.cells.values():  # no number is cut
            if cell.criterion.name == "CR":
                assert f"{100 * cell.mean:5.2f} ± {100 * cell.std:.2f}" in text
        assert ("a wider window" in " ".join(text.split())) == (width < whole)
    assert render_text(build_tables(board)) == render_text(build_tables(board), 10_000)


def test_standard_errors_may_be_left_out(sweep, board, cli):
    text = cli("collect", sweep, "--format", "latex", "--without_error").out
    cell = next(iter(board.cells.values()))
    assert f"{100 * cell.mean:.2f} ± {100 * cell.std:.2f}".replace("±", r"$\pm$") in text
    assert "[" not in re.sub(r"\[ht\]|\\\\\[.*?\]", "", text)
    assert "standard error of the mean" not in text


def test_escapes():
    assert escape_latex("a_b\\c") == r"a\_b\textbackslash{}c"
    assert escape_markdown("<b>|`") == r"&lt;b&gt;\|\`"
    assert guard_formula("=1+1") == "'=1+1"
    assert guard_formula("PiCO+") == "PiCO+"
    assert clean("x" * 100) == "x" * 47 + "…"


ODD_NAMES = (
    *("a|b", "<script>alert(1)</script>", "*bold*", "[l](u)", r"\input{/etc/passwd}_50%&#$~^", "=1+1"),
    *("\x1b[31mred\x07\u202e" + "名" * 400, "lone \ud800 surrogate"),
)


def test_odd_names_break_no_format(tmp_path, cli):
    for number, name in enumerate(ODD_NAMES):
        experiment = experiment_of("Lost", name, model=name if number else "MLP")
        write_run(
            tmp_path / str(number), records(), experiment=experiment, hparams={"model": name, name: name}
        )
    write_run(tmp_path / "long", records(), dataset="D" * 3000)
    folder = os.fsencode(tmp_path) + b"/bad\x1b\xff"
    os.mkdir(folder)
    with open(folder + b"/results.jsonl", "w") as file:
        file.write("{]\n")
    shown = {}
    for form in ("text", "markdown", "latex", "csv", "json"):
        for more in ([], ["--chosen"]):
            said = cli("collect", tmp_path, "--format", form, *more)
            shown.setdefault(form, said.out)
            for text in (said.out, said.err):
                assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)
                text.encode("utf-8")
            assert "surrogate" in said.out
            assert "1 line skipped, not JSON: 1" in said.err
    assert max(map(len, shown["text"].split("\n"))) < 450
    assert "D" * 300 not in shown["text"]
    rows = [line for line in shown["markdown"].split("\n") if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(criteria) + 2}
    assert "<script>" not in shown["markdown"]
    for command in (r"\toprule", r"\midrule", r"\bottomrule", r"\textbf{"):
        assert command in shown["latex"]
    assert r"\input" not in shown["latex"]
    unescaped = re.sub(r"\\[{}]", "", shown["latex"])
    assert unescaped.count("{") == unescaped.count("}")
    rows = [line for line in shown["latex"].split("\n") if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(criteria)}
    assert "'=1+1" in shown["csv"]
