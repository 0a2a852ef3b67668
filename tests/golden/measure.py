"""Runs a golden run and measures all that must stay."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.golden.adapter import (
    command,
    list_leaves,
    name_keys,
    name_states,
    predict,
    read_records,
    read_saved,
    stop_after,
)
from tests.golden.cases import OPTIMISER_STEPS, Case

NUMBERS_OF_DATA = (
    *("fingerprint", "verified", "n_train", "n_validation", "n_test", "n_classes", "input_shape"),
    *("train_mean_candidates", "train_noise_rate"),
)
SAMPLES = 3


def measure(case: Case, output: Path) -> dict[str, Any]:
    """Run a case with its interruptions; return what is recorded of it."""
    words = ["train", *case.words, "--output_dir", str(output), "--json"]
    count_steps = OPTIMISER_STEPS.get(case.algorithm, lambda update: 1)
    states, made = [], 0
    for stop in case.stops:
        with stop_after(sum(map(count_steps, range(made, stop))), case.fitted):
            outcome = train(words, 130)
        assert outcome["updates_made"] == stop - made
        states.append(measure_state(Path(outcome["folder"]), stop, last=stop == case.stops[-1]))
        made = stop
    outcome = train(words, 0)
    assert (outcome["status"], outcome["updates_made"]) == ("done", case.steps - made)
    folder = Path(outcome["folder"])
    measured = {**measure_folder(folder), "states": states, "models": measure_models(folder)}
    if case.features is not None:
        arrays = np.load(case.features)
        measured["predicted"] = predict(folder, arrays["features" if "features" in arrays else "images"])
    check_phases(case, measured)
    return measured


def train(words: list[str], expected: int) -> dict[str, Any]:
    """Run `plench train --json`; return what it printed."""
    code, out, err = command(*words)
    assert code == expected, f"exit code {code}: {err}"
    printed: dict[str, Any] = json.loads(out)
    return printed


def measure_folder(folder: Path) -> dict[str, Any]:
    """Return identity, description and records of a finished run."""
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    records = read_records(folder)
    hparams, args = records[0]["hparams"], records[0]["args"]
    assert all((record["hparams"], record["args"]) == (hparams, args) for record in records)
    values = [
        {key: value for key, value in record.items() if key not in ("hparams", "args")} for record in records
    ]
    return {
        "folder": folder.name,
        "files": sorted(path.name for path in folder.iterdir() if path.name != ".lock"),
        "run_id": run["run_id"],
        "run_keys": list(run),
        "inner_keys": {
            key: name_keys(run[key]) for key in ("algorithm_card", "dataset", "versions", "timings")
        },
        "experiment": run["experiment"],
        "config": run["config"],
        "args": args,
        "hparams": hparams,
        "data": {key: run["dataset"][key] for key in NUMBERS_OF_DATA},
        "state": [[row["name"], row["shape"], row["dtype"], row["bytes"]] for row in run["state"]],
        "ended": [run[key] for key in ("schema", "protocol", "status", "updates", "notices")],
        "record_keys": list(records[-1]),
        "records": values,
        "records_sha256": digest_text(json.dumps(values)),
    }


def measure_state(folder: Path, updates: int, last: bool) -> dict[str, Any]:
    """Return hashes of a checkpoint's content, and of the last one also sampled entries."""
    path = folder / "checkpoint.pt"
    measured = {"updates": updates, "keys": name_keys(read_saved(path)), **hash_saved(path)}
    if last:
        tensors = name_states(list_leaves(path))
        measured["samples"] = {name: sample(value) for name, value in tensors.items()}
    return measured


def measure_models(folder: Path) -> dict[str, Any]:
    """Return the hashes of each kept model's content."""
    return {
        path.name: {"keys": name_keys(read_saved(path)), **hash_saved(path)}
        for path in sorted(folder.glob("model_*.pt"))
    }


def hash_saved(path: Path) -> dict[str, str]:
    """Return hashes of a saved file: of where something stands, of the tensors, of the plain values."""
    names, tensors, plain = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    for name, value in sorted(list_leaves(path).items()):
        names.update(name.encode() + b"\0")
        if isinstance(value, Tensor):
            shape = f"{name} {value.dtype} {tuple(value.shape)}\0"
            tensors.update(shape.encode() + as_bytes(value))
        else:
            plain.update(f"{name} {value!r}\0".encode())
    return {
        "names_sha256": names.hexdigest()[:32],
        "tensors_sha256": tensors.hexdigest()[:32],
        "plain_sha256": plain.hexdigest()[:32],
    }


def as_bytes(value: Tensor) -> bytes:
    """Return a tensor's bits."""
    return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def sample(value: Tensor) -> list[Any]:
    """Return shape and a few entries, spread over the tensor, with seven digits."""
    flat = value.reshape(-1).double()
    at = sorted({(2 * i + 1) * len(flat) // (2 * SAMPLES) for i in range(SAMPLES)}) if len(flat) else []
    return [list(value.shape), [float(f"{float(flat[i]):.7g}") for i in at]]


def digest_text(text: str) -> str:
    """Return the first half of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def check_phases(case: Case, measured: dict[str, Any]) -> None:
    """Demand that every phase of the method was entered."""
    warnings = measured["ended"][-1]
    if case.steps == 12 and case.features is not None:
        assert not [text for text in warnings if "would begin" in text], warnings
    if case.reached is not None:
        logged = measured["records"][-1]["logged"]
        assert case.reached(logged), f"{case.name} has not entered its last phase: {logged}"
