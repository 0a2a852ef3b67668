"""Reading run folders: ours, the public benchmark's, those of 0.2.0, and broken ones."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import plench
from plench.errors import UsageError
from plench.runs import Record, read_run, read_runs, read_runs_with_warnings
from plench.runs.folder import check_integrity, make_done, read_description
from plench.runs.records import parse_lines, read_figures
from tests.synthetic_sweep import experiment_of, make_records, write_run, write_sweep

STORED = Path(__file__).parent / "stored-0.2.0" / "runs"


def records(quality=0.7, seed=0):
    return make_records(quality, np.random.default_rng(seed))


def test_a_run_of_ours(tmp_path):
    run = read_run(write_run(tmp_path / "a", records(), trial_seed=2, hparams_seed=5))
    experiment = run.experiment
    assert (experiment.dataset, experiment.algorithm, experiment.origin) == ("Lost", "PRODEN", "plench")
    assert (run.trial_seed, run.hparams_seed, run.status) == (2, 5, "done")
    assert (run.records[0].step, run.last_record.step) == (0, 999)
    assert run.records[3].get("test_acc") == records()[3]["test_acc"]
    assert run.records[3].get("mem_gb") is None
    assert run.warnings == ()


@pytest.mark.parametrize(
    ("hparams", "args", "steps"), [({"max_steps": 500}, None, 500), ({}, None, 1000), ({}, 1200, 1200)]
)
def test_a_public_run(hparams, args, steps, tmp_path):
    """Its steps are in its arguments, in its hyperparameters, or those of the last record."""
    given = {"model": "MLP", "output_dir": "some/where", **hparams}
    folder = write_run(tmp_path / "a", records(), public=True, steps=args, hparams=given)
    run = read_run(folder)
    experiment = run.experiment
    assert (experiment.origin, experiment.model, experiment.steps) == ("public", "MLP", steps)
    assert run.hparams == {"model": "MLP", **hparams}, "the folder is not a hyperparameter"
    assert run.finished
    assert experiment != read_run(write_run(tmp_path / "b", records())).experiment
    (folder / "done").unlink()
    assert not read_run(folder).finished


def test_public_run_whose_outputs_turned_nan_is_diverged(tmp_path):
    taken = records()
    for record in taken[6:]:
        record |= {"loss": float("nan"), "val_approximated_acc": float("nan")}
    run = read_run(write_run(tmp_path / "a", taken, public=True))
    assert run.diverged
    assert run.usable_records[-1].step == taken[5]["step"]
    assert run.last_record is None


def test_public_run_with_a_nan_loss_alone_is_not_diverged(tmp_path):
    """Several public losses are NaN on a batch without complementary labels; the weights are unharmed."""
    taken = records()
    for record in taken[6:]:
        record["loss"] = float("nan")
    run = read_run(write_run(tmp_path / "a", taken, public=True))
    assert run.status == "done"
    assert run.last_record.step == 999
    assert run.warnings == ("results.jsonl: loss is not a number in 5 of 11 records",)


def test_every_bad_folder_gets_a_warning_and_the_rest_is_read(tmp_path):
    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC",), n_trials=1, n_hparams=2)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a file").write_text("not a folder")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "garbage").mkdir()
    (tmp_path / "garbage" / "results.jsonl").write_text("not json\n")
    (tmp_path / "folder" / "results.jsonl").mkdir(parents=True)
    write_run(tmp_path / "noname", records(), public=True, algorithm="")
    info = json.loads((tmp_path / "Lost-CC-0-0" / "run.json").read_text())
    for name, text in (
        ("status", json.dumps({**info, "status": "dancing"})),
        ("seeds", json.dumps({**info, "config": {"trial_seed": "zero"}})),
        ("half", json.dumps(info)[:100]),
        ("future", json.dumps({**info, "schema": 99})),
    ):
        (write_run(tmp_path / name, records()) / "run.json").write_text(text)
    runs, warnings = read_runs_with_warnings(tmp_path)
    assert {run.path.name for run in runs} == {"Lost-CC-0-0", "Lost-CC-0-1", "half", "future"}
    by_folder = {warning.split("/")[0]: warning for warning in warnings}
    assert set(by_folder) == {"garbage", "folder", "status", "seeds", "noname", "half", "future"}
    assert "dancing" in by_folder["status"]
    assert "99" in by_folder["future"]
    assert "results.jsonl: cannot be read" in by_folder["folder"]


def test_runs_share_equal_parts_of_their_descriptions(tmp_path):
    """Each would take 14 kB per run, most of the memory of a full benchmark."""
    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC",), n_trials=2, n_hparams=2)
    path = tmp_path / "Lost-CC-0-0" / "run.json"
    info = json.loads(path.read_text())
    path.write_text(json.dumps({**info, "versions": {"torch": None}}))
    first, *others = read_runs(tmp_path)
    for key in ("experiment", "algorithm_card", "dataset"):
        assert all(run.info[key] is first.info[key] for run in others)
    assert first.info["versions"] != others[0].info["versions"]
    assert others[0].info["config"] != others[1].info["config"]


def test_not_a_run_and_not_a_folder(tmp_path):
    with pytest.raises(UsageError, match="not a run folder"):
        read_run(tmp_path)
    with pytest.raises(UsageError, match="nowhere"):
        read_runs(tmp_path / "nowhere")


def test_experiments_differ_in_everything_that_counts(tmp_path):
    changes = [{}, {"model": "DenseNet"}, {"steps": 7}, {"dataset_fingerprint": "other"}, {"protocol": 2}]
    changes += [{"candidates": {"pl_type": "uss"}}, {"holdout_fraction": 0.2}]
    for number, change in enumerate(changes):
        write_run(tmp_path / str(number), records(), experiment=experiment_of("Lost", "CC") | change)
    runs = read_runs(tmp_path)
    assert len({run.experiment for run in runs}) == len(changes)
    assert len({run.experiment.setting for run in runs}) == len(changes)


def test_one_warning_per_file_says_all_that_is_wrong_with_it(tmp_path):
    taken = records()
    del taken[3]["test_acc"]
    folder = write_run(tmp_path / "a", taken + taken[:1])
    with open(folder / "results.jsonl", "a") as file:
        file.write("garbage\n")
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "schema": 99, "status": "dancing"}))
    runs, warnings = read_runs_with_warnings(tmp_path)
    assert runs == []
    assert [warning.split(": ")[0] for warning in warnings] == ["a/run.json", "a/results.jsonl"]
    assert all(part in warnings[0] for part in ("schema 99", "'dancing'", "skipped"))
    assert all(
        part in warnings[1] for part in ("not JSON: 13", "1 step repeated", "test_acc is missing from 1")
    )


def test_ours_without_run_json_is_not_taken_for_public(tmp_path):
    """Our records hold what the algorithm logged; the public benchmark's do not."""
    taken = [{**record, "logged": {}} for record in records()]
    folder = write_run(tmp_path / "a", taken, public=True)
    run = read_run(folder)
    assert run.experiment.origin == "plench"
    assert run.warnings == ("run.json: missing, the records' own args are used",)
    assert run.experiment != read_run(write_run(tmp_path / "b", taken)).experiment
    (folder / "run.json").write_text("{")
    (warning,) = read_run(folder).warnings
    assert warning.startswith("run.json: cannot be read")


def test_a_finished_run_of_0_2_0(tmp_path):
    (folder,) = STORED.iterdir()
    run = read_run(folder)
    assert (run.status, run.experiment.algorithm, run.warnings) == ("done", "PRODEN", ())
    assert [record.step for record in run.records] == [0, 3, 6, 8]
    assert check_integrity(str(folder), read_description(f"{folder}/run.json"), 9, thorough=True) is None
    assert plench.load(folder, "CR").updates > 0


LINE = {"step": 0, "loss": 1.5, "val_accuracy": 0.5, "val_covering_rate": 1.0, "val_approximated_acc": 0.25}
SHARED = {"hparams": {"lr": 0.1}, "args": {"algorithm": "CC", "steps": 3}}


def write_lines(*changes, **shared):
    return "".join(
        json.dumps({**LINE, "test_acc": 0.5, **change, **SHARED, **shared}) + "\n" for change in changes
    )


STEPS = ({"step": 0}, {"step": 1}, {"step": 2})
FILES = {
    "complete": write_lines(*STEPS),
    "without the last line break": write_lines(*STEPS)[:-1],
    "empty": "",
    "a blank line": write_lines(*STEPS) + "\n" + write_lines({"step": 9}),
    "without labels": write_lines({"val_accuracy": None, "test_acc": None}, {"step": 5, "test_acc": None}),
    "NaN": write_lines({"loss": math.nan}, {"step": 1}),
    "infinite": write_lines({"step": 1, "loss": math.inf}),
    "not a share": write_lines({"step": 1, "test_acc": 1.5}, {"step": 2, "val_covering_rate": -0.5}),
    "whole numbers": write_lines({"step": 1, "test_acc": 1}),
    "true": write_lines({"step": 1, "test_acc": True}),
    "text": write_lines({"step": 1, "test_acc": "0.5"}),
    "falling": write_lines({"step": 2}, {"step": 1}),
    "repeated": write_lines({"step": 1}, {"step": 1, "loss": 2.5}),
    "unusable steps": write_lines({"step": 1.0}, {"step": -1}, {"step": "2"}, {"step": True}),
    "a missing figure": write_lines({"step": 1}).replace('"loss"', '"lost"'),
    "torn": write_lines(*STEPS)[:-30],
    "two in a line": write_lines(*STEPS).replace('{"step": 1,', '{"step": 1}, {"step": 7,'),
    "a list": "[1]\n" + write_lines({"step": 2}),
    "deep": "[" * 100_000 + "\n",
}
WARNINGS = {
    "NaN": "loss is not a number in 1 of 2 records",
    "infinite": "loss is not a number in 1 of 1 records",
    "not a share": "test_acc is not between 0 and 1 in 1 of 2 records",
    "true": "test_acc is not a number in 1 of 1 records",
    "text": "test_acc is not a number in 1 of 1 records",
    "a missing figure": "loss is missing from 1 of 1 records",
    "repeated": "1 step repeated, the last record of each counts: 1",
    "unusable steps": "3 lines skipped, no usable step: 2, 3, 4",
    "torn": "1 line skipped, not JSON: 3",
    "two in a line": "1 line skipped, not JSON: 2",
    "a list": "1 line skipped, no usable step: 1",
    "deep": "1 line skipped, not JSON: 1",
}


@pytest.mark.parametrize("file", FILES)
def test_lines_are_parsed_as_by_python(file):
    expected = {}
    for line in FILES[file].split("\n"):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            continue
        step = values.get("step") if isinstance(values, dict) else None
        if type(step) in (int, float) and step >= 0:
            expected[int(step)] = {name: values[name] for name in values if name not in SHARED}
    found = parse_lines(FILES[file].encode())
    assert repr([tuple(record) for record in found.records]) == repr(sorted(expected.items()))  # NaN != NaN
    assert found.first == (SHARED if expected else None)
    assert (WARNINGS[file] in found.warnings) if file in WARNINGS else not found.warnings


@pytest.mark.parametrize(
    ("value", "loss", "share"),
    [
        *((0.5, 0.5, 0.5), (0, 0, 0), (1, 1, 1), (1.5, 1.5, None), (-1, -1, None), (None, None, None)),
        *((math.nan, None, None), (-math.inf, None, None), (10**400, None, None)),
        *((True, None, None), ("0.5", None, None), ([0.5], None, None)),
    ],
)
def test_figures_are_finite_numbers_and_shares(value, loss, share):
    records = (Record(0, {}), Record(1, {"loss": value, "test_acc": value}))
    for key, wanted in (("loss", loss), ("test_acc", share)):
        assert read_figures(records, key) == [record.get(key) for record in records] == [None, wanted]


@pytest.mark.parametrize("thorough", [True, False])
def test_a_missing_model_is_a_mismatch(thorough, tmp_path):
    (tmp_path / "results.jsonl").write_text(FILES["complete"])
    (tmp_path / "done").write_bytes(make_done(tmp_path, ["results.jsonl"]))
    assert check_integrity(str(tmp_path), {"status": "done"}, 3, thorough=thorough) is None
    (tmp_path / "model_CR.pt").write_bytes(b"x")
    (tmp_path / "done").write_bytes(make_done(tmp_path, ["results.jsonl", "model_CR.pt"]))
    (tmp_path / "model_CR.pt").unlink()
    assert (
        check_integrity(str(tmp_path), {"status": "done"}, 3, thorough=thorough)
        == "its model_CR.pt is missing"
    )


@pytest.mark.parametrize("last", [None, 1, "2", 2.5, True, [2]])
def test_records_end_with_the_step_before_divergence(last, tmp_path):
    (tmp_path / "results.jsonl").write_text(FILES["complete"])
    (tmp_path / "done").write_bytes(make_done(tmp_path, ["results.jsonl"]))
    info = {"status": "diverged", "diverged_after_step": last}
    assert "does not end" in check_integrity(str(tmp_path), info, 9)
    assert check_integrity(str(tmp_path), {**info, "diverged_after_step": 2}, 9) is None
