"""Models in one file (`plench.model_file`): written from a trained model, and built again within bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from plench.algorithms.registry import ALGORITHMS, AlgorithmEntry, add_card
from plench.data.dataset import check_class_names
from plench.data.unpack import allowed_bytes
from plench.errors import DataError
from plench.model_file import ModelFile, read_model_file
from plench.networks import NETWORKS
from plench.runs.folder import RunStore
from plench.text import short_repr
from plench.training.checkpoint import fitting, take_snapshot
from plench.training.inputs import restore_inputs
from plench.training.model import (
    NEEDED,
    TrainedModel,
    build_model,
    check_sizes,
    find_own_entry,
    load_network,
)

MOST_CELLS = 2**22  # of candidates that are made room for: prediction needs none of them
FACTORIES: tuple[Any, ...] = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)
FACTORIES += (torch.eye, torch.arange, torch.linspace, torch.randint, torch.randperm)
MORE_FACTORIES: tuple[Any, ...] = (
    Tensor.repeat,
    Tensor.new_empty,
    Tensor.new_zeros,
    Tensor.new_ones,
    Tensor.new_full,
)


def make_content(model: TrainedModel) -> ModelFile:
    """Return what the file of a model holds; per-example state and optimisers are left out."""
    state = {
        "algorithm": take_snapshot(model.algorithm, for_prediction=True).tree,
        "inputs": model.inputs.state(),
        "updates": model.updates,
    }
    head = {"updates": model.updates, "run": model.run, "notes": model.notes}
    return ModelFile(head, state, model.sources)


def load_model_file(path: str | Path | bytes, device: str = "cpu", *, run_code: bool = False) -> TrainedModel:
    """Load a model from its file, or from the bytes of one."""
    content = read_model_file(path, make_tensor)
    name = "the model" if isinstance(path, bytes) else str(path)
    n_bytes = len(path) if isinstance(path, bytes) else Path(path).stat().st_size
    with fitting(f"{name} cannot be used: its parts do not fit", DataError):
        run, notes = content.head["run"], content.head["notes"]
        check_run(run)
        check_notes(notes, run["dataset"])
        check_input_width(run["dataset"], content.state["inputs"])
        entry = find_code(name, content, run_code)
        with BoundedTensors(allowed_bytes(n_bytes)):
            return build_model(
                entry,
                run,
                content.state,
                device,
                sources=content.sources,
                notes=notes,
                most_cells=MOST_CELLS,
            )


def make_tensor(array: np.ndarray, kind: str) -> Tensor:
    """Return a tensor of the type with that name, from an array of a file."""
    tensor = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("=")))
    dtype = getattr(torch, kind, None)
    if not isinstance(dtype, torch.dtype) or dtype.itemsize != tensor.dtype.itemsize:
        raise DataError(f"an array is said to be of type {short_repr(kind)}, but has {array.dtype}")
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


def check_run(run: Any) -> None:
    """Raise ValueError unless a description can be built from."""
    if not isinstance(run, dict):
        raise ValueError("it does not say how it was made")
    for key in NEEDED:
        if key not in run:
            raise ValueError(f"it does not say what its {key} is")
    check_sizes(run["dataset"])
    if run["dataset"]["n_classes"] > MOST_CELLS:
        raise ValueError("it has more classes than any data")


def check_notes(notes: Any, data: Mapping[str, Any]) -> None:
    """Raise an error unless the classes, where they are named, are as many as the model has."""
    if not isinstance(notes, dict):
        raise ValueError("its notes are broken")
    named = data.get("class_names")
    if named is not None:
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            raise ValueError("the names of its classes are broken")
        check_class_names(tuple(named), data["n_classes"], "the model")
    classes = notes.get("classes")
    if classes is not None:
        kinds = {type(label) for label in classes} if isinstance(classes, list) else set()
        if len(kinds) != 1 or not kinds <= {bool, int, float, str} or len(classes) != data["n_classes"]:
            raise ValueError("its classes are broken")
        if np.array(classes).dtype.kind not in "biufU":
            raise ValueError("its classes are broken")


def check_input_width(data: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Raise ValueError unless inputs are as wide as stated: a network of that width is built."""
    if data["kind"] == "tabular":
        inputs: Any = restore_inputs(data["kind"], state)
        widths = {tuple(state["mean"].shape), tuple(state["std"].shape)}
        encoder = getattr(inputs, "encoder", None)
        stated = tuple(data["input_shape"][1:])
        if widths != {stated} or (encoder is not None and (encoder.width,) != stated):
            raise ValueError("its inputs are not as wide as it says")


def find_code(name: str, content: ModelFile, run_code: bool) -> AlgorithmEntry:
    """Return the model's algorithm; a third party's only where its code may be run."""
    run = content.head["run"]
    algorithm, network = run["config"]["algorithm"], run["config"]["hparams"].get("model")
    is_ours = algorithm in ALGORITHMS.own and (network is None or network in NETWORKS.own)
    if is_ours:
        return add_card(ALGORITHMS.own[algorithm])
    if not run_code:
        whose = f"algorithm {algorithm}" if algorithm not in ALGORITHMS.own else f"network {network}"
        raise DataError(
            f"{name} is the model of a third party's {whose}. Its code is in the file and is never run "
            "unasked: if you trust whoever made the file, load it with run_code=True (on the command line "
            "--run_code)"
        )
    with TemporaryDirectory(prefix="plench-") as folder:
        store = RunStore(Path(folder))
        for file, source in content.sources.items():
            store.write_file(file, source)
        load_network(store, run)
        return (
            add_card(ALGORITHMS.own[algorithm]) if algorithm in ALGORITHMS.own else find_own_entry(store, run)
        )


class BoundedTensors(TorchFunctionMode):
    """Refuses tensors that would take more memory than is in proportion to the file, before they are made."""

    def __init__(self, allowed: int) -> None:
        super().__init__()
        self.allowed = allowed
        self.taken = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Count what is made, and carry it out."""
        given = dict(kwargs or {})
        if func in FACTORIES:
            told = {key: value for key, value in given.items() if key not in ("device", "generator", "out")}
            shape = func(*args, **told, device="meta")
            self.take(shape.numel() * shape.element_size())
        elif func in MORE_FACTORIES:
            sizes = (
                args[1:] if len(args) > 1 and isinstance(args[1], int) else args[1] if len(args) > 1 else ()
            )
            numbers = [size for size in sizes if isinstance(size, int)]
            self.take(math.prod(numbers) * args[0].element_size() * max(1, args[0].numel()))
        return func(*args, **given)

    def take(self, n_bytes: int) -> None:
        """Count bytes; raise DataError where they are too many."""
        self.taken += n_bytes
        if self.taken > self.allowed:
            raise DataError(
                f"a model of this description would take {self.taken:,} bytes; allowed for a file of this "
                f"size are {self.allowed:,}"
            )
