"""Models in one file: the same as the run's, and nothing in a file is executed."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import plench
from plench.algorithms.registry import ALGORITHMS
from plench.cli import main
from plench.data import make_dataset, make_table_dataset
from plench.errors import DataError, UsageError
from plench.model_file import ModelFile, pack, read_model_file

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


def rewrite(path, target, change):
    """Write a model file with another description, whose sha256 is right."""
    content = read_model_file(path)
    change(content.head, content.state)
    target.write_bytes(pack(content))
    return target


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS.own))
def test_a_file_predicts_what_the_run_does(algorithm, tmp_path, monkeypatch):
    """With room for a few training examples only, however many there were."""
    monkeypatch.setattr("plench.training.model.MAX_CELLS", 7 * K)
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
    files = [str(tmp_path / name) for name in ("m.plench", "new.csv", "p.csv")]
    assert main(["predict", *files[:2], "-o", files[2]]) == 0
    rows = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == list(given.predict(new))


def test_info_tells_how_it_was_made_without_torch(saved, cli):
    shown = cli("info", saved[1]).out
    assert "PRODEN, after 3 updates" in shown
    assert "49 examples" in shown
    assert "torch 2" in shown
    assert json.loads(cli("info", saved[1], "--json").out)["run"]["config"]["algorithm"] == "PRODEN"
    code = (
        "import sys; from plench.cli import main; main(['info', sys.argv[1]]);"
        "sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(saved[1])]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


THIRD_PARTY = """
from pathlib import Path
from plench.algorithms import LossAlgorithm
Path({mark!r}).touch()
class Mean(LossAlgorithm):
    def loss(self, logits, batch):
        return -(batch.candidates * logits.log_softmax(-1)).sum(-1).mean()
"""


def test_third_party_code_runs_only_if_asked(tmp_path, cli):
    mark, source = tmp_path / "ran", tmp_path / "mine.py"
    source.write_text(THIRD_PARTY.format(mark=str(mark)))
    given = plench.load(train(f"{source}:Mean", tmp_path, steps=2, checkpoint_freq=1))
    path = tmp_path / "m.plench"
    given.save(path)
    source.unlink()
    mark.unlink()
    with pytest.raises(DataError, match=r"third-party algorithm Mean@.*run_code=True"):
        plench.load(path)
    assert "class Mean(LossAlgorithm)" in cli("info", path, "--code").out
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

    def rename(head, state):
        head["run"]["config"]["algorithm"] = head["run"]["algorithm_spec"] = spec

    def change_network(head, state):
        head["run"]["config"]["hparams"]["model"] = spec

    for number, change in enumerate((rename, change_network)):
        path = rewrite(saved[1], tmp_path / f"{number}.plench", change)
        with pytest.raises(DataError, match="third-party"):
            plench.load(path)
    assert not (tmp_path / "ran").exists()


def test_no_generator_is_made_of_a_name_in_a_file(saved, tmp_path):
    """A name in a file never reaches an attribute of numpy.random."""

    def forge(head, state):
        forged = {"bit_generator": "seed", "state": {}}
        state["algorithm"]["attributes"]["drawn"] = {
            "kind": "numpy generator",
            "value": {"kind": "plain", "value": forged},
        }

    with pytest.raises(DataError, match="drawn holds a numpy generator in the checkpoint, but a NoneType"):
        plench.load(rewrite(saved[1], tmp_path / "m.plench", forge))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "does not match its sha256"),
        (lambda data: data.replace(b"PRODEN", b"PRODEM", 1), "does not match its sha256"),
        (lambda data: data[:-10], "cannot be used as a model file"),
        (lambda data: data[:100], "is not a model file of plench"),
        (lambda data: b"", "is not a model file of plench"),
        (lambda data: b"PK" + data, r"a model file of plench 0\.2\.0.*train it again"),
        (lambda data: data.replace(b'version\\\\\\": 2', b'version\\\\\\": 3', 1), "version 3"),
    ],
)
def test_damaged_and_foreign_files_are_refused(saved, tmp_path, change, message):
    path = tmp_path / "m.plench"
    path.write_bytes(change(saved[1].read_bytes()))
    with pytest.raises(DataError, match=message):
        plench.load(path)


def test_what_is_not_a_model_file_is_refused(saved, tmp_path):
    for path in (tmp_path / "absent.plench", tmp_path):
        with pytest.raises(DataError):
            plench.load(path)
    with pytest.raises(UsageError, match="one model"):
        plench.load(saved[1], criterion="CR")
    assert main(["predict", str(tmp_path / "absent.plench"), "x.npy"]) == 2


def test_every_value_comes_back():
    values = {
        "a": [1, 2.5, float("inf"), None, True, "x"],
        "b": {3: b"\0\1", "$": (1, [2])},
        "c": {"plain": {"deep": -0.0}},
    }
    tensors = {"bits": torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "none": torch.zeros(0, 3)}
    tensors |= {"one": torch.tensor(7), "flags": torch.tensor([True, False])}
    read = read_model_file(pack(ModelFile({"run": {}}, {**values, "tensors": tensors}, {"a.py": b"\xff"})))
    assert read.sources == {"a.py": b"\xff"}
    for name, tensor in read.state.pop("tensors").items():
        assert tensor.dtype == tensors[name].dtype
        assert torch.equal(tensor, tensors[name])
    assert read.state == values
    with pytest.raises(DataError, match="cannot store"):
        pack(ModelFile({}, io.BytesIO()))
