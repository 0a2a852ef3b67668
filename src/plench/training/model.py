"""Trained models: `plench.load(folder).predict(X)`."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plench.algorithms import Algorithm, AlgorithmEntry, find_algorithm
from plench.algorithms.registry import load_third_party
from plench.criteria import find_criterion
from plench.errors import DataError, UsageError
from plench.networks import NETWORKS
from plench.plain_files import read_plain
from plench.storage.store import ALGORITHM, MAX_CHECKPOINT_BYTES, NETWORK, RunStore
from plench.training.checkpoint import fitting, parse
from plench.training.environment import choose_device, set_execution
from plench.training.evaluation import predict_logits
from plench.training.inputs import Inputs, restore_inputs
from plench.training.restore import restore_snapshot
from plench.training.streams import Streams

# What must be known of a run to build its algorithm again.
NEEDED = ("config", "dataset", "algorithm_class", "algorithm_spec")
MAX_CELLS = 2**31  # of candidates, and of an example


class TrainedModel:
    """A classifier from a run, as it was after `updates` updates.

    It takes features (n, D) or images (n, C, H, W) as the data has them, not scaled; a model of a table takes
    a frame, a mapping of names to columns or a file, with columns in any order. `class_names` are those of
    the data, if it has any.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        inputs: Inputs,
        updates: int,
        class_names: tuple[str, ...] | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.inputs = inputs
        self.updates = updates
        self.class_names = class_names

    def predict_logits(self, X: Any) -> np.ndarray:
        """Return logits (n, K)."""
        features = self.inputs.accept(X)
        device = next((weight.device for weight in self.algorithm.parameters()), torch.device("cpu"))
        return predict_logits(self.algorithm, self.inputs, self.inputs.store(features, device))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities (n, K)."""
        logits = self.predict_logits(X)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(weights / weights.sum(1, keepdims=True))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each example (n,): its name where classes have names."""
        labels: np.ndarray = self.predict_logits(X).argmax(1)
        return labels if self.class_names is None else np.array(self.class_names)[labels]


def load(folder: str | Path, criterion: str = "last", device: str = "cpu") -> TrainedModel:
    """Load a run's model: the last one, the best by a criterion (`CR`, `AA`), or that of a step (`step1000`).

    Models of single steps exist if the run was told `--save_model_every_checkpoint`.
    """
    store = RunStore(Path(folder))
    run = store.read_run()
    if run is None:
        raise DataError(f"{folder} is not a run's folder: it has no readable run.json")
    missing = [key for key in NEEDED if key not in run]
    if missing:
        raise DataError(f"{folder} cannot be used: its run.json has no {missing[0]!r}")
    path = store.model_path(find_model(store, criterion))
    try:
        payload = parse(read_plain(path, MAX_CHECKPOINT_BYTES))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be used: {reason}") from error
    if payload.get("run_id", run.get("run_id")) != run.get("run_id"):
        raise DataError(f"{path} cannot be used: it is the model of another run")
    with fitting(f"{folder} cannot be used: its model does not fit its run.json", DataError):
        return build_model(store, run, payload, device)


def build_model(store: RunStore, run: dict[str, Any], payload: dict[str, Any], device: str) -> TrainedModel:
    """Build a run's algorithm and give it the state of a saved model."""
    data = run["dataset"]
    check_sizes(data)
    candidates = np.ones((data["n_train"], data["n_classes"]), dtype=np.float32)
    entry = find_entry(store, run)
    load_network(store, run)
    with Streams(0, torch.device("cpu")).ambient("init"):  # the weights drawn here are replaced below
        algorithm = entry.cls(tuple(data["input_shape"]), candidates, run["config"]["hparams"])
    set_execution(algorithm, run["config"]["precision"], compiled=False)
    restore_snapshot(algorithm, payload["algorithm"])
    algorithm.to(choose_device(device)).eval()
    inputs = restore_inputs(data["kind"], payload["inputs"])
    names = data.get("class_names")
    return TrainedModel(algorithm, inputs, payload["updates"], None if names is None else tuple(names))


def load_network(store: RunStore, run: dict[str, Any]) -> None:
    """Load a third party's network from the copy in the run's folder, so that it is found by its name."""
    if "network" in run:
        NETWORKS.load_third_party(f"{store.folder / NETWORK}:{run['network']}")


def check_sizes(data: dict[str, Any]) -> None:
    """Raise ValueError unless a description's sizes are whole numbers that leave some memory."""
    sizes = [data["n_train"], data["n_classes"], *data["input_shape"]]
    if not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError("the sizes in its run.json are not whole numbers above 0")
    if data["n_train"] * data["n_classes"] > MAX_CELLS or math.prod(data["input_shape"][1:]) > MAX_CELLS:
        raise ValueError("the sizes in its run.json are larger than any data")


def find_model(store: RunStore, criterion: str) -> str:
    """Return the name of the saved model that is meant; raise UsageError with those there are."""
    kept = store.list_models()
    name = criterion.lower()
    if name != "last" and not name.startswith("step"):
        name = find_criterion(criterion).name
    if name not in kept:
        has = ", ".join(sorted(kept, key=in_order)) or "no model"
        raise UsageError(f"{store.folder} has no model for {criterion!r}; it has {has}")
    return name


def in_order(model: str) -> tuple[bool, int, str]:
    """Return a key that sorts names of models: steps behind the others, by number."""
    number = model.removeprefix("step")
    return number.isdigit(), int(number) if number.isdigit() else 0, model


def find_entry(store: RunStore, run: dict[str, Any]) -> AlgorithmEntry:
    """Return the algorithm of a run.

    A third party's comes from its module if that is still the same, else from the copy in the run's folder.
    """
    if run["algorithm_spec"] is not None:
        with suppress(UsageError):
            entry = find_algorithm(run["algorithm_spec"])
            if entry.name == run["config"]["algorithm"]:
                return entry
    return load_third_party(f"{store.folder / ALGORITHM}:{run['algorithm_class']}")
