"""Every algorithm learns on small data; POP changes its candidate sets, GA logs its ascent steps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plench.algorithms import algorithms, find_algorithm
from plench.contract import AlgorithmUnderTest
from plench.contract.under_test import Session
from plench.data import draw_candidates, load_dataset
from plench.training.run import predict_logits

SMALL = {"feat_dim": 64, "moco_queue": 512}
# Half of the updates or more lie in the last phase.
SCHEDULES: dict[str, dict[str, Any]] = {
    "VALEN": {"warm_up": 100, "lr": 0.01},
    "PiCO": {"prot_start": 50, **SMALL},
    "ABLE": {"feat_dim": 64},
    "PaPi": {"feat_dim": 64},
    "CroSel": {"warm_up": 4},
    "DIRK": {"prot_start": 50, **SMALL},
    "FREDIS": {"update_interval": 5},
    "ALIM": {"prot_start": 50, "start_epoch": 5, **SMALL},
    "PiCO_plus": {"prot_start": 50, "knn_start": 100, "pure_ratio": 0.8, **SMALL},
    "POP": {"warm_up": 2, "rollWindow": 2},
    "IDGP": {"warm_up_epoch": 4},
}
UPDATES = 200
ON_BATCHES = [name for name, entry in algorithms().items() if entry.card.shared]
# The specification expects little of these two on skewed data, and less of GA than chance.
WEAK_ON_REAL_DATA = ("NN", "GA")


def train(
    name: str, dataset: str, hparams: dict[str, Any], updates: int = UPDATES, data_dir: Path | None = None
) -> Session:
    data = load_dataset(dataset, data_dir)
    data = draw_candidates(data, data.card.candidates, 0)
    session = AlgorithmUnderTest(find_algorithm(name)).start(data, batch_size=64, hparams=hparams)
    session.update(updates)
    return session


def measure(session: Session) -> tuple[float, float]:
    """Return the accuracy on the test part, and that of always naming its most frequent class."""
    data = session.run.data
    logits = predict_logits(session.algorithm, data.inputs, data.test.stored)
    assert data.test.labels is not None
    frequent = np.bincount(data.test.labels).max() / len(data.test.labels)
    return float(np.mean(logits.argmax(1) == data.test.labels)), float(frequent)


@pytest.mark.parametrize("name", ON_BATCHES)
def test_learns_on_digits(name: str) -> None:
    session = train(name, "Digits_FPS", SCHEDULES.get(name, {}))
    assert max(session.algorithm.phases().values(), default=0) <= UPDATES / 2 + 20
    accuracy, frequent = measure(session)
    assert accuracy > max(0.3 if name in WEAK_ON_REAL_DATA else 0.8, 2 * frequent)


def test_pop_announces_its_first_purification() -> None:
    quick = {"warm_up": 2, "rollWindow": 3, "theta": 0.9}
    first = train("POP", "Digits_FPS", quick, 1).algorithm.phases()["purification"]
    before, after = (train("POP", "Digits_FPS", quick, updates).algorithm for updates in (first - 1, first))
    assert int(before.removed) == 0
    assert int(after.removed) > 0
