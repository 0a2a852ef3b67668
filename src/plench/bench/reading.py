"""What reading results costs beside its floor: reading the bytes of the same files."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import plench
from plench.bench.stretches import take_turns, time_stretch
from plench.runs import read_runs

N_RECORDS = 11


def measure_reading(runs: int, repeats: int) -> dict[str, Any]:
    """Measure reading a folder of so many runs, made from one real short run."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        settings: dict[str, Any] = {"steps": N_RECORDS, "checkpoint_freq": 1, "skip_model_save": True}
        made = plench.train("PRODEN", "Digits_FPS", root / "one", progress=False, **settings).folder
        copy_runs(made, root / "many", runs)
        files = [path for path in (root / "many").rglob("*") if path.is_file()]
        turns = take_turns(
            lambda: time_stretch(lambda: read_runs(root / "many"), 1),
            lambda: time_stretch(lambda: [path.read_bytes() for path in files], 1),
            repeats,
        )
    return {"runs": runs, "records": runs * N_RECORDS, **turns}


def copy_runs(made: Path, root: Path, number: int) -> None:
    """Write a run's files again and again, under other names and seeds."""
    info = json.loads((made / "run.json").read_text(encoding="utf-8"))
    lines = (made / "results.jsonl").read_bytes()
    for trial in range(number):
        info["run_id"] = f"{trial:032x}"
        info["config"]["trial_seed"] = trial
        folder = root / info["run_id"]
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
        (folder / "results.jsonl").write_bytes(lines)
        (folder / "done").write_text("done\n", encoding="utf-8")
