"""Speed of sweeps: rate of the local engine and of Ray, share of training, memory, reading what is finished.

    python benchmarks/sweep.py --data_dir DIR [--only local public ray reading]

Every figure comes from whole commands in fresh processes, start-up included, with two workers. With all parts
(the default) the figures go to docs/results/sweep.md.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from collect import write_many
from experiments import render_table, write_page
from plench.algorithms import algorithms
from plench.runs.ended import make_done
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.sweeps.plan import DataShelf, expand, settle
from plench.sweeps.remembered import remember
from plench.version import PROTOCOL_VERSION

WORKERS = 2
# The engines take turns, since the machine's speed changes from minute to minute.
TURNS = 3
N_FINISHED = 20_000
N_RECORDED = 17_000
# The public code beside ours, measured in turns on one machine: processor time of the sweep below, and of a
# step of the whole loop.
PUBLIC = (
    "Beside it the public code's launcher took 3.0 to 3.4 times the processor time for the same 12 runs, "
    "measured in turns on one machine. Of its whole loop a step takes 2.7 times ours for PRODEN, 2.5 for CC, "
    "2.9 for LWS, 8.0 for NN, 2.6 for PiCO, and 1.6 for PiCO_plus and VALEN."
)
COLUMNS = ["sweep", "runs", "seconds", "runs/min", "training", "peak memory of each worker"]


def run_sweep(output_dir: Path, *arguments: str) -> tuple[float, dict[int, int]]:
    """Carry out a sweep command; return its wall time and the peak memory of its workers (kB, Linux only)."""
    command = [sys.executable, "-m", "plench.sweep", *arguments, "--output_dir", str(output_dir)]
    peaks: dict[int, int] = {}
    with tempfile.TemporaryFile("w+") as said:
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        while process.poll() is None:
            peaks.update(read_worker_peaks(process.pid))
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.25)
        seconds = time.perf_counter() - begun
        if process.returncode != 0:
            said.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{said.read()}")
    return seconds, peaks


def read_worker_peaks(driver: int) -> dict[int, int]:
    """Return the peak resident memory of the worker processes of a driver, in kB."""
    peaks = {}
    for children in Path(f"/proc/{driver}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                command = Path(f"/proc/{child}/cmdline").read_bytes()
                found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{child}/status").read_text())
                if found and b"plench.sweeps.worker" in command:
                    peaks[int(child)] = int(found.group(1))
    return peaks


def read_training_seconds(output_dir: Path) -> list[float]:
    """Return the seconds of training of every run."""
    return [
        json.loads(path.read_text(encoding="utf-8"))["timings"]["training_seconds"]
        for path in output_dir.glob("*/run.json")
    ]


def measure(title: str, output_dir: Path, *arguments: str) -> tuple[list[str], float]:
    """Carry out a sweep; return its figures as a row, and its seconds."""
    seconds, peaks = run_sweep(output_dir, "launch", *arguments)
    training = read_training_seconds(output_dir)
    row = [
        title,
        f"{len(training)}",
        f"{seconds:.1f}",
        f"{60 * len(training) / seconds:.1f}",
        f"{sum(training) / (WORKERS * seconds):.1%}",
        ", ".join(f"{peak / 1024:.0f} MB" for peak in peaks.values()) or "not measured",
    ]
    print(", ".join(f"{name}: {cell}" for name, cell in zip(COLUMNS, row, strict=True)), flush=True)
    return row, seconds


def vanilla_names() -> list[str]:
    return [name for name, entry in algorithms().items() if entry.card.family.startswith("vanilla")]


def measure_engines(folder: Path, data_dir: str, only: list[str]) -> tuple[list[list[str]], list[str]]:
    """Carry out the same sweep on the local engine and on Ray; return rows and what they tell."""
    names = vanilla_names()
    grid = [
        *("--datasets", "Lost", "--data_dir", data_dir, "--algorithms", *names),
        *("--n_hparams", "4", "--n_trials", "2", "--steps", "500"),
    ]
    engines = {
        "local": ["--workers", str(WORKERS)],
        "ray": ["--command_launcher", "ray", "--workers", str(WORKERS)],
    }
    what = f"{len(names)} vanilla algorithms × 4 configurations × 2 splits × 500 steps"
    rows: list[list[str]] = []
    seconds: dict[str, list[float]] = {name: [] for name in engines if name in only}
    for turn in range(TURNS):
        for engine, taken in seconds.items():
            place = folder / f"{engine}-{turn}"
            row, wall = measure(f"{engine}: {what}", place, *grid, *engines[engine])
            rows.append(row)
            taken.append(wall)
    if len(seconds) < len(engines):
        return rows, []
    ratios = [local / ray for local, ray in zip(seconds["local"], seconds["ray"], strict=True)]
    return rows, [
        f"Ray on one node has {statistics.median(ratios):.0%} of the local engine's rate (median of {TURNS} "
        f"turns: {', '.join(f'{ratio:.0%}' for ratio in ratios)})."
    ]


def measure_public(folder: Path, data_dir: str) -> tuple[list[str], str]:
    """Carry out the sweep that was compared with the public code."""
    row, seconds = measure(
        "local: CC and SCL_NL × 3 configurations × 2 splits × 2,001 steps",
        folder / "public",
        *("--datasets", "Lost", "--data_dir", data_dir, "--algorithms", "CC", "SCL_NL"),
        *("--n_hparams", "3", "--n_trials", "2", "--steps", "2001", "--workers", str(WORKERS)),
    )
    return row, f"The sweep of CC and SCL_NL took {seconds:.1f} s. {PUBLIC}"


def make_finished(output_dir: Path) -> int:
    """Make up the folders of many finished runs, as training would leave them; return how many."""
    names = tuple(name for name, entry in algorithms().items() if entry.source is None and entry.card.shared)
    datasets = ("Digits_USS", "Digits_FPS", "Digits_ID")
    n_trials = -(-N_FINISHED // (len(names) * len(datasets) * 20))
    spec = settle(SweepSpec((Grid(names, datasets, n_trials=n_trials),)), DataShelf(None))
    runs = expand(spec)
    for run in runs:
        place = output_dir / run.folder
        place.mkdir(parents=True)
        config = run.config
        fingerprint = spec.fingerprints[run.dataset]
        info = {
            "schema": 1,
            "run_id": config.run_id(fingerprint),
            "protocol": PROTOCOL_VERSION,
            "experiment": config.experiment(fingerprint),
            "config": config.to_json(),
            "algorithm_card": {"name": run.algorithm, "summary": "x" * 2000},  # cards and versions are long
            "status": "done",
            "timings": {"began": config.trial_seed, "seconds": config.hparams_seed},
        }
        (place / "run.json").write_text(json.dumps(info, indent=1))
        record = {"loss": 1.0, "hparams": dict(config.hparams), "args": config.args()}
        steps = (*range(0, config.steps, config.checkpoint_freq), config.steps - 1)
        (place / "results.jsonl").write_text("".join(json.dumps({"step": s, **record}) + "\n" for s in steps))
        (place / "done").write_bytes(make_done(place, ["results.jsonl"]))
    spec.write(output_dir / spec.file_name)
    remember(spec, runs, output_dir)
    return len(runs)


def measure_reading(folder: Path) -> str:
    """Plan, look at and collect many finished runs; return the processor time of the whole commands."""
    number = make_finished(folder / "finished")
    write_many(folder / "recorded", N_RECORDED)
    commands = {
        "plan": ("sweep", "plan", "--probe_seconds", "0", "--output_dir", str(folder / "finished")),
        "status": ("sweep", "status", "--output_dir", str(folder / "finished")),
        "collect": ("collect", str(folder / "recorded")),
    }
    turns = [{name: spend(*words) for name, words in commands.items()} for _ in range(TURNS)]
    plan, status, collect = (min(turn[name] for turn in turns) for name in commands)
    text = (
        f"With {number:,} finished runs `plan` takes {plan:.1f} s and `status` {status:.1f} s of processor "
        f"time, `collect` of {N_RECORDED:,} runs of 11 records {collect:.1f} s: the least of {TURNS} turns."
    )
    print(text, flush=True)
    return text


def spend(*words: str) -> float:
    """Return the processor seconds of a command; modules stay compiled, as in an installed package."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "plench", *words], check=True, stdout=subprocess.DEVNULL, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data_dir", default=os.environ.get("PLENCH_DATA"), help="folder with lost.mat")
    parts = ["local", "ray", "public", "reading"]
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    arguments = parser.parse_args()
    if arguments.data_dir is None and set(arguments.only) - {"reading"}:
        sys.exit("name the folder of Lost with --data_dir or PLENCH_DATA")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, told = measure_engines(folder, arguments.data_dir, arguments.only)
        if "public" in arguments.only:
            row, text = measure_public(folder, arguments.data_dir)
            rows.append(row)
            told.append(text)
        if "reading" in arguments.only:
            told.append(measure_reading(folder))
    if set(arguments.only) == set(parts):
        write_page(
            "sweep",
            [
                "# Speed of sweeps",
                "Written by `python benchmarks/sweep.py --data_dir DIR`.",
                f"Whole commands on Lost with {WORKERS} workers of one thread each, start-up included. "
                "Runs are trained as one where they can be (`--fleet auto`). `training` is the share of the "
                "workers' time that goes into updates, of whole fleets; the rest is start-up, loading, "
                "evaluation and writing. A worker's memory is its peak resident size.",
                render_table(COLUMNS, rows),
                *told,
            ],
        )


if __name__ == "__main__":
    main()
