"""What defects.py measures: our algorithms with one defect of the public benchmark's code put in.

They are switches of tests/departures; tests show there what each changes. Nothing of it is in the package.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.departures.hard import FrozenVALEN, MisreadABLE, StoppedALIM, StoppedPiCOPlus, UnusedFREDIS
from tests.departures.vanilla import ReversedMCLGCE, ReversedMCLMSE, UndonePOP

__all__ = [
    "FrozenVALEN",
    "MisreadABLE",
    "ReversedMCLGCE",
    "ReversedMCLMSE",
    "StoppedALIM",
    "StoppedPiCOPlus",
    "UndonePOP",
    "UnusedFREDIS",
]
