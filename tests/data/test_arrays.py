"""Datasets that a user gives by path: an `.npz` file, a `.mat` file, a folder."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plench.data import CandidateSpec, dataset_card, load_dataset, make_dataset
from plench.errors import DataError, PlenchError, UsageError
from tests.data.test_sources import write_mat


def write_npz(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_arrays_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.RandomState(0)
    candidates = random.rand(12, 4) < 0.5
    labels = np.arange(12) % 4
    candidates[np.arange(12), labels] = True
    tabular = write_npz(tmp_path / "mine.npz", features=random.rand(12, 5), candidates=candidates)
    dataset = load_dataset(tabular)
    assert (dataset.card.kind, dataset.input_shape, dataset.labels) == ("tabular", (12, 5), None)
    assert np.array_equal(dataset.candidates, candidates)
    pixels = random.randint(0, 256, (12, 6, 7, 3)).astype(np.uint8)
    images = write_npz(tmp_path / "images.npz", images=pixels, labels=labels, candidates=candidates)
    dataset = load_dataset(images)
    assert dataset.card.name.startswith("images@")
    assert dataset.card.candidates == CandidateSpec("real")
    assert np.array_equal(dataset.features, pixels.transpose(0, 3, 1, 2))
    gray = write_npz(
        tmp_path / "gray.npz",
        images=pixels[..., 0],
        labels=labels,
        test_images=pixels[:, :, :, 1],
        test_labels=labels,
    )
    dataset = load_dataset(gray)
    assert dataset.input_shape == (12, 1, 6, 7)
    assert dataset.test is not None
    assert dataset.card.candidates == CandidateSpec("fps")
    monkeypatch.chdir(tmp_path)
    assert load_dataset("gray.npz").card.name == dataset.card.name


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((12, 6, 7, 3), (3, 6, 7)),
        ((12, 3, 6, 7), (3, 6, 7)),
        ((12, 6, 7, 4), (4, 6, 7)),
        ((12, 4, 6, 7), (4, 6, 7)),
        ((12, 1, 6, 2), (1, 6, 2)),
        ((12, 6, 7), (1, 6, 7)),
    ],
)
def test_channels_are_told_by_their_number(
    given: tuple[int, ...], found: tuple[int, ...], tmp_path: Path
) -> None:
    images = np.arange(np.prod(given)).reshape(given).astype(np.uint8)
    dataset = load_dataset(write_npz(tmp_path / "mine.npz", images=images, labels=np.arange(12) % 3))
    assert dataset.input_shape[1:] == found
    if given[-1] == found[0]:
        assert np.array_equal(dataset.features, images.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"labels": np.arange(3)}, "either `features` or `images`"),
        ({"features": np.ones((3, 2)), "images": np.ones((3, 2))}, "either `features` or `images`"),
        ({"features": np.ones((3, 2))}, "neither `candidates` nor `labels`"),
        ({"features": np.ones((3, 2)), "labels": np.arange(3), "other": np.ones(1)}, "an array 'other'"),
        ({"features": np.ones((3, 2)), "labels": np.array([0.5, 1, 2])}, "whole numbers"),
        ({"features": np.ones((3, 2)), "labels": np.array([0, -1, 2])}, "whole numbers from 0"),
        ({"images": np.ones((3, 4, 4)), "labels": np.arange(3)}, "images must be uint8"),
        (
            {"features": np.ones((3, 2)), "labels": np.arange(3), "test_labels": np.arange(3)},
            "a test set needs both `test_features` and `test_labels`",
        ),
        (
            {"features": np.ones((3, 2)), "labels": np.arange(3), "test_features": np.ones((3, 2))},
            "a test set needs both `test_features` and `test_labels`",
        ),
        (
            {"features": np.ones((3, 2)), "labels": np.arange(3), "test_images": np.ones((3, 2))},
            "an array 'test_images' in addition to `features`",
        ),
        ({"features": np.array([{}], object), "labels": np.arange(1)}, "plain arrays"),
    ],
)
def test_broken_arrays(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset(write_npz(tmp_path / "mine.npz", **content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"features": [[1], [1, 2]], "candidates": np.ones((2, 2))}, "features cannot be read as an array"),
        ({"features": np.ones((2, 2)), "candidates": [[1, 0], [1]]}, "candidates cannot be read as an array"),
        (
            {"features": np.ones((2, 2)), "candidates": np.ones((2, 2)), "class_names": 5},
            "class_names cannot be read as an array",
        ),
        ({"features": np.ones((0, 2)), "answers": [[0, 1]], "labels": [0]}, "not empty"),
        ({"features": np.ones((2, 2))}, "either candidates or annotators' answers"),
    ],
)
def test_broken_arrays_in_python(content: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_dataset(**content)


def test_answers_may_name_classes_that_no_true_label_has() -> None:
    dataset = make_dataset(np.ones((3, 2)), answers=[[0, 1]] * 3, labels=[0, 0, 0])
    assert (dataset.n_classes, dataset.noise_rate) == (2, 0)


@pytest.mark.parametrize("label", [10**8, 2**63 - 1, 2**64 - 1])
def test_labels_that_stand_for_too_many_classes(label: int, tmp_path: Path) -> None:
    labels = np.array([0, 1, label], np.uint64 if label >= 2**63 else np.int64)
    path = write_npz(tmp_path / "mine.npz", features=np.ones((3, 2)), labels=labels)
    with pytest.raises(DataError, match=rf"has {label + 1:,} classes; expected 2 to 1,000 for 3 rows"):
        load_dataset(path)
    path = write_npz(tmp_path / "mine.npz", features=np.ones((1500, 2)), labels=np.arange(1500))
    assert load_dataset(path).n_classes == 1500


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".npz", "./" + "y" * 300, "a/\0b", "a/\0.npz"])
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(PlenchError):
        load_dataset(name)
    with pytest.raises(PlenchError):
        load_dataset("Lost", name)


def test_a_mat_file_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_mat(tmp_path / "Own Data.mat")
    dataset = load_dataset(str(path))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    assert dataset.card.name == f"Own Data@{digest}"
    assert (dataset.card.kind, dataset.card.default_steps) == ("tabular", 10_000)
    assert dataset.card.candidates == CandidateSpec("real")
    assert (dataset.input_shape, dataset.n_classes, dataset.noise_rate) == ((20, 3), 4, 0.0)
    without = load_dataset(str(write_mat(tmp_path / "plain.MAT", with_target=False)))
    assert without.labels is None
    monkeypatch.chdir(tmp_path)
    assert load_dataset("Own Data.mat").card == dataset.card
    with pytest.raises(DataError, match=r"absent\.mat cannot be read .No such file"):
        load_dataset("absent.mat")
    (tmp_path / "text.mat").write_text("no matrices")
    with pytest.raises(DataError, match=r"text\.mat cannot be used"):
        load_dataset("text.mat")


def test_a_path_needs_no_slash_and_a_known_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"features": np.ones((6, 2)), "labels": np.arange(6) % 3}
    given = load_dataset(write_npz(tmp_path / "my.npz", **content))
    for name in ("pets", "Digits_FPS"):
        for label in ("cat", "dog"):
            (tmp_path / name / label).mkdir(parents=True)
            (tmp_path / name / label / "0.png").write_bytes(b"not decoded for a card")
    monkeypatch.chdir(tmp_path)
    assert load_dataset("my.npz").card == given.card
    assert dataset_card("pets").name.startswith("pets@")
    assert dataset_card("pets") == dataset_card("./pets")
    assert dataset_card("Digits_FPS").name == "Digits_FPS"
    assert dataset_card("./Digits_FPS").name.startswith("Digits_FPS@")
    with pytest.raises(UsageError, match=r"no such folder or file; expected one of path/to/file\.npz"):
        dataset_card("./absent")
    with pytest.raises(UsageError, match="unknown dataset 'absent'"):
        dataset_card("absent")
