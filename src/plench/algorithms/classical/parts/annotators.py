"""Answers of annotators as soft labels: votes, majority, Dawid and Skene's estimate of true labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import logsumexp

from plench.algorithms.classical.parts.targets import Floats, normalise_rows


class AnswerArrays(Protocol):
    """M answers: `item` and `annotator` (M,) say to what and whose, `sets` (M, K) which classes.

    A class in an answer's set is a vote for it; an answer with several classes counts for each of them.
    """

    @property
    def item(self) -> NDArray[np.int64]:
        """The items answered to, of 0 … n_items − 1."""

    @property
    def annotator(self) -> NDArray[np.int64]:
        """The annotators who answered."""

    @property
    def sets(self) -> NDArray[np.bool_]:
        """The classes of each answer."""

    @property
    def n_items(self) -> int:
        """N."""


@dataclass(frozen=True)
class DawidSkene:
    """One iteration's estimate: label posteriors (N, K), class prior (K,), and confusion (annotator, true,
    answered), with the penalised log-likelihood of prior and confusion."""

    posterior: Floats
    prior: Floats
    confusion: Floats
    objective: float


def count_votes_or_one(answers: AnswerArrays) -> Floats:
    """Return how often each item was given each class (N, K); one vote for each where nobody voted."""
    num_classes = answers.sets.shape[1]
    answer, label = np.nonzero(answers.sets)
    cell = answers.item[answer] * num_classes + label
    counts = np.bincount(cell, minlength=answers.n_items * num_classes)
    votes = counts.reshape(answers.n_items, num_classes).astype(np.float64)
    return np.where(votes.any(1, keepdims=True), votes, 1.0)


def share_votes(answers: AnswerArrays) -> Floats:
    """Return the votes as shares of an item's."""
    return normalise_rows(count_votes_or_one(answers))


def take_majority(answers: AnswerArrays) -> Floats:
    """Return targets that are equal over an item's classes with most votes."""
    votes = count_votes_or_one(answers)
    return normalise_rows((votes == votes.max(1, keepdims=True)).astype(np.float64))


def estimate_labels(answers: AnswerArrays, smoothing: float) -> Iterator[DawidSkene]:
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


def infer_labels(answers: AnswerArrays, smoothing: float, iterations: int, tolerance: float = 1e-4) -> Floats:
    """Return the label posteriors once none moves by `tolerance` any more, or after the iterations."""
    before = share_votes(answers)
    for _, estimate in zip(range(iterations), estimate_labels(answers, smoothing), strict=False):
        moved = np.abs(estimate.posterior - before).max()
        before = estimate.posterior
        if moved < tolerance:
            break
    return before
