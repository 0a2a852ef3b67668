"""One run of the estimator: through the same loop as every run, in a temporary folder."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plench.algorithms import AlgorithmEntry
from plench.data import Dataset, split_dataset
from plench.errors import PlenchError
from plench.estimator.quality import score_examples
from plench.plain_files import read_plain
from plench.runs.ended import RESULTS
from plench.runs.folder import MAX_CHECKPOINT_BYTES, RunStore
from plench.training import PreparedData, RunConfig, configure_run, prepare_data, run_training
from plench.training.callbacks import Callback
from plench.training.environment import choose_device
from plench.training.evaluate import predict_logits
from plench.training.model import TrainedModel, load

# Evaluations of a run that is stopped early: enough to choose from, few enough to cost little.
EVALUATIONS = 10


class OutOfTimeError(PlenchError):
    """The time that the user gave is over; raised by a callback between two updates."""


@dataclass(frozen=True)
class Material:
    """What an estimator learns from: the data, and perhaps weights (N, K) of the candidates."""

    dataset: Dataset
    weights: NDArray[np.float32] | None = None

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
        settings.setdefault("checkpoint_freq", max(1, steps // EVALUATIONS))
        return configure_run(entry, data.card, hparams=hparams, **settings)

    def whole(self) -> Material:
        """The same with nothing marked as validation."""
        return replace(self, dataset=replace(self.dataset, validation=None))

    def prepare(self, config: RunConfig) -> PreparedData:
        """Split and scale, as a run does it."""
        prepared = prepare_data(self.dataset, config, choose_device(config.device))
        if self.weights is None:
            return prepared
        split = split_dataset(
            self.dataset,
            config.trial_seed,
            test_fraction=config.tabular_test_fraction,
            holdout_fraction=config.holdout_fraction,
        )
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

    def measure(self, criterion: str) -> float | None:
        """Return a criterion on the held-out examples."""
        values = self.scores.get(criterion)
        return None if values is None or len(values) == 0 else float(values.mean())


def attempt(
    config: RunConfig,
    material: Material,
    entry: AlgorithmEntry,
    criterion: str | None = None,
    callback: Callback | None = None,
    prepared: PreparedData | None = None,
    caution: float | None = None,
) -> Attempt:
    """Carry out a run and take the model that is best by a criterion; without one, the last.

    With `caution` the last model is taken unless the best one is ahead by more than so many standard errors.
    A run that is stopped before its end gives the best model it has had, if any.
    """
    prepared = prepared or material.prepare(config)
    begun = time.perf_counter()
    with TemporaryDirectory(prefix="plench-") as folder:
        store = RunStore(Path(folder) / config.folder_name(material.dataset.fingerprint))
        try:
            outcome = run_training(config, material.dataset, entry, folder, callback, prepared, store)
            status, message = str(outcome.status), outcome.message
        except OutOfTimeError as error:
            status, message = "out of time", str(error)
        seconds = time.perf_counter() - begun
        kept = store.list_models()
        best = "last" if criterion is None and status == "done" else criterion or "CR"
        wanted = [name for name in ([best] if caution is None else ["last", best]) if name in kept]
        if not wanted and status == "done" and "last" in kept:
            wanted = ["last"]  # a run without a criterion to go by, such as one of a single update
        made = Attempt(config, status, message, seconds, read_records(store))
        found = [score(made, load(store.folder, name, config.device), prepared) for name in wanted]
    if len(found) == 2 and advantage(found[1], found[0], best, caution or 0.0) <= 0:
        return found[0]
    return found[-1] if found else made


def score(made: Attempt, model: TrainedModel, prepared: PreparedData) -> Attempt:
    """Return the attempt with a model of it, scored on the held-out examples."""
    logits = predict_logits(model.algorithm, prepared.inputs, prepared.validation.stored)
    held_out = prepared.validation.candidates
    scores = score_examples(logits, held_out) if held_out is not None and len(logits) else {}
    return replace(made, model=model, scores=scores, held_out=held_out)


def advantage(first: Attempt, second: Attempt, criterion: str, caution: float) -> float:
    """Return by how much one attempt is ahead of another on the same examples, less what may be luck."""
    return rate_differences(first.scores[criterion] - second.scores[criterion], caution)


def rate_differences(differences: NDArray[np.float64], caution: float) -> float:
    """Return the mean of paired differences less so many of its standard errors; 0 where they are too few."""
    if len(differences) < 2:
        return 0.0
    return float(differences.mean() - caution * differences.std(ddof=1) / np.sqrt(len(differences)))


def read_records(store: RunStore) -> list[dict[str, Any]]:
    """Return the records of a run."""
    with suppress(FileNotFoundError):
        lines = read_plain(store.folder / RESULTS, MAX_CHECKPOINT_BYTES).decode("utf-8").splitlines()
        return [json.loads(line) for line in lines]
    return []
