"""Output folders that are full, read-only, damaged, of another protocol, or in use."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import skip_without
from tests.sweep.driving import finish, grid_of, launch, odd, read_outcomes, start, succeed, sweep, wait_for

pytestmark = pytest.mark.real

GRID = grid_of(["CC", "PRODEN"], n_hparams=1, n_trials=2, steps=100)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder that is a small file system of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False)
    except OSError as error:
        skip_without("mount", str(error))
    if done.returncode != 0:
        skip_without("mount", "mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_stops_the_sweep_and_loses_nothing(mount: Path, tmp_path: Path) -> None:
    # Three models of a run take about 500 kB: the first run fits, the second does not.
    code, output = sweep("launch", *GRID, "--output_dir", mount, "--workers", 1)
    assert code == 2
    last = output.splitlines()[-1]
    assert "No space left on device" in last
    assert "repeat the command" in last
    stopped = read_outcomes(mount)
    assert "failed" not in [status for status, _, _ in stopped.values()]
    kept = {name: outcome for name, outcome in stopped.items() if outcome[1]}
    assert kept
    subprocess.run(["mount", "-o", "remount,size=20m", str(mount)], check=True)
    resumed = launch(GRID, mount, "--workers", 1)
    assert resumed == launch(GRID, tmp_path / "calm", "--workers", 1)
    assert kept.items() <= resumed.items()


def test_a_read_only_folder_is_a_clear_error(mount: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
    code, output = sweep("launch", *GRID, "--output_dir", mount, "--workers", 1)
    assert code == 2
    assert "Read-only file system" in output
    assert "Traceback" not in output


def test_damaged_and_foreign_folders(tmp_path: Path) -> None:
    expected = launch(GRID, tmp_path, "--workers", 1)
    cut, without_end, foreign, _ = sorted(expected)
    # A finished run whose records end in the middle of a line, and one without its last line.
    text = (tmp_path / cut / "results.jsonl").read_bytes()
    (tmp_path / cut / "results.jsonl").write_bytes(text[:-30])
    lines = (tmp_path / without_end / "results.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / without_end / "results.jsonl").write_bytes(b"".join(lines[:-1]))
    # A folder that was written under another version of the protocol.
    info = json.loads((tmp_path / foreign / "run.json").read_text())
    (tmp_path / foreign / "run.json").write_text(json.dumps({**info, "protocol": 99}))
    before = {path: path.read_bytes() for path in (tmp_path / foreign).iterdir()}

    assert "damaged 2, done 1, foreign 1" in succeed(start("status", "--output_dir", tmp_path))
    code, output = sweep("launch", *GRID, "--output_dir", tmp_path, "--workers", 1)
    assert code == 1
    assert "written under protocol 99" in output
    assert {path: path.read_bytes() for path in (tmp_path / foreign).iterdir()} == before
    healed = read_outcomes(tmp_path)
    assert healed[cut] == expected[cut]
    assert healed[without_end] == expected[without_end]


def test_a_second_launch_is_refused(counted: Path, tmp_path: Path) -> None:
    grid = grid_of([odd("Counting")], n_hparams=1, n_trials=1, steps=2000)
    command = ["launch", *grid, "--workers", 1, "--output_dir", tmp_path / "runs"]
    first = start(*command)
    wait_for(lambda: counted.stat().st_size > 0, what="the start of the first launch")
    code, output = finish(start(*command), timeout=180)
    assert code == 2
    assert "another launch is working on" in output
    succeed(first)
    assert counted.stat().st_size == 2000


def test_results_of_two_folders_are_merged_by_copying(tmp_path: Path) -> None:
    both, names = tmp_path / "both", ["CC", "PRODEN"]
    both.mkdir()
    expected = {}
    for name in names:
        expected |= launch(grid_of([name], n_trials=1, steps=60), tmp_path / name, "--workers", 1)
        subprocess.run(["cp", "-r", f"{tmp_path / name}/.", str(both)], check=True)
    copied = {path: path.stat().st_mtime_ns for path in both.glob("*/*")}
    assert launch(grid_of(names, n_trials=1, steps=60), both, "--workers", 1) == expected
    assert {path: path.stat().st_mtime_ns for path in both.glob("*/*")} == copied  # nothing was run again
    output = succeed(start("status", "--output_dir", both))
    assert "4 runs: 1 dataset, 2 algorithms, 2 configurations, 1 split\ndone 4" in output
