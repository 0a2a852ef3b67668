"""The campaign of faults: what it damages is damaged, what differs is seen, and a few rounds lose nothing."""

import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from campaigns.faults import ALL
from campaigns.folders import DAMAGES, compare, damage
from campaigns.soak import choose_kind, deal

from tests.conftest import ROOT

TEXT = '{"a": 1}\n{"b": 2}\n'
CALM = {
    "status": "done",
    "ended": True,
    "records": [{"step": 0, "loss": 1.0}, {"step": 1, "loss": 0.5}],
    "models": {"model_CR.pt": "a", "model_last.pt": "b"},
    "left": [],
}


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        ({"records": CALM["records"][:1]}, "1 records, not 2"),
        ({"records": [*CALM["records"], {}]}, "3 records, not 2"),
        ({"records": [CALM["records"][0], {"step": 1, "loss": 0.6}]}, "the record of step 1 changed"),
        ({"models": {"model_CR.pt": "a"}}, "model_last.pt lost"),
        ({"models": {"model_CR.pt": "c", "model_last.pt": "b"}}, "model_CR.pt changed"),
        ({"status": "failed"}, "status 'failed', not 'done'"),
        ({"left": ["checkpoint.pt"]}, "left ['checkpoint.pt'], not []"),
    ],
)
def test_differences_are_seen(found: dict[str, object], difference: str) -> None:
    assert compare(CALM, CALM) == []
    assert compare(CALM, {**CALM, **found}) == [difference]


@pytest.mark.parametrize("how", DAMAGES)
def test_every_damage_changes_the_file(how: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "run.json").write_text("another run's")
    for attempt in range(10):
        path = tmp_path / f"{attempt}" / "run.json"
        path.parent.mkdir()
        path.write_text(TEXT)
        damage(path, how, Random(attempt), other)
        assert not path.is_file() or path.read_text(errors="replace") != TEXT


def test_algorithms_are_dealt_until_all_have_come() -> None:
    from plench.sweeps.plan import own_algorithms

    assert {*ALL} == {*own_algorithms(lambda card: True)}
    dealt = [deal(ALL, 5, place) for place in range(2 * len(ALL))]
    assert sorted(dealt[: len(ALL)]) == sorted(dealt[len(ALL) :]) == sorted(ALL)
    assert dealt[: len(ALL)] != dealt[len(ALL) :]
    kinds = [choose_kind(number, 25) for number in range(100)]
    assert (kinds.count("sweep"), kinds.count("stack")) == (4, 12)
    assert "sweep" not in [choose_kind(number, 0) for number in range(100)]


def test_stacked_runs_are_compared_to_rounding() -> None:
    calm = {**CALM, "records": [{"step": 0, "loss": 1.0, "test_acc": 0.5}]}
    near = {**calm, "records": [{"step": 0, "loss": 1.0001, "test_acc": 0.51}], "models": {**CALM["models"]}}
    near["models"]["model_CR.pt"] = "c"
    assert compare(calm, near, exactly=False) == []
    for found, difference in (
        ({"records": [{"step": 0, "loss": 1.1, "test_acc": 0.5}]}, "the record of step 0 changed"),
        ({"records": []}, "0 records, not 1"),
        ({"models": {"model_CR.pt": "a"}}, "model_last.pt lost"),
        ({"status": "failed"}, "status 'failed', not 'done'"),
    ):
        assert compare(calm, {**near, **found}, exactly=False) == [difference]


def test_the_page_on_trust_has_the_figures_of_the_last_campaign() -> None:
    page = (ROOT / "docs" / "results" / "soak.md").read_text(encoding="utf-8")
    text = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    counts = re.search(r"\n([\d,]+) runs.*? with ([\d,]+) faults", page)
    lost = re.search(r"\*\*([\d,]+) lost or changed anything", page)
    assert counts
    assert lost
    assert f"soak.md): {counts[1]} runs, stacks and sweeps with {counts[2]} faults; {lost[1]} lost" in text


@pytest.mark.real
def test_a_few_rounds_lose_nothing(tmp_path: Path) -> None:
    words = ["--rounds", "12", "--seconds", "280", "--seed", "4", "--sweep_every", "0"]
    command = [sys.executable, "-m", "campaigns.soak", *words, "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    figures = json.loads((tmp_path / "soak.json").read_text())
    assert figures["findings"] == []
    assert done.returncode == 0, done.stderr
    assert 0 < figures["rounds"] <= 12
    assert sum(figures["faults"].values()) > 0
    assert (tmp_path / "soak.md").read_text() in done.stdout
