"""Good files to begin with, one or a few for each format. They are made, not stored."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy import io as scipy_io
from scipy import sparse


@cache
def make_npz() -> list[bytes]:
    """Arrays of features and images, packed and not."""
    random = np.random.RandomState(0)
    labels = np.arange(12) % 3
    candidates = (random.rand(12, 3) < 0.5) | (labels[:, None] == np.arange(3))
    images = random.randint(0, 256, (12, 4, 5, 3)).astype(np.uint8)
    found = []
    for save in (np.savez, np.savez_compressed):
        for content in (
            {"features": random.rand(12, 4), "labels": labels},
            {"features": np.asfortranarray(random.rand(12, 4).astype(">f4")), "candidates": candidates},
            {"images": images, "labels": labels, "test_images": images[:3], "test_labels": labels[:3]},
        ):
            buffer = io.BytesIO()
            save(buffer, **content)
            found.append(buffer.getvalue())
    return found


@cache
def make_mat() -> list[bytes]:
    """Dense and sparse matrices, packed and not."""
    random = np.random.RandomState(0)
    target = np.eye(3)[:, np.arange(12) % 3]
    content = {
        "data": random.rand(12, 4),
        "target": target,
        "partial_target": np.maximum(target, target[::-1]),
    }
    found = []
    for packed in (False, True):
        for kind in (np.asarray, sparse.csc_matrix):
            buffer = io.BytesIO()
            arrays = {name: kind(array) for name, array in content.items()}
            scipy_io.savemat(buffer, arrays, do_compression=packed)
            found.append(buffer.getvalue())
    return found


@cache
def make_annotations() -> list[bytes]:
    """Pickled candidate sets of four images, in every protocol."""
    content = {index: [[index], [index, 9], []] for index in range(4)}
    return [pickle.dumps(content, protocol) for protocol in range(6)]


@cache
def make_batches() -> list[bytes]:
    """Pickled CIFAR batches."""
    pixels = np.random.RandomState(0).randint(0, 256, (2, 3072)).astype(np.uint8)
    content = {b"data": pixels, b"labels": [3, 1], b"batch_label": b"some batch", b"filenames": [b"a", b"b"]}
    return [pickle.dumps(content, protocol) for protocol in range(6)]


@cache
def make_tars() -> list[bytes]:
    """Archives of CIFAR's six files, packed and not, in three formats."""
    (batch, *_) = make_batches()[2:3]
    found = []
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=kind) as tar:
            for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
                info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
                info.size = len(batch)
                tar.addfile(info, io.BytesIO(batch))
        found += [buffer.getvalue(), gzip.compress(buffer.getvalue())]
    return found


@cache
def make_idx() -> list[bytes]:
    """Images and labels in IDX files."""
    images = np.random.RandomState(0).randint(0, 256, (3, 4, 4)).astype(np.uint8)
    labels = np.arange(3, dtype=np.uint8)
    return [
        struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
        for array in (images, labels)
    ]


@cache
def make_images(kind: str) -> list[bytes]:
    """Small images in one format."""
    from PIL import Image

    random = np.random.RandomState(0)
    found = []
    for shape in ((7, 9), (7, 9, 3)):
        buffer = io.BytesIO()
        Image.fromarray(random.randint(0, 256, shape).astype(np.uint8)).save(buffer, kind)
        found.append(buffer.getvalue())
    return found


RUN_SETTINGS: dict[str, Any] = {"steps": 4, "checkpoint_freq": 2}


@cache
def make_run() -> dict[str, bytes]:
    """The files of a short run's folder, with a checkpoint from its middle."""
    from plench.algorithms import find_algorithm
    from plench.data import load_dataset
    from plench.training import configure_run, run_training
    from plench.training.callbacks import NoCallback

    found: dict[str, bytes] = {}

    class Copying(NoCallback):
        """Copies the checkpoint while there is one."""

        def advanced(self, updates: int, loss: float) -> None:
            """Look for it."""
            self.copy()

        def evaluated(self, record: Mapping[str, Any]) -> None:
            """Look for it."""
            self.copy()

        def copy(self) -> None:
            """Copy it."""
            for path in Path(folder).glob("*/checkpoint.pt"):
                found[path.name] = path.read_bytes()

    with TemporaryDirectory() as folder:
        entry, dataset = find_algorithm("PRODEN"), load_dataset("Digits_FPS")
        config = configure_run(entry, dataset.card, save_steps=1, **RUN_SETTINGS)
        outcome = run_training(config, dataset, entry, folder, Copying())
        for path in outcome.folder.iterdir():
            if path.is_file() and not path.name.startswith("."):
                found[path.name] = path.read_bytes()
    RUN_NAMES.append(outcome.folder.name)
    return found


RUN_NAMES: list[str] = []


def run_name() -> str:
    """Return the name of the run's folder."""
    make_run()
    return RUN_NAMES[0]


@cache
def make_model_files() -> list[bytes]:
    """A model of arrays and one of a table, each in one file."""
    import plench
    from plench.data import make_table_dataset

    found = []
    columns = {
        "width": [i / 7 for i in range(40)],
        "colour": ["red", "blue"] * 20,
        "candidates": [["cat", "dog"], ["dog", "emu"]] * 20,
    }
    given = {"PRODEN": "Digits_FPS", "LR_EM": make_table_dataset(columns)}
    with TemporaryDirectory() as folder:
        for algorithm, data in given.items():
            settings = RUN_SETTINGS if algorithm == "PRODEN" else {}
            outcome = plench.train(algorithm, data, folder, progress=False, device="cpu", **settings)
            plench.load(outcome.folder).save(Path(folder) / "model.plench")
            found.append((Path(folder) / "model.plench").read_bytes())
    return found


@cache
def make_tables() -> list[bytes]:
    """Tables with candidates, with answers and with features of several kinds."""
    sets, colours = ("dog|emu", "cat|dog", "cat|dog"), ("blue", "red")
    rows = [f"{i / 7:.3f},{colours[i % 2]},{sets[i % 3]},dog" for i in range(12)]
    first = "width,colour,candidates,truth\n" + "\n".join(rows) + "\n"
    rows = [f"{i};{i * 3};{'cat' if i % 2 else 'dog'};{'emu' if i % 3 else 'cat'}" for i in range(12)]
    second = "x;y;annotator_1;annotator_2\n" + "\n".join(rows) + "\n"
    return [first.encode(), second.encode(), b"\xef\xbb\xbf" + first.replace(",", "\t").encode()]


@cache
def make_parquet() -> list[bytes]:
    """The first of the tables as Parquet, packed in two ways."""
    import pyarrow
    import pyarrow.parquet

    columns = {
        "width": [i / 7 for i in range(12)],
        "colour": ["red", "blue"] * 6,
        "candidates": [["cat", "dog"], ["dog", "emu"]] * 6,
        "truth": ["dog"] * 12,
    }
    found = []
    for compression in ("snappy", "none"):
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer, compression=compression)
        found.append(buffer.getvalue())
    return found


@cache
def make_export() -> list[bytes]:
    """The run as a results file."""
    from plench.runs.gather import gather_results
    from plench.runs.parquet import write_results_file

    with TemporaryDirectory() as folder:
        run = Path(folder, run_name())
        run.mkdir()
        for name in ("run.json", "results.jsonl", "done"):
            (run / name).write_bytes(make_run()[name])
        path = Path(folder, "results.parquet")
        write_results_file(gather_results([folder]), path)
        return [path.read_bytes()]


@cache
def make_features() -> list[bytes]:
    """A matrix to predict on."""
    buffer = io.BytesIO()
    np.save(buffer, np.random.RandomState(0).rand(3, 64).astype(np.float32))
    return [buffer.getvalue()]


@cache
def make_npy() -> list[bytes]:
    """A matrix of features."""
    found = []
    for array in (np.arange(48.0).reshape(12, 4), np.asfortranarray(np.ones((12, 4), ">f4"))):
        buffer = io.BytesIO()
        np.save(buffer, array)
        found.append(buffer.getvalue())
    return found


@cache
def make_sweep() -> list[bytes]:
    """A sweep's file."""
    return [
        b'schema = 1\nplench = "0.1"\n\n[[grid]]\nalgorithms = ["PRODEN", "CC"]\ndatasets = ["Digits_FPS"]\n'
        b"n_hparams = 2\nn_trials = 1\nsteps = 10\nholdout_fraction = 0.1\n\n[grid.hparams]\nlr = 0.01\n\n"
        b'[fingerprints]\nDigits_FPS = "0123456789abcdef"\n'
    ]


@cache
def make_records() -> list[bytes]:
    """The records of a run."""
    return [make_run()["results.jsonl"]]


@cache
def make_description() -> list[bytes]:
    """A run.json, as it is written and on one line."""
    content = make_run()["run.json"]
    return [content, json.dumps(json.loads(content)).encode()]
