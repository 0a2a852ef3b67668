"""The folder of vectors: ours is complete, another may lack files and name its cases as it likes."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from plench.algorithms import algorithms
from tests.conformance.harness import OUR_VECTORS, REFERENCES, VECTORS, Case, Kind, run_adapter

ROOT = Path(__file__).parents[2]
READERS = [
    *sorted(str(path) for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)),
    str(ROOT / "tests" / "images" / "test_views.py"),
]
# The classical methods share one file.
TRAINED = [name for name, entry in algorithms().items() if entry.card.family != "classical"]
ALL_FILES = {f"{name}.json" for name in (*TRAINED, "VIEWS", "classical")}


def test_our_vectors_are_complete() -> None:
    assert {path.name for path in OUR_VECTORS.iterdir()} == ALL_FILES


def test_every_file_is_read() -> None:
    assert {path.name for path in VECTORS.glob("*.json")} <= ALL_FILES


def run_on(folder: Path, results: Path) -> dict[str, Counter[str]]:
    """Run the conformance tests on a folder; return the outcomes of `test_vector`, counted by case."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={results}"]
    environment = {**os.environ, "PLENCH_CONFORMANCE": str(folder)}
    done = subprocess.run(
        [*command, *READERS], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    outcomes: dict[str, Counter[str]] = {"passed": Counter(), "skipped": Counter()}
    for test in ElementTree.parse(results).iter("testcase"):
        function, _, case = test.attrib["name"].removesuffix("]").partition("[")
        if function == "test_vector":
            outcomes["skipped" if test.find("skipped") is not None else "passed"][case] += 1
    return outcomes


def rename(content: dict[str, Any]) -> dict[str, Any]:
    """Return a file's content with its cases numbered, references between them included."""
    names = {case["name"]: f"case_{i}" for i, case in enumerate(content["cases"], start=1)}
    cases = []
    for i, case in enumerate(content["cases"], start=1):  # methods that share a file may share names
        references = {key: names[case["inputs"][key]] for key in REFERENCES if key in case["inputs"]}
        cases.append({**case, "name": f"case_{i}", "inputs": {**case["inputs"], **references}})
    return {**content, "cases": cases}


def test_cases_under_other_names(tmp_path: Path) -> None:
    folder = tmp_path / "renamed"
    folder.mkdir()
    expected = set()
    for path in OUR_VECTORS.iterdir():
        content = rename(json.loads(path.read_text(encoding="utf-8")))
        (folder / path.name).write_text(json.dumps(content), encoding="utf-8")
        expected |= {f"{path.stem}:{case['name']}" for case in content["cases"]}
    outcomes = run_on(folder, tmp_path / "results.xml")
    assert set(outcomes["passed"]) == expected
    assert not outcomes["skipped"]


def test_a_folder_with_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "single"
    folder.mkdir()
    (folder / "PC.json").write_bytes((OUR_VECTORS / "PC.json").read_bytes())
    outcomes = run_on(folder, tmp_path / "results.xml")
    assert {name.partition(":")[0] for name in outcomes["passed"]} == {"PC"}
    absent = {f"{name.removesuffix('.json')}:absent" for name in ALL_FILES - {"PC.json"}}
    assert outcomes["skipped"] == Counter(absent)


KINDS = [
    Kind(lambda case: case.check(sum=case["x"].sum()), "x", "sum"),
    Kind(lambda case: case.check(sum=(case["x"] * case["y"]).sum()), "x y", "sum lost"),
]


def make_case(inputs: dict[str, Any], expected: dict[str, Any]) -> Case:
    return Case("Any", {"name": "made", "inputs": inputs, "expected": expected, "rtol": 1e-9})


def test_the_kind_that_reads_most_inputs_is_taken() -> None:
    run_adapter(KINDS, make_case({"x": [1, 2]}, {"sum": 3}))
    run_adapter(KINDS, make_case({"x": [1, 2], "y": [3, 4]}, {"sum": 11}))
    with pytest.raises(AssertionError, match="Any:made: sum"):
        run_adapter(KINDS, make_case({"x": [1, 2], "y": [3, 4]}, {"sum": 3}))


@pytest.mark.parametrize(
    ("inputs", "expected", "message"),
    [
        ({"a": 1, "b": 2}, {"sum": 3}, r"fits no adapter.*\['a', 'b'\].*\['sum'\]"),
        ({"x": [1, 2]}, {"sum": 3, "mean": 1.5}, r"fits no adapter.*\['x'\].*\['mean', 'sum'\]"),
        ({"x": [1, 2], "y": [1, 1]}, {"sum": 3, "lost": 0}, r"nothing was compared with \['lost'\]"),
        ({"x": [1, 2]}, {}, "nothing was compared"),
    ],
)
def test_nothing_goes_unchecked(inputs: dict[str, Any], expected: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        run_adapter(KINDS, make_case(inputs, expected))
