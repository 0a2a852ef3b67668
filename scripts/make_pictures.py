"""Make the pictures of README and the site's first page, from real output, in Chromium.

    python scripts/make_pictures.py

The leaderboard and the figure show the first priority of the study: 24 deep methods, 10,000 steps, the
paper's network. The report is of a model of scikit-learn's digits with drawn candidates.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_digits

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
STUDY = ROOT / "results" / "study.parquet"
GRID = tomllib.loads((ROOT / "results" / "study-1.toml").read_text(encoding="utf-8"))["grid"][0]
PART = [
    "--where",
    "steps=10000",
    "model=MLP",
    "--algorithms",
    *GRID["algorithms"],
    "--datasets",
    *GRID["datasets"],
]


def plench(*words: object, folder: Path) -> None:
    """Run a command of plench in a folder."""
    subprocess.run([sys.executable, "-m", "plench", *map(str, words)], cwd=folder, check=True)


def write_digits(path: Path) -> None:
    """Write a table of digits in which each wrong label is a candidate with probability 0.15."""
    table, labels = load_digits(as_frame=True, return_X_y=True)
    candidates = np.random.default_rng(0).random((len(labels), 10)) < 0.15
    candidates[np.arange(len(labels)), labels] = True
    table["candidates"] = ["|".join(f"digit {label}" for label in np.flatnonzero(row)) for row in candidates]
    table.to_csv(path, index=False)


def main() -> None:
    """Make the three pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name)
        plench("report", STUDY, "-o", "site", *PART, folder=folder)
        write_digits(folder / "digits.csv")
        plench(
            "fit", "digits.csv", "-o", "model.plench", "--n-runs", 8, "--report", "fit.html", folder=folder
        )
        figure = ("--width", 5, "--output", PICTURES / "ranks.png")
        plench("results", "plot", "rank-intervals", STUDY, *PART, *figure, folder=folder)
        browser = driver.chromium.launch(
            executable_path=os.environ.get("PLENCH_CHROMIUM") or shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        pages = {"leaderboard": ("site/index.html", 1080, 760), "fit-report": ("fit.html", 1000, 760)}
        for picture, (page, width, height) in pages.items():
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
            tab.goto((folder / page).as_uri())
            tab.get_by_role("heading", level=1).first.wait_for()
            tab.screenshot(path=PICTURES / f"{picture}.png")
        browser.close()
    for path in PICTURES.glob("*.png"):  # 64 colours are enough for text and lines
        Image.open(path).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
