"""The code of docs/add-an-algorithm.md is run as a reader would run it."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from plench.cli import main
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "add-an-algorithm.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


COMMANDS = [line for block in blocks("console") for line in block.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for block in blocks("python"):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name is not None, "a block of Python code must begin with the name of its file"
        (tmp_path / name[1]).write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tutorial_has_code_and_commands() -> None:
    assert len(blocks("python")) == 2
    assert len(COMMANDS) == 4


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("plench check")])
def test_checks_pass_without_advice(command: str, folder: Path, cli) -> None:
    report = json.loads(cli(*shlex.split(command)[1:], "--json").out)
    assert report["passed"] is True
    assert {row["name"]: row["detail"] for row in report["checks"] if row["status"] == "advice"} == {}


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("plench train")])
def test_training_learns(command: str, folder: Path) -> None:
    assert main([*shlex.split(command)[1:], "--output_dir", "out"]) == 0
    (results,) = folder.glob("out/*/results.jsonl")
    record = json.loads(results.read_text(encoding="utf-8").splitlines()[-1])
    assert record["step"] == 299
    assert record["test_acc"] > 0.8  # ten classes: chance is 0.1


def test_entry_point_names_the_group() -> None:
    (block,) = blocks("toml")
    assert "plench.algorithms" in tomllib.loads(block)["project"]["entry-points"]
