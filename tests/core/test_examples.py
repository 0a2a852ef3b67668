"""The scripts of examples/ run, and print what they say they do."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from plench.cli import main
from tests.conftest import skip_without

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "own_table.py": ["Rex: dog", "Hazel: "],
    "annotators.py": ["answers, ", "no true labels", "CR chooses", "['jazz' 'rock']"],
    "taxonomy.py": ["['tiger' 'fox']"],
    "embeddings.py": ["anger"],
    "own_network.py": ["done Digits_FPS-PRODEN", "stored with the run: network.py"],
    "own_criterion.py": ["MARGIN@", "% on Digits_FPS"],
    "own_dataset.py": ["done Rings@", "a point of the inner ring: 0"],
    "tensorboard_callback.py": ["done 1 file of events"],
    "text_annotators.py": ["of the messages are resolved", "delivery: ", "payment: ", "return: "],
    "images_encoder.py": ["of the images are resolved to their shape", "'disc': "],
    "label_studio.py": ["240 tasks, 453 answers", "['praise' 'complaint']"],
}


def require_tensorboard():
    if importlib.util.find_spec("tensorboard") is None:
        skip_without("tensorboard", "it is not installed")


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"`{name}`" in listed for name in SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_examples_run(name, tmp_path):
    if "tensorboard" in name:
        require_tensorboard()
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name), str(tmp_path / "made")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PLENCH_CACHE": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stderr
    for text in SAYS[name]:
        assert text in ran.stdout


@pytest.mark.parametrize("name", [name for name in sorted(SAYS) if name.startswith("own_")])
def test_the_commands_that_examples_name_run(name, tmp_path, monkeypatch):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for line in re.findall(r"^    plench (.*)$", text, re.MULTILINE):
        more = ["--steps", "3"] if line.startswith("train") else []
        assert main([*shlex.split(line), *more]) == 0
