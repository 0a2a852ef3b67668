"""The holistic and the noisy algorithms learn on small data, in every phase of a shortened schedule."""

from typing import Any

import numpy as np
import pytest

from plench.algorithms import find_algorithm
from plench.contract.under_test import AlgorithmUnderTest, Session
from plench.data import draw_candidates, load_dataset
from plench.training.evaluate import predict_logits

SMALL = {"feat_dim": 64, "moco_queue": 512}
# Half of the updates or more lie in the last phase.
SCHEDULES: dict[str, dict[str, Any]] = {
    "VALEN": {"warm_up": 100, "lr": 0.01},
    "PiCO": {"prot_start": 50, **SMALL},
    "ABLE": {"feat_dim": 64},
    "CRDPLL": {},
    "PaPi": {"feat_dim": 64},
    "GFWS": {},
    "RECORDS": {},
    "CroSel": {"warm_up": 4},
    "DIRK": {"prot_start": 50, **SMALL},
    "FREDIS": {"update_interval": 5},
    "ALIM": {"prot_start": 50, "start_epoch": 5, **SMALL},
    "PiCO_plus": {"prot_start": 50, "knn_start": 100, "pure_ratio": 0.8, **SMALL},
}
UPDATES = 200


def accuracy_of(session: Session) -> float:
    run = session.run
    logits = predict_logits(run.algorithm, run.data.inputs, run.data.test.stored)
    assert run.data.test.labels is not None
    return float(np.mean(logits.argmax(1) == run.data.test.labels))


@pytest.mark.parametrize("name", SCHEDULES)
def test_learns_on_digits(name: str) -> None:
    dataset = load_dataset("Digits_FPS")
    dataset = draw_candidates(dataset, dataset.card.candidates, 0)
    session = AlgorithmUnderTest(find_algorithm(name)).start(dataset, batch_size=64, hparams=SCHEDULES[name])
    session.update(UPDATES)
    assert max(session.algorithm.phases().values(), default=0) <= UPDATES / 2 + 20
    assert accuracy_of(session) > 0.8
