"""A small made-up sweep in the real schema, for tests.

Figures come from a seeded generator: each configuration has a quality, each record a noisy view of it, so
that criteria agree roughly and not exactly, and small validation sets give ties.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from plench.criteria import CRITERIA

ALGORITHMS = ("PRODEN", "CC", "LWS", "NN")
DATASETS = ("Lost", "MSRCv2")
STEPS = 1000


def make_records(
    quality: float, rng: np.random.Generator, steps: int = STEPS, n_records: int = 11, n_validation: int = 100
) -> list[dict[str, Any]]:
    """Return evaluations of one run whose accuracy rises towards `quality`."""
    frequency = max(steps // (n_records - 1), 1)
    taken = sorted({*range(0, steps, frequency), steps - 1})
    records = []
    for step in taken:
        level = quality * (1 - 0.7 * np.exp(-4 * (step + 1) / steps))
        accuracy = rng.binomial(n_validation, level) / n_validation
        covering = accuracy + (1 - accuracy) * rng.binomial(n_validation, 0.3) / n_validation
        record = {
            "step": step,
            "epoch": step * 128 / 909,
            "loss": float(2 - level),
            "step_time": 0.001,
            "mem_gb": None,
            "val_accuracy": accuracy,
            "val_covering_rate": float(covering),
            "val_approximated_acc": float(covering * rng.uniform(0.85, 0.95)),
            "test_acc": rng.binomial(113, level) / 113,
        }
        others = {entry.member.record_key: accuracy for entry in CRITERIA.own.values()}
        records.append(record | {key: value for key, value in others.items() if key not in record})
    return records


def experiment_of(dataset: str, algorithm: str, steps: int = STEPS, **changes: Any) -> dict[str, Any]:
    """Return the identity of a table cell as run.json has it."""
    return {
        "protocol": 1,
        "dataset": dataset,
        "dataset_fingerprint": f"{len(dataset):016x}",
        "candidates": {"pl_type": "real", "fps_rate": None, "id_rate": None, "drop_true_rate": 0.0},
        "test_fraction": 0.1,
        "holdout_fraction": 0.1,
        "model": "MLP",
        "steps": steps,
        "algorithm": algorithm,
        **changes,
    }


def write_run(
    folder: Path,
    records: list[dict[str, Any]],
    dataset: str = "Lost",
    algorithm: str = "PRODEN",
    trial_seed: int = 0,
    hparams_seed: int = 0,
    *,
    status: str = "done",
    public: bool = False,
    steps: int = STEPS,
    hparams: dict[str, Any] | None = None,
    diverged_after_step: int | None = None,
    experiment: dict[str, Any] | None = None,
    info: dict[str, Any] | None = None,
) -> Path:
    """Write one run folder: ours (`info` on top of its run.json), or in the public benchmark's format."""
    folder.mkdir(parents=True)
    hparams = hparams or {"lr": 10 ** (-3 - hparams_seed / 10), "model": "MLP", "max_steps": steps}
    seeds = {"trial_seed": trial_seed, "hparams_seed": hparams_seed, "seed": 7}
    candidates = {"pl_type": "real", "fps_rate": None, "id_rate": None, "drop_true_rate": 0.0}
    fractions = {"holdout_fraction": 0.1, "tabular_test_fraction": 0.1}
    names = {"dataset": dataset, "algorithm": algorithm, "steps": steps, "checkpoint_freq": 100}
    args = {**names, **seeds, **fractions, **candidates}
    lines = [json.dumps({**record, "hparams": hparams, "args": args}) for record in records]
    (folder / "results.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    if not public:
        described = {
            "schema": 1,
            "run_id": folder.name,
            "protocol": 1,
            "status": status,
            "error": None,
            "diverged_after_step": diverged_after_step,
            "experiment": experiment or experiment_of(dataset, algorithm, steps),
            "config": {**seeds, "hparams": hparams, "checkpoint_freq": 100},
            "algorithm_card": {"name": algorithm, "family": "vanilla PLL", "venue": "ICML 2020"},
            "dataset": {"name": dataset, "n_train": 909, "n_validation": 100, "n_test": 113, "n_classes": 16},
            "versions": {"plench": "0.1.0"},
            "notices": [],
            **(info or {}),
        }
        (folder / "run.json").write_text(json.dumps(described), encoding="utf-8")
    if status in ("done", "diverged"):
        (folder / "done").write_text("done")
    return folder


def write_sweep(
    root: Path,
    *,
    datasets: tuple[str, ...] = DATASETS,
    algorithms: tuple[str, ...] = ALGORITHMS,
    n_trials: int = 3,
    n_hparams: int = 4,
    public: bool = False,
    seed: int = 0,
    skills: Mapping[str, float] | None = None,
    hparams: Callable[[int], dict[str, Any]] | None = None,
    failing: Callable[[int], bool] | None = None,
) -> Path:
    """Write a whole sweep: every dataset × algorithm × split × configuration.

    `skills` gives algorithms a quality, `hparams` a configuration its hyperparameters, and configurations
    that are `failing` are always wrong.
    """
    rng = np.random.default_rng(seed)
    for dataset in datasets:
        for algorithm in algorithms:
            skill = rng.uniform(0.4, 0.75)
            if skills is not None:
                skill = skills[algorithm]
            for trial in range(n_trials):
                for configuration in range(n_hparams):
                    quality = float(np.clip(skill + rng.normal(0, 0.06), 0.05, 0.95))
                    if skill == 0 or (failing is not None and failing(configuration)):
                        quality = 0.0
                    write_run(
                        root / f"{dataset}-{algorithm}-{trial}-{configuration}",
                        make_records(quality, rng),
                        dataset,
                        algorithm,
                        trial,
                        configuration,
                        public=public,
                        hparams=None if hparams is None else hparams(configuration),
                    )
    return root
