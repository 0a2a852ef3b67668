"""Output folders that are full, read-only, damaged, of another protocol, or taken."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweep.driving import finish, grid_arguments, odd, read_outcomes, start, sweep, wait_for

pytestmark = pytest.mark.real

GRID = grid_arguments(["CC", "PRODEN"], n_hparams=1, n_trials=2, steps=100)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder that is a small file system of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False)
    except OSError as error:
        pytest.skip(f"no mount command: {error}")
    if done.returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_stops_the_sweep_and_loses_nothing(mount: Path, tmp_path: Path) -> None:
    # Three models of a run take about 500 kB: the first run fits, the second does not.
    command = ["launch", *GRID, "--output_dir", str(mount), "--workers", "1"]
    code, output = sweep(*command)
    assert code == 2
    last = output.splitlines()[-1]
    assert "No space left on device" in last
    assert "repeat the command" in last
    states = [status for status, _, _ in read_outcomes(mount).values()]
    assert "failed" not in states
    kept = {name: outcome for name, outcome in read_outcomes(mount).items() if outcome[1]}
    assert kept

    subprocess.run(["mount", "-o", "remount,size=20m", str(mount)], check=True)
    code, output = sweep(*command)
    assert code == 0, output
    calm = tmp_path / "calm"
    code, output = sweep("launch", *GRID, "--output_dir", str(calm), "--workers", "1")
    assert code == 0, output
    assert read_outcomes(mount) == read_outcomes(calm)
    assert kept.items() <= read_outcomes(mount).items()


def test_a_read_only_folder_is_a_clear_error(mount: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
    code, output = sweep("launch", *GRID, "--output_dir", str(mount), "--workers", "1")
    assert code == 2
    assert "Read-only file system" in output
    assert "Traceback" not in output


def test_damaged_and_foreign_folders(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    command = ["launch", *GRID, "--output_dir", str(folder), "--workers", "1"]
    assert sweep(*command)[0] == 0
    expected = read_outcomes(folder)
    cut, without_end, foreign, _ = sorted(expected)
    # A finished run whose records end in the middle of a line, and one that lacks its last line.
    text = (folder / cut / "results.jsonl").read_bytes()
    (folder / cut / "results.jsonl").write_bytes(text[:-30])
    lines = (folder / without_end / "results.jsonl").read_bytes().splitlines(keepends=True)
    (folder / without_end / "results.jsonl").write_bytes(b"".join(lines[:-1]))
    # A folder that was written under another version of the protocol.
    info = json.loads((folder / foreign / "run.json").read_text())
    (folder / foreign / "run.json").write_text(json.dumps({**info, "protocol": 99}))
    before = {path: path.read_bytes() for path in (folder / foreign).iterdir()}

    code, output = sweep("status", "--output_dir", str(folder))
    assert code == 0
    assert "damaged 2, done 1, foreign 1" in output
    code, output = sweep(*command)
    assert code == 1
    assert "written under protocol 99" in output
    assert {path: path.read_bytes() for path in (folder / foreign).iterdir()} == before
    healed = read_outcomes(folder)
    assert healed[cut] == expected[cut]
    assert healed[without_end] == expected[without_end]


def test_the_second_of_two_launches_says_so_and_leaves(tmp_path: Path) -> None:
    counted = tmp_path / "count"
    counted.touch()
    command = [
        *("launch", *grid_arguments([odd("Counting")], n_hparams=1, n_trials=1, steps=2000)),
        *("--workers", "1", "--output_dir", str(tmp_path / "runs")),
    ]
    first = start(*command, PLENCH_TEST_COUNT=str(counted))
    wait_for(lambda: counted.stat().st_size > 0, what="the first launch to begin")
    code, output = sweep(*command, PLENCH_TEST_COUNT=str(counted), timeout=60)
    assert code == 2
    assert "another launch is working on" in output
    code, output = finish(first)
    assert code == 0, output
    assert counted.stat().st_size == 2000


def test_results_of_two_folders_are_merged_by_copying(tmp_path: Path) -> None:
    one, two, both = tmp_path / "one", tmp_path / "two", tmp_path / "both"
    small = grid_arguments(["CC"], n_hparams=2, n_trials=1, steps=60)
    other = grid_arguments(["PRODEN"], n_hparams=2, n_trials=1, steps=60)
    assert sweep("launch", *small, "--output_dir", str(one), "--workers", "1")[0] == 0
    assert sweep("launch", *other, "--output_dir", str(two), "--workers", "1")[0] == 0
    both.mkdir()
    for source in (one, two):
        subprocess.run(["cp", "-r", f"{source}/.", str(both)], check=True)
    copied = {path: path.stat().st_mtime_ns for path in both.glob("*/*")}
    together = grid_arguments(["CC", "PRODEN"], n_hparams=2, n_trials=1, steps=60)
    code, output = sweep("launch", *together, "--output_dir", str(both), "--workers", "1")
    assert code == 0, output
    assert "done 4" in output
    assert read_outcomes(both) == {**read_outcomes(one), **read_outcomes(two)}
    assert {path: path.stat().st_mtime_ns for path in both.glob("*/*")} == copied  # nothing was run again
    code, output = sweep("status", "--output_dir", str(both))
    assert "4 runs: 1 dataset, 2 algorithms, 2 configurations, 1 split" in output
