"""The page of the study: complete on complete results, and no comparison of different numbers of runs."""

import re
import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from benchmarks.study import AA, CR, detectable, mean_accuracies, take_part, write_page

from plench.report.leaderboard import build_leaderboard
from plench.runs import read_runs
from plench.runs.sweep_spec import Grid, SweepSpec, read_sweep
from tests.report.conftest import records
from tests.synthetic_sweep import experiment_of, write_run

DEEP, CLASSICAL, DATASETS = ("CC", "LWS", "PRODEN", "NN"), ("LR_EM", "RF_AVG"), ("Lost", "MSRCv2")
YEARS = {"CC": 2020, "LWS": 2021, "PRODEN": 2020, "NN": 2019, "LR_EM": 2002, "RF_AVG": 2001}


def write_study(folder):
    """Write runs with two networks and classical ones, and crowd data; return the sweep files."""
    grids = [
        Grid(DEEP, DATASETS, n_hparams=3, n_trials=5, steps=1000),
        Grid(DEEP, DATASETS, n_hparams=2, n_trials=5, steps=1000, hparams={"model": "MLP_BN"}),
    ]
    for name, dataset, h, t in product((*DEEP, *CLASSICAL), (*DATASETS, "Some_Crowd"), range(3), range(5)):
        for network in ("MLP", "MLP_BN") if name in DEEP else (None,):
            steps, fitted = (5, {"fitted": True}) if network is None else (1000, {})
            if network == "MLP_BN" and (h > 1 or dataset not in DATASETS):
                continue
            bonus = 0.1 * (network == "MLP_BN") + 0.03 * len(name) + 0.02 * t
            bibtex = f"@misc{{x, year = {{{YEARS[name]}}}}}"
            write_run(
                folder / f"{name}-{network}-{dataset}-{h}-{t}",
                records(0.4 + bonus, 100 * h + t, steps=steps, n_records=min(steps, 5)),
                dataset,
                name,
                t,
                h,
                steps=steps,
                experiment=experiment_of(dataset, name, steps, model=network, **fitted),
                info={
                    "algorithm_card": {"name": name, "family": "made up", "bibtex": bibtex},
                    "timings": {"training_seconds": 1.0 + h},
                },
            )
    paths = []
    for number, grid in enumerate(grids):
        paths.append(folder / f"plan-{number}.toml")
        SweepSpec((grid,)).write(paths[-1])
    return paths


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return folder, write_study(folder)


def test_a_complete_study_answers_every_question(study, tmp_path):
    folder, sweeps = study
    text = write_page(folder, sweeps, tmp_path).read_text(encoding="utf-8")
    assert "Not yet" not in text
    assert "not complete" not in text
    pictures = re.findall(r"\]\((study-\w+\.svg)\)", text)
    assert pictures == ["study-ranks.svg", "study-regret.svg", "study-years.svg"]
    assert all((tmp_path / name).stat().st_size > 1000 for name in pictures)
    assert "Over 6 methods from 2001 to 2021" in text
    # The change by the network, from the same configurations, by hand.
    parts = [take_part("", read_sweep(path).grids[0], read_runs(folder)) for path in sweeps]
    runs = [[run for run in part.runs if run.hparams_seed < 2] for part in parts]
    plain, normalised = (mean_accuracies(build_leaderboard(own, (CR, AA))) for own in runs)
    gains = [normalised[d][name] - plain[d][name] for d in DATASETS for name in DEEP]
    assert f"changes the mean over methods and datasets by {100 * np.mean(gains):+.1f} points" in text


def test_methods_that_lack_a_run_are_named_and_not_compared(study, tmp_path):
    folder, sweeps = study
    part = shutil.copytree(folder, tmp_path / "runs")
    shutil.rmtree(part / "CC-MLP-Lost-2-4")
    for name in DEEP[1:]:
        shutil.rmtree(part / f"{name}-MLP_BN-MSRCv2-0-0")
    text = write_page(part, sweeps, tmp_path / "page").read_text(encoding="utf-8")
    assert "The study is not complete" in text
    assert "- incomplete, MLP, 1,000 steps: 29 of 30 runs: CC" in text
    assert "19 of 20 runs: LWS, PRODEN, NN" in text
    assert "Not yet: 0 methods complete with both networks; 3 are needed." in text
    board = text.split("## Leaderboard")[1].split("##")[0]
    assert "5 methods on 2 datasets" in board
    assert "| CC |" not in board


def test_nothing_finished_is_said(study, tmp_path):
    folder, sweeps = study
    grid = replace(read_sweep(sweeps[0]).grids[0], steps=7)
    other = tmp_path / "other.toml"
    SweepSpec((grid,)).write(other)
    text = write_page(folder, [other, sweeps[1]], tmp_path).read_text(encoding="utf-8")
    assert "0 of 120" in text
    assert "4 methods complete" not in text


def test_the_smallest_difference_has_a_floor():
    """More splits of one dataset cannot do better than the overlap of their training sets allows."""
    found = [detectable(n, 0.125) for n in (5, 50, 10**6)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx((1.95996 + 0.84162) * 0.125**0.5, rel=1e-3)
