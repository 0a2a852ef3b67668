"""A made-up benchmark with everything that the page must cope with, for tests, screenshots and measurements.

    python -m tests.report.site_sweep FOLDER [--datasets 7 --splits 5 --configurations 20]

All deep algorithms of the package and two classical ones; runs that diverged, cells and splits that are
missing, one method below chance, one far above, a failed run, a dataset without true labels, markup as names.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from plench.algorithms import algorithms
from plench.data import dataset_card
from plench.hparams import DataTraits, draw_hparams
from plench.training.config import describe_card
from tests.synthetic_sweep import experiment_of, make_records, write_run

# Real names with cards, their numbers of classes, and how hard they are.
DATASETS = (
    ("Lost", 16, 0.70),
    ("MSRCv2", 23, 0.50),
    ("Birdsong", 13, 0.70),
    ("Mirflickr", 14, 0.62),
    ("Malagasy", 44, 0.68),
    ("Yahoo!News", 219, 0.58),
    ("SoccerPlayer", 171, 0.52),
)
MARKUP = "<script>alert(1)</script>"
UNLABELLED = "own_photos"
CLASSICAL = ("LR_EM", "RF_AVG")
STEPS = 10_000
ROUNDS = 4


def write_benchmark(
    root: Path,
    *,
    n_datasets: int = 3,
    n_splits: int = 3,
    n_configurations: int = 5,
    names: tuple[str, ...] | None = None,
    unlabelled: bool = True,
    markup: bool = True,
    seed: int = 0,
) -> Path:
    """Write the benchmark's run folders."""
    rng = np.random.default_rng(seed)
    deep = [name for name, entry in algorithms().items() if entry.card.family != "classical"]
    shown = [*(names or deep), *CLASSICAL, *([MARKUP] if markup else [])]
    datasets = [*DATASETS[:n_datasets], *([(UNLABELLED, 12, 0.6)] if unlabelled else [])]
    for dataset, n_classes, level in datasets:
        for algorithm in shown:
            skill = level + rng.normal(0, 0.04)
            if algorithm == "GA":
                skill = 0.4 / n_classes  # below chance
            if algorithm == "POP":
                skill = min(level + 0.22, 0.97)
            for split in range(n_splits):
                for configuration in range(n_configurations):
                    if _is_missing(algorithm, dataset, split, configuration):
                        continue
                    _write(root, rng, dataset, n_classes, algorithm, skill, split, configuration)
    return root


def _is_missing(algorithm: str, dataset: str, split: int, configuration: int) -> bool:
    """VALEN has no run on MSRCv2, PiCO lacks a split of Lost, IDGP one run of Birdsong."""
    place = (algorithm, dataset)
    return (
        place == ("VALEN", "MSRCv2")
        or (place == ("PiCO", "Lost") and split == 1)
        or (place == ("IDGP", "Birdsong") and (split, configuration) == (0, 1))
    )


def _write(
    root: Path,
    rng: np.random.Generator,
    dataset: str,
    n_classes: int,
    algorithm: str,
    skill: float,
    split: int,
    configuration: int,
) -> None:
    quality = float(np.clip(skill - rng.exponential(0.05), 0.002, 0.98))
    if algorithm == "CC" and configuration == 2:
        quality = 0.05  # a configuration that does not learn, far from the others
    fitted = algorithm in CLASSICAL
    steps = ROUNDS + 1 if fitted else STEPS
    kind = {"model": None, "fitted": True} if fitted else {}
    records = make_records(quality, rng, steps, steps + 1 if fitted else 11)
    status, after, error = "done", None, None
    if algorithm == "EXP" and configuration == 1:
        status, after = "diverged", records[4]["step"]
        records = records[:6]
        for key in ("loss", "val_approximated_acc"):
            records[-1][key] = float("nan")
    if (algorithm, dataset, split, configuration) == ("NN", "Lost", 0, 0):
        status, records = "failed", records[:3]
        error = {
            "type": "RuntimeError",
            "message": f"{MARKUP} & more\nsecond line",
            "traceback": "Traceback …",
        }
    if dataset == UNLABELLED:
        for record in records:
            record["test_acc"] = record["val_accuracy"] = None
    hparams, card = _describe(algorithm, dataset, split, configuration, rng)
    stem = "".join(c if c.isalnum() else "_" for c in f"{dataset}-{algorithm}")
    write_run(
        root / f"{stem}-h{configuration}-t{split}",
        records,
        dataset,
        algorithm,
        split,
        configuration,
        status=status,
        steps=steps,
        hparams=hparams,
        diverged_after_step=after,
        experiment=experiment_of(dataset, algorithm, steps, precision="float32", **kind),
        info={
            "error": error,
            "algorithm_card": card,
            "dataset": _describe_data(dataset, n_classes),
            "versions": {
                "plench": "0.1.0",
                "python": "3.11.7",
                "torch": "2.13.0+cpu",
                "device": "cpu",
                "threads": 1,
            },
            "timings": {
                "begun": "2026-01-01T00:00:00+00:00",
                "written": "2026-01-02T12:00:00+00:00",
                "training_seconds": float(rng.uniform(5, 30)),
            },
        },
    )


def _describe(
    algorithm: str, dataset: str, split: int, configuration: int, rng: np.random.Generator
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a configuration and a card: the package's own for its algorithms, made up for the others."""
    known = algorithms()
    if algorithm in known:
        card = known[algorithm].card
        about = dataset_card("Lost")
        traits = DataTraits(about.kind, about.protocol_noise_rate)
        drawn = draw_hparams(card.hyperparameters, traits, configuration, split, {})
        if algorithm in CLASSICAL:
            drawn.pop("model", None)
        return {**drawn, "max_steps": STEPS}, describe_card(card, about)
    card = {
        "name": algorithm,
        "family": "third party",
        "venue": "",
        "idea": f"{algorithm}: made up for tests.",
    }
    return {"C": float(10 ** rng.uniform(-2, 2)), "__proto__": MARKUP, "max_steps": STEPS}, card


def _describe_data(dataset: str, n_classes: int) -> dict[str, Any]:
    sizes = {
        "n_train": 909,
        "n_validation": 100,
        "n_test": 113,
        "n_classes": n_classes,
        "input_shape": [909, 108],
    }
    noise = None if dataset == UNLABELLED else 0.0
    return {
        "name": dataset,
        "kind": "tabular",
        "task": "made up",
        "source": "tests",
        "terms": "none",
        "citation": f"Nobody. {MARKUP}",
        "train_mean_candidates": 2.23,
        "train_noise_rate": noise,
        **sizes,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--datasets", type=int, default=7)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--configurations", type=int, default=20)
    options = parser.parse_args()
    write_benchmark(
        options.folder,
        n_datasets=options.datasets,
        n_splits=options.splits,
        n_configurations=options.configurations,
    )
