"""One made-up sweep for all report tests."""

import pytest

from plench.report.leaderboard import build_leaderboard
from plench.runs import read_runs
from tests.synthetic_sweep import write_sweep


@pytest.fixture(scope="session")
def sweep(tmp_path_factory):
    return write_sweep(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="session")
def runs(sweep):
    return read_runs(sweep)


@pytest.fixture(scope="session")
def board(runs):
    return build_leaderboard(runs)
