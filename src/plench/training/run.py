"""The one training loop: from a configuration to records, exact, resumable, safe to kill."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plench.algorithms import Algorithm, AlgorithmEntry, FittedAlgorithm
from plench.data import Dataset
from plench.data.sources.crowd import explain_lack
from plench.errors import BusyError, PlenchError, ResumeError, StorageError, UsageError
from plench.networks import find_network
from plench.runs.description import IGNORES_WEIGHTS
from plench.runs.folder import ALGORITHM, NETWORK, RunStore
from plench.training.callbacks import Callback, EvaluationStopped, NoCallback, StopRequest, Watch
from plench.training.checkpoint import find_lost_model, fitting, list_state, read_newest, take_snapshot
from plench.training.config import RunConfig
from plench.training.data import PreparedData, TrainingSet
from plench.training.environment import (
    compute_threads,
    flush_denormals,
    set_execution,
)
from plench.training.evaluate import count_batches, evaluate
from plench.training.outcome import RunOutcome, Status, check_owner, find_fault, leave_finished, reopen
from plench.training.saving import SavedRun
from plench.training.step import HandwrittenStep, find_step

logger = logging.getLogger("plench")


def run_training(
    config: RunConfig,
    dataset: Dataset,
    entry: AlgorithmEntry,
    output_dir: str | Path,
    callback: Callback | None = None,
    prepared: PreparedData | None = None,
    store: RunStore | None = None,
    notices: Sequence[str] = (),
    ends_at: float = math.inf,
) -> RunOutcome:
    """Carry out a run, or continue it from its last checkpoint; a finished run is left as it is.

    `prepared` saves a sweep from preparing the same data again; `store` says where the run is kept if not in
    its folder below `output_dir`; `notices` are kept in run.json with the run's own. `ends_at`, by the
    monotonic clock, is when the time of this process ends: no round is begun that would not be over by then.
    """
    store = store or RunStore(Path(output_dir) / config.folder_name(dataset.fingerprint))
    run_id = config.run_id(dataset.fingerprint)
    if store.finished and find_fault(store, config, run_id) is None:
        return leave_finished(store)
    with compute_threads(config.threads), flush_denormals():
        run = TrainingRun(config, dataset, entry, store, callback or NoCallback(), prepared)
        run.notices += notices
        run.ends_at = ends_at
        with store.locked():
            return take_up(store, config, run_id) or run.carry_out()


def take_up(store: RunStore, config: RunConfig, run_id: str) -> RunOutcome | None:
    """Look at a folder that has just been locked: return how its run ended, None if it is to be carried out.

    Another process may have ended it between a first look and the lock, or it is not whole.
    """
    check_owner(store, run_id)
    if store.finished:
        fault = find_fault(store, config, run_id)
        if fault is None:
            return leave_finished(store)
        reopen(store, fault)
    return None


class TrainingRun(SavedRun):
    """One run while it is being carried out: built or restored, trained, evaluated, concluded."""

    step: HandwrittenStep | None = None
    ends_at = math.inf
    out_of_time = False

    def carry_out(self, *, afresh: bool = False) -> RunOutcome:
        """Build or restore, train to the end, and say how it ended; `afresh` passes over checkpoints."""
        checkpoint = None if afresh else read_newest(self.store)
        if checkpoint is not None:
            self.check_conditions(checkpoint)
        acknowledge = getattr(self.callback, "stopping", None)
        try:
            self.build()
            with self.streams.ambient("algorithm"), StopRequest(acknowledge, self.ends_at) as stop:
                self.begin(checkpoint)
                self.has_begun = True
                status = self.train(stop)
        except (BusyError, StorageError):
            raise
        except PlenchError as error:  # run.json must not say that it is still running
            if self.has_begun:
                self.fail(error)
            raise
        except (Exception, SystemExit) as error:  # is recorded, and ends this run only
            return self.fail(error)
        return self.conclude(status)

    def conclude(self, status: Status) -> RunOutcome:
        """Write what belongs to the end of an attempt, and say how it ended."""
        if status == "interrupted":
            self.write_checkpoint()
            self.describe("interrupted")
            message = "the same command continues it"
            if self.out_of_time:
                message = f"the time left is too short for another round; {message}"
            return RunOutcome("interrupted", self.store.folder, self.updates_made, message, self.out_of_time)
        if self.config.skip_model_save:
            self.store.discard_models()
        elif status == "done":
            self.write_model("last")
        if self.has_older_models and not self.config.skip_model_save:
            lost = find_lost_model(self.store, self.records, self.best, self.run_id)
            if lost:
                return self.start_over(lost)
        message = ""
        if status == "diverged":
            message = f"the loss or an output became NaN or infinite before update {self.updates}"
        self.describe(status)
        self.store.finish()
        return RunOutcome(status, self.store.folder, self.updates_made, message)

    def start_over(self, lost: str) -> RunOutcome:
        """Carry out the whole run once more: a model of before the checkpoint can be made in no other way."""
        logger.warning("%s in %s is missing or was changed, so the run starts over", lost, self.store.folder)
        again = TrainingRun(self.config, self.dataset, self.entry, self.store, self.callback, self.data)
        again.ends_at = self.ends_at
        return again.carry_out(afresh=True)

    def build(self) -> None:
        """Build the algorithm and its batches, as they are before the first update."""
        with self.streams.ambient("init"):
            self.algorithm = self.build_algorithm()
        self.state = list_state(self.algorithm)
        self.training_set = self.build_training_set()
        self.attach(self.algorithm)

    def attach(self, algorithm: Algorithm) -> None:
        """Give an algorithm access to the training inputs and, if its card asks for them, to answers."""
        algorithm.attach_inputs(self.training_set)
        if self.entry.card.answers:
            if self.data.train_answers is None:
                raise UsageError(explain_lack(self.config.algorithm, self.config.dataset))
            algorithm.attach_answers(self.data.train_answers)

    def build_algorithm(self) -> Algorithm:
        """Build the algorithm from what it may know: shapes, candidates, hyperparameters."""
        candidates = self.data.train_candidates.astype(np.float32)
        algorithm = self.entry.cls(self.data.input_shape, candidates, dict(self.config.hparams))
        if isinstance(algorithm, FittedAlgorithm):
            algorithm.seed = self.config.seed
        if self.data.train_weights is not None:
            if not algorithm.uses_weights:
                self.notice(f"{self.config.algorithm} {IGNORES_WEIGHTS}")
            algorithm.weigh_candidates(torch.from_numpy(self.data.train_weights.copy()))
        set_execution(algorithm, self.config.precision, self.config.compile)
        return algorithm.to(self.device).train()

    def build_training_set(self, batch_size: int | None = None) -> TrainingSet:
        """Put the training split behind the batches that the algorithm declares, of the configured size."""
        return TrainingSet(
            self.data.inputs,
            self.data.train,
            torch.from_numpy(self.data.train_candidates).to(self.device),
            batch_size or int(self.config.hparams.get("batch_size", len(self.data.train))),
            self.entry.cls.choose_views(self.entry.card.views, self.config.hparams),
            self.entry.card.second_batch,
            self.streams,
            None
            if self.data.train_weights is None
            else torch.from_numpy(self.data.train_weights.copy()).to(self.device),
        )

    def begin(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Start at the beginning, or where the checkpoint was taken; records after it are cut off."""
        for name, first in self.algorithm.phases().items():
            if first >= self.config.steps:
                self.notice(
                    f"{name} would begin at update {first}, after the last of this run's {self.config.steps}"
                )
        if checkpoint is None:
            self.notice_unsaved(take_snapshot(self.algorithm).unsaved)
        else:
            with fitting(f"the checkpoint in {self.store.folder} cannot be restored", ResumeError):
                self.restore(checkpoint)
        self.describe("running")
        self.store.rewrite_records(self.records)
        if self.entry.source is not None:
            self.store.write_file(ALGORITHM, Path(self.entry.source).read_bytes())
        network = None if self.config.fitted else find_network(str(self.config.hparams["model"]))
        if network is not None and network.source is not None:
            self.store.write_file(NETWORK, Path(network.source).read_bytes())
        self.callback.started(self.config, self.updates)

    def train(self, stop: StopRequest) -> Status:
        """Make the remaining updates."""
        config = self.config
        self.choose_step()
        saved_at = told_at = window_begun = time.perf_counter()
        if self.totals.count and self.is_recorded(self.updates - 1):  # it was stopped within an evaluation
            if (ended := self.evaluate(self.updates - 1, window_begun, stop)) is not None:
                return ended
            window_begun = time.perf_counter()
        while self.updates < config.steps:
            begun = time.perf_counter()
            self.totals.add(self.make_update())
            step = self.updates
            self.updates += 1
            self.updates_made += 1
            now = time.perf_counter()
            if self.is_recorded(step):
                if (ended := self.evaluate(step, window_begun, stop)) is not None:
                    return ended
                window_begun = now = time.perf_counter()
                if not self.has_time(now - begun, stop):
                    return "interrupted"
            due = self.updates % config.save_steps == 0 if config.save_steps else False
            if (due or now - saved_at >= config.save_seconds) and self.updates < config.steps:
                self.window_seconds += now - window_begun
                self.write_checkpoint()
                saved_at = window_begun = now = time.perf_counter()
            if stop.asked and self.updates < config.steps:
                self.window_seconds += now - window_begun
                return "interrupted"
            if self.totals.count and now - told_at >= 0.25:
                self.callback.advanced(self.updates, self.totals.means()["loss"])
                told_at = now
        return "done"

    def choose_step(self) -> None:
        """Take the step that is written by hand where there is one for the algorithm."""
        self.step = find_step(self.algorithm)

    def make_update(self) -> Mapping[str, Any]:
        """Make the next update: a step on a batch, or a round, which needs none."""
        if isinstance(self.algorithm, FittedAlgorithm):
            return self.algorithm.update()
        batch = self.training_set.next_batch()
        return self.algorithm.update(batch) if self.step is None else self.step.update(batch)

    def has_time(self, seconds: float, stop: StopRequest) -> bool:
        """Say whether the time left holds a round that takes as long as the last; a step always fits."""
        if self.config.fitted and 1 < self.updates < self.config.steps:
            self.out_of_time = not stop.leaves(seconds)
        return not self.out_of_time

    def is_recorded(self, step: int) -> bool:
        """Say whether a record is made after the update of a step."""
        return step % self.config.checkpoint_freq == 0 or step == self.config.steps - 1

    def evaluate(self, step: int, window_begun: float, stop: StopRequest) -> Status | None:
        """Write the record of a step; say how the run ends if it has diverged or is stopped meanwhile."""
        logged = self.totals.means()
        now = time.perf_counter()
        window = self.window_seconds + now - window_begun
        try:
            with self.streams.ambient("evaluation"):
                parts = (self.data.validation.stored, self.data.test.stored)
                examples, batches = sum(map(len, parts)), sum(map(count_batches, parts))
                watch = Watch(self.callback, stop, examples, batches)
                figures = evaluate(self.algorithm, self.data, self.more_criteria, watch.after_batch)
        except EvaluationStopped:  # the totals stay, and the run continues with this evaluation
            self.window_seconds = window
            return "interrupted"
        return self.record(step, logged, figures, window, now)
