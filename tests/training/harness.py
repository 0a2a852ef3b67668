"""A small dataset, runs on it, crashes in the middle of them, and what a run's folder holds."""

import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from plench.algorithms import AlgorithmEntry, find_algorithm
from plench.callbacks import Callback
from plench.contract.training import find_difference
from plench.data import Dataset, load_dataset
from plench.training import RunConfig, RunOutcome, configure_run, run_training
from plench.training.checkpoint import parse, saved_values

FIXTURES = Path(__file__).parent.parent / "fixtures"
LISTING = f"{FIXTURES / 'cavl_listing.py'}:CAVL"
COUNTED = f"{FIXTURES / 'counted.py'}:Counted"
MISBEHAVED = FIXTURES / "misbehaved.py"

STEPS = 60
# Native, with weights revised by a second pass, with an optimiser that is replaced (in step 20) and noise in
# every step, and third-party: one of each kind is resumed.
RESUMED = ("PRODEN", "LWS", "VIPLL", LISTING)
# Keys of a record that hold measured times; all else must repeat exactly.
MEASURED = ("step_time", "mem_gb")


def short_name(spec: str) -> str:
    """Return the name of a test's parameter: the algorithm without the path of its file."""
    return spec.rpartition("/")[2]


def load_digits(without_labels: bool = False) -> Dataset:
    """Return the digits; without labels the candidates are drawn first."""
    dataset = load_dataset("Digits_FPS")
    if not without_labels:
        return dataset
    candidates = dataset.candidates.copy()
    candidates[:, 0] = True
    card = replace(dataset.card, candidates=replace(dataset.card.candidates, pl_type="real", fps_rate=None))
    return Dataset(dataset.features, candidates, None, card)


def describe(
    spec: str | AlgorithmEntry = "PRODEN", dataset: Dataset | None = None, **changes: Any
) -> RunConfig:
    """Return the configuration of a short run."""
    entry = find_algorithm(spec) if isinstance(spec, str) else spec
    card = (dataset or load_digits()).card
    return configure_run(entry, card, **{"steps": STEPS, "checkpoint_freq": 10, **changes})


def run(
    folder: Path,
    spec: str | AlgorithmEntry = "PRODEN",
    *,
    callback: Callback | None = None,
    dataset: Dataset | None = None,
    **changes: Any,
) -> RunOutcome:
    """Train a short run, with a checkpoint every 7 updates by default."""
    dataset = dataset or load_digits()
    entry = find_algorithm(spec) if isinstance(spec, str) else spec
    config = describe(entry, dataset, **{"device": "cpu", "save_steps": 7, **changes})
    return run_training(config, dataset, entry, folder, callback)


class Crash(BaseException):
    """What ends a process without a chance to tidy up; no Exception, so that nothing handles it."""


class AtStep(Callback):
    """Does something when the record of a step has been written."""

    def __init__(self, step: int, action: Callable[[], object]) -> None:
        self.step = step
        self.action = action

    def evaluated(self, record: Mapping[str, Any]) -> None:
        """Do it."""
        if record["step"] == self.step:
            self.action()


class CrashAt(AtStep):
    """Crashes when the record of a step has been written."""

    def __init__(self, step: int) -> None:
        super().__init__(step, self.crash)

    def crash(self) -> None:
        """Crash."""
        raise Crash


def stop_at(step: int, number: signal.Signals = signal.SIGTERM) -> AtStep:
    """Return a callback that sends this process a signal when the record of a step has been written."""
    return AtStep(step, lambda: signal.raise_signal(number))


class Started(Callback):
    """Remembers after how many updates a run started."""

    updates = -1

    def started(self, config: RunConfig, updates: int) -> None:
        """Remember."""
        self.updates = updates


def only_folder(output: Path) -> Path:
    """Return the one run's folder below an output folder."""
    (folder,) = output.iterdir()
    return folder


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Return a run's records without measured times."""
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [{key: value for key, value in record.items() if key not in MEASURED} for record in records]


def read_description(folder: Path) -> dict[str, Any]:
    """Return run.json."""
    content: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return content


def read_model(folder: Path, name: str = "last") -> dict[str, Any]:
    """Return what a saved model holds, by path."""
    payload = parse((folder / f"model_{name}.pt").read_bytes())
    return dict(saved_values(payload["algorithm"], "model"))


def assert_same_run(first: Path, second: Path) -> None:
    """Demand equal records, times aside, and equal weights in every kept model."""
    assert read_records(first) == read_records(second)
    models = sorted(path.name for path in first.glob("model_*.pt"))
    assert models == sorted(path.name for path in second.glob("model_*.pt"))
    assert "model_last.pt" in models
    for name in models:
        kept = name.removeprefix("model_").removesuffix(".pt")
        values = read_model(first, kept)
        assert any(isinstance(value, Tensor) and value.is_floating_point() for value in values.values())
        assert find_difference(values, read_model(second, kept)) is None, name
