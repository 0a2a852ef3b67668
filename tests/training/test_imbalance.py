"""Runs on a training split that was made long-tailed."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import plench
from plench.data import load_dataset, split_dataset
from plench.runs import read_runs
from plench.training.run import measure
from tests.training.harness import read_records

THIRDS = ("test_acc_many", "test_acc_medium", "test_acc_few")
SHORT = {"steps": 3, "checkpoint_freq": 2, "progress": False}


def test_a_run_trains_on_the_long_tail_and_records_the_thirds(tmp_path: Path) -> None:
    outcome = plench.train("CC", "Digits_FPS", tmp_path, imbalance=20, **SHORT)
    described = json.loads((outcome.folder / "run.json").read_text(encoding="utf-8"))
    dataset = load_dataset("Digits_FPS")
    split = split_dataset(dataset, 0, imbalance=20)
    assert described["dataset"]["n_train"] == len(split.train)
    assert described["experiment"]["imbalance"] == described["config"]["imbalance"] == 20
    assert split.test is not None
    assert split.thirds is not None
    assert dataset.labels is not None
    shares = np.bincount(split.thirds[dataset.labels[split.test]], minlength=3) / len(split.test)
    for record in read_records(outcome.folder):
        assert record["args"]["imbalance"] == 20
        parts = np.array([record[key] for key in THIRDS])
        assert parts @ shares == pytest.approx(record["test_acc"])


def test_runs_without_it_are_named_and_recorded_as_ever(tmp_path: Path) -> None:
    plain = plench.train("CC", "Digits_FPS", tmp_path, **SHORT)
    assert plench.train("CC", "Digits_FPS", tmp_path, imbalance=None, **SHORT).message == "already finished"
    tailed = plench.train("CC", "Digits_FPS", tmp_path, imbalance=20, **SHORT)
    assert tailed.folder != plain.folder
    text = (plain.folder / "run.json").read_text(encoding="utf-8")
    assert "imbalance" not in text
    for record in read_records(plain.folder):
        assert "imbalance" not in record["args"]
        assert not any(key in record for key in THIRDS)
    assert len({run.experiment for run in read_runs(tmp_path)}) == 2, "never averaged"


def test_accuracy_by_third() -> None:
    labels, thirds = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])
    logits = np.eye(4)[[0, 1, 1, 0]]
    held_out = SimpleNamespace(candidates=np.ones((4, 4), bool), labels=labels)
    data: Any = SimpleNamespace(validation=held_out, test=SimpleNamespace(labels=labels, thirds=thirds))
    figures = measure(logits, logits, data)
    assert figures is not None
    assert [figures[key] for key in THIRDS] == [0.5, 0.5, None]


def test_bad_values_are_refused(cli, tmp_path: Path) -> None:
    command = ["train", "-a", "CC", "-d", "Digits_FPS", "--output_dir", str(tmp_path), "--imbalance"]
    assert "imbalance must be a number of at least 1, not 0.2" in cli(*command, "0.2", code=2).err
    assert not list(tmp_path.iterdir())
