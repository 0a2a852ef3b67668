"""What the estimates of accuracy, prediction sets and probabilities of `plench fit` are worth.

    python benchmarks/verdict.py --data-dir data     8 splits of eight datasets
    python benchmarks/verdict.py --report-only       the page from the records that are there

In simulations the assumption of an estimate holds; on real data it may not. Records are in runs/verdict, a
file per split; the same command resumes an interrupted one. Writes docs/results/verdict.md.
"""

import argparse
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from plench import PartialLabelClassifier
from plench.data import Dataset, TestSet, load_dataset, split_dataset
from plench.data.candidates import draw_fps
from plench.estimator.calibration import PROMISES, calibrate
from plench.estimator.quality import estimate_quality, score_examples
from plench.estimator.search import NETWORK

ROOT = Path(__file__).parents[1]
DATASETS = (
    "Lost",
    "MSRCv2",
    "Birdsong",
    "LabelMe_Crowd",
    "Music_Crowd",
    "EmotionLines",
    "SentimentPolarity",
    "Italian",
)
TEXTS = ("EmotionLines", "SentimentPolarity")
FOLDERS = {"LabelMe_Crowd": "crowd", "Music_Crowd": "crowd", **dict.fromkeys(TEXTS, "text")}  # below the data
STEPS = 500
RESERVE = 0.2
COVERAGE = 0.9
AUDIT = 50  # true labels of ordinary calibration
DRAWS = 500
N_SIMULATED, K_SIMULATED = 150, 6
ESTIMATES = {
    "certain": "certain range",
    "uniform": "uniform distractors",
    "confusable": "confusable distractors",
}

Simulated = tuple[NDArray[np.float64], NDArray[np.bool_], float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=8, help="splits of each dataset (8)")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), help="only these")
    parser.add_argument(
        "--output-dir", type=Path, default=ROOT / "runs" / "verdict", help="folder of records"
    )
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("PLENCH_DATA"), help="folder of data")
    parser.add_argument("--report-only", action="store_true", help="only write the page")
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    if not options.report_only:
        for split in range(options.splits):
            for name in options.datasets:
                place = options.output_dir / f"{name}-{split}.json"
                if not place.exists():
                    record = measure(name, split, options.data_dir)
                    place.with_suffix(".part").write_text(json.dumps(record))
                    place.with_suffix(".part").replace(place)
                    print(f"{name} split {split}: accuracy {record['accuracy']:.3f}", flush=True)
    write_report(options)


def measure(name: str, split: int, data_dir: Path | None) -> dict[str, Any]:
    """Fit one split of a dataset without its true labels, and compare what is reported with its test set."""
    data = load_dataset(name, None if data_dir is None else Path(data_dir) / FOLDERS.get(name, "."))
    assert data.labels is not None
    test, rows = data.test, np.arange(data.n_examples)
    test_sets = None
    if test is None:
        parts = split_dataset(data, split, holdout_fraction=0.0)
        assert parts.test is not None
        rows, test_sets = parts.train, data.candidates[parts.test]
        test = TestSet(data.features[parts.test], data.labels[parts.test])
    known = data.take(rows)
    labels = known.labels
    assert labels is not None
    train = Dataset(known.features, known.candidates, None, known.card, answers=known.answers)
    model = PartialLabelClassifier(steps=STEPS, reserve=RESERVE, random_state=split).fit(train)
    assert model.quality_ is not None
    assert model.verdict_ is not None
    assert model.calibration_ is not None
    logits = model.model_.predict_logits(test.features)
    reserved = model.reserved_
    drawn = np.random.default_rng(split).permutation(reserved)[:AUDIT]
    audit = calibrate(
        model.model_.predict_logits(known.features[drawn]), known.candidates[drawn], labels[drawn]
    )
    sets = {}
    for promise in PROMISES:
        made = audit if promise == "truth" else model.calibration_
        found = made.predict_sets(logits, COVERAGE, promise)
        size = found.sum(1)
        sets[promise] = {
            "truth": float(found[np.arange(len(found)), test.labels].mean()),
            "candidate": None if test_sets is None else float((found & test_sets).any(1).mean()),
            "size": float(size.mean()),
            "abstains": float(((size == 0) | (size == found.shape[1])).mean()),
        }
    hits = logits.argmax(1) == test.labels
    return {
        "accuracy": float(hits.mean()),
        "n_test": len(hits),
        "n_reserved": len(reserved),
        "n_classes": logits.shape[1],
        "noise_rate": known.noise_rate,
        "quality": model.quality_.to_json(),
        "verdict": model.verdict_.to_json(),
        "temperature": model.calibration_.temperature,
        "is_calibrated": model.calibration_.is_calibrated,
        "ece": [
            measure_calibration(softmax(logits / temperature, axis=1), hits)
            for temperature in (1.0, model.calibration_.temperature, audit.temperature)
        ],
        "sets": sets,
    }


def measure_calibration(probs: NDArray[np.float64], hits: NDArray[np.bool_]) -> float:
    """Return the expected calibration error of the predicted label, in ten bins of equal width."""
    top = probs.max(1)
    bins = np.minimum((top * 10).astype(int), 9)
    gaps = np.bincount(bins, weights=top - hits, minlength=10)
    return float(np.abs(gaps).sum() / len(hits))


def simulate_uniform(random: np.random.Generator, accuracy: float) -> Simulated:
    """Every wrong label is a candidate with probability 0.4."""
    labels = random.integers(K_SIMULATED, size=N_SIMULATED)
    shift = random.integers(1, K_SIMULATED, size=N_SIMULATED)
    is_right = random.random(N_SIMULATED) < accuracy
    predicted = np.where(is_right, labels, (labels + shift) % K_SIMULATED)
    return np.eye(K_SIMULATED)[predicted], draw_fps(labels, K_SIMULATED, 0.4, random), accuracy


def simulate_confusable(random: np.random.Generator, accuracy: float) -> Simulated:
    """The two most probable labels are candidates with probability 0.6 where wrong, others with 0.1."""
    order = np.argsort(random.random((N_SIMULATED, K_SIMULATED)), axis=1)
    place = np.where(random.random(N_SIMULATED) < accuracy, 0, 2)
    rows = np.arange(N_SIMULATED)
    labels = order[rows, place]
    logits = np.zeros((N_SIMULATED, K_SIMULATED))
    logits[rows[:, None], order] = -np.arange(K_SIMULATED)
    rates = np.full((N_SIMULATED, K_SIMULATED), 0.1)
    rates[rows[:, None], order[:, :2]] = 0.6
    rates[rows, labels] = 1.0
    return logits, random.random(rates.shape) < rates, accuracy


def list_simulations() -> list[list[str]]:
    """Return a row per assumption, accuracy and estimate: how often the interval contains the truth."""
    simulations: dict[str, Callable[[np.random.Generator, float], Simulated]] = {
        "uniform": simulate_uniform,
        "confusable": simulate_confusable,
    }
    rows = []
    for holds, simulate in simulations.items():
        for accuracy in (0.3, 0.6, 0.9):
            random = np.random.default_rng(0)
            inside: dict[str, list[bool]] = {name: [] for name in ESTIMATES}
            widths: dict[str, list[float]] = {name: [] for name in ESTIMATES}
            for _ in range(DRAWS):
                logits, candidates, truth = simulate(random, accuracy)
                found = estimate_quality(score_examples(logits, candidates), candidates)
                for name in ESTIMATES:
                    estimate = getattr(found, name)
                    inside[name].append(estimate.low <= truth <= estimate.high)
                    widths[name].append(estimate.high - estimate.low)
            cells = [f"{np.mean(inside[name]):.1%} ({np.median(widths[name]):.2f})" for name in ESTIMATES]
            rows.append([f"{holds} distractors", f"{accuracy}", *cells])
    return rows


def render_table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def write_report(options: argparse.Namespace) -> None:
    """Write the page."""
    simulated = options.output_dir / "simulations.json"
    if not simulated.exists():
        simulated.write_text(json.dumps(list_simulations()))
    records = {
        name: [
            json.loads(place.read_text())
            for split in range(options.splits)
            if (place := options.output_dir / f"{name}-{split}.json").exists()
        ]
        for name in options.datasets
    }
    records = {name: found for name, found in records.items() if found}
    estimates, sets, calibration = [], [], []
    for name, found in records.items():
        truth = np.array([each["accuracy"] for each in found])
        cells = []
        for key in ESTIMATES:
            given = [each["quality"][key] for each in found]
            inside = [
                each["low"] <= value <= each["high"] for each, value in zip(given, truth, strict=True) if each
            ]
            middle = np.mean([each["value"] for each in given if each]) if key != "certain" else None
            width = np.median([each["high"] - each["low"] for each in given if each])
            shown = "" if middle is None else f"{middle:.3f}; "
            cells.append(f"{shown}{sum(inside)} of {len(inside)} ({width:.2f})")
        verdicts = [each["verdict"]["verdict"] for each in found]
        counts = ", ".join(f"{kind} {verdicts.count(kind)}" for kind in sorted(set(verdicts)))
        missing = (
            "unknown"
            if found[0]["noise_rate"] is None
            else f"{np.mean([e['noise_rate'] for e in found]):.1%}"
        )
        estimates.append([name, f"{len(found)}", missing, f"{truth.mean():.3f}", *cells, counts])
        for promise in PROMISES:
            own = [each["sets"][promise] for each in found]
            candidate = [each["candidate"] for each in own if each["candidate"] is not None]
            sets.append(
                [
                    name,
                    f"{found[0]['n_classes']}",
                    f"`{promise}`",
                    f"{np.mean([each['truth'] for each in own]):.3f}",
                    f"{np.mean(candidate):.3f}" if candidate else "no sets",
                    f"{np.mean([each['size'] for each in own]):.2f}",
                    f"{np.mean([each['abstains'] for each in own]):.1%}",
                ]
            )
        before, after, audited = np.mean([each["ece"] for each in found], axis=0)
        at_bound = sum(not each["is_calibrated"] for each in found)
        temperature = np.median([each["temperature"] for each in found])
        calibration.append(
            [name, f"{before:.3f}", f"{after:.3f}", f"{audited:.3f}", f"{temperature:.2f}", f"{at_bound}"]
        )
    parts = [
        "# Estimates, prediction sets and probabilities without true labels",
        "Written by `python benchmarks/verdict.py` from its records.",
        f"PRODEN with the network {NETWORK}, {STEPS} updates, a reserved share of {RESERVE:.0%}; no true "
        "label is used before the test. Nothing was tuned on these figures. LabelMe_Crowd, Music_Crowd, "
        "EmotionLines and SentimentPolarity have one test set: their splits differ in what is reserved and "
        "in seeds. An interval is compared with the accuracy on the test set, which has a sampling error of "
        "its own.",
        "## Where the assumption holds",
        f"{DRAWS} simulated samples of {N_SIMULATED} rows and {K_SIMULATED} classes: how often the 95 % "
        "interval contains the accuracy, and its median width. An estimate is meant for the rows of its"
        " own assumption; the other one is shown for comparison, and the range is certain in both.",
        render_table(["sets", "accuracy", *ESTIMATES.values()], json.loads(simulated.read_text())),
        "## On real data",
        "Mean estimate; in how many splits the interval contains the test accuracy, and the median "
        "width. The certain range is certain if sets are complete; `sets without truth` says how many "
        "are not.",
        render_table(
            ["dataset", "splits", "sets without truth", "test accuracy", *ESTIMATES.values(), "verdict"],
            estimates,
        ),
        "## Prediction sets",
        f"Coverage {COVERAGE}. `truth` is calibrated on {AUDIT} true labels of reserved rows, the others"
        " on all reserved candidate sets. Shares of test rows whose set contains the true label, and "
        "some candidate; the mean size; and the share of abstentions (no class, or all of them).",
        render_table(
            ["dataset", "classes", "promise", "true label", "some candidate", "size", "abstains"], sets
        ),
        "## Probabilities",
        "Expected calibration error on the test set (ten bins): of the network, at the temperature from"
        f" reserved candidate sets, and at that from {AUDIT} true labels; the median temperature from "
        "candidate sets; and in how many splits it was at a bound, so that probabilities are marked as "
        "not calibrated.",
        render_table(
            ["dataset", "before", "after", f"{AUDIT} true labels", "temperature", "at a bound"], calibration
        ),
        f"Made with Python {platform.python_version()} and torch {torch.__version__} on "
        f"{platform.machine()}, one thread.",
    ]
    path = ROOT / "docs" / "results" / "verdict.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
