"""Runs of methods that are fitted in rounds: records, identity, kills, models, tables, third parties."""

import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plench
from plench.algorithms import find_algorithm
from plench.callbacks import Callback
from plench.cli import main
from plench.contract.under_test import make_examples
from plench.criteria import CRITERIA, find_criterion
from plench.data import Dataset, split_dataset
from plench.data.answers import Answers, count_votes, spread_votes
from plench.errors import UsageError
from plench.report.criteria_quality import average_quality, judge_criteria
from plench.report.leaderboard import build_leaderboard
from plench.report.results import cell_rows
from plench.report.run_figures import draw_criteria
from plench.report.statistics import compare_algorithms
from plench.report.tables import build_tables, render_latex, render_text
from plench.runs import read_runs
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.sweeps.plan import DatasetCache, expand, resolve_names
from plench.sweeps.probe import estimate_cost
from plench.training import RunConfig, configure_run, run_training
from plench.training.config import warn_once
from tests.conftest import ROOT
from tests.training.harness import Crash, CrashAt, assert_same_run, read_description, read_records

DATA = make_examples(120)
SMALL: dict[str, dict[str, Any]] = {
    "LR_EM": {"rounds": 4},
    "ET_EM": {"rounds": 3, "n_estimators": 5},
    "RF_EM": {"rounds": 3, "n_estimators": 5},
    "ET_AVG": {"n_estimators": 5},
}
# One of each kind of state: linear, forests, training data, code.
KINDS = ("LR_EM", "ET_EM", "RF_EM", "PL_KNN", "PL_AKNN", "IPAL", "PL_ECOC", "CLPL")


def run(
    folder: Path, name: str, callback: Callback | None = None, dataset: Dataset = DATA, **changes: Any
) -> Path:
    entry = find_algorithm(name)
    settings = {"hparams": SMALL.get(name, {}), "device": "cpu", "save_steps": 1, **changes}
    outcome = run_training(configure_run(entry, dataset.card, **settings), dataset, entry, folder, callback)
    assert outcome.status == "done", outcome.message
    return outcome.folder


def describe(name: str, **changes: Any) -> RunConfig:
    return configure_run(find_algorithm(name), DATA.card, **changes)


def test_draws_follow_the_protocol_and_steps_are_the_rounds(caplog: pytest.LogCaptureFixture) -> None:
    drawn = describe("LR_EM", hparams_seed=7, trial_seed=3)
    assert drawn.hparams["C"] == pytest.approx(0.046200571491, rel=1e-10)
    assert (drawn.steps, drawn.checkpoint_freq) == (41, 1)
    warn_once.cache_clear()
    assert describe("PL_KNN").steps == 2
    assert describe("LR_EM", steps=500).to_json() == describe("LR_EM").to_json()
    assert describe("PL_KNN", steps=500, hparams_seed=2).steps == 2
    assert caplog.text.count("steps does not apply") == 1, "it is said once per process"
    assert describe("LR_EM", checkpoint_freq=500).run_id("x") == describe("LR_EM").run_id("x")
    assert describe("LR_EM", hparams={"rounds": 3}).run_id("x") != describe("LR_EM").run_id("x")
    with pytest.raises(UsageError, match="unknown hyperparameter 'lr'"):
        describe("LR_EM", hparams={"lr": 0.1})


def test_images_and_data_without_answers_are_refused(tmp_path: Path) -> None:
    card = make_examples(32, images=True).card
    with pytest.raises(UsageError, match="LR_EM is fitted on tabular data"):
        configure_run(find_algorithm("LR_EM"), card)
    told = "learns from the answers of annotators, which Contract does not have; expected one of EmotionLines"
    with pytest.raises(UsageError, match=f"{told}, LabelMe_Crowd, Music_Crowd, SentimentPolarity, or own"):
        run(tmp_path, "MV_LR")


def test_votes_without_annotators_are_for_methods_that_need_not_know_them(tmp_path: Path) -> None:
    voted = replace(DATA, answers=spread_votes(DATA.candidates.astype(int)))
    assert voted.answers is not None
    assert voted.answers.anonymous
    assert np.array_equal(count_votes(voted.answers), DATA.candidates)
    assert read_records(run(tmp_path, "MV_LR", dataset=voted))
    told = "DS_LR learns from the answers of known annotators, but the votes of Contract do not say whose"
    with pytest.raises(UsageError, match=rf"{told} .* expected one of LabelMe_Crowd, Music"):
        run(tmp_path, "DS_LR", dataset=voted)


@pytest.mark.parametrize("name", ["MV_LR", "DS_LR"])
def test_answers_reach_the_methods_that_ask_for_them_and_tables_say_so(name: str, tmp_path: Path) -> None:
    item, label = np.nonzero(DATA.candidates)
    sets = label[:, None] == np.arange(DATA.n_classes)
    answered = replace(DATA, answers=Answers(item, item % 3, sets, DATA.n_examples))
    expected = run(tmp_path / "whole", name, dataset=answered)
    with pytest.raises(Crash):
        run(tmp_path / "cut", name, CrashAt(0), answered)
    assert_same_run(expected, run(tmp_path / "cut", name, dataset=answered))
    assert np.isfinite(plench.load(expected).predict_logits(DATA.features)).all()
    run(tmp_path / "whole", "LR_EM", dataset=answered)
    (expected / "run.json").unlink()  # without it the card is the one of ours
    board = build_leaderboard(read_runs(tmp_path / "whole"))
    text = render_text(build_tables(board))
    assert re.search(rf"{name} \(answers\) +classical, uses answers +1 round", text)
    assert re.search(r"LR_EM +classical +4 rounds", text)
    compared = compare_algorithms(board, find_criterion("CR"))
    assert list(compared["means"]) == sorted(["LR_EM", f"{name} (answers)"])


@pytest.mark.parametrize("name", ["LR_EM", "ET_EM", "PL_KNN"])
def test_votes_weigh_candidates_of_the_methods_that_use_them(name: str, tmp_path: Path) -> None:
    item, label = np.nonzero(DATA.candidates)
    repeated = np.repeat(np.arange(len(item)), 1 + 4 * (label == 0))
    sets = label[repeated][:, None] == np.arange(DATA.n_classes)
    answered = replace(DATA, answers=Answers(item[repeated], np.arange(len(repeated)), sets, DATA.n_examples))
    plain = run(tmp_path / "plain", name, dataset=answered)
    weighted = run(tmp_path / "weighted", name, dataset=answered, candidate_weights="votes")
    assert plain.name != weighted.name
    warnings = read_description(weighted)["notices"]
    row = name if name == "PL_KNN" else f"{name} (answers)"
    assert build_leaderboard(read_runs(tmp_path / "weighted")).algorithms == (row,)
    assert build_leaderboard(read_runs(tmp_path / "plain")).algorithms == (name,)
    if name == "PL_KNN":
        assert any("ignores the weights" in warning for warning in warnings)
    else:
        losses = [[record["loss"] for record in read_records(folder)] for folder in (plain, weighted)]
        assert losses[0] != losses[1]
        assert warnings == []


@pytest.mark.parametrize("name", KINDS)
def test_a_run_crashed_after_any_round_ends_as_an_undisturbed_one(name: str, tmp_path: Path) -> None:
    expected = run(tmp_path / "whole", name)
    for step in range(describe(name, hparams=SMALL.get(name, {})).steps):
        with pytest.raises(Crash):
            run(tmp_path / f"{step}", name, CrashAt(step))
        assert_same_run(expected, run(tmp_path / f"{step}", name))
    split, model = split_dataset(DATA, 0), plench.load(expected)
    assert DATA.labels is not None
    right = model.predict(DATA.features[split.test]) == DATA.labels[split.test]
    assert right.mean() == read_records(expected)[-1]["test_acc"]
    assert np.isfinite(plench.load(expected, criterion="CR").predict_logits(DATA.features)).all()


def test_a_round_is_not_started_if_the_time_left_is_too_short(tmp_path: Path) -> None:
    expected = run(tmp_path / "whole", "LR_EM")
    entry = find_algorithm("LR_EM")
    config = describe("LR_EM", hparams=SMALL["LR_EM"], device="cpu")
    statuses = []
    for _ in range(4):  # a call always makes a round: the time of the next is known from the last
        outcome = run_training(config, DATA, entry, tmp_path / "short", ends_at=0.0)
        statuses.append((outcome.status, outcome.out_of_time, outcome.updates_made))
        if outcome.status == "interrupted":
            assert "too short for another round" in outcome.message
            assert read_description(outcome.folder)["status"] == "interrupted"
    assert statuses == [("interrupted", True, 2), *[("interrupted", True, 1)] * 2, ("done", False, 1)]
    assert_same_run(expected, outcome.folder)
    with_time = run_training(config, DATA, entry, tmp_path / "long", ends_at=time.monotonic() + 3600)
    assert (with_time.status, with_time.updates_made) == ("done", 5)
    step = configure_run(find_algorithm("CC"), DATA.card, steps=20, checkpoint_freq=5, device="cpu")
    outcome = run_training(step, DATA, find_algorithm("CC"), tmp_path, ends_at=0.0)
    assert outcome.status == "done", "a step of a network always fits"


def test_fitted_rows_stand_in_every_table_of_their_dataset_and_are_ranked_with_the_others(
    tmp_path: Path,
) -> None:
    for trial in (0, 1):
        for name in ("LR_EM", "PL_KNN", "ET_AVG"):
            run(tmp_path, name, trial_seed=trial)
        for steps in (6, 9):
            run(tmp_path, "PRODEN", trial_seed=trial, steps=steps, checkpoint_freq=3)
    criterion, runs = find_criterion("CR"), read_runs(tmp_path)
    board = build_leaderboard(runs)
    assert board.algorithms == ("ET_AVG", "LR_EM", "PL_KNN", "PRODEN")
    labels = [board.labels[setting] for setting in board.settings]
    assert labels == ["Contract (steps 6)", "Contract (steps 9)"]
    for setting in board.settings:
        assert set(board.means(setting, criterion)) == set(board.algorithms)
        cell = board.cell(setting, "LR_EM", criterion)
        assert cell is not None
        assert cell.complete
        assert cell.plan.n_runs == 2
    assert {n for _, n in board.rank(criterion).values()} == {1}
    text = render_text(build_tables(board))
    assert re.search(r"Algorithm +Family +Budget +CR", text)
    assert re.search(r"LR_EM +classical +4 rounds ", text)
    assert re.search(r"PL_KNN +classical +1 round ", text)
    assert re.search(r"PRODEN +vanilla PLL +6 steps ", text)
    assert "classical" in render_latex(build_tables(board, "criterion"))
    rows = cell_rows(board)
    assert {(row["algorithm"], row["family"], row["budget"], row["steps"]) for row in rows} == {
        ("ET_AVG", "classical", "1 round", 2),
        ("LR_EM", "classical", "4 rounds", 5),
        ("PL_KNN", "classical", "1 round", 2),
        ("PRODEN", "vanilla PLL", "6 steps", 6),
        ("PRODEN", "vanilla PLL", "9 steps", 9),
    }
    by_dataset = average_quality(judge_criteria(runs, [criterion]), "dataset")
    judged = {place: summary.n_experiments for (_, place), summary in by_dataset.items()}
    assert judged == dict.fromkeys(labels, 4)
    assert len(draw_criteria(runs, [criterion]).axes) == 2


def test_rows_without_true_labels_have_the_criteria_of_fitted_methods_too(tmp_path: Path) -> None:
    unlabelled = replace(DATA, labels=None)
    run(tmp_path, "PL_KNN", dataset=unlabelled)
    run(tmp_path, "LR_EM", dataset=unlabelled)
    run(tmp_path, "LR_EM", dataset=unlabelled, hparams={"rounds": 2})
    run(tmp_path, "PRODEN", dataset=unlabelled, steps=6, checkpoint_freq=3)
    board = build_leaderboard(read_runs(tmp_path), [find_criterion("CR")])
    named = [row["algorithm"] for row in cell_rows(board) if row["mean_criterion"] is not None]
    assert named == ["LR_EM (2 rounds)", "LR_EM (4 rounds)", "PL_KNN", "PRODEN"], "rounds have their own rows"
    assert [board.labels[setting] for setting in board.settings] == ["Contract"]


def test_a_run_that_lost_its_description_keeps_its_place(tmp_path: Path) -> None:
    folder = run(tmp_path, "PL_KNN")
    (folder / "run.json").unlink()
    (found,) = read_runs(tmp_path)
    assert found.experiment.fitted
    assert "steps" not in found.experiment.setting.details


def test_a_sweep_of_both_kinds_is_planned_probed_and_run(tmp_path: Path) -> None:
    grid = Grid(
        ("LR_EM", "PL_KNN", "CC"), ("Digits_FPS",), n_hparams=1, n_trials=1, steps=20, checkpoint_freq=10
    )
    shelf = DatasetCache(None)
    runs = expand(resolve_names(SweepSpec((grid,)), shelf))
    assert {run.config.algorithm: run.config.steps for run in runs} == {"LR_EM": 41, "PL_KNN": 2, "CC": 20}
    estimate = estimate_cost(runs, shelf, budget_seconds=600)
    assert estimate is not None
    assert estimate.pairs_measured == 3
    settings = {"n_hparams": 1, "n_trials": 1, "steps": 20, "checkpoint_freq": 10, "workers": 1}
    outcome = plench.sweep(["PL_KNN", "CC"], ["Digits_FPS"], tmp_path, **settings)
    assert not outcome.failed
    assert not outcome.unfinished
    table = render_text(build_tables(plench.results(tmp_path).board))
    assert re.search(r"PL_KNN +classical +1 round", table)
    assert "not started" not in table


def test_tables_know_what_a_sweep_planned_of_a_fitted_method(tmp_path: Path) -> None:
    settings = {"checkpoint_freq": 10, "workers": 1}
    plench.sweep(
        ["PL_KNN", "CC"], ["Digits_FPS"], tmp_path / "a", steps=20, n_hparams=2, n_trials=2, **settings
    )
    for found in read_runs(tmp_path / "a"):
        if found.hparams_seed == 1:
            shutil.rmtree(found.path)
    plench.sweep(["CC"], ["Digits_FPS"], tmp_path / "b", steps=20, n_hparams=3, n_trials=1, **settings)
    plench.sweep(["PL_KNN"], ["Digits_FPS"], tmp_path / "b", n_hparams=1, n_trials=1, **settings)
    first, second = plench.results(tmp_path / "a"), plench.results(tmp_path / "b")
    assert {e.algorithm: plan.n_runs for e, plan in first.plans.items()} == {"PL_KNN": 4, "CC": 4}
    assert "2 of 4 planned runs; 2 not started" in render_text(build_tables(first.board))
    assert {e.algorithm: plan.n_runs for e, plan in second.plans.items()} == {"PL_KNN": 1, "CC": 3}
    assert "planned runs" not in render_text(build_tables(second.board))


def test_finished_runs_of_a_wrapped_classifier_are_known_to_their_sweep(tmp_path: Path, cli) -> None:
    named = f"{save_classifier(tmp_path)}:SVM"
    runs = tmp_path / "runs"
    plench.sweep([named], ["Digits_FPS"], runs, n_hparams=1, n_trials=1, steps=20, workers=1)
    assert json.loads(cli("sweep", "status", "--output_dir", runs, "--json").out)["states"] == {"done": 1}


def test_the_identity_of_a_fitted_run_names_a_criterion_by_its_content(tmp_path: Path) -> None:
    criterion = tmp_path / "size.py"
    criterion.write_text(
        "from plench.criteria import Criterion\n"
        "def measure(logits, candidates, labels):\n"
        "    return 1.0\n"
        "CRITERION = Criterion('Size', 'Size', 'One.', 'val_set_size', measure, False, position=9)\n"
    )
    config = configure_run(find_algorithm("PL_KNN"), DATA.card, more_criteria=f"{criterion}:CRITERION")
    assert re.fullmatch("Size@[0-9a-f]{8}", config.more_criteria)
    CRITERIA.clear()  # later tests see plench's own criteria


SVM = re.search(
    r"```python\n(.*?)```", (ROOT / "docs" / "classical.md").read_text(encoding="utf-8"), re.DOTALL
)


def save_classifier(folder: Path) -> Path:
    """Save the page's classifier as a file."""
    assert SVM is not None
    path = folder / "svm.py"
    path.write_text(SVM[1], encoding="utf-8")
    return path


@pytest.mark.real
def test_the_documented_classifier_keeps_the_contract(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", f"{save_classifier(tmp_path)}:SVM"]) == 0, capsys.readouterr().out


def test_the_documented_classifier_is_five_lines_and_an_algorithm(tmp_path: Path) -> None:
    path = save_classifier(tmp_path)
    code = path.read_text(encoding="utf-8")
    assert len([line for line in code.splitlines() if line.strip()]) == 5
    folder = run(tmp_path / "runs", f"{path}:SVM")
    records = read_records(folder)
    assert [record["step"] for record in records] == [0, 1, 2, 3, 4]
    described = read_description(folder)
    assert json.loads(json.dumps(described["config"]["hparams"]))["folds"] == 3
    assert np.isfinite(plench.load(folder).predict_logits(DATA.features)).all()
