"""The figures of the live view and the log: what has ended, how fast, how much is left."""

import io

import pytest
from rich.console import Console

from plench.sweeps import progress as sweep_view
from plench.sweeps.executor import RunAttempt
from plench.sweeps.plan import PlannedRun
from plench.sweeps.progress import LiveView, SweepLog, Tally
from tests.sweep.driving import plan_runs


@pytest.fixture(scope="module")
def runs() -> list[PlannedRun]:
    return plan_runs("CC", n_hparams=4, n_trials=1, steps=100)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(sweep_view.time, "monotonic", lambda: now[0])
    return now


def test_time_left_follows_the_updates_that_were_really_made(
    runs: list[PlannedRun], clock: list[float]
) -> None:
    tally = Tally()
    tally.planned(runs, finished=0, slots=2)
    assert tally.seconds_left() is None
    tally.started(runs[0], 0)
    tally.started(runs[1], 60)  # resumed: sixty updates need not be made
    clock[0] += 10
    tally.advanced(runs[0], 40)
    tally.advanced(runs[1], 80)
    # 60 updates in 10 s; 60, 20, 100 and 100 are left.
    assert tally.seconds_left() == pytest.approx(280 / 6)
    tally.ended(runs[0], RunAttempt("failed", "it broke"))  # the rest of it will not be made
    assert tally.seconds_left() == pytest.approx(220 / 6)
    tally.ended(runs[1], RunAttempt("interrupted"))  # it is still to do, from its checkpoint
    tally.started(runs[1], 80)
    assert tally.seconds_left() == pytest.approx(220 / 6)
    tally.ended(runs[1], RunAttempt("done"))
    assert tally.seconds_left() == pytest.approx(200 / 8)
    assert tally.summary() == "2/4 ended, 0 running, 1 failed, 12.0 runs/min, 25 s left"


def tally_of(*algorithms: str) -> tuple[Tally, list[list[PlannedRun]]]:
    """Return a tally of two runs of each algorithm, and these runs."""
    runs = plan_runs(*algorithms, n_hparams=1, n_trials=2, steps=1000)
    tally = Tally()
    tally.planned(runs, finished=0, slots=1)
    return tally, [[run for run in runs if run.algorithm == name] for name in algorithms]


def test_rounds_of_fitted_methods_do_not_count_as_steps(clock: list[float]) -> None:
    tally, (fits, quick, trained) = tally_of("LR_EM", "CLPL", "CC")
    clock[0] += 41
    tally.ended(fits[0], RunAttempt("done", updates_made=41, seconds=41))
    assert tally.seconds_left() is None  # nothing is known of a step
    clock[0] += 2
    tally.ended(trained[0], RunAttempt("done", updates_made=1000, seconds=2))
    # A round of LR_EM takes 1 s, a run of CC 2 s; CLPL, two rounds per run, is fitted as LR_EM is.
    assert tally.seconds_left() == pytest.approx(41 + 2 + 2 * 2)
    clock[0] += 0.2
    tally.ended(quick[0], RunAttempt("done", updates_made=2, seconds=0.2))
    assert tally.seconds_left() == pytest.approx(41 + 2 + 0.2)


@pytest.mark.parametrize("rounds", [0, 5])
def test_runs_that_failed_leave_an_estimate(clock: list[float], rounds: int) -> None:
    tally, (fits, trained) = tally_of("LR_EM", "CC")
    for run in fits:  # a failed attempt does not say how long its rounds took
        tally.started(run, 0)
        tally.advanced(run, rounds)
        tally.ended(run, RunAttempt("failed", "it broke"))
        assert tally.seconds_left() is None
    clock[0] += 10
    tally.started(trained[0], 0)
    tally.ended(trained[0], RunAttempt("done", updates_made=1000, seconds=10))
    assert tally.seconds_left() == pytest.approx(10)
    tally.planned(trained, finished=0, slots=1)  # another launch counts its own runs
    assert tally.updates_left.total() == 2000


def test_the_live_view_shows_current_runs_and_what_went_wrong(runs: list[PlannedRun]) -> None:
    view = LiveView()
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(view.render())
    assert console.export_text() == "preparing …\n"
    view.planned(runs, finished=3, slots=2)
    view.started(runs[0], 0)
    view.started(runs[1], 0)
    view.advanced(runs[0], 50)
    view.ended(runs[1], RunAttempt("failed", "ZeroDivisionError: no\nsecond line"))
    console.print(view.render())
    text = console.export_text()
    assert len(text.splitlines()) == 4  # totals, their bar, the current run, the message
    assert "1/4 ended, 1 running, 1 failed" in text
    assert "(finished before: 3)" in text
    assert "50/100" in text
    assert f"failed {runs[1].label}: ZeroDivisionError: no" in text
    assert "second line" not in text


def test_the_log_has_a_line_for_every_run(runs: list[PlannedRun]) -> None:
    lines: list[str] = []
    log = SweepLog(lines.append)
    log.planned(runs, finished=1, slots=2)
    log.started(runs[0], 0)
    log.ended(runs[0], RunAttempt("done", seconds=1.25))
    log.ended(runs[1], RunAttempt("failed", "Timeout: too long"))
    assert lines[0] == "4 runs to do, 2 at a time; 1 finished before"
    assert lines[1].startswith(f"done {runs[0].label} (1.2 s) · 1/4 ended")
    assert lines[2].startswith(f"failed {runs[1].label} (0.0 s): Timeout: too long · 2/4 ended")
