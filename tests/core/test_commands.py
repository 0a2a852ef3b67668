"""Every command of README and docs: parsed by the real parsers, and run, shortened.

The rule of shortening is `shorten`: 12 updates, one configuration, one split, one worker, the algorithm CC
where a suite or all algorithms are meant, and no measuring beforehand. FOLDER stands for the first run there
on the table of animals. What is not run is in NOT_RUN, with the reason.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from plench.cli import build_parser, main, spell_flags
from tests.conftest import ROOT
from tests.core.test_readme import python_blocks
from tests.data.test_sources import write_mat

NOT_RUN = {
    r"^(make|pip|git) ": "works on the checkout or on the environment that the tests themselves run in",
    r"^python -m campaigns": "tests/training/test_soak.py runs it",
    r"^plench data download": "fetches from the network; tests/data/test_download.py has a server of its own",
    r"PLCIFAR10": "needs 170 MB of images; tests/images has small ones",
    r"path/to/": "stands for a folder of the reader's",
    r"--command-launcher (slurm|ray)": "needs a cluster; tests/sweep has both",
    r"--callback|^tensorboard": "the file is the reader's; tests/training/test_callbacks.py runs such ones",
    r"MiniLM": "needs weights of 90 MB; tests/data/test_encoders.py has them",
    r"--every": "does not end by itself; tests/report covers it",
    r"items\.csv|sightings\.csv|mine\.npz": "needs files that examples/ makes; its scripts are run by tests",
    r"svm\.py": "the file stands on the page; tests/algorithms/test_classical.py runs its like",
    r"^plench results submit|my_method\.py:MyMethod": "tests/results/test_verify.py goes the whole way",
    r"--annotators": "the table has none; tests/estimator has some",
    r"more_runs/": "a second folder like the first",
    r"^plench sweep refit +runs( |$)": "the folder has several settings by then",
    r"^plench results verify results\.parquet": "repeats runs; see tests/results/test_verify.py",
    r"--suite (extended|tabular)": "tens of thousands of runs",
    r"bench step -a all": "minutes for each algorithm; one is run",
}
SHORT = {"--steps": "12", "--checkpoint-freq": "6"}
ONE = {"--n-hparams": "1", "--n-trials": "1", "--workers": "1"}


def list_commands() -> list[tuple[str, str]]:
    """Return (page, command) of every indented line that is one, comments cut off."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = []
    for page in pages:
        if "notes" in page.parts:
            continue
        for line in page.read_text(encoding="utf-8").splitlines():
            match = re.match(r" {4,}((?:plench|python -m|make|pip|git) .*)$", line)
            if match:
                name = page.relative_to(ROOT).as_posix()
                found.append((name, re.sub(r"\s+#.*$", "", match[1])))
    return found


COMMANDS = list_commands()


def find_reason(command: str) -> str | None:
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, command)), None)


def shorten(words: list[str]) -> list[str]:
    """Return a command's words so that it takes seconds; see the top of this file."""
    command, options = words[0], {}
    if command == "train":
        options |= SHORT
    if command == "demo":
        options |= {"--steps": "12", "--workers": "1"}
    if command == "fit":
        options |= {"--steps": "12", "--n-runs": "2"}
        words = [word for word in words if word not in ("--time", "60")]
    if words[:2] in (["sweep", "launch"], ["sweep", "plan"], ["sweep", "pilot"]):
        options |= SHORT | ONE
    if words[:2] == ["sweep", "plan"]:
        options["--probe-seconds"] = "0"
    if words[:2] == ["sweep", "retry"]:
        options["--workers"] = "1"
    if "--suite" in words:
        options["--algorithms"] = "CC"
    if command == "bench":
        options |= {"--repeats": "1", "--runs": "5", "--steps": "5", "--workers": "1", "-a": "CC"}
        words = ["Synthetic_2000" if word == "Synthetic_1000000" else word for word in words]
        words = [word for word in words if word not in ("sweep", "image")]
    for name, value in options.items():
        if name in words:
            start = words.index(name) + 1
            end = next((i for i in range(start, len(words)) if words[i].startswith("-")), len(words))
            words = [*words[:start], value, *words[end:]]
        else:
            words = [*words, name, value]
    return words


def run_shortened(command: str) -> int:
    words = shlex.split(command)
    if words[:2] == ["python", "-m"]:
        more = ["--steps", "12"] if words[2] == "plench.train" else []
        return subprocess.run([sys.executable, *words[1:], *more], check=False).returncode
    words = shorten(words[1:])
    for place, word in enumerate(words):
        if word.endswith("/FOLDER"):
            parent = Path(word).parent
            folders = sorted(parent.glob("animals*/done")) or sorted(parent.glob("*/done"))
            words[place] = str(folders[0].parent)
    if words[:2] == ["sweep", "refit"] and "-d" not in words and "animals" in words[2]:
        words += ["-d", "animals.csv"]  # what came by path must be named; that of the pages did not
    return main(words)


def prepare(folder: Path) -> None:
    """Make what the pages speak of: a table, new rows, an algorithm, data files, a few runs."""
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'cat|dog' if a > 0 else 'dog|cow'}" for a, b in rng.normal(size=(400, 2))]
    (folder / "animals.csv").write_text("weight,height,candidates\n" + "\n".join(rows) + "\n")
    (folder / "new.csv").write_text("weight,height\n0.5,0.1\n-1,0.2\n")
    (folder / "my_method.py").write_text(python_blocks()[1])
    shutil.copy(ROOT / "tests" / "fixtures" / "exports" / "label_studio.json", folder / "export.json")
    (folder / "data").mkdir()
    for name in ("lost.mat", "MSRCv2.mat"):
        write_mat(folder / "data" / name)


def runs_for(page: str, folder: Path) -> None:
    """Make the folder `runs`, and a file of measurements, where a page takes them as given."""
    datasets = "Lost MSRCv2 --data-dir data" if page == "docs/figures.md" else "animals.csv"
    sweep = f"--algorithms CC LWS PRODEN --datasets {datasets} --n-hparams 1 --n-trials 1 --steps 12"
    words = f"sweep launch {sweep} --checkpoint-freq 6 --workers 1 --quiet --output-dir runs"
    assert main(shlex.split(words)) == 0
    (folder / "step.json").write_text('{"rows": [{"algorithm": "CC", "dataset": "Lost", "ms": 1.0}]}')


def test_commands_are_found_and_reasons_are_needed():
    assert len(COMMANDS) > 90
    for pattern in NOT_RUN:
        assert any(re.search(pattern, command) for _, command in COMMANDS), pattern


@pytest.mark.parametrize(("page", "command"), sorted(set(COMMANDS)))
def test_commands_are_understood(page, command):
    words = shlex.split(command)
    if words[0] != "plench":
        assert find_reason(command) or words[:2] == ["python", "-m"]
        return
    build_parser().parse_args(spell_flags(words[1:]))


@pytest.mark.real
@pytest.mark.parametrize("page", sorted({page for page, _ in COMMANDS}))
def test_commands_of_a_page_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    wanted = [command for name, command in COMMANDS if name == page and find_reason(command) is None]
    if not wanted:
        pytest.skip("all commands of this page are in NOT_RUN")
    runs_for(page, tmp_path)
    for command in wanted:
        assert run_shortened(command) == 0, f"{command}\n{capsys.readouterr()}"
