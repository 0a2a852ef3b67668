"""What plench costs, compared with baselines measured in the same process, in turns (`plench bench`)."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

try:
    import resource
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]

import plench
from plench.algorithms import find_algorithm
from plench.algorithms.base import build_adam, build_network, descend
from plench.data import Dataset, DatasetCard, load_dataset
from plench.errors import RunFailedError, UsageError
from plench.runs import read_runs
from plench.runs.folder import RunStore
from plench.training.config import configure_run
from plench.training.environment import (
    compute_threads,
    describe_environment,
    flush_denormals,
    name_processor,
    source_commit,
)
from plench.training.run import TrainingRun, choose_chunk, evaluate
from plench.training.stack import StackedStep, StackError
from plench.training.step import SingleStep

SYNTHETIC = "Synthetic_"
WARM_UP = 100
LONGEST_WARM_UP = 4000
LONGEST_STRETCH = 800
BASELINE_STEPS = 100
STACK_STRETCH = 50
N_RECORDS = 11
# Runs of a measured sweep are not stacked: `plench bench stack` measures that.
STACK = "off"


def describe_machine() -> dict[str, Any]:
    """Return hardware, versions and commit, as plain data."""
    environment = describe_environment(torch.device("cpu"), 1)
    return {
        "hardware": {
            "processor": name_processor(),
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
        "versions": {name: str(value) for name, value in environment.items()},
        "commit": source_commit(),
    }


def measure(
    part: str, algorithm: str, dataset: str, data_dir: Path | None, batch_size: int, repeats: int, size: int
) -> dict[str, Any]:
    """Measure a part for one algorithm on one dataset in this process."""
    what = (algorithm, dataset, data_dir)
    if part == "evaluation":
        return measure_evaluation(*what, repeats)
    if part == "stack":
        return measure_stack(*what, batch_size, repeats, size)
    if part == "image":
        return measure_step(*what, None, repeats, warm_up=2)
    return measure_step(*what, batch_size, repeats)


def make_data(name: str) -> Dataset:
    """Make up `Synthetic_N`: N examples of 50 features, 10 classes, 3 candidates."""
    number = name.removeprefix(SYNTHETIC)
    if not number.isdecimal() or int(number) < 100:
        raise UsageError(f"{name!r}: a made-up dataset is {SYNTHETIC}N with N of at least 100")
    random = np.random.default_rng(0)
    labels = random.integers(10, size=int(number))
    classes = np.arange(10)
    candidates = (classes == labels[:, None]) | ((classes - labels[:, None]) % 10 <= 2)
    card = DatasetCard(name, "tabular", "none", "made up", "none", "none", default_steps=1000)
    return Dataset(random.normal(size=(int(number), 50)), candidates, labels, card)


def build_run(
    algorithm: str, dataset: str, data_dir: Path | None, hparams: dict[str, Any], **settings: Any
) -> TrainingRun:
    """Build a run as training would, without a folder."""
    data = make_data(dataset) if dataset.startswith(SYNTHETIC) else load_dataset(dataset, data_dir)
    entry = find_algorithm(algorithm)
    config = configure_run(entry, data.card, hparams=hparams, device="cpu", **settings)
    store = RunStore(Path(tempfile.gettempdir()) / "unused")  # nothing is written before training begins
    run = TrainingRun(config, data, entry, store)
    run.build()
    return run


def time_stretch(step: Callable[[], object], count: int) -> float:
    """Return the milliseconds per call, over a stretch of calls."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count * 1000


def time_steps(step: SingleStep | StackedStep, count: int) -> float:
    """Return the milliseconds per step."""
    with step.ambient():
        return time_stretch(step.update, count)


def take_turns(
    measured: Callable[[], float], baseline: Callable[[], float], repeats: int
) -> dict[str, float]:
    """Return the medians of both, and that of the ratios of neighbouring stretches."""
    pairs = [(measured(), baseline()) for _ in range(repeats)]
    return {
        "ms": round(statistics.median(ms for ms, _ in pairs), 4),
        "floor_ms": round(statistics.median(ms for _, ms in pairs), 4),
        "ratio": round(statistics.median(ms / least for ms, least in pairs), 3),
    }


def measure_step(
    algorithm: str,
    dataset: str,
    data_dir: Path | None,
    batch_size: int | None,
    repeats: int,
    warm_up: int = WARM_UP,
) -> dict[str, Any]:
    """Compare a training step with forward, backward and Adam of the same network on one batch.

    A timed stretch is an epoch (50 to 800 steps) of drawing batches and updating, so that work at the end of
    epochs counts. Before the first one every phase of the schedule has begun that does so within 4,000
    updates; on images, where a step takes seconds, phases are not waited for.
    """
    with compute_threads(1), flush_denormals():
        run = build_run(
            algorithm, dataset, data_dir, {} if batch_size is None else {"batch_size": batch_size}
        )
        batch = run.training_set.next_batch()
        network = build_network(run.data.input_shape, run.dataset.n_classes, run.config.hparams)
        optimizer = build_adam(network.parameters(), run.config.hparams)
        features = batch.view(run.entry.card.views[0])
        step = SingleStep(run)

        def baseline() -> None:
            descend(optimizer, network(features).mean())

        def pass_alone() -> None:
            optimizer.zero_grad(set_to_none=True)
            network(features).mean().backward()

        with step.ambient():
            starts = [] if run.data.inputs.kind == "image" else run.algorithm.phases().values()
            phases = [first for first in starts if first <= LONGEST_WARM_UP]
            time_stretch(step.update, max([warm_up, *phases]))
            peak = None  # memory of the process, interpreter and torch included; not known on Windows
            if resource is not None:
                most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                peak = round(most / 2 ** (20 if sys.platform == "darwin" else 10), 1)
            time_stretch(baseline, warm_up)
            epoch = len(run.training_set) // len(batch)
            stretch = min(max(min(50, warm_up), epoch), LONGEST_STRETCH, 10 * warm_up)
            least = min(stretch, BASELINE_STEPS)
            turns = take_turns(
                lambda: time_stretch(step.update, stretch), lambda: time_stretch(baseline, least), repeats
            )
            passes = [time_stretch(pass_alone, least) for _ in range(repeats)]
            draws = [time_stretch(run.training_set.next_batch, least) for _ in range(repeats)]
    return {
        "algorithm": run.entry.name,
        "dataset": dataset,
        "examples": len(run.training_set),
        "batch_size": len(batch),
        **turns,
        "pass_ms": round(statistics.median(passes), 4),
        "draw_ms": round(statistics.median(draws), 4),
        "peak_mb": peak,
    }


def measure_stack(
    algorithm: str,
    dataset: str,
    data_dir: Path | None,
    batch_size: int,
    repeats: int,
    size: int = 10,
    warm_up: int = WARM_UP,
) -> dict[str, Any]:
    """Compare a step of a stack of runs, each on a split of its own, with the steps of each run alone."""
    with compute_threads(1), flush_denormals():
        runs, separate = (
            [
                build_run(algorithm, dataset, data_dir, {"batch_size": batch_size}, seed=n, trial_seed=n)
                for n in range(size)
            ]
            for _ in range(2)
        )
        try:
            stack = StackedStep(runs)
        except StackError as error:
            raise UsageError(f"runs of {algorithm} on {dataset} cannot be stacked: {error}") from error
        steps = [SingleStep(run) for run in separate]

        def time_separate(count: int) -> float:
            return sum(time_steps(step, count) for step in steps)

        time_steps(stack, warm_up)
        time_separate(warm_up)
        stretch = min(STACK_STRETCH, warm_up)
        turns = take_turns(lambda: time_steps(stack, stretch), lambda: time_separate(stretch), repeats)
    return {
        "algorithm": separate[0].entry.name,
        "dataset": dataset,
        "examples": len(separate[0].training_set),
        "batch_size": batch_size,
        "runs": size,
        **turns,
    }


def measure_evaluation(
    algorithm: str, dataset: str, data_dir: Path | None, repeats: int, count: int = 5
) -> dict[str, Any]:
    """Compare an evaluation with a plain pass of the network over the same examples."""
    with compute_threads(1), flush_denormals():
        run = build_run(algorithm, dataset, data_dir, {})
        parts = (run.data.validation.stored, run.data.test.stored)

        def pass_over() -> None:
            run.algorithm.eval()
            with torch.no_grad():
                for stored in parts:
                    chunk = choose_chunk(stored)
                    for start in range(0, len(stored), chunk):
                        run.algorithm.predict(run.data.inputs.original(stored[start : start + chunk]))

        turns = take_turns(
            lambda: time_stretch(lambda: evaluate(run.algorithm, run.data), count),
            lambda: time_stretch(pass_over, count),
            repeats,
        )
    return {"algorithm": run.entry.name, "dataset": dataset, "examples": sum(map(len, parts)), **turns}


def measure_sweep(algorithms: list[str], workers: int, steps: int) -> dict[str, Any]:
    """Compare a whole sweep on built-in data, start-up included, with the training that its runs report."""
    with tempfile.TemporaryDirectory() as folder:
        grid = "sweep launch --datasets Digits_FPS --n-hparams 2 --n-trials 2 --algorithms"
        more = f"--stack {STACK} --steps {steps} --workers {workers} --quiet --skip-confirmation --output-dir"
        command = [sys.executable, "-m", "plench", *grid.split(), *algorithms, *more.split(), folder]
        start = time.perf_counter()
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        seconds = time.perf_counter() - start
        if ended.returncode != 0:
            raise RunFailedError(f"the measured sweep ended with exit code {ended.returncode}")
        described = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("*/run.json")]
    training = sum(info["timings"]["training_seconds"] for info in described) / workers
    return {
        "runs": len(described),
        "fleet": STACK,
        "workers": workers,
        "ms": round(1000 * seconds / len(described), 2),
        "floor_ms": round(1000 * training / len(described), 2),
        "ratio": round(seconds / training, 3),
    }


def measure_reading(runs: int, repeats: int) -> dict[str, Any]:
    """Compare reading a folder of runs, copies of one real short run, with reading the bytes of its files."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        settings: dict[str, Any] = {"steps": N_RECORDS, "checkpoint_freq": 1, "skip_model_save": True}
        made = plench.train("PRODEN", "Digits_FPS", root / "one", progress=False, **settings).folder
        info = json.loads((made / "run.json").read_text(encoding="utf-8"))
        lines = (made / "results.jsonl").read_bytes()
        for trial in range(runs):
            info["run_id"] = f"{trial:032x}"
            info["config"]["trial_seed"] = trial
            folder = root / "many" / info["run_id"]
            folder.mkdir(parents=True)
            (folder / "run.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
            (folder / "results.jsonl").write_bytes(lines)
            (folder / "done").write_text("done\n", encoding="utf-8")
        files = [path for path in (root / "many").rglob("*") if path.is_file()]
        turns = take_turns(
            lambda: time_stretch(lambda: read_runs(root / "many"), 1),
            lambda: time_stretch(lambda: [path.read_bytes() for path in files], 1),
            repeats,
        )
    return {"runs": runs, "records": runs * N_RECORDS, **turns}
