"""Model-selection criteria: pure functions of validation logits, candidates and (for the oracle ones) labels.

One file here is one criterion: a module with a constant `CRITERION`. It is found automatically. Third
parties' come by path (`path/to/file.py:CRITERION`), module or entry point.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from numpy.typing import ArrayLike

from plench.criteria.base import Criterion
from plench.criteria.oracle_accuracy import accuracy
from plench.errors import UsageError
from plench.registry import Registry
from plench.text import normalise

__all__ = ["CRITERIA", "Criterion", "accuracy", "criteria", "find_criteria", "find_criterion", "measure_all"]


def rename(criterion: Criterion, name: str) -> Criterion:
    """Return a third party's criterion under its name in records; its figure must be one of its own."""
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
    plural="criteria",
    group="plench.criteria",
    rename=rename,
    order=lambda criterion: (criterion.position, criterion.name),
)


class Criteria(Mapping[str, Criterion]):
    """Our criteria and those that this process has loaded, by name; third parties' code is not imported."""

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


def measure_all(
    logits: ArrayLike, candidates: ArrayLike, labels: ArrayLike | None, more: Iterable[Criterion] = ()
) -> dict[str, float | None]:
    """Measure every criterion on one set of validation logits, by the key under which records keep it.

    Beside ours these are the criteria of installed entry points, and `more`.
    """
    installed = [entry.member for entry in CRITERIA.items.values()]
    by_key = {criterion.record_key: criterion for criterion in (*installed, *more)}
    return {key: criterion.measure(logits, candidates, labels) for key, criterion in by_key.items()}


def find_criteria(specs: str) -> list[Criterion]:
    """Return the criteria that a list separated by commas names."""
    return [find_criterion(spec.strip()) for spec in specs.split(",") if spec.strip()]
