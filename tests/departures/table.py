"""The table that the switches enter, and the rows of the pages without a switch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plench.algorithms import Algorithm, Batch


class Departure(NamedTuple):
    """A switch: the page, words of the row, our class and the other side's."""

    page: str
    what: str
    ours: type[Algorithm]
    theirs: type[Algorithm]


DEPARTURES: list[Departure] = []


def departure(page: str, what: str) -> Callable[[type[Algorithm]], type[Algorithm]]:
    """Enter a class as what the row does; it gets the card of the sound algorithm, under its own name."""

    def enter(cls: type[Algorithm]) -> type[Algorithm]:
        sound = next(base for base in cls.__mro__ if base.__module__.startswith("plench."))
        assert issubclass(sound, Algorithm)
        cls.card = dataclasses.replace(sound.card, name=cls.__name__, aliases=())
        DEPARTURES.append(Departure(page, what, sound, cls))
        return cls

    return enter


class SecondPass:
    """State is revised from passes after the step."""

    def revise(self: Any, outputs: Any, batch: Batch) -> None:
        """Repeat the passes."""
        with torch.no_grad():
            super().revise(self.passes(batch), batch)  # type: ignore[misc]


@contextmanager
def start_of_epoch(algorithm: Any) -> Iterator[None]:
    """Let the step be the first of its epoch."""
    step, per_epoch = algorithm.steps_done, max(1, algorithm.num_data // algorithm.hparams["batch_size"])
    algorithm.steps_done = step // per_epoch * per_epoch
    yield
    algorithm.steps_done = step


class EpochLosses:
    """Weights of losses move at the start of an epoch."""

    def losses(self: Any, outputs: Any, batch: Batch) -> Mapping[str, Tensor]:
        """Let the step be the first of its epoch."""
        with start_of_epoch(self):
            return super().losses(outputs, batch)  # type: ignore[misc]


# Rows of the pages that change no numbers, by words of theirs, and why.
OTHER: dict[str, dict[str, str]] = {
    "VIPLL": {
        "inputs scaled to [0, 1] for everything": "protocol",
        "300 hidden units with batch norm": "protocol",
        "AdamW with a decay of 0.01": "protocol",
        "both weights by the name of the dataset": "searched",
        "the prior by a general solver": "the same number",
        "a random choice among tied predictions": "ties",
        "the generator and the weights of labels are not saved": "checkpoints",
    },
    "CEL": {
        "a transformer layer on the spatial map": "protocol",
        "the strong view of a table is the input with noise": "protocol",
    },
    "CroSel": {
        "draw a full batch from the selected examples": "data",
        "stop with an error": "a crash",
        "record through the shuffled loader": "order of batches",
        "an epoch of one network, then of the other": "order of batches",
        "true labels enter training, for a log": "no number of training",
        "SGD; mixing only if asked for": "protocol",
    },
    "GFWS": {"candidates in float64": "cost", "clip the gradient's norm": "protocol"},
    "PaPi": {
        "a permutation of the nominal batch size": "short batches",
        "classifier of the mixed passes": "cost",
        "SGD with a decaying rate": "protocol",
    },
    "RECORDS": {
        "a missing class header": "not offered",
        "keep feature mean and confidences out of checkpoints": "checkpoints",
        "a mixup variant": "protocol",
    },
    "SCARCE": {
        "hand their shares over and ignore them": "the default is the same",
        "CIFAR without augmentation": "protocol",
    },
    "ABLE": {"takes b from the hyperparameters": "short batches"},
    "ABS_MAE": {"builds the B×K×K tensor": "cost"},
    "ALIM": {"the second batch is the next one": "data", "schedules in epochs": "protocol"},
    "CAVL": {"keeps the targets in float64": "rounding"},
    "DIRK": {
        "student sees distill before strong": "batch norm's averages",
        "`prot_start` in epochs": "protocol",
    },
    "FREDIS": {
        "start from a pre-trained network": "protocol",
        "search for δ without end": "it does not end",
        "mix an average of parameters in": "the identity in their code",
    },
    "Forward": {"a biased transition matrix": "needs labelled data"},
    "IDGP": {"f warms up first, then g": "order of batches"},
    "MCL_GCE": {"evaluates the loss K times": "cost"},
    "MCL_MSE": {"evaluates the loss K times": "cost"},
    "NN": {
        "the prior is too short": "a crash",
        "loops over classes": "cost",
        "splits the same total by complementary class": "another algorithm",
    },
    "POP": {
        "changes the stored candidates in place": "devices",
        "an epoch has n // B = 0 updates": "a crash",
        "three views (one plain, two strong)": "protocol",
    },
    "PRODEN": {"renormalises all N rows": "rounding"},
    "PiCO": {"demands a queue that the batch size divides": "a crash", "moves to the GPU by hand": "devices"},
    "PiCO_plus": {"schedules in epochs": "protocol"},
    "VALEN": {
        "collects features during an epoch": "order of batches",
        "starts the graph only if": "a crash",
        "dense N×N matrix": "memory",
        "two passes of the featurizer in the warm-up": "batch norm's averages",
    },
}
