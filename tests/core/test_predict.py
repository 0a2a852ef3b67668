"""`plench predict`: files and streams, names, and what it refuses."""

import csv
import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import plench
from plench import train
from plench.cli import main
from plench.cli.options import write_csv


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    random = np.random.RandomState(0)
    rows = [f"{i % 3 + random.rand():.3f},{random.rand():.3f},{'=a' if i % 3 else 'b'}|c" for i in range(120)]
    (folder / "mine.csv").write_text("x,y2,candidates\n" + "\n".join(rows))
    return folder, train("CC", str(folder / "mine.csv"), folder / "runs", steps=20).folder


def test_predictions_have_names_probabilities_and_the_next_two(run, capsys, monkeypatch):
    folder, model_folder = run
    new = folder / "new.csv"
    new.write_text("extra,id,y2,x\nq,first,0.5,1\nq,=2,0.1,\n")
    output = folder / "predictions.csv"
    assert main(["predict", str(model_folder), str(new), "-o", str(output)]) == 0
    rows = list(csv.DictReader(output.open()))
    assert list(rows[0]) == [
        "id",
        "label",
        "probability",
        "label_2",
        "probability_2",
        "label_3",
        "probability_3",
    ]
    assert [row["id"] for row in rows] == ["first", "'=2"]
    assert {row["label"] for row in rows} <= {"'=a", "b", "c"}
    model = plench.load(model_folder)
    probs = model.predict_proba(new)
    assert [float(row["probability"]) for row in rows] == pytest.approx(probs.max(1), abs=1e-6)
    assert [row["label"].lstrip("'") for row in rows] == list(model.predict(new))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(new.read_bytes())))
    capsys.readouterr()
    assert main(["predict", str(model_folder), "-"]) == 0
    assert capsys.readouterr().out == output.read_text()


def test_what_does_not_fit_is_refused_and_nothing_is_written(run, capsys):
    folder, model_folder = run
    (folder / "bad.csv").write_text("x\n1\n")
    output = folder / "none.csv"
    assert main(["predict", str(model_folder), str(folder / "bad.csv"), "-o", str(output)]) == 2
    assert "has no column 'y2'" in capsys.readouterr().err
    (folder / "bad.csv").write_text("x,y2\n1,2\n1,many\n")
    assert main(["predict", str(model_folder), str(folder / "bad.csv"), "-o", str(output)]) == 2
    assert "bad.csv: row 2, column 'y2': expected a number, not 'many'" in capsys.readouterr().err
    assert not output.exists()
    assert main(["predict", str(folder), "x.csv"]) == 2
    assert main(["predict", str(model_folder), "x.npy"]) == 2
    assert "is not a table; expected a file ending in" in capsys.readouterr().err


def test_a_model_of_arrays_takes_an_array(tmp_path, capsys):
    folder = train("CC", "Digits_FPS", tmp_path / "runs", steps=3).folder
    np.save(tmp_path / "x.npy", np.zeros((2, 64), np.float32))
    assert main(["predict", str(folder), str(tmp_path / "x.npy")]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 2
    assert all(row["label"].isdigit() for row in rows)
    (tmp_path / "x.npy").write_bytes(b"nothing")
    assert main(["predict", str(folder), str(tmp_path / "x.npy")]) == 2
    assert main(["predict", str(folder), str(Path("x.csv"))]) == 2


def test_formulas_are_escaped_and_numbers_are_not(capsys):
    write_csv("-", [("-1", "+x", 0.75)])
    assert capsys.readouterr().out == "-1,'+x,0.75\n"


@pytest.mark.parametrize("make", [os.mkdir, lambda path: path.write_bytes(b"\x93NUMPY\x01")])
def test_what_is_no_array_is_our_error(make, tmp_path, capsys):
    outcome = train("CC", "Digits_FPS", tmp_path, steps=1)
    make(tmp_path / "new.npy")
    assert main(["predict", str(outcome.folder), str(tmp_path / "new.npy")]) == 2
    assert "new.npy cannot be read" in capsys.readouterr().err


def test_predictions_never_replace_the_data(run, tmp_path, capsys):
    _, model_folder = run
    data = tmp_path / "new.csv"
    data.write_text("weight,colour\n1,red\n", encoding="utf-8")
    (tmp_path / "link.csv").symlink_to(data)
    for output in (data, tmp_path / "link.csv"):
        assert main(["predict", str(model_folder), str(data), "-o", str(output)]) == 2
        assert "is the data themselves: name another file" in capsys.readouterr().err
    assert data.read_text(encoding="utf-8") == "weight,colour\n1,red\n"
