"""Algorithms of others: by path, module and entry point. They run unchanged, told apart by content."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import plench
from plench import list_algorithms
from plench.algorithms import algorithms, find_algorithm
from plench.algorithms.registry import ALGORITHMS, third_party_entry
from plench.registry import DiscoveryError
from tests.training.harness import LISTING, only_folder, read_description, read_records, run

SOURCE = Path(LISTING.rpartition(":")[0])
DIGEST = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:8]


def test_the_paper_s_listing_runs_by_path_under_its_own_name(tmp_path: Path) -> None:
    outcome = run(tmp_path, LISTING, steps=300, checkpoint_freq=100)
    assert outcome.status == "done"
    description = read_description(outcome.folder)
    assert description["config"]["algorithm"] == f"CAVL@{DIGEST}"
    assert re.fullmatch(r"CAVL@[0-9a-f]{8}", description["algorithm_card"]["name"])
    assert description["notices"] == []
    records = read_records(outcome.folder)
    assert {record["args"]["algorithm"] for record in records} == {f"CAVL@{DIGEST}"}
    assert records[-1]["test_acc"] > 0.8  # ten classes: chance is 0.1
    assert outcome.folder.name.startswith(f"Digits_FPS-CAVL@{DIGEST}-h0-t0-")


def test_a_run_s_folder_is_enough_to_load_its_model(tmp_path: Path) -> None:
    moved = tmp_path / "mine.py"
    moved.write_bytes(SOURCE.read_bytes())
    run(tmp_path / "out", f"{moved}:CAVL")
    moved.unlink()
    folder = only_folder(tmp_path / "out")
    assert (folder / "algorithm.py").read_bytes() == SOURCE.read_bytes()
    assert plench.load(folder).updates == 60


def test_a_class_runs_by_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_others.py").write_bytes(SOURCE.read_bytes())
    monkeypatch.syspath_prepend(tmp_path)
    outcome = run(tmp_path / "out", "module_of_others:CAVL")
    assert outcome.status == "done"
    by_path = run(tmp_path / "path", LISTING)
    assert read_records(outcome.folder) == read_records(by_path.folder)
    assert outcome.folder.name == by_path.folder.name


def install(site: Path, name: str, target: str) -> None:
    """Make a distribution with one entry point, as an installer would."""
    metadata = site / "others-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: others\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(f"[plench.algorithms]\n{name} = {target}\n", encoding="utf-8")
    (site / "package_of_others.py").write_bytes(SOURCE.read_bytes())


@pytest.fixture
def fresh_registry():
    """Let the registry look again, now and after the test."""
    ALGORITHMS.clear()
    yield
    ALGORITHMS.clear()


def test_an_entry_point_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_registry: None
) -> None:
    install(tmp_path, "Listing", "package_of_others:CAVL")
    monkeypatch.syspath_prepend(tmp_path)
    entry = find_algorithm("listing")
    assert entry.name == f"Listing@{DIGEST}"
    outcome = run(tmp_path / "out", entry)
    assert outcome.status == "done"
    assert read_records(outcome.folder)[0]["args"]["algorithm"] == f"Listing@{DIGEST}"
    assert list_algorithms()[-1]["name"] == "Listing"


def test_an_entry_point_named_as_an_alias_of_ours_is_what_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_registry: None
) -> None:
    install(tmp_path, "rc", "package_of_others:CAVL")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_algorithm("RC").name == f"rc@{DIGEST}"


def test_an_entry_point_in_a_process_of_its_own(tmp_path: Path) -> None:
    install(tmp_path, "Listing", "package_of_others:CAVL")
    command = [sys.executable, "-m", "plench.train", "-a", "Listing", "-d", "Digits_FPS", "--steps", "5"]
    done = subprocess.run(
        [*command, "--output_dir", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done: ")
    assert only_folder(tmp_path / "out").name.startswith(f"Digits_FPS-Listing@{DIGEST}")


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("pro-den", "package_of_others:CAVL", r"'pro-den' is declared twice: by plench \(PRODEN\)"),
        ("Listing", "package_of_others:CAVIL", "entry point Listing = package_of_others:CAVIL fails to load"),
        ("Listing", "no_such_package:CAVL", "entry point Listing = no_such_package:CAVL fails to load"),
    ],
)
def test_a_bad_entry_point_is_named(
    name: str,
    target: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fresh_registry: None,
) -> None:
    install(tmp_path, name, target)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DiscoveryError, match=message):
        algorithms()


def test_a_class_without_hyperparameters_gets_the_shared_ones() -> None:
    entry = find_algorithm(LISTING)
    assert entry.card.hyperparameters == ()
    assert entry.card.views == ("original", "weak", "strong")
    assert third_party_entry("CAVL", entry.cls, LISTING) == entry
