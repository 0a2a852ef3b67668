"""The scripts of examples/ run, and print what they say they do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "own_table.py": ["Rex: dog", "Hazel: "],
    "annotators.py": ["answers, ", "no true labels", "CR chooses", "['jazz' 'rock']"],
    "taxonomy.py": ["['tiger' 'fox']"],
    "embeddings.py": ["anger"],
}


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"`{name}`" in listed for name in SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_examples_run(name, tmp_path):
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name), str(tmp_path / "made")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    for text in SAYS[name]:
        assert text in ran.stdout
