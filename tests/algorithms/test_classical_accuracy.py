"""Classical methods reach the accuracies that their specification gives, at its tolerances."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest

from plench.algorithms import find_algorithm
from plench.data import load_dataset
from plench.runs.folder import RunStore
from plench.seeds import seed_hash
from plench.training import configure_run
from plench.training.callbacks import NoCallback
from plench.training.environment import compute_threads
from plench.training.evaluate import predict_logits
from plench.training.run import TrainingRun
from tests.algorithms.fitting import build, fit, predict
from tests.conftest import ROOT

EXPECTED: dict[str, Any] = json.loads(
    (ROOT / "tests" / "algorithms" / "classical_expected.json").read_text(encoding="utf-8")
)
DATASETS = ("Lost", "MSRCv2", "Birdsong")
QUICK = [
    *((name, data) for name in ("CLPL", "PL_KNN", "IPAL", "PL_ECOC") for data in DATASETS),
    ("LR_EM", "Lost"),
]
LONG = [(name, data) for name in EXPECTED["means"] for data in DATASETS if (name, data) not in QUICK]


def fit_and_test(name: str, data: str, trial: int, folder: Path, data_dir: Path) -> float:
    """Return the test accuracy in percent of the last round, with default hyperparameters."""
    entry, dataset = find_algorithm(name), load_dataset(data, data_dir)
    seed = seed_hash(data, name, 0, trial)
    config = configure_run(entry, dataset.card, trial_seed=trial, seed=seed, device="cpu")
    with compute_threads(1):
        run = TrainingRun(config, dataset, entry, RunStore(folder), NoCallback(), None)
        run.build()
        for _ in range(config.steps):
            run.make_update()
        logits = predict_logits(run.algorithm, run.data.inputs, run.data.test.stored)
    assert run.data.test.labels is not None
    return float(100 * np.mean(logits.argmax(1) == run.data.test.labels))


def check(name: str, data: str, folder: Path, data_dir: Path) -> None:
    found = mean(fit_and_test(name, data, trial, folder, data_dir) for trial in range(5))
    # What is expected is rounded to a tenth.
    assert found == pytest.approx(EXPECTED["means"][name][data], abs=EXPECTED["tolerances"][name] + 0.05)


@pytest.mark.parametrize(("name", "data"), QUICK)
def test_accuracy(name: str, data: str, tmp_path: Path, real_data: Path) -> None:
    check(name, data, tmp_path, real_data)


@pytest.mark.real
@pytest.mark.parametrize(("name", "data"), LONG)
def test_accuracy_of_long_fits(name: str, data: str, tmp_path: Path, real_data: Path) -> None:
    check(name, data, tmp_path, real_data)


CROWD = EXPECTED["crowd"]
RANDOM = ("PL_ECOC", "ET_AVG", "ET_EM")


@pytest.mark.parametrize("name", CROWD["means"])
@pytest.mark.parametrize("data", CROWD["tolerances_of_random_ones"])
def test_accuracy_on_all_items_of_a_crowd(name: str, data: str, real_data: Path) -> None:
    if not (real_data / "crowd").is_dir():
        pytest.skip("real data has no folder crowd/")
    dataset = load_dataset(data, real_data / "crowd")
    assert isinstance(dataset.features, np.ndarray)
    assert dataset.test is not None
    mean_of, spread = dataset.features.mean(0), dataset.features.std(0) + 1e-6
    entry = find_algorithm(name)
    answers = dataset.answers if entry.card.answers else None
    features = (dataset.features - mean_of) / spread
    with compute_threads(1):
        fitted = fit(build(entry.cls, features, dataset.candidates, seed_hash(data, name, 0, 0), answers))
        logits = predict(fitted, (dataset.test.features - mean_of) / spread)
    found = float(100 * np.mean(logits.argmax(1) == dataset.test.labels))
    tolerance = (
        CROWD["tolerances_of_random_ones"][data] if name in RANDOM else EXPECTED["tolerances"].get(name, 1)
    )
    assert found == pytest.approx(CROWD["means"][name][data], abs=tolerance + 0.05)
