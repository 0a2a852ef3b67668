"""Measure what plench costs.

Each part is compared with a baseline that is measured in the same process, in turns. docs/bench.md explains
each number and how to compare two commits. On a busy machine only the ratios are meaningful.

examples:
  plench bench                                         a step and an evaluation of a few algorithms
  plench bench step -a CC PRODEN -d Lost --data-dir data --output step.json
  plench bench step -a POP -d Synthetic_1000 Synthetic_1000000     does a step grow with N?
  plench bench stack -a CC PRODEN --batch-size 32       stacked runs, compared with the same runs alone
  plench bench step stack evaluation sweep reading image --output all.json
  plench results plot cost step.json --output cost.svg
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from plench.errors import RunFailedError, UsageError
from plench.files import write_text
from plench.text import flag

PARTS = ("step", "stack", "image", "evaluation", "sweep", "reading")
WITH_STEPS = ("step", "stack", "image")
USUAL = ("PRODEN", "CC", "LWS", "CRDPLL")
NUMBERS = {
    "batch_size": (128, "batch size of steps and stacks"),
    "stack": (10, "runs per stack"),
    "repeats": (9, "turns"),
    "runs": (2000, "runs to read"),
    "steps": (500, "updates per run of the sweep"),
    "workers": (2, "workers of the sweep"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parts = f"{', '.join(PARTS)} (default: step evaluation)"
    parser.add_argument("parts", nargs="*", metavar="PART", help=parts)
    names: dict[str, Any] = {"nargs": "+", "metavar": "NAME"}
    usual = " ".join(USUAL)
    parser.add_argument("-a", "--algorithms", **names, help=f"names, or `all` (default: {usual})")
    datasets = "datasets of steps, stacks and evaluations (default: Digits_FPS)"
    parser.add_argument("-d", "--datasets", **names, default=["Digits_FPS"], help=datasets)
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="folder with the data files")
    for name, (default, text) in NUMBERS.items():
        text = f"{text} (default {default})"
        parser.add_argument(flag(name), type=int, default=default, metavar="N", help=text)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write JSON, with hardware and versions")
    parser.add_argument("--json", action="store_true", help="print the same JSON")


def run(args: argparse.Namespace) -> int:
    """Measure the parts that were asked for."""
    from plench.bench import describe_machine

    parts = ["stack" if part == "fleet" else part for part in args.parts or ["step", "evaluation"]]
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise UsageError(f"unknown part {unknown[0]!r}; expected one of {', '.join(PARTS)}")
    for name in NUMBERS:
        if getattr(args, name) < 1:
            raise UsageError(f"{flag(name)} must be at least 1, not {getattr(args, name)}")
    rows: list[dict[str, Any]] = []
    for part in parts:
        for row in measure_part(part, args):
            rows.append(row)
            if not args.json:
                what = " ".join(row[key] for key in ("algorithm", "dataset") if key in row)
                what = what or f"{row['runs']:,} runs"
                times = f"{row['ms']:10.3f} ms  baseline {row['floor_ms']:10.3f} ms"
                print(f"{row['part']:<11}{what:<28}{times}  ratio {row['ratio']:.2f}", flush=True)
    content = json.dumps({"benchmark": "plench", **describe_machine(), "rows": rows}, indent=1)
    if args.output is not None:
        write_text(args.output, content + "\n")
    if args.json:
        print(content)
    return 0


def measure_part(part: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of a part; steps, stacks and evaluations are measured in fresh processes."""
    from plench import bench
    from plench.algorithms import algorithms, find_algorithm

    if args.algorithms == ["all"]:
        ours = {name: entry.card for name, entry in algorithms().items() if entry.source is None}
        names = [name for name, card in ours.items() if card.shared and (card.stacked or part != "stack")]
    else:
        entries = [find_algorithm(name) for name in args.algorithms or USUAL]
        names = [entry.name for entry in entries]
        for entry in entries:
            if part in WITH_STEPS and not entry.card.shared:
                raise UsageError(
                    f"{entry.name} is fitted in rounds and has no steps to measure; measure the parts "
                    "evaluation and sweep of such methods"
                )
    if part == "sweep":
        yield {"part": part, **bench.measure_sweep(names, args.workers, args.steps)}
    elif part == "reading":
        yield {"part": part, **bench.measure_reading(args.runs, min(args.repeats, 5))}
    else:
        numbers = (args.data_dir, args.batch_size, args.repeats, args.stack)
        # A fresh process for each, so that nothing of the last one is in its memory.
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
            for dataset in ["DigitImages"] if part == "image" else args.datasets:
                for name in names:
                    measured = pool.submit(bench.measure, part, name, dataset, *numbers)
                    try:
                        yield {"part": part, **measured.result()}
                    except BrokenProcessPool as error:
                        raise RunFailedError(f"{name} on {dataset}: the measuring process exited") from error
