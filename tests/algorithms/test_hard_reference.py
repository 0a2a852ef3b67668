"""Each holistic and noisy algorithm beside a plain transcription of its specification, through all phases."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from plench.algorithms.base import TrainingInputs
from plench.batch import Batch
from tests.algorithms.reference import Able, Crdpll, Dirk, Pico, Reference, Valen
from tests.algorithms.reference_noisy import Alim, Fredis, PicoPlus
from tests.algorithms.sessions import start

REFERENCES: dict[str, type[Reference]] = {
    "VALEN": Valen,
    "PiCO": Pico,
    "ABLE": Able,
    "CRDPLL": Crdpll,
    "DIRK": Dirk,
    "FREDIS": Fredis,
    "ALIM": Alim,
    "PiCO_plus": PicoPlus,
}
UPDATES = 16
# Epochs of 64/15 updates: boundaries at 5, 9 and 13. Queues that the batches of 15 do not divide, or outgrow.
RUNS: list[tuple[str, dict[str, Any]]] = [
    ("VALEN", {"warm_up": 5, "correct": 0.7, "gamma": 2.0}),
    ("VALEN", {"warm_up": 0, "knn": 5, "alpha": 3.0}),
    ("PiCO", {"prot_start": 5, "moco_queue": 37, "proto_m": 0.9}),
    ("PiCO", {"prot_start": 0, "moco_queue": 11, "loss_weight": 1.0}),
    ("ABLE", {"temperature": 0.1}),
    ("ABLE", {"loss_weight": 2.0}),
    ("CRDPLL", {}),
    ("DIRK", {"prot_start": 5, "moco_queue": 37, "feat_temperature": 0.05}),
    ("DIRK", {"prot_start": 0, "moco_queue": 11, "weight": 0.3, "momentum": 0.5}),
    ("FREDIS", {"update_interval": 1, "theta": 0.05, "delta": 0.5, "inc": 0.05, "dec": 0.02}),
    ("FREDIS", {"update_interval": 1, "theta": 0.3, "dec": 0.05, "change_size": 7, "lam": 1}),
    ("ALIM", {"prot_start": 3, "start_epoch": 2, "noise_rate": 0.3, "moco_queue": 37}),
    ("ALIM", {"prot_start": 0, "start_epoch": 0, "normalisation": "scale", "moco_queue": 11}),
    ("PiCO_plus", {"prot_start": 2, "knn_start": 7, "pure_ratio": 0.6, "moco_queue": 37}),
    ("PiCO_plus", {"prot_start": 6, "knn_start": 2, "pure_ratio": 0.3, "chosen_neighbors": 8}),
]


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def with_own_views(batch: Batch) -> Batch:
    """Give every view noise of its own, so that none can stand in for another."""

    def noisy(x: Tensor, scale: float) -> Tensor:
        return x.double() + scale * torch.randn(x.shape)

    views = {name: noisy(batch.weak, 0.3) for name in ("weak", "strong", "distill")}
    second = batch.second
    if second is not None:
        second = Batch(second.index, second.candidates, {"weak": noisy(second.weak, 0.3)})
    return Batch(batch.index, batch.candidates, views, second)


class DoubleInputs:
    """The training inputs in double precision, for VALEN's graph."""

    def __init__(self, inputs: TrainingInputs) -> None:
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def original(self, start: int, stop: int) -> Tensor:
        return self.inputs.original(start, stop).double()


@pytest.mark.parametrize(("name", "hparams"), RUNS, ids=lambda value: value if isinstance(value, str) else "")
def test_agrees_with_a_plain_transcription(name: str, hparams: dict[str, Any]) -> None:
    """Losses and state agree to rounding in every update, given the same batches and random numbers."""
    session = start(name, batch_size=15, **hparams)
    algorithm: Any = session.algorithm.double()
    algorithm.attach_inputs(DoubleInputs(session.training_set))
    reference = REFERENCES[name](algorithm, session.training_set.candidates)
    with torch.random.fork_rng():
        for update in range(UPDATES):
            torch.manual_seed(update)
            batch = with_own_views(session.training_set.next_batch())
            torch.manual_seed(1000 + update)
            loss = float(algorithm.update(batch)["loss"])
            torch.manual_seed(1000 + update)
            assert loss == pytest.approx(reference.update(batch), rel=1e-9), f"update {update}"
            for place, expected in reference.state().items():
                found = find(algorithm, place)
                torch.testing.assert_close(
                    found, expected, rtol=1e-8, atol=1e-10, msg=f"{place}, update {update}"
                )
    assert max(algorithm.phases().values(), default=0) < UPDATES - 3


def find(algorithm: Any, place: str) -> Tensor:
    """Return the state at a dotted place of an algorithm."""
    value: Any = algorithm
    for part in place.split("."):
        value = getattr(value, part)
    return torch.as_tensor(value)
