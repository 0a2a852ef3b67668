"""Steps and stacks of this checkout compared with those of another one, in turns.

    python benchmarks/compare.py BEFORE                       BEFORE: a checkout of another commit
    python benchmarks/compare.py BEFORE -d Lost -a CC PRODEN LWS --turns 9

Each measurement is `plench bench` in a process of its own, with one thread. A machine's speed drifts, so that
the checkouts take turns; a ratio above 1 means that this checkout is slower.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]


def measure(checkout: Path, part: str, words: list[str]) -> float:
    """Return the milliseconds of a step by `plench bench` of a checkout."""
    if part == "stack" and not (checkout / "src" / "plench" / "bench.py").exists():
        part = "fleet"  # its name up to version 0.2.0
    command = [sys.executable, "-m", "plench", "bench", part, "--json", *words]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=checkout, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["rows"][0]["ms"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="checkout of another commit")
    parser.add_argument("-a", "--algorithms", nargs="+", default=["CC", "PRODEN", "LWS", "CRDPLL"])
    parser.add_argument("-d", "--dataset", default="Digits_FPS")
    parser.add_argument("--data_dir")
    parser.add_argument("--parts", nargs="+", default=["step", "stack"])
    parser.add_argument("--batch_sizes", nargs="+", default=["32", "128"])
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    data_dir = [] if options.data_dir is None else ["--data_dir", options.data_dir]
    for part in options.parts:
        for algorithm in options.algorithms:
            for size in options.batch_sizes:
                words = ["-a", algorithm, "-d", options.dataset, *data_dir, "--batch_size", size]
                words += ["--repeats", "5"]
                pairs = [
                    tuple(measure(checkout, part, words) for checkout in (options.before.resolve(), HERE))
                    for _ in range(options.turns)
                ]
                before, now = (statistics.median(side) for side in zip(*pairs, strict=True))
                ratio = statistics.median(second / first for first, second in pairs)
                what = f"{part:<6}{algorithm:<12}batch {size:>4}"
                print(f"{what}  before {before:8.3f} ms  now {now:8.3f} ms  ratio {ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
