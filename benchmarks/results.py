"""Processor time of commands on the results of a full benchmark: collect, sweep status, sweep plan, report.

    python benchmarks/results.py                   21,000 runs of 11 records, in a temporary folder
    python benchmarks/results.py --keep DIR        keep the runs, and use those that are there
    python benchmarks/results.py --browser         also open the page in Chromium (needs playwright)

Goals: `collect` of 17,000 runs within 6 seconds, `sweep status` within 4; the page opens within 2.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import plench
from plench.algorithms import algorithms
from plench.runs.folder import make_done
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.sweeps.plan import DatasetCache, expand, resolve_names
from plench.sweeps.status import write_plan

TURNS = 3
N_HPARAMS = 20
DATASETS = ("Digits_USS", "Digits_FPS", "Digits_ID")
FIGURES = ("val_accuracy", "val_covering_rate", "val_approximated_acc", "test_acc")
READY = "() => new Promise(done => requestIdleCallback(() => done(performance.now())))"
CLICK = """selector => new Promise(done => {
  const begun = performance.now();
  document.querySelector(selector).click();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
})"""


def make_runs(root: Path, n_runs: int) -> None:
    """Write a sweep whose runs are finished: the files of one real run, with other seeds and figures."""
    with tempfile.TemporaryDirectory() as folder:
        # The records of FREDIS are the longest.
        settings: dict[str, Any] = {"steps": 11, "checkpoint_freq": 1, "skip_model_save": True}
        made = plench.train("FREDIS", "Digits_FPS", folder, progress=False, **settings).folder
        info = json.loads((made / "run.json").read_text(encoding="utf-8"))
        records = [json.loads(line) for line in (made / "results.jsonl").open(encoding="utf-8")]
    names = tuple(name for name, entry in algorithms().items() if entry.source is None and entry.card.shared)
    n_trials = -(-n_runs // (len(names) * len(DATASETS) * N_HPARAMS))
    grid = Grid(names, DATASETS, n_hparams=N_HPARAMS, n_trials=n_trials, steps=11, checkpoint_freq=1)
    spec = resolve_names(SweepSpec((grid,)), DatasetCache(None))
    runs = expand(spec)
    random = np.random.default_rng(0)
    for run in runs:
        config, fingerprint = run.config, spec.fingerprints[run.dataset]
        info["run_id"] = config.run_id(fingerprint)
        info["experiment"], info["config"] = config.experiment(fingerprint), config.to_json()
        place = root / run.folder
        place.mkdir(parents=True)
        (place / "run.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
        for record in records:
            record["args"] = config.args()
            record.update(zip(FIGURES, random.uniform(0.3, 0.9, size=len(FIGURES)).tolist(), strict=True))
        text = "".join(json.dumps(record) + "\n" for record in records)
        (place / "results.jsonl").write_text(text, encoding="utf-8")
        (place / "done").write_bytes(make_done(place, ["results.jsonl"]))
    spec.write(root / spec.file_name)
    write_plan(spec, runs, root)


def spend(*words: str) -> float:
    """Return the processor seconds of a command; modules stay compiled, as in an installed package."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "plench", *words], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def open_page(site: Path) -> dict[str, int]:
    """Return the milliseconds until the page is ready and until it has reacted to clicks: medians of five."""
    from playwright.sync_api import sync_playwright

    rounds = []
    arguments = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        for _ in range(5):
            page.goto("about:blank")
            page.goto(f"{site.as_uri()}/index.html")
            page.wait_for_selector(".board tbody tr")
            figures = {"ready": page.evaluate(READY)}
            figures["sort"] = page.evaluate(CLICK, ".board th:nth-child(5) button")
            figures["switch criterion"] = page.evaluate(CLICK, "input[name=criterion][value=AA]")
            rounds.append(figures)
        browser.close()
    return {f"{key}, ms": round(statistics.median(r[key] for r in rounds)) for key in rounds[0]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=21_000, help="at least so many runs (21000)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs here, and use those there")
    parser.add_argument("--browser", action="store_true", help="also open the page in Chromium")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root, site = options.keep or Path(temporary) / "runs", Path(temporary) / "site"
        if not root.is_dir():
            make_runs(root, options.runs)
        commands = {
            "sweep plan": ("sweep", "plan", "--probe_seconds", "0", "--output_dir", str(root)),
            "sweep status": ("sweep", "status", "--output_dir", str(root)),
            "collect": ("collect", str(root)),
        }
        turns = [{name: spend(*words) for name, words in commands.items()} for _ in range(TURNS)]
        figures: dict[str, Any] = {"runs": len([*root.glob("*/done")])}
        figures |= {f"{name}, s": round(min(turn[name] for turn in turns), 2) for name in commands}
        figures["report, s"] = round(spend("report", str(root), "-o", str(site)), 1)
        files = [path.stat().st_size for path in site.rglob("*") if path.is_file()]
        figures["page, files"], figures["page, MB"] = len(files), round(sum(files) / 1e6, 1)
        if options.browser:
            figures |= open_page(site)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
