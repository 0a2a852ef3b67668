"""What a run writes into its folder (records, models, checkpoints, run.json), and how it continues there."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from plench.algorithms import Algorithm, AlgorithmEntry
from plench.criteria import criteria, find_criteria
from plench.data import Dataset
from plench.errors import ResumeError
from plench.runs.description import describe_run
from plench.runs.folder import RunStore
from plench.training.callbacks import Callback
from plench.training.checkpoint import check_names, dump, restore_snapshot, take_snapshot
from plench.training.config import RunConfig
from plench.training.data import PreparedData, TrainingSet, prepare_data
from plench.training.environment import check_environment, choose_device, describe_environment, source_commit
from plench.training.evaluate import Totals
from plench.training.outcome import RunOutcome, Status
from plench.training.streams import Streams

# Criteria whose best checkpoint is kept as a model, beside the last one.
KEPT_CRITERIA = ("CR", "AA")

logger = logging.getLogger("plench")


class SavedRun:
    """The state of a run and its files. `TrainingRun` carries it out."""

    algorithm: Algorithm
    training_set: TrainingSet

    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset,
        entry: AlgorithmEntry,
        store: RunStore,
        callback: Callback,
        prepared: PreparedData | None,
    ) -> None:
        self.config = config
        self.dataset = dataset
        self.entry = entry
        self.store = store
        self.callback = callback
        self.run_id = config.run_id(dataset.fingerprint)
        self.device = choose_device(config.device)
        self.environment = describe_environment(self.device, config.threads)
        self.data = prepared or prepare_data(dataset, config, self.device)
        self.more_criteria = find_criteria(config.more_criteria)
        self.streams = Streams(config.seed, self.device)
        self.state: list[dict[str, Any]] = []
        # How many runs are trained as one, this one among them, and a hash that tells which.
        self.fleet_size = 1
        self.fleet = ""
        self.totals = Totals()
        self.records: list[str] = []
        self.best: dict[str, float] = {}
        self.notices: list[str] = list(dataset.warnings)
        self.updates = 0
        self.updates_made = 0
        self.window_seconds = 0.0
        self.seconds = {"training": 0.0, "evaluation": 0.0}
        self.begun = datetime.now(UTC).isoformat(timespec="seconds")
        self.has_begun = False
        self.has_older_models = False  # those written before the checkpoint that it continues from

    def check_conditions(self, checkpoint: Mapping[str, Any]) -> None:
        """Refuse to continue another run, on other data, or, unless asked to, under other conditions."""
        if not self.is_own(checkpoint):
            raise ResumeError(
                f"a checkpoint in {self.store.folder} is that of another run; remove it to continue from an "
                "earlier one or from the beginning"
            )
        if checkpoint["candidates"] != self.candidates_digest():
            raise ResumeError(
                f"{self.store.folder} was begun on other candidate sets of the same description, perhaps by "
                "another version of a library; delete the folder to start over"
            )
        if not self.config.force_resume:
            check_environment(checkpoint["environment"], self.environment)

    def is_own(self, checkpoint: Mapping[str, Any]) -> bool:
        """Say whether a checkpoint is this run's; those of older versions are recognised by their records."""
        if "run_id" in checkpoint:
            return bool(checkpoint["run_id"] == self.run_id)
        if not checkpoint["records"]:
            return True
        record = json.loads(checkpoint["records"][0])
        known = {"args": self.config.args(), "hparams": dict(self.config.hparams)}
        return all(record.get(name) == value for name, value in known.items())

    def candidates_digest(self) -> str:
        """Return a hash of the training split's candidates, and of their weights where they have any."""
        digest = hashlib.sha256(np.packbits(self.data.train_candidates).tobytes())
        if self.data.train_weights is not None:
            digest.update(np.ascontiguousarray(self.data.train_weights, "<f4").data)
        return digest.hexdigest()

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Continue from a checkpoint; one whose state has other names is refused before it is touched."""
        built, saved = take_snapshot(self.algorithm).tree, checkpoint["algorithm"]
        same_source = checkpoint["environment"].get("source") == self.environment["source"]
        check_names(built, saved, type(self.algorithm).__name__, extra=same_source)
        restore_snapshot(self.algorithm, saved)
        self.training_set.load_state(checkpoint["data"])
        self.streams.load_state(checkpoint["streams"])
        self.totals.load_state(checkpoint["totals"], self.device)
        for name in ("updates", "best", "window_seconds", "seconds", "begun"):
            setattr(self, name, checkpoint[name])
        self.has_older_models = checkpoint["keep_models"]
        self.records = list(checkpoint["records"])
        self.notices = list(dict.fromkeys([*checkpoint["notices"], *self.notices]))
        if not self.config.skip_model_save and not checkpoint["keep_models"]:
            self.notice(
                f"models of the first {self.updates} updates were not kept, the best may be among them"
            )

    def notice(self, text: str) -> None:
        """Log a notice, once, and keep it in run.json."""
        if text in self.notices:
            return
        self.notices.append(text)
        logger.warning("%s on %s: %s", self.config.algorithm, self.config.dataset, text)

    def notice_unsaved(self, paths: Sequence[str]) -> None:
        """Warn about parts of the algorithm that a checkpoint lacks."""
        for path in paths:
            self.notice(f"{path} cannot be saved, so a resumed run may differ from an undisturbed one")

    def record(
        self,
        step: int,
        logged: dict[str, float],
        figures: Mapping[str, float | None] | None,
        window: float,
        begun: float,
    ) -> Status | None:
        """Write a record; say so if the run has diverged.

        `window` are the seconds of the updates since the last one, `begun` is when the evaluation began.
        """
        if figures is None or not math.isfinite(logged["loss"]):
            return "diverged"
        record = {
            "step": step,
            "epoch": step * self.training_set.order.batch_size / len(self.training_set),
            "loss": logged.pop("loss"),
            "step_time": window / self.totals.count,
            "mem_gb": peak_memory_gb(self.device),
            **figures,
            "logged": {name: value if math.isfinite(value) else None for name, value in logged.items()},
            "hparams": dict(self.config.hparams),
            "args": self.config.args(),
            **({"fleet_size": self.fleet_size} if self.fleet_size > 1 else {}),
        }
        line = json.dumps(record, allow_nan=False)
        self.records.append(line)
        self.store.append_record(line)
        self.keep_models(step, figures)
        self.totals = Totals()
        self.window_seconds = 0.0
        self.seconds["training"] += window
        self.seconds["evaluation"] += time.perf_counter() - begun
        self.callback.evaluated(record)
        return None

    def keep_models(self, step: int, figures: Mapping[str, float | None]) -> None:
        """Save the model where a criterion is best so far (the record of step 0 never counts)."""
        if self.config.save_model_every_checkpoint:
            self.write_model(f"step{step}")
        for name in KEPT_CRITERIA:
            value = figures[criteria[name].record_key]
            if step > 0 and value is not None and value > self.best.get(name, -math.inf):
                self.best[name] = value
                if not self.config.skip_model_save:
                    self.write_model(name)

    def write_model(self, name: str) -> None:
        """Save what prediction needs, under the name of a criterion, `last` or a step."""
        tree = take_snapshot(self.algorithm, for_prediction=True).tree
        payload = {
            "run_id": self.run_id,
            "algorithm": tree,
            "inputs": self.data.inputs.state(),
            "updates": self.updates,
        }
        self.store.write_model(name, dump(payload))

    def write_checkpoint(self) -> None:
        """Save everything needed to continue exactly from here."""
        snapshot = take_snapshot(self.algorithm)
        self.notice_unsaved(snapshot.unsaved)
        payload = {
            "run_id": self.run_id,
            "environment": self.environment,
            "candidates": self.candidates_digest(),
            "keep_models": not self.config.skip_model_save,
            "updates": self.updates,
            "records": self.records,
            "best": self.best,
            "algorithm": snapshot.tree,
            "data": self.training_set.state(),
            "streams": self.streams.state(),
            "totals": self.totals.state(),
            "window_seconds": self.window_seconds,
            "seconds": self.seconds,
            "notices": self.notices,
            "begun": self.begun,
            **({"fleet": self.fleet} if self.fleet else {}),
        }
        self.store.write_checkpoint(dump(payload))

    def fail(self, error: BaseException) -> RunOutcome:
        """Record that the run stopped with an error of the algorithm's; its records stay."""
        description = {
            "type": type(error).__name__,
            "message": str(error),
            "traceback": "".join(traceback.format_exception(error)),
        }
        self.describe("failed", error=description)
        message = f"{type(error).__name__}: {error}"
        return RunOutcome("failed", self.store.folder, self.updates_made, message)

    def describe(self, status: str, error: Mapping[str, str] | None = None) -> None:
        """Write run.json."""
        size = self.largest_fleet()
        self.store.write_run(
            {
                **describe_run(self.config, self.dataset, self.entry, self.data),
                "status": status,
                "error": error,
                "diverged_after_step": self.last_step() if status == "diverged" else None,
                "state": self.state,
                "versions": self.environment,
                "commit": source_commit(),
                "device": str(self.device),
                "threads": self.config.threads,
                "timings": {
                    "begun": self.begun,
                    "written": datetime.now(UTC).isoformat(timespec="seconds"),
                    "training_seconds": self.seconds["training"],
                    "evaluation_seconds": self.seconds["evaluation"],
                },
                "updates": self.updates,
                "notices": self.notices,
                **({"fleet_size": size} if size > 1 else {}),
            }
        )

    def largest_fleet(self) -> int:
        """Return how many runs were trained as one when this one was in the largest fleet."""
        told = [int(json.loads(line).get("fleet_size", 1)) for line in self.records]
        return max([self.fleet_size, *told])

    def last_step(self) -> int | None:
        """Return the step of the last record, if there is one."""
        return json.loads(self.records[-1])["step"] if self.records else None


def peak_memory_gb(device: torch.device) -> float | None:
    """Return the peak CUDA memory, None on other devices."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
