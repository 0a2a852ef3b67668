"""The wheel in a clean environment, used from outside the checkout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
