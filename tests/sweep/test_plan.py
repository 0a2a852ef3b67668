"""From grids to runs: names, seeds, folders, suites."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from plench.algorithms import algorithms, find_algorithm
from plench.algorithms.registry import PAPER
from plench.cli import main
from plench.data import dataset_card
from plench.errors import DataError, UsageError
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.settings import seed_hash
from plench.sweeps import probe
from plench.sweeps.plan import DataShelf, expand, expand_all, settle
from plench.sweeps.probe import RunCost, estimate_cost
from plench.sweeps.suites import make_grids, make_suite
from plench.training.config import configure_run
from tests.sweep.driving import odd

GRID = Grid(("rc", "cc", "PRODEN"), ("digits uss", "Digits_FPS"), n_hparams=3, n_trials=2, steps=50)


@pytest.fixture(scope="module")
def settled() -> SweepSpec:
    return settle(SweepSpec((GRID,)), DataShelf(None))


def test_names_become_canonical_and_unique(settled: SweepSpec) -> None:
    (grid,) = settled.grids
    assert grid.algorithms == ("PRODEN", "CC")
    assert grid.datasets == ("Digits_USS", "Digits_FPS")
    assert set(settled.fingerprints) == {"Digits_USS", "Digits_FPS"}


def test_every_run_is_there_once_with_its_own_seed(settled: SweepSpec) -> None:
    runs = expand(settled)
    assert len(runs) == 2 * 2 * 3 * 2
    assert len({run.folder for run in runs}) == len(runs)
    for run in runs:
        config = run.config
        assert config.seed == seed_hash(
            config.dataset, config.algorithm, config.hparams_seed, config.trial_seed
        )
        assert config.steps == config.hparams["max_steps"] == 50


def test_an_expanded_run_is_the_run_that_training_configures(settled: SweepSpec) -> None:
    for run in expand(settled):
        entry, card = find_algorithm(run.algorithm), dataset_card(run.dataset)
        alone = configure_run(
            entry,
            card,
            steps=50,
            hparams_seed=run.config.hparams_seed,
            trial_seed=run.config.trial_seed,
            seed=run.config.seed,
        )
        assert run.config == alone
        assert run.folder == alone.folder_name(settled.fingerprints[run.dataset])


def test_runs_of_overlapping_grids_are_not_doubled(settled: SweepSpec) -> None:
    wider = replace(settled, grids=(*settled.grids, replace(settled.grids[0], n_hparams=4)))
    assert len(expand(wider)) == 2 * 2 * 4 * 2
    assert len(expand_all([settled, wider])) == 2 * 2 * 4 * 2


def test_options_of_a_grid_reach_the_runs() -> None:
    grid = Grid(
        ("CC",),
        ("Digits_USS",),
        n_hparams=2,
        n_trials=1,
        steps=40,
        checkpoint_freq=7,
        holdout_fraction=0.2,
        tabular_test_fraction=0.3,
        pl_type="fps",
        fps_rate=0.25,
        drop_true_rate=0.5,
        precision="bf16",
        compile=True,
        hparams={"lr": 0.5},
    )
    for run in expand(settle(SweepSpec((grid,)), DataShelf(None))):
        config = run.config
        assert (config.checkpoint_freq, config.holdout_fraction) == (7, 0.2)
        assert config.tabular_test_fraction == 0.3
        assert (config.candidates.pl_type, config.candidates.fps_rate) == ("fps", 0.25)
        assert config.candidates.drop_true_rate == 0.5
        assert config.hparams["lr"] == 0.5
        assert (config.precision, config.compile) == ("bf16", True)


def test_a_third_partys_algorithm_keeps_its_path_and_gets_a_name_of_its_content() -> None:
    grid = Grid((odd("Plain"),), ("Digits_USS",), n_hparams=1, n_trials=1, steps=5)
    settled = settle(SweepSpec((grid,)), DataShelf(None))
    assert settled.grids[0].algorithms == (odd("Plain"),)
    (run,) = expand(settled)
    assert run.config.algorithm.startswith("Plain@")


def test_other_data_than_the_sweep_files_are_refused() -> None:
    spec = SweepSpec((Grid(("CC",), ("Digits_USS",)),), {"Digits_USS": "0" * 64})
    with pytest.raises(DataError, match="other data"):
        settle(spec, DataShelf(None))


def test_unknown_names_are_errors() -> None:
    with pytest.raises(UsageError, match="unknown algorithm 'PRODIN'; did you mean PRODEN"):
        settle(SweepSpec((Grid(("PRODIN",), ("Digits_USS",)),)), DataShelf(None))
    with pytest.raises(UsageError, match="unknown suite"):
        make_suite("enormous")


def test_suites_follow_the_protocol() -> None:
    own = {name: entry.card for name, entry in algorithms().items() if entry.source is None}
    (tabular,) = make_suite("Tabular")
    assert set(tabular.algorithms) == PAPER < set(own)
    assert len(PAPER) == 27
    assert {"Lost", "MSRCv2", "Mirflickr", "Birdsong", "Malagasy"} <= set(tabular.datasets)
    assert {"SoccerPlayer", "Italian", "YahooNews", "English"} <= set(tabular.datasets)
    assert len(tabular.datasets) == 9
    assert (tabular.n_hparams, tabular.n_trials, tabular.steps) == (20, 5, None)
    (image,) = make_suite("image")
    assert set(image.datasets) == {"PLCIFAR10_Aggregate", "PLCIFAR10_Vaguest"}
    assert (image.n_hparams, image.n_trials, image.steps) == (20, 3, None)
    assert make_suite("full") == (tabular, image)
    every_tabular, every_crowd, every_image = make_suite("extended")
    assert set(every_crowd.algorithms) == set(own)
    assert every_crowd.datasets == ("LabelMe_Crowd", "Music_Crowd")
    assert (every_crowd.n_hparams, every_crowd.n_trials) == (20, 5)
    assert set(every_tabular.algorithms) == {name for name, card in own.items() if not card.answers}
    assert set(every_image.algorithms) == {name for name, card in own.items() if card.shared}
    assert len(every_image.algorithms) == 27 + 5
    assert (every_tabular.datasets, every_image.datasets) == (tabular.datasets, image.datasets)
    (lite,) = make_suite("lite")
    assert set(lite.algorithms) == PAPER
    assert all(name.startswith("Digits") for name in lite.datasets)
    assert make_grids(["CC"], ["Lost", "PLCIFAR10_Vaguest"])[1].n_trials == 3


def test_a_dataset_is_loaded_once(tmp_path: Path) -> None:
    shelf = DataShelf(None)
    assert shelf.get("Digits_USS") is shelf.get("Digits_USS")


def test_all_data_that_cannot_be_loaded_are_told_at_once(tmp_path: Path) -> None:
    spec = SweepSpec((Grid(("CC",), ("Lost", "Digits_USS", "MSRCv2")),))
    with pytest.raises(DataError, match=r"(?s)2 datasets cannot be loaded:\n- Lost.*\n- MSRCv2"):
        settle(spec, DataShelf(tmp_path))
    with pytest.raises(DataError, match=r"^Lost"):
        settle(SweepSpec((Grid(("CC",), ("Lost", "Digits_USS")),)), DataShelf(tmp_path))


def test_a_method_of_answers_on_data_without_any_is_refused_when_planned() -> None:
    spec = SweepSpec((Grid(("CC", "MV_LR"), ("Digits_USS",)),))
    with pytest.raises(UsageError, match=r"MV_LR learns from the answers .* Digits_USS has none"):
        settle(spec, DataShelf(None))


def test_a_probe_says_nothing_of_phases_that_it_does_not_reach(caplog: pytest.LogCaptureFixture) -> None:
    shelf = DataShelf(None)
    runs = expand(settle(SweepSpec((Grid(("PiCO",), ("Digits_USS",), n_hparams=1, n_trials=1),)), shelf))
    assert estimate_cost(runs, shelf, budget_seconds=0.1) is not None
    assert not caplog.records


def test_missing_data_may_be_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = SweepSpec((Grid(("CC",), ("Lost", "Digits_USS")), Grid(("CC",), ("MSRCv2",))))
    settled = settle(spec, DataShelf(tmp_path, skip_missing=True))
    assert [grid.datasets for grid in settled.grids] == [("Digits_USS",)]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["left out"] * 2
    with pytest.raises(DataError, match=r"^Lost"):  # nothing is left
        settle(SweepSpec((Grid(("CC",), ("Lost",)),)), DataShelf(tmp_path, skip_missing=True))
    (tmp_path / "lost.mat").write_bytes(b"no MATLAB file")
    with pytest.raises(DataError, match=r"^Lost"):  # damaged is not missing
        settle(spec, DataShelf(tmp_path, skip_missing=True))


def test_a_suite_is_narrowed_by_datasets(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "plan", "--suite", "lite", "--algorithms", "CC", "--probe_seconds", "0"]
    assert main([*words, "--datasets", "digits uss"]) == 0
    assert "4 runs: 1 dataset, 1 algorithm, 2 configurations, 2 splits" in capsys.readouterr().out
    assert main([*words, "--datasets", "Lost"]) == 2
    assert "unknown dataset of the suite lite 'Lost'" in capsys.readouterr().err


def test_a_launch_can_be_quiet_or_print_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "launch", "--algorithms", "CC", "--datasets", "Digits_USS", "--n_hparams", "1"]
    words += ["--n_trials", "1", "--steps", "4", "--output_dir", str(tmp_path), "--workers", "1"]
    assert main([*words, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main([*words, "--json", "--no-progress"]) == 0
    captured = capsys.readouterr()
    expected = {"runs": 1, "states": {"done": 1}, "failures": [], "left_alone": {}, "exit_code": 0}
    assert json.loads(captured.out) == expected
    assert captured.err == ""


def test_a_pair_without_a_measurement_counts_as_those_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = DataShelf(None)
    names = ("LR_EM", "PL_KNN", "CC", "PRODEN")
    grid = Grid(names, ("Digits_USS",), n_hparams=1, n_trials=1, steps=1000, checkpoint_freq=1000)
    runs = expand(settle(SweepSpec((grid,)), shelf))
    rounds, steps = RunCost(1.0, 0.0, 0.0, 0.0, 10.0), RunCost(0.001, 0.0, 0.0, 0.0, 1.0)
    monkeypatch.setattr(
        probe, "probe_task", lambda task, *_, **__: rounds if task[0].config.fitted else steps
    )
    estimate = estimate_cost(runs, shelf, budget_seconds=-1.0)
    assert estimate is not None
    assert (estimate.pairs_measured, estimate.pairs) == (2, 4)  # one of each kind, whatever the time
    assert estimate.seconds == pytest.approx(41 + 2 + 1 + 1)
    assert estimate.bytes == pytest.approx(22)


def test_a_changed_configuration_is_a_checked_copy() -> None:
    (run, *_) = expand(settle(SweepSpec((GRID,)), DataShelf(None)))
    before = run.config.to_json()
    made = run.config.changed(dataset="Other", seed=7)
    assert made == replace(run.config, dataset="Other", seed=7)
    assert run.config.to_json() == before
    with pytest.raises(UsageError, match="fps_rate must be"):
        run.config.changed(fps_rate=2.0)
