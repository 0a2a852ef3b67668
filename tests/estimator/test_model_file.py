"""Models in one file: the same as the run's, and nothing in a file does harm."""

import hashlib
import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch

import plench
from plench.algorithms.registry import ALGORITHMS
from plench.cli import main
from plench.data import make_dataset, make_table_dataset
from plench.errors import DataError, UsageError
from plench.model_file import StateDecoder, StateEncoder
from plench.training import one_file
from plench.training.inputs import TabularInputs

N, D, K = 60, 5, 4


def make_arrays(kind: str = "candidates"):
    random = np.random.RandomState(0)
    labels = random.randint(K, size=N)
    features = random.randn(N, D).astype(np.float32) + np.eye(K, D)[labels]
    if kind == "answers":
        answers = np.where(random.rand(N, 3) < 0.8, labels[:, None], random.randint(K, size=(N, 3)))
        return make_dataset(features, answers=answers, class_names=list("abcd"))
    candidates = (random.rand(N, K) < 0.3) | (np.arange(K) == labels[:, None])
    return make_dataset(features, candidates)


def train(algorithm, folder, data=None, **settings):
    if ALGORITHMS.is_own(algorithm) and ALGORITHMS.find(algorithm).member.shared:
        settings = {"steps": 3, "checkpoint_freq": 2, **settings}
    data = make_arrays() if data is None else data
    outcome = plench.train(algorithm, data, folder, progress=False, device="cpu", **settings)
    assert outcome.status == "done", outcome.message
    return outcome.folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model file and the run it is from."""
    folder = tmp_path_factory.mktemp("model")
    run = train("PRODEN", folder)
    plench.load(run).save(folder / "m.plench")
    return run, folder / "m.plench"


def rewrite(path, target, **changes):
    """Write a model file with other entries, whose hash and checksums are right."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist() if name != "sha256"}
    for name, change in changes.items():
        name = name.replace("__", ".")
        entries[name] = change(entries.get(name, b""))
    digest = hashlib.sha256()
    with zipfile.ZipFile(target, "w") as archive:
        for name, part in entries.items():
            digest.update(f"{name}\0{len(part)}\0".encode() + part)
            archive.writestr(name, part)
        archive.writestr("sha256", digest.hexdigest())
    return target


def change_head(change):
    def apply(content):
        head = json.loads(content)
        change(head)
        return json.dumps(head).encode()

    return apply


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS.own))
def test_a_file_predicts_what_the_run_does(algorithm, tmp_path, monkeypatch):
    """With room for a few training examples only, however many there were."""
    monkeypatch.setattr(one_file, "MOST_CELLS", 7 * K)
    answers = ALGORITHMS.find(algorithm).member.card.answers
    data = make_arrays("answers" if answers else "candidates")
    given = plench.load(train(algorithm, tmp_path, data))
    given.save(tmp_path / "m.plench")
    read = plench.load(tmp_path / "m.plench")
    assert type(read) is type(given)
    assert np.array_equal(read.predict_logits(data.features), given.predict_logits(data.features))
    assert np.array_equal(read.predict(data.features), given.predict(data.features))
    read.save(tmp_path / "again.plench")
    assert (tmp_path / "again.plench").read_bytes() == (tmp_path / "m.plench").read_bytes()


def test_a_table_keeps_its_columns_and_names(tmp_path):
    columns = {
        "w": [0.1, None, 2.0, 3.0] * 15,
        "colour": ["red", "blue"] * 30,
        "candidates": ["a|b", "b|c"] * 30,
    }
    given = plench.load(train("CC", tmp_path, make_table_dataset(columns)))
    given.save(tmp_path / "m.plench")
    new = {"colour": ["blue", "green"], "w": [1.0, float("nan")]}
    read = plench.load(tmp_path / "m.plench")
    assert read.class_names == ("a", "b", "c")
    assert np.array_equal(read.predict_proba(new), given.predict_proba(new))
    (tmp_path / "new.csv").write_text("colour,w\nblue,1\ngreen,\n")
    assert (
        main(
            ["predict", str(tmp_path / "m.plench"), str(tmp_path / "new.csv"), "-o", str(tmp_path / "p.csv")]
        )
        == 0
    )
    rows = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == list(given.predict(new))


def test_info_tells_how_it_was_made_without_torch(saved, capsys):
    assert main(["info", str(saved[1])]) == 0
    shown = capsys.readouterr().out
    assert "PRODEN, after 3 updates" in shown
    assert "49 examples" in shown
    assert "torch 2" in shown
    assert main(["info", str(saved[1]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["config"]["algorithm"] == "PRODEN"
    code = (
        "import sys; from plench.cli import main; main(['info', sys.argv[1]]);"
        "sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code, str(saved[1])], capture_output=True, check=False
        ).returncode
        == 0
    )


THIRD_PARTY = """
from pathlib import Path
from plench.algorithms import LossAlgorithm
Path({mark!r}).touch()
class Mean(LossAlgorithm):
    def loss(self, logits, batch):
        return -(batch.candidates * logits.log_softmax(-1)).sum(-1).mean()
"""


def test_third_parties_code_runs_only_if_asked(tmp_path, capsys):
    mark, source = tmp_path / "ran", tmp_path / "mine.py"
    source.write_text(THIRD_PARTY.format(mark=str(mark)))
    given = plench.load(train(f"{source}:Mean", tmp_path, steps=2, checkpoint_freq=1))
    path = tmp_path / "m.plench"
    given.save(path)
    source.unlink()
    mark.unlink()
    with pytest.raises(DataError, match=r"third party's algorithm Mean@.* never run unasked.*run_code=True"):
        plench.load(path)
    assert main(["info", str(path), "--code"]) == 0
    assert "class Mean(LossAlgorithm)" in capsys.readouterr().out
    assert not mark.exists()
    features = make_arrays().features
    read = plench.load(path, run_code=True)
    assert mark.exists()
    assert np.array_equal(read.predict_logits(features), given.predict_logits(features))


@pytest.mark.parametrize("spec", ["evil.py:Mean", "evil:Mean", "Mean@12345678"])
def test_a_file_names_no_code_to_run(saved, tmp_path, monkeypatch, spec):
    """Neither an algorithm nor a network given by path or module is looked for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(THIRD_PARTY.format(mark="ran"))

    def rename(head):
        head["run"]["config"]["algorithm"] = head["run"]["algorithm_spec"] = spec

    def change_network(head):
        head["run"]["config"]["hparams"]["model"] = spec

    for number, change in enumerate((rename, change_network)):
        path = rewrite(saved[1], tmp_path / f"{number}.plench", model__json=change_head(change))
        with pytest.raises(DataError, match="third party"):
            plench.load(path)
    assert not (tmp_path / "ran").exists()


def set_in(*keys, value):
    def change(head):
        place = head
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change_head(change)


FORGED = {
    "another format": ("model__json", set_in("format", value="x"), "no model of plench"),
    "a later version": ("model__json", set_in("version", value=2), "version 2"),
    "no run": ("model__json", set_in("run", value=None), "how it was made"),
    "huge inputs": ("model__json", set_in("run", "dataset", "input_shape", value=[60, 2**30]), "not as wide"),
    "huge classes": ("model__json", set_in("run", "dataset", "n_classes", value=2**24), "more classes"),
    "many classes": ("model__json", set_in("run", "dataset", "n_classes", value=2**22), "would take"),
    "few names": ("model__json", set_in("run", "dataset", "class_names", value=["a"]), "different names"),
    "odd classes": ("model__json", set_in("notes", value={"classes": [1, "a", 2, 3]}), "classes are broken"),
    "a function for a generator": (
        "state__json",
        set_in(
            "algorithm",
            "attributes",
            "drawn",
            value={
                "kind": "numpy generator",
                "value": {"kind": "plain", "value": {"bit_generator": "seed", "state": {}}},
            },
        ),
        "unknown bit generator 'seed'",
    ),
    "deep state": ("state__json", lambda c: b"[" * 5000 + b"]" * 5000, "nested|cannot be read"),
    "no state": ("state__json", lambda c: b"{}", "do not fit"),
    "an array twice": (
        "state__json",
        lambda c: c.replace(b'"number":1,"type"', b'"number":0,"type"'),
        "used twice",
    ),
    "another type": (
        "state__json",
        lambda c: c.replace(b'"type":"float32"', b'"type":"float64"', 1),
        "said to be",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_files_are_refused(saved, tmp_path, name):
    entry, change, message = FORGED[name]
    path = rewrite(saved[1], tmp_path / "m.plench", **{entry: change})
    with pytest.raises(DataError, match=message):
        plench.load(path)


def test_forged_forests_are_refused(tmp_path):
    data = make_arrays()
    model = plench.load(train("ET_AVG", tmp_path, data, hparams={"n_estimators": 2}))
    expected, fitted = model.predict_logits(data.features), dict(model.algorithm.fitted)

    def forge(name, place, value):
        part = fitted[name].copy()
        part[place] = value
        return {**fitted, name: part}

    for forged, message in (
        (forge("value_classes", 0, 2**30), "indices"),
        (forge("value_starts", -1, 2**20), "index pointer"),
        (forge("left", 0, 0), "a child that does not follow it"),
        (forge("right", 0, 2**30), "a child that does not follow it"),
        (forge("roots", 0, -1), "no root"),
        (forge("feature", 0, D), f"feature {D} of {D}"),
        ({**fitted, "threshold": fitted["threshold"][:-1]}, "different lengths"),
    ):
        model.algorithm.fitted = forged
        model.save(tmp_path / "m.plench")
        with pytest.raises(DataError, match=message):
            plench.load(tmp_path / "m.plench").predict(data.features)
    model.algorithm.fitted = fitted
    assert np.array_equal(model.predict_logits(data.features), expected)


def test_changed_packed_and_strange_entries_are_refused(saved, tmp_path):
    with zipfile.ZipFile(saved[1]) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}

    def write(changes, method=zipfile.ZIP_STORED):
        with zipfile.ZipFile(tmp_path / "m.plench", "w", method) as archive:
            for name, part in {**entries, **changes}.items():
                archive.writestr(name, part)
        return tmp_path / "m.plench"

    first = entries["arrays/0.npy"]
    for changes, method, message in (
        ({"arrays/0.npy": first[:-1] + bytes([first[-1] ^ 1])}, zipfile.ZIP_STORED, "hash"),
        ({}, zipfile.ZIP_DEFLATED, "packed"),
        ({"../x": b""}, zipfile.ZIP_STORED, "which no model has"),
    ):
        with pytest.raises(DataError, match=message):
            plench.load(write(changes, method))
    for path in (tmp_path / "absent.plench", tmp_path):
        with pytest.raises(DataError):
            plench.load(path)
    with pytest.raises(UsageError, match="one model"):
        plench.load(saved[1], criterion="CR")
    assert main(["predict", str(tmp_path / "absent.plench"), "x.npy"]) == 2


def test_what_could_not_be_read_is_not_written(saved, tmp_path):
    model = plench.load(saved[1])
    model.notes = {"long": "x" * 2**24}
    with pytest.raises(DataError, match=r"cannot be kept as a file: its entry model\.json has"):
        model.save(tmp_path / "m.plench")
    assert not list(tmp_path.iterdir())


def test_every_value_comes_back():
    values = {
        "a": [1, 2.5, float("inf"), None, True, "x"],
        "b": {3: b"\0\1", "$": (1, [2])},
        "c": {"plain": {"deep": -0.0}},
    }
    encoder = StateEncoder()
    text = json.dumps(encoder.encode(values))
    assert StateDecoder({}, lambda array, kind: array).decode(json.loads(text)) == values
    with pytest.raises(DataError, match="has no form"):
        encoder.encode(io.BytesIO())


@pytest.mark.parametrize("place", ["mean", "std"])
@pytest.mark.parametrize("value", [torch.zeros(0), torch.tensor(1.0), torch.zeros(1, 64), torch.ones(64) > 0])
def test_inputs_that_do_not_fit_are_refused(place, value):
    state = {**TabularInputs(np.zeros(64), np.ones(64)).state(), place: value}
    with pytest.raises(ValueError, match="not two rows of as many numbers"):
        TabularInputs.from_state(state)
