"""Observers of runs: what they are told, and that they cannot change a run."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import plench
from plench.cli import main
from plench.errors import UsageError
from tests.conftest import ROOT

RUN = ("PRODEN", "Digits_FPS")
OPTIONS = {"steps": 6, "checkpoint_freq": 2, "progress": False}
# Every run of a sweep notes its events in its own folder.
NOTING = """
import plench

class Noting(plench.Callback):
    def opened(self, folder):
        self.events = folder / "events.txt"
    def evaluated(self, record):
        with self.events.open("a") as file:
            print(record["step"], file=file)
    def ended(self, outcome):
        with self.events.open("a") as file:
            file.write(outcome.status)
"""


class Recorder(plench.Callback):
    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def opened(self, folder: Path) -> None:
        self.events.append(("opened", folder))

    def started(self, config, updates: int) -> None:
        self.events.append(("started", (config.algorithm, updates)))

    def evaluated(self, record) -> None:
        self.events.append(("evaluated", record["step"]))
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)

    def ended(self, outcome) -> None:
        self.events.append(("ended", outcome.status))


class Failing(Recorder):
    def started(self, config, updates: int) -> None:
        raise OSError("the tracker does not answer")


def read_losses(folder: Path) -> list[float]:
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_a_callback_sees_the_run_and_changes_nothing(tmp_path, caplog) -> None:
    alone = plench.train("DIRK", "Digits_FPS", tmp_path / "alone", **OPTIONS)
    watching, failing = Recorder(), Failing()
    watched = plench.train(
        "DIRK", "Digits_FPS", tmp_path / "watched", callbacks=[failing, watching], **OPTIONS
    )
    assert read_losses(watched.folder) == read_losses(alone.folder)
    assert watching.events == [
        ("opened", watched.folder),
        ("started", ("DIRK", 0)),
        *(("evaluated", step) for step in (0, 2, 4, 5)),
        ("ended", "done"),
    ]
    assert failing.events == [("opened", watched.folder)]
    assert caplog.text.count("Failing.started raised OSError") == 1


def test_an_algorithm_that_fails_ends_with_an_outcome(tmp_path) -> None:
    file = tmp_path / "raises.py"
    file.write_text(
        "from plench.algorithms import LossAlgorithm\n"
        "class Raises(LossAlgorithm):\n"
        "    def loss(self, logits, batch):\n        raise ValueError('no')\n"
    )
    watching = Recorder()
    plench.train(f"{file}:Raises", "Digits_FPS", tmp_path, callbacks=[watching], **OPTIONS)
    assert watching.events[-1] == ("ended", "failed")


def test_an_observer_with_three_methods_is_enough(tmp_path) -> None:
    class Short:
        seen = 0

        def started(self, config, updates: int) -> None: ...

        def advanced(self, updates: int, loss: float) -> None: ...

        def evaluated(self, record) -> None:
            self.seen += 1

    short = Short()
    assert plench.train(*RUN, tmp_path, callback=short, steps=3).status == "done"
    assert short.seen == 2


def test_every_run_of_a_sweep_has_its_own(tmp_path) -> None:
    (tmp_path / "noting.py").write_text(NOTING)
    spec = f"{tmp_path / 'noting.py'}:Noting"
    words = ["--algorithms", "CC", "--datasets", "Digits_FPS", "--n-hparams", "2", "--n-trials", "1"]
    words += ["--steps", "4", "--workers", "1", "--quiet", "--output-dir", str(tmp_path / "runs")]
    assert main(["sweep", "launch", *words, "--callback", spec]) == 0
    noted = [path.read_text() for path in tmp_path.glob("runs/*/events.txt")]
    assert noted == ["0\n3\ndone"] * 2
    words = ["-a", "CC", "-d", "Digits_FPS", "--steps", "3", "--output-dir", str(tmp_path / "one")]
    assert main(["train", *words, "--callback", spec]) == 0
    assert len(list(tmp_path.glob("one/*/events.txt"))) == 1


def test_a_sweep_shows_the_error_of_a_callback_once(tmp_path, cli) -> None:
    file = tmp_path / "failing.py"
    file.write_text(
        "import plench\nclass Failing(plench.Callback):\n"
        "    def evaluated(self, record):\n        raise OSError('no server')\n"
    )
    words = ["--algorithms", "CC", "--datasets", "Digits_FPS", "--n-hparams", "2", "--n-trials", "1"]
    words += ["--steps", "4", "--workers", "1", "--output-dir", str(tmp_path / "runs")]
    said = cli("sweep", "launch", *words, "--callback", f"{file}:Failing").err
    assert said.count("Failing.evaluated raised OSError('no server'); this callback is not called again") == 1
    assert said.count("done CC on Digits_FPS") == 2


def test_what_is_not_a_callback_is_refused(tmp_path) -> None:
    (tmp_path / "noting.py").write_text(NOTING.replace("(plench.Callback)", ""))
    with pytest.raises(UsageError, match=r"is not a subclass of plench\.Callback"):
        plench.sweep(*RUN, tmp_path / "runs", callbacks=[f"{tmp_path / 'noting.py'}:Noting"], progress=False)
    assert not (tmp_path / "runs").exists()


def test_the_page_lists_every_method() -> None:
    page = (ROOT / "docs" / "callbacks.md").read_text(encoding="utf-8")
    assert all(f"| `{name}(" in page for name in vars(plench.Callback) if not name.startswith("_"))
