"""Command lines that once ended in a traceback, and the campaign that finds them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns.arguments.__main__ import plan
from campaigns.arguments.child import find_fault
from campaigns.arguments.words import list_commands, make_words
from campaigns.arguments.world import Scene

import plench
from plench.cli import main
from tests.conftest import ROOT


def test_command_lines_are_made_anew_from_their_numbers() -> None:
    made = [make_words(3, number) for number in range(300)]
    assert made == [make_words(3, number) for number in range(300)]
    assert [words for _, words in made] != [words for _, words in (make_words(4, n) for n in range(300))]
    assert {command.name for command, _ in made} >= {
        "train",
        "collect",
        "sweep status",
        "plot boxes",
        "predict",
    }
    assert len(list_commands()) >= 30


def test_faults_are_seen() -> None:
    assert find_fault(0, "good", lives=False) == ""
    assert find_fault(2, "plench: error: no", lives=False) == ""
    assert "KeyError" in find_fault(1, "Traceback (most recent call last):\n  x\nKeyError: 1\n", lives=False)
    assert find_fault(-11, "", lives=False) == "exit code -11"
    assert find_fault(2, "", lives=False) == "exit code 2 without a word"
    assert find_fault(2, "error: \x1b[2J", lives=False) == "an escape was printed"
    assert find_fault(0, "good", lives=True) == "processes were left behind"


def test_quick_calls_share_a_process_and_others_do_not() -> None:
    planned = [plan(3, number) for number in range(400)]
    assert all(call.afresh == (call.number % 20 == 0) for call in planned)
    assert not any(call.quick for call in planned if call.command.name in ("train", "sweep launch", "bench"))
    assert all(call.long for call in planned if any(word.startswith("--every") for word in call.words))
    assert sum(call.quick for call in planned) > 200


def test_a_world_is_made_anew_when_it_was_changed(tmp_path: Path) -> None:
    (tmp_path / "world" / "deep").mkdir(parents=True)
    (tmp_path / "world" / "deep" / "file").write_text("as it has to be")
    scene = Scene(tmp_path / "world", tmp_path / "scene")
    file = scene.set_up() / "deep" / "file"
    before = file.stat().st_ino
    assert scene.set_up() / "deep" / "file" == file
    assert file.stat().st_ino == before, "nothing had changed"
    for change in (
        lambda: file.write_text("changed"),
        file.unlink,
        lambda: (scene.place / "new").mkdir(),
        lambda: (scene.place.parent / "outside").touch(),
    ):
        change()
        scene.set_up()
        assert file.read_text() == "as it has to be"
        assert {path.name for path in scene.folder.rglob("*")} == {"here", "world", "deep", "file"}


def test_calls_in_a_row_end_like_calls_alone(tmp_path: Path) -> None:
    """In a Python of their own, as it forks."""
    (tmp_path / "world").mkdir()
    script = """
import json, sys
from pathlib import Path
from campaigns.arguments.child import Limits, call
from campaigns.arguments.row import call_in_row
from campaigns.arguments.world import Scene

folder = Path(sys.argv[1])
scene, printed = Scene(folder / "world", folder / "scene"), folder / "printed"
calls = [["--version"], ["cite", "PRODEN"], ["nothing"], ["cite"], ["collect", "."], ["--version"]]
row = call_in_row(calls, scene, printed, Limits())
alone = [call(words, scene, printed, Limits(), long=False) for words in calls]
print(json.dumps([[[one.code, one.fault, one.printed] for one in ones] for ones in (row, alone)]))
"""
    words = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    row, alone = json.loads(done.stdout)
    assert row == alone, done.stderr
    assert [code for code, _, _ in row] == ["0", "0", "2", "2", "2", "0"]
    assert [fault for _, fault, _ in row] == [""] * 6


@pytest.mark.real
def test_a_campaign_calls_commands_and_writes_its_figures(tmp_path: Path) -> None:
    words = ["--calls", "25", "--seconds", "200", "--seed", "5", "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "campaigns.arguments", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    figures = json.loads((tmp_path / "arguments.json").read_text())
    assert done.returncode == 0, done.stdout
    assert figures["calls"] == sum(sum(counts.values()) for counts in figures["commands"].values()) == 25
    assert (tmp_path / "arguments.md").read_text() in done.stdout


def test_refitting_a_folder_whose_files_are_garbage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken").mkdir()
    for name in ("run.json", "results.jsonl"):
        (tmp_path / "broken" / name).write_bytes(b"\x00[{broken")
    assert main(["refit", str(tmp_path / "broken")]) == 2
    assert "holds no run that can be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes", [{"config": []}, {"config": {}}, {"dataset": 1}, {"dataset": {}}, {"algorithm_spec": [1]}]
)
def test_refitting_a_run_whose_description_is_forged(
    changes: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = plench.train("CC", "Digits_FPS", tmp_path, steps=3, checkpoint_freq=1, progress=False).folder
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, **changes}))
    assert main(["refit", str(folder), "--output_dir", str(tmp_path / "refit")]) == 2
    assert "plench: error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes", [{"hparams": [{"lr": 0.1}]}, {"hparams": {"lr": []}}, {"candidates": "ab"}]
)
@pytest.mark.parametrize("command", ["refit", "verify"])
def test_a_run_whose_configuration_is_forged_within(
    command: str, changes: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = plench.train("CC", "Digits_FPS", tmp_path / "runs", steps=3, progress=False).folder
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "config": {**info["config"], **changes}}))
    words = {"refit": [str(folder), "--output_dir", str(tmp_path / "refit")], "verify": [str(folder.parent)]}
    code = main([command, *words[command]])
    shown = "".join(capsys.readouterr())
    assert code == {"refit": 2, "verify": 1}[command], shown
    assert ("plench: error: " if command == "refit" else "cannot be repeated: ") in shown
