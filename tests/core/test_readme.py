"""The README's Python runs as it stands, links lead somewhere, and no file goes without description."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from plench.cli import COMMANDS
from tests.conftest import ROOT


def python_blocks():
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_five_lines_of_python_run(tmp_path):
    assert len([line for line in python_blocks()[0].splitlines() if line]) == 5
    done = subprocess.run(
        [sys.executable, "-c", python_blocks()[0]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    predictions = re.match(r"\[(\d ?){5}\]\n", done.stdout)
    assert predictions, done.stdout
    assert "PRODEN" in done.stdout


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


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
)
def test_links_between_pages_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def modules_by_folder():
    """Return what the page on the architecture names: the modules of each folder's table."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    parts = re.findall(r"^### `([\w/]+)/`\n(.*?)(?=^##)", page, re.DOTALL | re.MULTILINE)
    tables = {folder: re.findall(r"^\| (`.*?`) \|", part, re.MULTILINE) for folder, part in parts}
    return {folder: re.findall(r"`([^`]+)`", " ".join(rows)) for folder, rows in tables.items()}


def find_folder(name):
    return ROOT / "src" / "plench" / ("" if name == "plench" else name)


def test_the_architecture_names_what_exists():
    named = modules_by_folder()
    assert len(named) > 6
    for folder, names in named.items():
        paths = [find_folder(folder) / (name if name.endswith("/") else f"{name}.py") for name in names]
        assert [path for path in paths if not path.exists()] == []
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = re.findall(r"`([a-z_]+/[\w/]*(?:\.py)?|[a-z_]+\.(?:py|bib))`", page)
    assert "training/run.py" in files
    places = [ROOT, ROOT / "src" / "plench", *(find_folder(folder) for folder in named)]
    missing = [file for file in files if not any((place / file).exists() for place in places)]
    assert [file for file in missing if file != "plench/"] == []


@pytest.mark.parametrize(
    "folder", ["plench", "algorithms/parts", "data", "training", "runs", "report", "sweeps"]
)
def test_the_architecture_names_every_module(folder):
    modules = [path.stem for path in find_folder(folder).glob("*.py") if not path.stem.startswith("__")]
    assert sorted(set(modules) - set(modules_by_folder()[folder])) == []


def test_pages_name_commands_that_exist():
    pages = [ROOT / "README.md", *Path(ROOT / "docs").rglob("*.md")]
    for page in pages:
        named = re.findall(r"(?:^ {4}|`)plench ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(named) <= {*COMMANDS}, page


def test_the_page_for_developers_names_every_benchmark_and_folder_of_tests():
    page = (ROOT / "docs" / "develop.md").read_text(encoding="utf-8")
    scripts = [path.name for path in (ROOT / "benchmarks").glob("*.py")]
    assert len(scripts) > 2
    assert [name for name in scripts if f"`{name}`" not in page] == []
    folders = [path.name for path in (ROOT / "tests").iterdir() if list(path.glob("test_*.py"))]
    assert [name for name in folders if f"`{name}`" not in page] == []
