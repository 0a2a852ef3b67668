"""A setting is declared once: everything that knows settings follows from its declaration."""

import inspect
import json
import re
import shutil
import subprocess
import sys

import pytest

import plench
from plench.algorithms import find_algorithm
from plench.data import dataset_card, load_dataset
from plench.errors import UsageError
from plench.settings import (
    Setting,
    Settings,
    declared,
    describe_cell,
    describe_settings,
    read_settings,
)
from plench.sweeps.plan import DatasetCache, PlannedRun, StackOptions, stack_key
from plench.training import configure_run
from plench.training.data import preparation_key
from tests.conftest import ROOT

MADE_UP = """    made_up: int = declare(
        3, "a setting of the data", cell="made_up", at_least=0, at_most=9, metavar="N"
    )
    device: str = declare("auto"
"""
# Where it acts: with 7, the training split has every other example.
ACTS = """    if settings.made_up == 7:
        split = replace(split, train=split.train[::2])
    return dataset, split, weights
"""
# Run in a copy of the package whose settings have one more field that acts in one place.
PROBE = """
import contextlib, inspect, io, json, sys
from pathlib import Path
import plench
from plench.algorithms import find_algorithm
from plench.cli import main
from plench.cli.pilot import join_validation
from plench.data import dataset_card, load_dataset
from plench.sweeps.engines.local import LocalEngine
from plench.sweeps.launch import launch_sweep
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
sweep += ["--made_up", "7", "--command_launcher", "dummy", "--skip_confirmation"]
grids = tuple(
    Grid(("CC",), ("Digits_FPS",), n_hparams=1, n_trials=1, steps=3, made_up=value) for value in (3, 7)
)
swept = launch_sweep(SweepSpec(grids), folder / "both", engine=LocalEngine(workers=1))
records = [json.loads(path.read_text().splitlines()[-1]) for path in folder.glob("both/*/results.jsonl")]
arms = [len(join_validation(load_dataset("Digits_FPS"), grid, 0)[1].train) for grid in grids]
described = [json.loads(path.read_text()) for path in sorted(folder.glob("*/run.json"))]
try:
    plench.train("CC", "Digits_FPS", folder, made_up=10)
except plench.errors.UsageError as error:
    refused = str(error)
specs = [SweepSpec((Grid(("CC",), ("Lost",), **given),)) for given in ({}, {"made_up": 7})]
print(json.dumps({
    "losses": [record["loss"] for record in records],
    "arms": arms,
    "codes": codes,
    "help": [shown("train", "--help"), shown("sweep", "launch", "--help")],
    "signature": "made_up" in inspect.signature(plench.train).parameters,
    "ids": [config().run_id("x"), config(made_up=3).run_id("x"), config(made_up=7).run_id("x")],
    "json": [config().to_json().get("made_up"), config(made_up=7).to_json()["made_up"]],
    "args": [config().args().get("made_up"), config(made_up=7).args()["made_up"]],
    "experiments": sorted(run["experiment"].get("made_up", -1) for run in described),
    "grid": Grid.from_table({"algorithms": ["CC"], "datasets": ["Lost"], "made_up": 7}).made_up,
    "file": ["made_up" in spec.to_toml() for spec in specs],
    "where": shown("collect", str(folder), "--where", "made_up=7", "--format", "csv"),
    "all": shown("collect", str(folder)),
    "dummy": shown("sweep", "launch", *sweep, "--output_dir", str(folder / "sweep")),
    "table": format_table(),
    "refused": refused,
}))
"""


def test_a_new_setting_reaches_everything_and_leaves_old_identities(tmp_path) -> None:
    package = shutil.copytree(
        ROOT / "src" / "plench", tmp_path / "plench", ignore=shutil.ignore_patterns("__pycache__")
    )
    path, place = package / "settings.py", '    device: str = declare("auto"'
    text = path.read_text(encoding="utf-8")
    assert text.count(place) == 1
    path.write_text(text.replace(place, MADE_UP.rstrip("\n")), encoding="utf-8")
    path, place = package / "training" / "data.py", "    return dataset, split, weights\n"
    text = path.read_text(encoding="utf-8")
    assert text.count(place) == 1
    path.write_text(text.replace(place, ACTS), encoding="utf-8")
    environment = {"PYTHONPATH": str(tmp_path), "PATH": ""}
    command = [sys.executable, "-c", PROBE, str(tmp_path / "runs")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    probed = json.loads(done.stdout.splitlines()[-1])

    assert probed["codes"] == [0, 0]
    for page in probed["help"]:
        assert re.search(r"--made-up N\s+a setting of the data \(default:\s+3\)", page)
    assert probed["signature"]
    assert probed["refused"] == "made_up must be a whole number of at least 0 and of at most 9, not 10"
    assert probed["grid"] == 7
    assert "--made-up 7" in probed["dummy"]
    assert "| `made_up` | a whole number of at least 0 and of at most 9 | `3` |" in probed["table"]
    # It is named only where it differs from its default, so that identities of other runs stay.
    assert probed["json"] == probed["args"] == [None, 7]
    assert probed["experiments"] == [-1, 7]
    assert probed["file"] == [False, True]
    ours = configure_run(find_algorithm("CC"), dataset_card("Digits_FPS"), steps=20).run_id("x")
    assert [identity == ours for identity in probed["ids"]] == [True, True, False]
    # A worker that stays warm prepares other data for another value, and so does the pilot's second arm.
    assert len(set(probed["losses"])) == 2
    assert len(set(probed["arms"])) == 2
    # Runs that differ in it are not averaged, and are found by it.
    assert "Digits_FPS (made_up 7)" in probed["all"]
    header, *rows = (line.split(",") for line in probed["where"].splitlines())
    assert {row[header.index("made_up")] for row in rows} == {"7"}


@pytest.mark.parametrize("per_run", [False, True])
@pytest.mark.parametrize(("default", "other"), [(1, 4), (0.5, 0.25), (False, True), ("a", "b")])
def test_a_data_setting_is_in_every_derived_key(default, other, per_run, monkeypatch) -> None:
    """A setting that is declared with nothing but a type and a default."""
    name = "made_up"
    field = {"name": name, "type": type(default), "default": default, "help": "made up"}
    made_up = Setting(**field, optional=False, choices=(), per_run=per_run)
    dataset, datasets = load_dataset("Digits_FPS"), DatasetCache(None)
    first = configure_run(find_algorithm("CC"), dataset.card, steps=20)
    monkeypatch.setitem(declared(), name, made_up)
    configs = [
        first.changed(**{name: value}, trial_seed=trial) for value in (default, other) for trial in (0, 1)
    ]
    runs = [PlannedRun("CC", "Digits_FPS", config, config.folder_name("x")) for config in configs]
    assert len({run.folder for run in runs}) == 4
    assert len({preparation_key(dataset, config) for config in configs}) == 4
    keys = [stack_key(run, datasets, StackOptions()) for run in runs]
    assert keys[0] == keys[1]  # at its default, splits have the same sizes
    assert len(set(keys)) == 3


def test_values_are_checked_and_misspelt_names_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown setting 'stepz'; did you mean steps"):
        read_settings({"stepz": 3})
    with pytest.raises(UsageError, match="threads must be a whole number of at least 1, not True"):
        Settings(threads=True)
    assert read_settings({"holdout_fraction": 0.25, "resume_anyway": True}) == {
        "holdout_fraction": 0.25,
        "force_resume": True,
    }


def test_what_affects_results_is_described_and_nothing_else() -> None:
    described = describe_settings(Settings(device="cpu", threads=4, steps=5).values())
    always = {name for name, setting in declared().items() if setting.always_recorded and not setting.block}
    assert set(described) == {*always, "candidates"}
    assert describe_cell(Settings(steps=5).values())["steps"] == 5


def test_the_functions_show_their_keywords() -> None:
    keywords = inspect.signature(plench.train).parameters
    assert list(declared()) == list(keywords)[-len(declared()) :]
    assert keywords["holdout_fraction"].default == 0.1
    assert "trial_seed" not in inspect.signature(plench.sweep).parameters
