"""`plench check` on the paper's listing, on names, and on what cannot be checked."""

import json
import os
from pathlib import Path

import pytest

from plench.algorithms import find_algorithm
from plench.cli import main
from plench.contract import AlgorithmUnderTest, checks, run_check
from tests.conftest import ROOT

LISTING = ROOT / "tests" / "fixtures" / "cavl_listing.py"
BREACHES = ROOT / "tests" / "contract" / "breaches.py"


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["check", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_listing_is_the_paper_s() -> None:
    paper = Path(os.environ.get("PLENCH_PAPER", ROOT.parent / "shared" / "paper.tex"))
    if not paper.exists():
        pytest.skip("the paper's source is absent (set PLENCH_PAPER to paper.tex)")
    text = paper.read_text(encoding="utf-8")
    begin = text.index("class CAVL(Algorithm):")
    listing = text[begin : text.index(r"\end{lstlisting}", begin)]
    assert LISTING.read_text(encoding="utf-8").endswith("\n\n\n" + listing)


def test_listing_passes_with_three_pieces_of_advice(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, f"{LISTING}:CAVL", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["passed"] is True
    assert report["algorithm"].startswith("CAVL@")
    assert [row["name"] for row in report["checks"]] == list(checks())
    advice = {row["name"]: row["detail"] for row in report["checks"] if row["status"] == "advice"}
    assert set(advice) == {"moves_with_the_module", "keeps_single_precision", "does_not_wait_for_the_device"}
    assert "CAVL.label_confidence" in advice["moves_with_the_module"]
    assert "loss.item()" in advice["does_not_wait_for_the_device"]


def test_text_names_what_fails_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, f"{BREACHES}:trains_on_two_classes")
    assert code == 1
    assert "FAILS    trains on two classes" in out
    assert "It trains with two classes" in out
    assert " 1 failed, 0 with advice" in out


def test_builtin_name_in_any_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, "proden")
    assert code == 0
    assert out.startswith("PRODEN\n")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("PRODEM", "unknown algorithm 'PRODEM'"),
        ("nowhere.py:CAVL", "cannot read the algorithm's file"),
        (f"{LISTING}:CAVIL", "has no algorithm 'CAVIL'; its algorithms are CAVL"),
        (f"{LISTING}:F", "is not a subclass"),
        (str(LISTING), ": a name is missing; it has CAVL"),
    ],
)
def test_bad_usage(spec: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = check(capsys, spec)
    assert code == 2
    assert out == ""
    assert text in err


def test_a_file_that_ends_the_process_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "script.py"
    path.write_text("import sys\n\nsys.exit(0)\n", encoding="utf-8")
    code, _, err = check(capsys, f"{path}:Anything")
    assert code == 2
    assert "script.py fails to import: SystemExit(0)" in err


def test_an_update_that_ends_the_process_is_told_as_any_error(tmp_path: Path) -> None:
    path = tmp_path / "quitter.py"
    path.write_text(
        "from plench.algorithms.cc import CC\n\n\n"
        "class Quitter(CC):\n"
        "    def update(self, minibatches):\n"
        "        raise SystemExit('enough')\n",
        encoding="utf-8",
    )
    outcome = run_check(
        checks()["trains_and_predicts"], AlgorithmUnderTest(find_algorithm(f"{path}:Quitter"))
    )
    assert outcome.status == "failed"
    assert "SystemExit: enough (line 6, in update" in outcome.detail


def test_unknown_device(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = check(capsys, "PRODEN", "--device", "tpu")
    assert code == 2
    assert "unknown device 'tpu'" in err


def test_checking_ends_with_a_class_that_cannot_be_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(
        "from plench.algorithms import Algorithm\n\n\n"
        "class Broken(Algorithm):\n"
        "    def __init__(self, input_shape, train_givenY, hparams):\n"
        "        super().__init__(input_shape, train_givenY, hparams)\n"
        "        self.width = hparams['widht']\n",
        encoding="utf-8",
    )
    code, out, _ = check(capsys, f"{path}:Broken")
    assert code == 1
    assert "KeyError: 'widht' (line 7, in __init__: self.width = hparams['widht'])" in " ".join(out.split())
    assert out.count("KeyError") == 1
    assert "1 failed" in out
    assert "The other checks were skipped" in out


def test_what_an_algorithm_prints_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loud.py"
    path.write_text(
        "import sys\n\nfrom plench.algorithms.cc import CC\n\n\n"
        "class Loud(CC):\n"
        "    def update(self, minibatches):\n"
        "        print('LOUD')\n"
        "        print('LOUD', file=sys.stderr)\n"
        "        return super().update(minibatches)\n",
        encoding="utf-8",
    )
    code, out, err = check(capsys, f"{path}:Loud")
    assert code == 1
    assert "LOUD" not in err
    assert out.count("FAILS") == 1
    assert "printed: 'LOUD" in out
