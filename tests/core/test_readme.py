"""The README's Python runs as it stands, links lead somewhere, and no file goes without description."""

import re
import subprocess
import sys

import pytest

from plench.cli import COMMANDS
from tests.conftest import PARTS, ROOT

PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
ARCHITECTURE = "\n".join(
    (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in ("architecture.md", "modules.md", "internals.md")
)


def python_blocks():
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def run_python(folder, *words):
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_the_five_lines_of_python_run(tmp_path):
    assert len([line for line in python_blocks()[0].splitlines() if line]) == 5
    done = run_python(tmp_path, "-c", python_blocks()[0])
    assert re.match(r"\[(\d ?){5}\]\n", done.stdout), done.stdout
    assert "PRODEN" in done.stdout


def test_the_algorithm_of_the_readme_trains(tmp_path):
    (tmp_path / "my_method.py").write_text(python_blocks()[1])
    words = ["train", "-a", "my_method.py:MeanCandidate", "-d", "Digits_FPS", "--steps", "300"]
    done = run_python(tmp_path, "-m", "plench", *words)
    assert "done: " in done.stdout
    final = re.findall(r"step 299: .* test ([\d.]+)", done.stderr)
    assert float(final[0]) > 0.8


def test_pages_name_files_and_commands_that_exist():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if page.parent in (ROOT, ROOT / "docs"):
            links = re.findall(r"\]\(([^)#:]+)\)", text)
            assert [link for link in links if not page.parent.joinpath(link).exists()] == [], page
        named = re.findall(r"(?:^ {4}|`)plench ([a-z-]+)", text, re.MULTILINE)
        assert set(named) <= {*COMMANDS}, page


def modules_by_folder():
    """Return what the page on the architecture names: the modules of each folder's table."""
    parts = re.findall(r"^### `([\w/]+)/`\n(.*?)(?=^##)", ARCHITECTURE, re.DOTALL | re.MULTILINE)
    tables = {folder: re.findall(r"^\| (`.*?`) \|", part, re.MULTILINE) for folder, part in parts}
    return {folder: re.findall(r"`([^`]+)`", " ".join(rows)) for folder, rows in tables.items()}


def find_folder(name):
    return ROOT / "src" / "plench" / ("" if name == "plench" else name)


def test_the_counts_of_the_readme_are_those_of_the_measured_verdicts():
    """How often intervals held on real data: the sums over the datasets of the page."""
    page = (ROOT / "docs" / "results" / "verdict.md").read_text(encoding="utf-8")
    section = page.split("## On real data")[1].split("##")[0]
    held = [re.findall(r"(\d+) of (\d+)", line) for line in section.splitlines() if " of 8" in line]
    n_splits = sum(int(row[0][1]) for row in held)
    certain, uniform, confusable = (sum(int(row[kind][0]) for row in held) for kind in range(3))
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"{certain} of {n_splits} splits; uniform distractors held in {uniform}" in readme
    assert f"confusable ones in {confusable}, " in readme


def test_the_readme_says_what_the_study_found():
    page = (ROOT / "docs" / "results" / "study.md").read_text(encoding="utf-8")
    n_deep, n_classical, best = re.search(
        r"In the mean over 3 datasets, .* none of the other methods \((\d+) deep ones with MLP, \1 deep ones "
        r"with MLP_BN, (\d+) classical ones\) is detectably better than (.*)\.",
        page,
    ).groups()
    gain, n_methods = re.search(
        r"MLP_BN instead of MLP changes the mean .* by \+([\d.]+) \(\+.* of (\d+) methods gain", page
    ).groups()
    n_best, *gains = re.search(
        r"Among the (\d+) best the change is \+([\d.]+) \(.*\) on Lost, \+([\d.]+) .* on MSRCv2, "
        r"\+([\d.]+) .* on Birdsong",
        page,
    ).groups()
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    n_others = int(n_deep) + int(n_classical)
    assert f"none of {n_others} other methods is detectably better than {best}, and a batch " in readme
    assert f"adds {gain} points in the mean of {n_methods} methods" in readme
    early = re.search(r"After 2,000 steps with MLP, .*: GFWS \+([\d.]+) \(\+[\d.]+ to", page)[1]
    other = re.search(r"\| MLP\\_BN \| 2,000 \| 5 \| ([^|]*) \|", page)[1]
    assert f"after 2,000 steps, GFWS (2024) is {early} points ahead of PRODEN; with the" in readme
    assert "with the batch normalisation no lead is detectable" in readme
    assert "(−" in other, "the interval with MLP_BN holds 0"
    assert "(among the {} best {} on Lost, {} and {} on the others)".format(n_best, *gains) in readme


@pytest.mark.parametrize("folder", modules_by_folder())
def test_the_architecture_names_every_module(folder):
    named = modules_by_folder()[folder]
    existing = {path.stem for path in find_folder(folder).glob("*.py") if not path.stem.startswith("__")}
    existing |= {f"{path.name}/" for path in find_folder(folder).iterdir() if path.is_dir()}
    assert [name for name in named if name not in existing] == []
    if folder != "algorithms":  # its other files are papers
        missing = {name for name in existing if not name.endswith("/")} - set(named)
        assert sorted(missing) == []


def test_the_architecture_names_files_that_exist():
    assert {"plench", "data", "training", "runs", "report", "sweeps"} <= set(modules_by_folder())
    files = re.findall(r"`([a-z_]+/[\w/]*(?:\.py)?|[a-z_]+\.(?:py|bib))`", ARCHITECTURE)
    assert "training/loop.py" in files
    places = [ROOT, ROOT / "src" / "plench", *(find_folder(folder) for folder in modules_by_folder())]
    missing = [file for file in files if not any((place / file).exists() for place in places)]
    assert [file for file in missing if file != "plench/"] == []


def test_the_page_for_developers_names_every_benchmark_and_folder_of_tests():
    page = (ROOT / "docs" / "develop.md").read_text(encoding="utf-8")
    scripts = {path.name for path in (ROOT / "benchmarks").glob("*.py")} - {"__init__.py", "experiments.py"}
    assert [name for name in sorted(scripts) if f"`{name}`" not in page] == []
    folders = [path.name for path in (ROOT / "tests").iterdir() if list(path.glob("test_*.py"))]
    assert [name for name in folders if f"`{name}`" not in page] == []


def test_the_page_for_developers_names_every_part_that_tests_may_need():
    page = (ROOT / "docs" / "develop.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `PLENCH_REQUIRE` |"))
    assert ", ".join(f"`{part}`" for part in PARTS) in row
