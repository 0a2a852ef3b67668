"""Fixtures that all tests share."""

import os

# One compute thread per test process, set before torch is imported: several processes share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def real_data_dir() -> Path | None:
    """Return the folder of real data on a developer's machine, if there is one."""
    folder = Path(os.environ.get("PLENCH_DATA", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = real_data_dir()
    if folder is None:
        pytest.skip("real data is absent (set PLENCH_DATA to a folder with tabular/lost.mat …)")
    return folder
