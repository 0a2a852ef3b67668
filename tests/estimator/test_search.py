"""The automatic choice: budget, choice, interruption; and what quality estimates are worth."""

import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest

import plench
from plench import PartialLabelClassifier
from plench.algorithms import find_algorithm
from plench.data import make_dataset
from plench.data.answers import read_answer_matrix
from plench.errors import DataError, RunFailedError, UsageError
from plench.estimator import search as search_module
from plench.estimator.quality import (
    Estimate,
    bound_accuracy,
    estimate_quality,
    estimate_share,
)
from plench.estimator.search import (
    FROM_ANSWERS,
    PORTFOLIO,
    Attempt,
    Clock,
    TrainingData,
    Trial,
    attempt,
    choose,
)

FAST = ("PRODEN", "CLPL", "PL_KNN")


@pytest.fixture(scope="module")
def data():
    random = np.random.RandomState(0)
    labels = random.randint(3, size=150)
    features = random.randn(150, 4) + 3 * np.eye(3, 4)[labels]
    return features, (random.rand(150, 3) < 0.3) | np.eye(3, dtype=bool)[labels], labels


def make(**settings):
    given = {"n_runs": 11, "steps": 30, "portfolio": FAST, "random_state": 0, **settings}
    return PartialLabelClassifier("auto", **given)


@pytest.fixture(scope="module")
def fitted(data):
    return make().fit(data[0], data[1])


def test_every_default_comes_first_then_random_configurations(fitted, data):
    board = fitted.leaderboard_
    assert len(board) == 5
    assert sum(row["splits"] for row in board) == 11
    assert sorted(row["splits"] for row in board) == [1, 1, 3, 3, 3]
    assert (
        next(row["splits"] for row in board if row["algorithm"] == "PRODEN" and not row["configuration"]) == 3
    )
    values = [row["CR"] for row in board]
    assert values == sorted(values, reverse=True)
    defaults = {row["algorithm"] for row in board if row["configuration"] == 0}
    assert defaults == set(FAST)
    assert sum(row["configuration"] > 0 for row in board) == 2
    (chosen,) = (row for row in board if row["chosen"])
    assert (fitted.algorithm_, fitted.hparams_) == (chosen["algorithm"], chosen["hparams"])
    assert fitted.quality_.CR.n == 30
    assert abs(fitted.quality_.CR.value - chosen["CR"]) < 0.2
    assert fitted.quality_.chosen_by == "CR"
    assert fitted.quality_.refitted
    assert "before the model was trained once more on all data" in str(fitted.quality_)
    assert fitted.model_.notes["quality"]["refitted"] is True
    assert fitted.score(data[0], data[2]) > 0.9
    assert fitted.model_.run["dataset"]["n_train"] == 150
    assert fitted.model_.notes["leaderboard"] == board


def test_the_same_number_gives_the_same_choice(fitted, data):
    again = make().fit(data[0], data[1])
    assert np.array_equal(again.predict_proba(data[0]), fitted.predict_proba(data[0]))
    held = make(refit=False).fit(data[0], data[1])
    assert held.model_.run["dataset"]["n_train"] == 120
    assert not held.quality_.refitted
    assert make(criterion="AA").fit(data[0], data[1]).quality_.chosen_by == "AA"


def test_the_portfolio_is_what_the_data_allows(data):
    answers = np.column_stack([data[2], (data[2] + 1) % 3])
    tried = PartialLabelClassifier("auto", n_runs=3, steps=5, random_state=0).fit(
        data[0], read_answer_matrix(answers)
    )
    assert {row["algorithm"] for row in tried.leaderboard_} == {PORTFOLIO[0], *FROM_ANSWERS}
    for wrong, message in (
        ({"n_runs": 0}, "n_runs"),
        ({"time": -1.0}, "time"),
        ({"criterion": "OA"}, "CR, AA"),
        ({"portfolio": "PRODEN"}, "list of names"),
        ({"portfolio": ["PRODENT"]}, "unknown algorithm"),
        ({"early_stopping": "CR"}, "early_stopping"),
        ({"validation_fraction": 0}, "validation_fraction"),
        ({"algorithm": "PRODEN"}, "budget of auto"),
        ({"algorithm": "PRODEN", "n_runs": None, "early_stopping": "CR", "validation_fraction": 0}, "is 0"),
    ):
        with pytest.raises(UsageError, match=message):
            make().set_params(**wrong).fit(data[0], data[1])


def test_time_ends_a_search_within_a_run(data, monkeypatch):
    """By a clock that moves by half a second with each report of a run, however busy the machine is."""
    now, advanced = [0.0], Clock.advanced

    def tick(self, updates, loss):
        now[0] += 0.5
        advanced(self, updates, loss)

    monkeypatch.setattr(search_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(Clock, "advanced", tick)
    model = make(n_runs=None, time=1.0, steps=10**6, portfolio=["PRODEN"])
    with pytest.raises(RunFailedError, match="within the budget"):
        model.fit(data[0], data[1])
    model.set_params(portfolio=["CLPL", "PRODEN"], time=5.0).fit(data[0], data[1])
    assert model.algorithm_ == "CLPL"
    assert [row["status"] for row in model.leaderboard_ if row["algorithm"] == "PRODEN"] == ["out of time"]


def test_ctrl_c_within_a_run_gives_the_best_so_far(data, monkeypatch):
    """As the terminal sends it: the run takes it between two updates."""
    monkeypatch.setattr(Clock, "advanced", lambda *arguments: os.kill(os.getpid(), signal.SIGINT))
    model = make(n_runs=9, steps=10**7, portfolio=["CLPL", "PRODEN"], refit=False).fit(data[0], data[1])
    assert model.algorithm_ == "CLPL"
    assert {row["algorithm"]: row["status"] for row in model.leaderboard_} == {
        "CLPL": "done",
        "PRODEN": "interrupted",
    }


def test_ctrl_c_between_runs_gives_the_best_so_far(data, monkeypatch):
    made = []

    def interrupt(*arguments, **options):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(attempt(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(search_module, "attempt", interrupt)
    model = make(refit=False).fit(data[0], data[1])
    assert len(model.leaderboard_) == 2
    assert model.covering_score(data[0], data[1]) > 0.5
    with pytest.raises(KeyboardInterrupt):
        make(refit=False).fit(data[0], data[1])


def test_one_method_that_cannot_be_run_does_not_end_the_search(data, monkeypatch, caplog):
    tried = []

    def refuse(config, *arguments, **options):
        tried.append(config.algorithm)
        if config.algorithm in refused:
            raise DataError("not these data")
        return attempt(config, *arguments, **options)

    monkeypatch.setattr(search_module, "attempt", refuse)
    refused = ["PRODEN"]
    model = make(n_runs=6).fit(data[0], data[1])
    assert {row["algorithm"] for row in model.leaderboard_} == {"CLPL", "PL_KNN"}
    assert "PRODEN could not be trained: not these data" in caplog.text
    refused = list(FAST)
    with pytest.raises(DataError, match="not these data"):
        make(n_runs=6).fit(data[0], data[1])
    tried.clear()
    with pytest.raises(UsageError, match="lr"):
        make(hparams={"lr": 1e-3}).fit(data[0], data[1])
    assert tried == []


def test_ctrl_c_while_all_data_are_learned_leaves_the_choice(data, monkeypatch):
    def interrupt(*arguments, **options):
        if "caution" not in options and len(arguments) < 7:
            raise KeyboardInterrupt
        return attempt(*arguments, **options)

    monkeypatch.setattr(search_module, "attempt", interrupt)
    model = make(n_runs=2).fit(data[0], data[1])
    assert model.model_.run["dataset"]["n_train"] == 120


def test_progress_tells_runs_and_time_left(data, capsys):
    make(verbose=True, n_runs=2).fit(data[0], data[1])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("1/2 PRODEN (default) CR ")
    assert "best PRODEN" in lines[0]
    assert "s left" in lines[0]
    assert lines[1].startswith("2/2 CLPL (default) CR ")


def pretend(*splits, status="done"):
    attempts = [
        Attempt(None, status, "", 0.0, [], object(), {"CR": np.array(each, float)}) for each in splits
    ]
    return Trial(None, 0, attempts)


def test_an_advantage_must_be_more_than_luck():
    reference = pretend([1] * 50 + [0] * 50)
    lucky = pretend([0] * 10 + [1] * 51 + [0] * 39)
    better = pretend([1] * 70 + [0] * 30)
    assert choose([reference, lucky], "CR") is reference
    assert choose([reference, lucky], "CR", caution=0) is lucky
    assert choose([reference, lucky, better], "CR") is better
    stopped = pretend([1] * 100, status="out of time")
    assert choose([reference, stopped], "CR") is reference
    assert choose([stopped], "CR") is stopped


def test_further_splits_decide_what_one_cannot():
    once, twice = [1] * 50 + [0] * 50, [0] * 5 + [1] * 55 + [0] * 40
    assert choose([pretend(once), pretend(twice)], "CR").attempts[0].scores["CR"].sum() == 55
    reference, other = pretend(once, once, once), pretend(twice, once, once[::-1])
    assert choose([reference, other], "CR") is reference
    failed = pretend(once)
    assert choose([failed, pretend(once[::-1], once[::-1]), pretend([0] * 100, once)], "CR") is failed
    lucky = pretend([1] * 60 + [0] * 40)
    assert choose([reference, other, lucky], "CR") is reference
    steady = pretend([1] * 55 + [0] * 45, [1] * 55 + [0] * 45)
    assert choose([reference, other, steady], "CR") is steady


def test_the_last_model_stays_unless_an_earlier_one_is_clearly_better(data):
    material, entry = TrainingData(make_dataset(data[0], data[1])), find_algorithm("PRODEN")
    config = material.configure(entry, 0.2, steps=30, device="cpu")
    best = attempt(config, material, entry, "CR")
    cautious = attempt(config, material, entry, "CR", caution=1e9)
    assert cautious.model.updates == 30
    covering = best.scores["CR"].mean()
    assert covering == max(row["val_covering_rate"] for row in best.records[1:])
    assert best.model.updates < 30 or covering > cautious.scores["CR"].mean()


def test_intervals_are_honest_about_few_examples():
    scores = {name: np.ones(10) for name in ("CR", "AA", "exact", "runner_up")}
    found = estimate_quality(scores, np.eye(4, dtype=bool)[[0] * 10])
    assert found.CR.value == 1
    assert found.CR.low < 0.95
    assert found.uniform.high == 1
    assert estimate_share(10, 10).low < 0.75
    assert estimate_share(5, 10).low == pytest.approx(0.187, abs=0.001)  # Clopper and Pearson's table
    full = estimate_quality(scores, np.ones((10, 4), bool))
    assert full.uniform is None
    assert full.confusable is None
    assert bound_accuracy(Estimate(0.9, 0.8, 1.0, 10), 0.5) == (pytest.approx(0.6), 1.0)
    with pytest.raises(UsageError, match="ambiguity"):
        bound_accuracy(Estimate(0.9, 0.8, 1.0, 10), 1.0)


def test_few_true_labels_give_an_interval(fitted, data):
    found = fitted.estimate_accuracy(data[0][:20], data[2][:20])
    assert found.n == 20
    assert found.low < found.value <= found.high
    quality = fitted.estimate_quality(data[0], data[1])
    assert quality.CR.value == fitted.covering_score(data[0], data[1])
    assert "if every candidate set" in str(quality)
    assert plench.scorers.covering(fitted, data[0], data[1]) == quality.CR.value
    assert plench.scorers.approximated(fitted, data[0], data[1]) == pytest.approx(quality.AA.value)
