"""How long reading and tabulating a full benchmark takes: 17,000 runs × 11 records.

Goal: 4 seconds of processor time.

    python benchmarks/collect.py [--runs 17000] [--keep DIR]

Trains one short run of FREDIS, whose records are long, writes its files again and again to a temporary folder
with other names, seeds and figures, then times `plench collect` on it in a fresh process, as a user meets it,
and the parts of it in this one. On a machine that does other things too, look at the CPU seconds.
"""

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from plench.report.layout import build_tables
from plench.report.leaderboard import build_leaderboard
from plench.report.tables import render_text
from plench.runs import read_runs

DATASETS = 11
N_TRIALS = 3
N_HPARAMS = 20
N_RECORDS = 11
FIGURES = ("val_accuracy", "val_covering_rate", "val_approximated_acc", "test_acc")


def train_one(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return run.json and the records of a real run."""
    from plench.algorithms import find_algorithm
    from plench.data import load_dataset
    from plench.training import configure_run, run_training

    data, method = load_dataset("Digits_FPS"), find_algorithm("FREDIS")
    config = configure_run(method, data.card, steps=N_RECORDS, checkpoint_freq=1)
    outcome = run_training(config, data, method, folder)
    lines = (outcome.folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return json.loads((outcome.folder / "run.json").read_text(encoding="utf-8")), list(map(json.loads, lines))


def write_many(root: Path, n_runs: int) -> None:
    """Write runs over 11 datasets, 3 splits and 20 configurations; the number of algorithms follows."""
    with tempfile.TemporaryDirectory() as folder:
        info, records = train_one(Path(folder))
    rng = np.random.default_rng(0)
    for number in range(n_runs):
        rest, configuration = divmod(number, N_HPARAMS)
        rest, trial = divmod(rest, N_TRIALS)
        algorithm, dataset = divmod(rest, DATASETS)
        names = {"dataset": f"Dataset{dataset}", "algorithm": f"Algorithm{algorithm}"}
        seeds = {"trial_seed": trial, "hparams_seed": configuration}
        info["run_id"] = f"{number:032x}"
        info["experiment"].update(names)
        info["config"].update(names | seeds)
        folder = root / info["run_id"]
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
        for record in records:
            record["args"].update(names | seeds)
            record.update(zip(FIGURES, rng.uniform(0.3, 0.9, size=len(FIGURES)).tolist(), strict=True))
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / "results.jsonl").write_text(text, encoding="utf-8")
        (folder / "done").write_text("done\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=17_000)
    parser.add_argument("--keep", type=Path, help="write the sweep here and keep it")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        root = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not (root.is_dir() and any(root.iterdir())):
            write_many(root, options.runs)
        start, busy = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "plench.collect_results", "--input_dir", str(root)],
            check=True,
            stdout=subprocess.PIPE,
        )
        whole = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime - busy.ru_utime - busy.ru_stime
        start = time.perf_counter()
        runs = read_runs(root)
        reading = time.perf_counter() - start
        start = time.perf_counter()
        text = render_text(build_tables(build_leaderboard(runs)))
        tabulating = time.perf_counter() - start
        size = sum(file.stat().st_size for file in runs[0].path.iterdir())
    figures = {
        "runs": len(runs),
        "records": sum(len(run.records) for run in runs),
        "bytes_per_run": size,
        "command_seconds": round(whole, 2),
        "command_cpu_seconds": round(cpu, 2),
        "reading_seconds": round(reading, 2),
        "tabulating_seconds": round(tabulating, 2),
        "characters_printed": len(done.stdout),
        "characters_rendered": len(text),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
