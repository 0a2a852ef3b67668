"""The documentation's site builds without a warning, has no dead link and asks no other host."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.real
def test_the_site_builds_and_stands_alone(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "make_docs.py"), "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no dead link" in done.stdout
    html = tmp_path / "html"
    for page in ("index", "cli", "api", "algorithms/PRODEN", "datasets/Lost", "criteria/CR", "networks/MLP"):
        assert (html / f"{page}.html").exists(), page
    assert "plench.train" in (html / "api.html").read_text(encoding="utf-8")
    assert "--checkpoint-freq" in (html / "cli.html").read_text(encoding="utf-8")
    assert (html / "searchindex.js").stat().st_size > 10_000
