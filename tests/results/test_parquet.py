"""StoredResults files: the same answers as the folders they were made from, small, and safe to read."""

import json
import os
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from plench.cli import main
from plench.criteria import criteria
from plench.errors import DataError, PlenchError, UsageError
from plench.runs import parquet_reading, read_runs
from plench.runs.gather import gather_results
from plench.runs.lines import Record
from plench.runs.parquet import StoredResults, make_schema, write_results_file
from plench.runs.parquet_reading import read_results_file
from plench.runs.select import select
from tests.synthetic_sweep import make_records, write_run, write_sweep

SWEEP = """schema = 1
[[grid]]
algorithms = ["PRODEN", "CC", "LWS", "NN", "POP"]
datasets = ["Lost", "MSRCv2"]
n_hparams = 4
n_trials = 3
steps = 1000
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A sweep with all that occurs: gaps, failures, divergence, broken files, public runs, odd values."""
    root = write_sweep(tmp_path_factory.mktemp("sweep"))
    rng = np.random.default_rng(5)
    shutil.rmtree(root / "Lost-CC-1-2")
    (root / "Lost-LWS-0-0" / "done").unlink()
    write_run(
        root / "diverged",
        make_records(0.5, rng)[:6],
        hparams_seed=9,
        status="diverged",
        diverged_after_step=300,
    )
    write_run(root / "failed", [], hparams_seed=8, status="failed")
    write_run(root / "public", make_records(0.6, rng), "Lost", "VALEN", public=True)
    odd = [
        {**r, "test_acc": 2.0, "val_own": 0.25, "logged": {"a": 0.5}, "note": "x"}
        for r in make_records(0.5, rng)
    ]
    odd[3]["loss"] = float("nan")
    odd[4]["val_accuracy"] = None
    del odd[5]["val_covering_rate"]
    write_run(root / "odd", odd, hparams_seed=7)
    (root / "Lost-NN-0-0" / "results.jsonl").write_text("{broken\n")
    (root / "empty_run").mkdir()
    (root / "empty_run" / "run.json").write_text("[]")
    (root / "sweep-1234.toml").write_text(SWEEP)
    return root


@pytest.fixture(scope="module")
def file(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "results.parquet"
    assert main(["export", str(folder), "-o", str(path)]) == 0
    return path


def figures(run):
    keys = sorted({key for record in run.records for key in record.values} - {"logged", "step_time"})
    return [(r.step, [(k, r.get(k)) for k in keys if r.get(k) is not None]) for r in run.records]


def test_runs_come_back_equal(folder, file):
    before, after = read_runs(folder), read_runs(file)
    assert [run.path.name for run in before] == [run.path.name for run in after]
    for one, other in zip(before, after, strict=True):
        for name in ("experiment", "trial_seed", "hparams_seed", "seed", "hparams", "status"):
            assert getattr(one, name) == getattr(other, name), name
        # A killed run's own description may still say that it is done.
        assert other.info == (one.info and {**one.info, "status": one.status})
        assert one.diverged_after_step == other.diverged_after_step
        assert figures(one) == figures(other)
        assert [r.step for r in one.usable_records] == [r.step for r in other.usable_records]
    (odd,) = [run for run in after if run.path.name == "odd"]
    assert odd.records[2].values["logged"] == {"a": 0.5}
    assert odd.records[2].get("val_own") == 0.25
    assert np.isnan(odd.records[3].values["loss"])
    assert [run.records for run in after if run.path.name == "failed"] == [()]


def test_a_file_of_a_file_is_the_same(file, tmp_path):
    again = tmp_path / "again.parquet"
    write_results_file(gather_results([file]), again)
    assert read_results_file(again).sweeps == {"sweep-1234.toml": SWEEP}
    assert {run.path.name: figures(run) for run in read_runs(again)} == {
        run.path.name: figures(run) for run in read_runs(file)
    }


@pytest.mark.parametrize(
    "words",
    [
        ["collect"],
        ["collect", "--chosen", "--format", "json"],
        ["collect", "--by", "criterion", "--format", "csv"],
        ["stats", "--json"],
    ],
)
def test_commands_answer_as_for_the_folder(folder, file, capsys, words):
    command, *options = words
    answers = []
    for place in (folder, file):
        assert main([command, str(place), *options]) == 0
        said = capsys.readouterr()
        answers.append(
            (said.out.replace(str(place), ""), said.err.replace(place.name, "").replace(str(place), ""))
        )
    assert answers[0][0].replace(folder.name, "").replace(file.name, "") == answers[1][0].replace(
        folder.name, ""
    ).replace(file.name, "")
    assert "without any run: POP" in answers[1][1], "the sweep's plan is in the file"
    assert answers[0][1].replace(str(folder), "") == answers[1][1].replace(str(file), "")


def test_the_page_is_the_same(folder, file, tmp_path):
    for place, name in ((folder, "a"), (file, "b")):
        assert main(["report", str(place), "-o", str(tmp_path / name)]) == 0
    pages = [{p.name: p.read_text() for p in (tmp_path / name / "data").glob("*/*.js")} for name in "ab"]
    assert pages[0].keys() == pages[1].keys()
    # How it was made names the command, hence folder and file.
    assert [name for name in pages[0] if pages[0][name] != pages[1][name]] == ["made.js"]


def test_plots_read_files(file, tmp_path):
    target = tmp_path / "slope.svg"
    words = ["plot", "slope", str(file), str(file), "--datasets", "MSRCv2", "--output", str(target)]
    assert main(words) == 0
    assert target.stat().st_size > 1000


def test_rows_in_another_order_are_the_same_runs(file, tmp_path):
    table = pq.read_table(file)
    order = np.random.default_rng(0).permutation(table.num_rows)
    pq.write_table(table.take(pa.array(order)), tmp_path / "mixed.parquet")
    before, after = read_runs(file), read_runs(tmp_path / "mixed.parquet")
    assert {r.path.name: figures(r) for r in before} == {r.path.name: figures(r) for r in after}
    for criterion in criteria.values():
        one, other = ([(c.experiment, c.mean) for c in select(runs, criterion)] for runs in (before, after))
        assert one == other


def test_a_thousand_runs_take_less_than_four_hundred_kilobytes(tmp_path):
    """With figures of which no two are alike, which is the worst that can be."""
    rng = np.random.default_rng(0)
    (template,) = read_runs(write_run(tmp_path / "r" / "run", make_records(0.5, rng)).parent)
    runs = []
    for number in range(1000):
        records = tuple(
            Record(
                r.step,
                {
                    **r.values,
                    "loss": rng.uniform(),
                    "val_approximated_acc": rng.uniform(),
                    "val_covering_rate": rng.integers(200) / 200,
                    "step_time": rng.uniform(),
                    "logged": {"loss_cls": rng.uniform()},
                },
            )
            for r in template.records
        )
        hparams = {"lr": rng.uniform(), "weight_decay": rng.uniform(), "batch_size": 128}
        info = {**template.info, "run_id": f"{rng.integers(2**63):032x}"}
        info["config"] = {**info["config"], "hparams": hparams, "hparams_seed": number}
        runs.append(
            replace(
                template,
                folder=f"run-{rng.integers(2**48):012x}",
                records=records,
                hparams=hparams,
                hparams_seed=number,
                info=info,
            )
        )
    assert all(len(run.records) == 11 for run in runs)
    write_results_file(StoredResults(runs), tmp_path / "r.parquet")
    assert (tmp_path / "r.parquet").stat().st_size < 400_000


def test_columns_are_those_that_the_documentation_lists(file):
    text = (Path(__file__).parent.parent.parent / "docs" / "results.md").read_text(encoding="utf-8")
    for name in pq.read_schema(file).names:
        assert f"`{name}`" in text, name


def rewrite(file, path, change=None, metadata=None):
    """Write the file's table with one column changed, or with other metadata."""
    table = pq.read_table(file)
    if change is not None:
        name, make = change
        index = table.schema.get_field_index(name)
        values = make(table[name].to_pylist())
        kind = table.schema.field(name).type if isinstance(values, list) else values.type
        table = table.set_column(index, name, pa.array(values, kind) if isinstance(values, list) else values)
    if metadata is not None:
        table = table.replace_schema_metadata(metadata)
    pq.write_table(table, path)


BROKEN = {
    "status": lambda values: ["fine"] * len(values),
    "hparams": lambda values: ["[1]"] * len(values),
    "config": lambda values: ["{"] * len(values),
    "experiment": lambda values: ['{"dataset": 3}'] * len(values),
    "info": lambda values: ["[" * 100_000] * len(values),
    "dataset": lambda values: ["Other"] * len(values),
    "trial_seed": lambda values: [None] * len(values),
    "seed": lambda values: list(range(len(values))),
    "step": lambda values: [-1] * len(values),
    "folder": lambda values: [None] * len(values),
    "loss": lambda values: pa.array(["x"] * len(values)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_column_that_makes_no_sense_is_our_error(file, tmp_path, name, capsys):
    path = tmp_path / "bad.parquet"
    rewrite(file, path, (name, BROKEN[name]))
    with pytest.raises(DataError, match=r"bad\.parquet"):
        read_results_file(path)
    assert main(["collect", str(path)]) == 2
    assert "bad.parquet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({}, "is no results file"),
        ({"plench.schema": "2"}, "schema '2'"),
        ({"plench.schema": "1", "plench.notices": "3"}, "not texts"),
        ({"plench.schema": "1", "plench.sweeps": '{"a": 1}'}, "not texts"),
        ({"plench.schema": "1", "plench.sweeps": "{"}, "cannot be read"),
    ],
)
def test_other_metadata_is_our_error(file, tmp_path, metadata, said):
    rewrite(file, tmp_path / "bad.parquet", metadata=metadata)
    with pytest.raises(DataError, match=said):
        read_results_file(tmp_path / "bad.parquet")


def test_a_missing_column_is_named(file, tmp_path):
    table = pq.read_table(file).drop_columns(["test_acc"])
    pq.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="column 'test_acc' must be double, not absent"):
        read_results_file(tmp_path / "bad.parquet")


def test_too_many_rows_are_refused_before_they_are_read(file, monkeypatch):
    monkeypatch.setattr(parquet_reading, "MOST_ROWS", 10)
    with pytest.raises(DataError, match="too large"):
        read_results_file(file)


def test_damaged_files_end_in_our_error(file, tmp_path):
    """Bytes changed, cut and added at random: an error of ours or, where nothing was hit, the same runs."""
    whole = file.read_bytes()
    random_bytes = random.Random(0)
    path = tmp_path / "damaged.parquet"
    refused = 0
    for attempt in range(90):
        content = bytearray(whole)
        if attempt % 3 == 0:
            content = content[: random_bytes.randrange(len(content))]
        else:
            for _ in range(random_bytes.choice([1, 4, 64])):
                content[random_bytes.randrange(len(content))] = random_bytes.randrange(256)
        path.write_bytes(bytes(content))
        try:
            read_results_file(path)
        except PlenchError:
            refused += 1
    assert refused > 60


def test_what_is_no_parquet_is_our_error(tmp_path, capsys):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    assert main(["collect", str(tmp_path / "other.parquet")]) == 2
    assert "is no results file of plench" in capsys.readouterr().err
    for name, content in (("empty.parquet", b""), ("text.parquet", b"hello" * 100), ("runs.zip", b"PK\3\4")):
        (tmp_path / name).write_bytes(content)
        assert main(["collect", str(tmp_path / name)]) == 2
        assert name in capsys.readouterr().err


def test_a_seed_beyond_any_column_is_our_error(tmp_path):
    write_run(tmp_path / "runs" / "huge", make_records(0.5, np.random.default_rng(0)), trial_seed=10**30)
    with pytest.raises(DataError, match="no column can hold"):
        write_results_file(gather_results([tmp_path / "runs"]), tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()


def test_names_that_are_no_text_survive(tmp_path):
    name = "\ud800<script>"
    write_run(tmp_path / "runs" / "odd", make_records(0.5, np.random.default_rng(0)), "A", name)
    write_results_file(gather_results([tmp_path / "runs"]), tmp_path / "x.parquet")
    (run,) = read_runs(tmp_path / "x.parquet")
    assert run.experiment.algorithm == name


def test_export_says_what_it_wrote_and_what_is_wrong(folder, tmp_path, capsys):
    assert main(["export", str(folder), "-o", str(tmp_path / "r.parquet")]) == 0
    said = capsys.readouterr()
    assert "99 runs, 1,062 records, 5 algorithms, 2 datasets" in said.out
    assert "empty_run/run.json" in said.err
    assert main(["export", str(folder), "-o", str(tmp_path / "r.csv")]) == 2
    assert "must end in .parquet" in capsys.readouterr().err
    assert main(["export", str(tmp_path), "-o", str(tmp_path / "s.parquet")]) == 2
    assert "no runs in" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["r.parquet"]


def test_folders_of_one_name_stay_two_runs(tmp_path):
    rng = np.random.default_rng(0)
    for root in ("a", "b"):
        write_run(tmp_path / root / "same", make_records(0.5, rng), public=True)
    write_results_file(gather_results([tmp_path / "a", tmp_path / "b"]), tmp_path / "x.parquet")
    assert [run.path.name for run in read_runs(tmp_path / "x.parquet")] == ["same", "same~2"]


def test_without_the_extra_the_command_says_what_to_install(folder, file, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["export", str(folder), "-o", str(tmp_path / "r.parquet")]) == 2
    assert "extra 'report'" in capsys.readouterr().err
    assert main(["collect", str(file)]) == 2
    assert "extra 'report'" in capsys.readouterr().err


def test_every_column_is_written(file):
    assert pq.read_schema(file).names == make_schema(pa).names
    assert json.loads(pq.read_schema(file).metadata[b"plench.sweeps"]) == {"sweep-1234.toml": SWEEP}


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        read_results_file(tmp_path / "nothing.parquet")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_in_place_of_a_results_file(make, tmp_path):
    make(tmp_path / "results.parquet")
    with pytest.raises(DataError, match="not a file"):
        read_results_file(tmp_path / "results.parquet")


def test_a_small_file_of_very_many_rows_is_refused_before_it_is_read(tmp_path):
    schema = make_schema(pa).with_metadata({"plench.schema": "1"})
    table = pa.table([pa.nulls(200_000, field.type) for field in schema], schema=schema)
    pq.write_table(table, tmp_path / "bomb.parquet", compression="zstd")
    assert (tmp_path / "bomb.parquet").stat().st_size < 40_000
    with pytest.raises(DataError, match="too large: 6,600,000 cells"):
        read_results_file(tmp_path / "bomb.parquet")
