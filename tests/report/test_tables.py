"""Tables in every format, from a made-up sweep and from hostile input."""

import csv
import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import rankdata

from plench.collect_results import main
from plench.report.leaderboard import build_leaderboard
from plench.report.results import cell_rows, choice_rows
from plench.report.tables import (
    Tables,
    build_tables,
    describe_gaps,
    escape_latex,
    escape_markdown,
    render_latex,
    render_markdown,
    render_text,
)
from plench.runs import read_runs
from plench.text import clean, guard_formula
from tests.synthetic_sweep import experiment_of, make_records, write_run, write_sweep

# What the legend says of every table.
ALL_PLANNED = "lack nothing that was planned"


def run_collect(capsys, *words):
    assert main([*map(str, words)]) == 0
    return capsys.readouterr()


def records(quality=0.6, seed=0):
    return make_records(quality, np.random.default_rng(seed))


def test_text_shows_every_figure_of_every_cell(board):
    text = render_text(build_tables(board))
    for cell in board.cells.values():
        assert f"{100 * cell.mean:5.2f} ± {100 * cell.std:.2f} [{100 * cell.stderr:.2f}]" in text
    assert "n = 3" in text
    assert "sample standard deviation" in text
    assert "standard error of the mean" in text


def test_best_is_marked_and_ties_within_one_standard_error(board):
    for grid, setting in zip(build_tables(board), board.settings, strict=False):
        for column, criterion in enumerate(board.criteria):
            best = max((board.cell(setting, a, criterion) for a in board.algorithms), key=lambda c: c.mean)
            for algorithm, entries in grid.rows:
                entry = entries[column]
                mean = board.cell(setting, algorithm, criterion).mean
                assert entry.best == (mean == best.mean)
                assert entry.tied == (best.mean - best.stderr <= mean < best.mean)


def test_average_rank(board):
    for criterion in board.criteria:
        table = np.array(
            [[board.cell(s, a, criterion).mean for a in board.algorithms] for s in board.settings]
        )
        expected = rankdata(-table, axis=1).mean(axis=0)
        ranks = board.rank(criterion)
        assert [ranks[a] for a in board.algorithms] == [(pytest.approx(r), 2) for r in expected]


def test_an_algorithm_absent_from_a_setting_is_ranked_where_it_is(tmp_path):
    write_sweep(tmp_path, algorithms=("CC", "LWS"), n_trials=2, n_hparams=1)
    write_run(tmp_path / "extra", records(), "Lost", "NN")
    board = build_leaderboard(read_runs(tmp_path))
    assert board.rank(board.criteria[0])["NN"][1] == 1
    assert "–" in render_text(build_tables(board, by="criterion"))


def test_ranks_of_fewer_settings_are_never_the_best(tmp_path):
    write_sweep(tmp_path, algorithms=("CC", "LWS"), n_trials=2, n_hparams=1)
    perfect = [{**record, "test_acc": 1.0} for record in records()]
    write_run(tmp_path / "extra", perfect, "Lost", "NN")
    write_run(tmp_path / "alone", perfect, "Birdsong", "NN")
    board = build_leaderboard(read_runs(tmp_path))
    ranks = board.rank(board.criteria[0])
    assert ranks["NN"] == (1.0, 1)
    assert {ranks[name][1] for name in ("CC", "LWS")} == {2}
    rows = dict(build_tables(board)[-1].rows)
    assert not rows["NN"][0].best
    best = min(("CC", "LWS"), key=lambda name: ranks[name][0])
    assert rows[best][0].best


def test_by_criterion_has_datasets_as_columns(board):
    grids = build_tables(board, by="criterion")
    assert grids[0].header == ("Algorithm", "Lost", "MSRCv2")
    assert len(grids) == len(board.criteria) + 1


def test_latex_is_booktabs_with_balanced_braces_and_escaped_names(tmp_path):
    name = r"\input{/etc/passwd}_50%&#$~^"
    write_run(tmp_path / "a", records(), algorithm=name)
    text = render_latex(build_tables(build_leaderboard(read_runs(tmp_path))))
    for command in (r"\toprule", r"\midrule", r"\bottomrule", r"\textbf{"):
        assert command in text
    assert r"\input" not in text
    unescaped = re.sub(r"\\[{}]", "", text)
    assert unescaped.count("{") == unescaped.count("}")
    rows = [line for line in text.split("\n") if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {4}


def test_markdown_is_a_table_whatever_the_names(tmp_path):
    for number, name in enumerate(("a|b", "<script>alert(1)</script>", "*bold*", "../../x", "[l](u)")):
        write_run(tmp_path / str(number), records(), algorithm=name)
    text = render_markdown(build_tables(build_leaderboard(read_runs(tmp_path))))
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}
    assert "<script>" not in text


def test_terminal_sees_no_control_characters_and_no_endless_names(tmp_path):
    write_run(tmp_path / "a", records(), algorithm="\x1b[31mred\x07\u202e" + "名" * 400)
    text = str(Tables(build_tables(build_leaderboard(read_runs(tmp_path)))))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)
    assert max(map(len, text.split("\n"))) < 250
    write_run(tmp_path / "b", records(), dataset="D" * 3000)
    assert "D" * 300 not in str(Tables(build_tables(build_leaderboard(read_runs(tmp_path)))))


def test_notes_say_what_a_cell_rests_on(tmp_path):
    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC", "LWS"), n_trials=2, n_hparams=2)
    write_run(tmp_path / "x", records(), "Lost", "CC", 0, 2, status="diverged", diverged_after_step=350)
    write_run(tmp_path / "y", records(), "Lost", "CC", 1, 2, status="failed")
    write_run(tmp_path / "z", records(), "Lost", "CC", 0, 3, status="interrupted")
    write_run(tmp_path / "w", records(), "Lost", "CC", 1, 3)
    board = build_leaderboard(read_runs(tmp_path))
    (setting,) = board.settings
    notes = {c.name: describe_gaps(board.cell(setting, "CC", c)) for c in board.criteria}
    assert notes["CR"] == (
        "rests on 2 of 2 splits and 6 of 8 planned runs; 1 not finished; 1 failed; 1 diverged"
    )
    assert notes["OA"].startswith(
        "rests on 2 of 2 splits and 5 of 8 planned runs; 1 not finished; 1 failed; 1 diverged; 1 with"
    )
    (row,) = [r for r in cell_rows(board) if (r["algorithm"], r["criterion"]) == ("CC", "CR")]
    assert (row["unfinished_runs"], row["failed_runs"]) == (1, 1)
    assert "4 not started" in describe_gaps(board.cell(setting, "LWS", board.criteria[0]))
    text = render_text(build_tables(board))
    assert all(note in text for note in notes.values())


def test_public_aa_says_that_it_is_defective_and_ours_does_not(tmp_path):
    write_run(tmp_path / "a", records(), public=True)
    public = build_leaderboard(read_runs(tmp_path))
    notes = [note for _, note in build_tables(public)[0].notes]
    assert len(notes) == 1
    assert "1e-12" in notes[0]
    write_run(tmp_path / "ours" / "a", records())
    assert build_tables(build_leaderboard(read_runs(tmp_path / "ours")))[0].notes == ()
    write_run(tmp_path / "bare" / "a", [{**record, "logged": {}} for record in records()], public=True)
    assert build_tables(build_leaderboard(read_runs(tmp_path / "bare")))[0].notes == ()


def test_settings_of_one_dataset_are_named_by_what_differs(tmp_path):
    for number, change in enumerate([{}, {"model": "DenseNet"}, {"steps": 500}]):
        write_run(tmp_path / str(number), records(), experiment=experiment_of("Lost", "CC") | change)
    labels = sorted(build_leaderboard(read_runs(tmp_path)).labels.values())
    assert labels == [
        "Lost (model DenseNet, steps 1000)",
        "Lost (model MLP, steps 1000)",
        "Lost (model MLP, steps 500)",
    ]


def test_rows_carry_all_figures(board, runs):
    rows = cell_rows(board)
    assert len(rows) == len(board.cells)
    for row in rows:
        chosen = [
            choice
            for choice in choice_rows(board)
            if all(choice[k] == row[k] for k in ("setting", "algorithm", "criterion"))
        ]
        accuracies = [choice["test_accuracy"] for choice in chosen]
        assert row["n_splits"] == len(accuracies) == 3
        assert row["mean_test_accuracy"] == pytest.approx(np.mean(accuracies))
        assert row["sample_std"] == pytest.approx(np.std(accuracies, ddof=1))
        assert row["standard_error"] == pytest.approx(np.std(accuracies, ddof=1) / 3**0.5)
    by_folder = {run.path.name: run for run in runs}
    for choice in choice_rows(board):
        assert json.loads(choice["hparams"]) == by_folder[choice["folder"]].hparams


def test_command_csv_json_parquet_agree(sweep, capsys, tmp_path):
    from_csv = list(
        csv.DictReader(io.StringIO(run_collect(capsys, "--input_dir", sweep, "--format", "csv").out))
    )
    from_json = json.loads(run_collect(capsys, "--input_dir", sweep, "--json").out)["cells"]
    run_collect(capsys, "--input_dir", sweep, "--format", "parquet", "--output", tmp_path / "t.parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    from_parquet = parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert from_parquet == from_json
    assert [float(row["mean_test_accuracy"]) for row in from_csv] == [
        r["mean_test_accuracy"] for r in from_json
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


def test_command_filters_and_dashes(sweep, capsys):
    out = run_collect(
        capsys, f"--input-dir={sweep}", "--algorithms", "l*", "--criteria", "oa with es", "cr"
    ).out
    assert "LWS" in out
    assert "PRODEN" not in out
    assert re.search(r"Algorithm +OA w/ ES +CR\n", out)


def test_command_planned(sweep, capsys):
    out = run_collect(capsys, "--input_dir", sweep, "--planned_hparams", 20, "--planned_trials", 5).out
    assert "rests on 3 of 5 splits and 12 of 100 planned runs; 88 not started" in out


def test_command_chosen(sweep, capsys, board):
    for form in ("text", "markdown", "latex", "csv"):
        out = run_collect(capsys, "--input_dir", sweep, "--chosen", "--format", form).out
        choice = board.cell(board.settings[0], "CC", board.criteria[0]).choices[0]
        assert str(choice.record.step) in out
        assert "lr" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--input_dir", "nowhere"], "nowhere"),
        (["--input_dir", "{sweep}", "--algorithms", "zzz"], "there are CC, LWS, NN, PRODEN"),
        (["--input_dir", "{sweep}", "--criteria", "zzz"], "unknown criterion 'zzz'"),
        (["--input_dir", "{sweep}", "--format", "parquet"], "--output"),
        (["--input_dir", "{sweep}", "--planned_trials", "0"], "must be from 1 to"),
        (["--input_dir", "{empty}"], "no runs"),
        (["--input_dir", "{sweep}", "--output", "/dev/null/x"], "cannot write"),
    ],
)
def test_command_bad_usage(sweep, tmp_path, capsys, words, said):
    assert main([word.format(sweep=sweep, empty=tmp_path) for word in words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_command_notices_go_to_stderr_and_the_rest_is_tabulated(tmp_path, capsys):
    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC",), n_trials=1, n_hparams=1)
    (tmp_path / "bad\x1b[31m").mkdir()
    (tmp_path / "bad\x1b[31m" / "results.jsonl").write_text("{]\n")
    captured = run_collect(capsys, "--input_dir", tmp_path)
    assert "CC" in captured.out
    assert "1 line skipped, no JSON: 1" in captured.err
    assert "\x1b" not in captured.err


def test_reading_commands_import_no_torch(sweep, tmp_path):
    pytest.importorskip("matplotlib")
    commands = [
        ["collect", str(sweep)],
        ["stats", str(sweep)],
        ["compare", str(sweep)],
        ["plot", "ranks", str(sweep), "--output", str(tmp_path / "ranks.svg")],
        ["data", "stats", "Digits_FPS", "--output", str(tmp_path / "digits.svg")],
    ]
    code = (
        "import json, sys; from plench.cli import main; "
        "codes = [main(words) for words in json.loads(sys.argv[1])]; "
        "sys.exit(any(codes) or 'torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code, json.dumps(commands)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "OA w/ ES" in done.stdout


def test_escapes():
    assert escape_latex("a_b\\c") == r"a\_b\textbackslash{}c"
    assert escape_markdown("<b>|`") == r"&lt;b&gt;\|\`"
    assert guard_formula("=1+1") == "'=1+1"
    assert guard_formula("PiCO+") == "PiCO+"
    assert clean("x" * 100) == "x" * 47 + "…"


def test_command_reads_what_a_sweep_was_asked_to_do(tmp_path, capsys):
    from plench.runs.sweep_spec import Grid, SweepSpec

    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC", "LWS"), n_trials=2, n_hparams=2)
    spec = SweepSpec((Grid(("CC", "LWS", "PRODEN"), ("Lost",), n_hparams=5, n_trials=3, steps=1000),))
    spec.write(tmp_path / spec.file_name)
    (tmp_path / "sweep-broken.toml").write_text("[[")
    captured = run_collect(capsys, "--input_dir", tmp_path)
    assert "rests on 2 of 3 splits and 4 of 15 planned runs; 11 not started" in captured.out
    assert "Lost: planned, but without any run: PRODEN" in captured.err
    assert "sweep-broken.toml is not a TOML file" in captured.err


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
def test_what_was_planned_of_another_setting_is_not_missed(tmp_path, capsys, change):
    from plench.runs.sweep_spec import Grid, SweepSpec

    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC",), n_trials=2, n_hparams=2)
    asked = {"n_hparams": 2, "n_trials": 2, "steps": 1000}
    own, other = Grid(("CC",), ("Lost",), **asked), Grid(("CC",), ("Lost",), **({"steps": 1000} | change))
    for spec in (SweepSpec((own,)), SweepSpec((other,))):
        spec.write(tmp_path / spec.file_name)
    assert "rests on" not in run_collect(capsys, "--input_dir", tmp_path).out.replace(ALL_PLANNED, "")


def test_planned_datasets_and_algorithms_by_path_without_runs(tmp_path, capsys):
    from plench.runs.sweep_spec import Grid, SweepSpec

    write_run(tmp_path / "a", records(), "Lost", "Mine@01234567")
    spec = SweepSpec((Grid(("some/file.py:Mine", "some/file.py:Other"), ("Lost", "MSRCv2")),))
    spec.write(tmp_path / spec.file_name)
    notices = [
        line for line in run_collect(capsys, "--input_dir", tmp_path).err.splitlines() if "planned" in line
    ]
    assert notices == [
        "warning: Lost: planned, but without any run: some/file.py:Other",
        "warning: MSRCv2: planned, but without any run of any algorithm",
    ]
    filtered = run_collect(capsys, "--input_dir", tmp_path, "--datasets", "Lost").err
    assert "MSRCv2" not in filtered


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "csv", "json"])
def test_names_that_are_no_unicode_can_be_printed(tmp_path, capsys, form):
    name = "lone \ud800 surrogate"
    experiment = experiment_of("Lost", name, model=name)
    write_run(tmp_path / "a", records(), experiment=experiment, hparams={"model": name, name: name})
    folder = os.fsencode(tmp_path) + b"/bad\xff"
    os.mkdir(folder)
    with open(folder + b"/results.jsonl", "w") as file:
        file.write("{]\n")
    for more in ([], ["--chosen"]):
        captured = run_collect(capsys, "--input_dir", tmp_path, "--format", form, *more)
        captured.out.encode("utf-8")
        captured.err.encode("utf-8")
        assert "surrogate" in captured.out


def test_a_criterion_more_is_a_column_more(tmp_path):
    """Selection and tables take any criterion whose figure the records have."""
    from dataclasses import replace

    from plench.criteria import criteria

    taken = [{**record, "val_margin": step / 10} for step, record in enumerate(records())]
    write_run(tmp_path / "a", taken)
    margin = replace(criteria["CR"], name="margin", title="Margin", record_key="val_margin")
    board = build_leaderboard(read_runs(tmp_path), [*criteria.values(), margin])
    assert board.cell(board.settings[0], "PRODEN", margin).mean == taken[-1]["test_acc"]
    assert "Margin" in render_text(build_tables(board))


def test_grids_of_other_ranges_and_fewer_configurations_are_no_gaps(tmp_path, capsys):
    """What was planned is a set of runs per algorithm, not all splits × configurations of a setting."""
    from plench.runs.sweep_spec import Grid, SweepSpec

    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC",), n_trials=2, n_hparams=3)
    write_run(tmp_path / "more", records(), "Lost", "CC", trial_seed=2, hparams_seed=5)
    write_run(tmp_path / "fewer", records(), "Lost", "LWS")
    asked = (
        Grid(("CC",), ("Lost",), n_hparams=3, n_trials=2, steps=1000),
        Grid(("CC",), ("Lost",), n_hparams_from=5, n_hparams=6, n_trials_from=2, n_trials=3, steps=1000),
        Grid(("LWS",), ("Lost",), n_hparams=1, n_trials=1, steps=1000),
    )
    SweepSpec(asked).write(tmp_path / "sweep-a.toml")
    assert "rests on" not in run_collect(capsys, "--input_dir", tmp_path).out.replace(ALL_PLANNED, "")
    for file in (tmp_path / "Lost-CC-1-2").iterdir():
        file.unlink()
    out = run_collect(capsys, "--input_dir", tmp_path).out
    assert "rests on 3 of 3 splits and 6 of 7 planned runs; 1 not started" in out
    assert out.count("planned runs") == 1


def test_copies_of_a_run_count_once_with_a_notice(tmp_path, capsys):
    import shutil

    first, second = tmp_path / "first", tmp_path / "second"
    write_sweep(first, datasets=("Lost",), algorithms=("CC",), n_trials=2, n_hparams=2)
    alone = run_collect(capsys, "--input_dir", first)
    assert alone.err == ""
    twice = run_collect(capsys, "--input_dir", first, "--input_dir", f"{first}/../first")
    assert twice.out == alone.out
    assert "first/../first: named more than once, read once" in twice.err
    shutil.copytree(first, second)
    shutil.copytree(first / "Lost-CC-0-0", second / "renamed")
    merged = run_collect(capsys, "--input_dir", first, "--input_dir", second)
    assert merged.out == alone.out
    (notice,) = merged.err.splitlines()
    assert "5 folders are copies of runs that count once" in notice
    assert "second/Lost-CC-0-0" in notice


def test_of_copies_the_one_that_finished_counts(tmp_path):
    from plench.runs import drop_copies

    for name, status in (("a", "interrupted"), ("b", "done"), ("c", "done")):
        write_run(tmp_path / name / "run", records(), status=status)
    write_run(tmp_path / "d" / "run", records(), hparams_seed=1)
    write_run(tmp_path / "e" / "run", records(), public=True)
    write_run(tmp_path / "f" / "run", records(), public=True)
    kept, notices = drop_copies(run for name in "abcdef" for run in read_runs(tmp_path / name))
    assert sorted(run.path.parent.name for run in kept) == ["b", "d", "e", "f"]
    assert notices == ["2 folders are copies of runs that count once; left out: a/run, c/run"]


def test_tables_fit_into_a_terminal_and_say_what_is_left_out(board):
    for width in (200, 80, 60, 40):
        text = render_text(build_tables(board), width)
        assert max(len(line) for line in text.splitlines()) <= width
        for cell in board.cells.values():  # no number is cut
            if cell.criterion.name == "CR":
                assert f"{100 * cell.mean:5.2f} ± {100 * cell.std:.2f}" in text
        whole = max(len(line) for line in render_text(build_tables(board)[:1]).splitlines()[:3])
        assert ("a wider window" in " ".join(text.split())) == (width < whole)
    assert render_text(build_tables(board)) == render_text(build_tables(board), 10_000)


def test_standard_errors_may_be_left_out(sweep, board, capsys):
    text = run_collect(capsys, "--input_dir", sweep, "--format", "latex", "--without_error").out
    cell = next(iter(board.cells.values()))
    assert f"{100 * cell.mean:.2f} ± {100 * cell.std:.2f}".replace("±", r"$\pm$") in text
    assert "[" not in re.sub(r"\[ht\]|\\\\\[.*?\]", "", text)
    assert "standard error of the mean" not in text


def test_results_below_chance_are_flagged(tmp_path):
    for number, accuracy in enumerate((0.05, 0.07)):
        told = [{**record, "test_acc": accuracy} for record in records()]
        write_run(tmp_path / f"run{number}", told, "Lost", ("CC", "LWS")[number])
    (grid,) = build_tables(build_leaderboard(read_runs(tmp_path)))
    by_name = {name: entries[0].marks for name, entries in grid.rows}
    notes = dict(grid.notes)
    assert "below chance: a guess among 16 classes has 6.25 %" in notes[by_name["CC"][0]]
    assert by_name["LWS"] == () or "below chance" not in notes[by_name["LWS"][0]]
