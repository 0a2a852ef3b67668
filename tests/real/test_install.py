"""The wheel in a clean environment, used from outside the checkout."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from plench.cli import COMMANDS
from tests.conftest import ROOT

pytestmark = pytest.mark.real


def run(*command: object, cwd: Path, **options) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Build the wheel and install it, pinned, into a new virtual environment."""
    folder = tmp_path_factory.mktemp("clean")
    quiet = ("--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *quiet, "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("plench-*.whl")
    pinned = ("--constraint", ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", *quiet, *pinned, "torch", cwd=folder)
    run(python, "-m", "pip", "install", *quiet, *pinned, wheel, cwd=folder)
    return folder


def test_the_installed_command_trains_and_collects(environment):
    plench = environment / "venv" / "bin" / "plench"
    assert run(plench, "--version", cwd=environment).startswith("plench ")
    names = [row["name"] for row in json.loads(run(plench, "list", "algorithms", "--json", cwd=environment))]
    assert {"PRODEN", "CC", "LWS"} <= set(names)
    arguments = ("-a", "PRODEN", "-d", "Digits_FPS", "--steps", 200, "--checkpoint_freq", 100, "--json")
    outcome = json.loads(run(plench, "train", *arguments, "--output_dir", "runs", cwd=environment))
    assert outcome["status"] == "done"
    assert "PRODEN" in run(plench, "collect", "runs", cwd=environment)
    code = f"import plench; print(len(plench.load({outcome['folder']!r}, 'CR').predict([[0.0] * 64] * 3)))"
    assert run(environment / "venv" / "bin" / "python", "-c", code, cwd=environment) == "3\n"


def test_the_package_carries_its_type_marker(environment):
    code = "import plench, pathlib; print((pathlib.Path(plench.__file__).parent / 'py.typed').exists())"
    assert run(environment / "venv" / "bin" / "python", "-c", code, cwd=environment) == "True\n"


def test_every_command_works_from_another_folder(environment, tmp_path):
    plench = environment / "venv" / "bin" / "plench"
    listed = [
        line.split()[0] for line in run(plench, "--help", cwd=tmp_path).splitlines() if line[:4] == "    "
    ]
    commands = [name for name in listed if name in COMMANDS]
    assert set(commands) == set(COMMANDS)
    for name in commands:
        assert f"usage: plench {name}" in run(plench, name, "--help", cwd=tmp_path)
    found = json.loads(run(plench, "doctor", "--json", cwd=tmp_path))
    assert found["packages"]["torch"]
    run(plench, "demo", "--steps", 10, "--workers", 1, cwd=tmp_path)
    assert (tmp_path / "demo-results" / "site" / "index.html").exists()
    for words in (("stats",), ("compare-paper",), ("sweep", "best"), ("sweep", "status", "--output_dir")):
        run(plench, *words, "demo-results", cwd=tmp_path)


def test_what_needs_an_extra_says_how_to_get_it(environment, tmp_path):
    plench = environment / "venv" / "bin" / "plench"
    run(plench, "train", "-a", "CC", "-d", "Digits_FPS", "--steps", 4, cwd=tmp_path)
    done = subprocess.run(
        [str(plench), "export", "runs", "-o", "r.parquet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install pyarrow" in done.stderr


def test_the_sdist_builds_the_same_wheel(environment, tmp_path):
    code = f"import setuptools.build_meta as b; print(b.build_sdist({str(tmp_path)!r}))"
    copy = tmp_path / "checkout"
    shutil.copytree(
        ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv*", "build", "node_modules", "*.egg-info")
    )
    name = run(sys.executable, "-c", code, cwd=copy).splitlines()[-1]
    quiet = ("--quiet", "--disable-pip-version-check")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        *quiet,
        "--no-deps",
        "--wheel-dir",
        tmp_path,
        tmp_path / name,
        cwd=tmp_path,
    )
    (made,), (first,) = tmp_path.glob("plench-*.whl"), environment.glob("plench-*.whl")
    assert made.name == first.name
    assert sorted(ZipFile(made).namelist()) == sorted(ZipFile(first).namelist())
