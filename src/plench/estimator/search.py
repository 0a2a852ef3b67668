"""The automatic choice: methods and configurations tried within a budget, chosen without true labels.

Every try is a run through the same loop as any other, in a temporary folder (`attempt`).
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plench.algorithms import AlgorithmEntry, find_algorithm
from plench.callbacks import Callback
from plench.data import Dataset
from plench.data.encoders import LITE0_PACKAGES
from plench.errors import PlenchError, RunFailedError, UsageError
from plench.estimator.quality import score_examples
from plench.runs.folder import RESULTS, RunStore
from plench.settings import seed_hash
from plench.text import counted
from plench.training import PreparedData, RunConfig, configure_run, prepare_data, run_training
from plench.training.data import draw_trial
from plench.training.environment import choose_device
from plench.training.model import TrainedModel, load
from plench.training.run import predict_logits

# The first is the reference: another is chosen only where held-out examples speak for it.
PORTFOLIO = ("PRODEN", "LR_EM", "CC", "IPAL", "POP", "ET_AVG", "CRDPLL", "CLPL", "PL_KNN")
NETWORK = "MLP_BN"  # for tables: better than MLP for most methods (docs/results/study.md)
FROM_ANSWERS = ("DS_LR", "MV_LR")  # where the data has annotators' answers
DEFAULT_RUNS = 20
LEADERS = 3  # methods whose further configurations are tried: those that are best so far
RIVALS = 2  # of the reference, which are run again with it on further splits
SPLITS = 3  # in all
TIME_FOR_REPEATS = 0.4  # share of the time, where time is the budget
# Standard errors of a paired difference that an advantage must exceed: over the reference, and of an earlier
# model over the last of its run, which is the best of many.
CAUTION = 0.5
STOPPING_CAUTION = 1.0
CRITERIA = ("CR", "AA")
WHOLE = ("done", "diverged")

logger = logging.getLogger("plench")
# Evaluations of a run that is stopped early: enough to choose from, few enough to cost little.
EVALUATIONS = 10


# Seconds of an update and of an evaluation of a network on images, by the name of the data.
MEASURED: dict[str, tuple[float, float]] = {}
PROBE_UPDATES = 3
LEAST_UPDATES = 5
SHARE_OF_FIRST = 0.5  # of the time, for the first run on images


class OutOfTimeError(PlenchError):
    """The time that the user gave is over; raised by a callback between two updates."""


@dataclass(frozen=True)
class TrainingData:
    """What an estimator learns from: the data, and perhaps weights (N, K) of the candidates.

    `counts` (N,) says how often each example counts in training, once where None (`repeated`).
    """

    dataset: Dataset
    weights: NDArray[np.float32] | None = None
    counts: NDArray[np.int64] | None = None

    def configure(
        self, entry: AlgorithmEntry, holdout: float, hparams: Mapping[str, Any] | None = None, **settings: Any
    ) -> RunConfig:
        """Describe a run with a share held out for validation and nothing for test."""
        data = self.dataset
        if data.test is None:
            settings["tabular_test_fraction"] = 0.0
        if data.validation is None or holdout == 0:
            settings["holdout_fraction"] = holdout
        steps = settings.get("steps") or data.card.default_steps
        if not entry.card.shared:
            settings.pop("steps", None)  # these make a step a round
        elif data.card.kind == "tabular":
            hparams = {"model": NETWORK, **(hparams or {})}
        settings.setdefault("checkpoint_freq", max(1, steps // EVALUATIONS))
        return configure_run(entry, data.card, hparams=hparams, **settings)

    def whole(self) -> TrainingData:
        """The same with nothing marked as validation."""
        return replace(self, dataset=replace(self.dataset, validation=None))

    def take(self, rows: NDArray[np.int64]) -> TrainingData:
        """Some of the examples."""
        weights = None if self.weights is None else self.weights[rows]
        counts = None if self.counts is None else self.counts[rows]
        return TrainingData(self.dataset.take(rows), weights, counts)

    def repeated(self) -> TrainingData:
        """Each example as often as it counts; its copies stay in one part of every split."""
        if self.counts is None:
            return self
        data, counts, answers = self.dataset, self.counts, self.dataset.answers
        rows = np.repeat(np.arange(len(counts)), counts)
        if answers is not None:
            own = np.repeat(np.arange(len(answers.item)), counts[answers.item])
            times = counts[answers.item]
            copy = np.arange(len(own)) - np.repeat(times.cumsum() - times, times)
            item = (counts.cumsum() - counts)[answers.item[own]] + copy
            answers = answers.take(own, item, len(rows))
        groups = rows if data.groups is None else data.groups[rows]
        taken = replace(replace(data, answers=None).take(rows), answers=answers, groups=groups)
        return TrainingData(taken, None if self.weights is None else self.weights[rows])

    def prepare(self, config: RunConfig) -> PreparedData:
        """Split and scale, as a run does it."""
        prepared = prepare_data(self.dataset, config, choose_device(config.device))
        if self.weights is None:
            return prepared
        _, split, _ = draw_trial(self.dataset, config, config.trial_seed)
        return replace(prepared, train_weights=self.weights[split.train])


@dataclass(frozen=True, eq=False)
class Attempt:
    """A run and its outcome; `model` is None if it gave no usable one.

    `held_out` are the candidates of the held-out examples, and `scores` what each of these adds to a
    criterion: their mean is the criterion.
    """

    config: RunConfig
    status: str
    message: str
    seconds: float
    records: list[dict[str, Any]]
    model: TrainedModel | None = None
    scores: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    held_out: NDArray[np.bool_] | None = None


def attempt(
    config: RunConfig,
    data: TrainingData,
    entry: AlgorithmEntry,
    criterion: str | None = None,
    callback: Callback | None = None,
    prepared: PreparedData | None = None,
    caution: float | None = None,
) -> Attempt:
    """Train a run and take the model that is best by a criterion; without one, the last.

    With `caution` the last model is taken unless the best one is ahead by more than so many standard errors.
    A run that is stopped before its end gives the best model it has had, if any.
    """
    prepared = prepared or data.prepare(config)
    begun = time.perf_counter()
    with TemporaryDirectory(prefix="plench-") as folder:
        store = RunStore(Path(folder) / config.folder_name(data.dataset.fingerprint))
        try:
            outcome = run_training(config, data.dataset, entry, folder, callback, prepared, store)
            status, message = str(outcome.status), outcome.message
        except OutOfTimeError as error:
            status, message = "out of time", str(error)
        seconds = time.perf_counter() - begun
        kept = store.list_models()
        best = "last" if criterion is None and status == "done" else criterion or "CR"
        wanted = [name for name in ([best] if caution is None else ["last", best]) if name in kept]
        if not wanted and status == "done" and "last" in kept:
            wanted = ["last"]  # a run without a criterion to go by, such as one of a single update
        results = store.folder / RESULTS
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
        made = Attempt(config, status, message, seconds, [json.loads(line) for line in lines])
        found = []
        for name in wanted:
            model = load(store.folder, name, config.device)
            logits = predict_logits(model.algorithm, prepared.inputs, prepared.validation.stored)
            sets = prepared.validation.candidates
            scores = score_examples(logits, sets) if sets is not None and len(logits) else {}
            found.append(replace(made, model=model, scores=scores, held_out=sets))
    if len(found) == 2:
        last, other = found
        if rate_differences(other.scores[best] - last.scores[best], caution or 0.0) <= 0:
            return last
    return found[-1] if found else made


def rate_differences(differences: NDArray[np.float64], caution: float) -> float:
    """Return the mean of paired differences less so many of its standard errors; 0 where they are too few."""
    if len(differences) < 2:
        return 0.0
    return float(differences.mean() - caution * differences.std(ddof=1) / np.sqrt(len(differences)))


@dataclass(eq=False)
class Trial:
    """A method in one configuration, with its attempts: one on each split it was run on."""

    entry: AlgorithmEntry
    number: int
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def first(self) -> Attempt:
        """The attempt on the first split, which is the one that every trial was run on."""
        return self.attempts[0]

    def measure(self, criterion: str) -> float | None:
        """Return a criterion on the held-out examples of all splits."""
        values = [tried.scores[criterion] for tried in self.attempts if tried.scores]
        return float(np.concatenate(values).mean()) if values else None

    def describe(self, criterion: str) -> str:
        """Return method, configuration and criterion in short."""
        value = self.measure(criterion)
        which = "default" if self.number == 0 else f"configuration {self.number}"
        figure = self.first.status if value is None else f"{criterion} {value:.3f}"
        return f"{self.entry.name} ({which}) {figure}"


@dataclass(eq=False)
class Searcher:
    """A search within a budget of runs, seconds, or both; `run` makes it and returns what it chooses.

    Every default comes first, then random configurations of the leaders, then rivals on further splits.
    """

    data: TrainingData
    criterion: str
    holdout: float
    settings: Mapping[str, Any]
    seconds: float | None = None
    runs: int | None = None
    portfolio: Sequence[str] | None = None
    hparams: Mapping[str, Any] | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.seconds is not None and not (np.isfinite(self.seconds) and self.seconds > 0):
            raise UsageError(f"time is {self.seconds!r}; expected seconds above 0")
        if self.runs is not None and not (type(self.runs) is int and self.runs > 0):
            raise UsageError(f"n_runs is {self.runs!r}; expected a whole number from 1")
        if self.criterion not in CRITERIA:
            raise UsageError(f"criterion is {self.criterion!r}; expected one of {', '.join(CRITERIA)}")
        if self.portfolio is not None and (isinstance(self.portfolio, str) or not self.portfolio):
            raise UsageError("portfolio must be a list of names of algorithms")
        if self.seconds is None and self.runs is None:
            self.runs = DEFAULT_RUNS
        self.begun = time.perf_counter()
        data = self.data.dataset
        answering: tuple[str, ...] = () if data.answers is None else FROM_ANSWERS
        if data.answers is not None and data.answers.anonymous:
            answering = tuple(name for name in answering if not find_algorithm(name).card.annotators)
        methods = self.portfolio or (*PORTFOLIO[:1], *answering, *PORTFOLIO[1:])
        self.entries = [find_algorithm(name) for name in methods]
        if self.portfolio is None and data.card.kind != "tabular":
            self.entries = [entry for entry in self.entries if entry.card.shared]
        for entry in self.entries:  # what cannot be configured is reported before anything is trained
            self.data.configure(entry, self.holdout, self.hparams, **{**self.settings, "hparams_seed": 0})
        self.trials: list[Trial] = []
        self.prepared: dict[int, PreparedData] = {}
        self.n_made = 0
        # On how many splits the best are run: one where the data says which rows are validation.
        self.n_splits = SPLITS if data.validation is None else 1

    def run(self) -> Trial:
        """Try until the budget is spent, or Ctrl-C; then choose."""
        if self.data.dataset.card.kind == "image":
            runs = self.runs or len(self.entries)
            steps = announce_pixels(self.data, self.entries[0], self.settings, runs, self.seconds)
            self.settings = {**self.settings, "steps": steps}
            self.begun = time.perf_counter()
        interrupted = False
        errors: list[PlenchError] = []
        try:
            for trial in self.plan():
                try:
                    status = self.make_attempt(trial).status
                except PlenchError as error:  # it counts as a run, so that the search ends
                    self.n_made += 1
                    errors.append(error)
                    logger.warning("%s could not be trained: %s", trial.entry.name, error)
                    continue
                interrupted = status == "interrupted"
                if status in ("interrupted", "out of time"):
                    break
        except KeyboardInterrupt:
            interrupted = True
        usable = self.usable
        if not usable:
            if interrupted:
                raise KeyboardInterrupt
            if errors and not self.tried:
                raise errors[0]
            reasons = sorted({f"; {each.entry.name}: {each.first.message}" for each in self.tried})
            raise RunFailedError("not one model was trained within the budget" + "".join(reasons))
        if interrupted:
            logger.warning("stopped after %d runs; the best so far is taken", self.n_made)
        return choose(usable, self.criterion)

    @property
    def tried(self) -> list[Trial]:
        """The trials that were run."""
        return [each for each in self.trials if each.attempts]

    @property
    def usable(self) -> list[Trial]:
        """The trials that have a model."""
        return [each for each in self.tried if each.first.model is not None]

    def plan(self) -> Iterator[Trial]:
        """Yield what is run next, as long as the budget allows."""
        for entry in self.entries:
            if not self.allows():
                return
            self.trials.append(Trial(entry, 0))
            yield self.trials[-1]
        while self.allows(kept=RIVALS + 1) and (leader := self.pick_leader()) is not None:
            self.trials.append(leader)
            yield leader
        # The reference, and the best configuration of each of its best rivals.
        ranked = rank(self.usable)
        rivals: dict[str, Trial] = {}
        for each in sorted(ranked[1:], key=lambda each: -rate(each, ranked[0], self.criterion, caution=0.0)):
            rivals.setdefault(each.entry.name, each)
        for _ in range(1, self.n_splits):
            for trial in (*ranked[:1], *list(rivals.values())[:RIVALS]):
                if not self.allows():
                    return
                yield trial

    def allows(self, kept: int = 0) -> bool:
        """Whether the budget allows another run; with `kept` so many are left for each further split."""
        if self.runs is not None and self.n_made >= self.runs - kept * (self.n_splits - 1):
            return False
        share = 1 - TIME_FOR_REPEATS if kept else 1.0
        return self.seconds is None or time.perf_counter() < self.begun + share * self.seconds

    def pick_leader(self) -> Trial | None:
        """Return the next configuration of a leading method: of the one that was tried least."""
        best: dict[str, float] = {}
        for trial in self.usable:
            value = trial.measure(self.criterion)
            if value is not None:
                best[trial.entry.name] = max(value, best.get(trial.entry.name, -np.inf))
        if not best:
            return None
        leaders = sorted(best, key=lambda name: -best[name])[:LEADERS]
        tried = {name: sum(each.entry.name == name for each in self.trials) for name in leaders}
        name = min(leaders, key=lambda leader: tried[leader])
        entry = next(entry for entry in self.entries if entry.name == name)
        return Trial(entry, tried[name])

    def make_attempt(self, trial: Trial) -> Attempt:
        """Run a trial on its next split."""
        number = len(trial.attempts)
        settings, hparams = dict(self.settings), self.hparams
        if number:  # a random configuration is drawn for the first split, and stays what it is
            settings["trial_seed"] = seed_hash(settings["trial_seed"], "split", number)
            hparams = {k: v for k, v in trial.first.config.hparams.items() if k != "max_steps"}
        settings["hparams_seed"] = trial.number
        config = self.data.configure(trial.entry, self.holdout, hparams, **settings)
        if number not in self.prepared:
            self.prepared[number] = self.data.prepare(config)
        is_fitting = self.data.dataset.card.kind == "image" and not self.usable  # its updates were chosen so
        clock = Clock(np.inf if self.seconds is None or is_fitting else self.begun + self.seconds)
        prepared = self.prepared[number]
        made = attempt(config, self.data, trial.entry, self.criterion, clock, prepared, STOPPING_CAUTION)
        self.n_made += 1
        if made.status == "failed":
            logger.warning("%s could not be trained: %s", config.algorithm, made.message)
        if number == 0 or (made.model is not None and made.status in WHOLE):
            trial.attempts.append(made)
        if self.verbose:
            self.report(trial)
        return made

    def report(self, last: Trial) -> None:
        """Print how far the search is: runs made, the last one, the best so far, seconds left."""
        spent = time.perf_counter() - self.begun
        lefts = [] if self.seconds is None else [max(0.0, self.seconds - spent)]
        number = f"{self.n_made}"
        if self.runs is not None:
            number += f"/{self.runs}"
            lefts.append(spent / self.n_made * (self.runs - self.n_made))
        parts = [f"{number} {last.describe(self.criterion)}"]
        if self.usable:
            parts.append(f"best {choose(self.usable, self.criterion).describe(self.criterion)}")
        print("; ".join([*parts, f"about {min(lefts):.0f} s left"]), file=sys.stderr, flush=True)

    def leaderboard(self, chosen: Trial) -> list[dict[str, Any]]:
        """Return every trial that was run as a row, the best by the criterion first."""
        rows = [
            {
                "algorithm": tried.entry.name,
                "configuration": tried.number,
                "CR": tried.measure("CR"),
                "AA": tried.measure("AA"),
                "splits": len(tried.attempts),
                "step": None if tried.first.model is None else tried.first.model.updates - 1,
                "seconds": round(sum(each.seconds for each in tried.attempts), 3),
                "status": tried.first.status,
                "chosen": tried is chosen,
                "hparams": dict(tried.first.config.hparams),
            }
            for tried in self.tried
        ]
        return sorted(rows, key=lambda row: np.inf if row[self.criterion] is None else -row[self.criterion])


class Clock(Callback):
    """Stops a run when the time is over."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline

    def advanced(self, updates: int, loss: float) -> None:
        """Raise OutOfTimeError when the time is over, between updates."""
        if time.perf_counter() >= self.deadline:
            raise OutOfTimeError("the time was over before its end")

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Check the time between rounds."""
        if record["step"] > 0:
            self.advanced(record["step"], 0.0)


def announce_pixels(
    data: TrainingData,
    entry: AlgorithmEntry,
    settings: Mapping[str, Any],
    runs: int,
    seconds: float | None,
    further: int = 0,
) -> int:
    """Say that a network is trained on pixels and how long that takes; return the updates per run.

    The time is measured on a few updates; `further` runs come after the search. Where time is the budget,
    there are as many updates as fit into half of it, so that there is a model at its end.
    """
    name, steps = data.dataset.card.name, int(settings["steps"])
    is_new = name not in MEASURED
    if is_new:
        config = data.configure(entry, 0.0, **settings)
        made = attempt(config.changed(steps=PROBE_UPDATES + 1, checkpoint_freq=PROBE_UPDATES), data, entry)
        if made.status not in WHOLE:
            return steps  # the search reports why
        update = float(made.records[-1]["step_time"])
        rest = made.seconds - sum(row["step_time"] for row in made.records) - (PROBE_UPDATES - 1) * update
        MEASURED[name] = update, max(0.0, rest) / 2
    update, evaluation = MEASURED[name]
    fitting = steps
    if seconds is not None:
        fitting = min(steps, max(LEAST_UPDATES, int(SHARE_OF_FIRST * seconds / max(update, 1e-6))))
    per_run = fitting * update + EVALUATIONS * evaluation
    whole = (runs * per_run if seconds is None else max(seconds, per_run)) + further * fitting * update
    if is_new:
        logger.warning(
            "a network is trained on the pixels of %s images, about %s on this machine (%.2g s per update, "
            "measured; %s). With an image encoder methods for tables are trained on its "
            "features instead: pip install %s (17 MB), or --image-encoder transformers:FOLDER",
            f"{data.dataset.n_examples:,}",
            format_seconds(whole),
            update,
            f"{counted(runs + further, 'run')} of {steps:,} updates"
            if seconds is None
            else f"runs of {fitting:,} updates, as many as fit into the time given"
            + (f", and {further} more" if further else ""),
            LITE0_PACKAGES,
        )
    return fitting


def format_seconds(seconds: float) -> str:
    """Write a time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def choose(trials: Sequence[Trial], criterion: str, caution: float = CAUTION) -> Trial:
    """Return the trial that held-out examples speak for.

    Its advantage over the first one, on the same examples, counts after `caution` standard errors of the
    difference are taken off: the best of many figures from few examples is mostly luck. Where some were run
    on further splits, it is one of these: the best of the others may have been lucky on the first one.
    """
    ranked = rank(trials)
    finalists = [each for each in ranked if len(each.attempts) > 1]
    eligible = finalists if len(finalists) > 1 else ranked
    if ranked[0] not in eligible:  # what the others are compared with, which comes first where none is ahead
        eligible = [ranked[0], *eligible]
    return max(eligible, key=lambda each: rate(each, ranked[0], criterion, caution))


def rank(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that were run to their end, or all if none was; the reference comes first."""
    return [each for each in trials if each.first.status in WHOLE] or list(trials)


def rate(tried: Trial, reference: Trial, criterion: str, caution: float) -> float:
    """Return a trial's advantage over the reference, on splits that both have, less what may be luck."""
    if tried is reference:
        return 0.0
    pairs = [
        (first.scores[criterion], second.scores[criterion])
        for first, second in zip(tried.attempts, reference.attempts, strict=False)
        if first.scores and second.scores
    ]
    if not pairs:
        return 0.0
    return rate_differences(np.concatenate([first - second for first, second in pairs]), caution)


def train_on_all(chosen: Attempt, data: TrainingData, entry: AlgorithmEntry) -> Attempt:
    """Train the chosen configuration for the chosen number of updates on everything.

    `max_steps`, by which methods schedule themselves, stays that of the chosen run. Where that fails or is
    stopped, the chosen attempt is returned as it is.
    """
    assert chosen.model is not None
    config = replace(chosen.config, steps=chosen.model.updates, holdout_fraction=0.0)
    try:
        made = attempt(config, data.whole(), entry)
        status = made.status if made.model is None or made.status not in WHOLE else ""
    except KeyboardInterrupt:
        status = "interrupted"
    except PlenchError as error:
        status = f"failed ({error})"
    if status:
        logger.warning("training on all data ended as %s; the model without the held-out share stays", status)
        return chosen
    return made
