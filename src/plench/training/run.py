"""One run: built from its configuration or restored, evaluated, and what it writes to its folder."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms import Algorithm, AlgorithmEntry, FittedAlgorithm
from plench.callbacks import Callback
from plench.criteria import Criterion, accuracy, criteria, find_criteria, measure_all
from plench.data import Dataset
from plench.data.candidates import THIRDS
from plench.data.sources import check_answers
from plench.errors import ResumeError
from plench.networks import find_network
from plench.runs.folder import ALGORITHM, IGNORES_WEIGHTS, MODEL, NETWORK, RESULTS, WARNINGS, RunStore
from plench.training.checkpoint import (
    check_names,
    dump,
    fitting,
    list_state,
    parse,
    restore_snapshot,
    take_snapshot,
)
from plench.training.config import RunConfig, RunOutcome, Status, describe_run, find_more_sources
from plench.training.data import Inputs, PreparedData, Stored, TrainingSet, prepare_data
from plench.training.environment import (
    MUST_AGREE,
    Streams,
    apply_global,
    capture_global,
    choose_device,
    describe_environment,
    set_execution,
    source_commit,
)

# Examples per forward pass without gradients. On a CPU the numbers that enter a pass are limited as well:
# the maps of more images leave the cache (docs/results/image_step.md).
CHUNK = 1024
CHUNK_NUMBERS_ON_CPU = 2**18
# Criteria whose best checkpoint is kept as a model, in addition to the last one.
KEPT_CRITERIA = ("CR", "AA")
RESUMES = "the same command resumes it"

logger = logging.getLogger("plench")


def choose_chunk(stored: Stored) -> int:
    """Return how many examples go into one pass without gradients."""
    if stored.device.type != "cpu":
        return CHUNK
    return max(1, min(CHUNK, CHUNK_NUMBERS_ON_CPU // math.prod(stored.shape[1:])))


def predict_logits(
    algorithm: Algorithm, inputs: Inputs, stored: Stored, after_batch: Callable[[int], None] | None = None
) -> np.ndarray:
    """Return logits (n, K) of stored examples, in evaluation mode and without gradients.

    `after_batch` is called with the number of examples of each batch; what it raises ends the pass.
    """
    if len(stored) == 0:  # the run leaves this part out
        return np.empty((0, algorithm.num_classes))
    chunk = choose_chunk(stored)
    modes = {module: module.training for module in algorithm.modules()}
    algorithm.eval()
    try:
        with torch.no_grad():
            parts = []
            for start in range(0, len(stored), chunk):
                parts.append(algorithm.predict(inputs.original(stored[start : start + chunk])))
                if after_batch is not None:
                    after_batch(len(parts[-1]))
            return torch.cat(parts).cpu().double().numpy()
    finally:
        for module, training in modes.items():  # an algorithm may keep parts of itself in evaluation mode
            module.training = training


def evaluate(algorithm: Algorithm, data: PreparedData) -> dict[str, float | None] | None:
    """Return the figures of a record, or None if a logit is not finite."""
    validation = predict_logits(algorithm, data.inputs, data.validation.stored)
    return measure(validation, predict_logits(algorithm, data.inputs, data.test.stored), data)


def measure(
    validation: np.ndarray, test: np.ndarray, data: PreparedData, more_criteria: Sequence[Criterion] = ()
) -> dict[str, float | None] | None:
    """Return the record's figures from the logits (n, K) of both sets; None if one is not finite."""
    if not (np.isfinite(validation).all() and np.isfinite(test).all()):
        return None
    held_out = data.validation
    assert held_out.candidates is not None
    if len(validation):
        figures = measure_all(validation, held_out.candidates, held_out.labels, more_criteria)
    else:  # the run holds nothing out
        figures = {c.record_key: None for c in (*criteria.values(), *more_criteria)}
    labels = data.test.labels
    figures["test_acc"] = None if labels is None or not len(labels) else accuracy(test, labels)
    if labels is not None and data.test.thirds is not None:
        thirds = data.test.thirds[labels]  # many, medium and few training examples
        for number, name in enumerate(THIRDS):
            chosen = thirds == number
            figures[f"test_acc_{name}"] = accuracy(test[chosen], labels[chosen]) if chosen.any() else None
    return figures


class Totals:
    """Sums of what updates log since the last record, kept on the device so that no update waits for it."""

    def __init__(self) -> None:
        self.count = 0
        self.counts: dict[str, int] = {}
        self.sums: dict[str, Tensor | float] = {}

    def add(self, logged: Mapping[str, Tensor | float]) -> None:
        """Add what one update logged."""
        if "loss" not in logged:
            raise TypeError(f"update must return a mapping with the key 'loss', not {logged!r}")
        self.count += 1
        for name, value in logged.items():
            value = value.detach() if isinstance(value, Tensor) else float(value)
            if name in self.sums:
                self.sums[name] = self.sums[name] + value
                self.counts[name] += 1
            else:  # a copy, because an algorithm may log a buffer that it changes in place later
                self.sums[name] = value.clone() if isinstance(value, Tensor) else value
                self.counts[name] = 1

    @classmethod
    def stack(cls, totals: Sequence[Totals]) -> Totals:
        """Return the sums of several runs as tensors (R,)."""
        together, first = cls(), totals[0]
        if any((each.count, each.counts) != (first.count, first.counts) for each in totals):
            raise ValueError("they have logged at different steps")
        together.count, together.counts = first.count, dict(first.counts)
        for name in first.sums:
            together.sums[name] = torch.stack([torch.as_tensor(each.sums[name]) for each in totals])
        return together

    def of_run(self, number: int) -> Totals:
        """Return one run's part of the sums of a stack."""
        own = Totals()
        own.count, own.counts = self.count, dict(self.counts)
        for name, value in self.sums.items():
            stacked = isinstance(value, Tensor) and value.dim() > 0
            own.sums[name] = value[number].clone() if stacked else value  # type: ignore[index]
        return own

    def means(self) -> dict[str, float]:
        """Return each name's mean over the updates that logged it; this waits for the device."""
        return {name: float(value) / self.counts[name] for name, value in self.sums.items()}

    def state(self) -> dict[str, Any]:
        """Return counts and sums."""
        sums = {k: v.cpu() if isinstance(v, Tensor) else v for k, v in self.sums.items()}
        return {"count": self.count, "counts": self.counts, "sums": sums}

    def load_state(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Resume from `state()`."""
        self.count = state["count"]
        self.counts = dict(state["counts"])
        self.sums = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in state["sums"].items()}


class Observers(Callback):
    """Several callbacks as one; none of them can change the run or end it."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = list(callbacks)
        self.errors: list[str] = []
        for event in (name for name in vars(Callback) if not name.startswith("_")):
            setattr(self, event, partial(self.call, event))

    def call(self, event: str, *arguments: Any) -> None:
        """Call a method of every callback; one that raises is not called again."""
        device = torch.device("cuda" if torch.cuda.is_initialized() else "cpu")
        before = capture_global(device)
        for callback in list(self.callbacks):
            try:
                getattr(callback, event, lambda *_: None)(*arguments)
            except Exception as error:
                text = (
                    f"{type(callback).__name__}.{event} raised {error!r}; this callback is not called again"
                )
                logger.warning("%s", text, exc_info=error)
                self.errors.append(text)
                self.callbacks.remove(callback)
        apply_global(before, device)


class TrainingRun:
    """The algorithm, data, random streams and files of a run; `plench.training.loop` makes its updates."""

    algorithm: Algorithm
    training_set: TrainingSet

    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset,
        entry: AlgorithmEntry,
        store: RunStore,
        callback: Callback | None = None,
        data: PreparedData | None = None,
    ) -> None:
        self.config = config
        self.dataset = dataset
        self.entry = entry
        self.store = store
        self.callback = callback or Callback()
        self.run_id = config.run_id(dataset.fingerprint)
        self.device = choose_device(config.device)
        self.environment = describe_environment(self.device, config.threads)
        self.data = data or prepare_data(dataset, config, self.device)
        self.more_criteria = find_criteria(config.more_criteria)
        self.streams = Streams(config.seed, self.device)
        self.state: list[dict[str, Any]] = []
        self.stack_size = 1
        self.stack_id = ""  # of which runs the stack consists
        self.stack_members: list[str] = []  # their run_ids, in order, when it was largest
        self.totals = Totals()
        self.records: list[str] = []
        self.best: dict[str, float] = {}
        self.warnings: list[str] = list(dataset.warnings)
        self.has_older_models = False  # written before the checkpoint that the run resumed from
        self.updates = 0
        self.updates_made = 0
        self.window_seconds = 0.0
        self.seconds = {"training": 0.0, "evaluation": 0.0}
        self.begun = datetime.now(UTC).isoformat(timespec="seconds")
        self.has_started = False

    # Building and restoring.

    def build(self) -> None:
        """Build the algorithm and its batches, as they are before the first update."""
        data = self.data
        with self.streams.ambient("init"):
            candidates = data.train_candidates.astype(np.float32)
            algorithm = self.entry.cls(data.input_shape, candidates, dict(self.config.hparams))
            if isinstance(algorithm, FittedAlgorithm):
                algorithm.seed = self.config.seed
            if data.train_weights is not None:
                if not algorithm.uses_weights:
                    self.warn(f"{self.config.algorithm} {IGNORES_WEIGHTS}")
                algorithm.weigh_candidates(torch.from_numpy(data.train_weights.copy()))
            set_execution(algorithm, self.config.precision, self.config.compile)
            self.algorithm = algorithm.to(self.device).train()
        self.state = list_state(self.algorithm)
        self.training_set = self.build_training_set()
        self.attach(self.algorithm)

    def build_training_set(self, batch_size: int | None = None) -> TrainingSet:
        """Return batches of the training split, as the algorithm declares them."""
        data, card = self.data, self.entry.card
        weights = None if data.train_weights is None else torch.from_numpy(data.train_weights.copy())
        return TrainingSet(
            data.inputs,
            data.train,
            torch.from_numpy(data.train_candidates).to(self.device),
            batch_size or int(self.config.hparams.get("batch_size", len(data.train))),
            self.entry.cls.choose_views(card.views, self.config.hparams),
            card.second_batch,
            self.streams,
            None if weights is None else weights.to(self.device),
        )

    def attach(self, algorithm: Algorithm) -> None:
        """Give an algorithm access to the training inputs and, if its card asks for them, to answers."""
        algorithm.attach_inputs(self.training_set)
        if self.entry.card.answers:
            answers, config = self.data.train_answers, self.config
            check_answers(config.algorithm, self.entry.card.annotators, config.dataset, answers)
            algorithm.attach_answers(answers)

    def start(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Start at the beginning or at the checkpoint; records after it are removed."""
        for name, first in self.algorithm.phases().items():
            if first >= self.config.steps:
                last = f"after the last of this run's {self.config.steps}"
                self.warn(f"{name} would begin at update {first}, {last}")
        if checkpoint is None:
            self.warn_unsaved(take_snapshot(self.algorithm).unsaved)
        else:
            with fitting(f"the checkpoint in {self.store.folder} cannot be restored", ResumeError):
                self.restore(checkpoint)
        self.describe("running")
        self.store.write_file(RESULTS, "".join(line + "\n" for line in self.records).encode("utf-8"))
        if self.entry.source is not None:
            self.store.write_file(ALGORITHM, Path(self.entry.source).read_bytes())
        network = None if self.config.fitted else find_network(str(self.config.hparams["model"]))
        if network is not None and network.source is not None:
            self.store.write_file(NETWORK, Path(network.source).read_bytes())
        for file, part in find_more_sources(self.config).items():
            self.store.write_file(file, Path(str(part.source)).read_bytes())
        for reason in describe_run(self.config, self.dataset, self.entry).get("not_repeatable", ()):
            self.warn(reason)
        self.callback.opened(self.store.folder)
        self.callback.started(self.config, self.updates)
        self.has_started = True

    def check_conditions(self, checkpoint: Mapping[str, Any]) -> None:
        """Raise ResumeError for a checkpoint of another run, of other data or of other conditions."""
        if checkpoint.get("run_id", self.run_id) != self.run_id:
            raise ResumeError(
                f"a checkpoint in {self.store.folder} belongs to another run; remove it to resume from an "
                "earlier one or to start over"
            )
        if checkpoint["candidates"] != self.candidates_digest():
            raise ResumeError(
                f"{self.store.folder} was started on other candidate sets of the same description, perhaps "
                "by another version of a library; delete the folder to start over"
            )
        before, now = checkpoint["environment"], self.environment
        # A condition that an older version did not write down cannot be compared.
        changed = [key for key in MUST_AGREE if key in before and before[key] != now[key]]
        if changed and not self.config.force_resume:
            conditions = ", ".join(f"{key} {before[key]} → {now[key]}" for key in changed)
            raise ResumeError(
                f"this run was begun under other conditions ({conditions}), so it might not get the results "
                "of an undisturbed run; use --force-resume to resume it all the same, or delete its folder "
                "to start over"
            )

    def candidates_digest(self) -> str:
        """Return a hash of the training split's candidates, and of their weights where they have any."""
        digest = hashlib.sha256(np.packbits(self.data.train_candidates).tobytes())
        if self.data.train_weights is not None:
            digest.update(np.ascontiguousarray(self.data.train_weights, "<f4").data)
        return digest.hexdigest()

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore a checkpoint; if its state has other names, it is refused before anything changes."""
        built, saved = take_snapshot(self.algorithm).tree, checkpoint["algorithm"]
        same_source = checkpoint["environment"].get("source") == self.environment["source"]
        check_names(built, saved, type(self.algorithm).__name__, extra=same_source)
        restore_snapshot(self.algorithm, saved)
        self.training_set.load_state(checkpoint["data"])
        self.streams.load_state(checkpoint["streams"])
        self.totals.load_state(checkpoint["totals"], self.device)
        for name in ("updates", "best", "window_seconds", "seconds", "begun"):
            setattr(self, name, checkpoint[name])
        self.records = list(checkpoint["records"])
        self.warnings = list(dict.fromkeys([*checkpoint[WARNINGS], *self.warnings]))
        self.has_older_models = checkpoint["keep_models"]
        if not self.config.skip_model_save and not checkpoint["keep_models"]:
            self.warn(f"models of the first {self.updates} updates were not kept; the best may be among them")

    # Warnings, records, models and checkpoints.

    def warn(self, text: str) -> None:
        """Log a warning once, and keep it for run.json."""
        if text not in self.warnings:
            self.warnings.append(text)
            logger.warning("%s on %s: %s", self.config.algorithm, self.config.dataset, text)

    def warn_unsaved(self, paths: Sequence[str]) -> None:
        """Warn about parts of the algorithm that checkpoints cannot contain."""
        for path in paths:
            self.warn(f"{path} cannot be saved, so a resumed run may differ from an undisturbed one")

    def is_recorded(self, step: int) -> bool:
        """Return True if a record follows the update of this step."""
        return step % self.config.checkpoint_freq == 0 or step == self.config.steps - 1

    def record(self, validation: np.ndarray, test: np.ndarray, spent: float) -> Status | None:
        """Write the record of the last update, given the logits of both sets, which took `spent` seconds.

        Return "diverged" instead if the loss or an output is not finite.
        """
        begun = time.perf_counter() - spent
        with self.streams.ambient("evaluation"):
            figures = measure(validation, test, self.data, self.more_criteria)
        logged = self.totals.means()
        if figures is None or not math.isfinite(logged["loss"]):
            return "diverged"
        step = self.updates - 1
        is_cuda = self.device.type == "cuda"
        record = {
            "step": step,
            "epoch": step * self.training_set.order.batch_size / len(self.training_set),
            "loss": logged.pop("loss"),
            "step_time": self.window_seconds / self.totals.count,
            "mem_gb": torch.cuda.max_memory_allocated(self.device) / 2**30 if is_cuda else None,
            **figures,
            "logged": {name: value if math.isfinite(value) else None for name, value in logged.items()},
            "hparams": dict(self.config.hparams),
            "args": self.config.args(),
            **({"fleet_size": self.stack_size} if self.stack_size > 1 else {}),
        }
        line = json.dumps(record, allow_nan=False)
        self.records.append(line)
        self.store.append_record(line)
        self.keep_models(step, figures)
        self.seconds["training"] += self.window_seconds
        self.seconds["evaluation"] += time.perf_counter() - begun
        self.totals, self.window_seconds = Totals(), 0.0
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
        payload = {
            "run_id": self.run_id,
            "algorithm": take_snapshot(self.algorithm, for_prediction=True).tree,
            "inputs": self.data.inputs.state(),
            "updates": self.updates,
        }
        self.store.write_model(name, dump(payload))

    def write_checkpoint(self) -> None:
        """Save everything needed to resume exactly from here."""
        snapshot = take_snapshot(self.algorithm)
        self.warn_unsaved(snapshot.unsaved)
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
            WARNINGS: self.warnings,
            "begun": self.begun,
            **({"stack": self.stack_id} if self.stack_id else {}),
        }
        self.store.write_checkpoint(dump(payload))

    # The end of a run, or of an attempt at it.

    def find_lost_model(self) -> str | None:
        """Return the name of a best model that was written before the resumed checkpoint and is lost since.

        The run would not write it again.
        """
        if not self.has_older_models or self.config.skip_model_save:
            return None
        evaluations = [json.loads(line) for line in self.records]
        for name, value in self.best.items():
            key = criteria[name].record_key
            step = next(r["step"] for r in evaluations if r["step"] > 0 and r.get(key) == value)
            try:
                payload = parse(self.store.read_model(name) or b"")
            except ValueError:
                return MODEL.format(name)
            if payload.get("run_id", self.run_id) != self.run_id or payload.get("updates") != step + 1:
                return MODEL.format(name)
        return None

    def conclude(self, status: Status, out_of_time: bool = False) -> RunOutcome:
        """Write what belongs to the end of an attempt, and return how it ended."""
        message = ""
        if status == "interrupted":
            self.write_checkpoint()
            message = f"the time left is too short for another round; {RESUMES}" if out_of_time else RESUMES
        elif self.config.skip_model_save:
            self.store.discard_models()
        elif status == "done":
            self.write_model("last")
        if status == "diverged":
            message = f"the loss or an output became NaN or infinite before update {self.updates}"
        self.describe(status)
        if status != "interrupted":
            self.store.finish()
        return RunOutcome(status, self.store.folder, self.updates_made, message, out_of_time)

    def fail(self, error: BaseException) -> RunOutcome:
        """Record that an error of the algorithm stopped the run; its records stay."""
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
        records = [json.loads(line) for line in self.records]
        largest = max([self.stack_size, *(record.get("fleet_size", 1) for record in records)])
        described, data = describe_run(self.config, self.dataset, self.entry), self.data
        described["dataset"] |= {
            "n_train": len(data.train),
            "n_validation": len(data.validation.stored),
            "n_test": len(data.test.stored),
            "n_classes": int(data.train_candidates.shape[1]),
            "input_shape": list(data.input_shape),
            "train_mean_candidates": float(data.train_candidates.sum(1).mean()),
            "train_noise_rate": data.train_noise_rate,
        }
        self.store.write_run(
            {
                **described,
                "status": status,
                "error": error,
                "diverged_after_step": records[-1]["step"] if status == "diverged" and records else None,
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
                WARNINGS: self.warnings,
                **({"fleet_size": largest} if largest > 1 else {}),
                **({"stack": self.stack_members} if self.stack_members else {}),
            }
        )
