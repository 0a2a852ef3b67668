"""Damaged files: a truncated file or one with changed bytes gives valid data or our error, nothing else.

One sample per reader. A new reader is one function with `@sample`.
"""

import gzip
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import plench
from plench.data import load_dataset
from plench.errors import DataError, PlenchError
from tests.data.test_sources import write_mat
from tests.images.layouts import idx_bytes, pack, python2_batch, write_annotations, write_cifar10

ANNOTATIONS = {image: [[image % 10], [image % 10, (image + 1) % 10]] for image in range(20)}


@dataclass(frozen=True)
class Sample:
    """A valid file, and a function that reads it."""

    path: Path
    read: Callable[[], Any]


SAMPLES: dict[str, Callable[[Path], Sample]] = {}


def sample(make: Callable[[Path], Sample]) -> Callable[[Path], Sample]:
    SAMPLES[make.__name__] = make
    return make


def by_path(path: Path) -> Sample:
    return Sample(path, partial(load_dataset, str(path)))


for name, options in {
    "mat": {},
    "dense_mat": {"kind": np.asarray},
    "compressed_mat": {"kind": sparse.csc_matrix, "do_compression": True},
}.items():
    SAMPLES[name] = lambda folder, options=options: by_path(write_mat(folder / "mine.mat", **options))


def npz(folder: Path, save: Any = np.savez, **more: np.ndarray) -> Sample:
    save(folder / "mine.npz", features=np.arange(60.0).reshape(20, 3), labels=np.arange(20) % 3, **more)
    return by_path(folder / "mine.npz")


SAMPLES["npz"] = npz
SAMPLES["compressed_npz"] = partial(npz, save=np.savez_compressed, class_names=np.array(["a", "b", "c"]))


@sample
def npy(folder: Path) -> Sample:
    np.save(folder / "features.npy", np.arange(60.0).reshape(20, 3))
    np.save(folder / "labels.npy", np.arange(20) % 3)
    return by_path(folder / "features.npy")


@sample
def idx(folder: Path) -> Sample:
    data = folder / "MNIST"
    data.mkdir()
    for prefix in ("train", "t10k"):
        (data / f"{prefix}-images-idx3-ubyte").write_bytes(idx_bytes(np.zeros((20, 4, 4), np.uint8)))
        labels = gzip.compress(idx_bytes((np.arange(20) % 10).astype(np.uint8)))
        (data / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(labels)
    return Sample(data / "train-images-idx3-ubyte", lambda: load_dataset("MNIST", folder))


@sample
def gzipped_idx(folder: Path) -> Sample:
    found = idx(folder)
    return Sample(found.path.with_name("train-labels-idx1-ubyte.gz"), found.read)


@sample
def cifar(folder: Path) -> Sample:
    return Sample(write_cifar10(folder) / "data_batch_2", lambda: load_dataset("CIFAR10", folder))


@sample
def python2_cifar(folder: Path) -> Sample:
    batch = python2_batch(np.zeros((300, 3072), np.uint8), [3] * 300)
    files = dict.fromkeys([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"], batch)
    return Sample(write_cifar10(folder, **files) / "data_batch_2", lambda: load_dataset("CIFAR10", folder))


@sample
def plcifar(folder: Path) -> Sample:
    write_cifar10(folder)
    path = write_annotations(folder, ANNOTATIONS)
    return Sample(path, lambda: load_dataset("PLCIFAR10_Aggregate", folder))


@sample
def gzipped_tar(folder: Path) -> Sample:
    (folder / "data").mkdir()
    archive = pack(write_cifar10(folder / "made", 1), folder / "data" / "cifar-10-python.tar.gz")
    return Sample(archive, lambda: load_dataset("CIFAR10", folder / "data"))


@sample
def tar(folder: Path) -> Sample:
    found = gzipped_tar(folder)
    found.path.write_bytes(gzip.decompress(found.path.read_bytes()))  # without the checksum of gzip
    return found


@sample
def csv(folder: Path) -> Sample:
    lines = [
        f"i{i},{i / 3:.2f},{'rgb'[i % 3]},{'cat|dog' if i % 2 else 'dog|emu'},dog,train,g{i // 2}\n"
        for i in range(12)
    ]
    path = folder / "mine.csv"
    path.write_text("item,age,colour,candidates,truth,split,group\n" + "".join(lines), encoding="utf-8")
    return by_path(path)


@sample
def csv_of_answers(folder: Path) -> Sample:
    path = folder / "mine.csv"
    path.write_text(
        "item,annotator,label,x\ni1,ann,cat,1\ni1,bob,dog,1\ni2,ann,cat|dog,2\ni3,ann,not cat,3\n"
    )
    return by_path(path)


@sample
def parquet(folder: Path) -> Sample:
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    parquet.write_table(arrow_csv.read_csv(csv(folder).path), folder / "mine.parquet")
    return by_path(folder / "mine.parquet")


def train(folder: Path) -> Path:
    return plench.train("PRODEN", "Digits_FPS", folder, steps=3, checkpoint_freq=1, progress=False).folder


@sample
def model_file(folder: Path) -> Sample:
    path = folder / "mine.plench"
    plench.load(train(folder)).save(path)
    return Sample(path, lambda: plench.load(path).predict(np.zeros((2, 64), np.float32)))


def run_file(folder: Path, name: str) -> Sample:
    path = train(folder) / name
    return Sample(path, lambda: (plench.collect(folder), plench.load(path.parent)))


SAMPLES["run_description"] = partial(run_file, name="run.json")
SAMPLES["run_records"] = partial(run_file, name="results.jsonl")


@pytest.fixture(scope="module", params=SAMPLES)
def valid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return SAMPLES[request.param](tmp_path_factory.mktemp(request.param))


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_files_are_refused_or_read(valid: Sample, data: st.DataObject) -> None:
    content = valid.path.read_bytes()
    if data.draw(st.booleans(), "truncate"):
        damaged = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        changed = bytearray(content)
        place = st.integers(0, min(len(content), 2000) - 1) | st.integers(0, len(content) - 1)
        for position, value in data.draw(st.lists(st.tuples(place, st.integers(0, 255)), max_size=6)):
            changed[position] = value
        damaged = bytes(changed)
    valid.path.write_bytes(damaged)
    try:
        valid.read()
    except PlenchError:
        return  # any other exception fails the test
    finally:
        valid.path.write_bytes(content)


class Calls:
    """Pickles to a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_malicious_pickles_are_refused_and_not_run(protocol: int, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    write_cifar10(tmp_path)
    images = write_cifar10(tmp_path / "hostile")
    for hostile in (
        Calls(os.system, f"touch {mark}"),
        Calls(eval, f"open({str(mark)!r}, 'w')"),
        Calls(open, str(mark), "w"),
        Calls(getattr, "x", "upper"),
        Calls(np.save, str(mark), 1),
        np.array([Calls(os.system, f"touch {mark}")], dtype=object),
        Path("x"),
    ):
        write_annotations(tmp_path, pickle.dumps({0: [[1]], 1: hostile}, protocol))
        with pytest.raises(DataError, match=r"plcifar10\.pkl is refused"):
            load_dataset("PLCIFAR10_Aggregate", tmp_path)
        batch = pickle.dumps({b"data": hostile, b"labels": [1]}, protocol)
        (images / "data_batch_3").write_bytes(batch)
        with pytest.raises(DataError, match="data_batch_3 is refused"):
            load_dataset("CIFAR10", images.parent)
    assert not mark.exists()


def test_arrays_with_pickled_objects_are_refused(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    hostile = np.array([Calls(os.system, f"touch {mark}")], dtype=object)
    np.savez(tmp_path / "mine.npz", features=hostile, labels=np.arange(1))
    np.save(tmp_path / "features.npy", hostile)
    np.save(tmp_path / "labels.npy", np.arange(1))
    for name in ("mine.npz", "features.npy"):
        with pytest.raises(DataError, match=name):
            load_dataset(str(tmp_path / name))
    assert not mark.exists()


def test_refitting_a_damaged_run(tmp_path: Path, cli) -> None:
    folder = train(tmp_path / "runs")
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    for name in ("run.json", "results.jsonl"):
        (broken / name).write_bytes(b"\x00[{broken")
    assert "plench: error: " in cli("refit", broken, code=2).err
