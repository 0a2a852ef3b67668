"""Exports of annotation tools: what is read of them, what is refused, and both ways to a dataset.

The files of tests/fixtures/exports have the shape that the tools write; their content is made up. Each item
has a numeric field, so that no test depends on how text is encoded.
"""

import json
import shlex
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plench.cli import main
from plench.data import Dataset, as_dataset, load_dataset
from plench.data.sources.exports import IMPORTERS, Export, read_export
from plench.errors import PlenchError
from tests.conftest import ROOT

EXPORTS = ROOT / "tests" / "fixtures" / "exports"
# file → its reference as a dataset, the tool, and the numbers of annotators and of answers, models included
FIXTURES = {
    "label_studio.json": ("label_studio.json", "Label Studio", 3, 46),
    "label_studio_old.json": ("label_studio_old.json", "Label Studio", 2, 35),
    "label_studio_min.json": ("label_studio_min.json", "Label Studio rows", 2, 36),
    "label_studio.csv": ("label_studio.csv", "Label Studio rows", 2, 36),
    "doccano": ("doccano", "doccano", 2, 34),
    "all.jsonl": ("all.jsonl", "doccano", 1, 18),
    "doccano.csv": ("doccano.csv", "doccano", 1, 17),
    "prodigy.jsonl": ("prodigy.jsonl", "Prodigy", 2, 35),
    "prodigy_binary.jsonl": ("prodigy_binary.jsonl", "Prodigy", 1, 18),
}


def read(name: str, **options: Any) -> Export:
    return read_export(EXPORTS / name, **options)


def write(path: Path, values: list[dict[str, Any]]) -> Path:
    """Write records as the ending of the file says."""
    lines = [json.dumps(value) for value in values]
    text = "\n".join(lines) if path.suffix == ".jsonl" else f"[{','.join(lines)}]"
    path.write_text(text, encoding="utf-8")
    return path


def change(name: str, tmp_path: Path, edit: Callable[[list[dict[str, Any]]], object]) -> Path:
    """Write a fixture with its records edited."""
    text = (EXPORTS / name).read_text(encoding="utf-8")
    records = json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
    edit(records)
    return write(tmp_path / name, records)


def sets_of(dataset: Dataset, item: int) -> dict[str, set[str]]:
    """Return the answers to an item by annotator, as names of classes."""
    answers = dataset.answers
    assert answers is not None
    assert dataset.class_names is not None
    return {
        answers.annotator_names[answers.annotator[row]]: {
            dataset.class_names[k] for k in np.flatnonzero(answers.sets[row])
        }
        for row in np.flatnonzero(answers.item == item)
    }


def assert_equal(one: Dataset, other: Dataset) -> None:
    """The same features, classes, candidates, truth and answers."""
    assert one.fingerprint == other.fingerprint
    assert one.class_names == other.class_names
    assert one.answers is not None
    assert other.answers is not None
    assert one.answers.annotator_names == other.answers.annotator_names
    for name in ("item", "annotator", "sets"):
        np.testing.assert_array_equal(getattr(one.answers, name), getattr(other.answers, name))


@pytest.mark.parametrize("name", FIXTURES)
def test_import_fit_and_direct_use_agree(name, tmp_path, capsys, cli):
    reference, tool, n_annotators, n_answers = FIXTURES[name]
    out = cli("data", "import", EXPORTS / name, "-o", tmp_path / "items.csv").out
    assert out.startswith(f"{name} ({tool})\n")
    command = shlex.split(out.splitlines()[-1])
    assert command[:2] == ["plench", "fit"]
    tables, direct = load_dataset(command[2]), as_dataset(EXPORTS / reference)
    assert_equal(tables, direct)
    assert tables.card.name.partition("@")[2] == direct.card.name.partition("@")[2]
    assert direct.n_examples == 18
    names = ("complaint", "praise", "question")
    if name == "prodigy.jsonl":
        names = ("Complaint", "Praise", "Question")  # the texts of its options
    assert direct.class_names == names
    assert direct.features.columns[direct.features.names.index("length")].kind == "number"
    assert len(direct.answers.annotator_names) == n_annotators
    assert len(direct.answers.item) == n_answers
    for data in (command[2], str(EXPORTS / reference)):
        model = str(tmp_path / "model.plench")
        assert main(["fit", data, "-o", model, "-a", "PRODEN", "--steps", "20"]) == 0, capsys.readouterr().err
        assert f"wrote {model}" in capsys.readouterr().out


def test_label_studio_keeps_people_models_and_gold_labels_apart(capsys):
    export = read("label_studio.json")
    assert export.truth == {"201": "praise", "208": "complaint"}
    assert export.models == {"tea-2024"}
    assert dict(export.skipped) == {"cancelled": 1, "empty": 1}
    assert {annotator for _, annotator in export.answers} == {"ann@example.org", "5", "tea-2024"}
    assert ("203", "5") not in export.answers, "a cancelled annotation is not an answer"
    assert export.answers["207", "ann@example.org"].labels == ("question",), "the last one counts"
    assert any("answered an item again" in warning for warning in export.warnings)
    dataset = load_dataset(EXPORTS / "label_studio.json")
    assert sets_of(dataset, 4)["ann@example.org"] == {"complaint", "question"}, "several choices are a set"
    assert any("tea-2024" in warning for warning in dataset.warnings)


def test_predictions_can_be_left_out(tmp_path, cli):
    assert read("label_studio.json", predictions=False).models == set()
    dataset = load_dataset(f"{EXPORTS / 'label_studio.json'}?predictions=no")
    assert dataset.answers.annotator_names == ("5", "ann@example.org")
    command = ["data", "import", str(EXPORTS / "label_studio.json"), "--no-predictions"]
    assert "tea-2024" not in cli(*command, "-o", tmp_path / "items.csv").out
    with pytest.raises(PlenchError, match="predictions must be yes or no"):
        load_dataset(f"{EXPORTS / 'label_studio.json'}?predictions=perhaps")


def test_predictions_by_id_alone_are_refused_with_the_option_that_leaves_them_out(tmp_path):
    def keep_ids(records):
        for number, record in enumerate(records):
            record["predictions"] = [number]

    path = change("label_studio.json", tmp_path, keep_ids)
    with pytest.raises(PlenchError, match=r"with their results .predictions=no or --no-predictions leaves"):
        read_export(path)
    whole = EXPORTS / "label_studio.json"
    assert_equal(load_dataset(f"{path}?predictions=no"), load_dataset(f"{whole}?predictions=no"))


def test_a_model_called_like_a_person_is_another_annotator(tmp_path):
    def edit(tasks):
        for task in tasks:
            for prediction in task["predictions"]:
                prediction["model_version"] = "5"

    export = read_export(change("label_studio.json", tmp_path, edit))
    assert export.models == {"model 5"}
    assert len([annotator for _, annotator in export.answers if annotator == "5"]) == 16


def test_the_older_keys_of_label_studio():
    export = read("label_studio_old.json")
    assert dict(export.skipped) == {"cancelled": 1}
    assert len([annotator for _, annotator in export.answers if annotator == "unknown"]) == 17
    assert export.models == {"old"}


@pytest.mark.parametrize("name", ["label_studio.json", "label_studio_min.json"])
def test_of_several_questions_one_is_chosen(name, tmp_path):
    def edit(records):
        for record in records:
            if "intent" in record:
                rest = {key: record.pop(key) for key in list(record) if key in ("annotator", "annotation_id")}
                record |= {"tone": "warm", **rest}
            for annotation in record.get("annotations", ()):
                tone = {"from_name": "tone", "type": "choices", "value": {"choices": ["warm"]}}
                annotation["result"].append(tone)

    path = change(name, tmp_path, edit)
    with pytest.raises(PlenchError, match="intent, tone; choose with from_name=intent"):
        read_export(path)
    with pytest.raises(PlenchError, match=r"no question 'mood'; expected one of .*intent.*tone"):
        read_export(path, from_name="mood")
    dataset = load_dataset(f"{path}?from_name=intent")
    assert dataset.class_names == ("complaint", "praise", "question")
    assert "tone" not in dataset.features.names, "the answers to a question are not features of another"


def test_a_csv_file_that_does_not_tell_its_question_is_refused(tmp_path):
    text = (EXPORTS / "label_studio.csv").read_text(encoding="utf-8")
    one = [line for line in text.splitlines() if "bo@" not in line and "choices" not in line]
    (tmp_path / "one.csv").write_text("\n".join(one), encoding="utf-8")
    with pytest.raises(PlenchError, match="which column has the answers: intent, length, text"):
        read_export(tmp_path / "one.csv")
    assert len(read_export(tmp_path / "one.csv", from_name="intent").answers) == 17


def test_rows_of_label_studio():
    export = read("label_studio_min.json")
    assert export.columns == ["text", "length"]
    assert len(export.answers["205", "3"].labels) == 2
    assert {annotator for _, annotator in read("label_studio.csv").answers} == {
        "ann@example.org",
        "bo@example.org",
    }


def test_doccano_annotators_are_files(tmp_path):
    folder = read("doccano")
    assert {annotator for _, annotator in folder.answers} == {"alice", "bob"}
    assert dict(folder.skipped) == {"empty": 2}
    with zipfile.ZipFile(tmp_path / "doccano.zip", "w") as archive:
        for name in ("alice", "bob"):
            archive.write(EXPORTS / "doccano" / f"{name}.jsonl", f"{name}.jsonl")
        archive.writestr("__MACOSX/._alice.jsonl", b"\x00\x05")
    assert read_export(tmp_path / "doccano.zip").answers == folder.answers
    assert_equal(load_dataset(tmp_path / "doccano.zip"), load_dataset(EXPORTS / "doccano"))
    assert read("doccano.csv").answers["42", "doccano"].labels == ("praise", "question")


@pytest.mark.parametrize("text", ["Praise", "", None, "Grumble"])
def test_options_of_prodigy_without_a_text_of_their_own_are_called_by_their_ids(text, tmp_path):
    def edit(records):
        for option in records[3]["options"]:
            if option["id"] == "complaint":
                option["text"] = text  # that of another option, none, or another than elsewhere

    export = read_export(change("prodigy.jsonl", tmp_path, edit))
    labels = {label for answer in export.answers.values() for label in answer.labels}
    assert labels == {"praise", "complaint", "question"}


def test_doccano_files_of_two_projects_are_refused(tmp_path):
    write(tmp_path / "ann.jsonl", [{"id": 1, "text": "tea", "label": ["a"]}])
    write(tmp_path / "bob.jsonl", [{"id": 1, "text": "coffee", "label": ["b"]}])
    with pytest.raises(PlenchError, match=r"bob.jsonl: record 1: item 1 has another text"):
        read_export(tmp_path)


def test_prodigy_answers():
    export = read("prodigy.jsonl")
    assert dict(export.skipped) == {"rejected": 1}
    assert [answer.labels for answer in export.answers.values()].count(()) == 2, "ignored: unsure"
    assert any("'tea-dev' answered an item again" in warning for warning in export.warnings)
    assert export.columns == ["text", "length"]
    assert "1530009927" in export.items
    assert {label for answer in export.answers.values() for label in answer.labels} == {
        "Praise",
        "Complaint",
        "Question",
    }
    dataset = load_dataset(EXPORTS / "prodigy_binary.jsonl")
    everything = {"complaint", "praise", "question"}
    assert sets_of(dataset, 0) == {"tea-eve": {"praise"}}, "accepted"
    assert sets_of(dataset, 6) == {"tea-eve": {"praise"}}
    assert sets_of(dataset, 3) == {"tea-eve": set()}, "ignored"
    assert sets_of(dataset, 4) == {"tea-eve": {"complaint"}}, "one rejected, one accepted"
    assert dataset.candidates[3].sum() == len(everything)


def make_binary(labels: dict[int, list[tuple[str, str]]]) -> list[dict[str, Any]]:
    return [
        {"text": f"t{item}", "size": item, "_input_hash": item, "label": label, "answer": answer}
        for item, asked in labels.items()
        for label, answer in asked
    ]


def test_rejected_labels_are_excluded(tmp_path):
    asked = {
        1: [("a", "accept")],
        2: [("b", "accept")],
        3: [("a", "reject")],
        4: [("a", "reject"), ("b", "reject")],
    }
    asked |= {5: [("c", "accept")], 6: [("a", "reject"), ("a", "accept")]}
    path = write(tmp_path / "binary.jsonl", make_binary(asked))
    dataset = load_dataset(path)
    assert [sets_of(dataset, item)["unknown"] for item in range(6)] == [
        {"a"}, {"b"}, {"b", "c"}, {"c"}, {"c"}, {"a"},
    ]  # fmt: skip
    assert any("answered an item again" in warning for warning in dataset.warnings)


def test_one_rejected_label_gives_two_classes(tmp_path, cli):
    path = write(tmp_path / "spam.jsonl", make_binary({1: [("spam", "accept")], 2: [("spam", "reject")]}))
    dataset = load_dataset(path)
    assert dataset.class_names == ("not spam", "spam")
    assert dataset.candidates.tolist() == [[False, True], [True, False]]
    said = cli("data", "import", path, "-o", tmp_path / "items.csv").out
    assert_equal(load_dataset(shlex.split(said.splitlines()[-1])[2]), dataset)


LABELS = [
    ["None", "tea"],
    ["not sure", "sure"],
    ["a|b", "c"],
    ["R&B", "50%", "a+b"],
    ["1", "2", "10"],
    ["x#y", "z|w;v"],
]


@pytest.mark.parametrize("labels", LABELS, ids="-".join)
def test_labels_that_mean_something_else_in_a_table_stay_classes(labels, tmp_path, cli):
    examples = [{"id": n, "text": f"t{n}", "size": n, "label": [label]} for n, label in enumerate(labels)]
    examples.append(
        {"id": 99, "text": "all", "size": 5, "label": [label for label in labels if label[:4] != "not "]}
    )
    path = write(tmp_path / "ann.jsonl", examples)
    dataset = load_dataset(path)
    assert sorted(dataset.class_names) == sorted(labels)
    assert sets_of(dataset, 0)["ann"] == {labels[0]}
    assert sets_of(dataset, len(labels))["ann"] == {label for label in labels if label[:4] != "not "}
    said = cli("data", "import", path, "-o", tmp_path / "items.csv").out
    assert_equal(load_dataset(shlex.split(said.splitlines()[-1])[2]), dataset)


def test_an_unsure_label_is_an_unsure_answer(tmp_path):
    labels = [["a"], ["Unsure"], ["b"], ["?", "a"]]
    path = write(
        tmp_path / "ann.jsonl", [{"id": n, "text": f"t{n}", "label": each} for n, each in enumerate(labels)]
    )
    dataset = load_dataset(path)
    assert dataset.class_names == ("a", "b")
    assert [sets_of(dataset, item)["ann"] for item in range(4)] == [{"a"}, set(), {"b"}, {"a"}]
    assert any("'Unsure' is read as being unsure" in warning for warning in dataset.warnings)


def test_data_fields_never_take_a_role(tmp_path, capsys):
    fields = {
        "label": "old",
        "id": 7,
        "split": "x",
        "annotator_a": "b",
        "file": "f.png",
        "a;b": 3,
        "tags": ["u"],
    }

    def edit(tasks):
        for task in tasks:
            task["data"] |= fields

    path = change("label_studio.json", tmp_path, edit)
    dataset = load_dataset(path)
    names = {"text", "length", "data_label", "data_id", "data_split", "data_annotator_a", "data_file", "a b"}
    assert {*dataset.features.names} == names
    assert any("'tags' is neither a text nor a number and is left out" in text for text in dataset.warnings)
    assert any("'label' is the column 'data_label'" in text for text in dataset.warnings)


def test_fields_of_annotators_are_left_out(tmp_path):
    records = [
        {
            "text": "t",
            "size": 1,
            "note": who,
            "_input_hash": 1,
            "accept": [who],
            "answer": "accept",
            "_session_id": who,
        }
        for who in ("a", "b")
    ]
    export = read_export(write(tmp_path / "p.jsonl", records))
    assert export.columns == ["text", "size"]
    assert any("'note' differs between the records of an item" in text for text in export.warnings)


def test_the_command_says_what_it_found_and_protects_files(tmp_path, cli):
    items, answers = tmp_path / "items.csv", tmp_path / "items-answers.csv"
    command = ["data", "import", str(EXPORTS / "label_studio.json"), "-o", str(items)]
    out = cli(*command).out
    for line in (
        "items         18",
        "data fields   text, length",
        "annotators    2: ann@example.org 18, 5 16",
        "answers       34, 0 of them unsure",
        "predictions   tea-2024 12",
        "gold labels   2",
        "skipped       1 cancelled, 1 empty",
        f"plench fit '{items}?answers=items-answers.csv' -o model.plench",
    ):
        assert line in out
    assert {path.name for path in tmp_path.iterdir()} == {"items.csv", "items-answers.csv"}
    items.unlink()
    answers.write_text("mine", encoding="utf-8")
    assert f"{answers} is already there; replace it with --force" in cli(*command, code=2).err
    assert answers.read_text(encoding="utf-8") == "mine"
    assert not items.exists()
    assert main([*command, "--force"]) == 0
    assert answers.read_text(encoding="utf-8") != "mine"
    assert "must be a file ending in .csv" in cli(*command[:-1], tmp_path / "items.txt", code=2).err


def region(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    result = [{"type": kind, "from_name": "q", "value": value}]
    return {"id": 1, "data": {"text": "a"}, "annotations": [{"completed_by": 1, "result": result}]}


ROW = {"text": "a", "id": 1, "q": "x", "annotator": 1, "annotation_id": 2}
TASK = {"text": "a", "_input_hash": 1, "answer": "accept"}
CHOICE = region("choices", {"choices": ["a"]})
BOTH = {"id": 1, "data": {}, "annotations": [], "annotation_id": 1, "annotator": 1}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "boxes": (region("rectanglelabels", {"x": 1}), "rectanglelabels does not give a class"),
    "choices of boxes": (region("choices", {"x": 1, "choices": ["a"]}), "choices of a region does not give"),
    "spans in rows": ({**ROW, "q": [{"start": 1, "labels": ["a"]}]}, "column 'q' with a list of 1 does not"),
    "spans of doccano": ({"id": 1, "text": "a", "label": [[0, 1, "x"]]}, "a label with a place in the text"),
    "boxes of doccano": ({"id": 1, "filename": "a.png", "bbox": [{"x": 1}]}, "bbox does not give a class"),
    "entities": ({**TASK, "spans": [{}], "_view_id": "ner_manual"}, "interface ner_manual does not give"),
    "no question": (TASK, "without options and label does not give"),
    "unknown": ({"a": 1, "b": 2}, "has 'a', 'b'; expected a task with id, data and annotations"),
    "ambiguous": (BOTH, "could come from Label Studio or Label Studio rows; choose with tool="),
    "no id": ({**CHOICE, "id": None}, "expected an id of the item"),
    "no list": (region("choices", {"choices": "a"}), "expected a list of labels, not 'a'"),
    "nested": (region("choices", {"choices": [["a", "b"]]}), "expected a label"),
    "predictions by id": (
        {**CHOICE, "predictions": [4]},
        "expected a list of predictions with their results",
    ),
    "nothing": ({"id": 1, "data": {"text": "a"}, "annotations": []}, "without results"),
    "verdict": ({**TASK, "label": "a", "answer": "no"}, "expected accept, reject or ignore, not 'no'"),
    "no answer": ({**ROW, "q": ""}, "has 1 item, but not one answer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_classification_is_refused(case, tmp_path):
    record, message = REFUSED[case]
    with pytest.raises(PlenchError, match=message) as caught:
        load_dataset(write(tmp_path / "export.json", [record]))
    assert "export.json" in str(caught.value)


def test_a_record_that_differs_is_named(tmp_path):
    path = change("prodigy.jsonl", tmp_path, lambda records: records[4].pop("_input_hash"))
    with pytest.raises(PlenchError, match=r"prodigy.jsonl: record 5 .*expected a task with _input_hash"):
        read_export(path)
    with pytest.raises(PlenchError, match="unknown annotation tool 'Prodgy'; did you mean Prodigy"):
        read("prodigy.jsonl", tool="Prodgy")


def test_regions_next_to_choices_are_left_out_and_announced(tmp_path):
    def edit(tasks):
        tasks[0]["annotations"][0]["result"].append(
            {"type": "textarea", "from_name": "why", "value": {"text": ["so"]}}
        )

    export = read_export(change("label_studio.json", tmp_path, edit))
    assert len(export.answers) == 46
    assert any("textarea does not give a class" in warning for warning in export.warnings)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", (EXPORTS / "label_studio.json").read_bytes()[:-40], "a.json is not complete JSON .*again"),
        ("a.jsonl", (EXPORTS / "prodigy.jsonl").read_bytes()[:-40], "a.jsonl is not complete JSON"),
        ("a.json", "[{}]".encode("utf-16"), "a.json is not UTF-8 .*save it as UTF-8"),
        ("a.json", '[{"id": "ä"}]'.encode("latin-1"), "not UTF-8 .byte 0xe4 at 9"),
        ("a.json", b"", "not complete JSON"),
        ("a.json", b"[]", "no records"),
        ("a.json", b"[1]", "record 1: expected an object, not 1"),
        ("a.json", b"[" * 100_000, "not complete JSON"),
        ("a.json", b'[{"id": 1, "text": "\\ud800", "label": ["a"]}]', "not Unicode"),
        ("a.zip", b"PK\x03\x04broken", "a.zip cannot be read: damaged or encrypted"),
    ],
)  # fmt: skip
def test_damaged_files(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PlenchError, match=message):
        load_dataset(tmp_path / name)


def test_tables_and_folders_of_images_stay_what_they_are(tmp_path):
    table = tmp_path / "all.csv"
    table.write_text("id,text,label\n1,a,x\n2,b,y\n", encoding="utf-8")
    assert load_dataset(table).class_names == ("x", "y"), "doccano's columns alone are those of a table"
    assert load_dataset(table).answers is None
    table.write_text("id,text,label\n1,a,C\n2,b,C#\n", encoding="utf-8")
    assert load_dataset(table).class_names == ("C", "C#")
    table.write_text("id,text,label\n1,a,x\n2,b,y\n3,c,x#y\n", encoding="utf-8")
    assert_equal(load_dataset(table), load_dataset(f"{table}?tool=doccano"))
    assert load_dataset(f"{table}?truth=label").class_names == ("x", "x#y", "y"), (
        "options are those of tables"
    )
    (tmp_path / "images").mkdir()
    with pytest.raises(PlenchError, match="a folder of images needs two or more sub-folders"):
        load_dataset(tmp_path / "images")
    with pytest.raises(PlenchError, match=r"no-such.json cannot be read"):
        load_dataset(tmp_path / "no-such.json")


def test_options_of_tables_work_behind_an_export():
    path = EXPORTS / "label_studio.json"
    votes = load_dataset(f"{path}?combine=votes&min_votes=2&ignore=text&predictions=no")
    assert votes.features.names == ("length",)
    assert votes.mean_candidates < load_dataset(f"{path}?predictions=no").mean_candidates
    with pytest.raises(PlenchError, match="taxonomy= needs a table"):
        load_dataset(f"{path}?taxonomy=tree.csv")
    with pytest.raises(PlenchError, match="unknown option of a table"):
        load_dataset(f"{path}?form_nam=intent")


def test_every_tool_has_a_fixture():
    assert {tool for _, tool, *_ in FIXTURES.values()} == {*IMPORTERS}


def survive(reference: str | Path) -> None:
    """Load an export, which may be damaged: anything but our own errors fails the test."""
    with suppress(PlenchError):
        dataset = load_dataset(reference)
        assert dataset.answers is not None
        assert dataset.candidates.any(1).all()


@pytest.fixture(scope="module")
def contents(tmp_path_factory) -> dict[str, bytes]:
    """One valid file per tool and format, and a folder to damage them in."""
    folder = tmp_path_factory.mktemp("exports")
    with zipfile.ZipFile(folder / "doccano.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(EXPORTS / "doccano" / "alice.jsonl", "alice.jsonl")
    names = [name for name in FIXTURES if (EXPORTS / name).is_file()]
    return {name: (EXPORTS / name).read_bytes() for name in names} | {
        "doccano.zip": (folder / "doccano.zip").read_bytes()
    }


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_export_is_an_error_or_a_dataset(contents, tmp_path, data):
    name = data.draw(st.sampled_from(sorted(contents)))
    content = bytearray(contents[name])
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[position:]
    else:
        for place in {position, *data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3))}:
            content[place] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b'"{}[],:0#|n')))
    (tmp_path / name).write_bytes(bytes(content))
    survive(f"{tmp_path / name}?tool={FIXTURES[name][1] if name in FIXTURES else 'doccano'}")


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.text(max_size=3), st.floats()),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "choices"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_values_of_other_types_are_an_error_or_a_dataset(tmp_path, data):
    name = data.draw(st.sampled_from([name for name in FIXTURES if ".json" in name]))

    def edit(records):
        place: Any = records
        while True:  # down to some value of a record
            keys = list(range(len(place))) if isinstance(place, list) else list(place)
            key = data.draw(st.sampled_from(keys))
            below = place[key]
            if place is not records and (
                not isinstance(below, list | dict) or not below or data.draw(st.booleans())
            ):
                break
            place = below
        place[key] = data.draw(VALUES)

    path = change(name, tmp_path, edit)
    survive(path)
