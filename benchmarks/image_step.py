"""What a training step on images costs beside the network: views, the method, evaluation, memory.

    python benchmarks/image_step.py                                made-up images of CIFAR's size and number
    python benchmarks/image_step.py --data_dir DIR --json out.json PLCIFAR10 from DIR
    python benchmarks/image_step.py --page                         also writes docs/results/image_step.md

One process, one thread, its processor time. What is compared is measured in turns, and medians over the turns
are reported. The floor is the bare network on one batch of the same memory format: forward, backward, Adam.
The share of the views is the time to make the batch's views, measured alone, over the time of the whole step.
Methods with a warm-up are measured as they are after it.
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments import render_table, write_page
from plench.algorithms import find_algorithm
from plench.algorithms.base import build_adam, build_network, descend
from plench.batch import VIEWS
from plench.data import Dataset, DatasetCard, TestSet, load_dataset
from plench.runs.folder import RunStore
from plench.training.callbacks import NoCallback
from plench.training.config import configure_run
from plench.training.evaluate import choose_chunk
from plench.training.run import TrainingRun

GOALS = {"weak": 40, "strong": 250, "distill": 120}
CHUNKS = (16, 32, 64, 128, 256, 512, 1024)
# Hyperparameters that end a warm-up, for a method that has one; 0 means that it has ended.
WARM_UPS = ("prot_start", "warm_up", "warm_up_epoch", "knn_start")


def peak_mb() -> float:
    """Return the process's peak memory so far."""
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def take_turns(tasks: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Time each task once per turn; return the median seconds of each.

    Processor time, which on one thread is what a quiet machine would take: waiting for others is left out.
    """
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for task in tasks.values():
        task()
    for _ in range(turns):
        for name, task in tasks.items():
            begun = time.process_time()
            task()
            times[name].append(time.process_time() - begun)
    return {name: statistics.median(taken) for name, taken in times.items()}


def make_images(count: int = 50_000) -> Dataset:
    """Make up images of CIFAR-10's size: smooth noise, three candidates each."""
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (count + 1000, 3, 8, 8), dtype=np.uint8)
    images = coarse.repeat(4, axis=2).repeat(4, axis=3)
    labels = random.integers(10, size=len(images))
    candidates = (np.arange(10) - labels[:count, None]) % 10 <= 2
    card = DatasetCard("MadeUp", "image", "none", "made up", "none", "none", default_steps=1000)
    return Dataset(images[:count], candidates, labels[:count], card, TestSet(images[count:], labels[count:]))


def build_run(name: str, dataset: Dataset, model: str, batch_size: int) -> TrainingRun:
    """Build a run as training does, before its first update."""
    entry = find_algorithm(name)
    own = {parameter.name for parameter in entry.card.hyperparameters}
    hparams = {"batch_size": batch_size, "model": model, **dict.fromkeys(own.intersection(WARM_UPS), 0)}
    config = configure_run(entry, dataset.card, hparams=hparams, device="cpu")
    store = RunStore(Path(tempfile.gettempdir()) / "unused")  # nothing is written before training begins
    run = TrainingRun(config, dataset, entry, store, NoCallback(), None)
    run.build()
    return run


def measure_views(dataset: Dataset, batch_size: int, turns: int) -> list[dict[str, Any]]:
    """Measure each view on random batches, made into network inputs."""
    run = build_run("PRODEN", dataset, "CNN", batch_size)
    inputs, stored = run.data.inputs, run.data.train
    generator = torch.Generator().manual_seed(0)

    def make(view: str) -> Callable[[], object]:
        def task() -> None:
            index = torch.randint(len(stored), (batch_size,), generator=generator)
            inputs.views(stored, index, (view,), generator)

        return task

    times = take_turns({view: make(view) for view in VIEWS}, turns)
    return [
        {"view": view, "batch_size": batch_size, "us": seconds / batch_size * 1e6, "goal": GOALS.get(view)}
        for view, seconds in times.items()
    ]


def measure_steps(
    algorithms: list[str], dataset: Dataset, model: str, batch_size: int, turns: int
) -> list[dict[str, Any]]:
    """Measure steps of algorithms, the making of their views, and the floor, in turns."""
    runs = {name: build_run(name, dataset, model, batch_size) for name in algorithms}
    first = next(iter(runs.values()))
    network = build_network(first.data.input_shape, dataset.n_classes, first.config.hparams)
    optimizer = build_adam(network.parameters(), first.config.hparams)
    features = first.training_set.next_batch().weak

    def step(run: TrainingRun) -> Callable[[], object]:
        return lambda: run.algorithm.update(run.training_set.next_batch())

    def views(run: TrainingRun) -> Callable[[], object]:
        return run.training_set.next_batch

    tasks: dict[str, Callable[[], object]] = {"floor": lambda: descend(optimizer, network(features).mean())}
    for name, run in runs.items():
        tasks[name] = step(run)
        tasks[f"views of {name}"] = views(run)
    times = take_turns(tasks, turns)
    return [
        {
            "algorithm": name,
            "model": model,
            "batch_size": batch_size,
            "ms": times[name] * 1000,
            "floor_ms": times["floor"] * 1000,
            "ratio": times[name] / times["floor"],
            "views_ms": times[f"views of {name}"] * 1000,
            "views_percent": 100 * times[f"views of {name}"] / times[name],
        }
        for name in algorithms
    ]


def measure_evaluation(dataset: Dataset, model: str, turns: int) -> list[dict[str, Any]]:
    """Measure a forward pass without gradients in chunks of several sizes."""
    run = build_run("PRODEN", dataset, model, 64)
    algorithm = run.algorithm.eval()
    count = min(1024, len(run.data.train))
    x: Tensor = run.data.inputs.original(run.data.train[:count])

    def predict(chunk: int) -> Callable[[], object]:
        def task() -> None:
            with torch.no_grad():
                for start in range(0, count, chunk):
                    algorithm.predict(x[start : start + chunk])

        return task

    chosen = choose_chunk(run.data.train)
    chunks = sorted({*CHUNKS, chosen})
    times = take_turns({str(chunk): predict(chunk) for chunk in chunks}, turns)
    return [
        {"model": model, "chunk": chunk, "us": times[str(chunk)] / count * 1e6, "ours": chosen}
        for chunk in chunks
    ]


def print_rows(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}")
    print("  ".join(f"{key:>11}" for key in rows[0]))
    for row in rows:
        cells = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values())
        print("  ".join(f"{cell:>11}" for cell in cells), flush=True)


def render_rows(rows: list[dict[str, Any]], titles: dict[str, str]) -> str:
    """Return rows as a table in Markdown, with these columns under these titles."""

    def render(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.3g}" if value < 100 else f"{value:.0f}"
        return "–" if value is None else str(value)

    return render_table([*titles.values()], [[render(row[key]) for key in titles] for row in rows])


def write_results(results: dict[str, Any], data: str, options: argparse.Namespace) -> None:
    """Write the page of results."""
    view = {"view": "view", "batch_size": "batch", "us": "µs", "goal": "goal"}
    step = {
        "algorithm": "algorithm",
        "batch_size": "batch",
        "ms": "ms",
        "floor_ms": "floor",
        "ratio": "ratio",
    }
    step |= {"views_ms": "views, ms", "views_percent": "views, % of the step"}
    memory = {"images_mb": "images", "start_mb": "before loading", "loaded_mb": "after loading"}
    memory |= {"prepared_mb": "after preparing", "peak_mb": "after training steps"}
    given = " --data_dir DIR" if options.data_dir else ""
    write_page(
        "image_step",
        [
            "# What a step on images costs beside the network",
            f"Written by `python benchmarks/image_step.py{given} --page`; images: {data}.",
            "One process, one thread, processor time. What is compared is measured in turns; medians are "
            "shown. On a machine that does other things too, differences of a tenth mean nothing.",
            "## Views, microseconds per image",
            "From the stored images to network inputs. Goals are those of the project.",
            render_rows(results["views"], view),
            f"## Steps with {options.model}, milliseconds",
            "Floor: forward, backward and Adam of the bare network on one batch of the same memory format. "
            "Views were also measured alone; their share is of the whole step. PiCO is past its warm-up: it "
            "passes a second network without a gradient and compares with a queue, which the floor does not.",
            render_rows(results["steps"], step),
            "## Evaluation, microseconds per image",
            "A forward pass without a gradient, by images per pass; "
            f"runs take {results['evaluation'][0]['ours']}.",
            render_rows(results["evaluation"], {"chunk": "images per pass", "us": "µs"}),
            "## Memory, peak of the process in MB",
            "Images are kept once, as uint8, for all parts of the split.",
            render_rows(results["memory"], memory),
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", type=Path, help="folder with cifar-10-batches-py and plcifar10.pkl")
    parser.add_argument("-a", "--algorithms", nargs="+", default=["PRODEN", "PiCO"])
    parser.add_argument("--model", default="ResNet")
    parser.add_argument("--batch_sizes", nargs="+", type=int, default=[64, 256])
    parser.add_argument(
        "--turns", type=int, default=5, help="turns of whole steps; views take 10 times as many"
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--page", action="store_true", help="write docs/results/image_step.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    before = peak_mb()
    dataset = load_dataset("PLCIFAR10_Aggregate", options.data_dir) if options.data_dir else make_images()
    loaded = peak_mb()
    results: dict[str, Any] = {"benchmark": "image_step", "torch": torch.__version__}
    results["views"] = [
        row for size in options.batch_sizes for row in measure_views(dataset, size, 10 * options.turns)
    ]
    print_rows("views, µs per image", results["views"])
    prepared = peak_mb()
    results["steps"] = [
        row
        for size in options.batch_sizes
        for row in measure_steps(options.algorithms, dataset, options.model, size, options.turns)
    ]
    print_rows("steps", results["steps"])
    results["evaluation"] = measure_evaluation(dataset, options.model, options.turns)
    print_rows("evaluation, µs per image", results["evaluation"])
    results["memory"] = [
        {
            "images_mb": (dataset.features.nbytes + (dataset.test.features.nbytes if dataset.test else 0))
            / 2**20,
            "start_mb": before,
            "loaded_mb": loaded,
            "prepared_mb": prepared,
            "peak_mb": peak_mb(),
        }
    ]
    print_rows("memory, peak of the process", results["memory"])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.page:
        write_results(
            results, dataset.card.name if options.data_dir else "made up, of CIFAR-10's size", options
        )


if __name__ == "__main__":
    main()
