"""Reading run folders: ours, the public benchmark's, and broken ones."""

import json

import numpy as np
import pytest

from plench.errors import UsageError
from plench.runs import read_run, read_runs, read_runs_with_notices
from tests.synthetic_sweep import make_records, write_run, write_sweep


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
    assert run.notices == ()


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
    assert run.notices == ("results.jsonl: loss is NaN or no number in 5 of 11 records",)


def test_broken_lines_are_skipped_with_notices(tmp_path):
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
    assert run.notices == (
        "results.jsonl: 4 lines skipped, no JSON: 2, 3, 8, 12; 4 lines skipped, no usable step: 4, 5, 6, 7",
    )
    assert [record.step for record in run.records] == [0, 800, 900, 999]


def test_repeated_steps_last_counts_with_a_notice(tmp_path):
    taken = records()
    again = [{**record, "test_acc": 0.125} for record in taken[:5]]
    run = read_run(write_run(tmp_path / "a", taken + again))
    assert [record.get("test_acc") for record in run.records[:5]] == [0.125] * 5
    assert run.records[5].get("test_acc") == taken[5]["test_acc"]
    assert run.notices == (
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
    assert run.notices == (
        "results.jsonl: val_accuracy is NaN or no number in 1 of 11 records; "
        "val_covering_rate is NaN or no number in 1 of 11 records; "
        "test_acc is NaN or no number in 1 of 11 records",
    )
    assert [run.records[2].get(k) for k in ("test_acc", "val_accuracy", "val_covering_rate", "more")] == [
        None
    ] * 4


def test_every_bad_folder_gets_a_notice_and_the_rest_is_read(tmp_path):
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
    runs, notices = read_runs_with_notices(tmp_path)
    names = {run.path.name for run in runs}
    assert names == {"Lost-CC-0-0", "Lost-CC-0-1", "half", "future"}
    by_folder = {}
    for notice in notices:
        by_folder.setdefault(notice.split("/")[0], []).append(notice)
    assert set(by_folder) == {"garbage", "status", "seeds", "noname", "half", "future"}
    assert "dancing" in by_folder["status"][0]
    assert "99" in by_folder["future"][0]


def test_hostile_names_are_only_names(tmp_path):
    name = "<script>alert(1)</script>/../\x1b[31m" + "é" * 500
    write_run(tmp_path / "a", records(), algorithm=name)
    (run,) = read_runs(tmp_path)
    assert run.experiment.algorithm == name


def test_not_a_run_and_no_folder(tmp_path):
    with pytest.raises(UsageError, match="not a run folder"):
        read_run(tmp_path)
    with pytest.raises(UsageError, match="nowhere"):
        read_runs(tmp_path / "nowhere")


def test_experiments_differ_in_everything_that_counts(tmp_path):
    from tests.synthetic_sweep import experiment_of

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


def test_what_only_looks_like_a_file_is_a_notice(tmp_path):
    import os

    write_run(tmp_path / "good", records())
    for name in ("pipe", "folder"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe" / "results.jsonl")
    (tmp_path / "folder" / "results.jsonl").mkdir()
    runs, notices = read_runs_with_notices(tmp_path)
    assert [run.path.name for run in runs] == ["good"]
    assert len(notices) == 2
    assert all("results.jsonl: cannot be read" in notice for notice in notices)


def test_missing_keys_are_a_notice(tmp_path):
    taken = [{key: value for key, value in record.items() if key != "test_acc"} for record in records()]
    del taken[3]["val_accuracy"]
    run = read_run(write_run(tmp_path / "a", taken))
    (notice,) = run.notices
    assert notice.startswith("results.jsonl: ")
    assert set(notice.removeprefix("results.jsonl: ").split("; ")) == {
        "val_accuracy is missing from 1 of 11 records",
        "test_acc is missing from 11 of 11 records",
    }


def test_one_notice_per_file_says_all_that_is_wrong_with_it(tmp_path):
    taken = records()
    del taken[3]["test_acc"]
    folder = write_run(tmp_path / "a", taken + taken[:1])
    with open(folder / "results.jsonl", "a") as file:
        file.write("garbage\n")
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "schema": 99, "status": "dancing"}))
    runs, notices = read_runs_with_notices(tmp_path)
    assert runs == []
    assert [notice.split(": ")[0] for notice in notices] == ["a/run.json", "a/results.jsonl"]
    assert all(part in notices[0] for part in ("schema 99", "'dancing'", "left out"))
    assert all(
        part in notices[1] for part in ("no JSON: 13", "1 step repeated", "test_acc is missing from 1")
    )


def test_ours_without_run_json_is_not_taken_for_public(tmp_path):
    """Our records hold what the algorithm logged; the public benchmark's do not."""
    taken = [{**record, "logged": {}} for record in records()]
    folder = write_run(tmp_path / "a", taken, public=True)
    run = read_run(folder)
    assert run.experiment.origin == "plench"
    assert run.notices == ("run.json: missing, the records' own args are used",)
    assert run.experiment != read_run(write_run(tmp_path / "b", taken)).experiment
    (folder / "run.json").write_text("{")
    (notice,) = read_run(folder).notices
    assert notice.startswith("run.json: cannot be read")


def test_figures_that_are_no_shares_are_absent_with_a_notice(tmp_path):
    odd = {"test_acc": 61.5, "val_covering_rate": 10**400, "val_accuracy": -0.5, "loss": 7.5}
    write_run(tmp_path / "a", [{**record, **odd} for record in make_records(0.5, np.random.default_rng(0))])
    (run,), (notice,) = read_runs_with_notices(tmp_path)
    last = run.records[-1]
    assert [last.get(key) for key in odd] == [None, None, None, 7.5]
    for said in (
        "test_acc is not between 0 and 1 in 11 of 11 records",
        "val_accuracy is not between 0 and 1 in 11 of 11 records",
        "val_covering_rate is NaN or no number in 11 of 11 records",
    ):
        assert said in notice


def test_a_link_that_leads_nowhere_hides_nothing(tmp_path):
    write_run(tmp_path / "a", make_records(0.5, np.random.default_rng(0)))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    assert [run.path.name for run in read_runs(tmp_path)] == ["a"]


def test_the_public_codes_output_folder_is_no_hyperparameter(tmp_path):
    hparams = {"lr": 0.1, "model": "MLP", "max_steps": 1000, "output_dir": "some/where"}
    write_run(tmp_path / "a", records(), public=True, hparams=hparams)
    assert read_run(tmp_path / "a").hparams == {"lr": 0.1, "model": "MLP", "max_steps": 1000}
