"""Records the golden runs and tables anew: `python -m tests.golden.record [NAME …]`.

To be used when a run's numbers are meant to change, and never to make a test pass. Without names everything
is recorded. The folders in `folders/` stay.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import json
import sys
import tempfile
from pathlib import Path

from tests.golden.cases import CASES
from tests.golden.measure import measure
from tests.golden.recordings import CONDITIONS, RUNS, TABLES, conditions, write_recording
from tests.golden.tables import make_tables


def record(names: list[str]) -> None:
    """Record the named runs, or all runs and the tables."""
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as folder:
            write_recording(RUNS / f"{name}.json", measure(CASES[name], Path(folder)))
        print(name, flush=True)
    if not names:
        with tempfile.TemporaryDirectory() as folder:
            write_recording(TABLES, make_tables(Path(folder)))
        CONDITIONS.write_text(json.dumps(conditions(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(sys.argv[1:])
