"""Every algorithm against its vectors, through the code that training uses, and the folder of vectors."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from plench.algorithms import algorithms
from tests.conformance import (  # noqa: F401  (they declare their kinds)
    classical,
    frontier,
    harness,
    holistic,
    newer,
    vanilla,
)
from tests.conformance.harness import (
    KINDS,
    OUR_VECTORS,
    REFERENCES,
    VECTORS,
    Case,
    Kind,
    build,
    cases,
    fill_in,
    list_cases,
    run_adapter,
)
from tests.images import test_views
from tests.probe import batch_of, evaluate, set_state

TRAINED = [name for name, entry in algorithms().items() if entry.card.family != "classical"]
ALL_FILES = {f"{name}.json" for name in (*TRAINED, "VIEWS", "classical")}


def kinds_of(case: Case) -> list[Kind]:
    return KINDS[case.raw.get("method", case.algorithm)]


def check(case: Case) -> None:
    run_adapter(kinds_of(case), case)


@pytest.mark.parametrize("case", list_cases([*TRAINED, "classical"]))
def test_vector(case: Case) -> None:
    check(case)


def saturates(case: Case) -> bool:
    """Whether a non-candidate of CRDPLL's weak view has probability 1 in single precision."""
    if case.algorithm != "CRDPLL" or "confidence" not in case.inputs:
        return False
    probs = case.in_float32()["logits"][0].softmax(-1)
    return bool(((probs == 1) & ~case.mask("candidates")).any())


def needs_float64(case: Case) -> bool:
    """Whether a case is about double precision: updates of linear models, and p = 1 in GFWS's push."""
    return "batches" in case.inputs or "W" in case.inputs or (case.algorithm == "GFWS" and case.is_extreme())


# Single precision is held to its tolerance on our own vectors, where no choice is a close call.
OURS = [case for name in TRAINED for case in cases(name, OUR_VECTORS)]
SINGLE = [case for case in OURS if not (needs_float64(case) or saturates(case))]


@pytest.mark.parametrize("case", SINGLE, ids=repr)
def test_vector_in_float32(case: Case) -> None:
    check(case.in_float32())


def test_saturated_probability_in_float32() -> None:
    """There 1.0000001 is 1 + 2⁻²³, so a non-candidate at p = 1 costs 23 log 2 instead of 7 log 10."""
    (case,) = (case.in_float32() for case in OURS if saturates(case))
    candidates = case.mask("candidates")
    algorithm = build(case, candidates)
    set_state(algorithm, confidence=case["confidence"])
    losses, gradient = evaluate(algorithm, case["logits"], batch_of(candidates, case["logits"]))
    assert losses["loss_sup"].item() == pytest.approx(23 * math.log(2) / len(candidates), rel=1e-4)
    assert gradient.isfinite().all()


def test_extreme_logits_are_among_the_vectors() -> None:
    """CAVL and POP have no extreme cases of their own: their parts are those of PRODEN."""
    extreme = {case.algorithm for case in SINGLE if case.is_extreme()}
    vanilla_pll = {name for name in TRAINED if algorithms()[name].card.family == "vanilla PLL"}
    assert vanilla_pll - {"CAVL", "POP"} <= extreme


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_nn_has_no_loss_without_pairs(beta: float) -> None:
    candidates = torch.ones(3, 4, dtype=torch.bool)
    logits = torch.linspace(-2, 3, 12, dtype=torch.float64).reshape(3, 4)
    case = Case("NN", {"name": "without pairs", "inputs": {}, "expected": {}})
    losses, gradient = evaluate(build(case, candidates, beta=beta), logits, batch_of(candidates, logits))
    assert losses["loss"] == 0
    assert not gradient.any()


# The folder of vectors: ours is complete, another may lack files and name its cases as it likes -----------


def test_our_vectors_are_complete_and_every_file_is_read() -> None:
    assert {path.name for path in OUR_VECTORS.iterdir()} == ALL_FILES
    assert {path.name for path in VECTORS.glob("*.json")} <= ALL_FILES


def rename(content: dict[str, Any]) -> dict[str, Any]:
    """Return a file's content with its cases numbered, references between them included."""
    names = {case["name"]: f"case_{i}" for i, case in enumerate(content["cases"], start=1)}
    renamed = []
    for i, case in enumerate(content["cases"], start=1):  # methods that share a file may share names
        references = {key: names[case["inputs"][key]] for key in REFERENCES if key in case["inputs"]}
        renamed.append({**case, "name": f"case_{i}", "inputs": {**case["inputs"], **references}})
    return {**content, "cases": renamed}


@pytest.mark.parametrize("path", sorted(OUR_VECTORS.iterdir()), ids=lambda path: path.stem)
def test_cases_under_other_names(path: Path) -> None:
    raws = rename(json.loads(path.read_text(encoding="utf-8")))["cases"]
    by_name = {raw["name"]: raw for raw in raws}
    for raw in raws:
        case = Case(path.stem, fill_in(raw, by_name))
        run_adapter(test_views.KINDS if path.stem == "VIEWS" else kinds_of(case), case)


def test_a_folder_with_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "PC.json").write_bytes((OUR_VECTORS / "PC.json").read_bytes())
    monkeypatch.setattr(harness, "VECTORS", tmp_path)
    listed = {parameter.id: parameter.marks for parameter in list_cases(TRAINED)}
    skipped = {name for name, marks in listed.items() if [mark.name for mark in marks] == ["skip"]}
    assert skipped == {f"{name}:absent" for name in TRAINED if name != "PC"}
    assert {name.partition(":")[0] for name in listed.keys() - skipped} == {"PC"}


MADE_UP = [
    Kind(lambda case: case.check(sum=case["x"].sum()), "x", "sum"),
    Kind(lambda case: case.check(sum=(case["x"] * case["y"]).sum()), "x y", "sum lost"),
]


def make_case(inputs: dict[str, Any], expected: dict[str, Any]) -> Case:
    return Case("Any", {"name": "made", "inputs": inputs, "expected": expected, "rtol": 1e-9})


def test_the_kind_that_reads_most_inputs_is_taken() -> None:
    run_adapter(MADE_UP, make_case({"x": [1, 2]}, {"sum": 3}))
    run_adapter(MADE_UP, make_case({"x": [1, 2], "y": [3, 4]}, {"sum": 11}))
    with pytest.raises(AssertionError, match="Any:made: sum"):
        run_adapter(MADE_UP, make_case({"x": [1, 2], "y": [3, 4]}, {"sum": 3}))


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
        run_adapter(MADE_UP, make_case(inputs, expected))
