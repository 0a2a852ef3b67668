"""The page of a dataset: what records say of it and, where the data were measured, its candidate sets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plench.data import CandidateSpec, dataset_names, draw_candidates, load_dataset
from plench.errors import PlenchError
from plench.report.dataset_stats import CandidateStats, describe_candidates
from plench.report.results import Results
from plench.report.site.scripts import as_text
from plench.runs.records import Experiment, Run

# What a record's `dataset` says, in the order of the page, under names for people.
_CARD = (
    ("task", "task"),
    ("kind", "kind of data"),
    ("source", "source"),
    ("terms", "terms"),
    ("citation", "citation"),
    ("fingerprint", "fingerprint"),
    ("verified", "files have the public release's checksums"),
)
_SIZES = (
    ("n_train", "training examples"),
    ("n_validation", "validation examples"),
    ("n_test", "test examples"),
    ("n_classes", "classes"),
    ("train_mean_candidates", "candidates per training example, mean"),
    ("train_noise_rate", "noise rate of the training split"),
)
_CANDIDATES = {
    "pl_type": "candidate sets",
    "fps_rate": "flipping probability",
    "id_rate": "flipping rate (instance-dependent)",
    "drop_true_rate": "rate at which true labels are dropped",
}


def describe_dataset(setting: Experiment, run: Run, measured: CandidateStats | None) -> dict[str, Any]:
    """Return a setting's data as lists of (what, value), with the flipping matrix if it was measured."""
    card = run.info.get("dataset")
    card = card if isinstance(card, Mapping) else {}
    candidates = setting.details.get("candidates")
    candidates = candidates if isinstance(candidates, Mapping) else {}
    return {
        "card": _pairs(card, _CARD),
        "sizes": [*_pairs(card, _SIZES), *_features(card)],
        "candidates": [
            [_CANDIDATES.get(name, name), as_text(candidates[name])]
            for name in sorted(candidates, key=lambda name: ([*_CANDIDATES, name].index(name), name))
            if candidates[name] is not None
        ],
        "published": _published(card),
        "experiment": [
            [name, as_text(value)]
            for name, value in setting.details.items()
            if name not in ("candidates", "algorithm", "dataset", "dataset_fingerprint") and value is not None
        ],
        "classes": _class_names(card, measured),
        "measured": None if measured is None else _describe_measured(measured),
    }


def measure_candidates(
    results: Results, data_dir: Path
) -> tuple[dict[Experiment, CandidateStats], list[str]]:
    """Measure the candidate sets of every setting whose data are here; say of the others why they are not.

    Only our datasets are loaded, and only if they are those of the runs: viewing runs no third-party code.
    """
    measured: dict[Experiment, CandidateStats] = {}
    missed = []
    for setting in results.board.settings:
        try:
            if setting.dataset not in dataset_names(own_only=True):
                raise PlenchError("not one of the named datasets")
            dataset = load_dataset(setting.dataset, data_dir)
            if dataset.fingerprint != setting.details.get("dataset_fingerprint"):
                raise PlenchError("the data here are not those of the runs")
            spec = CandidateSpec(**setting.details["candidates"])
            drawn = draw_candidates(dataset, spec, trial_seed=0)
        except (PlenchError, TypeError, KeyError) as error:
            missed.append(f"{setting.dataset}: candidate sets not measured: {error}")
            continue
        measured[setting] = describe_candidates(drawn.candidates, drawn.labels, drawn.class_names)
    return measured, missed


def _pairs(card: Mapping[str, Any], keys: tuple[tuple[str, str], ...]) -> list[list[str]]:
    return [[shown, as_text(card[key])] for key, shown in keys if card.get(key) is not None]


def _features(card: Mapping[str, Any]) -> list[list[str]]:
    shape = card.get("input_shape")
    if not isinstance(shape, list) or len(shape) < 2:
        return []
    return [["features", " × ".join(as_text(size) for size in shape[1:])]]


def _published(card: Mapping[str, Any]) -> list[list[str]]:
    """Return the dataset's row in the paper's table, if its card has one."""
    row = card.get("published")
    if not isinstance(row, Mapping):
        return []
    return [[name.replace("_", " "), as_text(value)] for name, value in row.items()]


def _class_names(card: Mapping[str, Any], measured: CandidateStats | None) -> list[str] | None:
    """Return the names that the run's card has, else, for older records, those of the data."""
    names = card.get("class_names")
    if isinstance(names, list) and len(names) == card.get("n_classes"):
        return [as_text(name) for name in names]
    return None if measured is None or measured.class_names is None else list(measured.class_names)


def _describe_measured(stats: CandidateStats) -> dict[str, Any]:
    flipping = None
    if stats.flipping is not None:
        flipping = [[None if p != p else round(float(p), 4) for p in row] for row in stats.flipping]
    return {
        "examples": stats.n_examples,
        "mean_size": stats.mean_size,
        "sizes": [[size, int(count)] for size, count in enumerate(stats.size_counts) if count],
        "noise": stats.noise_rate,
        "flipping": flipping,
        "counts": None if stats.label_counts is None else [int(n) for n in stats.label_counts],
        "degree": stats.ambiguity_degree,
        "pair": None if stats.ambiguous_pair is None else list(stats.ambiguous_pair),
    }
