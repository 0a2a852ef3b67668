"""The paper's results in the package against the paper's source, and ours beside them."""

import json
import math
import re

import numpy as np
import pytest

from plench.algorithms.registry import own_cards
from plench.cli import main
from plench.criteria import criteria
from plench.report.compare_paper import load_published, pair_with_paper
from plench.report.leaderboard import build_leaderboard
from plench.runs import read_runs
from tests.conftest import ROOT
from tests.synthetic_sweep import experiment_of, make_records, write_run

PAPER = ROOT.parent / "shared" / "paper.tex"
ALGORITHMS = 26


def test_every_cell_is_there():
    cells = load_published()
    assert len(cells) == ALGORITHMS * 4 * 2 * 2
    assert {key[0] for key in cells} == {"PLCIFAR10_Aggregate", "PLCIFAR10_Vaguest"}
    assert {key[1] for key in cells} == {"ResNet", "DenseNet"}
    assert {key[3] for key in cells} == set(criteria)
    assert all(0.09 < cell.mean < 0.9 for cell in cells.values())


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not at hand")
def test_cells_against_the_paper():
    """Read the tables in another way than the script does: split at & and strip the markup."""
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
            for criterion, text in zip(criteria, parts[2:], strict=True):
                mean, error = text.split(r"$\pm$")
                cell = cells[f"PLCIFAR10_{place[1]}", place[2], name, criterion]
                assert cell.mean == pytest.approx(float(mean) / 100, abs=1e-12)
                assert cell.printed_error == pytest.approx(float(error) / 100, abs=1e-12)
                checked += 1
    assert checked == len(cells)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not at hand")
def test_bold_cells_are_the_best_of_their_column():
    """The paper prints the best of each column in bold: an independent check of means and columns."""
    cells = load_published()
    source = PAPER.read_text(encoding="utf-8")
    bold = re.findall(r"\\bf (\d+\.\d\d)\$", source)
    best = []
    for dataset in ("Aggregate", "Vaguest"):
        for model in ("ResNet", "DenseNet"):
            for criterion in criteria:
                key = (f"PLCIFAR10_{dataset}", model, criterion)
                best.append(max(c.mean for k, c in cells.items() if (k[0], k[1], k[3]) == key))
    assert {f"{100 * value:.2f}" for value in best} <= set(bold)


def test_faults_name_algorithms_that_are_there():
    cells = load_published()
    published = {key[2] for key in cells}
    faulty = {name for name, card in own_cards().items() if card.public_fault}
    assert len(faulty) == 12
    assert faulty <= published <= set(own_cards())
    assert all(cells[key].faults for key in cells if key[2] in faulty - {"EXP"})
    aggregate = cells["PLCIFAR10_Aggregate", "ResNet", "EXP", "CR"]
    vaguest = cells["PLCIFAR10_Vaguest", "ResNet", "EXP", "CR"]
    assert len(aggregate.faults) == 1
    assert vaguest.faults == ()
    assert all("1e-12" in cell.faults[-1] for key, cell in cells.items() if key[3] == "AA")


def write_image_run(
    folder, algorithm, trial, test, *, verified=True, steps=60_000, model="ResNet", **changes
):
    record = {"step": steps - 1, "val_covering_rate": 0.9, "val_approximated_acc": 0.9, "test_acc": test}
    experiment = experiment_of("PLCIFAR10_Vaguest", algorithm, steps, model=model, **changes)
    write_run(folder, [record], "PLCIFAR10_Vaguest", algorithm, trial, experiment=experiment, steps=steps)
    info = json.loads((folder / "run.json").read_text())
    info["dataset"]["verified"] = verified
    (folder / "run.json").write_text(json.dumps(info))


def test_beside_the_paper(tmp_path):
    paper = load_published()["PLCIFAR10_Vaguest", "ResNet", "PRODEN", "CR"]
    for trial, shift in enumerate((-0.01, 0.0, 0.01)):
        write_image_run(tmp_path / f"a{trial}", "PRODEN", trial, paper.mean + shift)
        write_image_run(tmp_path / f"b{trial}", "POP", trial, paper.mean + shift - 0.2)
    runs = read_runs(tmp_path)
    pairs, reasons = pair_with_paper(build_leaderboard(runs), runs)
    assert reasons == []
    by_name = {(p.paper.algorithm, p.paper.criterion): p for p in pairs}
    proden = by_name["PRODEN", "CR"]
    assert proden.difference == pytest.approx(0)
    expected = math.sqrt(0.01**2 / 3 + (paper.printed_error * math.sqrt(3 / 2)) ** 2)
    assert proden.combined_error == pytest.approx(expected)
    assert proden.within is True
    assert by_name["POP", "CR"].within is False
    assert "purifi" in by_name["POP", "CR"].paper.faults[0]


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
    write_image_run(tmp_path / "a", "PRODEN", 0, 0.7, **changes)
    runs = read_runs(tmp_path)
    pairs, reasons = pair_with_paper(build_leaderboard(runs), runs)
    assert pairs == []
    assert reason in reasons[0]


def test_command(tmp_path, capsys):
    for trial in range(2):
        write_image_run(tmp_path / f"a{trial}", "CAVL", trial, 0.5 + trial / 10)
    assert main(["compare", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "outside the candidates as the target" in out
    assert "55.00" in out
    assert "rests on 2 splits and 2 runs, the paper's on 3 splits and 60 runs" in out
    assert main(["compare", str(tmp_path), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert {cell["criterion"] for cell in content["cells"]} == set(criteria)


def test_what_the_paper_has_no_figure_of_is_named(tmp_path, capsys):
    for name in ("PRODEN", "VALEN", "Mine@12345678"):
        write_image_run(tmp_path / name, name, 0, 0.5)
    assert main(["compare", str(tmp_path)]) == 0
    said = "not compared: PLCIFAR10_Vaguest: the paper has no figure of Mine@12345678, VALEN"
    assert said in capsys.readouterr().out


def test_command_without_anything_to_compare(sweep, capsys):
    assert main(["compare", str(sweep)]) == 0
    out = capsys.readouterr().out
    assert "nothing here can be compared" in out
    assert "Lost: the paper has no table of it" in out


def test_tabular_tables_of_the_paper_are_named(tmp_path):
    published = {"kind": "tabular", "published": {"examples": 1122}, "n_classes": 16}
    write_run(tmp_path / "a", make_records(0.6, np.random.default_rng(0)), info={"dataset": published})
    runs = read_runs(tmp_path)
    _, (reason,) = pair_with_paper(build_leaderboard(runs), runs)
    assert "the paper has tables of tabular datasets, but their numbers are not in its source" in reason
