"""Looking at a sweep runs nobody's code, whatever its files say, and one bad file is told, not fatal."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from plench.cli import main
from plench.errors import UsageError
from plench.runs.folder import RunStore
from plench.runs.sweep_spec import Grid, SweepSpec, read_sweep
from plench.sweeps.look import look_at_runs
from plench.sweeps.plan import DataShelf, PlannedRun, expand, settle
from plench.sweeps.run_states import RunState, read_states
from tests.sweep.test_state import SHELF, perform, plan_one

# The sweep of the one run that `plan_one` plans.
GRID = Grid(("CC",), ("Digits_USS",), n_hparams=1, n_trials=1, steps=20, checkpoint_freq=10)
ONE_RUN = settle(SweepSpec((GRID,)), SHELF)
EVIL = """
from pathlib import Path

from plench.algorithms import LossAlgorithm

Path({mark!r}).touch()


class E(LossAlgorithm):
    def loss(self, logits, batch):
        return logits.log_softmax(-1).mean()
"""


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A folder with a sweep file that names a Python file, which leaves a mark when it is imported."""
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "evil.py").write_text(EVIL.format(mark=str(tmp_path / "mark")))
    write_sweep(folder, f"{folder / 'evil.py'}:E", "Digits_USS")
    return folder


def write_sweep(folder: Path, algorithm: str, dataset: str, more: str = "") -> None:
    (folder / "sweep-0.toml").write_text(
        f"schema = 1\n[[grid]]\nalgorithms = [{json.dumps(algorithm)}, 'CC']\n"
        f"datasets = [{json.dumps(dataset)}]\n"
        f"n_hparams = 2\nn_trials = 1\nsteps = 20\ncheckpoint_freq = 10\n{more}"
        f"[fingerprints]\n{json.dumps(dataset)} = {json.dumps(SHELF.get('Digits_USS').fingerprint)}\n"
    )


COMMANDS = [
    ["sweep", "status", "--output_dir", "{}"],
    ["sweep", "status", "--output_dir", "{}", "--json"],
    ["sweep", "status", "--output_dir", "{}", "--file", "{}/sweep-0.toml"],
    ["sweep", "delete-incomplete", "--output_dir", "{}", "--skip_confirmation"],
    ["sweep", "plan", "--output_dir", "{}", "--probe_seconds", "0"],
    ["sweep", "best", "{}"],
    ["collect", "{}"],
    ["stats", "{}"],
    ["plot", "curves", "{}", "--output", "curves.svg"],
    ["report", "{}", "--output", "site"],
    ["export", "{}", "--output", "out.parquet"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
@pytest.mark.parametrize("kind", ["algorithm", "dataset", "module", "network", "criterion"])
def test_looking_imports_nothing(
    command: list[str], kind: str, evil: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(evil)
    if kind == "dataset":
        write_sweep(evil, "PRODEN", f"{evil / 'evil.py'}:E")
    elif kind == "module":
        write_sweep(evil, "evil:E", "Digits_USS")
    elif kind == "network":
        write_sweep(
            evil, "PRODEN", "Digits_USS", f"[grid.hparams]\nmodel = {json.dumps(f'{evil}/evil.py:E')}\n"
        )
    elif kind == "criterion":
        write_sweep(evil, "PRODEN", "Digits_USS", f"more_criteria = {json.dumps(f'{evil}/evil.py:E')}\n")
    perform(plan_one(), evil)
    assert main([word.format(evil) for word in command]) == 0
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("kind", ["network", "criterion"])
def test_a_plan_measures_no_run_that_names_a_third_party(kind: str, evil: Path, tmp_path: Path) -> None:
    """A forged run.json says that what others' code is asked for is one of our own runs."""
    spec = f"{evil}/evil.py:E"
    if kind == "network":
        write_sweep(evil, "PRODEN", "Digits_USS", f"[grid.hparams]\nmodel = {json.dumps(spec)}\n")
    else:
        write_sweep(evil, "PRODEN", "Digits_USS", f"more_criteria = {json.dumps(spec)}\n")
    run = plan_one("PRODEN")
    assert perform(run, evil) == "done"
    (evil / run.folder / "done").unlink()
    path = evil / run.folder / "run.json"
    info = json.loads(path.read_text())
    if kind == "network":
        info["config"]["hparams"]["model"] = spec
    else:
        info["config"]["more_criteria"] = spec
    path.write_text(json.dumps(info))
    assert main(["sweep", "plan", "--output_dir", str(evil), "--probe_seconds", "2"]) == 0
    assert not (tmp_path / "mark").exists()


def test_classes_of_one_file_are_told_apart(evil: Path) -> None:
    code = (evil / "evil.py").read_text()
    (evil / "evil.py").write_text(code + "\n\nclass F(E):\n    pass\n")
    both = [f"{evil / 'evil.py'}:{name}" for name in "EF"]
    grid = Grid(tuple(both), ("Digits_USS",), n_hparams=1, n_trials=1, steps=20, checkpoint_freq=10)
    spec = settle(SweepSpec((grid,)), SHELF)
    perform(expand(spec)[0], evil)
    states = {run.algorithm[-1]: state.state for run, state in look_both(spec, evil)}
    assert states == {"E": "done", "F": "missing"}
    slower = SweepSpec((replace(grid, hparams={"lr": 0.5}),), spec.fingerprints)
    assert {state.state for _, state in look_both(slower, evil)} == {"missing"}


def look_both(spec: SweepSpec, folder: Path) -> list[tuple[PlannedRun, RunState]]:
    runs = look_at_runs([spec], SHELF, folder)
    return list(zip(runs, read_states(runs, folder), strict=True))


def test_runs_of_third_parties_are_found_by_their_descriptions(
    evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = read_sweep(evil / "sweep-0.toml")
    (theirs, *_) = (run for run in expand(settle(spec, SHELF)) if "evil" in run.algorithm)  # imports it
    assert perform(theirs, evil) == "done"
    (tmp_path / "mark").unlink()
    runs = look_at_runs([spec], SHELF, evil)
    assert sorted(entry.state for entry in read_states(runs, evil)) == [
        "done",
        "missing",
        "missing",
        "missing",
    ]
    assert main(["sweep", "status", "--output_dir", str(evil), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["states"] == {"done": 1, "missing": 3}
    (evil / theirs.folder / "done").unlink()
    assert main(["sweep", "delete-incomplete", "--output_dir", str(evil), "--skip_confirmation"]) == 0
    assert not (evil / theirs.folder).exists()
    assert not (tmp_path / "mark").exists()
    perform(theirs, evil)
    (evil / "evil.py").write_text((evil / "evil.py").read_text() + "# another version\n")
    assert not [run for run in look_at_runs([spec], SHELF, evil) if run.folder == theirs.folder]


def test_our_runs_are_the_planned_ones(tmp_path: Path) -> None:
    grid = Grid(("CC", "PRODEN"), ("Digits_USS",), n_hparams=2, n_trials=2, steps=20)
    spec = settle(SweepSpec((grid,)), SHELF)
    assert look_at_runs([spec], DataShelf(None), tmp_path) == expand(spec)
    assert look_at_runs([SweepSpec((grid,))], SHELF, tmp_path) == expand(spec)
    other = SweepSpec((replace(grid, steps=30),), spec.fingerprints)
    assert not {run.folder for run in look_at_runs([other], SHELF, tmp_path)} & {
        run.folder for run in expand(spec)
    }


@pytest.mark.parametrize(
    "text",
    [
        "[[grid]]\nalgorithms = 1\ndatasets = ['Digits_USS']",
        "[[grid]]\nalgorithms = [1]\ndatasets = ['Digits_USS']",
        "[[grid]]\nalgorithms = ['CC']\ndatasets = " + "[" * 3000 + "]" * 3000,
        "x = " + "[" * 100_000,
        "[[grid]]\nalgorithms = ['CC']\ndatasets = ['Digits_USS']\n[fingerprints]\nDigits_USS = 1",
        "[[grid]]\nalgorithms = ['CC']\ndatasets = ['Digits_USS']\nn_hparams = 2147483648",
        "[[grid]]\nalgorithms = ['CC']\ndatasets = ['Digits_USS']\nn_hparams = 1000\nn_trials = 1000",
        "[[grid]]\nalgorithms = ['CC']\ndatasets = ['Digits_USS']\nn_hparams = 99999999999999999999",
        "[[grid]]\nalgorithms = ['CC']\ndatasets = ['Digits_USS']\n[grid.hparams]\nlr = 1979-05-27",
        "[[grid]]\nalgorithms = ['CC']\ndatasets = ['Digits_USS']\n[grid.hparams]\nlr = [[1]]",
        "[[grid]]\nalgorithms = ['CC']\ndatasets = ['Digits_USS']\nsteps = " + "9" * 5000,
        "[[grid]]\nalgorithms = ['CC']\ndatasets = ['Digits_USS']\nsteps = [[[]]]",
        "\xff",
    ],
)
def test_bad_sweep_files(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sweep-0.toml"
    path.write_text(text, encoding="latin1")
    with pytest.raises(UsageError, match="sweep-0"):
        read_sweep(path)
    assert main(["sweep", "status", "--output_dir", str(tmp_path)]) == 2
    perform(plan_one(), tmp_path)
    assert main(["collect", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "CC" in shown.out
    assert "sweep-0.toml" in shown.out + shown.err


def test_a_pipe_in_place_of_a_sweep_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sweep-0.toml")
    assert main(["sweep", "status", "--output_dir", str(tmp_path)]) == 2
    perform(plan_one(), tmp_path)
    assert main(["collect", str(tmp_path)]) == 0


def test_plans_of_very_many_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    perform(plan_one(), tmp_path)
    for options in (["2147483648"], ["1000", "--planned_trials", "1000"]):
        assert main(["collect", str(tmp_path), "--planned_hparams", *options]) == 2
        assert "must be" in capsys.readouterr().err


def test_a_linked_folder_is_not_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    output.mkdir()
    run = plan_one()
    perform(run, elsewhere)
    (elsewhere / run.folder / "done").unlink()
    (output / run.folder).symlink_to(elsewhere / run.folder)
    (output / "sweep-0.toml").write_text(
        settle(
            SweepSpec((Grid(("CC",), ("Digits_USS",), 0, 1, 0, 1, steps=20, checkpoint_freq=10),)), SHELF
        ).to_toml()
    )
    assert main(["sweep", "delete-incomplete", "--output_dir", str(output), "--skip_confirmation"]) == 0
    assert (elsewhere / run.folder / "run.json").exists()
    assert "is a link and stays" in capsys.readouterr().err


def test_escapes_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = plan_one()
    perform(run, tmp_path)
    store = RunStore(tmp_path / run.folder)
    store.discard("done")
    hostile = "\x1b]0;owned\x07\x1b[2J\u202e"
    described = store.read_run()
    assert described is not None
    error = {"type": hostile, "message": hostile}
    store.write_run({**described, "status": "failed", "error": error, "algorithm_class": hostile})
    (tmp_path / "sweep-0.toml").write_text(
        settle(
            SweepSpec((Grid(("CC",), ("Digits_USS",), 0, 1, 0, 1, steps=20, checkpoint_freq=10),)), SHELF
        ).to_toml()
    )
    for command in (
        ["sweep", "status"],
        ["sweep", "status", "--json"],
        ["sweep", "plan", "--probe_seconds", "0"],
    ):
        main([*command, "--output_dir", str(tmp_path)])
        shown = capsys.readouterr()
        assert "\x1b" not in shown.out + shown.err
        assert "\u202e" not in shown.out + shown.err
    assert main(["train", "-a", hostile, "-d", "Digits_FPS"]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("command", [["sweep", "status", "--output_dir"], ["collect"], ["stats"]])
def test_names_of_folders_that_no_folder_can_have(command: list[str]) -> None:
    assert main([*command, "x" * 300]) == 2
