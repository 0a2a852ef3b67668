"""Write docs/results/step.md from what `plench bench step -a all --output FILE` measured.

python benchmarks/step.py FILE
"""

import json
import statistics
import sys
from pathlib import Path

from experiments import render_table, write_page
from plench.bench.step import LONGEST_WARM_UP


def describe_costs(row: dict) -> list[str]:
    """Return the cells of one measurement."""
    own = max(0.0, row["ms"] - row["floor_ms"] - row["draw_ms"])
    return [f"{row['ms']:.2f}", f"{row['ratio']:.2f}", f"{own:.2f}", f"{row['peak_mb']:.0f}"]


def describe_floor(dataset: str, rows: list[dict]) -> str:
    """Say what all methods pay alike on a dataset, as medians over the rows."""
    draw, both, floor = (
        statistics.median(row[key] for row in rows) for key in ("draw_ms", "pass_ms", "floor_ms")
    )
    return (
        f"On {dataset} drawing a batch takes {draw:.3f} ms, forward and backward {both:.3f} ms and Adam "
        f"{floor - both:.3f} ms (medians over the algorithms)."
    )


def write_results(rows: list[dict]) -> None:
    """Write the page of results, an algorithm a row."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    head = [
        "algorithm",
        *(f"{what}, {name}" for name in datasets for what in ("ms", "ratio", "own ms", "MB")),
    ]
    table = []
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        of_dataset = {row["dataset"]: row for row in rows if row["algorithm"] == algorithm}
        table.append([algorithm, *(cell for name in datasets for cell in describe_costs(of_dataset[name]))])
    write_page(
        "step",
        [
            "# What a step costs",
            "Written by `python benchmarks/step.py FILE` from what `plench bench step -a all --output FILE` "
            "measured.",
            f"Milliseconds of a training step at batch {rows[0]['batch_size']}, drawing the batch included; "
            "its ratio to the floor, which is forward, backward and Adam of the same network on one batch, "
            "measured in turns; and the peak memory of the process, interpreter and torch included. Default "
            "hyperparameters, each algorithm in a fresh process with one thread, in the last phase of its "
            f"schedule that begins within {LONGEST_WARM_UP:,} updates.",
            *(describe_floor(name, [row for row in rows if row["dataset"] == name]) for name in datasets),
            "Own is what a step takes beside these: the loss and its gradient, the revision of state, "
            "further passes. Where it is small, the network bounds the step: no method is faster than its "
            "floor.",
            "What bounds the methods that contrast with a queue (PiCO, DIRK, ALIM, PiCO_plus) are the two "
            "products of the batch with its 8,192 keys, one for the loss and one for its gradient; their "
            "pages say how they are made and what else is needed.",
            render_table(head, table),
        ],
    )


if __name__ == "__main__":
    content = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    write_results([row for row in content["rows"] if row.get("part", "step") == "step"])
