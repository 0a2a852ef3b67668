"""The configuration of a run, its identity and its description, and how it ended."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from plench.algorithms import AlgorithmCard, AlgorithmEntry
from plench.criteria import CRITERIA, find_criteria
from plench.data import CandidateSpec, Dataset, DatasetCard, choose_candidates
from plench.data.sources import DATASETS
from plench.errors import UsageError
from plench.hparams import DataTraits, Value, draw_hparams
from plench.networks import Network, find_network
from plench.registry import NOT_REPEATABLE, Entry
from plench.runs.folder import CRITERION, DATASET, SCHEMA
from plench.settings import (
    PROTOCOL_VERSION,
    PartialLabelType,
    Settings,
    declared,
    describe_cell,
    describe_settings,
    read_settings,
)

Status = Literal["done", "diverged", "failed", "interrupted"]

# Fields of a card that are not part of run.json.
NOT_RECORDED = ("objective", "public_fault", "public_fault_on", "annotators", "stacked", "not_stackable")

warn_once = cache(logging.getLogger("plench").warning)


@dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """One run: what is computed, and the settings that say how, with the dataset's defaults filled in.

    Its identity (`run_id`) is made only of what affects results. `hparams` also contains `max_steps`, which
    equals `steps`.
    """

    algorithm: str
    dataset: str
    hparams: Mapping[str, Value]
    steps: int
    pl_type: PartialLabelType = "real"
    drop_true_rate: float = 0.0

    def changed(self, **changes: Any) -> RunConfig:
        """Return a copy with other values; only these are checked, since plans make tens of thousands."""
        made = copy(self)
        known = declared()
        for name, value in changes.items():
            checked = known[name].check(value) if name in known else value
            object.__setattr__(made, name, checked)  # it is frozen for everybody else
        return made

    @property
    def candidates(self) -> CandidateSpec:
        """How the candidate sets are made."""
        return CandidateSpec(self.pl_type, self.fps_rate, self.id_rate, self.drop_true_rate)

    @property
    def fitted(self) -> bool:
        """Whether the run is fitted in rounds, without a network."""
        return "model" not in self.hparams

    def experiment(self, fingerprint: str) -> dict[str, Any]:
        """Return what a cell of a table stands for: runs that differ in any of this are never averaged."""
        return {
            "protocol": PROTOCOL_VERSION,
            "dataset": self.dataset,
            "dataset_fingerprint": fingerprint,
            **describe_cell(vars(self)),
            "model": self.hparams.get("model"),
            **({"fitted": True} if self.fitted else {}),
            "algorithm": self.algorithm,
        }

    def run_id(self, fingerprint: str) -> str:
        """Return the run's identity: a hash of everything that affects results and of nothing else."""
        content = {"protocol": PROTOCOL_VERSION, "fingerprint": fingerprint, **self.to_json()}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]

    def folder_name(self, fingerprint: str) -> str:
        """Return the name of the run's folder: readable in front, unique by the identity at the end."""
        label = f"{self.dataset}-{self.algorithm}-h{self.hparams_seed}-t{self.trial_seed}"
        return re.sub(r"[^A-Za-z0-9._@-]", "_", label)[:100] + "-" + self.run_id(fingerprint)[:12]

    def to_json(self) -> dict[str, Any]:
        """Return what affects results as plain JSON values."""
        return {
            "algorithm": self.algorithm,
            "dataset": self.dataset,
            "hparams": dict(self.hparams),
            **describe_settings(vars(self)),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RunConfig:
        """Rebuild a configuration. Raises UsageError for unknown keys and malformed hyperparameters."""
        flat = dict(content)
        for block in {setting.block for setting in declared().values() if setting.block}:
            flat.update(flat.pop(block, {}))
        unknown = set(flat) - set(cls.__dataclass_fields__)
        if unknown:
            raise UsageError(f"unknown key {sorted(unknown)[0]!r} in a run's configuration")
        hparams = flat.get("hparams")
        values = hparams.values() if isinstance(hparams, dict) else [None]
        if not all(isinstance(value, str | int | float) for value in values):
            raise UsageError(f"hyperparameters are names with a number or a text each, not {hparams!r}")
        return cls(**flat)

    def args(self) -> dict[str, Any]:
        """Return the run's arguments in the form of the public benchmark's records."""
        return {
            "algorithm": self.algorithm,
            "dataset": self.dataset,
            **describe_settings(vars(self), nested=False),
        }


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended, where its records are, and how many updates this call made.

    `out_of_time`: it was interrupted because the time left was too short for another round.
    """

    status: Status
    folder: Path
    updates_made: int
    message: str = ""
    out_of_time: bool = False


def configure_run(
    entry: AlgorithmEntry,
    card: DatasetCard,
    *,
    hparams: Mapping[str, Any] | None = None,
    **settings: Any,
) -> RunConfig:
    """Configure a run of an algorithm on a dataset: draw its hyperparameters, then apply the user's values.

    Third-party networks and criteria appear by their names in records, with a hash of their file. `settings`
    are those of `plench.settings.Settings`. A method that is fitted in rounds has one step of preparation
    and a step per round, all of which are evaluated.
    """
    asked = Settings(**read_settings(settings))
    fitted, given = not entry.card.shared, dict(hparams or {})
    if isinstance(given.get("model"), Network):
        given["model"] = find_network(given["model"]).name
    traits = DataTraits(card.kind, card.protocol_noise_rate)
    steps = card.default_steps if asked.steps is None else asked.steps
    if fitted:
        if card.kind != "tabular":
            raise UsageError(
                f"{entry.name} is fitted on tabular data; the data of {card.name} are {card.kind}"
            )
        if asked.steps is not None:
            warn_once("steps does not apply to methods fitted in rounds: each round is a step")
        given.pop("max_steps", None)
    elif given.pop("max_steps", steps) != steps:
        raise UsageError(f"hyperparameter max_steps is the number of steps ({steps}); set it with --steps")
    values = draw_hparams(
        entry.card.hyperparameters, traits, asked.hparams_seed, asked.trial_seed, given, shared=not fitted
    )
    if fitted:
        steps = int(values.get("rounds", 1)) + 1
    else:
        values["model"] = find_network(str(values["model"])).name
    chosen = {
        **asked.values(),
        **vars(choose_candidates(card.candidates, asked)),
        "more_criteria": ",".join(criterion.name for criterion in find_criteria(asked.more_criteria)),
        "steps": steps,
        **({"checkpoint_freq": 1} if fitted else {}),
    }
    return RunConfig(
        **chosen, algorithm=entry.name, dataset=card.name, hparams={**values, "max_steps": steps}
    )


def configure_refit(run_json: Mapping[str, Any], step: int, dataset: Dataset) -> tuple[RunConfig, Dataset]:
    """Configure a stored run again, for the chosen model on all data: `step` + 1 updates, nothing held out.

    `max_steps`, which schedules use, stays that of the chosen run. A test set of the data stays as it is;
    rows marked as validation are trained on.
    """
    config = RunConfig.from_json(run_json["config"])
    changes: dict[str, Any] = {"steps": step + 1, "holdout_fraction": 0.0}
    if dataset.test is None:
        changes["tabular_test_fraction"] = 0.0
    return replace(config, **changes), replace(dataset, validation=None)


def describe_run(config: RunConfig, dataset: Dataset, entry: AlgorithmEntry) -> dict[str, Any]:
    """Return what run.json says of a run before its data are prepared."""
    fingerprint = dataset.fingerprint
    described: dict[str, Any] = {
        "schema": SCHEMA,
        "run_id": config.run_id(fingerprint),
        "protocol": PROTOCOL_VERSION,
        "experiment": config.experiment(fingerprint),
        "config": config.to_json(),
        "algorithm_card": describe_card(entry.card, dataset.card),
        "algorithm_class": entry.cls.__name__,
        "algorithm_spec": None if entry.by_path else entry.spec,
        "dataset": {**asdict(dataset.card), "fingerprint": fingerprint, "verified": dataset.verified},
    }
    parts = (config.algorithm, config.dataset, config.hparams.get("model"), *config.more_criteria.split(","))
    if reasons := [NOT_REPEATABLE[str(name)] for name in parts if name in NOT_REPEATABLE]:
        described["not_repeatable"] = reasons
    if sources := {file: part.spec.rpartition(":")[2] for file, part in find_more_sources(config).items()}:
        described["sources"] = sources
    network = None if config.fitted else find_network(str(config.hparams["model"]))
    if network is not None and network.source is not None:
        described["network"] = network.spec.rpartition(":")[2]
    if dataset.class_names is None:
        del described["dataset"]["class_names"]
    return described


def find_more_sources(config: RunConfig) -> dict[str, Entry[Any]]:
    """Return a run's third-party dataset and criteria, by the names of their files in its folder."""
    parts: dict[str, Entry[Any] | None] = {DATASET: DATASETS.loaded.get(config.dataset)}
    for name in config.more_criteria.split(","):
        parts[CRITERION.format(name.partition("@")[0])] = CRITERIA.loaded.get(name)
    return {file: part for file, part in parts.items() if part and part.source and ":" in part.spec}


def describe_card(card: AlgorithmCard, dataset: DatasetCard) -> dict[str, Any]:
    """Return an algorithm's card as plain JSON, its hyperparameters as they are on this kind of data."""
    traits = DataTraits(dataset.kind, dataset.protocol_noise_rate)
    # Fields that came later are recorded only if they differ from their default.
    later = {name: type(card).__dataclass_fields__[name].default for name in ("shared", "answers")}
    recorded = {
        name: value
        for name, value in vars(card).items()
        if name not in NOT_RECORDED and (name not in later or value != later[name])
    }
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
