"""One word for one thing: phrases that the style of this project replaces stay rare in src and in the pages.

Stored keys (`notices`, `fleet_size`), quotations and ordinary uses remain; the ceilings count them.
"""

import re

import pytest

from tests.conftest import ROOT

# phrase → pattern, and how often it may still occur in src and in the Markdown pages
PHRASES: dict[str, tuple[str, int, int]] = {
    "say whether": (r"\bsay whether\b", 0, 0),
    "is/are/has no(ne)": (
        r"(?<!there )\b(?:is|are|was|were) (?-i:no|none) (?!longer|more than|fewer)"
        r"|\bhas none\b|\bhave none\b|\blacks? nothing\b",
        2,
        0,
    ),
    "allowed is/are": (r"\ballowed (?:is|are)\b|\bknown are\b", 0, 0),
    "notice": (r"\bnotices?\b", 6, 2),
    "fleet": (r"\bfleets?\b", 6, 3),
    "trained as one": (r"\b(?:trained|runs?) as one\b", 0, 0),
    "third parties'": (r"\bthird part(?:y|ies)['’]s?(?=\W)", 0, 0),
    "what a … makes of": (r"\bwhat (?:a|the) \w+ makes? of\b", 0, 0),
    "carry out": (r"\bcarr(?:y|ies|ied|ying) out\b", 0, 0),
    "floor": (r"\bfloors?\b", 30, 2),
    "beside": (r"\bbeside\b", 1, 0),
    "thereof, therein": (r"\b(?:thereof|therein|herewith|as of old)\b", 0, 0),
}
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [path for part in ("docs", "examples", "tests") for path in sorted((ROOT / part).rglob("*.md"))]
PAGES += [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_replaced_phrase_stays_rare(phrase: str) -> None:
    pattern, in_src, in_pages = PHRASES[phrase]
    found = {
        path: len(re.findall(pattern, path.read_text(encoding="utf-8"), re.IGNORECASE))
        for path in (*SOURCES, *PAGES)
    }
    for paths, ceiling in ((SOURCES, in_src), (PAGES, in_pages)):
        counts = {str(path.relative_to(ROOT)): found[path] for path in paths if found[path]}
        assert sum(counts.values()) <= ceiling, f"use another word for {phrase!r}: {counts}"
