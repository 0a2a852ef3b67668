"""From grids to runs: names, seeds, folders, suites, costs."""

from dataclasses import replace
from pathlib import Path

import pytest

from plench.algorithms import algorithms, find_algorithm
from plench.algorithms.registry import PAPER
from plench.data import dataset_card
from plench.data.sources import find_source
from plench.errors import DataError, UsageError
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.settings import seed_hash
from plench.sweeps import probe
from plench.sweeps.plan import DatasetCache, expand, make_grids, make_suite, plan_runs, resolve_names
from plench.sweeps.probe import RunCost, estimate_cost
from plench.training.config import configure_run
from tests.sweep.driving import DATASETS, expand_grid, odd

GRID = Grid(("rc", "cc", "PRODEN"), ("digits uss", "Digits_FPS"), n_hparams=3, n_trials=2, steps=50)


def resolve(*grids: Grid, data_dir: Path | None = None, skip_missing: bool = False) -> SweepSpec:
    return resolve_names(SweepSpec(grids), DatasetCache(data_dir, skip_missing=skip_missing))


@pytest.fixture(scope="module")
def resolved() -> SweepSpec:
    return resolve_names(SweepSpec((GRID,)), DATASETS)


def test_names_become_canonical_and_unique(resolved: SweepSpec) -> None:
    (grid,) = resolved.grids
    assert grid.algorithms == ("PRODEN", "CC")
    assert grid.datasets == ("Digits_USS", "Digits_FPS")
    assert set(resolved.fingerprints) == {"Digits_USS", "Digits_FPS"}
    assert DATASETS.get("Digits_USS") is DATASETS.get("Digits_USS")


def test_every_run_is_listed_once_and_is_what_training_configures(resolved: SweepSpec) -> None:
    runs = expand(resolved)
    assert len(runs) == 2 * 2 * 3 * 2
    assert len({run.folder for run in runs}) == len(runs)
    for run in runs:
        config = run.config
        seeds = {"hparams_seed": config.hparams_seed, "trial_seed": config.trial_seed}
        assert config.seed == seed_hash(config.dataset, config.algorithm, *seeds.values())
        assert config.steps == config.hparams["max_steps"] == 50
        entry, card = find_algorithm(run.algorithm), dataset_card(run.dataset)
        single = configure_run(entry, card, steps=50, seed=config.seed, **seeds)
        assert config == single
        assert run.folder == single.folder_name(resolved.fingerprints[run.dataset])


def test_runs_of_overlapping_grids_are_not_doubled(resolved: SweepSpec) -> None:
    wider = replace(resolved, grids=(*resolved.grids, replace(resolved.grids[0], n_hparams=4)))
    assert len(expand(wider)) == 2 * 2 * 4 * 2
    assert len(plan_runs([resolved, wider], DATASETS)) == 2 * 2 * 4 * 2


def test_a_third_party_algorithm_keeps_its_path_and_is_named_after_its_content() -> None:
    grid = Grid((odd("Plain"),), ("Digits_USS",), n_hparams=1, n_trials=1, steps=5)
    assert resolve(grid).grids[0].algorithms == (odd("Plain"),)
    (run,) = expand_grid(grid)
    assert run.config.algorithm.startswith("Plain@")


def test_bad_names_and_data(tmp_path: Path) -> None:
    spec = SweepSpec((Grid(("CC",), ("Digits_USS",)),), {"Digits_USS": "0" * 64})
    with pytest.raises(DataError, match="other data"):
        resolve_names(spec, DATASETS)
    with pytest.raises(UsageError, match="unknown algorithm 'PRODIN'; did you mean PRODEN"):
        resolve(Grid(("PRODIN",), ("Digits_USS",)))
    with pytest.raises(UsageError, match="unknown suite"):
        make_suite("enormous")
    with pytest.raises(DataError, match=r"(?s)2 datasets cannot be loaded:\n- Lost.*\n- MSRCv2"):
        resolve(Grid(("CC",), ("Lost", "Digits_USS", "MSRCv2")), data_dir=tmp_path)
    with pytest.raises(DataError, match=r"^Lost"):
        resolve(Grid(("CC",), ("Lost", "Digits_USS")), data_dir=tmp_path)
    with pytest.raises(UsageError, match=r"MV_LR learns from the answers .* which Digits_USS does not have"):
        resolve(Grid(("CC", "MV_LR"), ("Digits_USS",)))


def test_missing_data_may_be_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grids = Grid(("CC",), ("Lost", "Digits_USS")), Grid(("CC",), ("MSRCv2",))
    resolved = resolve(*grids, data_dir=tmp_path, skip_missing=True)
    assert [grid.datasets for grid in resolved.grids] == [("Digits_USS",)]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["skipped"] * 2
    with pytest.raises(DataError, match=r"^Lost"):  # nothing is left
        resolve(Grid(("CC",), ("Lost",)), data_dir=tmp_path, skip_missing=True)
    (tmp_path / "lost.mat").write_bytes(b"no MATLAB file")
    with pytest.raises(DataError, match=r"^Lost"):  # damaged is not missing
        resolve(*grids, data_dir=tmp_path, skip_missing=True)


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
    every_tabular, every_crowd, every_voted, every_image = make_suite("extended")
    assert set(every_crowd.algorithms) == set(own)
    assert every_crowd.datasets == ("LabelMe_Crowd", "Music_Crowd", "SentimentPolarity")
    assert (every_crowd.n_hparams, every_crowd.n_trials) == (20, 5)
    assert set(own) - set(every_voted.algorithms) == {"DS_LR"}
    assert every_voted.datasets == ("EmotionLines",)
    assert (every_voted.n_hparams, every_voted.n_trials) == (20, 5)
    assert set(every_tabular.algorithms) == {name for name, card in own.items() if not card.answers}
    assert set(every_image.algorithms) == {name for name, card in own.items() if card.shared}
    assert len(every_image.algorithms) == 27 + 7
    assert every_tabular.datasets == tabular.datasets
    assert every_image.datasets == (*image.datasets, "CIFAR10H")
    (lite,) = make_suite("lite")
    assert set(lite.algorithms) == PAPER
    assert {"Digits_USS", "Digits_FPS"} <= set(lite.datasets)
    cards = [dataset_card(name) for name in lite.datasets]
    assert all(card.kind == "tabular" and card.candidates.pl_type in ("uss", "fps") for card in cards)
    assert all(find_source(name).how == "built in" for name in lite.datasets)
    assert make_grids(["CC"], ["Lost", "PLCIFAR10_Vaguest"])[1].n_trials == 3


def test_a_suite_is_narrowed_by_datasets(cli) -> None:
    words = ["sweep", "plan", "--suite", "lite", "--algorithms", "CC", "--probe_seconds", "0"]
    said = cli(*words, "--datasets", "digits uss").out
    assert "4 runs: 1 dataset, 1 algorithm, 2 configurations, 2 splits" in said


def test_a_probe_does_not_warn_of_phases_that_it_does_not_reach(caplog: pytest.LogCaptureFixture) -> None:
    runs = expand_grid(Grid(("PiCO",), ("Digits_USS",), n_hparams=1, n_trials=1))
    assert estimate_cost(runs, DATASETS, budget_seconds=0.1) is not None
    assert not caplog.records


def test_a_pair_without_a_measurement_counts_as_those_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("LR_EM", "PL_KNN", "CC", "PRODEN")
    runs = expand_grid(
        Grid(names, ("Digits_USS",), n_hparams=1, n_trials=1, steps=1000, checkpoint_freq=1000)
    )
    rounds, steps = RunCost(1.0, 0.0, 0.0, 0.0, 10.0), RunCost(0.001, 0.0, 0.0, 0.0, 1.0)
    monkeypatch.setattr(
        probe, "probe_task", lambda task, *_, **__: rounds if task[0].config.fitted else steps
    )
    estimate = estimate_cost(runs, DATASETS, budget_seconds=-1.0)
    assert estimate is not None
    assert (estimate.pairs_measured, estimate.pairs) == (2, 4)  # one of each kind, whatever the time
    assert estimate.seconds == pytest.approx(41 + 2 + 1 + 1)
    assert estimate.bytes == pytest.approx(22)
    monkeypatch.setattr(probe, "probe_task", lambda task, *_, **__: None if task[0].config.fitted else steps)
    assert estimate_cost(runs, DATASETS, budget_seconds=-1.0) is None  # steps do not stand for rounds


def test_a_changed_configuration_is_a_checked_copy() -> None:
    (run, *_) = expand_grid(GRID)
    before = run.config.to_json()
    made = run.config.changed(dataset="Other", seed=7)
    assert made == replace(run.config, dataset="Other", seed=7)
    assert run.config.to_json() == before
    with pytest.raises(UsageError, match="fps_rate must be"):
        run.config.changed(fps_rate=2.0)
