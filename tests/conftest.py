"""Fixtures that all tests share, and parts of a machine that some tests need.

A test that needs such a part (a browser, Slurm, real data) calls `skip_without` if it is missing. For a part
that PLENCH_REQUIRE names (separated by commas) the test fails instead. PLENCH_SHARED names the folder with
`data/`, `algorithms/` and `paper.tex`.
"""

import os

# One compute thread per test process, set before torch is imported: several processes share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says nothing of the code where other processes keep the machine busy.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

ROOT = Path(__file__).parent.parent
SHARED = Path(os.environ.get("PLENCH_SHARED", ROOT.parent / "shared"))
PARTS = (
    "accelerator",
    "axe",
    "chromium",
    "data",
    "encoders",
    "latex",
    "mount",
    "ray",
    "slurm",
    "specifications",
    "tensorboard",
)
REQUIRED = [part.strip() for part in os.environ.get("PLENCH_REQUIRE", "").split(",") if part.strip()]
if unknown := set(REQUIRED).difference(PARTS):
    raise pytest.UsageError(f"unknown parts in PLENCH_REQUIRE: {sorted(unknown)}; expected some of {PARTS}")


def skip_without(part: str, reason: str) -> NoReturn:
    """Skip a test or module for want of a part, or fail if that part is required."""
    assert part in PARTS
    if part in REQUIRED:
        pytest.fail(f"PLENCH_REQUIRE names {part}: {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}", allow_module_level=True)


def real_data_dir() -> Path | None:
    """Return the folder of real data on a developer's machine, if there is one."""
    folder = SHARED / "data"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = real_data_dir()
    if folder is None:
        skip_without("data", f"{SHARED} has no folder data (set PLENCH_SHARED)")
    return folder


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a `plench` command, check its exit code, and return what it printed."""
    from plench.cli import main

    def call(*words: Any, code: int = 0) -> Any:
        capsys.readouterr()
        returned = main([str(word) for word in words])
        printed = capsys.readouterr()
        assert returned == code, printed.err
        return printed

    return call


@pytest.fixture(scope="session")
def specifications() -> Path:
    folder = SHARED / "algorithms"
    if not folder.is_dir():
        skip_without("specifications", f"{folder} is missing (set PLENCH_SHARED)")
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the tests that ran and those that were skipped, by reason; `.ci/run` repeats it at its end."""
    stats = terminalreporter.stats
    ran = sum(len(stats.get(outcome, ())) for outcome in ("passed", "failed", "xfailed", "xpassed"))
    skipped: Counter[str] = Counter()
    for report in stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        part = reason.split(":")[0]
        skipped[part if part in PARTS else reason] += 1
    lines = [f"{ran} tests ran, {skipped.total()} were skipped"]
    lines += [f"  {count} for want of: {reason}" for reason, count in skipped.most_common()]
    terminalreporter.write_line("\n".join(lines))
    if summary := os.environ.get("PLENCH_TEST_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
