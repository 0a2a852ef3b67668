"""What docs/trust.md says of the last campaigns is what their pages say."""

import re

from tests.conftest import ROOT

RESULTS = ROOT / "docs" / "results"


def find(name: str, pattern: str) -> tuple[str, ...]:
    """Return what stands in a page where a pattern has its groups."""
    found = re.search(pattern, (RESULTS / name).read_text(encoding="utf-8"))
    assert found is not None, name
    return found.groups()


def test_the_figures_of_the_last_campaigns_are_those_of_their_pages() -> None:
    text = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    rounds, faults = find("soak.md", r"\n([\d,]+) runs.*? with ([\d,]+) faults")
    (hurt,) = find("soak.md", r"\*\*([\d,]+) lost or changed anything")
    assert f"soak.md): {rounds} runs, fleets and sweeps with {faults} faults; {hurt} lost or changed" in text
    files, harmful = find("fuzz.md", r"\n([\d,]+) files, of which ([\d,]+) did harm")
    assert f"fuzz.md): {files} files; {harmful} did harm" in text
    calls, bad = find("arguments.md", r"\n([\d,]+) calls of \d+ commands, of which ([\d,]+) ended")
    assert f"arguments.md): {calls} calls; {bad} ended otherwise" in text
