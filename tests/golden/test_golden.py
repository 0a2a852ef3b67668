"""Golden runs give the numbers, identities and files that they gave when they were recorded."""

import json
from pathlib import Path

import pytest

from tests.golden.adapter import algorithm_names
from tests.golden.cases import ALGORITHMS, CASES, FITTED
from tests.golden.measure import measure
from tests.golden.recordings import (
    RUNS,
    conditions,
    find_differences,
    read_recording,
    recorded_conditions,
)

SHOWN = 20
FORESTS = ("ET_AVG", "ET_EM", "RF_AVG", "RF_EM")


@pytest.mark.parametrize("name", CASES)
def test_run_as_recorded(name: str, tmp_path: Path) -> None:
    """Bits where libraries and the processor's capability are those of the recording, else a tolerance."""
    case = CASES[name]
    now, before = conditions(case.fitted), recorded_conditions(case.fitted)
    if case.algorithm in FORESTS and now["sklearn"] != before["sklearn"]:
        pytest.skip(f"another scikit-learn than the recording's {before['sklearn']} may draw other trees")
    measured = json.loads(json.dumps(measure(case, tmp_path)))
    recorded = read_recording(RUNS / f"{name}.json")
    differences = find_differences(recorded, measured, 0 if now == before else case.rtol)
    assert not differences, "\n".join(differences[:SHOWN])


def test_every_algorithm_has_golden_runs() -> None:
    assert set(algorithm_names()) == {*ALGORITHMS, *FITTED}
    assert (len(ALGORITHMS), len(FITTED)) == (27 + 7, 12)
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
