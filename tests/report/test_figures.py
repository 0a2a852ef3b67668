"""Every kind of figure with 27 algorithms: it draws, its texts do not overlap, it reads without colour."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.text import Text

from plench.cli import main
from plench.criteria import criteria
from plench.errors import DataError, UsageError
from plench.pilot import Arm, PilotResult, draw_pilot
from plench.report.dataset_stats import (
    describe_candidates,
    draw_dataset,
    measure_annotator_noise,
    measure_flipping,
)
from plench.report.drawing import figure_style, save_figure, shades, spread_positions
from plench.report.figures.comparisons import count_inversions, draw_boxes, draw_ranks, draw_slopes
from plench.report.figures.costs import StepCost, draw_costs, draw_pareto, find_front, read_costs
from plench.report.figures.single_runs import draw_criteria, draw_curves, draw_sensitivity
from plench.report.leaderboard import build_leaderboard
from plench.runs import read_runs
from tests.synthetic_sweep import make_records, write_run, write_sweep

MANY = (
    *("PRODEN", "CAVL", "POP", "ABS_MAE", "ABS_GCE", "EXP", "MCL_GCE", "MCL_MSE", "CC", "LWS", "IDGP"),
    *("PC", "Forward", "NN", "GA", "SCL_EXP", "SCL_NL", "L_W", "OP_W"),
    *("VALEN", "PiCO", "ABLE", "CRDPLL", "DIRK", "FREDIS", "ALIM", "PiCO_plus"),
)
DATASETS = ("Lost", "MSRCv2", "PLCIFAR10_Aggregate")
CR = criteria["CR"]


@pytest.fixture(scope="module")
def many_runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("many")
    return read_runs(write_sweep(root, datasets=DATASETS, algorithms=MANY, n_trials=2, n_hparams=3))


@pytest.fixture(scope="module")
def many(many_runs):
    return build_leaderboard(many_runs)


@pytest.fixture(scope="module")
def costs():
    rng = np.random.default_rng(1)
    return [
        StepCost(a, "Lost", float(10 ** rng.uniform(-0.5, 1)), 0.3, float(rng.uniform(300, 900)))
        for a in MANY
    ]


def means(board, number):
    return board.means(board.settings[number], CR)


def drawings(board, runs, costs, width=3.3):
    setting = board.settings[0]
    some = [run for run in runs if run.experiment.algorithm in ("CC", "LWS")]
    first, second = (means(board, i) for i in (0, 1)) if runs else ({}, {})
    return {
        "boxes": lambda: draw_boxes(board, width=width),
        "ranks": lambda: draw_ranks(board, CR, width=width),
        "ranks_wilcoxon": lambda: draw_ranks(board, CR, "wilcoxon", width=width),
        "curves": lambda: draw_curves(board, setting, CR, width),
        "criterion": lambda: draw_criteria(some, board.criteria, width),
        "sensitivity": lambda: draw_sensitivity(runs, "CC", CR, width),
        "pareto": lambda: draw_pareto(board, CR, costs, width),
        "cost": lambda: draw_costs(costs, width=width),
        "slope": lambda: draw_slopes(first, second, ("Lost", "MSRCv2"), "By CR, n = 2 splits", width),
        "pilot": lambda: draw_pilot(pilot_results(), width),
    }


def pilot_results(outlier=None):
    rng = np.random.default_rng(7)

    def arm(mean):
        return Arm(tuple(mean + rng.normal(0, 0.01, size=3)))

    skills = {(d, a): 0.05 if a == outlier else rng.uniform(0.6, 0.7) for d in DATASETS[:2] for a in MANY}
    return [PilotResult(d, a, arm(skill), arm(skill + 0.01), 3, "") for (d, a), skill in skills.items()]


KINDS = tuple(drawings(type("Board", (), {"settings": [None]})(), [], []))


def visible_texts(figure):
    """Return the texts that are drawn, with their places in pixels."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    unseen = {id(t) for axes in figure.axes if not axes.get_visible() for t in axes.findobj(Text)}
    # matplotlib keeps ticks beyond the limits of their axes without drawing them.
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if not axes.axison or not low - 1e-9 <= tick.get_loc() <= high + 1e-9:
                    unseen |= {id(tick.label1), id(tick.label2)}
    texts = [
        t for t in figure.findobj(Text) if id(t) not in unseen and t.get_visible() and t.get_text().strip()
    ]
    # Text's own extent: that of an annotation would include its line.
    return [(text.get_text(), Text.get_window_extent(text, renderer)) for text in texts]


def words_of(figure):
    """Return all texts of a figure on one line, as its reader reads them."""
    return " ".join(" ".join(text.split()) for text, _ in visible_texts(figure))


@pytest.mark.parametrize("width", [3.3, 7.0])
@pytest.mark.parametrize("kind", KINDS)
def test_texts_do_not_overlap_and_stay_on_the_page(kind, width, many, many_runs, costs):
    with figure_style():
        figure = drawings(many, many_runs, costs, width)[kind]()
        assert figure.get_figwidth() == width
        texts = visible_texts(figure)
    width, height = figure.canvas.get_width_height()
    assert len(texts) > 5
    for number, (text, box) in enumerate(texts):
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= -1, text
        for other, other_box in texts[number + 1 :]:
            overlap_x = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
            overlap_y = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
            assert not (overlap_x > 1.5 and overlap_y > 1.5), f"{text!r} and {other!r} overlap"


def test_every_algorithm_is_named_in_the_figures_of_all(many, many_runs, costs):
    for kind in ("ranks", "curves", "pareto", "cost", "slope", "pilot"):
        with figure_style():
            texts = " ".join(text for text, _ in visible_texts(drawings(many, many_runs, costs)[kind]()))
        for algorithm in MANY:
            assert algorithm in texts, kind


def test_boxes_leave_out_what_the_paper_leaves_out_unless_told(many):
    def names(figure):
        return {text.get_text() for text in figure.axes[0].get_yticklabels()}

    with figure_style():
        assert names(draw_boxes(many)) == set(MANY) - {"NN", "GA"}
        assert "Left out, as in the paper: GA, NN." in words_of(draw_boxes(many))
        assert names(draw_boxes(many, ())) == set(MANY)
        assert "Left out" not in words_of(draw_boxes(many, ()))
        assert "Left out: CC." in words_of(draw_boxes(many, ("CC",)))
        with pytest.raises(UsageError, match="nothing selected"):
            draw_boxes(many, MANY)


def test_boxes_hold_each_split_less_its_median_algorithm(many):
    """Pooled accuracies would show differences between datasets, which are no algorithm's doing."""
    with figure_style():
        figure = draw_boxes(many, ())
    order = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    medians = sorted(
        (line for line in figure.axes[0].lines if len(line.get_ydata()) == 2 and line.get_linewidth() == 1.2),
        key=lambda line: np.mean(line.get_ydata()),
    )
    table = np.array([[a for s in many.settings for a in many.cell(s, n, CR).accuracies] for n in order])
    expected = 100 * np.median(table - np.median(table, axis=0), axis=1)
    drawn = [float(line.get_xdata()[0]) for line in medians]
    np.testing.assert_allclose(drawn, expected, atol=1e-9)


def test_shades_differ_in_lightness():
    weights = np.array([0.299, 0.587, 0.114])
    lightness = [float(np.dot(colour[:3], weights)) for colour in shades(5)]
    assert np.all(np.diff(lightness) > 0.1)
    assert lightness[-1] < 0.9


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_saving_is_whole_and_repeatable(tmp_path, many, ending):
    with figure_style():
        figure = draw_ranks(many, CR)
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in paths:
        save_figure(figure, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len(paths[0].read_bytes()) > 1000
    assert sorted(tmp_path.iterdir()) == paths


def test_hostile_names_are_drawn_as_text(tmp_path):
    for number, name in enumerate((r"$\frac{", "<script>", "\x1b[31m", "名" * 300, "a$b$c")):
        for dataset in ("A", "B"):
            folder = tmp_path / f"{dataset}{number}"
            write_run(folder, make_records(0.6, np.random.default_rng(number)), dataset, name)
    with figure_style():
        board = build_leaderboard(read_runs(tmp_path))
        save_figure(draw_boxes(board), tmp_path / "boxes.svg")
        save_figure(draw_ranks(board, CR), tmp_path / "ranks.svg")
    assert "<script>" not in (tmp_path / "boxes.svg").read_text()


def test_spread_positions():
    assert spread_positions([1.0, 5.0, 3.0], 1.0) == [1.0, 5.0, 3.0]
    placed = spread_positions([1.0, 1.0, 1.2, 9.0], 1.0)
    assert np.all(np.diff(sorted(placed)) >= 1 - 1e-12)
    assert placed[3] == 9.0
    assert np.mean(placed[:3]) == pytest.approx(np.mean([1.0, 1.0, 1.2]))


def test_count_inversions():
    first = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0}
    assert count_inversions(first, first) == 0
    assert count_inversions(first, {"a": 0.0, "b": 1.0, "c": 2.0, "e": 5.0}) == 3
    assert count_inversions(first, {"a": 2.0, "b": 2.0, "c": 3.0}) == 2


def test_front():
    assert find_front([1, 2, 3, 4], [0.5, 0.4, 0.9, 0.9]) == [0, 2]
    assert find_front([1, 1], [0.5, 0.6]) == [1]


def test_read_costs(tmp_path):
    path = tmp_path / "step.json"
    row = {"algorithm": "CC", "dataset": "Lost", "ms": 0.5, "floor_ms": 0.4, "peak_mb": 300}
    path.write_text(json.dumps({"rows": [row]}))
    assert read_costs(path) == [StepCost("CC", "Lost", 0.5, 0.4, 300)]
    for bad in ("{", "[]", "3", json.dumps([{"algorithm": "CC"}]), json.dumps([{**row, "ms": -1}])):
        path.write_text(bad)
        with pytest.raises(DataError, match=r"step\.json"):
            read_costs(path)


def test_flipping_matrix_and_stats_against_counting():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 4, size=300)
    candidates = rng.random((300, 5)) < 0.4
    candidates[:, 0] |= ~candidates.any(axis=1)
    flipping = measure_flipping(candidates, labels)
    for i in range(4):
        for j in range(5):
            assert flipping[i, j] == pytest.approx(np.mean(candidates[labels == i, j]))
    assert np.isnan(flipping[4]).all()
    stats = describe_candidates(candidates, labels)
    off = [(flipping[i, j], (i, j)) for i in range(4) for j in range(5) if i != j]
    assert (stats.ambiguity_degree, stats.ambiguous_pair) == max(off)
    assert stats.noise_rate == pytest.approx(np.mean([not candidates[n, labels[n]] for n in range(300)]))
    assert stats.size_counts.sum() == 300
    assert stats.mean_size == pytest.approx(candidates.sum() / 300)
    assert describe_candidates(candidates, None).flipping is None


def test_annotator_noise_against_all_orders():
    from itertools import combinations

    rng = np.random.default_rng(3)
    hits = rng.random((20, 4)) < 0.6
    noise = measure_annotator_noise(np.repeat(np.arange(20), 4), hits.ravel())
    for n in range(1, 5):
        expected = np.mean(
            [[not row[list(some)].any() for some in combinations(range(4), n)] for row in hits]
        )
        assert noise[n - 1] == pytest.approx(expected)


@pytest.mark.parametrize("k", [3, 10, 90])
def test_dataset_figure(k):
    rng = np.random.default_rng(4)
    labels = rng.integers(0, k, size=500)
    candidates = rng.random((500, k)) < 0.2
    candidates[np.arange(500), labels] = True
    noise = np.array([0.3, 0.1, 0.05])
    with figure_style():
        figure = draw_dataset("Example", describe_candidates(candidates, labels), noise)
        texts = [text for text, _ in visible_texts(figure)]
        plain = draw_dataset("Example", describe_candidates(candidates, None))
    assert any("p(j ∈ S | y = i)" in text for text in texts)
    assert len(plain.axes) == 2


def plot(*words):
    return main(["plot", *map(str, words)])


def test_command_draws_every_kind(sweep, tmp_path, capsys):
    costs = tmp_path / "step.json"
    names = ("PRODEN", "CC", "LWS", "NN")
    rows = [{"algorithm": a, "dataset": "Lost", "ms": i + 1} for i, a in enumerate(names)]
    costs.write_text(json.dumps(rows))
    other = write_sweep(tmp_path / "other", datasets=("Lost",), seed=5)
    commands = {
        "boxes": [sweep, "--leave_out"],
        "ranks": [sweep, "--criteria", "AA"],
        "curves": [sweep, "--datasets", "Lost"],
        "criterion": [sweep],
        "sensitivity": [sweep, "--algorithms", "CC"],
        "pareto": [sweep, "--costs", costs],
        "slope": [sweep, other, "--datasets", "Lost"],
        "cost": [costs],
    }
    for kind, words in commands.items():
        target = tmp_path / f"{kind}.svg"
        assert plot(kind, *words, "--output", target) == 0, capsys.readouterr().err
        assert target.stat().st_size > 1000
        assert str(target) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["curves", "{sweep}"], "choose with --datasets and --where (there are Lost, MSRCv2)"),
        (["sensitivity", "{sweep}"], "one algorithm at a time"),
        (["slope", "{sweep}"], "two folders"),
        (["ranks", "{sweep}", "--algorithms", "CC", "LWS"], "3 algorithms and 2 datasets"),
        (["ranks", "{sweep}", "--alpha", "2"], "between 0 and 1"),
        (["ranks", "{sweep}", "--criteria", "CR", "AA"], "one criterion, not CR, AA"),
        (["boxes", "{sweep}", "--leave_out", "zzz"], "unknown algorithm 'zzz'"),
        (["cost", "nothing.json"], "nothing.json"),
    ],
)
def test_command_bad_usage(sweep, tmp_path, capsys, words, said):
    target = tmp_path / "x.svg"
    assert plot(*(word.format(sweep=sweep) for word in words), "--output", target) == 2
    assert said in capsys.readouterr().err
    assert not Path(target).exists()


def test_without_the_extra_the_command_says_what_to_install(sweep, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert plot("boxes", sweep, "--output", tmp_path / "x.svg") == 2
    assert "extra 'report'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["collect", str(sweep), "--format", "parquet", "--output", str(tmp_path / "x.parquet")]) == 2
    assert "extra 'report'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_slope_keeps_copies_in_the_other_folder(sweep, tmp_path, capsys):
    """Two result sets may share runs: each folder has all of its own."""
    shutil.copytree(sweep, tmp_path / "copy")
    words = ["plot", "slope", str(sweep), str(tmp_path / "copy"), "--datasets", "Lost"]
    assert main([*words, "--output", str(tmp_path / "slope.svg")]) == 0
    assert "copies" not in capsys.readouterr().err
    assert (tmp_path / "slope.svg").stat().st_size > 0
