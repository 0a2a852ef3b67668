"""Measure what plench costs: each part compared with a baseline that is measured in the same
process, in turns. docs/bench.md explains each number and how to compare two commits. On a busy machine only
the ratios are meaningful.

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
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plench.errors import RunFailedError, UsageError
from plench.runs.files import write_text
from plench.text import flag

PARTS = ("step", "stack", "image", "evaluation", "sweep", "reading")
WITH_STEPS = ("step", "stack", "image")
USUAL = ("PRODEN", "CC", "LWS", "CRDPLL")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: step evaluation)"
    )
    usual = " ".join(USUAL)
    parser.add_argument(
        "-a", "--algorithms", nargs="+", metavar="NAME", help=f"names, or `all` (default: {usual})"
    )
    parser.add_argument(
        "-d",
        "--datasets",
        nargs="+",
        metavar="NAME",
        default=["Digits_FPS"],
        help="of steps, stacks and evaluations",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="folder with the data files")
    parser.add_argument("--batch-size", type=int, default=128, metavar="N", help="of steps (default 128)")
    parser.add_argument("--stack", type=int, default=10, metavar="N", help="runs per stack (default 10)")
    parser.add_argument("--repeats", type=int, default=9, metavar="N", help="turns (default 9)")
    parser.add_argument("--runs", type=int, default=2000, metavar="N", help="runs to read (default 2000)")
    parser.add_argument("--steps", type=int, default=500, metavar="N", help="updates of a sweep's runs (500)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="of the sweep (default 2)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write JSON, with hardware and versions")
    parser.add_argument("--json", action="store_true", help="print the same JSON")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Measure the parts that were asked for."""
    from plench.bench import describe_machine

    parts = ["stack" if part == "fleet" else part for part in arguments.parts or ["step", "evaluation"]]
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise UsageError(f"unknown part {unknown[0]!r}; expected one of {', '.join(PARTS)}")
    for name in ("repeats", "runs", "steps", "workers", "batch_size", "stack"):
        if getattr(arguments, name) < 1:
            raise UsageError(f"{flag(name)} must be at least 1, not {getattr(arguments, name)}")
    if arguments.here:
        print(json.dumps(measure_here(parts[0], arguments)))
        return 0
    rows: list[dict[str, Any]] = []
    for part in parts:
        for row in measure_part(part, arguments):
            rows.append(row)
            if not arguments.json:
                what = " ".join(row[key] for key in ("algorithm", "dataset") if key in row)
                what = what or f"{row['runs']:,} runs"
                figures = (
                    f"{row['ms']:10.3f} ms  baseline {row['floor_ms']:10.3f} ms  ratio {row['ratio']:.2f}"
                )
                print(f"{row['part']:<11}{what:<28}{figures}", flush=True)
    content = json.dumps({"benchmark": "plench", **describe_machine(), "rows": rows}, indent=1)
    if arguments.output is not None:
        write_text(arguments.output, content + "\n")
    if arguments.json:
        print(content)
    return 0


def measure_part(part: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of a part; steps, stacks and evaluations are measured in fresh processes."""
    from plench import bench
    from plench.algorithms import algorithms, find_algorithm

    if arguments.algorithms == ["all"]:
        ours = {name: entry.card for name, entry in algorithms().items() if entry.source is None}
        names = [name for name, card in ours.items() if card.shared and (card.stacked or part != "stack")]
    else:
        entries = [find_algorithm(name) for name in arguments.algorithms or USUAL]
        names = [entry.name for entry in entries]
        for entry in entries:
            if part in WITH_STEPS and not entry.card.shared:
                raise UsageError(
                    f"{entry.name} is fitted in rounds and has no steps to measure; measure the parts "
                    "evaluation and sweep of such methods"
                )
    if part == "sweep":
        yield {"part": part, **bench.measure_sweep(names, arguments.workers, arguments.steps)}
    elif part == "reading":
        yield {"part": part, **bench.measure_reading(arguments.runs, min(arguments.repeats, 5))}
    else:
        for dataset in ["DigitImages"] if part == "image" else arguments.datasets:
            for name in names:
                yield {"part": part, **measure_apart(part, name, dataset, arguments)}


def measure_apart(part: str, algorithm: str, dataset: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure in a process of its own, so that nothing of the last one is in its memory."""
    words = [part, "--here", "-a", algorithm, "-d", dataset, "--repeats", str(arguments.repeats)]
    words += ["--batch-size", str(arguments.batch_size), "--stack", str(arguments.stack)]
    words += [] if arguments.data_dir is None else ["--data-dir", str(arguments.data_dir)]
    command = [sys.executable, "-m", "plench", "bench", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailedError(f"{algorithm} on {dataset} could not be measured: {done.stderr.strip()[-2000:]}")
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def measure_here(part: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one algorithm on one dataset in this process."""
    from plench import bench

    names, datasets, repeats = arguments.algorithms or [], arguments.datasets, arguments.repeats
    if len(names) != 1 or len(datasets) != 1:
        raise UsageError(
            f"--here measures one algorithm on one dataset, not {len(names)} algorithms on {len(datasets)}"
        )
    what = (names[0], datasets[0], arguments.data_dir)
    if part == "evaluation":
        return bench.measure_evaluation(*what, repeats)
    if part == "stack":
        return bench.measure_stack(*what, arguments.batch_size, repeats, arguments.stack)
    if part == "image":
        return bench.measure_step(*what, None, repeats, warm_up=2)
    return bench.measure_step(*what, arguments.batch_size, repeats)
