"""What a sweep costs beside its floor: the training that its runs report."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def measure_sweep(algorithms: list[str], workers: int, steps: int) -> dict[str, Any]:
    """Measure a whole command in a fresh process, start-up included, on built-in data."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--algorithms", *algorithms, "--datasets", "Digits_FPS"]
        words += ["--n_hparams", "2", "--n_trials", "2"]
        words += ["--steps", str(steps), "--workers", str(workers), "--output_dir", folder, "--quiet"]
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "plench", "sweep", "launch", *words], check=True)
        seconds = time.perf_counter() - begun
        described = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("*/run.json")]
    training = sum(info["timings"]["training_seconds"] for info in described) / workers
    return {
        "runs": len(described),
        "workers": workers,
        "ms": round(1000 * seconds / len(described), 2),
        "floor_ms": round(1000 * training / len(described), 2),
        "ratio": round(seconds / training, 3),
    }
