"""What a check is, and how it says that something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from plench.contract.subject import Subject

Level = Literal["required", "advised"]
CheckStatus = Literal["passed", "failed", "advice", "skipped"]


class BreachError(Exception):
    """A check failed; the text says what was seen and what to do about it."""


class NotCheckedError(Exception):
    """A check cannot be made here; the text is the reason."""


def needs_batches(subject: Subject) -> None:
    """End a check of steps on batches if the algorithm makes none."""
    if subject.fitted:
        raise NotCheckedError("a method fitted in rounds makes no steps on batches")


@dataclass(frozen=True)
class Check:
    """One demand on algorithms. A breach of a required one fails; a breach of an advised one is advice.

    Required is what right results and exact resuming need, and all that the paper's minimal contract can be
    held to. Advised is what every algorithm of this package does as well, such as state that moves with the
    module.
    """

    name: str
    demand: str
    level: Level
    function: Callable[[Subject], str | None]


@dataclass(frozen=True)
class Outcome:
    """How a check ended; `detail` says what was seen if it did not pass, or more of what did."""

    check: Check
    status: CheckStatus
    detail: str = ""


def required(function: Callable[[Subject], str | None]) -> Check:
    """Make a function a required check; its docstring is the demand."""
    return make_check(function, "required")


def advised(function: Callable[[Subject], str | None]) -> Check:
    """Make a function an advised check; its docstring is the demand."""
    return make_check(function, "advised")


def make_check(function: Callable[[Subject], str | None], level: Level) -> Check:
    """Turn a function into a check of its name."""
    return Check(function.__name__, " ".join((function.__doc__ or "").split()), level, function)
