"""Model-selection criteria: pure functions of validation logits, candidates and, for the oracle ones, labels.

A criterion is a constant of this module. Third-party criteria come by path (`path/to/file.py:CRITERION`),
module or entry point. Only differences within a row of logits (N×K) matter, so log-probabilities serve as
well. Everything is computed in float64 and in log space.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plench.errors import UsageError
from plench.registry import Registry
from plench.text import normalise

Measure = Callable[[ArrayLike, ArrayLike, ArrayLike | None], float | None]


@dataclass(frozen=True)
class Criterion:
    """One way to choose a checkpoint and a configuration from validation figures.

    Parameters
    ----------
    name, title : str
        Name in options and files, and as printed in tables.
    meaning : str
        One sentence for lists and pages.
    record_key : str
        Key under which training writes the figure; begins with `val_`.
    measure : callable
        `measure(logits, candidates, labels)` returns the figure, or None if it needs labels and there are
        none.
    needs_labels : bool
        Whether it uses true labels.
    position : int
        Place in tables.
    early_stopping : bool
        If False, only the last checkpoint of a run counts.
    higher_is_better : bool
        Whether the largest figure is chosen, not the smallest.
    public_defect : str
        What is wrong with the figure in records of the public benchmark, if anything.
    """

    name: str
    title: str
    meaning: str
    record_key: str
    measure: Measure
    needs_labels: bool
    position: int
    early_stopping: bool = True
    higher_is_better: bool = True
    public_defect: str = ""


def score_covering(logits: ArrayLike, candidates: ArrayLike) -> NDArray[np.bool_]:
    """Return [argmax f ∈ S] of each example, whose mean is CR."""
    predicted = np.asarray(logits, dtype=np.float64).argmax(axis=1)
    covered: NDArray[np.bool_] = np.asarray(candidates, dtype=bool)[np.arange(len(predicted)), predicted]
    return covered


def score_approximated(logits: ArrayLike, candidates: ArrayLike) -> NDArray[np.float64]:
    """Return f_j / Σ_{k∈S} f_k of each example where j = argmax f is in S, else 0; its mean is AA.

    The quotient is exp(z_j − logsumexp of z over S), so a candidate mass that underflows is not a special
    case: a confident prediction outside S scores exactly 0.
    """
    scores = np.asarray(logits, dtype=np.float64)
    # Relative to the largest logit, which is z_j itself: for j ∈ S the sum below is at least 1.
    relative = np.exp(scores - scores[np.arange(len(scores)), scores.argmax(axis=1)][:, None])
    mass = np.where(np.asarray(candidates, dtype=bool), relative, 0.0).sum(axis=1)
    share = np.zeros(len(scores))
    np.divide(1.0, mass, out=share, where=score_covering(scores, candidates))
    return share


def covering_rate(logits: ArrayLike, candidates: ArrayLike, labels: ArrayLike | None = None) -> float:
    """Return the mean of [argmax f ∈ S]. True labels are not used."""
    return _mean_or_nan(score_covering(logits, candidates), logits)


def approximated_accuracy(logits: ArrayLike, candidates: ArrayLike, labels: ArrayLike | None = None) -> float:
    """Return the mean of the prediction's share of the candidates' mass. True labels are not used."""
    return _mean_or_nan(score_approximated(logits, candidates), logits)


def accuracy(logits: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean of [argmax f = y]."""
    scores = np.asarray(logits, dtype=np.float64)
    return _mean_or_nan(scores.argmax(axis=1) == np.asarray(labels), logits)


def oracle_accuracy(logits: ArrayLike, candidates: ArrayLike, labels: ArrayLike | None) -> float | None:
    """Return the accuracy on true labels, or None where there are none. Candidates are not used."""
    return None if labels is None else accuracy(logits, labels)


def _mean_or_nan(values: NDArray[Any], logits: ArrayLike) -> float:
    """Average over examples; a NaN or +inf logit makes the figure NaN, since argmax means nothing then."""
    scores = np.asarray(logits, dtype=np.float64)
    if np.isnan(scores).any() or np.isposinf(scores).any():
        return float("nan")
    return float(np.mean(values))


COVERING_RATE = Criterion(
    name="CR",
    title="CR",
    meaning="Covering rate: the share of validation examples whose predicted label is a candidate.",
    record_key="val_covering_rate",
    measure=covering_rate,
    needs_labels=False,
    position=1,
)
APPROXIMATED_ACCURACY = Criterion(
    name="AA",
    title="AA",
    meaning="Approximated accuracy: the mean share of the candidates' probability that the predicted label "
    "holds, 0 where it is no candidate.",
    record_key="val_approximated_acc",
    measure=approximated_accuracy,
    needs_labels=False,
    position=2,
    public_defect="AA comes from the public code, which scores a confident prediction outside the candidates "
    "up to 1 instead of 0 (it adds 1e-12 to the candidates' mass); this cannot be repaired afterwards",
)
ORACLE_ACCURACY = Criterion(
    name="OA",
    title="OA",
    meaning="Oracle accuracy: validation accuracy on true labels, at the last checkpoint of each run.",
    record_key="val_accuracy",
    measure=oracle_accuracy,
    needs_labels=True,
    position=3,
    early_stopping=False,
)
ORACLE_EARLY_STOPPING = replace(
    ORACLE_ACCURACY,
    name="OA_ES",
    title="OA w/ ES",
    meaning="Oracle accuracy with early stopping: validation accuracy on true labels, at the best checkpoint "
    "of each run.",
    position=4,
    early_stopping=True,
)


def _rename(criterion: Criterion, name: str) -> Criterion:
    """Return a third-party criterion under its name in records; its record_key must be its own."""
    if not criterion.record_key.startswith("val_"):
        raise UsageError(f"criterion {name}: record_key must begin with val_, not {criterion.record_key!r}")
    for entry in CRITERIA.own.values():
        ours = entry.member
        if ours.record_key == criterion.record_key and ours.measure is not criterion.measure:
            raise UsageError(
                f"criterion {name}: record_key {criterion.record_key} is that of {ours.name}; choose another"
            )
    return replace(criterion, name=name)


CRITERIA = Registry[Criterion](
    "criterion",
    __name__,
    "a plench.criteria.Criterion",
    lambda value: isinstance(value, Criterion),
    lambda criterion: criterion.name,
    group="plench.criteria",
    rename=_rename,
)


class Criteria(Mapping[str, Criterion]):
    """Our criteria and those that this process has loaded, by name; imports no third-party code."""

    def _known(self) -> dict[str, Criterion]:
        return {entry.name: entry.member for entry in (*CRITERIA.own.values(), *CRITERIA.loaded.values())}

    def __getitem__(self, name: str) -> Criterion:
        return self._known()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())


criteria = Criteria()


def find_criterion(spec: str) -> Criterion:
    """Return the criterion a user means: `cr`, `OA w/ ES`, `OA with ES` and `oa_es` all work, and paths."""
    short = re.sub(r"\bwith\b|\band\b|w/|&", " ", spec.lower())
    known = normalise(short) in map(normalise, CRITERIA.own)
    return CRITERIA.find(short if known else spec).member


def find_criteria(specs: str) -> list[Criterion]:
    """Return the criteria that a list separated by commas names."""
    return [find_criterion(spec.strip()) for spec in specs.split(",") if spec.strip()]


def format_criteria() -> str:
    """Return the table of the criteria's keys in records in Markdown, for docs/run-folder.md."""
    titles: dict[str, list[str]] = {}
    for entry in CRITERIA.own.values():
        titles.setdefault(entry.member.record_key, []).append(entry.member.title)
    rows = [f"| `{key}` | {', '.join(names)} |" for key, names in titles.items()]
    return "\n".join(["| key on validation | criteria that use it |", "|---|---|", *rows])


def measure_all(
    logits: ArrayLike, candidates: ArrayLike, labels: ArrayLike | None, more: Iterable[Criterion] = ()
) -> dict[str, float | None]:
    """Measure our criteria, those of installed entry points, and `more`; return figures by record key."""
    installed = [entry.member for entry in CRITERIA.items.values()]
    by_key = {criterion.record_key: criterion for criterion in (*installed, *more)}
    return {key: criterion.measure(logits, candidates, labels) for key, criterion in by_key.items()}
