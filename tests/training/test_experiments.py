"""The runs of the accuracy benchmarks: carried out once, and inspected whatever happens."""

import argparse
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pytest

from plench.runs.folder import RunStore
from plench.training.run import TrainingRun
from tests.training.harness import Crash

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "experiments.py"


@pytest.fixture(scope="module")
def experiments() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("experiments", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:  # patch.dict would forget all modules imported meanwhile
        patched.setitem(sys.modules, "experiments", module)
        patched.setattr(sys, "path", [*sys.path])
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def accuracy(experiments: ModuleType) -> ModuleType:
    spec = importlib.util.spec_from_file_location("accuracy", SCRIPT.with_name("accuracy.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "accuracy", module)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_two_modes_are_found_whatever_the_splits(accuracy: ModuleType, share: float) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(60, 1, (10, 5)) + random.normal(0, 3, (10, 1))
    assert accuracy.find_modes(rows) is None
    low, high = accuracy.find_modes(rows - 9 * (random.random((10, 5)) < share))
    assert 7 < high - low < 11


def test_splits_and_tails_make_no_modes(accuracy: ModuleType) -> None:
    random = np.random.default_rng(0)
    tables = random.normal(60, 3, (200, 4, 5)) + random.choice([0, 20], (200, 4, 1))
    assert sum(accuracy.find_modes(rows) is not None for rows in tables) <= 2
    assert accuracy.find_modes(tables[0, :3]) is None  # too few to say


def count_updates(run: TrainingRun) -> Mapping[str, float]:
    return {"updates": float(run.updates)}


def test_no_kill_separates_a_run_from_its_inspection(experiments: ModuleType, tmp_path: Path) -> None:
    """A kill before the run is marked as finished lets the next command finish and inspect it."""
    setting = experiments.Setting("PRODEN", "PRODEN", "Digits_FPS", steps=3)
    arguments = (setting, 0, tmp_path, None, count_updates)
    with patch.object(RunStore, "finish", side_effect=Crash), pytest.raises(Crash):
        experiments.perform(*arguments)
    assert experiments.read_figures(setting, 0, tmp_path, None) is None
    assert experiments.perform(*arguments) == "done"
    assert experiments.perform(*arguments) == "already done"
    figures = experiments.read_figures(setting, 0, tmp_path, None)
    assert figures.inspected == {"updates": 3.0}
    assert figures.steps == 3
    assert 0 <= figures.accuracy <= 100


def test_finished_runs_are_kept_beside_the_page(
    experiments: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What machines have made one after another is there in the end, each run once."""
    monkeypatch.setattr(experiments, "RESULTS", tmp_path)
    setting = experiments.Setting("PRODEN", "PRODEN", "Digits_FPS", steps=3)
    assert experiments.read_kept("page") == {}
    for trial, machine in enumerate((tmp_path / "first", tmp_path / "second")):
        assert experiments.perform(setting, trial, machine, None, None) == "done"
        with patch.object(RunStore, "finish", side_effect=Crash), pytest.raises(Crash):
            experiments.perform(setting, 2, machine, None, None)
        kept = experiments.keep_finished("page", machine)
        assert sorted(run.trial_seed for run in kept.values()) == list(range(trial + 1))
    assert experiments.keep_finished("page", tmp_path / "none").keys() == kept.keys()
    dataset = experiments.load("Digits_FPS", None)
    for trial in range(2):
        run = experiments.read_kept("page")[setting.configure(trial).run_id(dataset.fingerprint)]
        figures = experiments.read_figures(setting, trial, tmp_path / ("first", "second")[trial], None)
        assert 100 * run.last_record.get("test_acc") == figures.accuracy


def test_pages_name_the_command_that_makes_them(experiments: ModuleType) -> None:
    parser = argparse.ArgumentParser()
    experiments.add_options(parser, "accuracy", trials=3)
    parser.add_argument("--datasets", nargs="+", default=("Lost", "MSRCv2"))

    def render(*words: str) -> str:
        sentence: str = experiments.render_command("accuracy", parser, parser.parse_args(words))
        return sentence.split("`")[1]

    assert render("--output_dir", "elsewhere", "--report_only") == "python benchmarks/accuracy.py"
    assert render("--trials", "2") == "python benchmarks/accuracy.py --trials 2"
    assert render("--datasets", "Lost", "FGNET").endswith("accuracy.py --datasets Lost FGNET")


def test_pages_name_diverged_runs(experiments: ModuleType, tmp_path: Path) -> None:
    setting = experiments.Setting("PRODEN", "PRODEN", "Digits_FPS", steps=3)
    options = argparse.Namespace(trials=2, data_dir=None, output_dir=tmp_path)
    assert experiments.name_diverged([setting], options).endswith("leave out: none.")
    for trial, status in enumerate(("done", "diverged")):
        dataset = experiments.load("Digits_FPS", None)
        store = experiments.find_store(setting.configure(trial), dataset, tmp_path)
        store.folder.mkdir()
        store.write_run({"status": status})
    assert experiments.name_diverged([setting], options).endswith("PRODEN on Digits_FPS, split 1.")


def test_every_page_of_results_is_listed(experiments: ModuleType) -> None:
    index = (experiments.RESULTS / "README.md").read_text(encoding="utf-8")
    pages = sorted(path.name for path in experiments.RESULTS.glob("*.md") if path.name != "README.md")
    assert sorted(re.findall(r"\]\((\w+\.md)\)", index)) == pages
    for script in re.findall(r"`(\w+\.py)` \|", index):
        assert (SCRIPT.parent / script).exists()
