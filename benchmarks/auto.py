"""The automatic choice compared with default PRODEN, the best single default and the choice of an oracle.

    python benchmarks/auto.py                    5 splits of six datasets; about an hour on two cores
    python benchmarks/auto.py --report_only      the page from the records that are there

Records are in runs/auto, a file per split; the same command resumes an interrupted one. Writes
docs/results/auto.md.
"""

import argparse
import json
import math
import os
import platform
import re
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from scipy import stats

from plench.algorithms import find_algorithm
from plench.data import Dataset, TestSet, draw_candidates, load_dataset, split_dataset
from plench.data.dataset import REAL_CANDIDATES
from plench.estimator.classifier import STEPS, VALIDATION_FRACTION
from plench.estimator.search import (
    PORTFOLIO,
    Attempt,
    Searcher,
    TrainingData,
    Trial,
    attempt,
    choose,
    train_on_all,
)

ROOT = Path(__file__).parents[1]
DATASETS = ("Lost", "MSRCv2", "Birdsong", "Digits_FPS", "LabelMe_Crowd", "Music_Crowd")
N_RUNS = 20
CRITERIA = ("CR", "AA")
SEEN = 0  # the split that was looked at when the rule of choice was made
CAUTIONS = (0.25, 0.5, 1.0)  # of which the estimator has one; the choices of all are trained on all data


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=5, help="splits of each dataset (5)")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), help="only these")
    parser.add_argument("--output_dir", type=Path, default=ROOT / "runs" / "auto", help="folder of records")
    parser.add_argument("--data_dir", type=Path, default=os.environ.get("PLENCH_DATA"), help="folder of data")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--report_only", action="store_true", help="only write the page")
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    if not options.report_only:
        jobs = [(dataset, split) for split in range(options.splits) for dataset in options.datasets]
        with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
            for done in pool.map(measure, jobs, repeat(options.output_dir), repeat(options.data_dir)):
                print(done, flush=True)
    write_report(options)


def measure(job: tuple[str, int], folder: Path, data_dir: Path | None) -> str:
    """Measure one split of a dataset, unless it is recorded."""
    dataset, split = job
    place = folder / f"{dataset}-{split}.json"
    if place.exists():
        return f"{dataset} split {split}: there"
    train, test = divide(dataset, split, data_dir)
    material = TrainingData(train)
    settings: dict[str, Any] = {"steps": STEPS, "seed": split, "trial_seed": split, "device": "cpu"}
    searcher = Searcher(material, "CR", VALIDATION_FRACTION, settings, runs=N_RUNS)
    searcher.run()
    trials = searcher.tried
    record: dict[str, Any] = {"dataset": dataset, "split": split}
    record["contenders"] = [describe(tried, test) for tried in trials]
    record["refit"] = {}
    for criterion, caution in product(CRITERIA, CAUTIONS):
        chosen = choose(searcher.usable, criterion, caution)
        number = trials.index(chosen)
        if str(number) not in record["refit"]:
            record["refit"][str(number)] = judge(train_on_all(chosen.first, material, chosen.entry), test)
    entry = find_algorithm(PORTFOLIO[0])
    made = attempt(material.configure(entry, 0.0, **settings), material, entry)
    record["default"] = judge(made, test)
    place.with_suffix(".part").write_text(json.dumps(record))
    place.with_suffix(".part").replace(place)
    return f"{dataset} split {split}: {record['default']} {record['refit']}"


def divide(name: str, split: int, data_dir: Path | None) -> tuple[Dataset, TestSet]:
    """Return what a user would have, without any true label, and the test set."""
    if data_dir is not None and name.endswith("Crowd"):
        data_dir = Path(data_dir) / "crowd"
    data = load_dataset(name, data_dir)
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


def describe(tried: Trial, test: TestSet) -> dict[str, Any]:
    """Return what the page needs of a contender, and what other rules of choice would need."""
    first = tried.first
    return {
        "algorithm": tried.entry.name,
        "configuration": tried.number,
        "status": first.status,
        "seconds": [each.seconds for each in tried.attempts],
        "step": None if first.model is None else first.model.updates - 1,
        "test": judge(first, test),
        "scores": [
            {
                "CR": "".join(str(int(value)) for value in each.scores.get("CR", [])),
                "AA": [round(float(value), 4) for value in each.scores.get("AA", [])],
            }
            for each in tried.attempts
        ],
    }


def read_records(options: argparse.Namespace, dataset: str) -> list[dict[str, Any]]:
    """Return the records of a dataset's splits, as many as there are."""
    places = [options.output_dir / f"{dataset}-{split}.json" for split in range(options.splits)]
    return [json.loads(place.read_text(encoding="utf-8")) for place in places if place.exists()]


def pick(record: dict[str, Any], criterion: str) -> int:
    """Return which contender the estimator chooses, by the rule that it has now."""
    contenders = []
    for each in record["contenders"]:
        attempts = [
            Attempt(
                cast(Any, None),
                each["status"],
                "",
                0.0,
                [],
                None,
                {"CR": np.array(list(scores["CR"]), float), "AA": np.array(scores["AA"])},
            )
            for scores in each["scores"]
        ]
        contenders.append(Trial(cast(Any, None), each["configuration"], attempts))
    usable = [
        found
        for found, each in zip(contenders, record["contenders"], strict=True)
        if each["test"] is not None
    ]
    return contenders.index(choose(usable, criterion))


def find_best_default(records: Sequence[dict[str, Any]]) -> tuple[str, list[float]]:
    """Return the method whose default configuration has the highest mean test accuracy, with its figures."""
    figures: dict[str, list[float]] = {}
    for record in records:
        for each in record["contenders"]:
            if each["configuration"] == 0 and each["test"] is not None:
                figures.setdefault(each["algorithm"], []).append(each["test"])
    whole = {name: values for name, values in figures.items() if len(values) == len(records)}
    name = max(whole, key=lambda each: statistics.mean(whole[each]))
    return name, whole[name]


def compare(first: Sequence[float], second: Sequence[float]) -> tuple[str, float]:
    """Return the mean difference with its paired 95 % interval (Student's t), and the upper end of it."""
    differences = np.subtract(first, second)
    mean = float(differences.mean())
    if len(differences) < 2:
        return f"{mean:+.1f}", math.inf
    half = float(
        stats.t.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / math.sqrt(len(differences))
    )
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})", mean + half


def summarise(values: Sequence[float]) -> str:
    """Return mean ± sample standard deviation."""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows])


def write_report(options: argparse.Namespace) -> None:
    """Write the page from the records that are there."""
    whole_rows, equal_rows, lost, fresh = [], [], [], []
    for dataset in options.datasets:
        records = read_records(options, dataset)
        if not records:
            continue
        attempts = [record["contenders"] for record in records]
        default = [record["default"] for record in records]
        row = [dataset, str(len(records)), summarise(default)]
        equal = {"PRODEN": [each[0]["test"] for each in attempts]}
        name, equal["best default"] = find_best_default(records)
        for criterion in CRITERIA:
            chosen = [pick(record, criterion) for record in records]
            made = [record["refit"].get(str(number)) for record, number in zip(records, chosen, strict=True)]
            equal[criterion] = [each[number]["test"] for each, number in zip(attempts, chosen, strict=True)]
            if None in made:
                row += ["–", "–"]
                continue
            text, high = compare(made, default)
            row += [summarise(made), text]
            if high < 0:
                lost.append(f"{dataset} by {criterion}")
            unseen = [number for number, record in enumerate(records) if record["split"] != SEEN]
            if criterion == CRITERIA[0] and unseen:
                pairs = [made[number] for number in unseen], [default[number] for number in unseen]
                fresh.append(f"{dataset} {compare(*pairs)[0]}")
        whole_rows.append(row)
        equal["oracle"] = [max(each["test"] or 0.0 for each in found) for found in attempts]
        cells = [f"{summarise(values)}" for values in equal.values()]
        cells[1] += f" ({name})"
        costs = [compare(equal["oracle"], equal[criterion])[0] for criterion in CRITERIA]
        equal_rows.append([dataset, *cells, *costs])
    counts = {row[0]: row[1] for row in whole_rows}
    short = [
        f"{name} ({counts.get(name, 0)})"
        for name in options.datasets
        if counts.get(name) != str(options.splits)
    ]
    measured = f"All {options.splits} splits are measured."
    if short:
        measured = (
            f"Not all of the {options.splits} splits are measured yet: {', '.join(short)}. A row of one "
            "split has no interval and says nothing about noise."
        )
    told = [row[0] for row in whole_rows if int(row[1]) > 1]
    verdict = "Whether it loses to default PRODEN beyond noise cannot be told: no dataset has two splits."
    if told:
        verdict = (
            f"Of {', '.join(told)} it loses to default PRODEN beyond noise on: {', '.join(lost) or 'none'}."
        )
    parts = [
        "# The automatic choice",
        f"Written by `python benchmarks/auto.py --splits {options.splits}` from the records of its runs.",
        f'`PartialLabelClassifier("auto", n_runs={N_RUNS})` compared with default PRODEN, {STEPS:,} updates '
        "per run; no true label is used before the test. Test accuracy in percent: mean ± sample standard "
        "deviation; differences with paired 95 % intervals (Student's t over splits, taken as independent; "
        "a correction for their overlap would widen them by about a quarter). LabelMe_Crowd and "
        "Music_Crowd have one test set: their splits differ in what is held out and in seeds. The runs "
        "are those of a search by CR, among which CR and AA choose.",
        measured,
        "## The whole procedure against default PRODEN",
        "Default PRODEN learns from all examples that are not test. The automatic choice holds out a "
        "fifth, chooses by CR or by AA, and trains the choice once more on all. " + verdict,
        "The rule of choice (its caution, further splits, finalists) was changed three times with test "
        f"accuracies of split {SEEN} in view, so that it is optimistic; the other splits were not looked "
        f"at. The difference by {CRITERIA[0]} on those alone: {'; '.join(fresh) or 'not measured'}.",
        render_table(
            [
                "dataset",
                "splits",
                "default PRODEN",
                "auto by CR",
                "difference",
                "auto by AA",
                "difference",
            ],
            whole_rows,
        ),
        "## The cost of choosing without true labels",
        "Here every model learns from the same four fifths. The best default is chosen in hindsight, one "
        "method per dataset; the oracle takes on each split, among the same runs, the one with the highest "
        "test accuracy, which no choice without true labels can know. The cost is the lead of the "
        "oracle.",
        render_table(
            [
                "dataset",
                "default PRODEN",
                "best default",
                "auto by CR",
                "auto by AA",
                "oracle",
                "cost of CR",
                "cost of AA",
            ],
            equal_rows,
        ),
        f"Made with Python {platform.python_version()} and torch {torch.__version__} on "
        f"{platform.machine()}, one thread per run.",
    ]
    path = ROOT / "docs" / "results" / "auto.md"
    # What benchmarks/portfolio.py adds at the end of the page stays.
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    added = re.search(r"<!-- benchmarks/portfolio.py: begin.*", old, re.DOTALL)
    parts += [added[0].rstrip("\n")] if added else []
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
