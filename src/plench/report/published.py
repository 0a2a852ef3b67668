"""The paper's PLCIFAR10 results (Wang et al., ICLR 2025) and what is known to be wrong with some of them."""

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from plench.criteria import find_criterion

# The paper's image experiments use three splits, 60,000 steps, 20 configurations per split (protocol).
N_SPLITS = 3
STEPS = 60_000
N_HPARAMS = 20
HOLDOUT_FRACTION = 0.1
PUBLISHED_CRITERIA = ("CR", "AA", "OA", "OA_ES")


@dataclass(frozen=True)
class PublishedCell:
    """One cell of the paper, as fractions. `printed_error` is the population standard deviation over √n."""

    dataset: str
    model: str
    algorithm: str
    criterion: str
    mean: float
    printed_error: float

    @property
    def standard_error(self) -> float:
        """The standard error as we report it: from the sample standard deviation."""
        return self.printed_error * math.sqrt(N_SPLITS / (N_SPLITS - 1))

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the number is not the method's, if it is known not to be."""
        from plench.algorithms.registry import own_cards  # imports torch

        card = own_cards()[self.algorithm]
        concerned = self.dataset in (card.public_fault_on or (self.dataset,))
        reasons = (card.public_fault if concerned else "", find_criterion(self.criterion).public_defect)
        return tuple(reason for reason in reasons if reason)


@cache
def load_published() -> dict[tuple[str, str, str, str], PublishedCell]:
    """Return the paper's cells by (dataset, model, algorithm, criterion)."""
    text = (files("plench.report") / "published.json").read_text(encoding="utf-8")
    cells = {}
    for table in json.loads(text)["tables"]:
        for row in table["rows"]:
            for criterion in PUBLISHED_CRITERIA:
                mean, error = row[criterion]
                key = (table["dataset"], table["model"], row["algorithm"], criterion)
                cells[key] = PublishedCell(*key, mean=mean / 100, printed_error=error / 100)
    return cells
