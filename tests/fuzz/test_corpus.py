"""Files that once did harm, read again; and the campaign that finds them."""

import json
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from campaigns.fuzz import mutations, samples
from campaigns.fuzz.__main__ import make_page, read_again
from campaigns.fuzz.child import Keeper, Limits, Outcome, make_input
from campaigns.fuzz.readers import READERS, Reader

from plench.training.tabular_inputs import TabularInputs
from tests.conftest import ROOT

CORPUS = ROOT / "tests" / "corpus"


def run_campaign(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own: nothing that it does reaches the other tests."""
    return subprocess.run(
        [sys.executable, "-m", "campaigns.fuzz", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_corpus_does_no_harm() -> None:
    found = run_campaign("--replay")
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert [line for line in lines if line["outcome"] not in ("accepted", "refused")] == []
    assert found.returncode == 0, found.stderr
    stored = {f"{path.parent.name}/{path.name}" for path in CORPUS.glob("*/*")}
    assert {line["file"].replace(" ", "-") for line in lines} == stored
    assert len(stored) > 20


def test_a_campaign_writes_its_figures(tmp_path: Path) -> None:
    output, corpus = tmp_path / "out", tmp_path / "corpus"
    arguments = (
        "--readers",
        "pickle",
        "idx",
        "--seconds",
        "3",
        "--output",
        str(output),
        "--corpus",
        str(corpus),
    )
    found = run_campaign(*arguments)
    figures = json.loads((output / "fuzz.json").read_text())
    assert set(figures["readers"]) == {"pickle", "idx"}
    assert sum(figures["readers"]["pickle"].values()) > 0
    page = (output / "fuzz.md").read_text()
    assert page in found.stdout
    assert "| pickle |" in page
    assert found.returncode == 0, found.stdout
    assert list(corpus.glob("*/*")) == []


def harmful(kind: str) -> Reader:
    """A reader that does harm of one kind; a file decides nothing."""

    def read(folder: Path) -> object:
        if kind == "raw":
            raise KeyError("x")
        if kind == "memory":
            return bytearray(2**40)
        if kind == "executed":
            return pickle.loads((folder / "x").read_bytes())
        while kind == "hang":
            pass
        return None

    return Reader(f"test {kind}", "x", lambda: [pickle.dumps(1)], read)


@pytest.mark.parametrize("kind", ["raw", "memory", "hang", "executed"])
def test_harm_is_seen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = harmful(kind)
    monkeypatch.setattr("campaigns.fuzz.child.READERS", (reader,))
    keeper = Keeper(Limits(seconds=2 if kind == "hang" else 60))
    content = b"cos\nsystem\nX\x04\x00\x00\x00true\x85R." if kind == "executed" else b"N."
    try:
        assert keeper.read(reader, content).kind == kind
        assert (keeper.connection is None) == (kind == "hang")
    finally:
        keeper.stop()


def test_harm_is_tried_again_in_a_new_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is harmful at its second file in a process: harm all the same, and it is said which."""
    read_so_far: list[int] = []

    def read(folder: Path) -> object:
        read_so_far.append(1)
        if len(read_so_far) > 1:
            raise KeyError("x")
        return None

    reader = Reader("test later", "x", lambda: [b"x"], read)
    monkeypatch.setattr("campaigns.fuzz.child.READERS", (reader,))
    keeper = Keeper(Limits())
    try:
        assert [keeper.read(reader, b"x").kind for _ in range(3)] == ["accepted", "raw", "accepted"]
        assert "(after other files)" in keeper.read(reader, b"x").where
    finally:
        keeper.stop()


def test_files_are_made_anew_from_their_numbers() -> None:
    for reader in READERS[:5]:
        made = [make_input(reader, 7, number) for number in range(20)]
        assert made == [make_input(reader, 7, number) for number in range(20)]
        assert len(set(made)) > 15
        assert made != [make_input(reader, 8, number) for number in range(20)]


def test_forged_heads_keep_their_checksums() -> None:
    """Otherwise a reader would see no further than the checksum."""
    random = Random(0)
    for _ in range(20):
        forged = mutations.forge_tar(samples.make_tars()[0], random)
        places = [p for p in range(0, len(forged), 512) if forged[p + 257 : p + 262] == b"ustar"]
        for place in places:
            head = forged[place : place + 512]
            assert int(head[148:154], 8) == 256 + sum(head[:148]) + sum(head[156:])
    forged = mutations.forge_mat(samples.make_mat()[3], random)
    code, size = struct.unpack_from("<II", forged, 128)
    assert code == 15
    assert len(forged) >= 128 + 8 + size


@pytest.mark.parametrize("place", ["mean", "std"])
@pytest.mark.parametrize("value", [torch.zeros(0), torch.tensor(1.0), torch.zeros(1, 64), torch.ones(64) > 0])
def test_inputs_that_do_not_fit_are_refused(place: str, value: torch.Tensor) -> None:
    state = {**TabularInputs(np.zeros(64), np.ones(64)).state(), place: value}
    with pytest.raises(ValueError, match="not two rows of as many numbers"):
        TabularInputs.from_state(state)


def test_what_is_mended_is_read_again(tmp_path: Path) -> None:
    class Reads:
        """Finds a file harmful that says so."""

        def read(self, reader: Reader, content: bytes) -> Outcome:
            return Outcome("raw" if b"still" in content else "refused")

    readers = tuple(reader for reader in READERS if reader.name in ("idx", "tar"))
    for name, content in (("idx", b"mended"), ("tar", b"still there")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "raw-1").write_bytes(content)
    figures = {
        **{"seed": 1, "seconds": 1, "commits": ["x"], "python": "3", "limit_seconds": 1, "limit_mb": 1},
        "readers": {"idx": {"raw": 3, "accepted": 1}, "tar": {"raw": 1}},
        "slowest_seconds": {"idx": 0.1, "tar": 0.1},
        "findings": {"idx: raw: KeyError": 3, "tar: raw: ValueError: x": 1},
        "mended": {},
    }
    read_again(readers, figures, tmp_path, Reads())  # type: ignore[arg-type]
    assert figures["readers"] == {"idx": {"raw": 0, "accepted": 1, "refused": 3}, "tar": {"raw": 1}}
    assert figures["findings"] == {"tar: raw: ValueError: x": 1}
    assert figures["mended"] == {"idx: raw: KeyError": 3}
    page = make_page(figures)
    assert "5 files, of which 1 did harm" in page
    assert "- 3 × idx: raw: KeyError" in page.partition("mended, and read again")[2]
