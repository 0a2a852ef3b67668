"""Speed of sweeps: rate of the local engine and of Ray, share of training, memory, and 20,000 finished runs.

    python benchmarks/sweep.py --data_dir DIR [--only local public ray status]

Every figure comes from whole commands in fresh processes, start-up included, with two workers.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from plench.algorithms import algorithms
from plench.sweep.plan import DataShelf, expand, settle
from plench.sweep.spec import Grid, SweepSpec

WORKERS = 2
N_FINISHED = 20_000


def run_sweep(output_dir: Path, *arguments: str) -> float:
    """Carry out a sweep command; return its wall time."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "plench.sweep", *arguments, "--output_dir", str(output_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - begun


def read_training_seconds(output_dir: Path) -> list[float]:
    """Return the seconds of training of every run."""
    return [
        json.loads(path.read_text(encoding="utf-8"))["timings"]["training_seconds"]
        for path in output_dir.glob("*/run.json")
    ]


def measure(title: str, output_dir: Path, *arguments: str) -> float:
    """Carry out a sweep and print its figures; return runs per minute."""
    seconds = run_sweep(output_dir, "launch", *arguments)
    training = read_training_seconds(output_dir)
    rate = 60 * len(training) / seconds
    share = sum(training) / (WORKERS * seconds)
    print(
        f"{title}: {len(training)} runs in {seconds:.1f} s, {rate:.1f} runs/min, "
        f"{share:.1%} of the workers' time is training",
        flush=True,
    )
    return rate


def vanilla_names() -> list[str]:
    return [name for name, entry in algorithms().items() if entry.card.family.startswith("vanilla")]


def measure_engines(folder: Path, data_dir: str, only: list[str]) -> None:
    grid = [
        *("--datasets", "Lost", "--data_dir", data_dir, "--algorithms", *vanilla_names()),
        *("--n_hparams", "4", "--n_trials", "2", "--steps", "500"),
    ]
    local = ray = None
    if "local" in only:
        local = measure("local engine", folder / "local", *grid, "--workers", str(WORKERS))
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"largest process: {peak:.0f} MB", flush=True)
    if "ray" in only:
        launcher = ["--command_launcher", "ray", "--workers", str(WORKERS)]
        ray = measure("Ray on one node", folder / "ray", *grid, *launcher)
    if local and ray:
        print(f"Ray has {ray / local:.0%} of the local engine's rate", flush=True)


def measure_public(folder: Path, data_dir: str) -> None:
    """The sweep that the public code's launcher took 162 s for on such a machine."""
    measure(
        "CC and SCL_NL × 3 configurations × 2 splits × 2,001 steps",
        folder / "public",
        *("--datasets", "Lost", "--data_dir", data_dir, "--algorithms", "CC", "SCL_NL"),
        *("--n_hparams", "3", "--n_trials", "2", "--steps", "2001", "--workers", str(WORKERS)),
    )


def measure_status(folder: Path) -> None:
    """Plan and status of many finished runs (folders made up, as training would leave them)."""
    names = tuple(name for name, entry in algorithms().items() if entry.source is None)
    datasets = ("Digits_USS", "Digits_FPS", "Digits_ID")
    n_trials = -(-N_FINISHED // (len(names) * len(datasets) * 20))
    spec = settle(SweepSpec((Grid(names, datasets, n_trials=n_trials),)), DataShelf(None))
    runs = expand(spec)
    output_dir = folder / "finished"
    for run in runs:
        place = output_dir / run.folder
        place.mkdir(parents=True)
        config = run.config
        fingerprint = spec.fingerprints[run.dataset]
        info = {
            "schema": 1,
            "run_id": config.run_id(fingerprint),
            "protocol": 1,
            "status": "done",
            "experiment": config.experiment(fingerprint),
            "config": config.to_json(),
            "filler": "x" * 2000,  # run.json also has cards and versions
        }
        (place / "run.json").write_text(json.dumps(info, indent=1))
        record = {"loss": 1.0, "hparams": dict(config.hparams), "args": config.args()}
        steps = (*range(0, config.steps, config.checkpoint_freq), config.steps - 1)
        (place / "results.jsonl").write_text("".join(json.dumps({"step": s, **record}) + "\n" for s in steps))
        (place / "done").touch()
    spec.write(output_dir / spec.file_name)
    plan = run_sweep(output_dir, "plan", "--probe_seconds", "0")
    status = run_sweep(output_dir, "status")
    print(f"{len(runs)} finished runs: plan {plan:.2f} s, status {status:.2f} s (whole commands)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data_dir", default=os.environ.get("PLENCH_DATA"), help="folder with lost.mat")
    sections = ["local", "ray", "public", "status"]
    parser.add_argument("--only", nargs="+", choices=sections, default=sections)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.data_dir is None and set(arguments.only) - {"status"}:
            sys.exit("name the folder of Lost with --data_dir or PLENCH_DATA")
        measure_engines(folder, arguments.data_dir, arguments.only)
        if "public" in arguments.only:
            measure_public(folder, arguments.data_dir)
        if "status" in arguments.only:
            measure_status(folder)


if __name__ == "__main__":
    main()
