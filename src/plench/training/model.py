"""Trained models: `plench.load(path).predict(X)`, from a run's folder or a model file."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from plench.algorithms import Algorithm, AlgorithmEntry, find_algorithm
from plench.algorithms.registry import ALGORITHMS, add_card, load_third_party
from plench.criteria import find_criterion
from plench.errors import DataError, UsageError
from plench.model_file import ModelFile, is_model_file, read_model_file, write_model_file
from plench.networks import NETWORKS
from plench.runs.folder import ALGORITHM, NETWORK, RunStore
from plench.training.checkpoint import fitting, parse, restore_snapshot, take_snapshot
from plench.training.data import Inputs, Stored, TableInputs, TabularInputs, inputs_for
from plench.training.environment import Streams, choose_device, set_execution
from plench.training.run import predict_logits

# What must be known of a run to build its algorithm again.
NEEDED = ("config", "dataset", "algorithm_class", "algorithm_spec")
# Candidates that are made room for when a model is built again: prediction needs nothing of single examples.
MAX_CELLS = 2**22
RANGE_ROWS = 8192  # that are compared with the training range at a time

logger = logging.getLogger("plench")


@dataclass(eq=False, repr=False)
class TrainedModel:
    """A classifier from a run, as it was after `updates` updates.

    It takes features (n, D) or images (n, C, H, W) as the data has them, not scaled; a model of a table takes
    a frame, a mapping of names to columns or a file, with columns in any order. `class_names` are those of
    the data, if it has any. `run` is the run.json with its provenance, `sources` third-party code
    by file name, and `notes` what else is known of the model, as plain values (`classes`, `quality`, …).
    """

    algorithm: Algorithm
    inputs: Inputs
    updates: int
    class_names: tuple[str, ...] | None = None
    run: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, bytes] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def classes(self) -> np.ndarray:
        """The classes (K,) as predictions name them: labels as they were given, names, or numbers."""
        given = self.notes.get("classes", self.class_names)
        return np.arange(self.algorithm.num_classes) if given is None else np.array(given)

    def save(self, path: str | Path) -> None:
        """Write the model to one file, which `plench.load` reads: no pickle, safe to open from a stranger.

        >>> plench.load("runs/FOLDER", criterion="CR").save("model.plench")
        """
        write_model_file(path, self.to_content())

    def to_content(self) -> ModelFile:
        """Return what the file of the model holds; per-example state and optimisers are left out."""
        state = {
            "algorithm": take_snapshot(self.algorithm, for_prediction=True).tree,
            "inputs": self.inputs.state(),
            "updates": self.updates,
        }
        head = {"updates": self.updates, "run": self.run, "notes": self.notes}
        return ModelFile(head, state, self.sources)

    @property
    def n_inputs(self) -> int:
        """The number of inputs of the network per example."""
        return int(np.prod(self.run["dataset"]["input_shape"][1:]))

    def encode(self, features: Any) -> np.ndarray:
        """Return features of the data as the network sees them (n, `n_inputs`)."""
        stored = self.inputs.store(features, torch.device("cpu"))
        return self.inputs.original(stored[:]).reshape(len(stored), -1).numpy()

    def record_range(self, features: Any) -> None:
        """Keep the smallest and largest inputs of the training examples, to warn about others far outside."""
        if isinstance(self.inputs, TabularInputs):
            stored = self.inputs.store(features, torch.device("cpu"))
            ends = [
                torch.aminmax(stored[i : i + RANGE_ROWS], dim=0) for i in range(0, len(stored), RANGE_ROWS)
            ]
            low = torch.stack([each.min for each in ends]).amin(0)
            high = torch.stack([each.max for each in ends]).amax(0)
            self.notes["range"] = [low.tolist(), high.tolist()]

    def warn_outside(self, stored: Stored) -> None:
        """Warn once of inputs outside the training range by more than its width (at least a deviation)."""
        if "range" not in self.notes or len(stored) == 0:
            return
        low, high = (torch.tensor(ends, device=stored.device) for ends in self.notes["range"])
        width = (high - low).clamp(min=1.0)
        n_outside = 0
        columns = torch.zeros_like(low, dtype=torch.bool)
        for start in range(0, len(stored), RANGE_ROWS):
            rows = stored[start : start + RANGE_ROWS]
            outside = (rows < low - width) | (rows > high + width)
            n_outside += int(outside.any(1).sum())
            columns |= outside.any(0)
        if n_outside:
            logger.warning(
                "%d of %d rows are far outside the training range (in %d of %d inputs): predictions for them "
                "are extrapolated, and their probabilities mean little",
                n_outside,
                len(stored),
                columns.sum(),
                len(columns),
            )

    def predict_logits(self, X: Any) -> np.ndarray:
        """Return logits (n, K)."""
        features = self.inputs.accept(X)
        device = next((weight.device for weight in self.algorithm.parameters()), torch.device("cpu"))
        stored = self.inputs.store(features, device)
        self.warn_outside(stored)
        with fitting("the model cannot predict on these data", DataError):
            return predict_logits(self.algorithm, self.inputs, stored)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities (n, K), at the temperature of its calibration if it has one."""
        return self.calibrate_logits(self.predict_logits(X))

    def calibrate_logits(self, logits: np.ndarray) -> np.ndarray:
        """Return the probabilities that logits stand for."""
        logits = logits / self.notes.get("calibration", {}).get("temperature", 1.0)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(weights / weights.sum(1, keepdims=True))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each example (n,): its name where classes have names."""
        labels: np.ndarray = self.predict_logits(X).argmax(1)
        return np.asarray(self.classes[labels])


def load(
    path: str | Path,
    criterion: str = "last",
    device: str = "cpu",
    *,
    run_code: bool = False,
    text_encoder: str | None = None,
    image_encoder: str | None = None,
) -> TrainedModel:
    """Load a trained model from a model file or from the folder of a run.

    Parameters
    ----------
    path : str or path
        A model file (`model.plench`), or the folder of a run.
    criterion : str, default "last"
        Which model of a run: the last one, the best by a criterion (`"CR"`, `"AA"`), or that of a step
        (`"step1000"`, if the run had `save_model_every_checkpoint`). A file has one model.
    device : str, default "cpu"
        Device to predict on.
    run_code : bool, default False
        Whether third-party code in a model file, or an encoder that it names, may run.
    text_encoder, image_encoder : str, optional
        Where the encoders that the model was trained with are now, if they were moved. They must be the same.

    Returns
    -------
    TrainedModel
        With `predict`, `predict_proba`, `predict_logits` and `save`.

    Raises
    ------
    UsageError
        If there is no such model.
    DataError
        If the file or folder is damaged, or needs `run_code`.

    Examples
    --------
    >>> model = plench.load(outcome.folder, criterion="CR")
    >>> model.predict(features)
    """
    given = {"text": text_encoder, "image": image_encoder}
    if os.path.isfile(path) or (is_model_file(path) and not os.path.isdir(path)):
        if criterion != "last":
            raise UsageError(f"{path} is a file with one model, so there is none for {criterion!r}")
        return load_model_file(path, device, run_code=run_code, encoders=given)
    folder, store = path, RunStore(Path(path))
    run = store.read_run()
    if run is None:
        raise DataError(f"{folder} is not a run's folder: it has no readable run.json")
    missing = [key for key in NEEDED if key not in run]
    if missing:
        raise DataError(f"{folder} cannot be used: its run.json has no {missing[0]!r}")
    name, kept = criterion.lower(), store.list_models()
    if name != "last" and not name.startswith("step"):
        name = find_criterion(criterion).name
    if name not in kept:  # steps are listed behind the others, by number
        has = ", ".join(sorted(kept, key=lambda each: (each.startswith("step"), len(each), each)))
        raise UsageError(f"{folder} has no model for {criterion!r}; it has {has or 'no model'}")
    path = store.model_path(name)
    try:
        payload = parse(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be used: {reason}") from error
    if payload.get("run_id", run.get("run_id")) != run.get("run_id"):
        raise DataError(f"{path} cannot be used: it is the model of another run")
    with fitting(f"{folder} cannot be used: its model does not fit its run.json", DataError):
        entry = find_own_entry(store, run)
        load_network(store, run)
        copies = (store.folder / name for name in (ALGORITHM, NETWORK))
        sources = {path.name: path.read_bytes() for path in copies if path.is_file()}
        model = build_model(entry, run, payload, device, sources, {})
    return use_encoders(model, given, run_code=True)  # the folder's code runs in any case


def use_encoders(model: TrainedModel, given: Mapping[str, str | None], *, run_code: bool) -> TrainedModel:
    """Return the model with the pretrained encoders that the user names, by kind."""
    if isinstance(model.inputs, TableInputs):
        model.inputs.encoder.run_code = run_code
        model.inputs.encoder.use(given)
    elif any(given.values()):
        raise UsageError("an encoder was given, but the model has no text or image encoder")
    return model


def load_model_file(
    path: str | Path | bytes,
    device: str = "cpu",
    *,
    run_code: bool = False,
    encoders: Mapping[str, str | None] | None = None,
) -> TrainedModel:
    """Load a model from its file, or from the bytes of one.

    Only our own algorithms and networks are looked up by the names in a file; third-party code in it runs
    only with `run_code`.
    """
    content = read_model_file(path)
    name = "the model" if isinstance(path, bytes) else str(path)
    with fitting(f"{name} cannot be used: its parts do not fit", DataError):
        run = content.head["run"]
        algorithm, network = run["config"]["algorithm"], run["config"]["hparams"].get("model")
        own_network = network is None or network in NETWORKS.own
        if algorithm in ALGORITHMS.own and own_network:
            entry = add_card(ALGORITHMS.own[algorithm])
        elif run_code:
            with TemporaryDirectory(prefix="plench-") as folder:
                store = RunStore(Path(folder))
                for file, source in content.sources.items():
                    store.write_file(file, source)
                load_network(store, run)
                own = ALGORITHMS.own.get(algorithm)
                entry = find_own_entry(store, run) if own is None else add_card(own)
        else:
            whose = f"network {network}" if algorithm in ALGORITHMS.own else f"algorithm {algorithm}"
            raise DataError(
                f"{name} is the model of a third-party {whose}. Its code is in the file and does not run "
                "by default: if you trust its author, load the file with run_code=True (on the command line "
                "--run-code)"
            )
        notes = content.head["notes"]
        model = build_model(entry, run, content.state, device, content.sources, notes)
    return use_encoders(model, encoders or {}, run_code=run_code)


def build_model(
    entry: AlgorithmEntry,
    run: dict[str, Any],
    payload: dict[str, Any],
    device: str,
    sources: Mapping[str, bytes],
    notes: Mapping[str, Any],
) -> TrainedModel:
    """Build a run's algorithm and give it the state of a saved model."""
    data = run["dataset"]
    n_rows = max(1, min(data["n_train"], MAX_CELLS // data["n_classes"]))
    candidates = np.ones((n_rows, data["n_classes"]), dtype=np.float32)
    with Streams(0, torch.device("cpu")).ambient("init"):  # the weights drawn here are replaced below
        algorithm = entry.cls((n_rows, *data["input_shape"][1:]), candidates, run["config"]["hparams"])
    set_execution(algorithm, run["config"]["precision"], compiled=False)
    restore_snapshot(algorithm, payload["algorithm"])
    algorithm.to(choose_device(device)).eval()
    kind = TableInputs.kind if "columns" in payload["inputs"] else data["kind"]
    inputs = inputs_for(kind).from_state(payload["inputs"])
    names = None if data.get("class_names") is None else tuple(data["class_names"])
    return TrainedModel(algorithm, inputs, payload["updates"], names, run, dict(sources), dict(notes))


def load_network(store: RunStore, run: dict[str, Any]) -> None:
    """Load a third-party network from the copy in the run's folder, so that it is found by its name."""
    if "network" in run:
        NETWORKS.load_third_party(f"{store.folder / NETWORK}:{run['network']}")


def find_own_entry(store: RunStore, run: dict[str, Any]) -> AlgorithmEntry:
    """Return the algorithm of a run.

    A third-party algorithm comes from its module if unchanged, else from the copy in the run's folder.
    """
    spec = run["algorithm_spec"]
    if spec is not None:
        if not isinstance(spec, str):
            raise TypeError(f"algorithm_spec is {spec!r}")
        with suppress(UsageError):
            entry = find_algorithm(spec)
            if entry.name == run["config"]["algorithm"]:
                return entry
    return load_third_party(f"{store.folder / ALGORITHM}:{run['algorithm_class']}")
