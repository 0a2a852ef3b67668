"""An audit by commands: rows to label, and labels that are read back."""

import csv
import json

import numpy as np
import pytest

import plench
from plench.cli import main
from plench.data import as_dataset
from plench.estimator.audit import count_to_halve
from plench.estimator.inputs import hide_truth
from plench.estimator.quality import estimate_share
from plench.estimator.review import resolve, store_rows

CLASSES = ["cat", "dog", "=emu"]


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    """A table of 300 pets, a model of 240 of them, and their true classes by id."""
    folder = tmp_path_factory.mktemp("pets")
    random = np.random.RandomState(0)
    truth = random.randint(3, size=320)
    lines, answer = [], {}
    for number, label in enumerate(truth.tolist()):
        other = random.randint(3)
        names = sorted({CLASSES[label if number % 20 else (label + 1) % 3], CLASSES[other]})
        lines.append(f"p{number},{3 * label + random.randn():.6f},coat {label},{'|'.join(names)}")
        answer[f"p{number}"] = CLASSES[label]
    header = "id,weight,coat,candidates"
    (folder / "pets.csv").write_text("\n".join([header, *lines[:300]]))
    (folder / "new.csv").write_text("\n".join([header, *lines[290:]]))
    (folder / "plain.csv").write_text(
        "\n".join(["id,weight,coat", *(f"q{n},1.{n},coat 0" for n in range(9))])
    )
    data = hide_truth(as_dataset(str(folder / "pets.csv")))
    reserved = np.sort(random.permutation(300)[:60])
    trained = data.take(np.setdiff1d(np.arange(300), reserved))
    model = plench.PartialLabelClassifier("PRODEN", steps=100, random_state=0).fit(trained).model_
    found = resolve(model.predict_proba(data.features), data.candidates, CLASSES)
    model.notes["rows"] = store_rows(data, model, reserved, found, range(1, 301))
    model.save(folder / "model.plench")
    predicted = {f"p{row}": model.classes[label] for row, label in enumerate(found.predicted)}
    return folder, answer, {f"p{row}" for row in reserved}, predicted


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def call(capsys, *words, code=0):
    capsys.readouterr()
    assert main(["audit", *map(str, words)]) == code, capsys.readouterr().err
    return capsys.readouterr()


def test_fifty_labels_give_the_accuracy(pets, tmp_path, capsys, monkeypatch):
    folder, answer, reserved, predicted = pets
    model, table = folder / "model.plench", tmp_path / "audit.csv"
    out = call(capsys, model, folder / "pets.csv", "-n", 50, "-o", table).out
    assert "50 random rows of 60 that the model was not trained on; 240 rows that it was trained on" in out
    rows = read(table)
    assert list(rows[0]) == ["id", "weight", "coat", "candidates", "label"]
    assert {row["id"] for row in rows} < reserved
    assert {row["label"] for row in rows} == {""}
    assert call(capsys, model, folder / "pets.csv", "-n", 20, "-o", tmp_path / "few.csv")
    assert read(tmp_path / "few.csv") == rows[:20], "more rows extend fewer"
    assert "no row has a label yet" in call(capsys, model, "--labels", table, code=2).err

    for row in rows[:40]:
        row["label"] = answer[row["id"]]
    write(table, rows)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = json.loads(call(capsys, model, "--labels", table, "--json").out)
    right = sum(answer[row["id"]] == predicted[row["id"]] for row in rows[:40])
    missed = sum(answer[row["id"]] not in row["candidates"].lstrip("'").split("|") for row in rows[:40])
    assert found["accuracy"] == vars(estimate_share(right, 40))
    assert found["noise_rate"] == vars(estimate_share(missed, 40))
    assert (found["n_empty"], found["n_left"], found["is_random"]) == (10, 20, True)
    assert found["n_more"] == count_to_halve(right, 40)
    text = call(capsys, model, "--labels", table).out
    assert "more labels would halve the interval" in text
    assert "10 rows without a label left out" in text

    better = tmp_path / "calibrated.plench"
    text = call(capsys, model, "--labels", table, "-o", better).out
    assert f"wrote {better}: " in text
    with_data = tmp_path / "with_data.plench"
    call(capsys, model, folder / "pets.csv", "--labels", table, "-o", with_data)
    before, after = (plench.PartialLabelClassifier.load(path) for path in (model, better))
    known = {row["id"]: CLASSES.index(answer[row["id"]]) for row in rows[:40]}
    data = hide_truth(as_dataset(str(folder / "pets.csv")))
    kept = np.array([name in known for name in data.items])
    labels = [known[name] for name in data.items if name in known]
    before.calibrate(data.features[kept], y=np.array(CLASSES)[labels])
    assert (after.calibration_.source, after.calibration_.n) == ("audit", 40)
    assert after.calibration_.temperature == pytest.approx(before.calibration_.temperature, rel=1e-3)
    assert after.calibration_.scores["truth"] == pytest.approx(before.calibration_.scores["truth"], abs=1e-5)
    sets = after.predict_set(data.features, 0.8)
    assert sets.mean() < 1
    assert np.array_equal(sets, before.predict_set(data.features, 0.8, promise="truth"))
    assert np.array_equal(sets, plench.PartialLabelClassifier.load(with_data).predict_set(data.features, 0.8))
    write(table, rows[:29])
    error = call(capsys, model, "--labels", table, "-o", tmp_path / "few.plench", code=2).err
    assert "at least 30 labels" in error
    write(table, rows[3:40])
    assert "draws first" in call(capsys, model, "--labels", table, "-o", tmp_path / "few.plench", code=2).err
    assert not (tmp_path / "few.plench").exists()
    assert "by labels" in call(capsys, model, "-o", tmp_path / "few.plench", code=2).err
    write(table, rows)

    more = tmp_path / "more.csv"
    call(capsys, model, folder / "pets.csv", "-n", 60, "--labels", table, "-o", more)
    assert [row["label"].lstrip("'") for row in read(more)[:40]] == [row["label"] for row in rows[:40]]
    again = json.loads(call(capsys, model, "--labels", table, more, "--json").out)
    assert again["accuracy"] == found["accuracy"]


def test_what_does_not_fit_is_refused(pets, tmp_path, capsys):
    folder, answer, reserved, _ = pets
    model, table = folder / "model.plench", tmp_path / "audit.csv"
    call(capsys, model, folder / "pets.csv", "-n", 10, "-o", table)
    rows = read(table)
    rows[3]["label"] = "dgo"
    write(table, rows)
    error = call(capsys, model, "--labels", table, code=2).err
    assert "row 4" in error
    assert "did you mean dog?" in error
    rows[3]["label"] = "dog"
    trained = next(name for name in answer if name not in reserved)
    write(table, [*rows, {**rows[0], "id": trained, "label": "cat"}])
    assert "trained on it" in call(capsys, model, "--labels", table, code=2).err
    error = call(capsys, model, folder / "pets.csv", "--labels", table, code=2).err
    assert f"the model was trained on '{trained}'" in error
    write(table, [{**rows[0], "candidates": "cat|dog|other", "label": "cat"}, *rows[1:]])
    assert "of other data, or was changed" in call(capsys, model, "--labels", table, code=2).err
    write(table, [*rows, {**rows[3], "label": "cat"}])
    assert "has the labels dog and cat" in call(capsys, model, "--labels", table, code=2).err
    write(table, rows[3:])
    assert "not the rows that `plench audit` draws first" in call(capsys, model, "--labels", table).out
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert "no column id" in call(capsys, model, "--labels", tmp_path / "other.csv", code=2).err
    for words in ((model,), (model, "-o", table), (model, folder / "pets.csv", "-n", 0, "-o", table)):
        call(capsys, *words, code=2)
    before = (folder / "pets.csv").read_bytes()
    assert (
        "name another file" in call(capsys, model, folder / "pets.csv", "-o", folder / "pets.csv", code=2).err
    )
    assert (folder / "pets.csv").read_bytes() == before


def test_rows_of_another_file_are_audited_with_that_file(pets, tmp_path, capsys):
    folder, answer, reserved, _ = pets
    model, table = folder / "model.plench", tmp_path / "audit.csv"
    out = call(capsys, model, folder / "new.csv", "-o", table).out
    rows = read(table)
    old = {f"p{n}" for n in range(290, 300)} - reserved
    assert {row["id"] for row in rows} == {f"p{n}" for n in range(290, 320)} - old
    assert f"{len(old)} rows that it was trained on" in out
    for row in rows:
        row["label"] = answer[row["id"]]
    write(table, rows)
    assert "other data" in call(capsys, model, "--labels", table, code=2).err
    found = json.loads(call(capsys, model, folder / "new.csv", "--labels", table, "--json").out)
    assert found["accuracy"]["n"] == len(rows)
    call(capsys, model, folder / "plain.csv", "-o", table)
    rows = [{**row, "label": "cat"} for row in read(table)]
    assert [row["candidates"] for row in rows] == [""] * 9
    write(table, rows)
    found = json.loads(call(capsys, model, folder / "plain.csv", "--labels", table, "--json").out)
    assert found["noise_rate"] is None


def test_a_model_that_kept_no_rows_apart_says_so(pets, tmp_path, capsys):
    folder, _, reserved, _ = pets
    model = plench.load(folder / "model.plench")
    del model.notes["rows"]["audit"]["logits"]  # as in files of an earlier version
    model.save(tmp_path / "old.plench")
    (tmp_path / "one.csv").write_text(f"id,label\n{min(reserved)},cat\n")
    without = (tmp_path / "old.plench", "--labels", tmp_path / "one.csv")
    assert "name the data that it was fitted to" in call(capsys, *without, code=2).err
    assert "on 1 labelled row" in call(capsys, without[0], folder / "pets.csv", *without[1:]).out
    del model.notes["rows"]
    model.save(tmp_path / "m.plench")
    words = (tmp_path / "m.plench", folder / "pets.csv", "-o", tmp_path / "a.csv")
    assert "does not say which rows" in call(capsys, *words, code=2).err
    data = hide_truth(as_dataset(str(folder / "pets.csv")))
    found = resolve(model.predict_proba(data.features), data.candidates, CLASSES)
    model.notes["rows"] = store_rows(data, model, np.arange(0), found, range(1, 301))
    model.save(tmp_path / "m.plench")
    assert "all 300 rows were trained on" in call(capsys, *words, code=2).err
    (tmp_path / "labels.csv").write_text("id,label\np1,cat\n")
    assert "trained on all rows" in call(capsys, words[0], "--labels", tmp_path / "labels.csv", code=2).err


def test_a_reserved_row_is_audited_once_with_the_set_that_the_model_knows(pets, tmp_path, capsys):
    """Sets of the file may differ from those of the fit, as where annotators were dropped."""
    folder, answer, reserved, _ = pets
    model, table = folder / "model.plench", tmp_path / "audit.csv"
    header, *lines = (folder / "pets.csv").read_text().splitlines()
    cells = [line.split(",") for line in lines]
    changed = [",".join([*row[:3], "cat|dog|=emu"]) for row in cells]
    copies = [",".join([f"copy of {row[0]}", *row[1:]]) for row in cells]
    (tmp_path / "changed.csv").write_text("\n".join([header, *changed, *copies]))
    call(capsys, model, tmp_path / "changed.csv", "-n", 400, "-o", table)
    rows = read(table)
    assert {row["id"] for row in rows} == reserved
    known = {row[0]: row[3] for row in cells}
    assert all(row["candidates"].lstrip("'").split("|") == known[row["id"]].split("|") for row in rows)
    write(table, [{**row, "label": answer[row["id"]]} for row in rows])
    alone, named = (
        json.loads(call(capsys, model, *data, "--labels", table, "--json").out)
        for data in ((), (tmp_path / "changed.csv",))
    )
    assert alone == named
    assert alone["noise_rate"]["n"] == 60


def test_the_number_of_labels_that_halve_an_interval():
    n = 50 + count_to_halve(40, 50)

    def width(share):
        return share.high - share.low

    assert width(estimate_share(round(0.8 * n), n)) <= width(estimate_share(40, 50)) / 2
    assert width(estimate_share(round(0.8 * (n - 5)), n - 5)) > width(estimate_share(40, 50)) / 2
