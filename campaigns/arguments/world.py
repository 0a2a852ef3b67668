"""A folder for commands to work in: finished, failed and broken runs, tables, arrays, images, a pipe."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

OWN = '''
"""Algorithms of somebody else."""
from plench.algorithms import LossAlgorithm, register

@register("Mean")
class Mean(LossAlgorithm):
    """Cross entropy averaged over the candidates."""

    def loss(self, logits, batch):
        weights = batch.candidates / batch.candidates.sum(-1, keepdim=True)
        return -(weights * logits.log_softmax(-1)).sum(-1).mean()

@register("Failing")
class Failing(Mean):
    """Fails at once."""

    def loss(self, logits, batch):
        raise RuntimeError("on purpose")
'''
SWEEP = (
    'schema = 1\n[[grid]]\nalgorithms = ["PRODEN", "CC"]\ndatasets = ["Digits_FPS"]\nn_hparams = 2\n'
    "n_trials = 2\nsteps = 3\ncheckpoint_freq = 1\n"
)


def make_world(folder: Path) -> None:
    """Fill a folder."""
    import numpy as np

    import plench
    from plench.cli import main

    folder.mkdir(parents=True)
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    random = np.random.RandomState(0)
    labels = np.arange(60) % 3
    candidates = (random.rand(60, 3) < 0.4) | (labels[:, None] == np.arange(3))
    np.savez(folder / "small.npz", features=random.rand(60, 4), candidates=candidates, labels=labels)
    np.save(folder / "new.npy", random.rand(3, 64).astype(np.float32))
    sets = ("dog|emu", "cat|dog", "cat|dog")
    rows = [f"{i / 7:.3f},{('blue', 'red')[i % 2]},{sets[i % 3]},dog" for i in range(40)]
    (folder / "mine.csv").write_text(
        "width,colour,candidates,truth\n" + "\n".join(rows) + "\n", encoding="utf-8"
    )
    make_images(folder / "images")
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    for name in ("x.npz", "x.py", "sweep.toml", "run.json", "results.jsonl"):
        (folder / "broken" / name).write_bytes(b"\x00[{broken")
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.py")
    cost = {"dataset": "Lost", "algorithm": "PRODEN", "ms": 1.0}
    (folder / "costs.json").write_text(json.dumps([cost]), encoding="utf-8")
    runs = folder / "runs"
    for algorithm in ("PRODEN", "CC", f"{folder / 'own.py'}:Mean", f"{folder / 'own.py'}:Failing"):
        for trial in (0, 1):
            plench.train(algorithm, "Digits_FPS", runs, steps=3, checkpoint_freq=1, trial_seed=trial)
    shutil.copytree(next(runs.glob("*PRODEN*")), folder / "one")
    plench.load(folder / "one").save(folder / "model.plench")
    (runs / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    shutil.copy(runs / "sweep.toml", runs / "sweep-0.toml")
    shutil.copytree(folder / "broken", runs / "broken")
    if main(["export", str(runs), "-o", str(folder / "results.parquet")]):
        raise SystemExit("the world's runs cannot be exported")


def make_images(folder: Path) -> None:
    """Make a folder of a few small images in two classes."""
    import numpy as np
    from PIL import Image

    random = np.random.RandomState(0)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            pixels = random.randint(0, 256, (8, 8, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


class Scene:
    """The copy of a world in which a command works. It is made anew only if the one before changed it."""

    def __init__(self, world: Path, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.place = folder / "here" / "world"
        self.seen: dict[str, tuple[int, ...]] | None = None

    def set_up(self) -> Path:
        """Return the folder to work in, as it has to be."""
        if self.seen is None or self.look() != self.seen:
            shutil.rmtree(self.folder, ignore_errors=True)
            copy_world(self.world, self.place)
            self.seen = self.look()
        return self.place

    def look(self) -> dict[str, tuple[int, ...]]:
        """Return what tells a file that was written from one that was not."""
        found = {}
        for place, _, names in os.walk(self.folder):
            for path in (place, *(os.path.join(place, name) for name in names)):
                state = os.lstat(path)
                found[path] = (state.st_ino, state.st_mode, state.st_size, state.st_mtime_ns)
        return found


def copy_world(world: Path, to: Path) -> None:
    """Copy a world with its pipes."""
    for place, folders, names in os.walk(world):
        here = to / Path(place).relative_to(world)
        here.mkdir(parents=True, exist_ok=True)
        folders.sort()
        for name in names:
            source = Path(place, name)
            if source.is_file():
                shutil.copy(source, here / name)
            else:
                os.mkfifo(here / name)
