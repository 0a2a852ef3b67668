"""Runs the checks on one algorithm."""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

from plench.algorithms import find_algorithm
from plench.contract.base import BreachError, Check, NotCheckedError, Outcome
from plench.contract.subject import Subject
from plench.registry import Registry
from plench.training.environment import choose_device, compute_threads

CHECKS = Registry[Check](
    "check",
    "plench.contract",
    "a plench.contract.Check",
    lambda value: isinstance(value, Check),
    lambda check: check.name,
)


def checks() -> dict[str, Check]:
    """Return every check by name."""
    return {name: entry.member for name, entry in CHECKS.items.items()}


# What does not pass this one has nothing that another check could look at.
FIRST = "trains_and_predicts"


def check_algorithm(
    spec: str, device: str, tell: Callable[[Outcome], None] | None = None
) -> tuple[str, list[Outcome]]:
    """Run every check on an algorithm given by name, path or module; return its name too."""
    entry = find_algorithm(spec)
    choose_device(device)
    return entry.name, run_suite(Subject(entry, device), tell)


def run_suite(subject: Subject, tell: Callable[[Outcome], None] | None = None) -> list[Outcome]:
    """Run every check; the others are skipped if the algorithm does not train and predict at all.

    `tell` is called with each outcome.
    """
    known = checks()
    outcomes = {FIRST: run_check(known[FIRST], subject)}
    trains = outcomes[FIRST].status == "passed"
    for name, check in known.items():
        if name != FIRST:
            skipped = Outcome(check, "skipped", "it does not train and predict yet")
            outcomes[name] = run_check(check, subject) if trains else skipped
        if tell is not None:
            tell(outcomes[name])
    return [outcomes[name] for name in known]


def run_check(check: Check, subject: Subject) -> Outcome:
    """Run one check. Whatever the algorithm raises is a breach, reported with the line it comes from.

    What it prints is not shown (`prints_nothing` reports it).
    """
    said = io.StringIO()
    try:
        with compute_threads(1), redirect_stdout(said), redirect_stderr(said):
            told = check.function(subject)
    except NotCheckedError as reason:
        return Outcome(check, "skipped", str(reason))
    except BreachError as breach:
        detail = str(breach)
    except (Exception, SystemExit) as error:  # somebody else's code: anything may be raised
        detail = describe_error(error, subject)
    else:
        return Outcome(check, "passed", told or "")
    return Outcome(check, "failed" if check.level == "required" else "advice", detail)


def describe_error(error: BaseException, subject: Subject) -> str:
    """Say what was raised and at which line of the author's file."""
    text = f"{type(error).__name__}: {error}"
    notes = getattr(error, "__notes__", [])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == subject.file:
            text += f" (line {frame.lineno}, in {frame.name}: {frame.line})"
            break
    return ". ".join([text, *notes])
