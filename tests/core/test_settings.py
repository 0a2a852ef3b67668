"""A setting is declared once: everything that knows settings follows from its declaration."""

import inspect
import json
import re
import shutil
import subprocess
import sys

import pytest

import plench
from plench.errors import UsageError
from plench.runs.folder import format_keys
from plench.settings import Settings, declared, describe_cell, describe_settings, format_table, read_settings
from tests.conftest import ROOT

MADE_UP = """    made_up: int = declare(
        3, "a setting that does nothing", cell="made_up", at_least=0, at_most=9, metavar="N"
    )
    device: str = declare("auto"
"""
# Run in a copy of the package whose settings have one more field, and nothing else is changed.
PROBE = """
import contextlib, io, json, sys
from pathlib import Path
import plench
from plench.algorithms import find_algorithm
from plench.cli import main
from plench.data import dataset_card
from plench.settings import format_table
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.training import configure_run

def shown(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(list(words))
    return out.getvalue()

def config(**settings):
    return configure_run(find_algorithm("CC"), dataset_card("Digits_FPS"), steps=20, **settings)

folder = Path(sys.argv[1])
run = ["-a", "CC", "-d", "Digits_FPS", "--steps", "3", "--output_dir", str(folder)]
codes = [main(["train", *run]), main(["train", *run, "--made_up", "7"])]
sweep = ["--algorithms", "CC", "--datasets", "Digits_FPS", "--n_hparams", "1", "--n_trials", "1"]
described = [json.loads(path.read_text()) for path in sorted(folder.glob("*/run.json"))]
try:
    plench.train("CC", "Digits_FPS", folder, made_up=10)
    refused = ""
except plench.errors.UsageError as error:
    refused = str(error)
print(json.dumps({
    "codes": codes,
    "train_help": shown("train", "--help"),
    "sweep_help": shown("sweep", "launch", "--help"),
    "signature": "made_up" in __import__("inspect").signature(plench.train).parameters,
    "ids": [config().run_id("x"), config(made_up=3).run_id("x"), config(made_up=7).run_id("x")],
    "json": [config().to_json().get("made_up"), config(made_up=7).to_json()["made_up"]],
    "args": [config().args().get("made_up"), config(made_up=7).args()["made_up"]],
    "experiments": sorted(run["experiment"].get("made_up", -1) for run in described),
    "grid": Grid.from_table({"algorithms": ["CC"], "datasets": ["Lost"], "made_up": 7}).made_up,
    "file": ["made_up" in SweepSpec((Grid(("CC",), ("Lost",), **given),)).to_toml()
             for given in ({}, {"made_up": 7})],
    "where": shown("collect", str(folder), "--where", "made_up=7", "--format", "csv"),
    "all": shown("collect", str(folder)),
    "dummy": shown("sweep", "launch", *sweep, "--made_up", "7", "--command_launcher", "dummy",
                   "--skip_confirmation", "--output_dir", str(folder / "sweep")),
    "table": format_table(),
    "refused": refused,
}))
"""


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What a package with a made-up setting answers."""
    root = tmp_path_factory.mktemp("copy")
    package = shutil.copytree(
        ROOT / "src" / "plench", root / "plench", ignore=shutil.ignore_patterns("__pycache__")
    )
    path = package / "settings.py"
    text = path.read_text(encoding="utf-8")
    place = '    device: str = declare("auto"'
    assert text.count(place) == 1
    path.write_text(text.replace(place, MADE_UP.rstrip("\n")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(root / "runs")],
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_new_setting_reaches_flags_keywords_grids_files_and_pages(probed: dict) -> None:
    assert probed["codes"] == [0, 0]
    for text in (probed["train_help"], probed["sweep_help"]):
        assert re.search(r"--made-up N\s+a setting that does nothing \(default:\s+3\)", text)
    assert probed["signature"]
    assert probed["refused"] == "made_up must be a whole number of at least 0 and of at most 9, not 10"
    assert probed["grid"] == 7
    assert "--made-up 7" in probed["dummy"]
    assert "| `made_up` | a whole number of at least 0 and of at most 9 | `3` |" in probed["table"]


def test_a_new_setting_is_named_only_where_it_differs_from_its_default(probed: dict) -> None:
    assert probed["json"] == [None, 7]
    assert probed["args"] == [None, 7]
    assert probed["experiments"] == [-1, 7]
    assert probed["file"] == [False, True]


def test_runs_that_differ_in_a_new_setting_are_kept_apart_and_found(probed: dict) -> None:
    assert "Digits_FPS (made_up 7)" in probed["all"]
    header, *rows = probed["where"].splitlines()
    assert "made_up" in header
    assert {row.split(",")[header.split(",").index("made_up")] for row in rows} == {"7"}


def test_a_new_setting_leaves_every_old_identity_as_it_is(probed: dict) -> None:
    from plench.algorithms import find_algorithm
    from plench.data import dataset_card
    from plench.training import configure_run

    ours = configure_run(find_algorithm("CC"), dataset_card("Digits_FPS"), steps=20).run_id("x")
    assert probed["ids"][:2] == [ours, ours]
    assert probed["ids"][2] != ours


def test_misspelt_settings_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown setting 'stepz'; did you mean steps"):
        read_settings({"stepz": 3})
    with pytest.raises(UsageError, match="threads must be a whole number of at least 1, not True"):
        Settings(threads=True)
    assert read_settings({"holdout_fraction": 0.25})["holdout_fraction"] == 0.25


def test_what_decides_the_numbers_is_described_and_nothing_else() -> None:
    described = describe_settings(Settings(device="cpu", threads=4, steps=5).values())
    assert set(described) == {
        *(name for name, setting in declared().items() if setting.always_recorded and not setting.block),
        "candidates",
    }
    assert describe_cell(Settings(steps=5).values())["steps"] == 5


def test_the_functions_show_their_keywords() -> None:
    keywords = inspect.signature(plench.train).parameters
    assert list(declared()) == list(keywords)[-len(declared()) :]
    assert keywords["holdout_fraction"].default == 0.1
    assert "trial_seed" not in inspect.signature(plench.sweep).parameters


@pytest.mark.parametrize("make", [format_table, format_keys])
def test_the_page_on_runs_has_the_tables(make) -> None:
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    assert make() in page, f"replace the table in docs/runs.md by:\n{make()}"
