"""Classical methods reach the accuracies that their specification gives, at its tolerances."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest

import plench
from plench.algorithms import find_algorithm
from plench.data import load_dataset
from plench.settings import seed_hash
from plench.training.environment import compute_threads
from tests.conftest import ROOT
from tests.probe import build_fitted, fit, predict

EXPECTED: dict[str, Any] = json.loads(
    (ROOT / "tests" / "algorithms" / "classical_expected.json").read_text(encoding="utf-8")
)
DATASETS = ("Lost", "MSRCv2", "Birdsong")
QUICK = [
    *((name, data) for name in ("CLPL", "PL_KNN", "PL_AKNN", "IPAL", "PL_ECOC") for data in DATASETS),
    ("LR_EM", "Lost"),
]
LONG = [(name, data) for name in EXPECTED["means"] for data in DATASETS if (name, data) not in QUICK]


def check(name: str, data: str, folder: Path, data_dir: Path) -> None:
    """Compare the mean test accuracy after the last round with what is expected, rounded to a tenth."""
    found = []
    for trial in range(5):
        settings: dict[str, Any] = {"trial_seed": trial, "seed": seed_hash(data, name, 0, trial)}
        outcome = plench.train(name, data, folder, data_dir=data_dir, progress=False, **settings)
        last = (outcome.folder / "results.jsonl").read_text(encoding="utf-8").splitlines()[-1]
        found.append(100 * json.loads(last)["test_acc"])
    allowed = EXPECTED["tolerances"][name] + 0.05
    assert mean(found) == pytest.approx(EXPECTED["means"][name][data], abs=allowed)


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
    dataset = load_dataset(data, real_data / "crowd")
    assert isinstance(dataset.features, np.ndarray)
    assert dataset.test is not None
    mean_of, spread = dataset.features.mean(0), dataset.features.std(0) + 1e-6
    entry = find_algorithm(name)
    answers = dataset.answers if entry.card.answers else None
    features = (dataset.features - mean_of) / spread
    with compute_threads(1):
        fitted = fit(
            build_fitted(entry.cls, features, dataset.candidates, seed_hash(data, name, 0, 0), answers)
        )
        logits = predict(fitted, (dataset.test.features - mean_of) / spread)
    found = float(100 * np.mean(logits.argmax(1) == dataset.test.labels))
    tolerance = (
        CROWD["tolerances_of_random_ones"][data] if name in RANDOM else EXPECTED["tolerances"].get(name, 1)
    )
    assert found == pytest.approx(CROWD["means"][name][data], abs=tolerance + 0.05)
