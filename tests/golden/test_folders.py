"""Folders made by the commit before issue 10: finished ones are read, others continued or refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden.adapter import (
    change_saved,
    command,
    conditions_agree,
    predict,
    read_records,
)
from tests.golden.cases import FOLDERS, TABULAR, UNFINISHED_RUN
from tests.golden.recordings import TABLES, read_recording
from tests.golden.tables import make_tables


def test_tables_as_recorded(tmp_path: Path) -> None:
    """Every viewing command says of the kept folders what it said when they were made."""
    recorded, now = read_recording(TABLES), make_tables(tmp_path)
    assert list(now) == list(recorded)
    for words, lines in recorded.items():
        assert now[words] == lines, words
    assert any(
        line.startswith("PRODEN ") for line in recorded["collect sweep --planned_trials 3 --where steps=6"]
    )


def test_an_old_model_predicts() -> None:
    """The last model of a finished run is read, and its test accuracy is the one in the record."""
    (folder,) = (FOLDERS / "models").iterdir()
    arrays = np.load(TABULAR)
    accuracy = np.mean(np.array(predict(folder, arrays["features"])) == arrays["labels"])
    assert accuracy > 0.5  # of all examples, most of them seen in training; chance is 0.2


def test_an_old_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    shutil.copytree(FOLDERS / "models", tmp_path, dirs_exist_ok=True)
    before = content(tmp_path)
    code, out, _ = command(*UNFINISHED_RUN, "--seed", "1", "--output_dir", str(tmp_path), "--json")
    told = json.loads(out)
    assert (code, told["status"], told["updates_made"]) == (0, "done", 0)
    assert content(tmp_path) == before


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """Return a copy of the interrupted run's folder."""
    shutil.copytree(FOLDERS / "unfinished", tmp_path / "runs")
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def content(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder; locks do not count."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def go_on(folder: Path, *options: str) -> tuple[int, str]:
    """Repeat the command of the interrupted run; return exit code and errors."""
    code, _, err = command(*UNFINISHED_RUN, "--output_dir", str(folder.parent), *options)
    return code, err


def assert_refused(folder: Path, *options: str, because: str) -> None:
    """Demand that the run is refused with the reason and that nothing in its folder changes."""
    before = content(folder)
    code, err = go_on(folder, *options)
    assert code == 2, err
    assert because in err
    assert content(folder) == before


def assert_continued(folder: Path, tmp_path: Path, *options: str) -> None:
    """Demand that the run ends with the records of an undisturbed one."""
    updates = json.loads((folder / "run.json").read_text(encoding="utf-8"))["updates"]
    assert updates == 5
    assert go_on(folder, *options)[0] == 0
    assert command(*UNFINISHED_RUN, "--output_dir", str(tmp_path / "whole"))[0] == 0
    assert read_records(folder) == read_records(tmp_path / "whole" / folder.name)


def test_an_old_unfinished_run_continues_or_is_refused_with_the_reason(
    unfinished: Path, tmp_path: Path
) -> None:
    """It continues under the conditions that it began under, which every change of the source ends."""
    if conditions_agree(unfinished / "checkpoint.pt"):
        assert_continued(unfinished, tmp_path)
    else:
        assert_refused(unfinished, because="this run was begun under other conditions (")


def test_an_old_unfinished_run_continued_anyway(unfinished: Path, tmp_path: Path) -> None:
    """Where today's state has other names it is refused, else it goes on where it was."""
    before = content(unfinished)
    code, err = go_on(unfinished, "--resume_anyway")
    if code == 0:
        shutil.rmtree(unfinished)
        shutil.copytree(FOLDERS / "unfinished", unfinished.parent, dirs_exist_ok=True)
        assert_continued(unfinished, tmp_path, "--resume_anyway")
    else:
        assert code == 2
        assert STATE_DIFFERS in err
        assert content(unfinished) == before


PLAIN = {"kind": "plain", "value": 1}
STATE_DIFFERS = "the checkpoint's state is not that of the algorithm"


@pytest.mark.parametrize(
    ("group", "old", "new"),
    [
        ("tensors", "confidence", "beliefs"),
        ("tensors", "confidence", None),
        ("modules", "network", "net"),
        ("attributes", "optimizer", "adam"),
        ("attributes", "num_classes", None),
    ],
)
def test_state_of_other_names_is_refused(unfinished: Path, group: str, old: str, new: str | None) -> None:
    """A checkpoint that lacks a part of the algorithm's state is never half restored."""

    def rename(payload: dict[str, Any]) -> None:
        saved = payload["algorithm"]
        saved["attributes"]["steps_done"] = PLAIN  # methods count steps since the folder was made
        saved[group] = {new if name == old else name: part for name, part in saved[group].items()}
        saved[group].pop(None, None)

    change_saved(unfinished / "checkpoint.pt", rename)
    assert_refused(unfinished, "--resume_anyway", because=STATE_DIFFERS)
    _, err = go_on(unfinished, "--resume_anyway")
    assert old in err


def test_state_that_other_code_had_is_refused(unfinished: Path) -> None:
    """A checkpoint of other code that holds more than the algorithm has is refused too."""

    def add(payload: dict[str, Any]) -> None:
        payload["algorithm"]["attributes"]["forgotten"] = PLAIN
        payload["environment"]["source"] = "0" * 12

    change_saved(unfinished / "checkpoint.pt", add)
    assert_refused(unfinished, because="source 000000000000 → ")
    assert_refused(unfinished, "--resume_anyway", because=STATE_DIFFERS)
