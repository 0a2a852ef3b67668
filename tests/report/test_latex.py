"""LaTeX tables go through LaTeX, where there is one."""

import re
import shutil
import subprocess

import numpy as np
import pytest

from plench.cli import main
from plench.report.leaderboard import build_leaderboard
from plench.report.tables import build_chosen_tables, build_tables, render_latex
from plench.runs import read_runs
from tests.conftest import skip_without
from tests.synthetic_sweep import make_records, write_run, write_sweep

PDFLATEX, KPSEWHICH = shutil.which("pdflatex"), shutil.which("kpsewhich")
HAS_BOOKTABS = bool(KPSEWHICH and subprocess.run([KPSEWHICH, "booktabs.sty"], capture_output=True).stdout)
pytestmark = pytest.mark.real
if not (PDFLATEX and HAS_BOOKTABS):
    skip_without("latex", "pdflatex with booktabs (Debian's texlive-latex-recommended) is missing")


def compile_latex(folder, body):
    """Compile a document with these tables; return the log."""
    document = [
        r"\documentclass{article}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage{booktabs}",
        r"\usepackage{graphicx}",
        r"\begin{document}",
        body,
        r"\end{document}",
    ]
    (folder / "tables.tex").write_text("\n".join(document), encoding="utf-8")
    command = [PDFLATEX, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "tables.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    return (folder / "tables.log").read_text(encoding="utf-8", errors="replace")


ODD_NAMES = ("[star]", "*", r"\input{/etc/passwd}_50%&#$~^", "a|b<c>", "q\"`'", "é ß ×")


@pytest.fixture(scope="module")
def gapped(tmp_path_factory):
    root = write_sweep(tmp_path_factory.mktemp("gapped"), n_trials=2, n_hparams=2)
    for number, name in enumerate(ODD_NAMES):
        taken = make_records(0.5, np.random.default_rng(number))
        write_run(root / f"odd{number}", taken, "Lost", name, number % 2)
    return build_leaderboard(read_runs(root))


def test_a_paper_compiles_with_its_references(tmp_path):
    runs = write_sweep(tmp_path / "runs", datasets=tuple("ABCDE"), n_trials=5, n_hparams=2)
    for number, name in enumerate(ODD_NAMES):
        taken = make_records(0.5, np.random.default_rng(number))
        write_run(
            runs / f"odd{number}", taken, "A", name, number % 2, info={"dataset": {"citation": "A & B, 50 %"}}
        )
    assert main(["report", str(runs), "--paper", str(tmp_path / "paper"), "--criteria", "CR"]) == 0
    tex = [PDFLATEX, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    for command in (tex, [shutil.which("bibtex"), "paper"], tex, tex):
        done = subprocess.run(command, cwd=tmp_path / "paper", capture_output=True, timeout=120)
        assert done.returncode == 0, done.stdout[-2000:]
    log = (tmp_path / "paper" / "paper.log").read_text(encoding="utf-8", errors="replace")
    assert "undefined references" not in log
    assert "multiply defined" not in log
    assert "Missing character" not in log
    assert max(map(float, re.findall(r"Overfull .hbox .([\d.]+)pt too wide", log)), default=0.0) < 10


@pytest.mark.parametrize("kind", ["dataset", "criterion", "chosen"])
def test_tables_compile_and_fit_the_page(gapped, tmp_path, kind):
    grids = build_chosen_tables(gapped) if kind == "chosen" else build_tables(gapped, kind)
    log = compile_latex(tmp_path, render_latex(grids))
    assert "Output written on tables.pdf" in log
    too_wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide", log)]
    assert max(too_wide, default=0.0) < 5
    assert "Missing character" not in log
