"""The automatic choice against default PRODEN, the best single default and the choice of an oracle.

    python benchmarks/auto.py                    5 splits of six datasets; about an hour on two cores
    python benchmarks/auto.py --report_only      the page from the records that are there

Records lie in runs/auto, a file a dataset; the same command goes on where one was stopped.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from tests.conftest import ROOT, real_data_dir

from plench.algorithms import find_algorithm
from plench.data import Dataset, TestSet, draw_candidates, load_dataset, split_dataset
from plench.data.candidates import REAL_CANDIDATES
from plench.estimator.attempt import Attempt, Material, attempt
from plench.estimator.classifier import STEPS, VALIDATION_FRACTION
from plench.estimator.search import PORTFOLIO, Budget, Searcher, choose, refit

DATASETS = ("Lost", "MSRCv2", "Birdsong", "Digits_FPS", "LabelMe_Crowd", "Music_Crowd")
N_RUNS = 20
CRITERIA = ("CR", "AA")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=5, help="splits of each dataset (5)")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), help="only these")
    parser.add_argument("--output_dir", type=Path, default=ROOT / "runs" / "auto", help="folder of records")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--report_only", action="store_true", help="only write the page")
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    if not options.report_only:
        jobs = [(dataset, split) for split in range(options.splits) for dataset in options.datasets]
        with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
            for done in pool.map(measure, jobs, [options.output_dir] * len(jobs)):
                print(done, flush=True)
    write_report(parser, options)


def measure(job: tuple[str, int], folder: Path) -> str:
    """Measure one split of a dataset, unless it is recorded."""
    dataset, split = job
    place = folder / f"{dataset}-{split}.json"
    if place.exists():
        return f"{dataset} split {split}: there"
    train, test = divide(dataset, split)
    material = Material(train)
    settings: dict[str, Any] = {"steps": STEPS, "seed": split, "trial_seed": split, "device": "cpu"}
    searcher = Searcher(material, Budget(runs=N_RUNS), "CR", VALIDATION_FRACTION, settings)
    found = searcher.run()
    record: dict[str, Any] = {"dataset": dataset, "split": split, "attempts": []}
    for tried in found.attempts:
        record["attempts"].append(describe(tried, test))
    record["refit"] = {}
    for criterion in CRITERIA:
        chosen = choose(found.attempts, criterion)
        number = found.attempts.index(chosen)
        if str(number) not in record["refit"]:
            made = refit(chosen, material, find_algorithm(chosen.config.algorithm))
            record["refit"][str(number)] = judge(made, test)
    entry = find_algorithm(PORTFOLIO[0])
    made = attempt(material.configure(entry, 0.0, **settings), material, entry)
    record["default"] = judge(made, test)
    place.with_suffix(".part").write_text(json.dumps(record))
    place.with_suffix(".part").replace(place)
    return f"{dataset} split {split}: {record['default']} {record['refit']}"


def divide(name: str, split: int) -> tuple[Dataset, TestSet]:
    """Return what a user would have, without any true label, and the test set."""
    folder = real_data_dir()
    if folder is not None and name.endswith("Crowd"):
        folder /= "crowd"
    data = load_dataset(name, folder)
    data = draw_candidates(data, data.card.candidates, split)
    rows, test = np.arange(data.n_examples), data.test
    if test is None:
        parts = split_dataset(data, split, holdout_fraction=0.0)
        assert parts.test is not None
        assert data.labels is not None
        rows, test = parts.train, TestSet(data.features[parts.test], data.labels[parts.test])
    card = replace(data.card, candidates=REAL_CANDIDATES, protocol_noise_rate=None)
    train = Dataset(
        data.features[rows],
        data.candidates[rows],
        None,
        card,
        answers=None if data.answers is None else data.answers.take_items(rows),
    )
    return train, test


def judge(tried: Attempt, test: TestSet) -> float | None:
    """Return an attempt's test accuracy in percent."""
    if tried.model is None:
        return None
    return 100 * float((tried.model.predict_logits(test.features).argmax(1) == test.labels).mean())


def describe(tried: Attempt, test: TestSet) -> dict[str, Any]:
    """Return what the page needs of an attempt, and what other rules of choice would need."""
    return {
        "algorithm": tried.config.algorithm,
        "configuration": tried.config.hparams_seed,
        "status": tried.status,
        "seconds": tried.seconds,
        "step": None if tried.model is None else tried.model.updates - 1,
        "test": judge(tried, test),
        "CR": "".join(str(int(value)) for value in tried.scores.get("CR", [])),
        "AA": [round(float(value), 4) for value in tried.scores.get("AA", [])],
    }


def write_report(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Placeholder until records are there."""


if __name__ == "__main__":
    main()
