"""A made-up benchmark with everything that the page must cope with, for tests, screenshots and measurements.

    python -m tests.report.site_sweep FOLDER [DATASETS SPLITS CONFIGURATIONS]

All deep algorithms of the package and two classical ones; runs that diverged, cells and splits that are
missing, one method below chance, one far above, a failed run, a dataset without true labels, markup as names.
"""

import sys
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
    n_datasets: int = 3,
    n_splits: int = 3,
    n_configurations: int = 5,
    names: tuple[str, ...] | None = None,
) -> Path:
    """Write the benchmark's run folders."""
    rng = np.random.default_rng(0)
    deep = [name for name, entry in algorithms().items() if entry.card.family != "classical"]
    for dataset, n_classes, level in (*DATASETS[:n_datasets], (UNLABELLED, 12, 0.6)):
        for algorithm in (*(names or deep), *CLASSICAL, MARKUP):
            skill = level + rng.normal(0, 0.04)
            if algorithm == "GA":
                skill = 0.4 / n_classes  # below chance
            if algorithm == "POP":
                skill = min(level + 0.22, 0.97)
            for split in range(n_splits):
                for configuration in range(n_configurations):
                    if not _is_missing(algorithm, dataset, split, configuration):
                        quality = float(np.clip(skill - rng.exponential(0.05), 0.002, 0.98))
                        _write(root, rng, dataset, n_classes, algorithm, quality, split, configuration)
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
    quality: float,
    split: int,
    configuration: int,
) -> None:
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
        records[-1].update(loss=float("nan"), val_approximated_acc=float("nan"))
    if (algorithm, dataset, split, configuration) == ("NN", "Lost", 0, 0):
        status, records = "failed", records[:3]
        message = f"{MARKUP} & more\nsecond line"
        error = {"type": "RuntimeError", "message": message, "traceback": "Traceback …"}
    if dataset == UNLABELLED:
        for record in records:
            record["test_acc"] = record["val_accuracy"] = None
    hparams, card = _describe(algorithm, split, configuration, rng)
    stem = "".join(c if c.isalnum() else "_" for c in f"{dataset}-{algorithm}")
    times = {"begun": "2026-01-01T00:00:00+00:00", "written": "2026-01-02T12:00:00+00:00"}
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
            "versions": {"plench": "0.1.0", "python": "3.11.7", "torch": "2.13.0+cpu", "device": "cpu"},
            "timings": {**times, "training_seconds": float(rng.uniform(5, 30))},
        },
    )


def _describe(
    algorithm: str, split: int, configuration: int, rng: np.random.Generator
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
    made_up = {"name": algorithm, "family": "third party", "venue": "", "idea": f"{algorithm}: made up."}
    return {"C": float(10 ** rng.uniform(-2, 2)), "__proto__": MARKUP, "max_steps": STEPS}, made_up


def _describe_data(dataset: str, n_classes: int) -> dict[str, Any]:
    sizes = {"n_train": 909, "n_validation": 100, "n_test": 113, "input_shape": [909, 108]}
    origin = {"kind": "tabular", "task": "made up", "source": "tests", "terms": "none"}
    return {
        "name": dataset,
        **origin,
        "citation": f"Nobody. {MARKUP}",
        "train_mean_candidates": 2.23,
        "train_noise_rate": None if dataset == UNLABELLED else 0.0,
        "n_classes": n_classes,
        **sizes,
    }


if __name__ == "__main__":
    write_benchmark(Path(sys.argv[1]), *map(int, sys.argv[2:]))
