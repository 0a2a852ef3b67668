"""Options that several commands share, and how they are read."""

from __future__ import annotations

import argparse
import json
from typing import Any

from plench.data import CandidateSpec, DatasetCard, choose_candidates
from plench.data.candidates import DEFAULT_FPS_RATE, DEFAULT_ID_RATE, PARTIAL_LABEL_TYPES
from plench.errors import UsageError


def add_candidate_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how candidate sets are made; `read_candidates` reads them."""
    group = parser.add_argument_group("candidate sets")
    group.add_argument(
        "--pl_type",
        choices=PARTIAL_LABEL_TYPES,
        help="real: those of the data; uss, fps, id: generated from true labels (default: by the dataset)",
    )
    group.add_argument(
        "--fps_rate",
        type=float,
        metavar="P",
        help=f"flipping probability of fps (default: {DEFAULT_FPS_RATE})",
    )
    group.add_argument(
        "--id_rate", type=float, metavar="P", help=f"flipping rate of id (default: {DEFAULT_ID_RATE})"
    )
    group.add_argument(
        "--drop_true_rate", type=float, metavar="P", help="rate at which true labels are dropped (default: 0)"
    )


def read_candidates(arguments: argparse.Namespace, card: DatasetCard) -> CandidateSpec:
    """Return the candidate sets that a user asked for on this dataset."""
    return choose_candidates(
        card.candidates, arguments.pl_type, arguments.fps_rate, arguments.id_rate, arguments.drop_true_rate
    )


def add_split_options(parser: argparse.ArgumentParser) -> None:
    """Add the fractions of the split."""
    group = parser.add_argument_group("split")
    group.add_argument(
        "--holdout_fraction", type=float, default=0.1, metavar="F", help="share of validation (default: 0.1)"
    )
    group.add_argument(
        "--tabular_test_fraction",
        type=float,
        default=0.1,
        metavar="F",
        help="share of test in data without a test set of its own (default: 0.1)",
    )


def add_precision_options(parser: argparse.ArgumentParser) -> None:
    """Add how the networks compute; unlike the other computing options this is part of what a run is."""
    group = parser.add_argument_group("arithmetic")
    group.add_argument(
        "--precision",
        choices=("float32", "bf16"),
        default="float32",
        help="bf16: networks compute in bfloat16 (default: float32)",
    )
    group.add_argument(
        "--compile", action="store_true", help="compile the networks (slow to start, needs a C++ compiler)"
    )


def add_compute_options(parser: argparse.ArgumentParser) -> None:
    """Add how a run is carried out."""
    group = parser.add_argument_group("computing")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    group.add_argument(
        "--threads", type=int, default=1, metavar="N", help="compute threads a run (default: 1)"
    )
    group.add_argument(
        "--save_seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds between checkpoints (default: 60)",
    )
    group.add_argument("--save_steps", type=int, metavar="N", help="also checkpoint every N updates")
    group.add_argument(
        "--resume_anyway", action="store_true", help="continue a run begun under other versions or threads"
    )


def read_hparams(text: str | None) -> dict[str, Any]:
    """Read the JSON object of `--hparams`."""
    if text is None:
        return {}
    try:
        values = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--hparams is not JSON ({error}): {text}") from error
    if not isinstance(values, dict):
        raise UsageError(f'--hparams must be a JSON object like {{"lr": 0.01}}, not {text}')
    return values
