"""The chosen model on all data: the configuration and the number of steps that a criterion chose, again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plench.data import Dataset
from plench.training.config import RunConfig


def configure_refit(run_json: Mapping[str, Any], step: int, dataset: Dataset) -> tuple[RunConfig, Dataset]:
    """Return the run's configuration for `step` + 1 updates with nothing held out, and the data for it.

    `max_steps`, by which methods schedule themselves, stays that of the chosen run. A test set of the data's
    own stays what it is; rows marked as validation are learned from.
    """
    config = RunConfig.from_json(run_json["config"])
    changes: dict[str, Any] = {"steps": step + 1, "holdout_fraction": 0.0}
    if dataset.test is None:
        changes["tabular_test_fraction"] = 0.0
    return replace(config, **changes), replace(dataset, validation=None)
