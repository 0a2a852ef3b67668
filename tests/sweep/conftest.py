"""Fixtures of the tests of sweeps."""

from pathlib import Path

import pytest


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that `Counting` of `odd_algorithms.py` makes longer by a byte per update."""
    file = tmp_path / "count"
    file.touch()
    monkeypatch.setenv("PLENCH_TEST_COUNT", str(file))
    return file
