"""How long reading and tabulating a full benchmark takes: 17,000 runs × 11 records (goal: under 10 seconds).

    python benchmarks/collect.py [--runs 17000] [--keep DIR]

Writes a made-up sweep in the real schema to a temporary folder, then times `plench collect` on it in a fresh
process, as a user meets it, and the parts of it in this one. On a machine that does other things too, look at
the CPU seconds.
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

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.synthetic_sweep import make_records, write_run

from plench.report.grids import build_grids
from plench.report.leaderboard import build_leaderboard
from plench.report.tables import render_text
from plench.results import read_runs

DATASETS = 11
N_TRIALS = 3
N_HPARAMS = 20


def write_many(root: Path, n_runs: int) -> None:
    """Write runs over 11 datasets, 3 splits and 20 configurations; the number of algorithms follows."""
    rng = np.random.default_rng(0)
    hparams = {"lr": 1e-3, "weight_decay": 1e-5, "batch_size": 128, "model": "MLP", "max_steps": 1000}
    for number in range(n_runs):
        rest, configuration = divmod(number, N_HPARAMS)
        rest, trial = divmod(rest, N_TRIALS)
        algorithm, dataset = divmod(rest, DATASETS)
        write_run(
            root / f"{number:032x}",
            make_records(float(rng.uniform(0.3, 0.8)), rng),
            f"Dataset{dataset}",
            f"Algorithm{algorithm}",
            trial,
            configuration,
            hparams=hparams,
        )


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
        text = render_text(build_grids(build_leaderboard(runs)))
        tabulating = time.perf_counter() - start
    figures = {
        "runs": len(runs),
        "records": sum(len(run.records) for run in runs),
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
