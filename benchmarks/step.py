"""What a training step costs beside its floor: bare forward, backward and Adam of the same network.

    python benchmarks/step.py                       every algorithm on Lost and Italian, or on Digits_FPS
    python benchmarks/step.py -a CC PRODEN -d Lost --json step.json
    python benchmarks/step.py -a POP --sizes 1000 10000 100000    does the cost grow with N?
    python benchmarks/step.py --page                also writes docs/results/step.md

Each algorithm runs in a fresh process with one thread. A timed stretch is an epoch (50 to 800 steps) of
drawing batches and updating, so that work at the end of epochs counts. Stretches of the floor, on one batch
of the same shape, alternate with them. Medians are reported, for the ratio that of neighbouring stretches.
Before the first stretch every phase of the algorithm's schedule has begun, if it does so within 4,000
updates. The peak is the whole process's memory.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.conftest import real_data_dir

SYNTHETIC = "Synthetic_"
WARM_UP = 100
LONGEST_WARM_UP = 4000


def make_dataset(name: str, data_dir: Path | None) -> Any:
    """Load a dataset by name; `Synthetic_N` has N examples of 50 features, 10 classes, 3 candidates each."""
    import numpy as np

    from plench.data import Dataset, DatasetCard, load_dataset

    if not name.startswith(SYNTHETIC):
        return load_dataset(name, data_dir)
    num_examples = int(name.removeprefix(SYNTHETIC))
    random = np.random.default_rng(0)
    labels = random.integers(10, size=num_examples)
    classes = np.arange(10)
    candidates = (classes == labels[:, None]) | ((classes - labels[:, None]) % 10 <= 2)
    card = DatasetCard(name, "tabular", "none", "made up", "none", "none", default_steps=1000)
    return Dataset(random.normal(size=(num_examples, 50)), candidates, labels, card)


def time_stretch(step: Callable[[], object], count: int) -> float:
    """Return the milliseconds a step takes, over a stretch of steps."""
    begun = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - begun) / count * 1000


def measure(algorithm: str, dataset_name: str, data_dir: Path | None, batch_size: int, repeats: int) -> dict:
    """Measure one algorithm on one dataset, in this process."""
    import torch

    from plench.algorithms import find_algorithm
    from plench.algorithms.base import build_adam, build_network, descend
    from plench.storage.store import RunStore
    from plench.training.callbacks import NoCallback
    from plench.training.config import configure_run
    from plench.training.environment import flush_denormals
    from plench.training.run import TrainingRun

    torch.set_num_threads(1)
    dataset = make_dataset(dataset_name, data_dir)
    entry = find_algorithm(algorithm)
    config = configure_run(entry, dataset.card, hparams={"batch_size": batch_size}, device="cpu")
    store = RunStore(Path(tempfile.gettempdir()) / "unused")  # nothing is written before training begins
    run = TrainingRun(config, dataset, entry, store, NoCallback(), None)
    run.build()

    def step() -> None:
        run.algorithm.update(run.training_set.next_batch())

    batch = run.training_set.next_batch()
    network = build_network(run.data.input_shape, dataset.n_classes, run.config.hparams)
    optimizer = build_adam(network.parameters(), run.config.hparams)
    features = batch.view(entry.card.views[0])

    def floor() -> None:
        descend(optimizer, network(features).mean())

    def pass_alone() -> None:
        optimizer.zero_grad(set_to_none=True)
        network(features).mean().backward()

    with run.streams.ambient("algorithm"), flush_denormals():
        later = [first for first in run.algorithm.phases().values() if first <= LONGEST_WARM_UP]
        time_stretch(step, max([WARM_UP, *later]))
        stretch = min(max(50, len(run.training_set) // len(batch)), 800)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        time_stretch(floor, WARM_UP)
        times, floors, passes, draws = [], [], [], []
        for _ in range(repeats):
            times.append(time_stretch(step, stretch))
            floors.append(time_stretch(floor, min(stretch, 100)))
            passes.append(time_stretch(pass_alone, min(stretch, 100)))
            draws.append(time_stretch(run.training_set.next_batch, min(stretch, 100)))
    ms, floor_ms = statistics.median(times), statistics.median(floors)
    return {
        "algorithm": entry.name,
        "dataset": dataset_name,
        "examples": len(run.training_set),
        "batch_size": len(batch),
        "ms": round(ms, 4),
        "floor_ms": round(floor_ms, 4),
        "pass_ms": round(statistics.median(passes), 4),
        "draw_ms": round(statistics.median(draws), 4),
        "ratio": round(statistics.median(t / f for t, f in zip(times, floors, strict=True)), 3),
        "peak_mb": round(peak_mb, 1),
    }


def measure_in_fresh_process(algorithm: str, dataset: str, options: argparse.Namespace) -> dict:
    """Measure one algorithm on one dataset, in a process of its own."""
    command = [sys.executable, __file__, "--here", "-a", algorithm, "-d", dataset]
    command += ["--batch_size", str(options.batch_size), "--repeats", str(options.repeats)]
    if options.data_dir:
        command += ["--data_dir", str(options.data_dir)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: dict = json.loads(done.stdout)
    return row


def describe_costs(row: dict) -> list[str]:
    """Return the cells of one measurement."""
    own = max(0.0, row["ms"] - row["floor_ms"] - row["draw_ms"])
    return [f"{row['ms']:.2f}", f"{row['ratio']:.2f}", f"{own:.2f}", f"{row['peak_mb']:.0f}"]


def describe_floor(dataset: str, rows: list[dict]) -> str:
    """Say what all methods pay alike on a dataset, as medians over the rows."""
    draw, both, floor = (
        statistics.median(row[key] for row in rows) for key in ("draw_ms", "pass_ms", "floor_ms")
    )
    return (
        f"On {dataset} drawing a batch takes {draw:.3f} ms, forward and backward {both:.3f} ms and Adam "
        f"{floor - both:.3f} ms (medians over the algorithms)."
    )


def write_results(rows: list[dict], options: argparse.Namespace) -> None:
    """Write the page of results, an algorithm a row."""
    from experiments import render_table, write_page

    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    chosen = f" -d {' '.join(options.datasets)}" if options.datasets else ""
    head = [
        "algorithm",
        *(f"{what}, {name}" for name in datasets for what in ("ms", "ratio", "own ms", "MB")),
    ]
    table = []
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        of_dataset = {row["dataset"]: row for row in rows if row["algorithm"] == algorithm}
        table.append([algorithm, *(cell for name in datasets for cell in describe_costs(of_dataset[name]))])
    write_page(
        "step",
        [
            "# What a step costs",
            f"Written by `python benchmarks/step.py{chosen} --page`.",
            f"Milliseconds of a training step at batch {options.batch_size}, drawing the batch included; its "
            "ratio to the floor, which is forward, backward and Adam of the same network on one batch, "
            "measured in turns; and the peak memory of the process, interpreter and torch included. Default "
            "hyperparameters, each algorithm in a fresh process with one thread, in the last phase of its "
            f"schedule that begins within {LONGEST_WARM_UP:,} updates.",
            *(describe_floor(name, [row for row in rows if row["dataset"] == name]) for name in datasets),
            "Own is what a step takes beside these: the loss and its gradient, the revision of state, "
            "further passes. Where it is small, the network bounds the step: no method is faster than its "
            "floor.",
            "What bounds the methods that contrast with a queue (PiCO, DIRK, ALIM, PiCO_plus) are the two "
            "products of the batch with its 8,192 keys, one for the loss and one for its gradient; their "
            "pages say how they are made and what else is needed.",
            render_table(head, table),
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-a", "--algorithms", nargs="+", help="all by default")
    parser.add_argument("-d", "--datasets", nargs="+", help="Lost and Italian if there, else Digits_FPS")
    parser.add_argument("--sizes", nargs="+", type=int, help="synthetic data of these numbers of examples")
    parser.add_argument("--data_dir", type=Path, default=real_data_dir())
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--page", action="store_true", help="write docs/results/step.md")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        algorithm, dataset = options.algorithms[0], options.datasets[0]
        row = measure(algorithm, dataset, options.data_dir, options.batch_size, options.repeats)
        print(json.dumps(row))
        return
    if not options.algorithms:
        from plench.algorithms import algorithms

        options.algorithms = [name for name, entry in algorithms().items() if entry.card.shared]
    datasets = options.datasets or (["Lost", "Italian"] if options.data_dir else ["Digits_FPS"])
    if options.sizes:
        datasets = [f"{SYNTHETIC}{size}" for size in options.sizes]
    rows = []
    print(f"{'algorithm':10} {'dataset':18} {'batch':>5} {'ms':>8} {'floor':>8} {'ratio':>6} {'peak MB':>8}")
    for dataset in datasets:
        for algorithm in options.algorithms:
            row = measure_in_fresh_process(algorithm, dataset, options)
            rows.append(row)
            print(
                f"{row['algorithm']:10} {row['dataset']:18} {row['batch_size']:5} {row['ms']:8.3f} "
                f"{row['floor_ms']:8.3f} {row['ratio']:6.2f} {row['peak_mb']:8.1f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"benchmark": "step", "rows": rows}, indent=1) + "\n")
    if options.page:
        write_results(rows, options)


if __name__ == "__main__":
    main()
