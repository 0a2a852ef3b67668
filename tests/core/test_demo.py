"""The demo, with few steps."""

from plench.cli import main
from plench.cli.demo import ALGORITHMS
from plench.runs import read_runs


def test_the_demo_runs_selects_and_says_where_everything_is(tmp_path, capsys):
    folder = tmp_path / "demo"
    assert main(["demo", "--steps", "12", "--output_dir", str(folder), "--workers", "2"]) == 0
    text = capsys.readouterr().out
    for name in (*ALGORITHMS, "Digits_USS", "Digits_FPS", "CR", "AA", "OA w/ ES", str(folder)):
        assert name in text
    runs = read_runs(folder)
    assert len(runs) == len(ALGORITHMS) * 2 * 2 * 2
    assert all(run.finished for run in runs)
    page = folder / "site" / "index.html"
    assert str(page) in text
    assert "plench report" in page.read_text()
    assert r"\toprule" in (folder / "leaderboard.tex").read_text()
    assert main(["demo", "--steps", "12", "--output_dir", str(folder)]) == 0
    assert capsys.readouterr().out == text
