"""The pilot experiment: what its second arm trains on, and how both arms are compared."""

import json
from dataclasses import replace

import numpy as np
import pytest

from plench.cli.pilot import gather_pilot, join_validation, train_with_validation
from plench.criteria import criteria
from plench.data import draw_candidates, load_dataset, split_dataset
from plench.runs import read_runs
from plench.runs.sweep_spec import Grid
from tests.report.conftest import plan
from tests.synthetic_sweep import write_run

OA = criteria["OA"]


def record(test, oa=0.5, step=999):
    return {"step": step, "loss": 1.0, "val_accuracy": oa, "test_acc": test}


def write_arms(root):
    for trial in range(2):
        for configuration, oa in enumerate((0.4, 0.8)):
            folder = root / "validation" / f"{trial}{configuration}"
            write_run(folder, [record(0.5 + 0.1 * configuration, oa)], "Lost", "CC", trial, configuration)
        write_run(root / "training" / f"{trial}", [record(0.7 + 0.1 * trial)], "Lost+validation", "CC", trial)
    write_run(root / "training" / "more", [record(0.1)], "Lost+validation", "CC", 7)
    write_run(root / "training" / "half", [record(0.1, step=5)], "Lost+validation", "LWS", 0, status="failed")


def test_arms_are_compared_on_common_splits(tmp_path):
    write_arms(tmp_path)
    arms = [read_runs(tmp_path / name) for name in ("validation", "training")]
    (row,), apart = gather_pilot(*arms, OA)
    assert apart == []
    assert (row["n_splits"], row["choosing_mean"], row["choosing_standard_error"]) == (2, 0.6, 0.0)
    assert row["training_mean"] == pytest.approx(0.75)
    assert row["gain_of_training"] == pytest.approx(0.15)
    assert row["training_standard_error"] == pytest.approx(0.05)


def test_arms_of_other_steps_are_not_compared(tmp_path):
    for steps in (500, 1000):
        run = [record(0.5, step=steps - 1)]
        write_run(tmp_path / "v" / str(steps), run, "Lost", "CC", steps=steps)
    write_run(tmp_path / "t" / "1", [record(0.7)], "Lost+validation", "CC", steps=1000)
    (row,), apart = gather_pilot(read_runs(tmp_path / "v"), read_runs(tmp_path / "t"), OA)
    assert (row["dataset"], row["n_splits"], row["training_mean"]) == ("Lost (steps 1000)", 1, 0.7)
    assert apart == ["Lost (steps 500), CC: no split with a result in both arms"]


def test_command_shows_what_is_there_and_says_what_is_missing(tmp_path, cli):
    write_arms(tmp_path)
    words = ["sweep", "pilot", "--output_dir", tmp_path, "--plot_only"]
    assert json.loads(cli(*words, "--json").out)[0]["n_splits"] == 2
    assert (tmp_path / "pilot.svg").stat().st_size > 1000
    write_run(tmp_path / "validation" / "lone", [record(0.5)], "Lost", "LWS", 0, 0)
    plan(tmp_path / "validation", (("CC", "LWS", "PRODEN"), ("Lost",), {"n_hparams": 3, "n_trials": 4}))
    said = cli(*words)
    assert "2 of 4" in said.out
    assert "rests on 2 of 4 splits and 4 of 12 planned runs; 8 not started" in said.out
    assert "Lost, LWS: no split with a result in both arms" in said.err
    assert "Lost: planned, but without any run: PRODEN" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--criterion", "CR"], "CR uses none"),
        ([], "--algorithms and --datasets"),
        (["--plot_only", "--output", "x.bmp"], ".svg"),
        (["--algorithms", "CC", "--datasets", "Digits_FPS", "--hparams", "lr=1"], "--hparams"),
        (["--algorithms", "CC", "--datasets", "Digits_FPS", "--hparams", '{"rate": 1}'], "rate"),
    ],
)
def test_command_bad_usage(tmp_path, cli, words, said):
    assert said in cli("sweep", "pilot", "--output_dir", tmp_path, *words, code=2).err


def test_validation_joins_training_with_its_true_labels_as_singletons():
    dataset = load_dataset("Digits_FPS")
    joined, split, _ = join_validation(dataset, Grid(("CC",), ("Digits_FPS",)), 1)
    drawn = draw_candidates(dataset, dataset.card.candidates, 1)
    usual = split_dataset(drawn, 1)
    assert np.array_equal(joined.candidates[usual.train], drawn.candidates[usual.train])
    true_only = np.eye(10, dtype=bool)[dataset.labels[usual.validation]]
    assert np.array_equal(joined.candidates[usual.validation], true_only)
    assert sorted(split.train) == sorted([*usual.train, *usual.validation])
    assert np.array_equal(split.test, usual.test)
    assert not set(split.train) & set(split.test)
    assert joined.fingerprint != dataset.fingerprint
    _, split, _ = join_validation(dataset, Grid(("CC",), ("Digits_FPS",), imbalance=20.0), 1)
    tailed = split_dataset(dataset, 1, imbalance=20)
    assert sorted(split.train) == sorted([*tailed.train, *tailed.validation])


def test_second_arm_trains_the_default_configuration_on_both_parts(tmp_path):
    grid = Grid(("CC",), ("Digits_FPS",), n_trials=1, steps=4, checkpoint_freq=2)
    (outcome,) = train_with_validation(grid, None, tmp_path)
    assert outcome.status == "done"
    (run,) = read_runs(tmp_path)
    assert run.experiment.dataset == "Digits_FPS+validation"
    assert run.hparams_seed == 0
    assert run.last_record.step == 3
    usual = split_dataset(load_dataset("Digits_FPS"), 0)
    assert run.info["dataset"]["n_train"] == len(usual.train) + len(usual.validation)
    assert [again.updates_made for again in train_with_validation(grid, None, tmp_path)] == [0]


def test_given_hyperparameters_are_those_of_the_second_arm(tmp_path):
    given = {"lr": 0.05, "batch_size": 16}
    grid = Grid(("CC",), ("Digits_FPS",), n_trials=1, steps=2, checkpoint_freq=2)
    plain, changed = (
        next(train_with_validation(replace(grid, hparams=hparams), None, tmp_path)) for hparams in ({}, given)
    )
    assert plain.folder != changed.folder
    found = {run.path.name: dict(run.hparams) for run in read_runs(tmp_path)}
    assert found[changed.folder.name] == {**found[plain.folder.name], **given}
    assert found[plain.folder.name]["lr"] != given["lr"]


@pytest.mark.real
def test_the_whole_experiment(tmp_path, cli):
    """`--hparams` holds in both arms, in default and in drawn configurations."""
    words = ["--algorithms", "CC", "LWS", "--datasets", "Digits_FPS", "--n_hparams", "2", "--n_trials", "2"]
    words += ["--steps", 60, "--checkpoint_freq", 20, "--output_dir", tmp_path, "--hparams", '{"lr": 0.05}']
    assert "training − choosing" in cli("sweep", "pilot", *words).out
    assert [row["n_splits"] for row in json.loads(cli("sweep", "pilot", *words, "--json").out)] == [2, 2]
    assert (tmp_path / "pilot.svg").exists()
    for arm, count in (("validation", 8), ("training", 4)):
        assert [found.hparams["lr"] for found in read_runs(tmp_path / arm)] == [0.05] * count
