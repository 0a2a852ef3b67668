"""Golden runs give the numbers, identities and files that they gave when they were recorded."""

import json
from pathlib import Path

import pytest

from tests.golden.adapter import algorithm_names
from tests.golden.cases import ALGORITHMS, CASES
from tests.golden.measure import measure
from tests.golden.recordings import CONDITIONS, RUNS, conditions, find_differences, read_recording

SHOWN = 20


@pytest.mark.parametrize("name", CASES)
def test_run_as_recorded(name: str, tmp_path: Path) -> None:
    """Bits where torch and the processor's capability are those of the recording, else rtol 1e-4."""
    same = json.loads(CONDITIONS.read_text(encoding="utf-8")) == conditions()
    now = json.loads(json.dumps(measure(CASES[name], tmp_path)))
    differences = find_differences(
        read_recording(RUNS / f"{name}.json"), now, 0 if same else CASES[name].rtol
    )
    assert not differences, "\n".join(differences[:SHOWN])


def test_every_algorithm_has_golden_runs() -> None:
    assert set(algorithm_names()) == set(ALGORITHMS)
    assert len(ALGORITHMS) == 27 + 5
    assert {path.stem for path in RUNS.glob("*.json")} == set(CASES)


def test_a_difference_is_found() -> None:
    recorded = {"records": [{"loss": 1.0, "step": 3}], "tensors_sha256": "a", "names_sha256": "b"}
    near = {"records": [{"loss": 1.00001, "step": 3}], "tensors_sha256": "c", "names_sha256": "b"}
    assert find_differences(recorded, near, rtol=1e-4) == []
    assert find_differences(recorded, near, rtol=0) == [
        ".records[0].loss: 1.0 → 1.00001",
        ".tensors_sha256: 'a' → 'c'",
    ]
    far = {"records": [{"loss": 1.001, "step": 4}], "tensors_sha256": "a", "names_sha256": "d"}
    assert len(find_differences(recorded, far, rtol=1e-4)) == 3
    assert find_differences(recorded, {**near, "new": 1}, rtol=1e-4) != []
