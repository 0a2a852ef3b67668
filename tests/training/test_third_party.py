"""Algorithms of others: by path, module and entry point. They run unchanged, told apart by content."""

import hashlib
import re
from pathlib import Path

import pytest

import plench
from plench import list_algorithms
from plench.algorithms import find_algorithm
from plench.algorithms.registry import ALGORITHMS
from tests.core.test_registry import install
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


def test_entry_points_are_found_by_their_names_also_where_they_are_aliases_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "package_of_others.py").write_bytes(SOURCE.read_bytes())
    theirs = "package_of_others:CAVL"
    install(tmp_path, "plench.algorithms", Listing=theirs, rc=theirs)
    monkeypatch.syspath_prepend(tmp_path)
    ALGORITHMS.clear()  # it looks again, now and after the test
    request.addfinalizer(ALGORITHMS.clear)
    assert find_algorithm("RC").name == f"rc@{DIGEST}"
    entry = find_algorithm("listing")
    outcome = run(tmp_path / "out", entry)
    assert outcome.status == "done"
    assert read_records(outcome.folder)[0]["args"]["algorithm"] == entry.name == f"Listing@{DIGEST}"
    assert {"Listing", "rc"} <= {row["name"] for row in list_algorithms()}


def test_a_class_without_hyperparameters_gets_the_shared_ones() -> None:
    entry = find_algorithm(LISTING)
    assert entry.card.hyperparameters == ()
    assert entry.card.views == ("original", "weak", "strong")
