"""Results files: the same answers as the folders they were made from, small, and safe to read."""

import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plench.cli import main
from plench.errors import DataError, UsageError
from plench.runs import read_runs, results
from plench.runs.records import Record
from plench.runs.results import (
    StoredResults,
    gather_results,
    make_schema,
    read_results_file,
    write_results_file,
)
from tests.synthetic_sweep import make_records, write_run, write_sweep

ROOT = Path(__file__).parent.parent
STORED = ROOT / "results" / "stored-0.2.0"
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
    early = {"hparams_seed": 9, "status": "diverged", "diverged_after_step": 300}
    write_run(root / "diverged", make_records(0.5, rng)[:6], **early)
    write_run(root / "failed", [], hparams_seed=8, status="failed")
    write_run(root / "public", make_records(0.6, rng), "Lost", "VALEN", public=True)
    more = {"test_acc": 2.0, "val_own": 0.25, "logged": {"a": 0.5}, "note": "x"}
    odd = [{**record, **more} for record in make_records(0.5, rng)]
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


def describe(run):
    """Return all that must survive; the description of a killed run may still have the status done."""
    names = ("experiment", "trial_seed", "hparams_seed", "seed", "hparams", "status", "diverged_after_step")
    info = run.info and {**run.info, "status": run.status}
    return [run.path.name, *(getattr(run, name) for name in names), info, figures(run)]


def test_runs_come_back_equal(folder, file):
    before, after = read_runs(folder), read_runs(file)
    assert [describe(run) for run in before] == [describe(run) for run in after]
    (odd,) = [run for run in after if run.path.name == "odd"]
    assert odd.records[2].values["logged"] == {"a": 0.5}
    assert odd.records[2].get("val_own") == 0.25
    assert np.isnan(odd.records[3].values["loss"])
    assert [run.records for run in after if run.path.name == "failed"] == [()]


def test_a_file_of_a_file_is_the_same(file, tmp_path):
    again = tmp_path / "again.parquet"
    write_results_file(gather_results([file]), again)
    assert read_results_file(again).sweeps == {"sweep-1234.toml": SWEEP}
    assert [describe(run) for run in read_runs(again)] == [describe(run) for run in read_runs(file)]


COMMANDS = (
    "collect",
    "collect --chosen --format json",
    "collect --by criterion --format csv",
    "stats --json",
)


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_answer_as_for_the_folder(folder, file, cli, words):
    command, *options = words.split()
    answers = []
    for place in (folder, file):
        answers.append(
            [text.replace(str(place), "").replace(place.name, "") for text in cli(command, place, *options)]
        )
    assert answers[0] == answers[1]
    assert "without any run: POP" in answers[1][1], "the sweep's plan is in the file"


def test_the_page_is_the_same(folder, file, tmp_path):
    for place, name in ((folder, "a"), (file, "b")):
        assert main(["report", str(place), "-o", str(tmp_path / name)]) == 0
    pages = [{p.name: p.read_text() for p in (tmp_path / name / "data").glob("*/*.js")} for name in "ab"]
    assert pages[0].keys() == pages[1].keys()
    # Provenance names the command, and with it folder and file.
    assert [name for name in pages[0] if pages[0][name] != pages[1][name]] == ["provenance.js"]


def test_rows_in_another_order_are_the_same_runs(file, tmp_path):
    table = pq.read_table(file)
    order = np.random.default_rng(0).permutation(table.num_rows)
    pq.write_table(table.take(pa.array(order)), tmp_path / "mixed.parquet")
    before, after = read_runs(file), read_runs(tmp_path / "mixed.parquet")
    assert sorted(map(repr, map(describe, before))) == sorted(map(repr, map(describe, after)))


def test_a_thousand_runs_take_less_than_four_hundred_kilobytes(tmp_path):
    """With figures of which no two are equal, the worst case."""
    rng = np.random.default_rng(0)
    (template,) = read_runs(write_run(tmp_path / "r" / "run", make_records(0.5, rng)).parent)
    assert len(template.records) == 11

    def draw(record):
        new = {name: rng.uniform() for name in ("loss", "val_approximated_acc", "step_time")}
        new |= {"val_covering_rate": rng.integers(200) / 200, "logged": {"loss_cls": rng.uniform()}}
        return Record(record.step, {**record.values, **new})

    runs = []
    for number in range(1000):
        own = {"hparams_seed": number, "hparams": {"lr": rng.uniform(), "weight_decay": rng.uniform()}}
        config = {**template.info["config"], **own}
        info = {**template.info, "run_id": f"{rng.integers(2**63):032x}", "config": config}
        records = tuple(map(draw, template.records))
        folder = f"run-{rng.integers(2**48):012x}"
        runs.append(replace(template, folder=folder, records=records, info=info, **own))
    write_results_file(StoredResults(runs), tmp_path / "r.parquet")
    assert (tmp_path / "r.parquet").stat().st_size < 400_000


BROKEN = {
    "status": ("fine", "has status 'fine'"),
    "hparams": ("[1]", "has a broken hparams"),
    "config": ("{", "has a broken config"),
    "experiment": ('{"dataset": 3}', "has no dataset"),
    "dataset": ("Other", "is of dataset 'Other'"),
    "trial_seed": (None, "has no trial_seed"),
    "seed": (..., "differ in seed"),
    "step": (-1, "below 0"),
    "folder": (None, "names no folder"),
    "loss": ("x", "column 'loss' must be double, not string"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_column_that_makes_no_sense_is_our_error(file, tmp_path, name, cli):
    path, table = tmp_path / "bad.parquet", pq.read_table(file)
    value, said = BROKEN[name]
    values = [*range(table.num_rows)] if value is ... else [value] * table.num_rows
    kind = pa.string() if name == "loss" else table.schema.field(name).type
    pq.write_table(table.set_column(table.schema.get_field_index(name), name, pa.array(values, kind)), path)
    with pytest.raises(DataError, match=r"bad\.parquet"):
        read_results_file(path)
    assert said in cli("collect", path, code=2).err


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({}, "not made by `plench export`"),
        ({"plench.schema": "2"}, "schema '2'"),
        ({"plench.schema": "1", "plench.notices": "3"}, "not texts"),
        ({"plench.schema": "1", "plench.sweeps": '{"a": 1}'}, "not texts"),
        ({"plench.schema": "1", "plench.sweeps": "{"}, "cannot be read"),
    ],
)
def test_other_metadata_is_our_error(file, tmp_path, metadata, said):
    pq.write_table(pq.read_table(file).replace_schema_metadata(metadata), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=said):
        read_results_file(tmp_path / "bad.parquet")


def test_missing_columns_and_too_many_rows_are_our_errors(file, tmp_path, monkeypatch):
    pq.write_table(pq.read_table(file).drop_columns(["test_acc"]), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="column 'test_acc' must be double, not absent"):
        read_results_file(tmp_path / "bad.parquet")
    monkeypatch.setattr(results, "MOST_ROWS", 10)
    with pytest.raises(DataError, match="too large"):
        read_results_file(file)


def test_damaged_files_end_in_our_error(file, tmp_path):
    """Bytes changed, cut and added at random: an error of ours or, where nothing was hit, the same runs."""
    whole = file.read_bytes()
    random_bytes = random.Random(0)
    path = tmp_path / "damaged.parquet"
    expected = repr([run.records for run in read_runs(file)])
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
            runs = read_results_file(path).runs
        except DataError:
            refused += 1
        else:
            assert repr([run.records for run in runs]) == expected
    assert refused > 60


def test_a_missing_file_and_one_of_another_kind_are_our_errors(tmp_path, cli):
    (tmp_path / "runs.zip").write_bytes(b"PK\3\4")
    assert "runs.zip" in cli("collect", tmp_path / "runs.zip", code=2).err
    with pytest.raises(UsageError, match="cannot read"):
        read_results_file(tmp_path / "nothing.parquet")


def test_names_that_are_not_text_survive(tmp_path):
    name = "\ud800<script>"
    write_run(tmp_path / "runs" / "odd", make_records(0.5, np.random.default_rng(0)), "A", name)
    write_results_file(gather_results([tmp_path / "runs"]), tmp_path / "x.parquet")
    (run,) = read_runs(tmp_path / "x.parquet")
    assert run.experiment.algorithm == name


def test_export_says_what_it_wrote_and_what_is_wrong(folder, tmp_path, cli):
    said = cli("export", folder, "-o", tmp_path / "r.parquet")
    assert "99 runs, 1,062 records, 5 algorithms, 2 datasets" in said.out
    assert "empty_run/run.json" in said.err
    assert "must end in .parquet" in cli("export", folder, "-o", tmp_path / "r.csv", code=2).err
    assert "no runs in" in cli("export", tmp_path, "-o", tmp_path / "s.parquet", code=2).err
    assert [path.name for path in tmp_path.iterdir()] == ["r.parquet"]


def test_copies_left_out_by_an_export_are_reported_once(tmp_path, capsys):
    """Merging a file again must not repeat the warning of the merge before it."""
    first = write_sweep(tmp_path / "first", datasets=("Lost",), algorithms=("CC",), n_trials=1, n_hparams=2)
    copy, merged = shutil.copytree(first, tmp_path / "copy"), tmp_path / "merged.parquet"
    assert main(["results", "export", str(first), str(copy), "-o", str(merged)]) == 0
    assert "2 folders are copies of runs that count once" in capsys.readouterr().err
    again = tmp_path / "again.parquet"
    assert main(["results", "export", str(merged), "-o", str(again)]) == 0
    assert main(["collect", str(again)]) == 0
    assert capsys.readouterr().err == ""
    assert len(read_results_file(again).runs) == 2


def test_folders_of_one_name_stay_two_runs(tmp_path):
    rng = np.random.default_rng(0)
    for root in ("a", "b"):
        write_run(tmp_path / root / "same", make_records(0.5, rng), public=True)
    write_results_file(gather_results([tmp_path / "a", tmp_path / "b"]), tmp_path / "x.parquet")
    assert [run.path.name for run in read_runs(tmp_path / "x.parquet")] == ["same", "same~2"]


def test_without_the_extra_the_command_says_what_to_install(folder, file, tmp_path, cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "extra 'report'" in cli("export", folder, "-o", tmp_path / "r.parquet", code=2).err
    assert "extra 'report'" in cli("collect", file, code=2).err


def test_columns_are_those_that_the_documentation_lists(file):
    names = pq.read_schema(file).names
    assert names == make_schema(pa).names
    text = (Path(__file__).parent.parent.parent / "docs" / "results-file.md").read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in text] == []


def test_a_results_file_of_0_2_0_is_read(tmp_path):
    """It was written by 0.2.0 from folders that are in the tests."""
    folders = ROOT / "golden" / "folders"
    stored = gather_results([folders / "sweep", folders / "public", STORED / "runs"])
    read = read_results_file(STORED / "results.parquet")
    assert read.sweeps == stored.sweeps
    assert [describe(run) for run in read.runs] == [describe(run) for run in stored.runs]
