"""What a sweep costs beside its floor: the training that its runs report."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from plench.errors import RunFailedError

FLEET = "off"  # what `plench bench fleet` measures has no part in it


def measure_sweep(algorithms: list[str], workers: int, steps: int) -> dict[str, Any]:
    """Measure a whole command in a fresh process, start-up included, on built-in data."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--algorithms", *algorithms, "--datasets", "Digits_FPS"]
        words += ["--n_hparams", "2", "--n_trials", "2", "--fleet", FLEET]
        words += ["--steps", str(steps), "--workers", str(workers), "--output_dir", folder]
        command = [
            sys.executable,
            "-m",
            "plench",
            "sweep",
            "launch",
            *words,
            "--quiet",
            "--skip_confirmation",
        ]
        begun = time.perf_counter()
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        seconds = time.perf_counter() - begun
        if ended.returncode != 0:
            raise RunFailedError(f"the sweep that was to be measured ended with the code {ended.returncode}")
        described = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("*/run.json")]
    training = sum(info["timings"]["training_seconds"] for info in described) / workers
    return {
        "runs": len(described),
        "fleet": FLEET,
        "workers": workers,
        "ms": round(1000 * seconds / len(described), 2),
        "floor_ms": round(1000 * training / len(described), 2),
        "ratio": round(seconds / training, 3),
    }
