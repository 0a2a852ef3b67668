"""The documentation's site: built without a warning, readable by everybody, and it asks no other host."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.report.conftest import find_serious

# Tested whole, in light and dark; of other pages their own part, in light, one for each folder of ALIKE.
WHOLE = ("index", "cli", "algorithms/PRODEN", "search")
ALIKE = {"algorithms", "criteria", "datasets", "networks"}
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    output = tmp_path_factory.mktemp("docs")
    command = [sys.executable, str(ROOT / "scripts" / "make_docs.py"), "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no dead link" in done.stdout
    return output / "html"


@pytest.fixture(scope="module")
def make_docs():
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def count_words(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").split())


def test_pages_are_short():
    """A page has at most 1,200 words, all of them 40,000, without results and what the code writes."""
    pages = [path for path in (ROOT / "docs").glob("*.md") if path.name != "modules.md"]
    pages += [*(ROOT / "docs" / "gallery").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    assert {path.name: count_words(path) for path in pages if count_words(path) > 1200} == {}
    assert sum(map(count_words, pages)) <= 40_000


def test_every_linked_term_is_in_the_glossary(make_docs):
    glossary = make_docs.mark_terms((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    anchors = re.findall(r'id="term-([\w-]+)"', glossary)
    assert len(anchors) == len(set(anchors)) > len(make_docs.TERMS)
    assert set(make_docs.TERMS) <= set(anchors)


def test_a_term_is_linked_where_prose_first_uses_it(make_docs):
    text = "# CR\n\n`CR` and [what CR is](theory.md): CR, not CR-like rules, on the splits.\n\n    splits\n"
    linked = make_docs.link_terms(text, "results/page.md")
    assert linked == text.replace(": CR", ': <a class="term" href="../glossary.html#term-CR">CR</a>').replace(
        "the splits", 'the <a class="term" href="../glossary.html#term-split">splits</a>'
    )
    own = "[Splits](glossary.md) are splits.\n"
    assert make_docs.link_terms(own.lower(), "page.md") == own.lower()


@pytest.mark.real
def test_the_site_has_every_reference(site):
    for page in ("index", "cli", "api", "algorithms/PRODEN", "datasets/Lost", "criteria/CR", "networks/MLP"):
        assert (site / f"{page}.html").exists(), page
    assert "plench.train" in (site / "api.html").read_text(encoding="utf-8")
    assert "--checkpoint-freq" in (site / "cli.html").read_text(encoding="utf-8")
    assert (site / "searchindex.js").stat().st_size > 10_000
    sections = re.findall(r'class="caption-text">([^<]+)<', (site / "index.html").read_text(encoding="utf-8"))
    assert sections == [
        *("Get started", "Tutorials", "How-to guides", "Gallery"),
        *("Concepts", "Reference", "Results", "For contributors"),
    ]


@pytest.mark.real
def test_every_page_fits_a_phone_and_loads_nothing_else_and_axe_passes(site, browser):
    page = browser.new_page(viewport={"width": 375, "height": 800})
    wrong = []
    page.on(
        "request",
        lambda request: request.url.startswith((site.as_uri(), "data:")) or wrong.append(request.url),
    )
    page.on("console", lambda message: message.type != "error" or wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    pages = sorted(site.rglob("*.html"))
    wide, serious = [], []
    for path in pages:
        page.goto(path.as_uri())
        if page.evaluate(TOO_WIDE) > 0:
            wide.append(path.name)
        folder = path.parent
        if folder.name not in ALIKE or path == min(folder.glob("*.html")):
            serious += [(path.name, *found) for found in find_serious(page, "article")]
    page.close()
    assert len(pages) > 100
    assert (wide, serious, wrong) == ([], [], [])


@pytest.mark.real
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", WHOLE)
def test_axe_finds_nothing_serious_on_a_whole_page(site, browser, name, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.goto((site / f"{name}.html").as_uri())
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", background)[:3])) < 80) == (scheme == "dark")
    assert find_serious(page) == []
    page.close()
