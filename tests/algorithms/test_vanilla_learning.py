"""Every vanilla algorithm learns on small data; POP changes its candidate sets, GA logs its ascent steps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plench.algorithms import algorithms, find_algorithm
from plench.algorithms.pop import POP
from plench.data import Dataset, load_dataset
from plench.runs.folder import RunStore
from plench.training.callbacks import NoCallback
from plench.training.config import configure_run
from plench.training.evaluate import predict_logits
from plench.training.run import TrainingRun

VANILLA = [name for name, entry in algorithms().items() if entry.card.family.startswith("vanilla")]
# The specification expects little of these two on skewed data, and less of GA than chance.
WEAK_ON_REAL_DATA = ("NN", "GA")
# SCARCE's default prior is impossible where classes are skewed; its other one is not.
ON_REAL_DATA = {"SCARCE": {"prior": "candidates"}}


def train(name: str, dataset: Dataset, steps: int, tmp_path: Path, **hparams: Any) -> TrainingRun:
    """Make updates with default hyperparameters, through the run's own algorithm and batches."""
    entry = find_algorithm(name)
    config = configure_run(entry, dataset.card, steps=steps, hparams=hparams, device="cpu")
    run = TrainingRun(config, dataset, entry, RunStore(tmp_path), NoCallback(), None)
    run.build()
    with run.streams.ambient("algorithm"):
        for _ in range(steps):
            run.totals.add(run.algorithm.update(run.training_set.next_batch()))
    return run


def accuracy_of(run: TrainingRun) -> float:
    """Return the accuracy on the test part."""
    logits = predict_logits(run.algorithm, run.data.inputs, run.data.test.stored)
    return float(np.mean(logits.argmax(1) == run.data.test.labels))


def majority_share(run: TrainingRun) -> float:
    """Return the accuracy of always naming the most frequent class of the test part."""
    assert run.data.test.labels is not None
    return float(np.bincount(run.data.test.labels).max() / len(run.data.test.labels))


@pytest.mark.parametrize("name", VANILLA)
def test_learns_on_digits(name: str, tmp_path: Path) -> None:
    run = train(name, load_dataset("Digits_FPS"), 250, tmp_path)
    least = 0.3 if name in WEAK_ON_REAL_DATA else 0.8
    assert accuracy_of(run) > max(least, 2 * majority_share(run))


@pytest.mark.parametrize("dataset", ["Lost", "MSRCv2", "Birdsong"])
@pytest.mark.parametrize("name", [name for name in VANILLA if name not in WEAK_ON_REAL_DATA])
def test_learns_on_real_data(name: str, dataset: str, tmp_path: Path, real_data: Path) -> None:
    run = train(name, load_dataset(dataset, real_data), 200, tmp_path, **ON_REAL_DATA.get(name, {}))
    assert accuracy_of(run) > 1.5 * majority_share(run)


def test_pop_removes_candidates_for_good(tmp_path: Path) -> None:
    run = train("POP", load_dataset("Digits_FPS"), 250, tmp_path, warm_up=2, rollWindow=2)
    algorithm = run.algorithm
    assert isinstance(algorithm, POP)
    given = torch.from_numpy(run.data.train_candidates)
    removed = given & ~algorithm.purified
    assert int(algorithm.removed) == int(removed.sum()) > 100
    assert not (algorithm.purified & ~given).any()
    assert algorithm.purified.any(1).all()
    assert not algorithm.confidence[removed].any()
    torch.testing.assert_close(algorithm.confidence.sum(1), torch.ones(len(given)))


def test_pop_announces_its_first_purification(tmp_path: Path) -> None:
    dataset = load_dataset("Digits_FPS")
    run = train("POP", dataset, 1, tmp_path, warm_up=2, rollWindow=3)
    first = run.algorithm.phases()["purification"]
    before = train("POP", dataset, first - 1, tmp_path, warm_up=2, rollWindow=3, theta=0.9)
    after = train("POP", dataset, first, tmp_path, warm_up=2, rollWindow=3, theta=0.9)
    assert isinstance(before.algorithm, POP)
    assert isinstance(after.algorithm, POP)
    assert int(before.algorithm.removed) == 0
    assert int(after.algorithm.removed) > 0


def test_ga_logs_the_share_of_ascent_steps(tmp_path: Path, real_data: Path) -> None:
    run = train("GA", load_dataset("MSRCv2", real_data), 100, tmp_path)
    assert 0.5 < run.totals.means()["ascent"] <= 1
