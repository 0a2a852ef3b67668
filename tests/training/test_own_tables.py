"""Runs on tables: the model's file holds the encoding, names come back, columns may be in any order."""

from pathlib import Path

import numpy as np
import pytest

import plench
from plench import train
from plench.errors import PlenchError
from plench.runs.folder import RunStore


def write_pets(path: Path, n: int = 240, gaps: bool = True) -> Path:
    random = np.random.RandomState(0)
    lines = ["weight,colour,tame,candidates,truth"]
    for number in range(n):
        label = random.randint(3)
        weight = f"{label + random.randn() / 4:.3f}" if number % 11 or not gaps else ""
        colour = ["red", "green", "blue"][label if random.rand() < 0.8 else random.randint(3)]
        other = (label + random.randint(1, 3)) % 3
        names = ["cat", "dog", "emu"]
        lines.append(f"{weight},{colour},{random.rand() < 0.5},{names[label]}|{names[other]},{names[label]}")
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pets")
    path = write_pets(folder / "pets.csv")
    return path, train("PRODEN", str(path), folder / "runs", steps=60, checkpoint_freq=30)


def test_a_model_of_a_table_refuses_an_array(outcome):
    model = plench.load(outcome[1].folder)
    with pytest.raises(PlenchError, match="was trained on a table with the columns weight, colour, tame"):
        model.predict(np.zeros((2, 3)))


def test_run_json_has_class_names_only_where_there_are_any(outcome, tmp_path):
    described = RunStore(outcome[1].folder).read_run()["dataset"]
    assert described["class_names"] == ["cat", "dog", "emu"]
    assert any("'weight' has" in notice for notice in RunStore(outcome[1].folder).read_run()["notices"])
    plain = train("CC", "Digits_FPS", tmp_path, steps=2)
    assert "class_names" not in RunStore(plain.folder).read_run()["dataset"]


def test_complete_numbers_train_as_an_array_of_them(tmp_path):
    random = np.random.RandomState(1)
    features = random.randn(100, 3).astype(np.float32)
    candidates = random.rand(100, 3) < 0.7
    candidates[:, 0] = True
    np.savez(tmp_path / "array.npz", features=features, candidates=candidates)
    header = "a,b,c,candidate_0,candidate_1,candidate_2\n"
    rows = [
        ",".join([*(repr(float(x)) for x in row), *map(str, sets.astype(int))])
        for row, sets in zip(features, candidates, strict=True)
    ]
    (tmp_path / "table.csv").write_text(header + "\n".join(rows))
    runs = [
        train("CC", str(tmp_path / name), tmp_path / "runs", steps=20) for name in ("array.npz", "table.csv")
    ]
    first, second = (plench.load(run.folder) for run in runs)
    frame = dict(zip("abc", features.T, strict=True))
    assert np.array_equal(first.predict_logits(features), second.predict_logits(frame))


def test_parts_may_be_left_out(tmp_path):
    path = write_pets(tmp_path / "pets.csv", 60)
    run = train("CC", str(path), tmp_path / "runs", steps=4, holdout_fraction=0.0, tabular_test_fraction=0.0)
    assert run.status == "done"
    described = RunStore(run.folder).read_run()["dataset"]
    assert (described["n_train"], described["n_validation"], described["n_test"]) == (60, 0, 0)
    assert len(plench.load(run.folder).predict(path)) == 60
