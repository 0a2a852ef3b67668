"""What is missing is said: in tables, in choices, in figures, and where two experiments look alike."""

import csv
import io
import json
from xml.etree import ElementTree

import numpy as np
import pytest

from plench.cli import main
from plench.criteria import criteria
from plench.errors import UsageError
from plench.pilot import gather_pilot
from plench.report.figures.costs import StepCost
from plench.report.leaderboard import build_leaderboard
from plench.report.results import cell_rows, choice_rows
from plench.report.tables import (
    build_chosen_tables,
    build_tables,
    is_within,
    render_latex,
    render_markdown,
    render_text,
)
from plench.runs import read_runs
from tests.synthetic_sweep import experiment_of, make_records, write_run, write_sweep

CR, OA = criteria["CR"], criteria["OA"]


def records(quality=0.6, seed=0, **changes):
    return make_records(quality, np.random.default_rng(seed), **changes)


@pytest.fixture(scope="module")
def gapped(tmp_path_factory):
    """Two datasets; LWS lacks one of them, NN one split, and all of EXP's runs on MSRCv2 diverged."""
    root = tmp_path_factory.mktemp("gapped")
    write_sweep(root, algorithms=("CC", "PRODEN", "SCL_NL"), n_trials=2, n_hparams=2)
    for trial in range(2):
        for configuration in range(2):
            place = (trial, configuration)
            write_run(root / f"l{place}", records(0.9), "Lost", "LWS", *place)
            if place[0] == 0:
                write_run(root / f"n{place}", records(0.9), "Lost", "NN", *place)
            write_run(root / f"m{place}", records(0.9), "MSRCv2", "NN", *place)
            write_run(root / f"e{place}", records(), "Lost", "EXP", *place)
            write_run(
                root / f"d{place}",
                records(),
                "MSRCv2",
                "EXP",
                *place,
                status="diverged",
                diverged_after_step=300,
            )
    return root


@pytest.fixture(scope="module")
def board(gapped):
    return build_leaderboard(read_runs(gapped))


def read_svg(path):
    """Return the words of a figure; a title may be broken into lines."""
    texts = ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")
    return " ".join(" ".join("".join(text.itertext()) for text in texts).split())


def texts_of(figure):
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_long_texts_are_broken_in_latex(board):
    text = render_latex(build_chosen_tables(board))
    assert r"\begin{tabular}{lccccc" in text
    longest = max(len(e.text) for g in build_chosen_tables(board) for _, row in g.rows for e in row)
    assert ("p{80mm}" in text) == (longest > 50)
    assert r"\begin{tabular}{lcccc}" in render_latex(build_tables(board))


@pytest.mark.parametrize("render", [render_text, render_markdown, render_latex])
def test_tables_say_what_was_planned(board, render):
    text = render(build_tables(board))
    times = r"$\times$" if render is render_latex else "×"
    assert f"Planned: 2 splits {times} 2 configurations." in text
    assert "without a letter are complete" in text


def test_tables_say_what_was_planned_where_it_differs(gapped, capsys, tmp_path):
    from plench.runs.sweep_spec import Grid, SweepSpec

    write_run(tmp_path / "a", records(), "Lost", "CC")
    write_run(tmp_path / "b", records(), "Lost", "LWS")
    write_run(tmp_path / "c", records(), "MSRCv2", "LWS")
    spec = SweepSpec((Grid(("CC",), ("Lost",), n_hparams=3, n_trials=4, steps=1000),))
    spec.write(tmp_path / spec.file_name)
    assert main(["collect", str(tmp_path)]) == 0
    planned = "4 splits × 3 configurations (CC); 1 split × 1 configuration (LWS)"
    assert f"Planned: {planned}.\n" in capsys.readouterr().out
    assert main(["collect", str(tmp_path), "--by", "criterion"]) == 0
    assert f"Planned: Lost: {planned}; MSRCv2: 1 split × 1 configuration." in capsys.readouterr().out


def test_a_split_without_a_choice_has_a_row_that_says_so(board):
    rows = [row for row in choice_rows(board) if row["algorithm"] == "EXP" and row["criterion"] == "OA"]
    assert len(rows) == 4
    (none, *_), (some, *_) = (
        [r for r in rows if r["dataset"] == "MSRCv2"],
        [r for r in rows if r["dataset"] == "Lost"],
    )
    assert none["hparams_seed"] is none["test_accuracy"] is None
    assert "4 diverged" in none["note"]
    assert some["test_accuracy"] is not None
    grids = {grid.title: grid for grid in build_chosen_tables(board)}
    shown = [entries for name, entries in grids["MSRCv2, chosen by OA"].rows if name == "EXP"]
    assert [entries[0].text for entries in shown] == ["0", "1"]
    assert {entries[4].text for entries in shown} == {"none"}


def test_a_difference_of_just_one_standard_error_is_a_tie(tmp_path):
    """Accuracies are shares of few examples: 0.9694… less 0.0083… must be 0.9611…, whatever the rounding."""
    for name, hits in (("CC", (346, 352)), ("LWS", (340, 352)), ("NN", (340, 351))):
        for trial, n in enumerate(hits):
            last = [{**records()[-1], "test_acc": n / 360}]
            write_run(tmp_path / f"{name}{trial}", last, "Lost", name, trial)
    found = build_leaderboard(read_runs(tmp_path))
    (setting,) = found.settings
    best, tied, below = (found.cell(setting, name, CR) for name in ("CC", "LWS", "NN"))
    assert best.mean - best.stderr == pytest.approx(tied.mean, abs=1e-12)
    assert is_within(tied, best)
    assert not is_within(below, best)


def test_rows_say_over_how_many_settings_a_rank_is(board):
    ranked = {
        row["algorithm"]: row["ranked_settings"] for row in cell_rows(board) if row["criterion"] == "CR"
    }
    assert ranked["LWS"] == 1
    assert ranked["CC"] == 2


def test_boxes_set_apart_what_lacks_a_pair(board):
    pytest.importorskip("matplotlib")
    from matplotlib.colors import to_hex

    from plench.report.drawing import figure_style
    from plench.report.figures.comparisons import draw_boxes

    with figure_style():
        figure = draw_boxes(board, ())
    order = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert set(order[:3]) == {"CC", "PRODEN", "SCL_NL"}
    assert {name.split()[0] for name in order[3:]} == {"LWS", "NN", "EXP"}
    for name, count in (label.split() for label in order[3:]):
        fewest = min(
            sum(len(cell.accuracies) for s in board.settings if (cell := board.cell(s, name, criterion)))
            for criterion in criteria.values()
        )
        assert count == f"{fewest}/4"
    for axes in figure.axes:
        white = [patch for patch in axes.patches if to_hex(patch.get_facecolor()) == "#ffffff"]
        off_scale = [text for text in axes.texts if "◂" in text.get_text() or "▸" in text.get_text()]
        assert len(axes.patches) + len(off_scale) in (5, 6), "an algorithm may have no figure by OA"
        assert len(white) <= 3
    assert any(to_hex(patch.get_facecolor()) == "#ffffff" for patch in figure.axes[0].patches)
    said = " ".join(" ".join(texts_of(figure)).split())
    assert "White: lacks some splits" in said
    assert "2 datasets, n = 4 splits" in said


def test_boxes_without_gaps_say_nothing_of_gaps(sweep):
    pytest.importorskip("matplotlib")
    from plench.report.drawing import figure_style
    from plench.report.figures.comparisons import draw_boxes

    with figure_style():
        figure = draw_boxes(build_leaderboard(read_runs(sweep)), ())
    assert not figure.axes[0].texts
    assert not any("White" in text for text in texts_of(figure))


def test_pareto_leaves_out_what_does_not_compare_and_names_it(board):
    pytest.importorskip("matplotlib")
    from plench.report.drawing import figure_style
    from plench.report.figures.costs import draw_pareto

    measured = ("CC", "PRODEN", "LWS", "NN", "SCL_NL")
    costs = [StepCost(a, d, 1.0 + i, None, None) for i, a in enumerate(measured) for d in ("Lost", "MSRCv2")]
    with figure_style():
        figure = draw_pareto(board, CR, [c for c in costs if (c.algorithm, c.dataset) != ("CC", "MSRCv2")])
    names = {text.get_text() for text in figure.axes[0].texts}
    assert names == {"PRODEN", "NN", "SCL_NL"}
    said = " ".join(texts_of(figure))
    assert "no figure in some dataset: LWS." in said
    assert "no measurement of the cost: CC, EXP." in said.replace("\n", " ")
    assert "Lost, MSRCv2" in " ".join(said.split())
    with figure_style(), pytest.raises(UsageError, match="--datasets"):
        draw_pareto(board, CR, [StepCost("ABLE", "Lost", 1.0, None, None)])


def test_ranks_name_whom_they_leave_out(gapped, board, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    from plench.report.drawing import figure_style
    from plench.report.figures.comparisons import draw_ranks

    with figure_style():
        assert any("some dataset: LWS." in text for text in texts_of(draw_ranks(board, CR)))
    words = ["--algorithms", "CC", "LWS", "NN", "--output", str(tmp_path / "r.svg")]
    assert main(["plot", "ranks", str(gapped), *words]) == 2
    assert "1 lack a figure in some dataset" in capsys.readouterr().err


def test_slope_names_what_only_one_set_has_and_tells_folders_apart(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    first = write_sweep(tmp_path / "a" / "runs", datasets=("Lost",), n_trials=2, n_hparams=1)
    second = write_sweep(tmp_path / "b" / "runs", datasets=("Lost",), algorithms=("CC", "LWS"), n_trials=2)
    output = tmp_path / "slope.svg"
    assert main(["plot", "slope", str(first), str(second), "--output", str(output)]) == 0
    said = output.read_text(encoding="utf-8")
    assert "Only in a/runs: Lost: NN, PRODEN." in said
    assert "b/runs: Lost" in said


def test_two_settings_of_a_dataset_can_be_chosen_from(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    for steps in (500, 1000):
        write_run(tmp_path / f"s{steps}", records(steps=steps), "Lost", "CC", steps=steps)
    output = str(tmp_path / "c.svg")
    assert main(["plot", "curves", str(tmp_path), "--output", output]) == 2
    assert "--where (there are Lost (steps 1000), Lost (steps 500))" in capsys.readouterr().err
    assert main(["plot", "curves", str(tmp_path), "--output", output, "--where", "steps=500"]) == 0
    capsys.readouterr()
    assert main(["collect", str(tmp_path), "--format", "csv", "--where", "steps=500", "model=MLP"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["steps"] for row in rows} == {"500"}
    for condition, said in (("steps=7", "steps is 1000, 500"), ("colour=red", "with one of algorithm,")):
        assert main(["collect", str(tmp_path), "--where", condition]) == 2
        assert said in capsys.readouterr().err


def test_curves_name_what_has_no_checkpoint_to_choose(board):
    pytest.importorskip("matplotlib")
    from plench.report.drawing import figure_style
    from plench.report.figures.single_runs import draw_curves

    setting = next(s for s in board.settings if s.dataset == "MSRCv2")
    with figure_style():
        assert any("to choose: EXP, LWS." in text for text in texts_of(draw_curves(board, setting, OA)))


def test_what_comes_from_the_public_code_says_so_wherever_it_is_shown(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    root = write_sweep(tmp_path / "public", public=True, n_trials=2, n_hparams=3)
    for words, is_figure in (
        (["stats", str(root)], False),
        (["collect", str(root), "--chosen"], False),
        (["plot", "boxes", str(root)], True),
        (["plot", "ranks", str(root), "--criteria", "AA"], True),
        (["plot", "curves", str(root), "--datasets", "Lost", "--criteria", "AA"], True),
        (["plot", "criterion", str(root)], True),
        (["plot", "sensitivity", str(root), "--algorithms", "CC", "--criteria", "AA"], True),
    ):
        output = tmp_path / "figure.svg"
        assert main([*words, *(["--output", str(output)] if is_figure else [])]) == 0
        said = capsys.readouterr()
        shown = read_svg(output) if is_figure else said.out
        assert "AA (public code's, defective)" in shown, words
        if "collect" not in words:
            assert "1e-12" in said.err
    ours = write_sweep(tmp_path / "ours", n_trials=1, n_hparams=1)
    assert main(["stats", str(ours)]) == 0
    said = capsys.readouterr()
    assert "defective" not in said.out + said.err


def test_means_over_single_splits_are_shown_without_an_interval(tmp_path, capsys):
    write_sweep(tmp_path, n_trials=1, n_hparams=1)
    assert main(["stats", str(tmp_path), "--criteria", "CR", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)["by_criterion"]["CR"]
    assert content["intervals"]["CC"] is None
    found = build_leaderboard(read_runs(tmp_path))
    expected = np.mean([found.cell(s, "CC", CR).mean for s in found.settings])
    assert content["means"]["CC"] == pytest.approx(expected)
    assert main(["stats", str(tmp_path), "--criteria", "CR"]) == 0
    assert f"{100 * expected:.2f}" in capsys.readouterr().out


def test_quality_of_criteria_keeps_settings_apart(tmp_path, capsys):
    for steps in (500, 1000):
        for configuration in range(3):
            run = records(0.4 + configuration / 10, configuration, steps=steps)
            write_run(tmp_path / f"{steps}{configuration}", run, "Lost", "CC", 0, configuration, steps=steps)
    assert main(["stats", str(tmp_path), "--criteria", "CR", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["criteria"]
    assert {r["of"] for r in rows if r["by"] == "dataset"} == {"Lost (steps 1000)", "Lost (steps 500)"}


def test_quality_of_criteria_says_over_how_many_experiments_it_is(gapped, capsys):
    assert main(["stats", str(gapped), "--criteria", "CR", "OA"]) == 0
    out = capsys.readouterr().out.split("Criteria by algorithm")[1]
    rows = {
        line.split()[0]: line.split()[1:] for line in out.split("\n") if line[:3] in ("CC ", "LWS", "EXP")
    }
    assert (rows["CC"][0], rows["LWS"][0], rows["EXP"][0]) == ("2", "1", "2")
    assert "(1)," in rows["EXP"]
    assert "(1)," not in rows["CC"] + rows["LWS"]


def test_settings_beside_the_paper_have_tables_of_their_own(tmp_path, capsys):
    for precision in ("float32", "bf16"):
        for trial in range(2):
            folder = tmp_path / f"{precision}{trial}"
            experiment = experiment_of(
                "PLCIFAR10_Vaguest", "PRODEN", 60_000, model="ResNet", precision=precision
            )
            run = [{**records()[-1], "step": 59_999}]
            write_run(folder, run, "PLCIFAR10_Vaguest", "PRODEN", trial, experiment=experiment, steps=60_000)
            info = json.loads((folder / "run.json").read_text())
            info["dataset"]["verified"] = True
            (folder / "run.json").write_text(json.dumps(info))
    assert main(["compare", str(tmp_path), "--criteria", "CR"]) == 0
    titles = [line for line in capsys.readouterr().out.split("\n") if "selected by" in line]
    assert titles == [
        f"PLCIFAR10_Vaguest (precision {precision}), ResNet, selected by CR"
        for precision in ("bf16", "float32")
    ]


def test_arms_of_other_steps_are_not_side_by_side(tmp_path):
    def last(steps, test):
        return [{"step": steps - 1, "loss": 1.0, "val_accuracy": 0.5, "test_acc": test}]

    for steps in (500, 1000):
        write_run(tmp_path / "v" / str(steps), last(steps, 0.5), "Lost", "CC", steps=steps)
    write_run(tmp_path / "t" / "1", last(1000, 0.7), "Lost+validation", "CC", steps=1000)
    (result,), apart = gather_pilot(read_runs(tmp_path / "v"), read_runs(tmp_path / "t"), OA)
    assert result.dataset == "Lost (steps 1000)"
    assert result.training.accuracies == (0.7,)
    assert apart == ["Lost (steps 500), CC: no split with a result in both arms"]


def test_cost_without_memory_is_said_not_drawn_as_nothing():
    pytest.importorskip("matplotlib")
    from plench.report.drawing import figure_style
    from plench.report.figures.costs import draw_costs

    with figure_style():
        figure = draw_costs(
            [StepCost("CC", "Lost", 1.0, None, 300.0), StepCost("NN", "Lost", 2.0, None, None)]
        )
    assert [text.get_text().strip() for text in figure.axes[1].texts] == ["+0", "not measured"]
    assert "the least of all, 300 MB" in " ".join(" ".join(texts_of(figure)).split())


def test_commands_print_no_control_characters(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    name = "\x1b[31mred"
    for arm, suffix in (("validation", ""), ("training", "+validation")):
        write_run(tmp_path / arm / "a", records(), name + suffix, name)
        (tmp_path / arm / "a" / "results.jsonl").open("a").write("garbage\n")
    write_run(tmp_path / "validation" / "b", records(), name, "CC")
    root, output = str(tmp_path / "validation"), ["--output", str(tmp_path / "x.svg")]
    for words, code in (
        (["compare", root], 0),
        (["stats", root], 0),
        (["collect", root, "--chosen"], 0),
        (["pilot", "--output_dir", str(tmp_path), "--plot_only", *output], 0),
        (["plot", "sensitivity", root, *output], 2),
        (["plot", "sensitivity", root, "--algorithms", "*red", *output], 2),
    ):
        assert main(words) == code
        said = capsys.readouterr()
        assert "red" in said.out + said.err
        assert "\x1b" not in said.out + said.err, words
