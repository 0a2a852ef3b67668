"""MV_LR and DS_LR: logistic regression on labels that annotators' answers, not candidate sets, tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logsumexp

from plench.algorithms.base import register
from plench.algorithms.classical.parts import (
    Floats,
    LinearModel,
    LinearObjective,
    normalise_rows,
    soft_target_loss,
)
from plench.algorithms.fitted import LinearAlgorithm
from plench.data.answers import Answers, count_votes
from plench.errors import UsageError
from plench.hparams import Choice, Hyperparameter, LogRange


@dataclass(frozen=True)
class DawidSkene:
    """One iteration's estimate: label posteriors (N, K), class prior (K,), and confusion (annotator, true,
    answered), with the penalised log-likelihood of prior and confusion."""

    posterior: Floats
    prior: Floats
    confusion: Floats
    objective: float


def count_votes_or_one(answers: Answers) -> Floats:
    """Return how often each item was given each class (N, K); one vote for each where nobody voted."""
    votes = count_votes(answers).astype(np.float64)
    return np.where(votes.any(1, keepdims=True), votes, 1.0)


def share_votes(answers: Answers) -> Floats:
    """Return the votes as shares of an item's."""
    return normalise_rows(count_votes_or_one(answers))


def take_majority(answers: Answers) -> Floats:
    """Return targets that are equal over an item's classes with most votes."""
    votes = count_votes_or_one(answers)
    return normalise_rows((votes == votes.max(1, keepdims=True)).astype(np.float64))


def estimate_labels(answers: Answers, smoothing: float) -> Iterator[DawidSkene]:
    """Iterate Dawid and Skene's EM from the vote shares, without end: confusion and prior, then labels.

    `smoothing` s > 0 is added to every count: a Dirichlet(1 + s) prior.
    """
    n, K = answers.n_items, answers.sets.shape[1]
    annotators = 1 + int(answers.annotator.max(initial=-1))
    answer, label = np.nonzero(answers.sets)
    given_by = answers.annotator[answer] * K + label
    # Sums over answers, as products: (annotator and class) × item.
    given = csr_array((np.ones(len(answer)), (given_by, answers.item[answer])), shape=(annotators * K, n))
    posterior = share_votes(answers)
    while True:
        prior = (posterior.sum(0) + smoothing) / (n + K * smoothing)
        counts = (given @ posterior).reshape(annotators, K, K).transpose(0, 2, 1) + smoothing
        confusion = counts / counts.sum(2, keepdims=True)
        logs = np.log(confusion)
        joint = np.log(prior) + given.T @ logs.transpose(0, 2, 1).reshape(-1, K)
        evidence = logsumexp(joint, axis=1, keepdims=True)
        posterior = np.exp(joint - evidence)
        objective = float(evidence.sum() + smoothing * (logs.sum() + np.log(prior).sum()))
        yield DawidSkene(posterior, prior, confusion, objective)


def infer_labels(answers: Answers, smoothing: float, iterations: int, tolerance: float = 1e-4) -> Floats:
    """Return the label posteriors once none moves by `tolerance` any more, or after the iterations."""
    before = share_votes(answers)
    for _, estimate in zip(range(iterations), estimate_labels(answers, smoothing), strict=False):
        moved = np.abs(estimate.posterior - before).max()
        before = estimate.posterior
        if moved < tolerance:
            break
    return before


WEIGHT = Hyperparameter("C", 0.1, "weight of the loss against ½‖W‖²", LogRange(-3, 1), above=0)


class AnswerAlgorithm(LinearAlgorithm):
    """Logistic regression, fitted once on soft targets made of answers; a subclass says how."""

    transient: ClassVar[tuple[str, ...]] = (*LinearAlgorithm.transient, "answers")

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        self.answers: Answers | None = None

    def attach_answers(self, answers: Answers) -> None:
        """Receive the answers to the training examples."""
        self.answers = answers

    def infer_targets(self, answers: Answers) -> Floats:
        """Return targets (N, K) made of the answers."""
        raise NotImplementedError(f"{type(self).__name__} has no infer_targets(answers)")

    def fit_round(self, number: int) -> float:
        """Make the targets and fit the linear model to them."""
        if self.answers is None:
            raise UsageError(
                f"{type(self).__name__} learns from the answers of annotators, which this dataset lacks"
            )
        loss = soft_target_loss(self.infer_targets(self.answers))
        objective = LinearObjective(self.features, loss, float(self.hparams["C"]))
        model, value = objective.minimise(LinearModel.zeros(self.num_classes, self.features.shape[1]))
        self.keep(model)
        return value


@register(
    "MV_LR",
    family="classical",
    venue="KDD 2008",
    passes="one fit",
    hyperparameters=(WEIGHT,),
    answers=True,
    cite="sheng2008get",
)
class MV_LR(AnswerAlgorithm):
    """Logistic regression on the label that most annotators gave, tied labels sharing it.

    Objective: ½‖W‖² + C·Σ_i Σ_j −t_ij log p_ij, t_i equal over the labels with most votes.

    Departures: none.
    """

    def infer_targets(self, answers: Answers) -> Floats:
        """Return the majority's labels."""
        return take_majority(answers)


@register(
    "DS_LR",
    family="classical",
    venue="Applied Statistics 1979",
    passes="one fit",
    hyperparameters=(
        WEIGHT,
        Hyperparameter(
            "smoothing",
            0.01,
            "added to every count of answers",
            Choice(0.001, 0.01, 0.1, 1.0),
            above=0,
        ),
        Hyperparameter("iterations", 100, "most iterations of the estimate of the labels", at_least=1),
    ),
    answers=True,
    annotators=True,
    cite="dawid1979maximum",
)
class DS_LR(AnswerAlgorithm):
    """Logistic regression on labels estimated together with each annotator's confusions.

    Dawid and Skene's EM: who errs often, or mistakes one class for another, counts for less. It starts from
    the shares of votes, which fixes the classes' names.

    Objective: ½‖W‖² + C·Σ_i Σ_j −q_ij log p_ij, q_ik ∝ π_k Π_(a,l) θ^a_kl over the answers to i.

    Departures: counts are smoothed, so that no logarithm of 0 occurs.
    """

    def infer_targets(self, answers: Answers) -> Floats:
        """Return the estimated labels."""
        return infer_labels(answers, float(self.hparams["smoothing"]), int(self.hparams["iterations"]))
