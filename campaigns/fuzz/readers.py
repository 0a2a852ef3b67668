"""The readers under attack. To add one, add a `Reader` to READERS: nothing else has to know of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from campaigns.fuzz import mutations as m
from campaigns.fuzz import parquet_mutations as p
from campaigns.fuzz import samples as s
from campaigns.fuzz import value_mutations as v
from campaigns.fuzz.mutations import Mutation


@dataclass(frozen=True)
class Reader:
    """A way in which plench reads a file.

    `samples` gives good files. A damaged one is written to `place` in an empty folder, and `read` is called
    with that folder. `own` are mutations that know the format; those that fit any file are used besides.
    A slow reader gets fewer files.
    """

    name: str
    place: str
    samples: Callable[[], list[bytes]]
    read: Callable[[Path], object]
    own: tuple[Mutation, ...] = ()
    slow: bool = False


def load(name: str, data_dir: Path | None = None) -> object:
    """Load a dataset and draw its candidates, as every command does."""
    from plench.data import draw_candidates, load_dataset

    dataset = load_dataset(name, data_dir)
    return draw_candidates(dataset, dataset.card.candidates, 0).fingerprint


def read_npz(folder: Path) -> object:
    """A user's own arrays."""
    return load(str(folder / "mine.npz"))


def read_mat(folder: Path) -> object:
    """A tabular dataset."""
    return load("Lost", folder)


def read_annotations(folder: Path) -> object:
    """The candidate sets of PLCIFAR10, and what is made of them."""
    from plench.data.files import read_file
    from plench.data.sources.plcifar10 import parse_annotations, pick_vaguest, unite
    from plench.data.unpickle import read_pickle

    annotations = parse_annotations(read_pickle(read_file(folder / "plcifar10.pkl", "it"), "it"), 4, "it")
    return unite(annotations), pick_vaguest(annotations)


def read_batches(folder: Path) -> object:
    """CIFAR-10, one of whose files is damaged."""
    batches = folder / "cifar-10-batches-py"
    for name in (*(f"data_batch_{number}" for number in range(2, 6)), "test_batch"):
        shutil.copy(batches / "data_batch_1", batches / name)
    return load("CIFAR10", folder)


def read_tar(folder: Path) -> object:
    """CIFAR-10's archive."""
    return load("CIFAR10", folder)


def read_idx(folder: Path) -> object:
    """An IDX file, packed or not."""
    from plench.data.files import read_file
    from plench.data.sources.idx import read_idx

    return read_idx(read_file(folder / "images.gz", "it"), "it").sum()


def read_images(folder: Path) -> object:
    """A folder of images, one of which is damaged."""
    (image,) = folder.glob("x/*")
    (folder / "y").mkdir()
    shutil.copy(image, folder / "y" / image.name)
    return load(str(folder))


def write_run(folder: Path) -> Path:
    """Put the files of a good run beside the damaged one, which stays; return the run's folder."""
    run = folder / "run"
    run.mkdir(exist_ok=True)
    for name, content in s.make_run().items():
        if not (run / name).exists() and name != "done":
            (run / name).write_bytes(content)
    return run


def read_model(folder: Path) -> object:
    """A trained model, and what it predicts."""
    import numpy as np

    import plench

    return plench.load(write_run(folder)).predict(np.zeros((2, 64), np.float32))


def read_model_file(folder: Path) -> object:
    """A model in one file: what is told of it, and what it predicts."""
    import numpy as np

    import plench

    path = folder / "mine.plench"
    command("info", str(path))
    model = plench.load(path)
    if model.inputs.kind == "table":
        return model.predict({"width": [0.1, 2.0], "colour": ["red", "green"]})
    return model.predict(np.zeros((2, 64), np.float32))


def collect(folder: Path) -> object:
    """The table of two runs, one of which is damaged: it must be there whatever is wrong with one."""
    (folder / "other").mkdir()
    for name in ("run.json", "results.jsonl", "done"):
        (folder / "other" / name).write_bytes(s.make_run()[name])
    write_run(folder)
    (folder / "run" / "done").touch()
    return command("collect", str(folder))


def command(*arguments: str) -> object:
    """Run a command of plench in this process; what it refuses is our error here too."""
    from plench.cli import main
    from plench.errors import PlenchError

    code = main(list(arguments))
    if code not in (0, 1, 2):
        raise ValueError(f"exit code {code}")
    if code:
        raise PlenchError(f"exit code {code}")
    return code


def continue_run(folder: Path) -> object:
    """A run that was stopped and is continued."""
    from plench.algorithms import find_algorithm
    from plench.data import load_dataset
    from plench.training import configure_run, run_training

    run = write_run(folder)
    output = folder / "output"
    (output / s.run_name()).parent.mkdir()
    run.rename(output / s.run_name())
    entry, dataset = find_algorithm("PRODEN"), load_dataset("Digits_FPS")
    config = configure_run(entry, dataset.card, device="cpu", **s.RUN_SETTINGS)
    return run_training(config, dataset, entry, output)


def refit_run(folder: Path) -> object:
    """A run whose configuration is trained once more."""
    run = write_run(folder)
    (run / "done").write_bytes(s.make_run()["done"])
    return command("refit", str(run), "--output_dir", str(folder / "output"))


def read_sweep(folder: Path) -> object:
    """A sweep's file: the state of the runs it asks for, and the table of those there are."""
    shutil.copytree(write_run(folder), folder / s.run_name())
    shutil.rmtree(folder / "run")
    command("collect", str(folder))  # must not depend on it
    return command("sweep", "status", "--output_dir", str(folder))


def read_table(folder: Path) -> object:
    """A user's own table."""
    (table,) = folder.glob("mine.*")
    return load(str(table))


def read_results(folder: Path) -> object:
    """A file that `plench export` wrote."""
    return command("collect", str(folder / "results.parquet"))


def predict_on(folder: Path) -> object:
    """Features to predict on."""
    import plench
    from plench.cli.predict import read_data

    model = plench.load(write_run(folder))
    _, features = read_data(model, str(folder / "new.npy"))
    return model.predict(features)


def read_npy(folder: Path) -> object:
    """Features that stay on disk, with labels beside them."""
    import numpy as np

    np.save(folder / "labels.npy", np.arange(12) % 3)
    return load(str(folder / "features.npy"))


ZIP = (m.patch_zip, m.rarely(m.zip_bomb))
STATE = (*ZIP, v.forge_state, m.rebuild_zip(m.forge_pickle), m.rebuild_zip(m.flip))
PARQUET = (m.set_number, p.forge_parquet, p.forge_parquet, m.rarely(p.bomb_parquet))
GZIP_TAR = (m.within_gzip(m.forge_tar), m.within_gzip(m.flip), m.forge_tar, m.rarely(m.bomb))

READERS: tuple[Reader, ...] = (
    Reader(
        "npz", "mine.npz", s.make_npz, read_npz, (*ZIP, m.rebuild_zip(m.forge_npy), m.rebuild_zip(m.flip))
    ),
    Reader("mat", "lost.mat", s.make_mat, read_mat, (m.forge_mat,)),
    Reader("pickle", "plcifar10.pkl", s.make_annotations, read_annotations, (m.forge_pickle,)),
    Reader("cifar", "cifar-10-batches-py/data_batch_1", s.make_batches, read_batches, (m.forge_pickle,)),
    Reader("tar", "cifar-10-python.tar.gz", s.make_tars, read_tar, GZIP_TAR),
    Reader("idx", "images.gz", s.make_idx, read_idx, (m.set_number, m.rarely(m.bomb))),
    Reader("png", "x/a.png", lambda: s.make_images("PNG"), read_images, (m.forge_png,)),
    Reader("jpeg", "x/a.jpg", lambda: s.make_images("JPEG"), read_images),
    Reader("bmp", "x/a.bmp", lambda: s.make_images("BMP"), read_images, (m.set_number,)),
    Reader("ppm", "x/a.ppm", lambda: s.make_images("PPM"), read_images, (v.forge_text,)),
    Reader("webp", "x/a.webp", lambda: s.make_images("WEBP"), read_images, (m.set_number,)),
    Reader("csv", "mine.csv", s.make_tables, read_table, (v.forge_text, v.forge_table)),
    Reader("tsv", "mine.tsv", lambda: s.make_tables()[2:], read_table, (v.forge_text, v.forge_table)),
    Reader("parquet", "mine.parquet", s.make_parquet, read_table, PARQUET),
    Reader("results file", "results.parquet", s.make_export, read_results, PARQUET, slow=True),
    Reader("features to predict", "new.npy", s.make_features, predict_on, (m.forge_npy,), slow=True),
    Reader("npy", "features.npy", s.make_npy, read_npy, (m.forge_npy,)),
    Reader("sweep", "sweep-0.toml", s.make_sweep, read_sweep, (v.forge_toml, v.forge_text), slow=True),
    Reader("records", "run/results.jsonl", s.make_records, collect, (v.forge_json, v.forge_text), slow=True),
    Reader(
        "description", "run/run.json", s.make_description, collect, (v.forge_json, v.forge_text), slow=True
    ),
    Reader("description to load", "run/run.json", s.make_description, read_model, (v.forge_json,), slow=True),
    Reader(
        "description to continue",
        "run/run.json",
        s.make_description,
        continue_run,
        (v.forge_json,),
        slow=True,
    ),
    Reader("description to refit", "run/run.json", s.make_description, refit_run, (v.forge_json,), slow=True),
    Reader(
        "checkpoint",
        "run/checkpoint.pt",
        lambda: [s.make_run()["checkpoint.pt"]],
        continue_run,
        STATE,
        slow=True,
    ),
    Reader(
        "model",
        "run/model_last.pt",
        lambda: [s.make_run()["model_last.pt"]],
        read_model,
        STATE,
        slow=True,
    ),
    Reader(
        "model file",
        "mine.plench",
        s.make_model_files,
        read_model_file,
        (*ZIP, v.forge_model_file, v.forge_model_file, m.rebuild_zip(m.forge_npy), m.rebuild_zip(m.flip)),
    ),
)
