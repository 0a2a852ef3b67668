"""How long the page of a large benchmark takes to write and to open, and how large it is.

    python -m benchmarks.report [--configurations 17] [--keep DIR]

Makes up a benchmark (30 algorithms × 8 datasets × 5 splits × 17 configurations, about 20,300 runs of 11
records; goal: the page opens within two seconds), writes its page, and opens it from disk in Chromium.
"Ready" is the time from the start of the navigation until the table stands and the main thread is idle.
Medians of five.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from tests.report.site_sweep import write_benchmark

from plench.cli import main as run_plench

ROUNDS = 5
READY = "() => new Promise(done => requestIdleCallback(() => done(performance.now())))"
CLICK = """selector => new Promise(done => {
  const begun = performance.now();
  document.querySelector(selector).click();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
})"""


def measure_page(page: Page, address: str) -> dict[str, float]:
    """Open the page once and use it; milliseconds."""
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(".board tbody tr")
    figures = {"ready": page.evaluate(READY)}
    figures["sort"] = page.evaluate(CLICK, ".board th:nth-child(5) button")
    figures["switch criterion"] = page.evaluate(CLICK, "input[name=criterion][value=AA]")
    begun = time.perf_counter()
    page.click(".board tbody tr td:nth-child(5) a")
    page.wait_for_selector("figure svg")
    figures["open a cell"] = 1000 * (time.perf_counter() - begun)
    return figures


def measure(folder: Path) -> dict[str, Any]:
    """Write the page and open it a few times."""
    site = folder / "site"
    begun, cpu = time.perf_counter(), time.process_time()
    run_plench(["report", str(folder / "runs"), "-o", str(site)])
    written: dict[str, Any] = {
        "write, seconds": round(time.perf_counter() - begun, 1),
        "write, CPU seconds": round(time.process_time() - cpu, 1),
    }
    sizes = [path.stat().st_size for path in site.rglob("*") if path.is_file()]
    (index,) = site.glob("data/*/index.js")
    written.update(
        {"files": len(sizes), "MB": round(sum(sizes) / 1e6, 1), "index, kB": index.stat().st_size // 1000}
    )
    arguments = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        rounds = [measure_page(page, f"{site.as_uri()}/index.html") for _ in range(ROUNDS)]
        browser.close()
    medians = {f"{key}, ms": round(statistics.median(r[key] for r in rounds)) for key in rounds[0]}
    return {**written, **medians}


def main() -> None:
    """Make the runs, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--configurations", type=int, default=17)
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep runs and page here, and use what is there"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        if not (folder / "runs").exists():
            write_benchmark(
                folder / "runs", n_datasets=7, n_splits=5, n_configurations=options.configurations
            )
        print(json.dumps({"runs": sum(1 for _ in (folder / "runs").iterdir()), **measure(folder)}, indent=2))


if __name__ == "__main__":
    main()
