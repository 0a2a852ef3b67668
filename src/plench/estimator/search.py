"""The automatic choice: methods and configurations tried within a budget, chosen without true labels."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from plench.algorithms import AlgorithmEntry, find_algorithm
from plench.errors import RunFailedError, UsageError
from plench.estimator.attempt import Attempt, Material, OutOfTimeError, attempt
from plench.training.callbacks import NoCallback

# The first is the reference: another is chosen only where held-out examples speak for it.
PORTFOLIO = ("PRODEN", "LR_EM", "CC", "IPAL", "POP", "ET_AVG", "CRDPLL", "CLPL", "PL_KNN")
FROM_ANSWERS = ("DS_LR", "MV_LR")  # where the data has annotators' answers
DEFAULT_RUNS = 20
FURTHER = 3  # methods whose further configurations are tried: those that are best so far
CAUTION = 0.5  # standard errors of the paired difference to the reference that an advantage must exceed
CRITERIA = ("CR", "AA")

logger = logging.getLogger("plench")


@dataclass(frozen=True)
class Budget:
    """How much may be tried: seconds, runs, or both."""

    seconds: float | None = None
    runs: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not (np.isfinite(self.seconds) and self.seconds > 0):
            raise UsageError(f"time is {self.seconds!r}; allowed are seconds above 0")
        if self.runs is not None and not (type(self.runs) is int and self.runs > 0):
            raise UsageError(f"n_runs is {self.runs!r}; allowed are whole numbers from 1")


@dataclass(frozen=True)
class Progress:
    """How far a search is: runs made and allowed, seconds spent and left, the best so far."""

    n_made: int
    n_runs: int | None
    seconds: float
    seconds_left: float | None
    last: Attempt
    best: Attempt | None
    criterion: str

    def __str__(self) -> str:
        number = f"{self.n_made}" if self.n_runs is None else f"{self.n_made}/{self.n_runs}"
        parts = [f"{number} {describe_attempt(self.last, self.criterion)}"]
        if self.best is not None:
            parts.append(f"best {describe_attempt(self.best, self.criterion)}")
        if self.seconds_left is not None:
            parts.append(f"about {self.seconds_left:.0f} s left")
        return "; ".join(parts)


@dataclass(frozen=True, eq=False)
class Search:
    """Everything that was tried, and what was chosen."""

    attempts: list[Attempt]
    chosen: Attempt
    criterion: str
    interrupted: bool = False

    def leaderboard(self) -> list[dict[str, Any]]:
        """Return every attempt as a row, the best by the criterion first."""
        rows = [
            {
                "algorithm": tried.config.algorithm,
                "configuration": tried.config.hparams_seed,
                "CR": tried.measure("CR"),
                "AA": tried.measure("AA"),
                "step": None if tried.model is None else tried.model.updates - 1,
                "seconds": round(tried.seconds, 3),
                "status": tried.status,
                "chosen": tried is self.chosen,
                "hparams": dict(tried.config.hparams),
            }
            for tried in self.attempts
        ]
        return sorted(rows, key=lambda row: -np.inf if row[self.criterion] is None else -row[self.criterion])


@dataclass(eq=False)
class Searcher:
    """Carries out a search on one split; each run is seeded alike."""

    material: Material
    budget: Budget
    criterion: str
    holdout: float
    settings: Mapping[str, Any]
    portfolio: Sequence[str] | None = None
    hparams: Mapping[str, Any] | None = None
    tell: Callable[[Progress], None] | None = None
    attempts: list[Attempt] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise UsageError(
                f"criterion is {self.criterion!r}; allowed are {', '.join(CRITERIA)}, which need no truth"
            )
        self.begun = time.perf_counter()
        self.entries = {name: find_algorithm(name) for name in self.list_methods()}
        if self.budget.seconds is None and self.budget.runs is None:
            self.budget = Budget(runs=DEFAULT_RUNS)

    def list_methods(self) -> list[str]:
        """Return the methods to try: those asked for, or of the portfolio those that the data allows."""
        if self.portfolio is not None:
            if isinstance(self.portfolio, str) or not self.portfolio:
                raise UsageError("portfolio must be a list of names of algorithms")
            return list(self.portfolio)
        names = list(PORTFOLIO)
        if self.material.dataset.answers is not None:
            names[1:1] = FROM_ANSWERS
        if self.material.dataset.card.kind == "tabular":
            return names
        return [name for name in names if find_algorithm(name).card.shared]

    def run(self) -> Search:
        """Try until the budget is spent, or Ctrl-C; then choose."""
        interrupted = False
        prepared = None
        try:
            for entry, number in self.plan():
                config = self.material.configure(
                    entry, self.holdout, self.hparams, hparams_seed=number, **self.settings
                )
                prepared = prepared or self.material.prepare(config)
                tried = attempt(config, self.material, entry, self.criterion, Clock(self.deadline), prepared)
                self.attempts.append(tried)
                if tried.status == "failed":
                    logger.warning("%s could not be trained: %s", config.algorithm, tried.message)
                self.report(tried)
                if tried.status in ("interrupted", "out of time"):
                    interrupted = tried.status == "interrupted"
                    break
        except KeyboardInterrupt:
            interrupted = True
        if not any(tried.model is not None for tried in self.attempts):
            if interrupted:
                raise KeyboardInterrupt
            reasons = {f"{tried.config.algorithm}: {tried.message}" for tried in self.attempts}
            raise RunFailedError(
                "not one model was trained within the budget"
                + "".join(f"; {each}" for each in sorted(reasons))
            )
        if interrupted:
            logger.warning("stopped after %d runs; the best so far is taken", len(self.attempts))
        return Search(self.attempts, choose(self.attempts, self.criterion), self.criterion, interrupted)

    @property
    def deadline(self) -> float | None:
        """When the time is over, by `time.perf_counter`."""
        return None if self.budget.seconds is None else self.begun + self.budget.seconds

    def plan(self) -> Iterator[tuple[AlgorithmEntry, int]]:
        """Yield methods and numbers of configurations: every default, then further ones of the best."""
        made = 0
        tried = dict.fromkeys(self.entries, 0)
        names = list(self.entries)
        while self.allows(made):
            name = names[made] if made < len(names) else self.pick_further(tried)
            yield self.entries[name], tried[name]
            tried[name] += 1
            made += 1

    def allows(self, made: int) -> bool:
        """Say whether the budget allows another run."""
        if self.budget.runs is not None and made >= self.budget.runs:
            return False
        return self.deadline is None or time.perf_counter() < self.deadline

    def pick_further(self, tried: Mapping[str, int]) -> str:
        """Return whose configuration comes next: of the best methods, the one that was tried least."""
        best: dict[str, float] = {}
        for made in self.attempts:
            value = made.measure(self.criterion)
            for name, entry in self.entries.items():
                if value is not None and entry.name == made.config.algorithm:
                    best[name] = max(value, best.get(name, -np.inf))
        leading = sorted(best, key=lambda name: -best[name])[:FURTHER] or list(self.entries)
        return min(leading, key=lambda name: tried[name])

    def report(self, tried: Attempt) -> None:
        """Tell how far the search is."""
        if self.tell is None:
            return
        spent = time.perf_counter() - self.begun
        lefts = []
        if self.budget.seconds is not None:
            lefts.append(max(0.0, self.budget.seconds - spent))
        if self.budget.runs is not None:
            lefts.append(spent / len(self.attempts) * (self.budget.runs - len(self.attempts)))
        usable = [each for each in self.attempts if each.model is not None]
        best = choose(usable, self.criterion) if usable else None
        n_made = len(self.attempts)
        left = min(lefts, default=None)
        self.tell(Progress(n_made, self.budget.runs, spent, left, tried, best, self.criterion))


class Clock(NoCallback):
    """Stops a run when the time is over."""

    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline

    def advanced(self, updates: int, loss: float) -> None:
        """Look at the clock between updates."""
        self.look()

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Look at the clock between rounds."""
        if record["step"] > 0:
            self.look()

    def look(self) -> None:
        """Raise OutOfTimeError when the time is over."""
        if self.deadline is not None and time.perf_counter() >= self.deadline:
            raise OutOfTimeError("the time was over before its end")


def choose(attempts: Sequence[Attempt], criterion: str, caution: float = CAUTION) -> Attempt:
    """Return the attempt that held-out examples speak for.

    Its advantage over the first one, on the same examples, counts after `caution` standard errors of the
    difference are taken off: the best of many figures from few examples is mostly luck. Attempts that were
    stopped before their end count only where there is no other.
    """
    usable = [tried for tried in attempts if tried.model is not None]
    whole = [tried for tried in usable if tried.status in ("done", "diverged")] or usable
    reference = whole[0]
    return max(whole, key=lambda tried: rate(tried, reference, criterion, caution))


def rate(tried: Attempt, reference: Attempt, criterion: str, caution: float) -> float:
    """Return an attempt's advantage over the reference, less what may be luck."""
    if tried is reference or criterion not in tried.scores or criterion not in reference.scores:
        return 0.0
    difference = tried.scores[criterion] - reference.scores[criterion]
    if len(difference) < 2:
        return float(difference.mean())
    return float(difference.mean() - caution * difference.std(ddof=1) / np.sqrt(len(difference)))


def refit(chosen: Attempt, material: Material, entry: AlgorithmEntry) -> Attempt:
    """Train the chosen configuration for the chosen number of updates on everything.

    `max_steps`, by which methods schedule themselves, stays that of the chosen run.
    """
    assert chosen.model is not None
    config = replace(chosen.config, steps=chosen.model.updates, holdout_fraction=0.0)
    made = attempt(config, material.whole(), entry)
    if made.status == "interrupted":
        raise KeyboardInterrupt
    return made


def describe_attempt(tried: Attempt, criterion: str) -> str:
    """Return an attempt's method, configuration and criterion in short."""
    value = tried.measure(criterion)
    number = tried.config.hparams_seed
    which = "default" if number == 0 else f"configuration {number}"
    figure = tried.status if value is None else f"{criterion} {value:.3f}"
    return f"{tried.config.algorithm} ({which}) {figure}"
