"""`plench data stats` on built-in data, on annotators, and on the real ones where they are at hand."""

import json

import numpy as np
import pytest

from plench.data import load_dataset
from tests.images.layouts import write_annotations, write_cifar10


@pytest.fixture
def stats_of(cli):
    return lambda *words: json.loads(cli("data", "stats", *words, "--json").out)


def test_built_in_data(stats_of, tmp_path):
    content = stats_of("Digits_FPS", "--fps_rate", "0.5", "--output", tmp_path / "digits.svg")
    flipping = np.array(content["flipping"])
    off = flipping[~np.eye(10, dtype=bool)]
    assert np.all(np.diag(flipping) == 1)
    assert off.mean() == pytest.approx(0.5, abs=0.03)
    assert content["ambiguity_degree"] == off.max()
    first, second = content["ambiguous_pair"]
    assert flipping[first, second] == off.max()
    assert sum(content["set_sizes"].values()) == content["examples"]
    assert content["noise_rate"] == 0
    assert "<svg" in (tmp_path / "digits.svg").read_text()


def test_text(cli):
    out = cli("data", "stats", "Digits_USS").out
    for text in ("mean set size", "noise rate", "ambiguity degree", "set sizes", "true labels"):
        assert text in out


def test_annotators(stats_of, tmp_path):
    write_cifar10(tmp_path)
    labels = load_labels(tmp_path)
    # the first annotator is always right, the second never, the third on even images
    sets = {
        i: [[int(y)], [int(y + 1) % 10], [int(y) if i % 2 == 0 else int(y + 2) % 10]]
        for i, y in enumerate(labels)
    }
    write_annotations(tmp_path, sets)
    content = stats_of("PLCIFAR10_Aggregate", "--data_dir", tmp_path)
    # one annotator drawn at random misses 1/3 (even) or 2/3 (odd); of two both miss never (even) or with 1/3
    # (odd)
    assert content["noise_by_annotators"] == pytest.approx([0.5, 1 / 6, 0.0])


def load_labels(folder):
    write_annotations(folder, {i: [[0]] for i in range(20)})
    return load_dataset("PLCIFAR10_Aggregate", folder).labels


def test_real_lost(stats_of, real_data):
    content = stats_of("Lost", "--data_dir", real_data)
    assert (content["examples"], content["classes"]) == (1122, 16)
    assert content["mean_set_size"] == pytest.approx(2.23, abs=0.005)
    assert content["noise_rate"] == 0


def test_bad_output_is_refused(cli, tmp_path):
    assert ".svg" in cli("data", "stats", "Digits_USS", "--output", tmp_path / "x.bmp", code=2).err
