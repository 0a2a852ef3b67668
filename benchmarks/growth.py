"""Whether a training step grows with the number of examples: N = 10⁶ beside N = 10³; writes docs/results.

    python benchmarks/growth.py                  about ten minutes on one core
    python benchmarks/growth.py -a LWS POP       prints, and writes nothing

Both runs are built in one process and take turns, a stretch of steps each, so that the ratio of neighbouring
stretches says what N does and not what else the machine did. Goal: at most 1.1, of every algorithm without a
graph of neighbours.
"""

import argparse
import statistics

from experiments import render_table, write_page
from plench.algorithms import algorithms
from plench.bench.fleet import time_alone
from plench.bench.step import WARM_UP, build_run
from plench.training.environment import compute_threads, flush_denormals

SIZES = (1_000, 1_000_000)
WITH_A_GRAPH = ("VALEN",)
BUDGET_MS = 250.0  # of a stretch
TURNS = 15


def compare(algorithm: str) -> tuple[float, float, float]:
    """Return the milliseconds of a step with few examples and with many, and the median ratio of turns."""
    with compute_threads(1), flush_denormals():
        few, many = (build_run(algorithm, f"Synthetic_{size}", None, {"batch_size": 128}) for size in SIZES)
        for run in (few, many):
            run.choose_step()
            time_alone(run, WARM_UP)
        stretch = max(10, round(BUDGET_MS / time_alone(few, 20)))
        pairs = [(time_alone(few, stretch), time_alone(many, stretch)) for _ in range(TURNS)]
    first, second = (statistics.median(side) for side in zip(*pairs, strict=True))
    return first, second, statistics.median(after / before for before, after in pairs)


def main() -> None:
    """Measure every algorithm and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-a", "--algorithms", nargs="+", help="some only: nothing is written")
    options = parser.parse_args()
    trained = [name for name, entry in algorithms().items() if entry.card.shared]
    names = options.algorithms or [name for name in trained if name not in WITH_A_GRAPH]
    rows = []
    for name in names:
        few, many, ratio = compare(name)
        rows.append([name, f"{few:.2f}", f"{many:.2f}", f"{ratio:.2f}"])
        print(*rows[-1], flush=True)
    if options.algorithms:
        return
    write_page(
        "growth",
        [
            "# Whether a step grows with the number of examples",
            "Written by `python benchmarks/growth.py`.",
            f"Milliseconds of a step at batch 128 on made-up tables of {SIZES[0]:,} and of {SIZES[1]:,} "
            f"examples, drawing the batch included: medians of {TURNS} turns in one process of one thread, "
            "and the median ratio of neighbouring stretches. What is done once an epoch is done seldom where "
            f"an epoch is long. Left out: {', '.join(WITH_A_GRAPH)}, which builds a graph of neighbours.",
            render_table(["algorithm", f"ms, N = {SIZES[0]:,}", f"ms, N = {SIZES[1]:,}", "ratio"], rows),
        ],
    )


if __name__ == "__main__":
    main()
