"""Algorithms that misbehave or count, for tests of sweeps. They are given to sweeps by path."""

import os
import time

import torch

from plench.algorithms import Batch, LossAlgorithm, register
from plench.algorithms.classical.lr_em import LR_EM
from plench.hparams import Hyperparameter


class Plain(LossAlgorithm):
    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        inside = torch.where(batch.candidates > 0, logits.log_softmax(-1), -torch.inf)
        return -inside.logsumexp(-1).mean()


class Counting(Plain):
    """Adds one byte to the file that PLENCH_TEST_COUNT names for every update; slow enough to be killed."""

    def update(self, minibatches: Batch):
        with open(os.environ["PLENCH_TEST_COUNT"], "ab") as file:
            file.write(b".")
        time.sleep(0.01)
        return super().update(minibatches)


@register(
    "CountingRounds",
    hyperparameters=(
        Hyperparameter("C", 1.0, "inverse of the penalty"),
        Hyperparameter("rounds", 5, "rounds", at_least=1),
    ),
)
class CountingRounds(LR_EM):
    """Adds one byte to the file that PLENCH_TEST_ROUNDS names for every round, which takes 12 seconds."""

    def fit_round(self, number: int) -> float:
        with open(os.environ["PLENCH_TEST_ROUNDS"], "ab") as file:
            file.write(b".")
        time.sleep(12)
        return super().fit_round(number)


class Raising(Plain):
    def revise(self, logits: torch.Tensor, batch: Batch) -> None:
        raise ZeroDivisionError("nothing can be divided by zero")


class Leaving(Plain):
    def revise(self, logits: torch.Tensor, batch: Batch) -> None:
        raise SystemExit("the algorithm wants to leave")


class Hungry(Plain):
    """Takes 100 MB more with every update."""

    def setup(self, candidates: torch.Tensor) -> None:
        self.eaten: list[torch.Tensor] = []

    def revise(self, logits: torch.Tensor, batch: Batch) -> None:
        self.eaten.append(torch.empty(25_000_000))


class Dying(Plain):
    """Kills its own process, as the system's out-of-memory killer would."""

    def revise(self, logits: torch.Tensor, batch: Batch) -> None:
        os.kill(os.getpid(), 9)


class Endless(Plain):
    def revise(self, logits: torch.Tensor, batch: Batch) -> None:
        while True:
            time.sleep(0.05)


class TurningNaN(Plain):
    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        self.made = getattr(self, "made", 0) + 1
        return super().loss(logits, batch) * (float("nan") if self.made > 30 else 1.0)
