"""The contract of methods that are fitted in a few rounds instead of trained in many steps.

To the training loop a round is an update. Update 0 is the preparation: it reads the inputs, and `predict`
gives every input the same logits, those of the candidate prior. Update r = 1 … R is round r.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from plench.algorithms.base import Algorithm, Batch, TrainingInputs
from plench.algorithms.classical.parts import (
    Bools,
    Floats,
    LinearModel,
    mean_surprise,
    normalise_rows,
    predict_by_folds,
    share_equally,
    sharpen,
    take_logs,
)
from plench.errors import UsageError
from plench.hparams import Choice, Hyperparameter
from plench.settings import seed_hash

LEAST = 1e-3
SHARPENING = Hyperparameter(
    "sharpening", 1.0, "power of the probabilities in the revision", Choice(1.0, 1.5, 2.0, 4.0), above=0
)
ROUNDS = Hyperparameter("rounds", 4, "rounds of fitting and revising", at_least=1)
FOLDS = Hyperparameter("folds", 3, "folds that out-of-sample probabilities come from", at_least=2)
FLOOR = Hyperparameter("floor", LEAST, "added to probabilities before they are compared", above=0)
# What the revision of the targets is ruled by; `FOLDS` aside, which a model with its own hold-out lacks.
REVISION = (SHARPENING, ROUNDS, FLOOR)


class UnfitError(ValueError):
    """Data that a method cannot be fitted on, though nothing is wrong with them; the text says why."""


class FittedAlgorithm(Algorithm):
    """A method fitted in `rounds` rounds (a hyperparameter; 1 without it) on tabular data, in float64.

    A subclass says what a round does (`fit_round`) and how its outcome scores inputs (`score`). It finds the
    inputs in `features` (N, D), the candidates in `candidates` (N, K), soft targets in `targets` (N, K;
    equal over the candidates at first) and the run's seed in `seed`; it leaves what `score` needs in
    `fitted`, a dictionary of arrays. A round may depend on nothing else: draws come from `seed_for`, never
    from a running stream, so that a run that is cut between two rounds ends as an undisturbed one.
    """

    shared: ClassVar[bool] = False
    uses_weights: ClassVar[bool] = False
    transient: ClassVar[tuple[str, ...]] = ("inputs", "read_features", "candidates", "weights")

    targets: Tensor
    prior: Tensor

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        if len(input_shape) != 2:
            raise UsageError(
                f"{type(self).__name__} is fitted on tabular data, features (n, D), "
                f"not on images of shape {tuple(input_shape[1:])}"
            )
        self.candidates: Bools = np.asarray(train_givenY) != 0
        self.weights: Floats | None = None
        self.inputs: TrainingInputs | None = None
        self.read_features: Floats | None = None
        self.seed = 0
        self.rounds_done = -1
        self.last_loss = 0.0
        self.fitted: dict[str, np.ndarray] = {}
        self.per_example("targets", torch.from_numpy(share_equally(self.candidates)))
        self.register_buffer("prior", torch.from_numpy(take_logs(share_equally(self.candidates).mean(0))))

    def _apply(self, fn: Any, recurse: bool = True) -> FittedAlgorithm:
        """Stay on the CPU in float64, wherever the run's tensors are: scipy and scikit-learn are there."""
        return self

    @property
    def rounds(self) -> int:
        """R, the number of rounds."""
        return int(self.hparams.get("rounds", 1))

    @property
    def features(self) -> Floats:
        """The training inputs (N, D) in order, read once."""
        if self.read_features is None:
            assert self.inputs is not None, "attach_inputs comes before the first update"
            rows = self.inputs.original(0, len(self.inputs))
            self.read_features = rows.detach().cpu().double().numpy()
        return self.read_features

    @property
    def prior_weights(self) -> Floats | Bools:
        """What the E-step multiplies probabilities with: shares of votes, or the candidate mask."""
        return self.candidates if self.weights is None else self.weights

    def attach_inputs(self, inputs: TrainingInputs) -> None:
        """Receive access to the training inputs."""
        self.inputs = inputs

    def weigh_candidates(self, weights: Tensor) -> None:
        """Receive prior weights (N, K) of the candidates, right after `__init__`, where the data has any.

        They are the first targets, and the E-step multiplies by them; a method without one ignores them.
        """
        if self.uses_weights:
            self.weights = normalise_rows(np.where(self.candidates, weights.double().numpy(), 0.0))
            self.set_targets(self.weights)

    def seed_for(self, *purpose: str | int) -> int:
        """Return the seed of a draw, from the run's seed and what the draw is for."""
        return seed_hash(self.seed, *purpose)

    def update(self, minibatches: Batch | None = None) -> Mapping[str, Tensor | float]:
        """Prepare at the first call, make a round at each later one; the batch is not looked at."""
        if self.rounds_done >= self.rounds:
            raise ValueError(f"{type(self).__name__} was asked for a round after the last of {self.rounds}")
        number = self.rounds_done + 1
        with limit_threads():
            self.last_loss = self.fit_round(number) if number else self.prepare()
        self.rounds_done = number
        return {"loss": self.last_loss}

    def prepare(self) -> float:
        """Read the inputs; return a loss of 0, since there is no model yet."""
        assert len(self.features) == self.num_data
        return 0.0

    def fit_round(self, number: int) -> float:
        """Fit on the targets, fill `fitted`, and revise the targets unless it is the last round.

        Rounds count from 1. Return the loss: finite, 0 for a method without an objective.
        """
        raise NotImplementedError(f"{type(self).__name__} has no fit_round(number)")

    def score(self, features: Floats) -> Floats:
        """Return logits (n, K) for inputs (n, D), from `fitted`."""
        raise NotImplementedError(f"{type(self).__name__} has no score(features)")

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K): the candidate prior's before the first round, then the last round's."""
        features = x.detach().cpu().double().numpy()
        if self.rounds_done < 1:
            logits = self.prior.expand(len(features), -1).clone()
        else:
            with limit_threads():
                logits = torch.from_numpy(self.score(features))
        # MPS devices have no float64.
        return logits.to(x.device, torch.float32 if x.device.type == "mps" else torch.float64)

    def set_targets(self, targets: Floats) -> None:
        """Replace the soft targets."""
        self.targets.copy_(torch.from_numpy(targets))

    @property
    def soft_targets(self) -> Floats:
        """The soft targets as an array."""
        return self.targets.numpy()


class LinearAlgorithm(FittedAlgorithm):
    """A method whose outcome is one linear model, `fitted` as its weight and bias."""

    @property
    def model(self) -> LinearModel:
        """The model of the last round."""
        return LinearModel(self.fitted["weight"], self.fitted["bias"])

    def keep(self, model: LinearModel) -> None:
        """Keep a model as the outcome of a round."""
        self.fitted = {"weight": model.weight, "bias": model.bias}

    def score(self, features: Floats) -> Floats:
        """Return the linear scores."""
        return self.model.score(features)


class TargetAlgorithm(FittedAlgorithm):
    """A model fitted on soft targets, once, or in rounds that revise them by out-of-sample probabilities.

    In-sample probabilities would only confirm the targets: a forest whose leaves hold one example gives back
    what it was fitted on. So the revision asks models that have not seen the example, by folds of examples
    unless the model holds examples out by itself.
    """

    def fit_round(self, number: int) -> float:
        """Fit on the targets and, unless it is the last round, revise them: q_ij ∝ w_ij (P_ij + ε)^γ."""
        outside = self.fit_model(self.seed_for("fit", number))
        last = number == self.rounds
        if outside is None:
            if last:
                return self.last_loss
            folds = int(self.hparams["folds"])
            outside = predict_by_folds(
                self.features, self.soft_targets, folds, self.seed, number, self.fit_and_predict
            )
        floor = float(self.hparams.get("floor", LEAST))
        if not last:
            sharpening = float(self.hparams["sharpening"])
            self.set_targets(sharpen(outside, self.prior_weights, sharpening, floor))
        return mean_surprise(outside, self.candidates, floor)

    def fit_model(self, seed: int) -> Floats | None:
        """Fit on features and targets, fill `fitted`; return out-of-sample probabilities if there are any."""
        raise NotImplementedError(f"{type(self).__name__} has no fit_model(seed)")

    def fit_and_predict(self, features: Floats, targets: Floats, queries: Floats, seed: int) -> Floats:
        """Fit a model of the same kind on some examples; return its probabilities for others."""
        raise NotImplementedError(f"{type(self).__name__} has no fit_and_predict(features, targets, …)")


def limit_threads() -> Any:
    """Let BLAS and OpenMP use as many threads as the run's tensors do, inside a `with` block."""
    return thread_controller().limit(limits=torch.get_num_threads())


# Of the libraries that are loaded when it is first asked for: all of them by then.
thread_controller = cache(ThreadpoolController)
