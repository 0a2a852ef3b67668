"""Figures of a campaign that is gone on with: a JSON file, and which commits were attacked."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def read_figures(path: Path, seed: int, empty: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of an earlier session with the same seed, or empty ones; this session is noted."""
    figures: dict[str, Any] = {"seed": seed, "seconds": 0, "commits": [], **empty}
    if path.exists():
        figures = json.loads(path.read_text(encoding="utf-8"))
        if figures["seed"] != seed:
            raise SystemExit(
                f"{path} is of a campaign with seed {figures['seed']}: name another --output, or that seed"
            )
    figures["python"] = platform.python_version()
    commit = find_commit()
    if commit not in figures["commits"]:
        figures["commits"].append(commit)
    return figures


def write_figures(figures: dict[str, Any], path: Path) -> None:
    """Write the figures, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def write_pages(page: str, *paths: Path | None) -> None:
    """Write a page to one or more files, and print it."""
    for path in paths:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page, encoding="utf-8")
    print(page)


def find_commit() -> str:
    """Return the commit that is attacked."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
