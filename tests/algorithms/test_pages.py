"""Pages and citations of the algorithms, compared with the benchmark paper and the specifications."""

import importlib.util
import json
import re
from importlib.resources import files
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from plench.algorithms import algorithms, find_algorithm
from plench.algorithms.registry import PAPER
from plench.runs.sweep_spec import Grid
from tests.conftest import ROOT

SCRIPT = ROOT / "scripts" / "make_pages.py"

# The keys of the methods after the benchmark's paper.
NEWER = {
    "PaPi": "xia2023towards",
    "GFWS": "chen2024general",
    "SCARCE": "wang2024learning",
    "RECORDS": "hong2023long",
    "CroSel": "tian2024crosel",
    "VIPLL": "fuchs2025amortized",
    "CEL": "yang2025mixed",
}
ON_BATCHES = [name for name, entry in algorithms().items() if entry.card.shared]
CLASSICAL = [name for name, entry in algorithms().items() if entry.card.family == "classical"]
VENUES = {
    "NeurIPS": "Advances in Neural Information Processing Systems",
    "ICML": "International Conference on Machine Learning",
    "ICLR": "International Conference on Learning Representations",
    "ECCV": "European Conference on Computer Vision",
    "AISTATS": "International Conference on Artificial Intelligence and Statistics",
    "CVPR": "IEEE/CVF Conference on Computer Vision and Pattern Recognition",
    "AAAI": "AAAI Conference on Artificial Intelligence",
    "IJCAI": "International Joint Conference on Artificial Intelligence",
    "KDD": "ACM SIGKDD Conference on Knowledge Discovery and Data Mining",
    "arXiv": "arXiv preprint arXiv:2510.21300",
    "TPAMI": "IEEE Transactions on Pattern Analysis and Machine Intelligence",
}
# The specifications give no authors of these, or, of CEL, in another order than the paper.
WITHOUT_AUTHORS = ("FREDIS", "ALIM", "PiCO_plus", "CEL")


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


@pytest.mark.parametrize("name", ON_BATCHES)
def test_page_has_notes_objective_and_citation(name: str, make_pages: ModuleType) -> None:
    assert (make_pages.NOTES / f"{name}.md").exists()
    page = make_pages.render_page(find_algorithm(name))
    objective = page.split("## Objective\n")[1].split("\n## ")[0]
    assert objective.strip()
    assert "epartur" not in objective
    assert page.split("\n\n")[2].startswith("*"), "the paper's title"
    for heading in ("## State and cost", "## Departures", "## Conformance", "```bibtex"):
        assert heading in page


def test_a_chart_has_complete_cells_of_one_setting(make_pages: ModuleType) -> None:
    """A cell counts once all planned runs of the setting are there; other lengths do not count."""
    grid = Grid(("CC",), ("Lost",), n_hparams=2, n_trials=2, steps=10)

    def made_up(steps: int, trial: int, configuration: int) -> SimpleNamespace:
        experiment = SimpleNamespace(fitted=False, model="MLP", steps=steps)
        return SimpleNamespace(experiment=experiment, trial_seed=trial, hparams_seed=configuration)

    runs = [made_up(10, t, h) for t in range(2) for h in range(3)]
    assert len(make_pages.planned_runs(runs, grid)) == 4
    assert make_pages.planned_runs(runs[1:], grid) == []
    assert make_pages.planned_runs([made_up(11, 0, 0), *runs[1:]], grid) == []


def test_a_chart_shows_the_value_and_the_others(make_pages: ModuleType) -> None:
    chart = make_pages.draw_chart("CC", make_pages.Measured("", {"Lost": {"CC": 0.5, "NN": 0.25}}))
    assert chart.count("<circle") == 2
    assert 'cx="320.0"' in chart  # half of the scale, which has 420 units from 110 on
    assert 'cx="215.0"' in chart
    assert ">50.0</text>" in chart
    assert "<title>Test accuracy of CC in percent: Lost 50.0</title>" in chart


@pytest.mark.parametrize("name", ["MV_LR", "DS_LR"])
def test_a_page_has_the_figures_of_a_method_on_answers(name: str, make_pages: ModuleType) -> None:
    results = make_pages.render_page(find_algorithm(name)).split("## Results\n")[1].split("\n## ")[0]
    assert re.search(
        r"Test accuracy in percent, tuned .*: LabelMe_Crowd \d\d\.\d, Music_Crowd \d\d\.\d\.", results
    )


def test_a_figure_has_the_most_configurations_there_are(make_pages: ModuleType) -> None:
    """Of 10 complete configurations, a page does not show the choice among the 5 of slower methods."""
    results = make_pages.render_page(find_algorithm("GFWS")).split("## Results\n")[1].split("\n## ")[0]
    assert re.search(r"Other datasets, tuned .*: 10 configurations .*: Music_Crowd \d\d\.\d\.", results)
    assert ": 5 configurations" not in results


@pytest.mark.parametrize("name", ON_BATCHES)
def test_a_page_has_one_figure_per_dataset(name: str, make_pages: ModuleType) -> None:
    """Text and chart agree, each network has one figure, and there is no second table of defaults."""
    page = make_pages.render_page(find_algorithm(name))
    results = page.split("## Results\n")[1].split("\n## ")[0]
    others = re.findall(r"^With MLP_BN, .*", results, re.MULTILINE)
    assert len(others) == ("| in a stack | stackable |" in page)
    assert [len(re.findall(r"\bLost \d+\.\d", line)) for line in others] == [1] * len(others)
    results = re.sub(r"^With MLP_BN, .*", "", results, flags=re.MULTILINE)
    assert len({*re.findall(r"\bLost (\d+\.\d)", results)}) == 1
    assert results.count("est accuracy in percent") + results.count("Test accuracy of") <= 2


def test_page_tells_the_protocols_noise_rates(make_pages: ModuleType) -> None:
    page = make_pages.render_page(find_algorithm("PiCO_plus"))
    assert "| `pure_ratio` | 1.0; 0.99868 (PLCIFAR10_Aggregate); 0.82444 (PLCIFAR10_Vaguest) |" in page


def test_cite_prints_the_entry_of_a_card(cli) -> None:
    for name in ON_BATCHES:
        shown = cli("cite", name.lower().replace("_", "-")).out
        assert shown.strip() == find_algorithm(name).card.bibtex.strip()


def test_cite_prints_a_shared_paper_once(cli) -> None:
    out = cli("cite", "NN", "GA", "PC").out
    assert out.count("ishida2019complementary") == 1
    assert out.count("@inproceedings") == 2


def test_cite_of_an_unknown_name_offers_the_nearest(cli) -> None:
    assert "PRODEN" in cli("cite", "PRODENN", code=2).err


def test_every_algorithm_of_the_paper_is_there() -> None:
    assert {name for name in ON_BATCHES if algorithms()[name].source is None} == PAPER | set(NEWER)
    for name, key in NEWER.items():
        assert find_algorithm(name).card.bibtex.split("{")[1].startswith(f"{key},")


def read_field(bibtex: str, name: str) -> str:
    found = re.search(rf"\b{name}\s*=\s*\{{(.*?)\}},?\n", bibtex + "\n", re.DOTALL)
    assert found, f"no {name} in {bibtex}"
    return " ".join(re.sub(r"[{}]", "", found[1]).split())


def read_venue(bibtex: str) -> str:
    return read_field(bibtex, "journal" if bibtex.startswith("@article") else "booktitle")


@pytest.mark.parametrize("name", ON_BATCHES)
def test_venue_and_year_are_those_of_the_card(name: str) -> None:
    card = algorithms()[name].card
    venue, year = card.venue.split()
    assert read_venue(card.bibtex) == VENUES[venue.split("-")[0]]
    assert read_field(card.bibtex, "year") == year


def test_keys_and_venues_are_the_papers() -> None:
    published = json.loads((files("plench.report") / "published.json").read_text(encoding="utf-8"))
    rows = [row for table in published["tables"] for row in table["rows"]]
    assert len(rows) == 4 * 26
    for row in rows:
        card = algorithms()[row["algorithm"]].card
        assert card.bibtex.split("{")[1].startswith(row["reference"] + ",")
        assert card.venue == row["venue"]


@pytest.mark.parametrize("name", ON_BATCHES)
def test_title_authors_and_venue_are_those_of_the_specification(name: str, specifications: Path) -> None:
    card = algorithms()[name].card
    specified = " ".join(path.read_text(encoding="utf-8") for path in sorted(specifications.glob("*.md")))
    specified = " ".join(re.sub(r'[*"]', "", specified).split())
    authors = read_field(card.bibtex, "author").split(" and ")
    heading = ", ".join(author.split(",")[0] for author in authors)
    title = re.escape(read_field(card.bibtex, "title"))
    before = "" if name in WITHOUT_AUTHORS else re.escape(heading) + "[:,] "
    venue, year = card.venue.split()
    place = read_venue(card.bibtex).rpartition(":")[2] if venue == "arXiv" else year
    assert re.search(rf"{before}{title},? {venue}\S* {place}", specified)


@pytest.mark.parametrize("name", CLASSICAL)
def test_classical_methods_have_a_reference_of_their_year(name: str) -> None:
    card = algorithms()[name].card
    assert read_field(card.bibtex, "year") == card.venue.split()[-1]
    assert read_field(card.bibtex, "title")
    assert read_field(card.bibtex, "author")
    assert read_venue(card.bibtex)


@pytest.mark.parametrize("name", ["LR_EM", "PL_KNN", "PL_AKNN", "CLPL", "IPAL", "PL_ECOC"])
def test_titles_of_classical_methods_are_those_of_the_specification(name: str, specifications: Path) -> None:
    pages = (specifications / f"{page}.md" for page in ("classical", "frontier"))
    specified = " ".join(page.read_text(encoding="utf-8") for page in pages).lower()
    assert read_field(algorithms()[name].card.bibtex, "title").lower() in specified
