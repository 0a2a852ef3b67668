"""Answers of annotators: votes, majority, and Dawid and Skene's estimate of the true labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.special import logsumexp

from plench.algorithms.classical.parts.targets import Floats, normalise_rows


@dataclass(frozen=True)
class DawidSkene:
    """One iteration's estimate: label posteriors (n, K), class prior (K,), and confusion (annotator, true,
    answered), with the penalised log-likelihood of prior and confusion."""

    posterior: Floats
    prior: Floats
    confusion: Floats
    objective: float


class Answers:
    """Triples (item, annotator, label); an item has any number of answers, repeated ones count."""

    def __init__(
        self,
        item: ArrayLike,
        annotator: ArrayLike,
        label: ArrayLike,
        num_items: int,
        num_annotators: int,
        num_classes: int,
    ) -> None:
        self.item: NDArray[np.int64] = np.asarray(item, dtype=np.int64)
        self.annotator: NDArray[np.int64] = np.asarray(annotator, dtype=np.int64)
        self.label: NDArray[np.int64] = np.asarray(label, dtype=np.int64)
        self.num_items = num_items
        self.num_annotators = num_annotators
        self.num_classes = num_classes

    def count_votes(self) -> Floats:
        """Return how often each item was given each label, (n, K)."""
        cell = self.item * self.num_classes + self.label
        votes = np.bincount(cell, minlength=self.num_items * self.num_classes)
        return votes.reshape(self.num_items, self.num_classes).astype(np.float64)

    def share_votes(self) -> Floats:
        """Return the votes as shares of an item's answers."""
        return normalise_rows(self.count_votes())

    def take_majority(self) -> Floats:
        """Return targets that are equal over an item's labels with most votes."""
        votes = self.count_votes()
        return normalise_rows((votes == votes.max(1, keepdims=True)).astype(np.float64))

    def estimate_labels(self, smoothing: float) -> Iterator[DawidSkene]:
        """Iterate Dawid and Skene's EM from the vote shares, without end: confusion and prior, then labels.

        `smoothing` s > 0 is added to every count: a Dirichlet(1 + s) prior.
        """
        n, K = self.num_items, self.num_classes
        row = self.annotator * K + self.label
        # Sums over answers, as products: (annotator and label) × item.
        given = csr_array(
            (np.ones(len(row)), (row, self.item)), shape=(self.num_annotators * K, n), dtype=np.float64
        )
        posterior = self.share_votes()
        while True:
            prior = (posterior.sum(0) + smoothing) / (n + K * smoothing)
            counts = (given @ posterior).reshape(self.num_annotators, K, K).transpose(0, 2, 1) + smoothing
            confusion = counts / counts.sum(2, keepdims=True)
            logs = np.log(confusion)
            joint = np.log(prior) + given.T @ logs.transpose(0, 2, 1).reshape(-1, K)
            evidence = logsumexp(joint, axis=1, keepdims=True)
            posterior = np.exp(joint - evidence)
            objective = float(evidence.sum() + smoothing * (logs.sum() + np.log(prior).sum()))
            yield DawidSkene(posterior, prior, confusion, objective)

    def infer_labels(self, smoothing: float, iterations: int, tolerance: float = 1e-4) -> Floats:
        """Return the label posteriors once no one moves by `tolerance` any more, or after the iterations."""
        before = self.share_votes()
        for _, estimate in zip(range(iterations), self.estimate_labels(smoothing), strict=False):
            moved = np.abs(estimate.posterior - before).max()
            before = estimate.posterior
            if moved < tolerance:
                break
        return before
