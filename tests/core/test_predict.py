"""`plench predict`: files and streams, names, and what it refuses."""

import csv
import io
import sys

import numpy as np
import pytest

import plench
from plench.cli import main
from plench.cli.options import write_csv
from plench.data import tables


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    random = np.random.RandomState(0)
    rows = [f"{i % 3 + random.rand():.3f},{random.rand():.3f},{'=a' if i % 3 else 'b'}|c" for i in range(120)]
    (folder / "mine.csv").write_text("x,y2,candidates\n" + "\n".join(rows))
    return folder, plench.train("CC", str(folder / "mine.csv"), folder / "runs", steps=20).folder


def predict(capsys, *words: object) -> tuple[int, str, str]:
    code = main(["predict", *map(str, words)])
    return code, *capsys.readouterr()


def test_predictions_have_names_probabilities_and_the_next_two(run, capsys, monkeypatch):
    folder, model_folder = run
    new, output = folder / "new.csv", folder / "predictions.csv"
    new.write_text("extra,id,y2,x\nq,first,0.5,1\nq,=2,0.1,\n")
    assert predict(capsys, model_folder, new, "-o", output)[0] == 0
    rows = list(csv.DictReader(output.open()))
    assert ",".join(rows[0]) == "id,label,probability,label_2,probability_2,label_3,probability_3"
    assert [row["id"] for row in rows] == ["first", "'=2"]
    assert {row["label"] for row in rows} <= {"'=a", "b", "c"}
    model = plench.load(model_folder)
    probs = model.predict_proba(new)
    assert [float(row["probability"]) for row in rows] == pytest.approx(probs.max(1), abs=1e-6)
    assert [row["label"].lstrip("'") for row in rows] == list(model.predict(new))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(new.read_bytes())))
    assert predict(capsys, model_folder, "-")[:2] == (0, output.read_text())
    write_csv("-", [("-1", "+x", 0.75)])  # a formula is escaped, a number is not
    assert capsys.readouterr().out == "-1,'+x,0.75\n"


def test_what_does_not_fit_is_refused_and_nothing_is_written(run, capsys):
    folder, model_folder = run
    bad = folder / "bad.csv"
    for content, message in (
        ("x\n1\n", "has no column 'y2'"),
        ("x,y2\n1,2\n1,many\n", "bad.csv: row 2, column 'y2': expected a number, not 'many'"),
    ):
        bad.write_text(content)
        code, _, error = predict(capsys, model_folder, bad, "-o", folder / "none.csv")
        assert code == 2
        assert message in error
    assert not (folder / "none.csv").exists()
    assert predict(capsys, folder, "x.csv")[0] == 2
    code, _, error = predict(capsys, model_folder, "x.npy")
    assert "is not a table; expected a file ending in" in error


def test_a_model_of_arrays_takes_an_array(tmp_path, capsys):
    folder, new = plench.train("CC", "Digits_FPS", tmp_path / "runs", steps=3).folder, tmp_path / "new.npy"
    np.save(new, np.zeros((2, 64), np.float32))
    code, text, _ = predict(capsys, folder, new)
    assert code == 0
    assert [row["label"].isdigit() for row in csv.DictReader(io.StringIO(text))] == [True, True]
    assert predict(capsys, folder, "x.csv")[0] == 2
    new.write_bytes(b"\x93NUMPY\x01")
    (tmp_path / "folder.npy").mkdir()
    for path in (new, tmp_path / "folder.npy"):
        code, _, error = predict(capsys, folder, path)
        assert code == 2
        assert f"{path.name} cannot be read" in error


def test_a_long_table_is_read_in_blocks(run, capsys, monkeypatch):
    folder, model_folder = run
    rows = [f'"row\n{number}",{number / 10},{number % 7}' for number in range(50)]
    new, output = folder / "long.csv", folder / "long-predictions.csv"
    new.write_text("id,x,y2\n" + "\n".join(rows) + "\n\n")
    whole = predict(capsys, model_folder, new)[1]
    monkeypatch.setattr(tables, "BLOCK_ROWS", 7)
    sizes = [len(block) for block in tables.read_blocks(new)]
    assert (sum(sizes), len(sizes) > 5) == (50, True)
    assert predict(capsys, model_folder, new, "-o", output)[0] == 0
    assert output.read_text() == whole
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(new.read_bytes())))
    assert predict(capsys, model_folder, "-")[1] == whole
    new.write_text("x,y2\n" + "1,2\n" * 30 + "1,many\n")
    code, _, error = predict(capsys, model_folder, new, "-o", folder / "none.csv")
    assert (code, (folder / "none.csv").exists()) == (2, False)
    assert "long.csv: row 31, column 'y2': expected a number, not 'many'" in error
    for content, message in (("x,y2\n", "has no rows"), ("", "is empty")):
        new.write_text(content)
        assert message in predict(capsys, model_folder, new)[2]
    new.write_text("x,y2\n0.5,1\n", encoding="utf-8-sig")
    assert predict(capsys, model_folder, new)[0] == 0
