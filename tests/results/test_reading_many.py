"""Many runs are read by short cuts, which say what the long way does, whatever is in the files."""

import json
import math

import pytest

from plench.runs.description import (
    DescriptionError,
    DescriptionReader,
    check_description,
    read_description,
)
from plench.runs.ended import find_breach, make_done
from plench.runs.lines import Record, _parse_any, _parse_regular, parse_lines, read_figures
from plench.runs.records import read_run


def describe(**changes):
    """Return a run.json in the order of keys that we write."""
    content = {
        "schema": 1,
        "run_id": "0" * 32,
        "protocol": 1,
        "experiment": {"dataset": "Lost", "algorithm": "CC"},
        "config": {"trial_seed": 0, "hparams": {"lr": 0.1}},
        "algorithm_card": {"name": "CC", "idea": 'a "quoted"\nline\n "config": 1'},
        "dataset": {"name": "Löst"},
        "status": "done",
        "timings": {"training_seconds": 1.5},
        "notices": [],
    }
    return {**content, **changes}


WHOLE = json.dumps(describe(), indent=1)
FORMS = {
    "ours": WHOLE + "\n",
    "without a last line break": WHOLE,
    "a comma first": WHOLE.replace('{\n "schema": 1,\n', "{\n ,\n"),
    "an empty start": '{\n ,\n "run_id": "ab", "schema": 1,\n "protocol": 1,\n "config": {},'
    '\n "algorithm_card": {},\n "timings": {}\n}',
    "compact": json.dumps(describe()),
    "deeper": json.dumps(describe(), indent=2),
    "other letters": json.dumps(describe(), indent=1, ensure_ascii=False),
    "a long integer": json.dumps(describe(config={"seed": 2**70 + 1}), indent=1),
    "a type": json.dumps(describe(updates="many", config=1), indent=1),
    "schema": json.dumps(describe(schema=2), indent=1),
    "no schema": json.dumps({k: v for k, v in describe().items() if k != "schema"}, indent=1),
    "no timings": json.dumps({k: v for k, v in describe().items() if k != "timings"}, indent=1),
    "another order": json.dumps(dict(reversed(describe().items())), indent=1),
    "twice": WHOLE.replace('\n "status": "done"', '\n "status": "done",\n "status": "failed"'),
    "a key of the config at the upper level": WHOLE.replace('\n  "hparams"', '\n "hparams"'),
    "moved": WHOLE.replace('\n "protocol": 1,', "").replace('  "lr": 0.1', ' "protocol": 1'),
    "torn": WHOLE[:-40],
    "torn before its end": WHOLE[:-1],
    "two commas": WHOLE.replace('"protocol": 1,', '"protocol": 1,,'),
    "an end too many": WHOLE + "}",
    "a brace in the middle": WHOLE.replace('"protocol": 1,', '"protocol": 1},{"a": 1,'),
    "no object": "[1]",
    "nothing": "",
    "no text": "\udcff",
}


def read_and_check(path):
    content = read_description(path)
    return content, check_description(content)


@pytest.mark.parametrize("form", FORMS)
def test_many_descriptions_are_read_as_each_by_itself(form, tmp_path):
    path = str(tmp_path / "run.json")
    reader = DescriptionReader()
    for other in ("ours", form, form):  # what is known of others changes nothing
        (tmp_path / "run.json").write_text(FORMS[other], encoding="utf-8", errors="surrogateescape")
        told = []
        for read in (read_and_check, reader.read):
            try:
                told.append(read(path))
            except DescriptionError as error:
                told.append(str(error))
        assert told[0] == told[1]


LINE = {"step": 0, "loss": 1.5, "val_accuracy": 0.5, "val_covering_rate": 1.0, "val_approximated_acc": 0.25}
SHARED = {"hparams": {"lr": 0.1}, "args": {"algorithm": "CC", "steps": 3}}


def write_lines(*changes, **shared):
    lines = [
        {**LINE, "test_acc": 0.5, "logged": {"a": 1}, **change, **SHARED, **shared} for change in changes
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


STEPS = ({"step": 0}, {"step": 1}, {"step": 2})
FILES = {
    "whole": write_lines(*STEPS),
    "without the last line break": write_lines(*STEPS)[:-1],
    "of one line": write_lines({"step": 4}),
    "empty": "",
    "blank": "\n\n",
    "a blank line": write_lines(*STEPS) + "\n" + write_lines({"step": 9}),
    "no accuracies": write_lines({"val_accuracy": None, "test_acc": None}, {"step": 5, "test_acc": None}),
    "no losses": write_lines({"loss": None}),
    "all null": write_lines(dict.fromkeys(["loss", *LINE][2:], None)),
    "NaN": write_lines({"loss": math.nan}, {"step": 1}),
    "infinite": write_lines({"step": 1, "loss": math.inf}),
    "no share": write_lines({"step": 1, "test_acc": 1.5}, {"step": 2, "val_covering_rate": -0.5}),
    "a large loss": write_lines({"step": 1, "loss": 1e300}, {"step": 2, "loss": -3.0}),
    "whole numbers": write_lines({"step": 1, "test_acc": 1, "loss": 10**400}),
    "a long integer": write_lines({"step": 1, "x": 2**70}),
    "true": write_lines({"step": 1, "test_acc": True}),
    "text": write_lines({"step": 1, "test_acc": "0.5"}),
    "another step at the end": write_lines(*STEPS).replace("}}", '}, "step": 7}'),
    "falling": write_lines({"step": 2}, {"step": 1}),
    "repeated": write_lines({"step": 1}, {"step": 1, "loss": 2.5}),
    "steps that are none": write_lines({"step": 1.0}, {"step": -1}, {"step": "2"}, {"step": True}),
    "a step too large": write_lines({"step": 1}, {"step": 10**400}),
    "other args": write_lines({"step": 1}) + write_lines({"step": 2}, args={"algorithm": "NN"}),
    "args in the middle": write_lines({"step": 1, "args": {"a": 1}}, {"step": 2}),
    "no args": write_lines({"step": 1}, args=None),
    "a missing figure": write_lines({"step": 1}).replace('"loss"', '"lost"'),
    "torn": write_lines(*STEPS)[:-30],
    "torn within": write_lines(*STEPS).replace('"step": 1,', '"step": '),
    "two in a line": write_lines(*STEPS).replace('{"step": 1,', '{"step": 1}, {"step": 7,'),
    "a list": "[1]\n" + write_lines({"step": 2}),
    "shared alone": "{" + write_lines({"step": 1}).partition("}")[2],
    "deep": "[" * 100_000 + "\n",
    "of a fleet": write_lines(*STEPS, fleet_size=10),
    "of fleets": write_lines({"step": 1}, fleet_size=10) + write_lines({"step": 2}, fleet_size=9),
    "a fleet in the middle": write_lines({"step": 1, "fleet_size": 3}, {"step": 2}),
    "an object across lines": write_lines({"step": 0, "x": 1}, {"step": 1, "y": 2})
    .replace('"x": 1', '"x": [{"a": 1')
    .replace('{"step": 1', '{"b": 1}]}, {"step": 1'),
}


def read_with_json(text):
    """Return the records by rising step with Python's own parser, the last of each step."""
    records = {}
    for line in text.split("\n"):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            continue
        step = values.get("step") if isinstance(values, dict) else None
        if type(step) in (int, float) and 0 <= step < 1e300 and int(step) == step:
            records[int(step)] = {name: values[name] for name in values.keys() - SHARED.keys()}
    return [(step, sorted(records[step].items())) for step in sorted(records)]


@pytest.mark.parametrize("file", FILES)
def test_lines_are_parsed_as_by_python(file):
    text = FILES[file]
    found = parse_lines(text.encode())
    told = [(record.step, sorted(record.values.items())) for record in found.records]
    assert repr(told) == repr(read_with_json(text))  # NaN differs from itself
    if file == "whole":
        assert [record.step for record in found.records] == [0, 1, 2]
        assert found.first == SHARED
        assert not found.notices
    if file == "an object across lines":
        assert not found.records
    if file in ("torn", "torn within", "two in a line"):
        assert len(found.records) == 2
        assert found.notices[0].startswith("1 line skipped, no JSON: ")


@pytest.mark.parametrize("file", FILES)
def test_a_regular_file_says_the_same_line_by_line(file):
    content = FILES[file].encode()
    found, wanted = _parse_regular(content), _parse_any(content)
    assert found is None or by_name(found) == by_name(wanted)
    if file in ("whole", "of one line", "of a fleet", "no share", "a large loss", "no losses"):
        assert found is not None


def by_name(found):
    """Return what was parsed as text (NaN differs from itself), whatever the order of the names in it."""
    records = [(step, sorted(values.items())) for step, values in found.records]
    return repr((records, found.first, found.notices))


@pytest.mark.parametrize(
    ("file", "notice"),
    [
        ("NaN", "loss is NaN or no number in 1 of 2 records"),
        ("infinite", "loss is NaN or no number in 1 of 1 records"),
        ("no share", "test_acc is not between 0 and 1 in 1 of 2 records"),
        ("true", "test_acc is NaN or no number in 1 of 1 records"),
        ("text", "test_acc is NaN or no number in 1 of 1 records"),
        ("a missing figure", "loss is missing from 1 of 1 records"),
        ("repeated", "1 step repeated, the last record of each counts: 1"),
        ("steps that are none", "3 lines skipped, no usable step: 2, 3, 4"),
    ],
)
def test_what_is_odd_in_lines_is_told(file, notice):
    assert notice in parse_lines(FILES[file].encode()).notices


@pytest.mark.parametrize(
    "line", [b"\0a\0a\0", b'{\0"\0', b"\xff\xfe{\0", b"\0\0\0{", b"\xff", b'{"step": 1\0}']
)
def test_bytes_of_any_kind_are_a_broken_line(line):
    found = parse_lines(line + b"\n" + FILES["whole"].encode())
    assert [record.step for record in found.records] == [0, 1, 2]
    assert found.notices == ["1 line skipped, no JSON: 1"]


@pytest.mark.parametrize(
    ("value", "loss", "share"),
    [
        *((0.5, 0.5, 0.5), (0, 0, 0), (1, 1, 1), (1.5, 1.5, None), (-1, -1, None), (None, None, None)),
        *((math.nan, None, None), (-math.inf, None, None), (10**400, None, None)),
        *((True, None, None), ("0.5", None, None), ([0.5], None, None)),
    ],
)
def test_figures_of_many_records_are_those_of_each(value, loss, share):
    records = (Record(0, {}), Record(1, {"loss": value, "test_acc": value}))
    for key, wanted in (("loss", loss), ("test_acc", share)):
        assert read_figures(records, key) == [record.get(key) for record in records] == [None, wanted]


def test_letters_that_are_no_utf8_spoil_no_line():
    (record,) = parse_lines(FILES["of one line"].encode().replace(b'"a"', b'"\xff"')).records
    assert record.step == 4


def test_runs_without_a_description_keep_large_seeds(tmp_path):
    args = {"algorithm": "CC", "dataset": "Lost", "steps": 3, "trial_seed": 0, "hparams_seed": 0}
    text = write_lines(*STEPS, args={**args, "seed": 2**70})
    (tmp_path / "results.jsonl").write_text(text)
    assert read_run(tmp_path).seed == 2**70


@pytest.mark.parametrize("name", ["model_CR.pt", "a\0b", "\ud800", ".", "x" * 300])
@pytest.mark.parametrize("thorough", [True, False])
def test_what_done_names_is_told_where_it_is_not_there(name, thorough, tmp_path):
    (tmp_path / "results.jsonl").write_text(write_lines(*STEPS))
    done = make_done(tmp_path, ["results.jsonl"])
    (tmp_path / "done").write_bytes(done)
    assert find_breach(str(tmp_path), {"status": "done"}, 3, thorough=thorough) is None
    files = json.loads(done.splitlines()[1]) | {name: {"bytes": 1, "sha256": ""}}
    (tmp_path / "done").write_text(f"done\n{json.dumps(files)}\n")
    assert find_breach(str(tmp_path), {"status": "done"}, 3, thorough=thorough).startswith(f"its {name} ")


@pytest.mark.parametrize("last", [None, 1, "2", 2.5, True, [2]])
def test_records_end_with_the_step_before_divergence(last, tmp_path):
    (tmp_path / "results.jsonl").write_text(write_lines(*STEPS))
    (tmp_path / "done").write_bytes(make_done(tmp_path, ["results.jsonl"]))
    info = {"status": "diverged", "diverged_after_step": last}
    assert "does not end" in find_breach(str(tmp_path), info, 9)
    assert find_breach(str(tmp_path), {**info, "diverged_after_step": 2}, 9) is None
