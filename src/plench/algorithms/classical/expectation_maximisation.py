"""EM around any model that gives probabilities: fit on soft targets, predict out of sample, revise them."""

from __future__ import annotations

from plench.algorithms.classical.parts import Floats, mean_surprise, predict_by_folds, sharpen
from plench.algorithms.fitted import FittedAlgorithm
from plench.hparams import Choice, Hyperparameter

LEAST = 1e-3
SHARPENING = Hyperparameter(
    "sharpening", 1.0, "power of the probabilities in the revision", Choice(1.0, 1.5, 2.0, 4.0), above=0
)
ROUNDS = Hyperparameter("rounds", 4, "rounds of fitting and revising", at_least=1)
FOLDS = Hyperparameter("folds", 3, "folds that out-of-sample probabilities come from", at_least=2)
FLOOR = Hyperparameter("floor", LEAST, "added to probabilities before they are compared", above=0)
# What the revision of the targets is ruled by; `FOLDS` aside, which a model with its own hold-out lacks.
REVISION = (SHARPENING, ROUNDS, FLOOR)


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
