"""Features that stay in their file: memory compared with the data's size, and a step's time with N.

    python benchmarks/mapped.py                      10,000, 100,000 and 1,000,000 × 512 (needs 2.1 GB)
    python benchmarks/mapped.py --sizes 10000 100000 --columns 64

Each size runs in a fresh process with one thread: it loads the file, prepares a split, and trains PRODEN. The
peak is the whole process's: Python and torch, and the part of the file that the system keeps in memory.
Stretches of steps alternate with stretches of updates on one batch, the baseline; their ratio says what
gathering costs, whatever else the machine does. The last column is the same of features in memory, in a
process of their own: what grows with N in both is the way from memory to processor, since the rows of a small
dataset stay in the processor's cache. Prints a table.
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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plench.algorithms import find_algorithm
from plench.data import load_dataset
from plench.runs.folder import RunStore
from plench.training import configure_run
from plench.training.run import TrainingRun

STRETCHES = 15
STRETCH = 40
CLASSES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and time of features that stay in their file.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--folder", type=Path, help="where the files are made (default: a temporary folder)")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--in_memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.in_memory)))
        return
    print(
        f"{'N':>10} {'data GB':>8} {'peak GB':>8} {'peak/data':>10} {'step ms':>8} {'step/batch':>11} "
        f"{'in memory':>10}"
    )
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            write_data(Path(folder), size, arguments.columns)
            command = [sys.executable, __file__, "--measure", folder]
            row, held = (
                json.loads(
                    subprocess.run([*command, *more], check=True, capture_output=True, text=True).stdout
                )
                for more in ([], ["--in_memory"])
            )
        data, peak = row["data_gb"], row["peak_gb"]
        times = f"{row['step_ms']:>8.3f} {row['ratio']:>11.2f} {held['ratio']:>10.2f}"
        print(f"{size:>10,} {data:>8.3f} {peak:>8.3f} {peak / data:>10.2f} {times}", flush=True)


def write_data(folder: Path, size: int, columns: int) -> None:
    """Write features in parts, so that this process needs no room for them."""
    random = np.random.default_rng(0)
    shape = (size, columns)
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float32, shape)
    for start in range(0, size, 10_000):
        features[start : start + 10_000] = random.standard_normal((min(10_000, size - start), columns), "f4")
    features.flush()
    candidates = random.random((size, CLASSES)) < 0.3
    candidates[np.arange(size), random.integers(0, CLASSES, size)] = True
    np.save(folder / "candidates.npy", candidates)


def measure(folder: str, in_memory: bool) -> dict[str, Any]:
    """Train on the features, mapped or read; return their size, the peak and the median time of a step."""
    torch.set_num_threads(1)
    dataset = load_dataset(folder)
    if in_memory:
        dataset = replace(dataset, features=np.array(dataset.features))
    entry = find_algorithm("PRODEN")
    config = configure_run(entry, dataset.card, steps=STRETCHES * STRETCH, device="cpu")
    run = TrainingRun(config, dataset, entry, RunStore(Path(folder) / "run"))
    run.build()
    fixed = run.training_set.next_batch()
    steps, ratios = [], []
    for _ in range(STRETCHES):
        step = time_updates(lambda: run.algorithm.update(run.training_set.next_batch()))
        fixed_batch = time_updates(lambda: run.algorithm.update(fixed))
        steps.append(step)
        ratios.append(step / fixed_batch)
    assert isinstance(dataset.features, np.ndarray)
    return {
        "data_gb": dataset.features.nbytes / 2**30,
        "peak_gb": peak_bytes() / 2**30,
        "step_ms": statistics.median(steps) * 1e3,
        "ratio": statistics.median(ratios),
    }


def time_updates(update: Callable[[], Any]) -> float:
    """Return the seconds that an update takes, the mean of a stretch."""
    begun = time.perf_counter()
    for _ in range(STRETCH):
        update()
    return (time.perf_counter() - begun) / STRETCH


def peak_bytes() -> int:
    """Return the process's peak of resident memory; what its parent once had does not count."""
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().split("\n") if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
