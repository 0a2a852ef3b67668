"""The scripts of examples/ run, and print what they say they do."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys

import pytest

from plench.cli import main
from tests.conftest import ROOT, skip_without

EXAMPLES = ROOT / "examples"
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
    "images_encoder.py": ["of the images are resolved to their shape", "new images of a disc: "],
    "prediction_sets.py": ["accuracy on new rows: 8", "asked  candidate sets", "95%    100.0% "],
    "label_studio.py": ["240 tasks, 453 answers", "['praise' 'complaint']"],
    "audit.py": ["on 50 labelled rows, exact 95 % interval", "accuracy on 20,000 new shells: 0.7"],
    "relabel.py": ["66 of 1,797 sets miss the truth", "the first 20 rows on the list: 19 of them"],
    "own_algorithm.py": ["0 failed, 0 with advice", "Tempered@", "PRODEN: 9"],
    "learning_curves.py": ["PRODEN: test accuracy 8", "EXP: test accuracy 8"],
    "two_methods.py": ["usual t-test: ", "corrected t-test: ", "PRODEN     CAVL"],
    "ray_sweep.py": ["2 of 2 repeated runs agree", "24 runs; chosen by the covering rate"],
    "read_study.py": [" records of ", "median gain: "],
}


NEEDS = {"tensorboard_callback.py": "tensorboard", "ray_sweep.py": "ray"}


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"`{name}`" in listed for name in SAYS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.real) if "ray" in name else name for name in sorted(SAYS)]
)
def test_examples_run(name, tmp_path):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        skip_without(NEEDS[name], "it is not installed")
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


@pytest.fixture(scope="module")
def gallery():
    spec = importlib.util.spec_from_file_location("make_gallery", ROOT / "scripts" / "make_gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_of_the_gallery_have_the_code_of_their_scripts(gallery):
    folder = ROOT / "docs" / "gallery"
    pages = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    assert set(pages) == {"index", *gallery.GALLERY}
    assert pages.pop("index") == gallery.write_index(), "run python scripts/make_gallery.py"
    for name, page in pages.items():
        source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        output = page.rpartition("## Output\n\n```text\n")[2].removesuffix("\n```\n")
        assert page == gallery.write_page(name, source, output), f"run python scripts/make_gallery.py {name}"


def test_pictures_of_the_gallery_are_small_and_described(gallery):
    folder = ROOT / "docs" / "gallery"
    for name in gallery.GALLERY:
        text = gallery.alternative_text((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
        assert len(text) > 60
        assert (folder / f"{name}.png").stat().st_size <= gallery.LARGEST
        assert (folder / "thumbnails" / f"{name}.png").stat().st_size <= gallery.LARGEST
    assert sum(path.stat().st_size for path in folder.rglob("*.*")) < 1_500_000
