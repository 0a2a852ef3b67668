"""VALEN's exact neighbour graph: seconds and memory as the number of examples grows.

    python benchmarks/valen_graph.py                  N = 5,000 … 50,000, 64 features; writes docs/results
    python benchmarks/valen_graph.py --rows 50000 --features 500

Each size runs in a fresh process; the memory is how far the process's peak rises above what it was before.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

from experiments import render_table, write_page


def measure(rows: int, features: int, threads: int) -> dict[str, float]:
    """Build the graph of random features in this process."""
    import torch

    from plench.algorithms.valen import find_nearest_rows

    torch.set_num_threads(threads)
    values = torch.randn(rows, features, generator=torch.Generator().manual_seed(0))
    find_nearest_rows(values[:500], 3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    neighbours = find_nearest_rows(values, 3)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = neighbours.numel() * neighbours.element_size() / 2**20
    return {"seconds": seconds, "extra_mb": (peak - before) / 1024, "kept_mb": kept}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000, 10_000, 20_000, 50_000])
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.rows[0], options.features, options.threads)))
        return
    table = []
    for rows in options.rows:
        command = [sys.executable, __file__, "--here", "--rows", str(rows)]
        command += ["--features", str(options.features), "--threads", str(options.threads)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout)
        dense = rows * rows * 4 / 2**20
        cells = [f"{rows:,}", f"{found['seconds']:.1f}", f"{found['extra_mb']:,.0f}"]
        table.append([*cells, f"{found['kept_mb']:.1f}", f"{dense:,.0f}"])
        print(", ".join(table[-1]))
    write_page(
        "valen_graph",
        [
            "# VALEN's graph",
            "Written by `python benchmarks/valen_graph.py`.",
            f"The three nearest neighbours of each of N examples by {options.features} features, exactly, in "
            f"float64, {options.threads} thread(s). Working memory is the rise of the process's peak, which "
            "includes the float64 copy of the features and 256 rows of distances; kept is the N×3 result; "
            "the last column is what one dense N×N matrix in float32 would take.",
            render_table(["N", "seconds", "working MB", "kept MB", "dense MB"], table),
        ],
    )


if __name__ == "__main__":
    main()
