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
    assert (run.experiment.dataset, run.experiment.algorithm) == ("Lost", "PRODEN")
    assert (run.trial_seed, run.hparams_seed, run.status) == (2, 5, "done")
    assert run.experiment.origin == "plench"
    assert run.records[0].step == 0
    assert run.last_record.step == 999
    assert run.records[3].get("test_acc") == records()[3]["test_acc"]
    assert run.records[3].get("mem_gb") is None
    assert run.warnings == ()


def test_a_public_run(tmp_path):
    run = read_run(write_run(tmp_path / "a", records(), public=True))
    assert run.experiment.origin == "public"
    assert run.experiment.model == "MLP"
    assert run.experiment.steps == 1000
    assert run.finished
    assert run.experiment != read_run(write_run(tmp_path / "b", records())).experiment


def test_a_public_run_without_steps_takes_them_from_hparams_or_records(tmp_path):
    for name, hparams, steps in (
        ("a", {"model": "MLP", "max_steps": 500}, 500),
        ("b", {"model": "MLP"}, 1000),
    ):
        folder = write_run(tmp_path / name, records(), public=True, steps=None, hparams=hparams)
        assert read_run(folder).experiment.steps == steps


def test_a_public_run_without_done_is_unfinished(tmp_path):
    folder = write_run(tmp_path / "a", records(), public=True)
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


def test_broken_lines_are_skipped_with_warnings(tmp_path):
    folder = write_run(tmp_path / "a", records())
    path = folder / "results.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[1] = b'{"step": 1, "val_acc'
    lines[2] = b"\xff\xfe\x00garbage"
    lines[3] = b'["a", "list"]'
    lines[4] = b'{"step": "four", "test_acc": 1}'
    lines[5] = b'{"step": -5, "test_acc": 1}'
    lines[6] = b'{"step": NaN, "test_acc": 1}'
    lines[7] = b"[" * 100_000
    path.write_bytes(b"\n".join(lines) + b'{"step": 77, "te')
    run = read_run(folder)
    assert run.warnings == (
        "results.jsonl: 4 lines skipped, not JSON: 2, 3, 8, 12; 4 lines skipped, no usable step: 4, 5, 6, 7",
    )
    assert [record.step for record in run.records] == [0, 800, 900, 999]


def test_repeated_steps_last_counts_with_a_warning(tmp_path):
    taken = records()
    again = [{**record, "test_acc": 0.125} for record in taken[:5]]
    run = read_run(write_run(tmp_path / "a", taken + again))
    assert [record.get("test_acc") for record in run.records[:5]] == [0.125] * 5
    assert run.records[5].get("test_acc") == taken[5]["test_acc"]
    assert run.warnings == (
        "results.jsonl: 5 steps repeated, the last record of each counts: 0, 100, 200, 300, 400",
    )


def test_nan_and_odd_values_are_absent(tmp_path):
    taken = records()
    taken[2] |= {
        "test_acc": float("nan"),
        "val_accuracy": "0.9",
        "val_covering_rate": True,
        "more": float("inf"),
    }
    run = read_run(write_run(tmp_path / "a", taken))
    assert run.warnings == (
        "results.jsonl: val_accuracy is not a number in 1 of 11 records; "
        "val_covering_rate is not a number in 1 of 11 records; "
        "test_acc is not a number in 1 of 11 records",
    )
    assert [run.records[2].get(k) for k in ("test_acc", "val_accuracy", "val_covering_rate", "more")] == [
        None
    ] * 4


def test_every_bad_folder_gets_a_warning_and_the_rest_is_read(tmp_path):
    write_sweep(tmp_path, datasets=("Lost",), algorithms=("CC",), n_trials=1, n_hparams=2)
    (tmp_path / "empty").mkdir()
    (tmp_path / "garbage").mkdir()
    (tmp_path / "garbage" / "results.jsonl").write_text("not json\n")
    folder = write_run(tmp_path / "status", records())
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "status": "dancing"}))
    folder = write_run(tmp_path / "seeds", records())
    (folder / "run.json").write_text(json.dumps({**info, "config": {"trial_seed": "zero"}}))
    folder = write_run(tmp_path / "noname", records(), public=True, algorithm="")
    folder = write_run(tmp_path / "half", records())
    (folder / "run.json").write_text(json.dumps(info)[:100])
    folder = write_run(tmp_path / "future", records())
    (folder / "run.json").write_text(json.dumps({**info, "schema": 99}))
    (tmp_path / "a file").write_text("not a folder")
    runs, warnings = read_runs_with_warnings(tmp_path)
    names = {run.path.name for run in runs}
    assert names == {"Lost-CC-0-0", "Lost-CC-0-1", "half", "future"}
    by_folder = {}
    for warning in warnings:
        by_folder.setdefault(warning.split("/")[0], []).append(warning)
    assert set(by_folder) == {"garbage", "status", "seeds", "noname", "half", "future"}
    assert "dancing" in by_folder["status"][0]
    assert "99" in by_folder["future"][0]


def test_hostile_names_are_only_names(tmp_path):
    name = "<script>alert(1)</script>/../\x1b[31m" + "é" * 500
    write_run(tmp_path / "a", records(), algorithm=name)
    (run,) = read_runs(tmp_path)
    assert run.experiment.algorithm == name


def test_not_a_run_and_not_a_folder(tmp_path):
    with pytest.raises(UsageError, match="not a run folder"):
        read_run(tmp_path)
    with pytest.raises(UsageError, match="nowhere"):
        read_runs(tmp_path / "nowhere")


def test_experiments_differ_in_everything_that_counts(tmp_path):
    changes = [
        {},
        {"model": "DenseNet"},
        {"steps": 7},
        {"dataset_fingerprint": "other"},
        {"protocol": 2},
        {"candidates": {"pl_type": "uss", "fps_rate": None, "id_rate": None, "drop_true_rate": 0.0}},
        {"holdout_fraction": 0.2},
    ]
    for number, change in enumerate(changes):
        write_run(tmp_path / str(number), records(), experiment=experiment_of("Lost", "CC") | change)
    runs = read_runs(tmp_path)
    assert len({run.experiment for run in runs}) == len(changes)
    assert len({run.experiment.setting for run in runs}) == len(changes)


def test_a_folder_in_place_of_a_file_is_a_warning(tmp_path):
    write_run(tmp_path / "good", records())
    (tmp_path / "bad" / "results.jsonl").mkdir(parents=True)
    runs, (warning,) = read_runs_with_warnings(tmp_path)
    assert [run.path.name for run in runs] == ["good"]
    assert warning.startswith("bad/results.jsonl: cannot be read")


def test_missing_keys_are_a_warning(tmp_path):
    taken = [{key: value for key, value in record.items() if key != "test_acc"} for record in records()]
    del taken[3]["val_accuracy"]
    run = read_run(write_run(tmp_path / "a", taken))
    (warning,) = run.warnings
    assert warning.startswith("results.jsonl: ")
    assert set(warning.removeprefix("results.jsonl: ").split("; ")) == {
        "val_accuracy is missing from 1 of 11 records",
        "test_acc is missing from 11 of 11 records",
    }


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


def test_figures_that_are_not_shares_are_absent_with_a_warning(tmp_path):
    odd = {"test_acc": 61.5, "val_covering_rate": 10**400, "val_accuracy": -0.5, "loss": 7.5}
    write_run(tmp_path / "a", [{**record, **odd} for record in make_records(0.5, np.random.default_rng(0))])
    (run,), (warning,) = read_runs_with_warnings(tmp_path)
    last = run.records[-1]
    assert [last.get(key) for key in odd] == [None, None, None, 7.5]
    for said in (
        "test_acc is not between 0 and 1 in 11 of 11 records",
        "val_accuracy is not between 0 and 1 in 11 of 11 records",
        "val_covering_rate is not a number in 11 of 11 records",
    ):
        assert said in warning


def test_broken_links_hide_nothing(tmp_path):
    write_run(tmp_path / "a", make_records(0.5, np.random.default_rng(0)))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    assert [run.path.name for run in read_runs(tmp_path)] == ["a"]


def test_the_output_folder_of_the_public_code_is_not_a_hyperparameter(tmp_path):
    hparams = {"lr": 0.1, "model": "MLP", "max_steps": 1000, "output_dir": "some/where"}
    write_run(tmp_path / "a", records(), public=True, hparams=hparams)
    assert read_run(tmp_path / "a").hparams == {"lr": 0.1, "model": "MLP", "max_steps": 1000}


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


@pytest.mark.parametrize("line", [b"\0a\0a\0", b'{\0"\0', b"\xff\xfe{\0", b"\xff", b'{"step": 1\0}'])
def test_arbitrary_bytes_are_a_skipped_line(line):
    found = parse_lines(line + b"\n" + FILES["complete"].encode())
    assert [record.step for record in found.records] == [0, 1, 2]
    assert found.warnings == ["1 line skipped, not JSON: 1"]


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
