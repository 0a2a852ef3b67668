"""Image datasets: PLCIFAR10, CIFAR, IDX files, folders and arrays, good ones and broken ones."""

import dataclasses
import gzip
import pickle
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from plench.data import CandidateSpec, dataset_card, draw_candidates, load_dataset, split_dataset
from plench.data.candidates import shrink_images
from plench.data.readers import hash_git_blob, hash_md5
from plench.data.sources import cifar, find_source
from plench.data.sources.base import RemoteFile
from plench.errors import DataError, UsageError
from tests.images.layouts import (
    draw_pixels,
    idx_bytes,
    pack,
    python2_batch,
    write_annotations,
    write_cifar10,
    write_cifar100,
)

# One entry per image of `write_cifar10`: 5 files of 4.
ANNOTATIONS = {i: [[i % 10], [i % 10, (i + 1) % 10], [(i + 2) % 10, (i + 3) % 10], []] for i in range(20)}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write_cifar10(tmp_path)
    write_annotations(tmp_path, ANNOTATIONS)
    return tmp_path


def sets_of(dataset: Any) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in dataset.candidates]


def test_classes_have_names_where_they_are_known(data_dir: Path, tmp_path: Path) -> None:
    names = load_dataset("PLCIFAR10_Vaguest", data_dir).class_names
    assert names is not None
    assert (len(names), names[0], names[9]) == (10, "airplane", "truck")
    assert draw_candidates(load_dataset("CIFAR10", data_dir), CandidateSpec("uss"), 0).class_names == names
    folder = tmp_path / "pets"
    for name in ("dog", "cat"):
        (folder / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(folder / name / "1.png")
    assert load_dataset(str(folder)).class_names == ("cat", "dog")
    dataset = load_dataset("Digits_FPS")
    assert dataset.class_names is None
    with pytest.raises(DataError, match="10 classes need 10 different names"):
        dataclasses.replace(dataset, card=dataclasses.replace(dataset.card, class_names=("a", "b")))


def test_aggregate_vaguest_and_first_annotators(data_dir: Path) -> None:
    aggregate = load_dataset("PLCIFAR10_Aggregate", data_dir)
    assert sets_of(aggregate) == [
        sorted({i % 10, (i + 1) % 10, (i + 2) % 10, (i + 3) % 10}) for i in range(20)
    ]
    vaguest = load_dataset("plcifar10-vaguest", data_dir)
    assert sets_of(vaguest) == [sorted({i % 10, (i + 1) % 10}) for i in range(20)]  # the first of two equals
    one, two = (load_dataset(f"PLCIFAR10_Annotators_{k}", data_dir) for k in (1, 2))
    assert sets_of(one) == [[i % 10] for i in range(20)]
    assert sets_of(two) == sets_of(vaguest)
    assert one.card.name == "PLCIFAR10_Annotators_1"
    assert aggregate.labels is not None
    assert aggregate.labels.tolist() == [(file + i) % 10 for file in range(5) for i in range(4)]
    assert aggregate.features.shape == (20, 3, 32, 32)
    assert np.array_equal(aggregate.features[4:8].reshape(4, -1), draw_pixels(4, 1))
    assert aggregate.test is not None
    assert np.array_equal(aggregate.test.features.reshape(4, -1), draw_pixels(4, 5))


def test_vaguest_goes_by_the_length_of_lists(data_dir: Path) -> None:
    """The public code counts a repeated label twice when it looks for the largest set."""
    write_annotations(data_dir, {**ANNOTATIONS, 3: [[5], [4, 4], [1, 2]]})
    assert sets_of(load_dataset("PLCIFAR10_Vaguest", data_dir))[3] == [4]
    assert sets_of(load_dataset("PLCIFAR10_Aggregate", data_dir))[3] == [1, 2, 4, 5]


def test_cards_of_the_protocol() -> None:
    aggregate, vaguest = dataset_card("PLCIFAR10_Aggregate"), dataset_card("PLCIFAR10_Vaguest")
    assert (aggregate.protocol_noise_rate, vaguest.protocol_noise_rate) == (0.00132, 0.17556)
    assert dataset_card("PLCIFAR10_Annotators_3").protocol_noise_rate is None
    for card in (aggregate, vaguest):
        assert (card.kind, card.default_steps, card.candidates) == ("image", 60_000, CandidateSpec("real"))
        assert card.published is not None
        assert card.published.examples == 50_000


def test_number_of_annotators() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        dataset_card("PLCIFAR10_Annotators_0")
    with pytest.raises(UsageError, match="the first k annotators"):
        dataset_card("PLCIFAR10_Annotators_k")


def test_another_file_gives_a_warning(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    warnings = load_dataset("PLCIFAR10_Aggregate", data_dir).warnings
    assert any("not the public release" in warning for warning in warnings)
    assert any("published are 50,000" in warning for warning in warnings)
    assert [record.getMessage() for record in caplog.records if record.name == "plench"] == list(warnings)


def test_commands_show_warnings_once(data_dir: Path, cli) -> None:
    for command in ("stats", "info"):
        shown = cli("data", command, "PLCIFAR10_Aggregate", "--data_dir", data_dir)
        assert (shown.out + shown.err).count("is not the public release") == 1


@pytest.fixture
def released(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, its annotations taken for the public release."""
    content = (data_dir / "plcifar10" / "plcifar10.pkl").read_bytes()
    release = RemoteFile("", cifar.RELEASE.path, hash_git_blob(content))
    monkeypatch.setattr(cifar, "RELEASE", release)
    monkeypatch.setattr(cifar, "RELEASED_SETS", 80)
    monkeypatch.setattr(cifar, "RELEASED_LABELS", 100)
    return data_dir


def test_the_release_must_have_its_numbers(released: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings = load_dataset("PLCIFAR10_Aggregate", released).warnings
    assert not any("not the public release" in warning for warning in warnings)
    monkeypatch.setattr(cifar, "RELEASED_SETS", 502_190)
    monkeypatch.setattr(cifar, "RELEASED_LABELS", 712_109)
    with pytest.raises(DataError, match="80 sets with 100 labels were read instead of 502,190 with 712,109"):
        load_dataset("PLCIFAR10_Aggregate", released)


def without(index: int) -> dict[int, Any]:
    return {key: value for key, value in ANNOTATIONS.items() if key != index}


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        (without(7), "no annotations for image 7"),
        ({**ANNOTATIONS, 20: [[1]]}, "annotations for image 20; there are images 0…19"),
        ({**ANNOTATIONS, "x": [[1]]}, "annotations for image 'x'|annotations for image b'x'"),
        ({**ANNOTATIONS, 3: [[1], [10]]}, "image 3 has the label 10; expected 0…9"),
        ({**ANNOTATIONS, 3: [[1], [-1]]}, "image 3 has the label -1"),
        ({**ANNOTATIONS, 3: [[1.0]]}, "image 3 has the label 1.0"),
        ({**ANNOTATIONS, 3: [[True]]}, "image 3 has the label True"),
        ({**ANNOTATIONS, 3: [1, 2]}, "image 3 must be a list of label lists"),
        ({**ANNOTATIONS, 3: [[], []]}, "candidate set of example 3 is empty"),
        ([[[1]]] * 20, "must contain a dict"),
        (pickle.dumps(ANNOTATIONS)[:-30], "damaged or not a pickle"),
    ],
)
def test_broken_annotations(tmp_path: Path, annotations: Any, message: str) -> None:
    write_cifar10(tmp_path)
    write_annotations(tmp_path, annotations)
    with pytest.raises(DataError, match=message):
        load_dataset("PLCIFAR10_Aggregate", tmp_path)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({b"data": draw_pixels(4), b"labels": [0, 1, 2, 10]}, "label of image 3 is 10; expected 0…9"),
        ({b"data": draw_pixels(4), b"labels": [0, 1, 2]}, "there must be 4 labels"),
        ({b"data": draw_pixels(4), b"labels": [0, 1, 2, 0.5]}, "whole numbers"),
        ({b"data": draw_pixels(4)[:, :100], b"labels": [0] * 4}, "n×3072"),
        ({b"data": draw_pixels(4).astype(np.int16), b"labels": [0] * 4}, "uint8"),
        ({b"labels": [0] * 4}, "`data` must be"),
        ([1, 2], "does not contain a dict"),
    ],
)
def test_broken_batches(tmp_path: Path, batch: Any, message: str) -> None:
    write_cifar10(tmp_path, data_batch_3=pickle.dumps(batch))
    with pytest.raises(DataError, match=message):
        load_dataset("CIFAR10", tmp_path)


def test_missing_and_truncated_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--data-dir"):
        load_dataset("CIFAR10")
    with pytest.raises(DataError, match=r"cifar-10-batches-py or cifar-10-python\.tar\.gz is neither in"):
        load_dataset("CIFAR10", tmp_path)
    folder = write_cifar10(tmp_path)
    content = (folder / "data_batch_2").read_bytes()
    (folder / "data_batch_2").write_bytes(content[:-1000])
    with pytest.raises(DataError, match="data_batch_2 is damaged"):
        load_dataset("CIFAR10", tmp_path)
    (folder / "data_batch_2").unlink()
    with pytest.raises(DataError, match="data_batch_2 cannot be read"):
        load_dataset("CIFAR10", tmp_path)


def test_python_2_files(tmp_path: Path) -> None:
    contents = {
        name: python2_batch(draw_pixels(300, seed), [i % 10 for i in range(300)])
        for seed, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"])
    }
    write_cifar10(tmp_path, **contents)
    dataset = load_dataset("CIFAR10", tmp_path)
    assert np.array_equal(dataset.features[300:600].reshape(300, -1), draw_pixels(300, 1))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    pixels = np.asfortranarray(draw_pixels(4))
    batch = {b"data": pixels, b"labels": [0, 1, 2, 3], "more": [1.5, None, True, 2**70, ("text", b"\xff")]}
    write_cifar10(tmp_path, data_batch_2=pickle.dumps(batch, protocol))
    dataset = load_dataset("CIFAR10", tmp_path)
    assert np.array_equal(dataset.features[4:8].reshape(4, -1), pixels)


def pack_within(folder: Path, archive: Path) -> None:
    """As `tar -cz .` does: with an entry for the folder itself and `./` in front of all others."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder.parent, ".")


@pytest.mark.parametrize("make", [pack, pack_within])
def test_archive_gives_what_the_folder_gives(tmp_path: Path, make: Any) -> None:
    folder = write_cifar10(tmp_path / "a")
    (tmp_path / "b").mkdir()
    make(folder, tmp_path / "b" / "cifar-10-python.tar.gz")
    unpacked, packed = load_dataset("CIFAR10", tmp_path / "a"), load_dataset("CIFAR10", tmp_path / "b")
    assert packed.fingerprint == unpacked.fingerprint
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["cifar-10-python.tar.gz"]


@pytest.mark.parametrize("packed", [False, True])
def test_only_public_files_are_verified(
    released: Path, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images count as the public ones by their files' MD5, in a folder as in an archive."""
    folder = released / "cifar-10-batches-py"
    digests = {path.name: hash_md5(path.read_bytes()) for path in sorted(folder.iterdir())}
    test = {"test_batch": digests.pop("test_batch")}
    if packed:
        pack(folder, released / "cifar-10-python.tar.gz")
        shutil.rmtree(folder)
    for train, verified in (
        (digests, True),
        ({**digests, "data_batch_2": "0" * 32, "data_batch_4": "0" * 32}, False),
    ):
        files = dataclasses.replace(cifar.CIFAR10_FILES, train=train, test=test)
        monkeypatch.setattr(cifar, "CIFAR10_FILES", files)
        dataset = load_dataset("PLCIFAR10_Aggregate", released)
        assert dataset.verified == verified
        told = [warning for warning in dataset.warnings if "other files than the public ones" in warning]
        assert len(told) == (not verified)
        assert verified or told[0].endswith("(by MD5): data_batch_2, data_batch_4")


def test_an_archive_that_lacks_a_file_or_is_none(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path / "made")
    (tmp_path / "data").mkdir()
    (folder / "test_batch").unlink()
    archive = pack(folder, tmp_path / "data" / "cifar-10-python.tar.gz")
    with pytest.raises(DataError, match="has no file cifar-10-batches-py/test_batch"):
        load_dataset("CIFAR10", tmp_path / "data")
    archive.write_bytes(b"no archive at all")
    with pytest.raises(DataError, match="damaged or not a tar archive"):
        load_dataset("CIFAR10", tmp_path / "data")


def test_cifar100_and_its_superclasses(tmp_path: Path) -> None:
    write_cifar100(tmp_path, 2000)
    plain = load_dataset("CIFAR100", tmp_path)
    assert plain.n_classes == 100
    drawn = draw_candidates(plain, plain.card.candidates, 0)
    assert pytest.approx(drawn.mean_candidates, rel=0.05) == 1 + 99 * 0.05
    hierarchical = load_dataset("cifar100-hierarchical", tmp_path)
    drawn = draw_candidates(hierarchical, hierarchical.card.candidates, 0)
    assert drawn.noise_rate == 0
    rows, labels = np.nonzero(drawn.candidates)
    assert drawn.labels is not None
    assert (labels % 20 == drawn.labels[rows] % 20).all()
    assert drawn.mean_candidates == pytest.approx(1 + 4 * 0.5, rel=0.05)
    uss = draw_candidates(hierarchical, CandidateSpec("uss"), 0)
    assert uss.mean_candidates == pytest.approx(1 + 4 * 0.5, rel=0.05)


def test_cifar100_with_contradicting_superclasses(tmp_path: Path) -> None:
    write_cifar100(tmp_path, 200, coarse=[i % 7 for i in range(200)])
    with pytest.raises(DataError, match="fine and coarse labels do not agree"):
        load_dataset("CIFAR100", tmp_path)


def write_idx(folder: Path, count: int = 30, packed: bool = True) -> None:
    folder.mkdir(parents=True)
    random = np.random.RandomState(0)
    for prefix in ("train", "t10k"):
        images = random.randint(0, 256, (count, 28, 28)).astype(np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for stem, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            content = idx_bytes(array)
            path = folder / f"{prefix}-{stem}{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(content) if packed else content)


@pytest.mark.parametrize(
    ("name", "folder"), [("MNIST", "MNIST/raw"), ("FashionMNIST", "fashion-mnist"), ("KMNIST", "x/kmnist")]
)
@pytest.mark.parametrize("packed", [True, False])
def test_idx_files(tmp_path: Path, name: str, folder: str, packed: bool) -> None:
    write_idx(tmp_path / folder, packed=packed)
    dataset = load_dataset(name, tmp_path)
    assert dataset.features.shape == (30, 1, 28, 28)
    assert dataset.test is not None
    assert draw_candidates(dataset, dataset.card.candidates, 0).mean_candidates > 1
    split = split_dataset(dataset, 0)
    assert (len(split.train), len(split.validation), split.test) == (27, 3, None)


def test_broken_idx_files(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST", packed=False)
    path = tmp_path / "MNIST" / "train-images-idx3-ubyte"
    content = path.read_bytes()
    for damaged, message in (
        (content[:-1], "truncated or damaged"),
        (b"\x00\x00\x0d" + content[3:], "not an IDX file of unsigned bytes"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=message):
            load_dataset("MNIST", tmp_path)
    path.unlink()
    with pytest.raises(DataError, match="has neither train-images-idx3-ubyte nor"):
        load_dataset("MNIST", tmp_path)


def write_images(
    folder: Path, mode: str = "RGB", size: tuple[int, int] = (9, 7), suffix: str = "png"
) -> None:
    random = np.random.RandomState(0)
    for label, name in enumerate(("cat", "dog", "emu")):
        (folder / name).mkdir(parents=True)
        for number in range(4 + label):
            shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
            pixels = random.randint(0, 256, shape).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.{suffix}")


def test_folder_of_images(tmp_path: Path) -> None:
    write_images(tmp_path / "pets")
    (tmp_path / "pets" / "notes.txt").write_text("not an image")
    dataset = load_dataset(str(tmp_path / "pets"))
    assert dataset.features.shape == (15, 3, 7, 9)
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [0] * 4 + [1] * 5 + [2] * 6
    assert dataset.card.name.startswith("pets@")
    assert dataset.class_names == ("cat", "dog", "emu")
    assert "no candidate sets of its own: they are generated" in dataset.warnings[0]
    with Image.open(tmp_path / "pets" / "dog" / "0.png") as image:
        assert np.array_equal(dataset.features[4].transpose(1, 2, 0), np.asarray(image))
    write_images(tmp_path / "gray", mode="L")
    assert load_dataset(str(tmp_path / "gray")).features.shape == (15, 1, 7, 9)


def test_folder_with_its_own_test_set(tmp_path: Path) -> None:
    write_images(tmp_path / "pets" / "train")
    write_images(tmp_path / "pets" / "test", suffix="bmp")
    dataset = load_dataset(str(tmp_path / "pets"))
    assert dataset.test is not None
    assert dataset.test.labels.tolist() == [0] * 4 + [1] * 5 + [2] * 6
    (tmp_path / "pets" / "test" / ".cache").mkdir()
    assert load_dataset(str(tmp_path / "pets")).test is not None
    (tmp_path / "pets" / "test" / "zebra").mkdir()
    with pytest.raises(DataError, match="a class 'zebra' that the training images do not have"):
        load_dataset(str(tmp_path / "pets"))


def test_the_name_of_a_folder_follows_its_content(tmp_path: Path) -> None:
    write_images(tmp_path / "pets")
    first = dataset_card(str(tmp_path / "pets")).name
    assert dataset_card(str(tmp_path / "pets")).name == first
    path = tmp_path / "pets" / "cat" / "0.png"
    Image.new("RGB", (9, 7)).save(path)
    assert dataset_card(str(tmp_path / "pets")).name != first


def test_broken_folders(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        load_dataset(str(tmp_path / "absent"))
    (tmp_path / "one" / "cat").mkdir(parents=True)
    with pytest.raises(UsageError, match="two or more sub-folders"):
        load_dataset(str(tmp_path / "one"))
    (tmp_path / "one" / "dog").mkdir()
    with pytest.raises(DataError, match="has no images"):
        load_dataset(str(tmp_path / "one"))
    write_images(tmp_path / "pets")
    odd = tmp_path / "pets" / "dog" / "9.png"
    Image.new("RGB", (8, 7)).save(odd)
    dataset = load_dataset(str(tmp_path / "pets"))
    assert dataset.features.shape == (16, 3, 7, 9)
    assert "1 of 16 images have another size than most and are resized to 9×7" in dataset.warnings[1]
    Image.fromarray(np.full((7, 9), 1000, np.uint16)).save(odd)
    with pytest.raises(DataError, match=r"9\.png has pixels of type I;16; convert it to 8 bits"):
        load_dataset(str(tmp_path / "pets"))
    odd.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"9\.png cannot be read as an image"):
        load_dataset(str(tmp_path / "pets"))


def test_folder_with_a_table_of_candidates(tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    write_images(folder)
    table = folder / "candidates.csv"
    table.write_text("file,candidates,truth\ndog/0.png,dog|cat,dog\ncat/1.png,cat|emu,cat\n")
    dataset = load_dataset(str(folder))
    assert dataset.features.shape == (2, 3, 7, 9)
    assert dataset.class_names == ("cat", "dog", "emu")
    assert dataset.candidates.astype(int).tolist() == [[1, 1, 0], [1, 0, 1]]
    assert dataset.card.candidates.pl_type == "real"
    with Image.open(folder / "dog" / "0.png") as image:
        assert np.array_equal(dataset.features[0].transpose(1, 2, 0), np.asarray(image))
    table.write_text("file,annotator,label\ndog/0.png,a,dog\ndog/0.png,b,cat\ncat/1.png,a,cat\n")
    assert load_dataset(str(folder)).candidates.astype(int).tolist() == [[1, 1], [1, 0]]
    for file, message in (
        ("../x.png", "is not an image file of this folder"),
        ("dog/99.png", "there is no file"),
        ("notes.txt", "is not an image file of this folder"),
    ):
        table.write_text(f"file,candidates\ndog/0.png,dog|cat\n{file},cat\n")
        with pytest.raises(DataError, match=rf"item 2.*{message}"):
            load_dataset(str(folder))


def test_digit_images() -> None:
    dataset = load_dataset("DigitImages")
    assert dataset.input_shape == (1797, 1, 8, 8)
    tabular = load_dataset("Digits_FPS")
    assert np.abs(dataset.features.reshape(1797, 64) / 255 - tabular.features).max() < 0.002


def test_real_images_and_annotations(real_data: Path, tmp_path: Path) -> None:
    """The three human labels of CIFAR-10N: their union has 1.457 candidates and 2.13 % noise."""
    with np.load(real_data / "cifar10" / "cifar10n_annotators.npz") as store:
        annotators = store["annotators"]
    with np.load(real_data / "cifar10" / "cifar10_jpeg.npz") as store:
        labels = store["labels"][: len(annotators)]
    content = {i: [[int(label)] for label in row] for i, row in enumerate(annotators)}
    annotations = cifar.parse_annotations(content, len(labels), "CIFAR-10N")
    union = cifar.unite(annotations)
    assert union.sum(1).mean() == pytest.approx(1.457, abs=0.0005)
    assert 1 - union[np.arange(len(labels)), labels].mean() == pytest.approx(0.0213, abs=0.00005)
    assert np.array_equal(cifar.pick_vaguest(annotations).argmax(1), annotators[:, 0])


def write_votes(data_dir: Path, votes: Any) -> None:
    (data_dir / "cifar10h").mkdir()
    np.save(data_dir / "cifar10h" / "cifar10h-counts.npy", votes)


def test_votes_for_the_test_images(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    labels = np.arange(5, 9)  # those of write_cifar10
    votes = np.zeros((4, 10), np.int64)
    votes[np.arange(4), labels], votes[1, 0], votes[2, :2] = 49, 1, (2, 50)
    write_votes(tmp_path, votes)
    for path in folder.glob("data_batch*"):  # not needed
        path.unlink()
    dataset = load_dataset("CIFAR10H", tmp_path)
    assert np.array_equal(dataset.labels, labels)
    assert dataset.features.shape == (4, 3, 32, 32)
    assert sets_of(dataset) == [[5], [0, 6], [0, 1, 7], [8]]
    assert sets_of(load_dataset("CIFAR10H_Votes_2", tmp_path)) == [[5], [6], [0, 1, 7], [8]]
    assert dataset.answers is not None
    assert dataset.answers.anonymous
    assert dataset.test is None
    assert len(dataset.warnings) == 2
    source = find_source("CIFAR10H")
    assert (source.own_test, source.answers, source.anonymous) == (False, True, True)


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        (np.eye(10)[[5, 6, 7]], "must have whole numbers of votes"),
        (np.eye(10)[[5, 6, 7, 8]] / 2, "must have whole numbers of votes"),
        (-np.eye(10)[[5, 6, 7, 8]], "must have whole numbers of votes"),
        (np.zeros((4, 10), int), "at least one per image"),
        (np.full((4, 10), "5"), "must have whole numbers of votes"),
        (
            np.eye(10)[[8, 7, 6, 5]],
            "0% of the images, so the images of test_batch are not in the public order",
        ),
    ],
)
def test_votes_that_do_not_fit_the_images(tmp_path: Path, votes: Any, message: str) -> None:
    write_cifar10(tmp_path)
    write_votes(tmp_path, votes)
    with pytest.raises(DataError, match=message):
        load_dataset("CIFAR10H", tmp_path)


def test_the_facts_of_cifar10h(real_data: Path, tmp_path: Path) -> None:
    """The published votes and labels, with blank images: those at hand are in another order."""
    labels = np.load(real_data / "cifar10" / "cifar10_test_set_original_labels.npy").tolist()
    batch = {b"data": np.zeros((len(labels), 3072), np.uint8), b"labels": labels}
    write_cifar10(tmp_path, test_batch=pickle.dumps(batch))
    shutil.copy(real_data / "cifar10" / "cifar10h-counts.npy", tmp_path)
    dataset = load_dataset("CIFAR10H", tmp_path)
    assert [warning for warning in dataset.warnings if "counts" in warning] == [], (
        "the file is the public one"
    )
    assert dataset.answers is not None
    assert len(dataset.answers.item) / dataset.n_examples == pytest.approx(51, abs=0.5)
    assert dataset.mean_candidates == pytest.approx(1.94, abs=0.005)
    assert dataset.noise_rate == pytest.approx(0.0004, abs=0.00005)
    assert load_dataset("CIFAR10H_Votes_2", tmp_path).mean_candidates == pytest.approx(1.35, abs=0.005)


def test_instance_dependent_candidates_of_images(tmp_path: Path) -> None:
    assert shrink_images(np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)).tolist() == [
        [[list(map(float, range(4 * row, 4 * row + 4))) for row in range(4)]]
    ]
    blocks = shrink_images(np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16))
    assert blocks.shape == (1, 1, 8, 8)
    assert blocks[0, 0, 0, 0] == np.mean([0, 1, 16, 17])
    assert shrink_images(np.zeros((2, 3, 33, 5), np.uint8)).shape == (2, 3, 6, 1)
    dataset = load_dataset("DigitImages")
    drawn = draw_candidates(dataset, CandidateSpec("id"), 0)
    assert drawn.noise_rate == 0
    assert 2 < drawn.mean_candidates < 6


def test_archives_are_known_by_their_md5(data_dir: Path) -> None:
    source = find_source("PLCIFAR10_Aggregate")
    annotations, archive = source.files
    assert annotations.path == "plcifar10/plcifar10.pkl"
    assert archive.explain_mismatch(b"") == f"its MD5 is {hash_md5(b'')} instead of {archive.md5}"
    content = b"some archive"
    assert RemoteFile(archive.url, archive.path, md5=hash_md5(content)).explain_mismatch(content) is None
