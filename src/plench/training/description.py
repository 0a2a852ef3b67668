"""The part of run.json that is known before the first update."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from plench.algorithms import AlgorithmCard, AlgorithmEntry
from plench.data import Dataset, DatasetCard
from plench.hparams import DataTraits
from plench.training.config import PROTOCOL_VERSION, RunConfig
from plench.training.prepare import PreparedData


def describe_run(
    config: RunConfig, dataset: Dataset, entry: AlgorithmEntry, data: PreparedData
) -> dict[str, Any]:
    """Describe a run: identity, experiment, configuration, algorithm and data."""
    fingerprint = dataset.fingerprint
    return {
        "schema": 1,
        "run_id": config.run_id(fingerprint),
        "protocol": PROTOCOL_VERSION,
        "experiment": config.experiment(fingerprint),
        "config": config.to_json(),
        "algorithm_card": describe_card(entry.card, dataset.card),
        "algorithm_class": entry.cls.__name__,
        "algorithm_spec": None if entry.by_path else entry.spec,
        "dataset": {
            **asdict(dataset.card),
            "fingerprint": fingerprint,
            "verified": dataset.verified,
            "n_train": len(data.train),
            "n_validation": len(data.validation.stored),
            "n_test": len(data.test.stored),
            "n_classes": int(data.train_candidates.shape[1]),
            "input_shape": list(data.input_shape),
            "train_mean_candidates": float(data.train_candidates.sum(1).mean()),
            "train_noise_rate": data.train_noise_rate,
        },
    }


def describe_card(card: AlgorithmCard, dataset: DatasetCard) -> dict[str, Any]:
    """Return an algorithm's card as plain JSON, its hyperparameters as they are on this kind of data."""
    traits = DataTraits(dataset.kind, dataset.protocol_noise_rate)
    recorded = {name: value for name, value in vars(card).items() if not name.startswith("public_fault")}
    return {
        **recorded,
        "hyperparameters": [
            {
                "name": parameter.name,
                "default": parameter.default_for(traits),
                "search": str(parameter.search_for(traits)),
                "meaning": parameter.meaning,
            }
            for parameter in card.hyperparameters
        ],
    }
