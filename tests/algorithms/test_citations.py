"""The BibTeX of every method against the benchmark paper's tables and the specifications' headings."""

import json
import re
from importlib.resources import files

import pytest

from plench.algorithms import algorithms
from tests.conftest import ROOT

ON_BATCHES = [name for name, entry in algorithms().items() if entry.card.shared]
CLASSICAL = [name for name, entry in algorithms().items() if entry.card.family == "classical"]
SPECIFICATIONS = ROOT.parent / "shared" / "algorithms"
VENUES = {
    "NeurIPS": "Advances in Neural Information Processing Systems",
    "ICML": "International Conference on Machine Learning",
    "ICLR": "International Conference on Learning Representations",
    "ECCV": "European Conference on Computer Vision",
    "AISTATS": "International Conference on Artificial Intelligence and Statistics",
    "CVPR": "IEEE/CVF Conference on Computer Vision and Pattern Recognition",
    "AAAI": "AAAI Conference on Artificial Intelligence",
    "IJCAI": "International Joint Conference on Artificial Intelligence",
    "TPAMI": "IEEE Transactions on Pattern Analysis and Machine Intelligence",
}
# The specifications give no authors of these.
WITHOUT_AUTHORS = ("FREDIS", "ALIM", "PiCO_plus")


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


@pytest.mark.skipif(not SPECIFICATIONS.exists(), reason="the specifications are not at hand")
@pytest.mark.parametrize("name", ON_BATCHES)
def test_title_authors_and_venue_are_those_of_the_specification(name: str) -> None:
    card = algorithms()[name].card
    specified = " ".join(path.read_text(encoding="utf-8") for path in sorted(SPECIFICATIONS.glob("*.md")))
    specified = " ".join(re.sub(r'[*"]', "", specified).split())
    authors = read_field(card.bibtex, "author").split(" and ")
    heading = ", ".join(author.split(",")[0] for author in authors)
    title = re.escape(read_field(card.bibtex, "title"))
    before = "" if name in WITHOUT_AUTHORS else re.escape(heading) + "[:,] "
    assert re.search(rf"{before}{title},? {card.venue.split()[0]}\S* {card.venue.split()[1]}", specified)


@pytest.mark.parametrize("name", CLASSICAL)
def test_classical_methods_have_a_reference_of_their_year(name: str) -> None:
    card = algorithms()[name].card
    assert read_field(card.bibtex, "year") == card.venue.split()[-1]
    assert read_field(card.bibtex, "title")
    assert read_field(card.bibtex, "author")
    assert read_venue(card.bibtex)


@pytest.mark.skipif(not SPECIFICATIONS.exists(), reason="the specifications are not at hand")
@pytest.mark.parametrize("name", ["LR_EM", "PL_KNN", "CLPL", "IPAL", "PL_ECOC"])
def test_titles_of_classical_methods_are_those_of_the_specification(name: str) -> None:
    specified = (SPECIFICATIONS / "classical.md").read_text(encoding="utf-8").lower()
    assert read_field(algorithms()[name].card.bibtex, "title").lower() in specified
