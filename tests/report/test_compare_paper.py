"""The paper's results in the package, compared with the paper's source, and ours compared with them."""

import json
import math
import re

import pytest

from plench.algorithms.registry import own_cards
from plench.criteria import criteria
from plench.report.compare_paper import PUBLISHED_CRITERIA, compare_with_paper, find_faults, load_published
from plench.report.leaderboard import build_leaderboard
from plench.runs import read_runs
from tests.conftest import SHARED, skip_without
from tests.report.conftest import records
from tests.synthetic_sweep import experiment_of, write_run

PAPER = SHARED / "paper.tex"
ALGORITHMS = 26


def test_every_cell_is_there():
    cells = load_published()
    assert len(cells) == ALGORITHMS * 4 * 2 * 2
    assert {key[0] for key in cells} == {"PLCIFAR10_Aggregate", "PLCIFAR10_Vaguest"}
    assert {key[1] for key in cells} == {"ResNet", "DenseNet"}
    assert {key[3] for key in cells} == set(PUBLISHED_CRITERIA) <= set(criteria)
    assert all(0.09 < mean < 0.9 for mean, _ in cells.values())


def test_cells_against_the_paper():
    """Read the tables in another way than the script does: split at & and strip the markup."""
    if not PAPER.exists():
        skip_without("specifications", f"{PAPER} is missing")
    cells = load_published()
    checked = 0
    for chunk in PAPER.read_text(encoding="utf-8").split(r"\begin{table}")[1:]:
        chunk = chunk.split(r"\end{table}")[0]
        place = re.search(r"PLCIFAR10-(Aggregate|Vaguest) with (ResNet|DenseNet)", chunk)
        if place is None:
            continue
        body = chunk.split(r"\midrule")[1].split(r"\bottomrule")[0]
        for row in body.strip().split("\\\\"):
            parts = [part.strip().removeprefix(r"\bf").strip() for part in row.split("&")]
            if len(parts) != 6:
                continue
            name = {"PiCO+": "PiCO_plus"}.get(parts[0], parts[0].replace("-", "_"))
            for criterion, text in zip(PUBLISHED_CRITERIA, parts[2:], strict=True):
                mean, error = text.split(r"$\pm$")
                printed = (float(mean) / 100, float(error) / 100)
                cell = cells[f"PLCIFAR10_{place[1]}", place[2], name, criterion]
                assert cell == pytest.approx(printed, abs=1e-12)
                checked += 1
    assert checked == len(cells)


def test_faults_name_algorithms_that_are_there():
    cells = load_published()
    published = {key[2] for key in cells}
    faulty = {name for name, card in own_cards().items() if card.public_fault}
    assert len(faulty) == 12
    assert faulty <= published <= set(own_cards())
    faults = {key: find_faults(key[0], *key[2:]) for key in cells}
    assert all(faults[key] for key in cells if key[2] in faulty - {"EXP"})
    assert len(faults["PLCIFAR10_Aggregate", "ResNet", "EXP", "CR"]) == 1
    assert faults["PLCIFAR10_Vaguest", "ResNet", "EXP", "CR"] == []
    assert all("1e-12" in faults[key][-1] for key in cells if key[3] == "AA")


def write_image_run(folder, algorithm, trial=0, test=0.7, *, verified=True, steps=60_000, **changes):
    record = {"step": steps - 1, "val_covering_rate": 0.9, "val_approximated_acc": 0.9, "test_acc": test}
    changes = {"model": "ResNet", **changes}
    write_run(
        folder,
        [record],
        "PLCIFAR10_Vaguest",
        algorithm,
        trial,
        steps=steps,
        experiment=experiment_of("PLCIFAR10_Vaguest", algorithm, steps, **changes),
        info={"dataset": {"name": "PLCIFAR10_Vaguest", "n_classes": 10, "verified": verified}},
    )


def compare(folder):
    runs = read_runs(folder)
    published = [criteria[name] for name in PUBLISHED_CRITERIA]
    return compare_with_paper(build_leaderboard(runs, published), runs)


def test_difference_and_combined_error(tmp_path):
    mean, printed_error = load_published()["PLCIFAR10_Vaguest", "ResNet", "PRODEN", "CR"]
    for trial, shift in enumerate((-0.01, 0.0, 0.01)):
        write_image_run(tmp_path / f"a{trial}", "PRODEN", trial, mean + shift)
        write_image_run(tmp_path / f"b{trial}", "POP", trial, mean + shift - 0.2)
    rows, reasons = compare(tmp_path)
    assert reasons == []
    proden, pop = (
        next(r for r in rows if (r["algorithm"], r["criterion"]) == (a, "CR")) for a in ("PRODEN", "POP")
    )
    assert proden["difference"] == pytest.approx(0)
    expected = math.sqrt(0.01**2 / 3 + (printed_error * math.sqrt(3 / 2)) ** 2)
    assert proden["combined_error"] == pytest.approx(expected)
    assert (proden["within_combined_error"], pop["within_combined_error"]) == (True, False)
    assert "purifi" in pop["paper_faults"][0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"verified": False}, "checksum"),
        ({"steps": 1000}, "1000 steps"),
        ({"model": "MLP"}, "no table"),
        ({"holdout_fraction": 0.2}, "validation share is 0.2"),
        ({"imbalance": 50.0}, "made long-tailed"),
        ({"candidates": {"pl_type": "uss", "drop_true_rate": 0.0}}, "generated"),
    ],
)
def test_what_is_not_the_papers_setting_is_not_compared(tmp_path, changes, reason):
    write_image_run(tmp_path / "a", "PRODEN", **changes)
    rows, reasons = compare(tmp_path)
    assert rows == []
    assert reason in reasons[0]


def test_tabular_tables_of_the_paper_are_named(tmp_path):
    published = {"kind": "tabular", "published": {"examples": 1122}, "n_classes": 16}
    write_run(tmp_path / "a", records(), info={"dataset": published})
    _, (reason,) = compare(tmp_path)
    assert "the paper has tables of tabular datasets, but their numbers are not in its source" in reason


def test_command(tmp_path, sweep, cli):
    for trial in range(2):
        write_image_run(tmp_path / f"a{trial}", "CAVL", trial, 0.5 + trial / 10)
    out = cli("results", "compare-paper", tmp_path).out
    assert "outside the candidates as the target" in out
    assert "55.00" in out
    assert "rests on 2 splits and 2 runs, the paper's on 3 splits and 60 runs" in out
    content = json.loads(cli("results", "compare-paper", tmp_path, "--json").out)
    assert {cell["criterion"] for cell in content["cells"]} == set(PUBLISHED_CRITERIA)
    for name in ("VALEN", "Mine@12345678"):
        write_image_run(tmp_path / name, name)
    said = "not compared: PLCIFAR10_Vaguest: the paper has no figure of Mine@12345678, VALEN"
    assert said in cli("beside-paper", tmp_path, "--criteria", *PUBLISHED_CRITERIA).out
    out = cli("compare", sweep).out
    assert "nothing here can be compared" in out
    assert "Lost: the paper has no table of it" in out


def test_each_setting_has_its_own_table(tmp_path, cli):
    for precision in ("float32", "bf16"):
        for trial in range(2):
            write_image_run(tmp_path / f"{precision}{trial}", "PRODEN", trial, precision=precision)
    out = cli("results", "compare-paper", tmp_path, "--criteria", "CR").out
    assert [line for line in out.split("\n") if "selected by" in line] == [
        f"PLCIFAR10_Vaguest (precision {precision}), ResNet, selected by CR"
        for precision in ("bf16", "float32")
    ]
