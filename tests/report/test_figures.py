"""Every kind of figure: texts do not overlap, outliers do not set the scale, gaps are named."""

import json
import re
import shutil
import sys
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from plench.cli.pilot import draw_pilot
from plench.criteria import criteria
from plench.errors import DataError, UsageError
from plench.report.dataset_stats import (
    describe_candidates,
    draw_dataset,
)
from plench.report.drawing import (
    Range,
    figure_style,
    find_range,
    format_number,
    name_points,
    new_figure,
    place_outside,
    save_figure,
    shades,
)
from plench.report.figures import (
    StepCost,
    draw_boxes,
    draw_costs,
    draw_pareto,
    draw_rank_intervals,
    draw_ranks,
    draw_slopes,
    find_front,
    read_costs,
)
from plench.report.leaderboard import bootstrap_ranks, build_leaderboard
from plench.report.run_figures import draw_criteria, draw_curves, draw_sensitivity
from plench.runs import read_runs
from tests.report.conftest import read_board, records
from tests.synthetic_sweep import ALGORITHMS, write_run, write_sweep

MANY = (
    *("PRODEN", "CAVL", "POP", "ABS_MAE", "ABS_GCE", "EXP", "MCL_GCE", "MCL_MSE", "CC", "LWS", "IDGP"),
    *("PC", "Forward", "NN", "GA", "SCL_EXP", "SCL_NL", "L_W", "OP_W"),
    *("VALEN", "PiCO", "ABLE", "CRDPLL", "DIRK", "FREDIS", "ALIM", "PiCO_plus"),
)
CR, OA = criteria["CR"], criteria["OA"]
FAILED = "EXP"


@pytest.fixture(autouse=True)
def style():
    with figure_style():
        yield


@pytest.fixture(scope="module")
def many_runs(tmp_path_factory):
    """27 algorithms of similar accuracy, and one of them always wrong."""
    root = tmp_path_factory.mktemp("many")
    skills = {name: 0.7 + 0.002 * i for i, name in enumerate(MANY)} | {FAILED: 0.0}
    return read_runs(write_sweep(root, algorithms=MANY, n_trials=2, n_hparams=3, skills=skills))


@pytest.fixture(scope="module")
def many(many_runs):
    return build_leaderboard(many_runs)


COSTS = [StepCost(a, "Lost", 1.0 + i / 10, 0.5, 320.0 + i) for i, a in enumerate(MANY)]


def pilot_results(outlier=None):
    rng = np.random.default_rng(7)

    skills = {
        (d, a): 0.05 if a == outlier else rng.uniform(0.6, 0.7) for d in ("Lost", "MSRCv2") for a in MANY
    }
    return [
        {"dataset": dataset, "algorithm": algorithm, "n_splits": 3}
        | {f"{arm}_mean": skill + rng.normal(0.005, 0.01) for arm in ("choosing", "training")}
        | {f"{arm}_standard_error": rng.uniform(0.003, 0.008) for arm in ("choosing", "training")}
        for (dataset, algorithm), skill in skills.items()
    ]


def means(board, number):
    return board.means(board.settings[number], CR)


def slopes(board, width=3.3):
    return draw_slopes(means(board, 0), means(board, 1), ("Lost", "MSRCv2"), "By CR, n = 2 splits", width)


def five_splits(board):
    """Return the board with the splits of each cell counted three times, as of six splits."""
    cells = {
        place: replace(
            cell,
            choices=tuple(
                replace(choice, trial_seed=10 * n + choice.trial_seed)
                for n in range(3)
                for choice in cell.choices
            ),
        )
        for place, cell in board.cells.items()
    }
    return replace(board, cells=cells)


def scattered_costs():
    rng = np.random.default_rng(1)
    return [StepCost(a, "Lost", float(10 ** rng.uniform(-0.5, 1)), 0.3, rng.uniform(300, 900)) for a in MANY]


def shown_axes(figure):
    return [axes for axes in figure.axes if axes.get_visible()]


def only(runs, *names):
    return [run for run in runs if run.experiment.algorithm in names]


DRAWINGS = {
    "boxes": lambda board, runs, width: draw_boxes(board, width=width),
    "ranks": lambda board, runs, width: draw_ranks(board, CR, width=width),
    "ranks_wilcoxon": lambda board, runs, width: draw_ranks(board, CR, "wilcoxon", width=width),
    "curves": lambda board, runs, width: draw_curves(board, board.settings[0], CR, width),
    "rank-intervals": lambda board, runs, width: draw_rank_intervals(five_splits(board), CR, width),
    "criterion": lambda board, runs, width: draw_criteria(only(runs, "CC", "LWS"), board.criteria, width),
    "sensitivity": lambda board, runs, width: draw_sensitivity(only(runs, "CC"), CR, width),
    "pareto": lambda board, runs, width: draw_pareto(board, CR, scattered_costs(), width),
    "cost": lambda board, runs, width: draw_costs(scattered_costs(), width=width),
    "slope": lambda board, runs, width: slopes(board, width),
    "pilot": lambda board, runs, width: draw_pilot(pilot_results(), width),
}


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


def row_names(figure):
    return [text.get_text() for text in figure.axes[0].get_yticklabels()]


@pytest.mark.parametrize("width", [3.3, 7.0])
@pytest.mark.parametrize("kind", DRAWINGS)
def test_texts_do_not_overlap_and_stay_on_the_page(kind, width, many, many_runs):
    figure = DRAWINGS[kind](many, many_runs, width)
    assert figure.get_figwidth() == width
    texts = visible_texts(figure)
    width, height = figure.canvas.get_width_height()
    assert len(texts) > 5
    for text, box in texts:
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= -1, text
    for (text, box), (other, other_box) in combinations(texts, 2):
        overlap_x = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        overlap_y = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert not (overlap_x > 1.5 and overlap_y > 1.5), f"{text!r} and {other!r} overlap"
    if kind in ("ranks", "curves", "pareto", "cost", "slope", "pilot"):
        words = " ".join(text for text, _ in texts)
        assert all(algorithm in words for algorithm in MANY)


@pytest.mark.filterwarnings("error:constrained_layout")
def test_one_algorithm_alone_has_room(many_runs):
    alone = build_leaderboard(only(many_runs, "CC"))
    for figure in (
        draw_boxes(alone),
        draw_costs(COSTS[:1]),
        draw_pilot(pilot_results()[:1]),
        draw_curves(alone, alone.settings[0], CR),
    ):
        figure.canvas.draw()
        assert all(axes.get_window_extent().height > 10 for axes in shown_axes(figure))


def test_hostile_names_are_drawn_as_text(tmp_path):
    for number, name in enumerate((r"$\frac{", "<script>", "\x1b[31m", "名" * 300, "a$b$c")):
        for dataset in ("A", "B"):
            write_run(tmp_path / f"{dataset}{number}", records(seed=number), dataset, name)
    board = read_board(tmp_path)
    save_figure(draw_boxes(board), tmp_path / "boxes.svg")
    save_figure(draw_ranks(board, CR), tmp_path / "ranks.svg")
    assert "<script>" not in (tmp_path / "boxes.svg").read_text()


# Parts of figures.


def test_shades_differ_in_lightness():
    lightness = [float(np.dot(colour[:3], [0.299, 0.587, 0.114])) for colour in shades(5)]
    assert np.all(np.diff(lightness) > 0.1)
    assert lightness[-1] < 0.9


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_saving_is_whole_and_repeatable(tmp_path, many, ending):
    figure = draw_ranks(many, CR)
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in paths:
        save_figure(figure, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len(paths[0].read_bytes()) > 1000
    assert sorted(tmp_path.iterdir()) == paths


def read_svg(path):
    """Return the words of a figure; a title may be broken into lines."""
    texts = ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")
    return " ".join(" ".join("".join(text.itertext()) for text in texts).split())


def test_the_range_is_that_of_the_bulk_and_outliers_stand_beyond_it_in_their_order():
    assert find_range([70, 71, 72, 73, 0]) == Range(70, 73)
    assert find_range([70, 71, 72, 73, 74, 99]) == Range(70, 74)
    assert find_range([1.0, 2.0, 3.0, 4.0, 5.0]) == Range(1, 5)
    assert find_range([50.0, 50.0]) == Range(49.5, 50.5)
    assert find_range([]) == Range(0, 1)
    assert find_range([0.0, 0.0, 100.0, 100.0]) == Range(0, 100), "two groups are not outliers"
    assert find_range([float("nan"), 1.0, 3.0]) == Range(1, 3)
    assert place_outside([5.0, 1.0, 0.0, 20.0], Range(4, 6), 1.0) == [5.0, 2.0, 1.0, 8.0]


def test_numbers_are_written_as_people_write_them():
    written = {4096: "4096", 65536: "65536", 0.001: "0.001", 1e-4: "1e-4", 3.2e-5: "3.2e-5", 0.5: "0.5"}
    written |= {-2.5: "−2.5", 0: "0", 1e7: "1e7"}
    assert {value: format_number(value) for value in written} == written


# Algorithms compared.


def test_boxes_leave_out_what_the_paper_leaves_out_unless_told(many):
    assert set(row_names(draw_boxes(many))) == set(MANY) - {"NN", "GA"}
    assert "Left out, as in the paper: GA, NN." in words_of(draw_boxes(many))
    assert set(row_names(draw_boxes(many, ()))) == set(MANY)
    assert "Left out" not in words_of(draw_boxes(many, ()))
    assert "Left out: CC." in words_of(draw_boxes(many, ("CC",)))
    with pytest.raises(UsageError, match="nothing selected"):
        draw_boxes(many, MANY)


def test_boxes_hold_each_split_less_its_median_algorithm(many):
    """Pooled accuracies would show differences between datasets, which are not the algorithms'."""
    figure = draw_boxes(many, (FAILED,))
    medians = sorted(
        (line for line in figure.axes[0].lines if len(line.get_ydata()) == 2 and line.get_linewidth() == 1.2),
        key=lambda line: np.mean(line.get_ydata()),
    )
    table = np.array(
        [[a for s in many.settings for a in many.cell(s, name, CR).accuracies] for name in row_names(figure)]
    )
    expected = 100 * np.median(table - np.median(table, axis=0), axis=1)
    drawn = [float(line.get_xdata()[0]) for line in medians]
    np.testing.assert_allclose(drawn, expected, atol=1e-9)


def test_boxes_set_apart_what_lacks_a_pair(gapped_board, board):
    figure = draw_boxes(gapped_board, ())
    order = row_names(figure)
    assert set(order[:3]) == {"CC", "PRODEN", "SCL_NL"}
    assert set(order[3:]) == {"LWS 2/4", "NN 3/4", "EXP 2/4"}, "the fewest by any criterion"
    for axes in shown_axes(figure):
        rows = axes.collections  # dots: nobody has five values
        white = [dots for dots in rows if to_hex(dots.get_facecolor()[0]) == "#ffffff"]
        off_scale = [text for text in axes.texts if re.search("[◂▸]", text.get_text())]
        assert len(rows) + len(off_scale) in (5, 6), "an algorithm may have no figure by OA"
        assert len(white) <= 3
        assert white or axes is not figure.axes[0]
    assert "White: lacks some splits" in words_of(figure)
    assert "2 datasets, n = 4 splits" in words_of(figure)
    whole = draw_boxes(board, ())
    assert not whole.axes[0].texts
    assert "White" not in words_of(whole)


def test_boxes_scale_by_the_bulk_and_say_what_is_beyond(many):
    figure = draw_boxes(many, ())
    low, high = figure.axes[0].get_xlim()
    assert -45 < low < 0 < high < 45
    words = words_of(figure)
    assert re.search(r"◂ −[67]\d", words)
    assert "beyond the scale" in words
    assert "2 datasets, n = 4 splits" in words


def test_ranks_name_whom_they_leave_out(gapped, gapped_board, tmp_path, cli):
    assert "some dataset: LWS." in words_of(draw_ranks(gapped_board, CR))
    words = ["--algorithms", "CC", "LWS", "NN", "--output", tmp_path / "r.svg"]
    assert "1 lack a figure in some dataset" in cli("results", "plot", "ranks", gapped, *words, code=2).err


def test_slope_counts_inversions_and_scales_by_the_bulk(many):
    first = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0}
    for second, said in (
        (first, "0 of 6 pairs of 4"),
        ({"a": 0.0, "b": 1.0, "c": 2.0, "e": 5.0}, "3 of 3 pairs of 3"),
        ({"a": 2.0, "b": 2.0, "c": 3.0}, "2 of 3 pairs of 3"),
    ):
        assert said in words_of(draw_slopes(first, second, ("x", "y"), "Title"))
    figure = slopes(many)
    values = (item for i in (0, 1) for item in means(many, i).items())
    bulk = [100 * value for name, value in values if name != FAILED]
    low, high = figure.axes[0].get_ylim()
    assert max(bulk) - min(bulk) > 0.4 * (high - low)
    assert f"{FAILED} {100 * means(many, 0)[FAILED]:.2f}" in words_of(figure)
    assert "not to scale" in words_of(figure)


def test_slope_names_what_only_one_set_has_and_tells_folders_apart(sweep, tmp_path, cli):
    first = write_sweep(tmp_path / "a" / "runs", datasets=("Lost",), n_trials=2, n_hparams=1)
    second = write_sweep(tmp_path / "b" / "runs", datasets=("Lost",), algorithms=("CC", "LWS"), n_trials=2)
    output = tmp_path / "slope.svg"
    cli("results", "plot", "slope", first, second, "--output", output)
    assert "Only in a/runs: Lost: NN, PRODEN." in read_svg(output)
    assert "b/runs: Lost" in read_svg(output)
    shutil.copytree(
        sweep, tmp_path / "copy"
    )  # two result sets may share runs: each folder has all of its own
    words = ["slope", sweep, tmp_path / "copy", "--datasets", "Lost", "--output", tmp_path / "other.svg"]
    assert "copies" not in cli("results", "plot", *words).err
    assert (tmp_path / "other.svg").stat().st_size > 0


# Single runs.


def test_curves_give_the_outlier_a_scale_of_its_own(many):
    figure = draw_curves(many, many.settings[0], CR)
    titles = {axes.get_title(loc="left"): axes.get_ylim() for axes in figure.axes}
    titles.pop("", None)
    assert titles.pop(f"{FAILED} *")[0] < 1
    (shared,) = set(titles.values())
    assert shared[0] > 5
    place = [axes.get_title(loc="left") for axes in figure.axes].index(f"{FAILED} *")
    numbered = [axes.yaxis.get_tick_params()["labelleft"] for axes in figure.axes[place : place + 2]]
    assert numbered == [True, True], "the next panel has other numbers"
    assert "n = 2 splits" in words_of(figure)
    assert "* on a scale of its own." in words_of(figure)


def test_curves_name_what_has_no_checkpoint_to_choose(gapped_board):
    setting = next(s for s in gapped_board.settings if s.dataset == "MSRCv2")
    assert "to choose: EXP, LWS." in words_of(draw_curves(gapped_board, setting, OA))


def test_curves_of_two_settings_can_be_chosen_from(tmp_path, cli):
    for steps in (500, 1000):
        write_run(tmp_path / f"s{steps}", records(steps=steps), "Lost", "CC", steps=steps)
    words = ["results", "plot", "curves", tmp_path, "--output", tmp_path / "c.svg"]
    assert "--where (there are Lost (steps 1000), Lost (steps 500))" in cli(*words, code=2).err
    cli(*words, "--where", "steps=500")


def test_sensitivity_ticks_are_plain_and_failures_stand_at_the_edge(tmp_path):
    root = write_sweep(
        tmp_path,
        datasets=("Lost",),
        algorithms=("CC",),
        n_hparams=12,
        hparams=lambda c: {"queue": 4096 * (1 + c % 2), "lr": 10.0 ** -(2 + c / 5), "temperature": 0.07},
        failing=lambda c: c == 11,
    )
    figure = draw_sensitivity(only(read_runs(root), "CC"), CR)
    assert {"4096", "8192", "0.01", "0.001", "1e-4"} <= {text for text, _ in visible_texts(figure)}
    assert "beyond the scale" in words_of(figure)
    assert "1 dataset, n = 36 runs" in words_of(figure)
    assert figure.axes[0].get_ylim()[0] > -40


def test_criterion_has_a_panel_each_and_a_unit(many_runs, many):
    figure = draw_criteria(many_runs, many.criteria)
    words = words_of(figure)
    panels = shown_axes(figure)
    assert len(panels) == 2 * len(many.criteria), "a panel per dataset and criterion"
    assert len(re.findall(r"regret −?\d+\.\d\d ρ", words)) == len(panels)
    assert all(axes.get_ylim()[0] > 10 for axes in panels)
    assert "beyond the scales" in words
    assert "n = 162 runs" in words


def test_six_datasets_fit_a_page_and_nothing_is_cut(tmp_path):
    """Names as long as people give them; panels of one criterion below each other."""
    names = ("CC", "LWS", "a method with a long name")
    datasets = ("Lost", "MSRCv2", "Birdsong", "Malagasy", "Yahoo!News", "SoccerPlayer")
    runs = read_runs(write_sweep(tmp_path, datasets=datasets, algorithms=names, n_trials=2, n_hparams=3))
    board = build_leaderboard(runs, [criteria[name] for name in ("CR", "AA", "OA", "OA_ES")])
    clouds = draw_criteria(runs, board.criteria)
    assert all(len(axes.get_xticks()) <= 2 for axes in clouds.axes), "three numbers run into each other"
    for figure in (clouds, draw_boxes(board, ())):
        texts = visible_texts(figure)
        width, height = figure.canvas.get_width_height()
        assert figure.get_figheight() < 8
        for text, box in texts:
            assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= -1, text


def test_rank_intervals_are_those_of_the_statistics(many):
    board = five_splits(many)
    figure = draw_rank_intervals(board, CR)
    found = bootstrap_ranks(board, CR, board.algorithms)
    (lines, dots) = figure.axes[0].collections
    order = [text.split()[0] for text in row_names(figure)]
    drawn = [segment[:, 0].tolist() for segment in lines.get_segments()]
    assert drawn == [pytest.approx(list(found.over_splits[name])) for name in order]
    ranks = {name: rank for name, (rank, _) in board.rank(CR).items()}
    assert dots.get_offsets()[:, 0].tolist() == pytest.approx([ranks[name] for name in order])
    assert "No rank intervals over datasets: there are 2" in words_of(figure)
    with pytest.raises(UsageError, match="only 2 splits"):
        draw_rank_intervals(many, CR)


def test_few_values_are_dots_not_boxes(many, board):
    assert len(draw_boxes(many, (FAILED,)).axes[0].patches) == 0, "four values each"
    assert "Dots and their median" in words_of(draw_boxes(many, ()))
    assert len(draw_boxes(board, ()).axes[0].patches) == 4, "six values each"


def test_pilot_draws_points_on_the_scale_of_the_bulk():
    figure = draw_pilot(pilot_results(outlier=FAILED))
    for axes in figure.axes:
        assert not axes.patches, "bars on an axis that does not begin at 0 mislead"
        assert axes.get_xlim()[0] > 45
        assert len(axes.lines) == 2 * (len(MANY) - 1)
    assert re.search(r"◂ \d\.\d → \d\.\d", words_of(figure))
    assert "2 datasets, n = 3 splits" in words_of(figure)
    with pytest.raises(UsageError, match="both arms"):
        draw_pilot([])


# Costs.


def test_read_costs(tmp_path):
    path = tmp_path / "step.json"
    row = {"algorithm": "CC", "dataset": "Lost", "ms": 0.5, "floor_ms": 0.4, "peak_mb": 300}
    path.write_text(json.dumps({"rows": [row]}))
    assert read_costs(path) == [StepCost("CC", "Lost", 0.5, 0.4, 300)]
    for bad in ("{", "[]", "3", json.dumps([{"algorithm": "CC"}]), json.dumps([{**row, "ms": -1}])):
        path.write_text(bad)
        with pytest.raises(DataError, match=r"step\.json"):
            read_costs(path)


def test_no_algorithm_stands_left_of_its_own_baseline():
    costs = [StepCost("CC", "Lost", 0.5, 0.2, None), StepCost("NN", "Lost", 0.3, 0.35, None)]
    figure = draw_costs(costs)
    dots, bars = figure.axes[0].collections[1:]
    times, baselines = (points.get_offsets() for points in (dots, bars))
    assert times.tolist() == [[0.35, 0], [0.5, 1]]
    assert sorted(baselines.tolist(), key=lambda at: at[1]) == [[0.35, 0], [0.2, 1]]
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.30", "0.50"]
    assert "1 algorithm was measured below its own bar" in words_of(figure)


def test_memory_is_drawn_beyond_the_least():
    odd = [StepCost("CC", "Lost", 1.0, None, 302.0364), StepCost("NN", "Lost", 2.0, None, 310.5)]
    assert "beyond the least of all, 302 MB" in " ".join(words_of(draw_costs(odd)).split())
    figure = draw_costs(COSTS)
    assert sorted(bar.get_width() for bar in figure.axes[1].patches) == pytest.approx(range(len(MANY)))
    assert figure.axes[0].get_xscale() == "log"
    for said in ("320 MB", "Lost, n = 27 algorithms"):
        assert said in words_of(figure)
    unmeasured = draw_costs([COSTS[0], StepCost("NN", "Lost", 2.0, None, None)])
    assert [text.get_text().strip() for text in unmeasured.axes[1].texts] == ["+0", "not measured"]


def test_pareto_is_over_the_datasets_that_were_measured_and_scales_by_the_bulk(many):
    assert find_front([1, 2, 3, 4], [0.5, 0.4, 0.9, 0.9]) == [0, 2]
    assert find_front([1, 1], [0.5, 0.6]) == [1]
    figure = draw_pareto(many, CR, COSTS)
    lost = means(many, 0)
    drawn = sorted(float(y) for points in figure.axes[0].collections for _, y in points.get_offsets())
    assert drawn[1:] == pytest.approx(sorted(100 * v for name, v in lost.items() if name != FAILED))
    assert figure.axes[0].get_ylim()[0] > 40
    for said in (
        f"{FAILED} {100 * lost[FAILED]:.1f}",
        "not to scale",
        "Lost, n = 2 splits",
        "Left out, without measured cost: MSRCv2.",
    ):
        assert said in words_of(figure)
    ticks = [text for text, _ in visible_texts(figure) if re.fullmatch(r"\d+(\.\d+)?", text)]
    assert all(float(tick) > 40 or float(tick) <= 20 for tick in ticks), "no tick where nothing is to scale"
    elsewhere = [StepCost(cost.algorithm, "Italian", cost.ms, None, None) for cost in COSTS]
    with pytest.raises(UsageError, match="measured on Italian, but the results are on Lost"):
        draw_pareto(many, CR, elsewhere)


def test_names_of_points_in_one_line_do_not_touch():
    xs, ys = np.random.default_rng(0).random((2, 20))
    with figure_style():
        figure = new_figure(3.3, 2.0)
        axes = figure.add_subplot()
        axes.scatter(xs, ys)
        name_points(axes, xs, ys, [f"NAME_{i}" for i in range(20)])
        boxes = [box for text, box in visible_texts(figure) if text.startswith("NAME")]
    pairs = combinations(boxes, 2)
    beside = [(one, other) for one, other in pairs if min(one.y1, other.y1) > max(one.y0, other.y0) + 1]
    assert min(max(one.x0, other.x0) - min(one.x1, other.x1) for one, other in beside) > 4  # pixels


def test_pareto_leaves_out_what_does_not_compare_and_names_it(gapped_board):
    measured = ("CC", "PRODEN", "LWS", "NN", "SCL_NL")
    costs = [StepCost(a, d, 1.0 + i, None, None) for i, a in enumerate(measured) for d in ("Lost", "MSRCv2")]
    costs.remove(StepCost("CC", "MSRCv2", 1.0, None, None))
    figure = draw_pareto(gapped_board, CR, costs)
    assert {text.get_text() for text in figure.axes[0].texts} == {"PRODEN", "NN", "SCL_NL"}
    for said in (
        "no figure in some dataset: LWS.",
        "no measurement of the cost: CC, EXP.",
        "Lost, MSRCv2",
    ):
        assert said in words_of(figure)
    with pytest.raises(UsageError, match="--datasets"):
        draw_pareto(gapped_board, CR, [StepCost("ABLE", "Lost", 1.0, None, None)])


# Datasets.


def test_flipping_matrix_and_stats_against_counting():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 4, size=300)
    candidates = rng.random((300, 5)) < 0.4
    candidates[:, 0] |= ~candidates.any(axis=1)
    stats = describe_candidates(candidates, labels)
    flipping = stats.flipping
    for i, j in np.ndindex(4, 5):
        assert flipping[i, j] == pytest.approx(np.mean(candidates[labels == i, j]))
    assert np.isnan(flipping[4]).all()
    off = [(flipping[i, j], (i, j)) for i, j in np.ndindex(4, 5) if i != j]
    assert (stats.ambiguity_degree, stats.ambiguous_pair) == max(off)
    assert stats.noise_rate == pytest.approx(np.mean([not candidates[n, labels[n]] for n in range(300)]))
    assert stats.size_counts.sum() == 300
    assert stats.mean_size == pytest.approx(candidates.sum() / 300)
    assert describe_candidates(candidates, None).flipping is None


@pytest.mark.parametrize("k", [3, 10, 90])
def test_dataset_figure(k):
    rng = np.random.default_rng(4)
    labels = rng.integers(0, k, size=500)
    candidates = rng.random((500, k)) < 0.2
    candidates[np.arange(500), labels] = True
    stats = describe_candidates(candidates, labels, ("cat", "dog", "<b>cow</b>") if k == 3 else None)
    figure = draw_dataset("Example", stats, np.array([0.3, 0.1, 0.05]))
    texts = [text for text, _ in visible_texts(figure)]
    assert any("p(j ∈ S | y = i)" in text for text in texts)
    assert "n = 500 examples" in words_of(figure)
    image = next(axes for axes in figure.axes if axes.images).images[0]
    assert image.get_clim() == pytest.approx((0, 100 * stats.ambiguity_degree))
    np.testing.assert_allclose(image.get_array(), 100 * stats.flipping)
    if k == 3:
        assert texts.count("cat") == 3
        assert {f"{100 * p:.0f}" for p in stats.flipping.ravel()} <= set(texts)
    assert len(draw_dataset("Example", describe_candidates(candidates, None)).axes) == 2


# The command.


def test_command_draws_every_kind_from_folders_and_from_results_files(sweep, tmp_path, cli):
    pytest.importorskip("pyarrow")
    other = write_sweep(tmp_path / "other", datasets=("Lost",), seed=5)
    costs = tmp_path / "step.json"
    costs.write_text(
        json.dumps([{"algorithm": a, "dataset": "Lost", "ms": i + 1} for i, a in enumerate(ALGORITHMS)])
    )
    folders = [sweep, other]
    files = [tmp_path / f"{folder.name}.parquet" for folder in folders]
    for folder, file in zip(folders, files, strict=True):
        cli("results", "export", folder, "-o", file)
    drawn = {}
    for places in (folders, files):
        for kind, words in {
            "boxes": [places[0], "--leave_out"],
            "ranks": [places[0], "--criteria", "AA"],
            "curves": [places[0], "--datasets", "Lost"],
            "criterion": [places[0]],
            "sensitivity": [places[0], "--algorithms", "CC"],
            "pareto": [places[0], "--costs", costs],
            "slope": [*places, "--datasets", "Lost"],
            "cost": [costs],
        }.items():
            target = tmp_path / f"{kind}.svg"
            assert str(target) in cli("results", "plot", kind, *words, "--output", target).out
            assert target.stat().st_size > 1000
            drawn.setdefault(kind, []).append(read_svg(target).replace(".parquet", ""))
    assert {kind for kind, (first, second) in drawn.items() if first != second} == set()


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
        *(
            (["boxes", "{sweep}", "--width", width], "between 2.5 and 20 inches")
            for width in ("1", "nan", "100")
        ),
    ],
)
def test_command_bad_usage(sweep, tmp_path, cli, words, said):
    target = tmp_path / "x.svg"
    words = [word.format(sweep=sweep) for word in words]
    assert said in cli("results", "plot", *words, "--output", target, code=2).err
    assert not target.exists()
    assert ".svg, .pdf, .png" in cli("results", "plot", *words, "--output", tmp_path / "x.bmp", code=2).err


def test_without_the_extra_the_command_says_what_to_install(sweep, tmp_path, cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = cli("results", "plot", "boxes", sweep, "--output", tmp_path / "x.svg", code=2)
    assert "extra 'report'" in said.err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = cli("collect", sweep, "--format", "parquet", "--output", tmp_path / "x.parquet", code=2)
    assert "extra 'report'" in said.err
    assert list(tmp_path.iterdir()) == []


def test_what_comes_from_the_public_code_says_so_wherever_it_is_shown(tmp_path, cli):
    root = write_sweep(tmp_path / "public", public=True, n_trials=2, n_hparams=3)
    output = tmp_path / "figure.svg"
    for words in (
        ["boxes", root],
        ["ranks", root, "--criteria", "AA"],
        ["curves", root, "--datasets", "Lost", "--criteria", "AA"],
        ["criterion", root],
        ["sensitivity", root, "--algorithms", "CC", "--criteria", "AA"],
    ):
        assert "1e-12" in cli("results", "plot", *words, "--output", output).err
        assert "AA (public code's, defective)" in read_svg(output), words


def test_commands_print_no_control_characters(tmp_path, cli):
    name = "\x1b[31mred"
    for arm, suffix in (("validation", ""), ("training", "+validation")):
        write_run(tmp_path / arm / "a", records(), name + suffix, name)
        (tmp_path / arm / "a" / "results.jsonl").open("a").write("garbage\n")
    write_run(tmp_path / "validation" / "b", records(), name, "CC")
    root, output = tmp_path / "validation", ["--output", tmp_path / "x.svg"]
    for words, code in (
        (["results", "compare-paper", root], 0),
        (["results", "stats", root], 0),
        (["collect", root, "--chosen"], 0),
        (["sweep", "pilot", "--output_dir", tmp_path, "--plot_only", *output], 0),
        (["results", "plot", "sensitivity", root, *output], 2),
        (["results", "plot", "sensitivity", root, "--algorithms", "*red", *output], 2),
    ):
        said = cli(*words, code=code)
        assert "red" in said.out + said.err
        assert "\x1b" not in said.out + said.err, words
