"""One method far from the others must not decide how the rest is drawn; numbers and texts stay readable."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from plench.cli import main
from plench.criteria import criteria
from plench.errors import UsageError
from plench.pilot import draw_pilot
from plench.report.dataset_stats import describe_candidates, draw_dataset
from plench.report.drawing import Range, figure_style, find_range, format_number, place_outside, save_figure
from plench.report.figures.comparisons import draw_boxes, draw_slopes
from plench.report.figures.costs import StepCost, draw_costs, draw_pareto
from plench.report.figures.single_runs import draw_criteria, draw_curves, draw_sensitivity
from plench.report.leaderboard import build_leaderboard
from plench.runs import read_runs
from tests.report.test_figures import MANY, pilot_results, visible_texts, words_of
from tests.synthetic_sweep import write_sweep

CR = criteria["CR"]
FAILED = "EXP"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """27 algorithms, all alike but for one that is always wrong."""
    root = tmp_path_factory.mktemp("outlier")
    skills = {name: 0.7 + 0.002 * i for i, name in enumerate(MANY)} | {FAILED: 0.0}
    return write_sweep(root, algorithms=MANY, n_trials=2, n_hparams=3, skills=skills)


@pytest.fixture(scope="module")
def runs(folder):
    return read_runs(folder)


@pytest.fixture(scope="module")
def board(runs):
    return build_leaderboard(runs)


@pytest.fixture(scope="module")
def costs():
    return [StepCost(a, "Lost", 1.0 + i / 10, 0.5, 320.0 + i) for i, a in enumerate(MANY)]


def test_the_range_is_that_of_the_bulk():
    assert find_range([70, 71, 72, 73, 0]) == Range(70, 73)
    assert find_range([70, 71, 72, 73, 74, 99]) == Range(70, 74)
    assert find_range([1.0, 2.0, 3.0, 4.0, 5.0]) == Range(1, 5)
    assert find_range([50.0, 50.0]) == Range(49.5, 50.5)
    assert find_range([]) == Range(0, 1)
    assert find_range([0.0, 0.0, 100.0, 100.0]) == Range(0, 100), "two groups are no outliers"
    assert find_range([float("nan"), 1.0, 3.0]) == Range(1, 3)


def test_outliers_stand_beyond_the_range_in_their_order():
    assert place_outside([5.0, 1.0, 0.0, 20.0], Range(4, 6), 1.0) == [5.0, 2.0, 1.0, 8.0]


def test_slope_and_pareto_scale_by_the_bulk_and_show_the_outlier_with_its_number(board, costs):
    means = board.means(board.settings[0], CR)
    second = board.means(board.settings[1], CR)
    bulk = [100 * v for values in (means, second) for name, v in values.items() if name != FAILED]
    with figure_style():
        slope = draw_slopes(means, second, ("a", "b"), "By CR")
        pareto = draw_pareto(board, CR, costs)
    low, high = slope.axes[0].get_ylim()
    assert max(bulk) - min(bulk) > 0.4 * (high - low)
    words = words_of(slope)
    assert f"{FAILED} {100 * means[FAILED]:.2f}" in words
    assert "not to scale" in words
    low, high = pareto.axes[0].get_ylim()
    assert low > 40
    words = words_of(pareto)
    assert f"{FAILED} {100 * means[FAILED]:.1f}" in words
    assert "not to scale" in words
    ticks = [text for text, _ in visible_texts(pareto) if re.fullmatch(r"\d+(\.\d+)?", text)]
    assert all(float(tick) > 40 or float(tick) <= 20 for tick in ticks), "no tick where nothing is to scale"


def test_pareto_is_over_the_datasets_that_were_measured(board, costs):
    with figure_style():
        figure = draw_pareto(board, CR, costs)
    words = words_of(figure)
    assert "Lost, n = 2 splits" in words
    assert "Left out, without measured cost: MSRCv2." in words
    drawn = sorted(float(y) for points in figure.axes[0].collections for _, y in points.get_offsets())
    lost = board.means(board.settings[0], CR)
    assert drawn[1:] == pytest.approx(sorted(100 * v for name, v in lost.items() if name != FAILED))
    elsewhere = [StepCost(cost.algorithm, "Italian", cost.ms, None, None) for cost in costs]
    with figure_style(), pytest.raises(UsageError, match="measured on Italian, but the results are on Lost"):
        draw_pareto(board, CR, elsewhere)


def test_boxes_scale_by_the_bulk_and_say_what_is_beyond(board):
    with figure_style():
        figure = draw_boxes(board, ())
    low, high = figure.axes[0].get_xlim()
    assert -45 < low < 0 < high < 45
    words = words_of(figure)
    assert re.search(r"◂ −[67]\d", words)
    assert "beyond the scale" in words
    assert "2 datasets, n = 4 splits" in words


def test_curves_give_the_outlier_a_scale_of_its_own(board):
    with figure_style():
        figure = draw_curves(board, board.settings[0], CR)
        words = words_of(figure)
    limits = {
        axes.get_title(loc="left"): axes.get_ylim() for axes in figure.axes if axes.get_title(loc="left")
    }
    own = limits.pop(f"{FAILED} *")
    assert own[0] < 1
    assert len(set(limits.values())) == 1
    shared = next(iter(limits.values()))
    assert shared[0] > 5
    assert "n = 2 splits" in words
    assert "* on a scale of its own." in words


def test_sensitivity_ticks_are_plain_and_failures_stand_at_the_edge(tmp_path):
    root = write_sweep(
        tmp_path,
        datasets=("Lost",),
        algorithms=("CC",),
        n_hparams=12,
        hparams=lambda c: {"queue": 4096 * (1 + c % 2), "lr": 10.0 ** -(2 + c / 5), "temperature": 0.07},
        failing=lambda c: c == 11,
    )
    with figure_style():
        figure = draw_sensitivity(read_runs(root), "CC", CR)
        texts = [text for text, _ in visible_texts(figure)]
        words = words_of(figure)
    assert {"4096", "8192", "0.01", "0.001", "1e-4"} <= set(texts)
    assert "beyond the scale" in words
    assert "1 dataset, n = 36 runs" in words
    assert figure.axes[0].get_ylim()[0] > -40


def test_numbers_are_written_as_people_write_them():
    written = {4096: "4096", 65536: "65536", 0.001: "0.001", 1e-4: "1e-4", 3.2e-5: "3.2e-5", 0.5: "0.5"}
    assert {value: format_number(value) for value in written} == written
    assert format_number(-2.5) == "−2.5"
    assert format_number(0) == "0"
    assert format_number(1e7) == "1e7"


def test_pilot_draws_points_on_the_scale_of_the_bulk():
    with figure_style():
        figure = draw_pilot(pilot_results(outlier=FAILED))
        words = words_of(figure)
    for axes in figure.axes:
        assert not axes.patches, "bars on an axis that does not begin at 0 mislead"
        assert axes.get_xlim()[0] > 45
        assert len(axes.lines) == 2 * (len(MANY) - 1)
    assert re.search(r"◂ \d\.\d → \d\.\d", words)
    assert "2 datasets, n = 3 splits" in words


def test_memory_is_drawn_beyond_the_least(costs):
    with figure_style():
        figure = draw_costs(costs)
        words = words_of(figure)
    widths = sorted(bar.get_width() for bar in figure.axes[1].patches)
    assert widths == pytest.approx(range(len(MANY)))
    assert "320 MB" in words
    assert figure.axes[0].get_xscale() == "log"
    assert "Lost, n = 27 algorithms" in words


def test_criterion_has_a_panel_each_and_a_unit(runs, board):
    with figure_style():
        figure = draw_criteria(runs, board.criteria)
        words = words_of(figure)
    assert len(figure.axes) == 2 * len(board.criteria), (
        "a panel per dataset and criterion: none hides another"
    )
    assert len(re.findall(r"regret −?\d+\.\d\d points, ρ", words)) == len(figure.axes)
    assert all(axes.get_ylim()[0] > 10 for axes in figure.axes)
    assert "beyond the scales" in words
    assert "n = 162 runs" in words


def test_dataset_matrix_is_in_percent_with_the_names_of_the_classes():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, size=400)
    candidates = rng.random((400, 3)) < 0.1
    candidates[np.arange(400), labels] = True
    stats = describe_candidates(candidates, labels, ("cat", "dog", "<b>cow</b>"))
    with figure_style():
        figure = draw_dataset("Pets", stats)
        texts = [text for text, _ in visible_texts(figure)]
    assert texts.count("cat") == 3
    cells = {text for text in texts if re.fullmatch(r"\d+", text)}
    assert {f"{100 * p:.0f}" for p in stats.flipping.ravel()} <= cells
    image = next(axes for axes in figure.axes if axes.images).images[0]
    assert image.get_clim() == pytest.approx((0, 100 * stats.ambiguity_degree))
    np.testing.assert_allclose(image.get_array(), 100 * stats.flipping)
    assert "n = 400 examples" in words_of(figure)


def test_text_stays_text_in_svg(board, tmp_path):
    with figure_style():
        save_figure(draw_boxes(board), tmp_path / "boxes.svg")
    root = ElementTree.parse(tmp_path / "boxes.svg").getroot()
    texts = {
        " ".join("".join(node.itertext()).split()) for node in root.iter("{http://www.w3.org/2000/svg}text")
    }
    assert {"PRODEN", "by CR", "points"} <= texts
    assert any("n = 4 splits" in text for text in texts)


@pytest.mark.filterwarnings("error:constrained_layout")
def test_one_algorithm_alone_has_room(runs):
    alone = build_leaderboard([run for run in runs if run.experiment.algorithm == "CC"])
    with figure_style():
        for figure in (
            draw_boxes(alone),
            draw_costs([StepCost("CC", "Lost", 1.0, 0.5, 320.0)]),
            draw_pilot(pilot_results()[:1]),
            draw_curves(alone, alone.settings[0], CR),
        ):
            figure.canvas.draw()
            assert all(axes.get_window_extent().height > 10 for axes in figure.axes)


@pytest.mark.parametrize("width", ["1", "nan", "100"])
def test_a_width_that_no_figure_can_have_is_refused(folder, tmp_path, capsys, width):
    words = ["plot", "boxes", str(folder), "--output", str(tmp_path / "x.svg"), "--width", width]
    assert main(words) == 2
    assert "between 2.5 and 20 inches" in capsys.readouterr().err
    assert not (tmp_path / "x.svg").exists()
