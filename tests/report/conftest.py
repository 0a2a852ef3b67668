"""What report tests share: one made-up sweep, records and planned grids."""

import os
import shutil

import numpy as np
import pytest

from plench.cli import main
from plench.report.leaderboard import build_leaderboard
from plench.runs import read_runs
from plench.runs.sweep_spec import Grid, SweepSpec
from tests.conftest import ROOT, skip_without
from tests.synthetic_sweep import make_records, write_run, write_sweep


def records(quality=0.6, seed=0, **changes):
    return make_records(quality, np.random.default_rng(seed), **changes)


def read_board(folder, *more):
    return build_leaderboard(read_runs(folder), *more)


def plan(folder, *grids, **settings):
    """Write a sweep file: grids as (algorithms, datasets, their settings), `settings` for all of them."""
    made = (Grid(names, datasets, **{"steps": 1000, **settings, **own}) for names, datasets, own in grids)
    spec = SweepSpec(tuple(made))
    spec.write(folder / spec.file_name)


@pytest.fixture(scope="session")
def sweep(tmp_path_factory):
    return write_sweep(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="session")
def runs(sweep):
    return read_runs(sweep)


@pytest.fixture(scope="session")
def board(runs):
    return build_leaderboard(runs)


@pytest.fixture(scope="session")
def gapped(tmp_path_factory):
    """Two datasets; LWS lacks one of them, NN one split, and all of EXP's runs on MSRCv2 diverged."""
    root = tmp_path_factory.mktemp("gapped")
    write_sweep(root, algorithms=("CC", "PRODEN", "SCL_NL"), n_trials=2, n_hparams=2)
    diverged = {"status": "diverged", "diverged_after_step": 300}
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        write_run(root / f"l{place}", records(0.9), "Lost", "LWS", *place)
        if place[0] == 0:
            write_run(root / f"n{place}", records(0.9), "Lost", "NN", *place)
        write_run(root / f"m{place}", records(0.9), "MSRCv2", "NN", *place)
        write_run(root / f"e{place}", records(), "Lost", "EXP", *place)
        write_run(root / f"d{place}", records(), "MSRCv2", "EXP", *place, **diverged)
    return root


@pytest.fixture(scope="session")
def gapped_board(gapped):
    return read_board(gapped)


def write_page(runs, *options):
    """Write the page of a folder of runs, next to it; return its folder."""
    folder = runs.parent / "site"
    assert main(["report", str(runs), "-o", str(folder), *options]) == 0
    return folder


CHROMIUM = os.environ.get("PLENCH_CHROMIUM") or shutil.which("chromium")
AXE = ROOT / "tests" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
ARGUMENTS = ["--no-sandbox", "--disable-gpu"]  # Playwright switches off what calls home


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        skip_without("chromium", "install Debian's chromium, or set PLENCH_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


def find_serious(page, part="html"):
    """Return what axe finds serious or critical on an open page, or in a part of it."""
    if not AXE.exists():
        skip_without("axe", "npm ci --prefix tests/browser installs axe-core")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate(f"axe.run('{part}', {{preload: false}})")["violations"]  # no styles from disk
    serious = [entry for entry in found if entry["impact"] in ("serious", "critical")]
    return [(entry["id"], entry["nodes"][0]["target"]) for entry in serious]
