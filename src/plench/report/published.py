"""The paper's PLCIFAR10 results (Wang et al., ICLR 2025) and what is known to be wrong with some of them."""

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from plench.criteria import find_criterion

# The paper's image experiments use three splits, 60,000 steps, 20 configurations a split (protocol).
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
        known = [
            fault.reason
            for fault in FAULTS
            if self.algorithm in fault.algorithms and self.dataset in (fault.datasets or (self.dataset,))
        ]
        defect = find_criterion(self.criterion).public_defect
        return (*known, *([defect] if defect else []))


@dataclass(frozen=True)
class Fault:
    """A defect of the public benchmark's code that its numbers carry (on all datasets if none is named)."""

    algorithms: tuple[str, ...]
    reason: str
    datasets: tuple[str, ...] = ()


# From the specifications of the algorithms, sections "Where the public code departs". Differences that leave
# the method what it is (an extra pass, another timing) are not faults.
FAULTS = (
    Fault(
        ("MCL_GCE", "MCL_MSE"),
        "the public code divides by the complementary loss instead of multiplying: the gradient is reversed",
    ),
    Fault(
        ("POP",),
        "in the public code purified labels come back at the next visit, so purification has no effect",
    ),
    Fault(("CAVL",), "the public code may choose a label outside the candidates as the target"),
    Fault(("IDGP",), "an epsilon in the public code silently switches off one of the method's losses"),
    Fault(
        ("EXP",),
        "the public code divides by zero where every label is a candidate, and the weights turn NaN",
        ("PLCIFAR10_Aggregate",),
    ),
    Fault(
        ("NN", "GA"), "the public code multiplies by the whole prior vector instead of by one class's prior"
    ),
    Fault(("ABLE",), "the public code weights each batch by the confidences of the first training examples"),
    Fault(("FREDIS",), "the public code computes corrected candidates and then does not use them"),
    Fault(
        ("ALIM", "PiCO_plus"),
        "the public code never counts its steps and so stays in warm-up for the whole run (the figures fit "
        "that, but whether they came from exactly this version is not known)",
    ),
)


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
