"""Suites: named sweeps that most users want to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from plench.algorithms import AlgorithmCard, algorithms
from plench.algorithms.registry import PAPER
from plench.data import DatasetCard, dataset_card, dataset_names
from plench.data.sources.crowd import RELEASES
from plench.errors import UsageError
from plench.runs.sweep_spec import Grid
from plench.text import find_name

# The protocol: 20 configurations for each split; five splits of tabular data, three of images.
N_HPARAMS = 20
N_TRIALS = {"tabular": 5, "image": 3}


def make_suite(name: str) -> tuple[Grid, ...]:
    """Return the grids of a named suite."""
    return SUITES[find_name(name, SUITES, "suite")]()


def own_algorithms(wanted: Callable[[AlgorithmCard], bool]) -> tuple[str, ...]:
    """Return the names of the package's own algorithms whose card is wanted."""
    return tuple(name for name, entry in algorithms().items() if entry.source is None and wanted(entry.card))


def paper_algorithms() -> tuple[str, ...]:
    """Return the names of the paper's algorithms."""
    return own_algorithms(lambda card: card.name in PAPER)


def find_datasets(wanted: Callable[[DatasetCard], bool]) -> tuple[str, ...]:
    """Return the names of the package's own datasets whose card is wanted."""
    return tuple(name for name in dataset_names(own_only=True) if wanted(dataset_card(name)))


def crowd_datasets() -> tuple[str, ...]:
    """Return the names of the package's datasets that come with annotators' answers."""
    return tuple(release.name for release in RELEASES)


def make_grids(algorithms: Sequence[str], datasets: Sequence[str], **changes: Any) -> tuple[Grid, ...]:
    """Return the protocol's grids for these datasets: one for each kind of data, which has its own splits.

    `changes` replace fields of every grid.
    """
    kinds = {name: dataset_card(name).kind for name in datasets}
    return tuple(
        Grid(
            tuple(algorithms),
            tuple(name for name in datasets if kinds[name] == kind),
            **{"n_trials": n_trials, **changes},
        )
        for kind, n_trials in N_TRIALS.items()
        if kind in kinds.values()
    )


def _make_lite() -> tuple[Grid, ...]:
    """Built-in data, two configurations and two splits of the paper's algorithms: minutes on a laptop."""
    generated = ("uss", "fps")  # id fits a classifier first, which takes too long
    datasets = find_datasets(lambda card: card.kind == "tabular" and card.candidates.pl_type in generated)
    return (Grid(paper_algorithms(), datasets, n_hparams=2, n_trials=2, steps=1000, checkpoint_freq=100),)


def _make_benchmark(kind: str | None) -> tuple[Grid, ...]:
    datasets = find_datasets(lambda card: card.published is not None and kind in (None, card.kind))
    if not datasets:
        raise UsageError(f"no benchmark dataset of kind {kind} is known")
    return make_grids(paper_algorithms(), datasets)


def _make_extended() -> tuple[Grid, ...]:
    """Every algorithm, those after the paper too, on the paper's datasets and on the two of crowds."""
    (tabular,), (image,) = _make_benchmark("tabular"), _make_benchmark("image")
    return (
        replace(tabular, algorithms=own_algorithms(lambda card: not card.answers)),
        replace(tabular, algorithms=own_algorithms(lambda card: True), datasets=crowd_datasets()),
        replace(image, algorithms=own_algorithms(lambda card: card.shared)),
    )


SUITES: dict[str, Callable[[], tuple[Grid, ...]]] = {
    "lite": _make_lite,
    "tabular": lambda: _make_benchmark("tabular"),
    "image": lambda: _make_benchmark("image"),
    "full": lambda: _make_benchmark(None),
    "extended": _make_extended,
}
