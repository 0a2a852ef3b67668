"""The description of a run: frozen, typed, and identified by what determines its numbers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from plench.algorithms import AlgorithmEntry
from plench.data import CandidateSpec, DatasetCard
from plench.errors import UsageError
from plench.hparams import DataTraits, Value, draw_hparams
from plench.networks import find_network
from plench.training.execution import PRECISIONS

# Raised whenever a change of ours alters the numbers that a configuration gives.
PROTOCOL_VERSION = 1


@dataclass(frozen=True)
class RunConfig:
    """One run. Paths, device, threads and verbosity are not here: they do not belong to what is computed.

    `hparams` also holds `max_steps`, which equals `steps`. `checkpoint_freq` is the number of updates between
    evaluations; it decides which records exist. `precision` (float32 or bf16) and `compile` are here because
    they change the numbers, the latter in their last bits.
    """

    algorithm: str
    dataset: str
    hparams: Mapping[str, Value]
    steps: int
    checkpoint_freq: int = 1000
    trial_seed: int = 0
    hparams_seed: int = 0
    seed: int = 0
    holdout_fraction: float = 0.1
    tabular_test_fraction: float = 0.1
    candidates: CandidateSpec = CandidateSpec()  # noqa: RUF009 - frozen
    precision: str = "float32"
    compile: bool = False

    def __post_init__(self) -> None:
        for name, least in (
            ("steps", 1),
            ("checkpoint_freq", 1),
            ("trial_seed", 0),
            ("hparams_seed", 0),
            ("seed", 0),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(f"{name} must be a whole number of at least {least}, not {value!r}")
        if self.precision not in PRECISIONS:
            raise UsageError(f"precision must be one of {', '.join(PRECISIONS)}, not {self.precision!r}")

    def experiment(self, fingerprint: str) -> dict[str, Any]:
        """Return what a cell of a table stands for: runs that differ in any of this are never averaged."""
        return {
            "protocol": PROTOCOL_VERSION,
            "dataset": self.dataset,
            "dataset_fingerprint": fingerprint,
            "candidates": asdict(self.candidates),
            "test_fraction": self.tabular_test_fraction,
            "holdout_fraction": self.holdout_fraction,
            "model": self.hparams["model"],
            "precision": self.precision,
            "steps": self.steps,
            "algorithm": self.algorithm,
        }

    def run_id(self, fingerprint: str) -> str:
        """Return the run's identity: a hash of all that determines its numbers and of nothing else."""
        content = {"protocol": PROTOCOL_VERSION, "fingerprint": fingerprint, **self.to_json()}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]

    def folder_name(self, fingerprint: str) -> str:
        """Return the name of the run's folder: readable in front, unique by the identity at the end."""
        label = f"{self.dataset}-{self.algorithm}-h{self.hparams_seed}-t{self.trial_seed}"
        return re.sub(r"[^A-Za-z0-9._@-]", "_", label)[:100] + "-" + self.run_id(fingerprint)[:12]

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as plain JSON values."""
        return {**vars(self), "hparams": dict(self.hparams), "candidates": dict(vars(self.candidates))}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RunConfig:
        """Rebuild a configuration; an unknown key is an error."""
        unknown = set(content) - set(cls.__dataclass_fields__)
        if unknown:
            raise UsageError(f"unknown key {sorted(unknown)[0]!r} in a run's configuration")
        return cls(**{**content, "candidates": CandidateSpec(**content["candidates"])})

    def args(self) -> dict[str, Any]:
        """Return the run's arguments in the form of the public benchmark's records."""
        flat = self.to_json()
        del flat["hparams"]
        candidates = flat.pop("candidates")
        return {**flat, **candidates}


def configure_run(
    entry: AlgorithmEntry,
    card: DatasetCard,
    *,
    hparams: Mapping[str, Any] | None = None,
    steps: int | None = None,
    candidates: CandidateSpec | None = None,
    hparams_seed: int = 0,
    trial_seed: int = 0,
    **others: Any,
) -> RunConfig:
    """Describe a run of an algorithm on a dataset: draw its configuration, put the user's values on top."""
    given = dict(hparams or {})
    steps = card.default_steps if steps is None else steps
    if given.pop("max_steps", steps) != steps:
        raise UsageError(f"hyperparameter max_steps is the number of steps ({steps}); set it with --steps")
    traits = DataTraits(card.kind, card.protocol_noise_rate)
    values = draw_hparams(entry.card.hyperparameters, traits, hparams_seed, trial_seed, given)
    values["model"] = find_network(str(values["model"])).name
    return RunConfig(
        algorithm=entry.name,
        dataset=card.name,
        hparams={**values, "max_steps": steps},
        steps=steps,
        candidates=candidates or card.candidates,
        hparams_seed=hparams_seed,
        trial_seed=trial_seed,
        **others,
    )
