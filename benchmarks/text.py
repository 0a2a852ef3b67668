"""Two datasets of texts labelled by several people, default hyperparameters; writes docs/results/text.md.

    python benchmarks/text.py --data-dir DIR                                     TF-IDF
    python benchmarks/text.py --data-dir DIR --text-encoder sentence-transformers:FOLDER --title MiniLM
    python benchmarks/text.py --data-dir DIR --report-only                       the page from the records

The runs are in runs/text, a folder per encoding; the same command resumes an interrupted one. The page shows
every encoding that has runs there.
"""

import argparse
import os
import platform
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

import plench
from plench.data import Dataset
from plench.data.answers import count_votes
from plench.runs import read_runs

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "text.md"
ALGORITHMS = {
    "EmotionLines": ("PRODEN", "CC", "LR_EM", "MV_LR"),
    "SentimentPolarity": ("PRODEN", "CC", "LR_EM", "MV_LR", "DS_LR"),
}
ROUNDS = ("LR_EM", "MV_LR", "DS_LR")  # fitted in rounds, not in steps
STEPS = 2000
TRIALS = 5
TFIDF = "TF-IDF"


def train(options: argparse.Namespace) -> None:
    """Make the runs of one encoding that are not there yet."""
    encoder = f"?text_encoder={options.text_encoder}" if options.text_encoder else ""
    for data, algorithms in ALGORITHMS.items():
        for algorithm in algorithms:
            steps: dict[str, Any] = {} if algorithm in ROUNDS else {"steps": STEPS}
            plench.sweep(
                algorithm,
                data + encoder,
                options.output_dir / options.title,
                n_hparams=1,
                n_trials=TRIALS,
                data_dir=options.data_dir,
                workers=options.workers,
                device="cpu",
                skip_model_save=True,
                **steps,
            )


def read_accuracies(folder: Path) -> dict[tuple[str, str], list[float]]:
    """Return test accuracies of the last records in percent, by dataset and algorithm, in order of splits."""
    found: dict[tuple[str, str], list[float]] = {}
    runs = [run for run in read_runs(folder) if run.status == "done"]
    for run in sorted(runs, key=lambda run: run.trial_seed):
        data = next(name for name in ALGORITHMS if run.experiment.dataset.startswith(name))
        cell = found.setdefault((data, run.experiment.algorithm), [])
        cell.append(100 * run.records[-1].values["test_acc"])
    short = [
        f"{name} on {data}"
        for data, names in ALGORITHMS.items()
        for name in names
        if len(found.get((data, name), ())) != TRIALS
    ]
    if short:
        raise SystemExit(f"{folder}: runs of {', '.join(short)} are missing; run without --report-only")
    return found


def render_table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def describe(data: str, dataset: Dataset) -> str:
    """Return what the accuracies have to be compared with."""
    assert dataset.labels is not None
    assert dataset.test is not None
    assert dataset.answers is not None
    frequent = int(np.bincount(dataset.labels).argmax())
    votes = count_votes(dataset.answers)
    majority = votes == votes.max(1, keepdims=True)
    rows = np.arange(len(votes))
    agreed = (majority / majority.sum(1, keepdims=True))[rows, dataset.labels].mean()
    lengths, texts = [], []
    for features in (dataset.features, dataset.test.features):
        (column,) = features.columns  # type: ignore[union-attr]
        texts.append([column.categories[code] for code in column.values])
        lengths.append(statistics.median(len(text.split()) for text in texts[-1]))
    known = {text.lower() for text in texts[0]}
    repeated = sum(text.lower() in known for text in texts[1])
    always = (dataset.test.labels == frequent).mean()
    return (
        f"{data}: {dataset.n_examples:,} training examples, {dataset.n_classes} classes, "
        f"{dataset.mean_candidates:.2f} candidates on average, {dataset.noise_rate:.1%} of the sets miss the "
        f"true label, {len(dataset.answers.item) / dataset.n_examples:.1f} votes per example. The most "
        f"frequent vote (ties count in parts) is the true label of {agreed:.1%}. Always answering the most "
        f"frequent class of the training part gets {always:.1%} of the {len(dataset.test.labels):,} test "
        f"examples. A text has {lengths[0]:g} words in the median, one of the test set {lengths[1]:g}; "
        f"{repeated:,} test texts also occur in the training part."
    )


def compare(data: str, titles: list[str], found: dict[str, dict[tuple[str, str], list[float]]]) -> list[str]:
    """Return the table of a dataset, and how far the others are from the best."""
    rows = []
    for name in ALGORITHMS[data]:
        cells = [found[title][data, name] for title in titles]
        rows.append([name, *(f"{statistics.mean(own):.1f} ± {statistics.stdev(own):.1f}" for own in cells)])
    sentences = []
    for title in titles:
        means = {name: statistics.mean(found[title][data, name]) for name in ALGORITHMS[data]}
        best = max(means, key=means.__getitem__)
        gaps = []
        for name in ALGORITHMS[data]:
            if name != best:
                gap = np.subtract(found[title][data, name], found[title][data, best])
                half = stats.t.ppf(0.975, TRIALS - 1) * gap.std(ddof=1) / TRIALS**0.5
                gaps.append(
                    f"{name} {gap.mean():+.1f} ({gap.mean() - half:+.1f} to {gap.mean() + half:+.1f})"
                )
        sentences.append(f"{title}: {best} has the highest mean; compared with it, {', '.join(gaps)}.")
    return [render_table(["algorithm", *titles], rows), " ".join(sentences)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output-dir", type=Path, default=ROOT / "runs" / "text", help="folder of runs")
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("PLENCH_DATA"), help="folder of data")
    parser.add_argument("--text-encoder", help="a pretrained encoder in place of TF-IDF")
    parser.add_argument("--title", help="what the page calls the encoding")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    parser.add_argument("--report-only", action="store_true", help="make no runs")
    options = parser.parse_args()
    if bool(options.text_encoder) != bool(options.title):
        parser.error("--text-encoder and --title belong together")
    options.title = options.title or TFIDF
    if not options.report_only:
        train(options)
    titles = sorted(
        (path.name for path in options.output_dir.iterdir()), key=lambda name: (name != TFIDF, name)
    )
    found = {title: read_accuracies(options.output_dir / title) for title in titles}
    parts = [
        "# Texts that several people labelled",
        "Written by `benchmarks/text.py` from the records of its runs.",
        f"Percent of the dataset's own test set after the last of {STEPS:,} steps, or after the fit of a "
        f"classical method: mean ± sample standard deviation over {TRIALS} splits of the training part into "
        "training and validation, each with its own seed. Default hyperparameters, no early stopping, no "
        "search. Candidate sets are the unions of answers. The test set is the same in all splits: the "
        "deviations and the 95 % t-intervals of differences in pairs do not include the chance of which "
        "texts are in it.",
    ]
    for data in ALGORITHMS:
        dataset = plench.Dataset.load(data, options.data_dir)
        parts += [f"## {data}", describe(data, dataset), *compare(data, titles, found)]
    parts.append(
        f"Made with Python {platform.python_version()} and torch {torch.__version__} on "
        f"{platform.machine()}, one thread per run."
    )
    PAGE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
