"""From a CSV file with three annotators to predictions: by commands and in Python, with equal outcome."""

import csv
import json
import os

import numpy as np
import pytest

import plench
from plench.cli import main
from plench.data import as_dataset
from plench.estimator.inputs import hide_truth
from plench.estimator.review import review_fit
from plench.estimator.search import TrainingData
from tests.conftest import ROOT

GENRES = ["jazz", "pop", "rock"]


@pytest.fixture
def songs(tmp_path, monkeypatch):
    """A file of 150 songs that three annotators have named, one of whom guesses, and a file of new ones."""
    monkeypatch.chdir(tmp_path)
    random = np.random.RandomState(0)
    rows = ["item,tempo,mood,annotator_ann,annotator_bob,annotator_cyd"]
    for number in range(150):
        truth = random.randint(3)
        answers = [
            GENRES[truth if random.rand() < skill else random.randint(3)] for skill in (0.95, 0.9, 0.1)
        ]
        if number % 10 == 0:
            answers[1] = ""
        mood = random.choice(["", "calm", "wild"])
        rows.append(f"song{number},{2 * truth + random.randn() * 0.3:.3f},{mood},{','.join(answers)}")
    (tmp_path / "songs.csv").write_text("\n".join(rows))
    (tmp_path / "new.csv").write_text("mood,id,tempo\ncalm,a,0.1\nwild,b,1.9\n,c,4.2\n")
    return tmp_path


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_command_line_and_python_agree(songs, cli):
    report, shown = cli("fit", "songs.csv", "-o", "model.plench", "--n_runs", "4", "--steps", "60")
    for text in (
        "chosen among 4",
        "(CR): ",
        "(AA): ",
        "what to relabel (",
        "labels most confused",
        "  cyd: skill ",
        "wrote model",
    ):
        assert text in report
    assert "4/4 " in shown
    assert "s left" in shown
    model = plench.PartialLabelClassifier("auto", n_runs=4, steps=60, reserve=0.2, random_state=0).fit(
        "songs.csv"
    )
    assert model.classes_.tolist() == GENRES
    loaded = plench.load("model.plench")

    assert main(["predict", "model.plench", "new.csv", "-o", "predictions.csv"]) == 0
    rows = read(songs / "predictions.csv")
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert [row["label"] for row in rows] == GENRES
    new = {"tempo": [0.1, 1.9, 4.2], "mood": ["calm", "wild", None]}
    assert np.array_equal(loaded.predict_proba("new.csv"), model.predict_proba(new))
    assert model.predict(new).tolist() == loaded.predict("new.csv").tolist() == GENRES
    assert [float(row["probability"]) for row in rows] == pytest.approx(
        model.predict_proba(new).max(1), abs=1e-6
    )

    words = "resolve model.plench songs.csv -o resolved.csv --annotators annotators.csv"
    assert "annotator cyd" in cli(*words.split()).err
    rows = read(songs / "resolved.csv")
    found = review_fit(TrainingData(hide_truth(as_dataset("songs.csv"))), loaded, np.arange(0))
    assert [row["item"] for row in rows] == [f"song{number}" for number in range(150)]
    assert [row["label"] for row in rows] == [GENRES[label] for label in found.label]
    assert [float(row["probability"]) for row in rows] == pytest.approx(found.probability, abs=2e-3)
    agreement = {row["annotator"]: float(row["agreement"]) for row in read(songs / "annotators.csv")}
    assert agreement["ann"] > 0.9 > 0.6 > agreement["cyd"]
    assert "jazz, pop, rock" in cli("info", "model.plench").out


def test_a_set_that_misses_the_truth_is_told(songs):
    lines = (songs / "songs.csv").read_text().splitlines()
    lines += [f"wrong{number},{4.0 + number / 100},calm,jazz,jazz,jazz" for number in range(3)]
    (songs / "more.csv").write_text("\n".join(lines))
    sure = ["--hparams", '{"model": "MLP"}']  # the other network's temperature leaves the three rows in doubt
    assert main(["fit", "songs.csv", "-o", "model.plench", "-a", "PRODEN", *sure, "--steps", "300"]) == 0
    assert main(["resolve", "model.plench", "more.csv", "-o", "resolved.csv"]) == 0
    rows = read(songs / "resolved.csv")
    assert [row["probably_misses_truth"] for row in rows[-3:]] == ["yes"] * 3
    assert {row["predicted"] for row in rows[-3:]} == {"rock"}
    assert sum(row["probably_misses_truth"] == "yes" for row in rows[:-3]) < 15


def test_an_answer_that_the_model_cannot_hold_is_no_agreement(songs):
    """One annotator's answer names a class that the model lacks."""
    assert main(["fit", "songs.csv", "-o", "m.plench", "-a", "CLPL"]) == 0
    rows = ["tempo,mood,annotator_ann,annotator_bob", "0.0,calm,jazz,folk", "0.0,calm,jazz,jazz"]
    (songs / "other.csv").write_text("\n".join(rows))
    assert main(["resolve", "m.plench", "other.csv", "-o", "r.csv", "--annotators", "a.csv"]) == 0
    found = {row["annotator"]: (row["answers"], float(row["agreement"])) for row in read(songs / "a.csv")}
    assert found == {"ann": ("2", 1.0), "bob": ("2", 0.5)}


def test_bad_calls_end_with_2_and_write_nothing(songs, cli):
    assert main(["fit", "absent.csv", "-o", "m.plench"]) == 2
    assert main(["fit", "songs.csv", "-o", "no/folder/m.plench"]) == 2
    assert main(["fit", "songs.csv", "-o", "m.plench", "--criterion", "OA"]) == 2
    assert main(["fit", "new.csv", "-o", "m.plench"]) == 2
    assert not (songs / "m.plench").exists()
    assert main(["fit", "songs.csv", "-o", "m.plench", "-a", "CLPL"]) == 0
    assert main(["resolve", "m.plench", "new.csv"]) == 2
    (songs / "other.csv").write_text("tempo,mood,candidates\n1,calm,blues|folk\n")
    assert "no candidate that the model knows" in cli("resolve", "m.plench", "other.csv", code=2).err


def test_what_is_read_is_not_overwritten(songs, cli):
    assert main(["fit", "songs.csv", "-o", "m.plench", "-a", "CLPL"]) == 0
    (songs / "answers.csv").write_text("item,annotator,label\n")
    (songs / "link.csv").symlink_to("songs.csv")
    (songs / "new-link.csv").symlink_to("new.csv")
    before = {path: path.read_bytes() for path in songs.iterdir()}
    for words, message in {
        "fit songs.csv -o songs.csv": "the data themselves",
        "fit songs.csv?ignore=mood -o ./songs.csv": "the data themselves",
        "fit songs.csv?answers=answers.csv -o answers.csv": "the data themselves",
        "resolve m.plench songs.csv -o link.csv": "the data themselves",
        "resolve m.plench songs.csv -o m.plench": "the model itself",
        "resolve m.plench songs.csv --annotators songs.csv": "the data themselves",
        "resolve m.plench songs.csv -o a.csv --annotators a.csv": "what --output writes",
        "predict m.plench new.csv -o m.plench": "the model itself",
        "predict m.plench new.csv -o new.csv": "the data themselves: name another file",
        "predict m.plench new.csv -o new-link.csv": "the data themselves: name another file",
    }.items():
        assert message in cli(*words.split(), code=2).err
    assert {path: path.read_bytes() for path in songs.iterdir()} == before


def test_a_report_is_of_drawn_sets_and_names_rows_of_the_file(songs, cli):
    """Generated sets hold more than the truth; rows of the test set count, as in `plench resolve`."""
    random = np.random.RandomState(0)
    labels = random.randint(3, size=90)
    rows = [f"{label + random.randn():.3f},{GENRES[label]}" for label in labels]
    (songs / "truth.csv").write_text("\n".join(["x,truth", *rows]))
    report = json.loads(cli("fit", "truth.csv", "-o", "t.plench", "-a", "CLPL", "--json").out)
    before = np.bincount(labels, minlength=3)
    assert report["review"]["before"] != pytest.approx(before), "sets are drawn"

    lines = (songs / "songs.csv").read_text().splitlines()
    for row in (60, 80, 100):  # slow songs that only the annotator who guesses has named
        lines[row] = f"song{row - 1},0.0,calm,,,rock"
    parts = ["split", *["test"] * 40, *["train"] * 110]
    (songs / "parts.csv").write_text("\n".join(f"{a},{b}" for a, b in zip(lines, parts, strict=True)))
    report = json.loads(
        cli("fit", "parts.csv", "-o", "p.plench", "-a", "PRODEN", "--steps", "300", "--json").out
    )
    assert main(["resolve", "p.plench", "parts.csv", "-o", "resolved.csv"]) == 0
    resolved = {int(row["row"]): row for row in read(songs / "resolved.csv")}
    missing = [each for each in report["review"]["relabel"] if each["kind"] == "misses"]
    assert {"song59", "song79", "song99"} <= {each["item"] for each in missing}
    for each in missing:
        row = resolved[each["row"]]
        assert row["item"] == each["item"]
        assert float(row["outside"]) > 0.5
        assert f"model says {row['predicted']} " in each["reason"]
        assert row["probably_misses_truth"] == "yes"


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    """Its cells in order, as a reader would run them."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "examples" / "estimator.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 6
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")
    names: dict = {"__name__": "__main__"}
    for number, source in enumerate(cells):
        exec(compile(source, f"cell {number}", "exec"), names)
    shown = capsys.readouterr().out
    assert "accuracy" in shown
    assert (names["model"].predict(names["X_new"]) == names["loaded"].predict(names["X_new"])).all()
    assert os.path.exists("model.plench")


def test_dropping_an_annotator_is_compared_with_keeping_them(songs, cli):
    """The annotator who guesses is flagged; without them the sets are smaller, and the model no worse."""
    random = np.random.RandomState(1)
    rows = ["item,tempo,annotator_ann,annotator_cyd"]
    for number in range(340):
        truth = random.randint(3)
        rows.append(
            f"s{number},{2 * truth + random.randn() * 0.3:.4f},{GENRES[truth]},{GENRES[random.randint(3)]}"
        )
    (songs / "two.csv").write_text("\n".join(rows))
    words = ["fit", "two.csv", "-o", "m.plench", "-a", "LR_EM", "--json", "--drop-annotators"]
    report = json.loads(cli(*words, "cyd").out)
    assert report["mean_candidates"] == 1
    dropped = report["dropped"]
    assert dropped["annotators"] == ["cyd"]
    assert dropped["difference"]["n"] == len(report["reserved"]) == 68
    assert dropped["difference"]["value"] == pytest.approx(
        dropped["without"]["value"] - dropped["with"]["value"], abs=1e-9
    )
    assert dropped["without"]["value"] > 0.9
    assert "reserved rows with the sets of the other annotators" in dropped["text"]
    assert "unknown annotator 'cid'; did you mean cyd?" in cli(*words, "cid", code=2).err
    assert "  cyd: skill" in cli("fit", "two.csv", "-o", "m.plench", "-a", "LR_EM").out
