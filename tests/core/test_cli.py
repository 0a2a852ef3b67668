"""The command line: its help, its flags, bad usage, lists, and the paper's commands."""

import argparse
import io
import json
import logging
import subprocess
import sys
from contextlib import redirect_stderr

import pytest

import plench
from plench.algorithms import algorithms
from plench.cli import (
    COMMAND_ALIASES,
    COMMANDS,
    FLAG_ALIASES,
    build_parser,
    doctor,
    main,
    run_command,
    spell_flags,
)
from plench.cli.demo import ALGORITHMS
from plench.cli.list import choose_columns
from plench.criteria import CRITERIA
from plench.errors import UsageError
from plench.runs import read_runs
from plench.settings import __version__
from tests.conftest import ROOT
from tests.data.test_sources import write_mat

TRAIN = ["train", "-a", "CC", "-d", "Digits_USS", "--steps", "3", "--checkpoint-freq", "2"]


def exit_with(code: int, *words: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == code


def read_json(cli, *words: str):
    return json.loads(cli(*words, "--json").out)


def run_python(code: str, *words: str) -> subprocess.CompletedProcess:
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("import plench", ["torch", "rich", "numpy"]),
        ("from plench.cli import build_parser; [*build_parser().walk()]", ["torch", "matplotlib", "sklearn"]),
        ("from plench.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass", ["torch", "numpy"]),
        (
            f"from plench.cli import main; main(['collect', {str(ROOT / 'tests/golden/folders/sweep')!r}])",
            ["torch", "plench.cli.train"],
        ),
        # torch's compiler takes two seconds; torch's own optimisers import it when they are made
        ("from plench.cli import main; main(sys.argv[1:])", ["torch._dynamo"]),
    ],
)
def test_what_is_slow_to_import_is_imported_when_needed(code, modules, tmp_path):
    code = f"import sys\n{code}\nsys.exit(', '.join({{*{modules!r}}} & {{*sys.modules}}) or 0)"
    run_python(code, *TRAIN, "--output-dir", str(tmp_path))


def test_a_package_shows_its_public_names_only():
    assert dir(plench) == sorted(plench.__all__)
    assert all(hasattr(plench, name) for name in dir(plench))
    assert plench.train is plench.api.train


def test_help_and_version(capsys):
    exit_with(0, "--version")
    assert capsys.readouterr().out == f"plench {__version__}\n"
    exit_with(0, "--help")
    text = capsys.readouterr().out
    assert "plench train -a PRODEN -d Digits_FPS" in text
    assert "1 a run failed, 2 bad usage" in text
    for command in COMMANDS:
        exit_with(0, command, "--help")
        assert f"\n  plench {command} " in capsys.readouterr().out
    flags = {name for parser in build_parser().walk() for name in parser._option_string_actions}
    assert len(COMMANDS) <= 16
    assert [name for name in flags if "_" in name] == []
    assert [new for new in FLAG_ALIASES.values() if new not in flags] == []


@pytest.mark.parametrize("alias", COMMAND_ALIASES)
def test_earlier_spellings_of_commands_are_the_same_commands(alias, capsys):
    exit_with(0, alias, "--help")
    page = capsys.readouterr().out
    exit_with(0, *COMMAND_ALIASES[alias], "--help")
    assert capsys.readouterr().out == page


def test_flags_have_dashes_underscores_and_earlier_names():
    words = ["--data_dir=a_b", "--fleet", "2", "-a", "x_y", "--", "--c_d"]
    assert spell_flags(words) == ["--data-dir=a_b", "--stack", "2", "-a", "x_y", "--", "--c_d"]


@pytest.mark.parametrize(
    "words",
    [
        ["list", "datasets", "--js"],
        ["data", "info", "Digits_FPS", "--trial", "1"],
        [*TRAIN, "--no-such-option", "1"],
        ["list", "algorithms", "--no-such\x1b[2J"],
    ],
)
def test_options_are_known_by_their_full_names_only(words, capsys):
    exit_with(2, *words)
    error = capsys.readouterr().err
    assert "error: unknown option '--" in error
    assert "\x1b" not in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "plench: error: argument COMMAND: unknown command 'trian'; did you mean train?"),
        (
            ["sweep", "lanch"],
            "plench sweep: error: argument COMMAND: unknown command 'lanch'; did you mean launch",
        ),
        (
            ["train", "--step", "3", *TRAIN[1:5]],
            "plench train: error: unknown option '--step'; did you mean --steps",
        ),
        ([*TRAIN, "--pl-type", "usss"], "argument --pl-type: unknown value 'usss'; did you mean uss"),
        (["list", "algs"], "argument LIST: unknown list 'algs'; did you mean algorithms"),
    ],
)
def test_a_wrong_word_names_the_nearest(words, message, capsys):
    exit_with(2, *words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["algorithms", "PRODEN", "PRODAN"], "unknown algorithm 'PRODAN'; did you mean PRODEN"),
        (["datasets", "Lostt", "--json"], "unknown dataset 'Lostt'; did you mean Lost"),
        (["criteria", "XYZ"], "unknown criterion 'XYZ'; expected one of AA, CR"),
        (["models", "Q*"], "unknown model 'Q*'; expected one of CNN"),
    ],
)
def test_a_list_of_an_unknown_name_is_an_error(words, message, cli):
    assert message in cli("list", *words, code=2).err


def test_help_names_the_folder_that_a_command_writes_to(capsys):
    for words, folder in ((["sweep", "refit"], "refit"), (["train"], "runs"), (["sweep", "pilot"], "pilot")):
        exit_with(0, *words, "--help")
        assert f"(default: {folder})" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-d", "Digit_FPS"], "did you mean"),
        (["--hparams", "{"], "--hparams is not JSON"),
        (["--hparams", "[1]"], "must be a JSON object"),
        (["--hparams", '{"beta": 1}'], "unknown hyperparameter 'beta'; expected one of lr"),
        (["--hparams", '{"lr": -1}'], "lr must be above 0"),
        (["--hparams", '{"lr": "a"}'], "lr must be of type float"),
        (["--hparams", '{"max_steps": 7}'], "set it with --steps"),
        (["--hparams", '{"model": "MLQ"}'], "unknown model 'MLQ'"),
        (["--trial_seed", "-1"], "trial_seed must be"),
        (["--save_seconds", "nan"], "save_seconds must be a number above 0"),
        (["-a", __file__], ": a name is missing; it has nothing of this kind"),
        (["-d", "Lost"], "--data-dir"),
        (["--family=--"], "--family must be followed by a value, not by --"),
        (["--skip_model_save", "--save_model_every_checkpoint"], "contradict each other"),
    ],
)
def test_bad_input_names_what_is_expected_and_writes_nothing(words, message, tmp_path, cli):
    assert message in cli(*TRAIN, *words, "--output_dir", tmp_path / "runs", code=2).err
    assert not (tmp_path / "runs").exists()


def test_a_run_in_one_call_is_that_of_the_command(tmp_path, cli):
    words = [*TRAIN, "--hparams", '{"lr": 0.01}', "--output_dir", str(tmp_path)]
    first = read_json(cli, *words)
    assert (first["status"], first["updates_made"]) == ("done", 3)
    assert first["last_record"]["step"] == 2
    assert set(first["chosen"]) == set(CRITERIA.own) >= {"CR", "AA", "OA", "OA_ES"}
    outcome = plench.train("cc", "digits-uss", tmp_path, steps=3, checkpoint_freq=2, hparams={"lr": 0.01})
    assert (str(outcome.folder), outcome.updates_made) == (first["folder"], 0)
    with pytest.raises(UsageError, match="unknown setting 'trial_sed'; did you mean trial_seed"):
        plench.train("CC", "Digits_USS", tmp_path, trial_sed=1)


def test_the_paper_s_command_takes_every_flag_of_the_protocol(tmp_path):
    numbers = {"steps": 2, "checkpoint_freq": 1, "hparams_seed": 1, "trial_seed": 1, "seed": 1}
    numbers |= {"holdout_fraction": 0.2, "tabular_test_fraction": 0.2, "fps_rate": 0.2, "drop_true_rate": 0.1}
    names = {"algorithm": "PRODEN", "dataset": "Digits_FPS", "pl_type": "fps"}
    places = {"data_dir": tmp_path, "output_dir": tmp_path / "runs", "hparams": '{"lr": 0.01}'}
    flags = [f"--{name}={value}" for name, value in {**numbers, **names, **places}.items()]
    command = [sys.executable, "-m", "plench.train", *flags, "--skip_model_save"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (record,) = [json.loads(line) for line in next(tmp_path.glob("runs/*/results.jsonl")).open()][1:]
    assert {name: record["args"][name] for name in (*numbers, *names)} == {**numbers, **names}
    assert record["hparams"]["lr"] == 0.01
    assert not list(tmp_path.glob("runs/*/model_*"))


def test_algorithms_are_listed_by_pattern_as_their_cards_say(cli):
    cards = {name: entry.card for name, entry in algorithms().items()}
    rows = {row["name"]: row for row in read_json(cli, "list", "algorithms")}
    assert set(rows) == set(cards)
    keys = ("family", "answers", "idea", "venue", "views", "passes", "state")
    for name, row in rows.items():
        shown = {key: getattr(cards[name], key) for key in keys}
        assert row == {"name": name, **shown, "views": list(shown["views"])}
    assert [row["name"] for row in read_json(cli, "list", "algorithms", "scl_*")] == ["SCL_EXP", "SCL_NL"]
    assert [row["name"] for row in read_json(cli, "list", "algorithms", "pico+")] == ["PiCO_plus"]


def test_a_named_algorithm_shows_its_hyperparameters(cli):
    (row,) = read_json(cli, "list", "algorithms", "abs gce")
    by_name = {parameter.pop("name"): parameter for parameter in row["hyperparameters"]}
    expected = {"default": 0.001, "search": "10^U(-4.5, -2.5)", "range": "> 0"}
    expected |= {"meaning": "learning rate of Adam", "image_default": None, "image_search": None}
    assert by_name["lr"] == expected
    assert by_name["batch_size"]["image_default"] == 256
    text = cli("list", "algorithms", "abs gce").out
    for part in ("hyperparameters of ABS_GCE", "10^U(-4.5, -2.5)", "Average the generalised cross entropy"):
        assert part in text


def test_json_lists_hold_data_and_tables_hold_text(cli):
    digits, lost = read_json(cli, "list", "datasets", "lost", "digits_fps")
    assert lost.items() >= {"name": "Lost", "kind": "tabular", "data": "download", "examples": 1122}.items()
    assert lost.items() >= {"classes": 16, "candidates": "real", "mean_size": 2.23, "steps": 10_000}.items()
    assert (digits["data"], digits["examples"], digits["noise_rate"]) == ("built in", 1797, None)
    rows = read_json(cli, "list", "datasets", "music*", "emotion*", "plcifar10_v*", "mnist")
    assert [(row["name"], row["test_set"], row["answers"]) for row in rows] == [
        ("EmotionLines", "own", "votes"),
        ("MNIST", "own", None),
        ("Music_Crowd", "own", "kept"),
        ("PLCIFAR10_Vaguest", "own", "combined"),
    ]
    criteria = read_json(cli, "list", "criteria")
    assert [row["name"] for row in criteria][:4] == ["CR", "AA", "OA", "OA_ES"]
    assert [row["needs_labels"] for row in criteria] == [c.member.needs_labels for c in CRITERIA.own.values()]
    for what in ("algorithms", "criteria", "models", "datasets"):
        text = cli("list", what).out
        assert "name" in text
    assert all(part in text for part in ("1,122", "17.56%", "also path/to/file.npz"))


def test_a_narrow_window_shows_the_first_columns():
    cells = [{"name": "x" * 20, "kind": "tabular", "steps": "10,000", "task": "a long sentence of words"}]
    for width, n_columns in ((200, 4), (54, 4), (53, 3), (30, 1)):
        assert choose_columns(cells, width) == ["name", "kind", "steps", "task"][:n_columns]


def test_a_warning_goes_to_the_standard_error_of_the_moment():
    above_the_bar = io.StringIO()

    def work(args):
        with redirect_stderr(above_the_bar):  # as a progress bar does
            logging.getLogger("plench").warning("%s is odd", "something")
        return 0

    parser = argparse.ArgumentParser()
    parser.set_defaults(run=work)
    assert run_command(parser, []) == 0
    assert above_the_bar.getvalue() == "warning: something is odd\n"


def test_doctor_finds_data_and_says_how_to_get_what_is_missing(tmp_path, cli, monkeypatch):
    write_mat(tmp_path / "lost.mat")
    (tmp_path / "MSRCv2.mat").write_bytes(b"not MATLAB")
    words = ["doctor", "--data_dir", str(tmp_path), "--output_dir", str(tmp_path / "r")]
    found = read_json(cli, *words)
    assert found["plench"] == __version__
    assert found["packages"]["torch"]
    assert "cpu" in found["devices"]
    assert found["disk"] == {"folder": str(tmp_path), "free_gb": found["disk"]["free_gb"], "writable": True}
    data = {row["name"]: row for row in found["data"]}
    assert [name for name in ("Digits_FPS", "Lost", "MSRCv2", "Birdsong") if data[name]["found"]] == [
        *("Digits_FPS", "Lost"),
    ]
    assert "MSRCv2" in data["MSRCv2"]["problem"]
    assert data["Birdsong"]["problem"] is None
    assert data["English"]["how"] == "by hand"
    monkeypatch.setattr(doctor, "find_version", lambda name: None if name in ("ray", "torch") else "1.0")
    text = cli(*words, code=1).out
    for part in ("torch MISSING", "missing: pip install ray (sweeps on a Ray cluster)", "English"):
        assert part in text
    assert f"plench data download NAME … --data-dir {tmp_path}" in text


@pytest.mark.parametrize("extra", doctor.EXTRAS)
def test_extras_are_those_of_the_package(extra):
    from importlib.metadata import requires

    declared = [text for text in requires("plench") or [] if f'extra == "{extra}"' in text.replace("'", '"')]
    if not declared:
        pytest.skip("plench is not installed")
    assert len(declared) == len(doctor.EXTRAS[extra])
    for package, _ in doctor.EXTRAS[extra]:
        assert any(text.startswith(package) for text in declared)


def test_the_demo_runs_selects_and_names_its_files(tmp_path, cli):
    folder = tmp_path / "demo"
    text = cli("demo", "--steps", "12", "--output_dir", folder, "--workers", "2").out
    for name in (*ALGORITHMS, "Digits_USS", "Digits_FPS", "CR", "AA", "OA w/ ES", str(folder)):
        assert name in text
    runs = read_runs(folder)
    assert len(runs) == len(ALGORITHMS) * 2 * 2 * 2
    assert all(run.finished for run in runs)
    page = folder / "site" / "index.html"
    assert str(page) in text
    assert "plench report" in page.read_text()
    assert r"\toprule" in (folder / "leaderboard.tex").read_text()
    assert cli("demo", "--steps", "12", "--output_dir", folder).out == text
