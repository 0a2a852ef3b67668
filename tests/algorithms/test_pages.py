"""Pages and citations of the algorithms."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from plench.algorithms import algorithms, find_algorithm
from plench.algorithms.registry import PAPER
from plench.cli import main

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_pages.py"

# The keys of the methods after the benchmark's paper.
NEWER = {
    "PaPi": "xia2023towards",
    "GFWS": "chen2024general",
    "SCARCE": "wang2024learning",
    "RECORDS": "hong2023long",
    "CroSel": "tian2024crosel",
}
# Those of the paper's methods are the paper's own.
KEYS = {
    **NEWER,
    "PRODEN": "lv2020progressive",
    "CAVL": "zhang20222exploiting",
    "POP": "xu2023progressive",
    "ABS_MAE": "lv2024on",
    "ABS_GCE": "lv2024on",
    "EXP": "feng2020learning",
    "MCL_GCE": "feng2020learning",
    "MCL_MSE": "feng2020learning",
    "CC": "feng2020provably",
    "LWS": "wen2021leveraged",
    "IDGP": "qiao2023decompositional",
    "PC": "ishida2017learning",
    "Forward": "yu2018learning",
    "NN": "ishida2019complementary",
    "GA": "ishida2019complementary",
    "SCL_EXP": "chou2020unbiased",
    "SCL_NL": "chou2020unbiased",
    "L_W": "gao2021discriminative",
    "OP_W": "liu2023consistent",
    "VALEN": "xu2021instance",
    "PiCO": "wang2022pico",
    "ABLE": "xia2022ambiguity",
    "CRDPLL": "wu2022revisiting",
    "DIRK": "wu2024distilling",
    "FREDIS": "qiao2023fredis",
    "ALIM": "xu2023alim",
    "PiCO_plus": "wang2024picoplus",
}


@pytest.fixture(scope="module")
def make_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pages", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_up_to_date(make_pages: ModuleType) -> None:
    stale = [path.name for path in make_pages.find_stale(make_pages.render_pages())]
    assert stale == [], "run python scripts/make_pages.py"


@pytest.mark.parametrize("name", KEYS)
def test_page_has_notes_objective_and_citation(name: str, make_pages: ModuleType) -> None:
    assert (make_pages.NOTES / f"{name}.md").exists()
    page = make_pages.render_page(find_algorithm(name))
    objective = page.split("## Objective\n")[1].split("\n## ")[0]
    assert objective.strip()
    assert "epartur" not in objective
    assert page.split("\n\n")[2].startswith("*"), "the paper's title"
    for heading in ("## State and cost", "## Departures", "## Conformance", "```bibtex"):
        assert heading in page


def test_page_tells_the_protocols_noise_rates(make_pages: ModuleType) -> None:
    page = make_pages.render_page(find_algorithm("PiCO_plus"))
    assert "| `pure_ratio` | 1.0; 0.99868 (PLCIFAR10_Aggregate); 0.82444 (PLCIFAR10_Vaguest) |" in page


@pytest.mark.parametrize("name", KEYS)
def test_cite_prints_the_papers_key(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cite", name.lower().replace("_", "-")]) == 0
    entry = capsys.readouterr().out
    assert re.match(r"@\w+\{" + KEYS[name] + ",", entry)
    year = find_algorithm(name).card.venue.split()[-1]
    assert re.search(r"year\s*=\s*\{" + year + r"\}", entry)
    for field in ("title", "author"):
        assert re.search(rf"\b{field}\s*=\s*\{{", entry)


def test_cite_prints_a_shared_paper_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cite", "NN", "GA", "PC"]) == 0
    out = capsys.readouterr().out
    assert out.count("ishida2019complementary") == 1
    assert out.count("@inproceedings") == 2


def test_cite_of_an_unknown_name_offers_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cite", "PRODENN"]) == 2
    assert "PRODEN" in capsys.readouterr().err


def test_every_algorithm_of_the_paper_is_there() -> None:
    assert set(KEYS) - set(NEWER) == PAPER
    assert set(KEYS) == {n for n, entry in algorithms().items() if entry.source is None and entry.card.shared}
