"""Which runs of a sweep are trained as one, and what an engine makes of them."""

import json
from pathlib import Path

import pytest

import plench
from plench.errors import UsageError
from plench.sweeps.engines.base import Assignment, Limits
from plench.sweeps.fleets import LARGEST, FleetOptions, estimate_gb, form_fleets, read_fleet
from plench.sweeps.plan import DataShelf, PlannedRun, expand, settle
from plench.sweeps.spec import SweepSpec
from plench.sweeps.suites import make_grids
from tests.training.harness import read_records

SHELF = DataShelf(None)
ON_CPU = FleetOptions(any_device=True)


def plan(*algorithms: str, n_hparams: int = 20, n_trials: int = 3, **changes: object) -> list[PlannedRun]:
    grids = make_grids(algorithms, ["Digits_USS"], n_hparams=n_hparams, n_trials=n_trials, **changes)
    return expand(settle(SweepSpec(grids), SHELF))


def test_fleets_share_all_but_split_configuration_and_seed() -> None:
    runs = plan("CC", "PRODEN", "PaPi", "RECORDS")
    fleets = form_fleets(runs, SHELF, ON_CPU)
    assert sorted(run.folder for fleet in fleets for run in fleet) == sorted(run.folder for run in runs)
    for fleet in fleets:
        assert len(fleet) <= LARGEST
        assert len({(run.algorithm, run.config.hparams["batch_size"]) for run in fleet}) == 1
        assert len({run.config.hparams.get("base") for run in fleet}) == 1
        assert fleet[0].algorithm != "PaPi" or len(fleet) == 1, "its card says that it runs alone"
    sizes = [len(fleet) for fleet in fleets if fleet[0].algorithm == "CC"]
    assert max(sizes) > 5
    assert sum(sizes) == 60
    assert fleets == form_fleets(runs, SHELF, ON_CPU)


def test_options_bound_fleets() -> None:
    runs = plan("CC")
    dataset = SHELF.get("Digits_USS")
    assert all(len(fleet) == 1 for fleet in form_fleets(runs, SHELF, read_fleet("off")))
    assert max(len(fleet) for fleet in form_fleets(runs, SHELF, read_fleet(4))) == 4
    whole = form_fleets(runs, SHELF, ON_CPU)
    bound = max(estimate_gb(fleet, dataset) for fleet in whole) / 2
    tight = form_fleets(runs, SHELF, FleetOptions(memory_gb=bound, any_device=True))
    assert all(len(fleet) == 1 or estimate_gb(fleet, dataset) <= bound for fleet in tight)
    assert len(tight) > len(whole)
    assert max(map(len, form_fleets(runs[:8], SHELF, ON_CPU, slots=8))) == 1, "no worker stays idle"
    for arithmetic in ({"precision": "bf16"}, {"compile": True}):
        assert all(len(fleet) == 1 for fleet in form_fleets(plan("CC", **arithmetic), SHELF, ON_CPU))


@pytest.mark.parametrize("word", ["0", "-3", "some", "1.5", ""])
def test_what_no_fleet_is(word: str) -> None:
    with pytest.raises(UsageError, match=f"fleet must be off, auto or a number of runs, not '{word}'"):
        read_fleet(word)
    with pytest.raises(UsageError, match="fleet_memory_gb must be above 0"):
        read_fleet("auto", 0)


def test_tasks_are_fleets_without_what_is_finished(tmp_path: Path) -> None:
    """Which of a sweep's runs are finished changes no fleet but for its own members."""
    runs = plan("CC")
    fleets = form_fleets(runs, SHELF, ON_CPU)
    gone = {run.folder for run in runs[:7]}
    todo = [run for run in runs if run.folder not in gone]
    tasks = Assignment(todo, 7, tmp_path, SHELF, Limits(), fleets=fleets).tasks()
    expected = [tuple(run for run in fleet if run.folder not in gone) for fleet in fleets]
    assert tasks == [fleet for fleet in expected if fleet]
    assert Assignment(todo, 7, tmp_path, SHELF, Limits()).tasks() == [(run,) for run in todo]


@pytest.mark.real
def test_a_sweep_of_fleets_is_the_sweep_of_its_runs(tmp_path: Path) -> None:
    given = {"n_hparams": 3, "n_trials": 2, "steps": 60, "checkpoint_freq": 20, "device": "cpu"}
    hparams = {"batch_size": 64}
    for fleet in ("auto", "off"):
        outcome = plench.sweep(
            ["CC", "POP"],
            "Digits_USS",
            tmp_path / fleet,
            workers=1,
            fleet=fleet,
            hparams=hparams,
            progress=False,
            **given,
        )
        assert outcome.exit_code == 0
        assert {entry.state for entry in outcome.states} == {"done"}
    folders = sorted(path.name for path in (tmp_path / "off").iterdir() if path.is_dir())
    assert len(folders) == 12
    for name in folders:
        together, alone = (read_records(tmp_path / fleet / name) for fleet in ("auto", "off"))
        assert {record.pop("fleet_size") for record in together} == {6}
        assert all("fleet_size" not in record for record in alone)
        for one, other in zip(together, alone, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
            assert one["test_acc"] == pytest.approx(other["test_acc"], abs=0.01)
        told = [json.loads((tmp_path / fleet / name / "run.json").read_text()) for fleet in ("auto", "off")]
        assert told[0].pop("fleet_size") == 6
        assert told[0].keys() == told[1].keys()
