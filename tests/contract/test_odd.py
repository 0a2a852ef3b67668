"""Odd ways to keep state: what can be resumed passes, and what cannot is refused in words."""

from typing import Any

import pytest

from plench.algorithms import LossAlgorithm
from plench.algorithms.registry import third_party_entry
from plench.cli import main
from plench.contract import AlgorithmUnderTest, Outcome, checks, run_check
from plench.contract.under_test import read_loss
from plench.training.evaluate import Totals
from tests.conftest import ROOT
from tests.contract.odd import LOGGED, SOUND, UNSOUND, logging_of

ODD = ROOT / "tests" / "contract" / "odd.py"
# What the text must contain beside the check's usual words.
HINTS = {
    "LazyTeacher": ("LazyTeacher.teacher holds a", "make all its parts in __init__"),
    "CountsOutside": ("cut after update 1", "Not saved: CountsOutside.numbers (count)"),
    "OwnTensors": ("cannot be read back", "OwnTensors.marks (Labelled)"),
}


def run(check: str, cls: type[LossAlgorithm]) -> Outcome:
    return run_check(checks()[check], AlgorithmUnderTest(third_party_entry(cls.__name__, cls, cls.__name__)))


@pytest.mark.parametrize("name", sorted(SOUND))
@pytest.mark.parametrize(
    "check", ["trains_and_predicts", "resumes_exactly", "is_not_disturbed_by_evaluation", "lists_its_state"]
)
def test_odd_state_passes(check: str, name: str) -> None:
    outcome = run(check, SOUND[name])
    assert (outcome.status, outcome.detail) == ("passed", "")


@pytest.mark.parametrize("name", sorted(UNSOUND))
def test_what_cannot_be_resumed_is_refused_in_words(name: str) -> None:
    outcome = run("resumes_exactly", UNSOUND[name])
    assert outcome.status == "failed"
    for words in HINTS[name]:
        assert words in outcome.detail
    assert "Traceback" not in outcome.detail


def test_what_cannot_be_saved_is_named() -> None:
    outcome = run("holds_only_what_can_be_saved", UNSOUND["CountsOutside"])
    assert outcome.status == "advice"
    assert "CountsOutside.numbers (count)" in outcome.detail


@pytest.mark.parametrize("name", sorted(LOGGED))
def test_what_the_loop_cannot_add_up_is_refused(name: str) -> None:
    outcome = run("trains_and_predicts", logging_of(LOGGED[name]))
    assert outcome.status == "failed"
    assert "update must return" in outcome.detail
    assert "This was update 0" in outcome.detail


def loop_takes(logged: Any) -> bool:
    """Say whether the training loop's sums take what an update returned."""
    totals = Totals()
    try:
        totals.add(logged)
        totals.means()
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("name", sorted(LOGGED))
def test_the_loop_refuses_the_same(name: str) -> None:
    assert not loop_takes(LOGGED[name])


def test_the_loss_is_read_as_the_loop_reads_it() -> None:
    for logged in ({"loss": 1}, {"loss": True, "odds": float("nan")}, {"loss": 2.5, "n": 3}):
        assert loop_takes(logged)
        assert read_loss(logged) == float(logged["loss"])


def test_the_command_says_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{ODD}:LazyTeacher"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "FAILS resumes exactly" in out
    assert "LazyTeacher.teacher holds a" in out
    assert main(["check", f"{ODD}:EnumPhase"]) == 0
