"""The README's Python runs as it stands."""

import re
import subprocess
import sys

from tests.conftest import ROOT


def python_blocks():
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_five_lines_of_python_run(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", python_blocks()[0]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    predictions = re.fullmatch(r"\[(\d ?){5}\]\n", done.stdout)
    assert predictions, done.stdout


def test_the_algorithm_of_the_readme_trains(tmp_path):
    (tmp_path / "my_method.py").write_text(python_blocks()[1])
    command = ["train", "-a", "my_method.py:MeanCandidate", "-d", "Digits_FPS", "--steps", "300"]
    done = subprocess.run(
        [sys.executable, "-m", "plench", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "done: " in done.stdout
    final = re.findall(r"step 299: .* test ([\d.]+)", done.stderr)
    assert float(final[0]) > 0.8
