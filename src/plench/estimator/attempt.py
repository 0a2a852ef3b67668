"""One run of the estimator: through the same loop as every run, in a folder that is thrown away."""

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
from plench.storage.store import MAX_CHECKPOINT_BYTES, RESULTS, RunStore
from plench.training import PreparedData, RunConfig, configure_run, prepare_data, run_training
from plench.training.callbacks import Callback
from plench.training.environment import choose_device
from plench.training.evaluation import predict_logits
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
    """A run and what became of it; `model` is None where there is none to use.

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
) -> Attempt:
    """Carry out a run and take the model that is best by a criterion; without one, the last.

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
        records = read_records(store)
        wanted = ("last" if status == "done" else "CR") if criterion is None else criterion
        if wanted not in store.list_models():
            return Attempt(config, status, message, seconds, records)
        model = load(store.folder, wanted, config.device)
    logits = predict_logits(model.algorithm, prepared.inputs, prepared.validation.stored)
    scores = {}
    if len(logits) and prepared.validation.candidates is not None:
        scores = score_examples(logits, prepared.validation.candidates)
    return Attempt(config, status, message, seconds, records, model, scores, prepared.validation.candidates)


def read_records(store: RunStore) -> list[dict[str, Any]]:
    """Return the records of a run."""
    with suppress(FileNotFoundError):
        lines = read_plain(store.folder / RESULTS, MAX_CHECKPOINT_BYTES).decode("utf-8").splitlines()
        return [json.loads(line) for line in lines]
    return []
