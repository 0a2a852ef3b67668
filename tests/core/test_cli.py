import json
import subprocess
import sys

import pytest

import plench
from plench import train
from plench.cli import COMMAND_ALIASES, COMMANDS, FLAG_ALIASES, build_parser, main, spell_flags
from plench.cli.list import choose_columns
from plench.errors import UsageError
from plench.settings import __version__


def test_the_options_of_every_command_are_shown_without_torch():
    code = (
        "import sys; from plench.cli import build_parser; [*build_parser().walk()];"
        "sys.exit(', '.join({'torch', 'matplotlib', 'sklearn'} & {*sys.modules}) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_is_light():
    code = "import sys, plench; sys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_package_shows_its_public_names_only():
    assert dir(plench) == sorted(plench.__all__)
    assert all(hasattr(plench, name) for name in dir(plench))
    assert plench.train is plench.api.train


def test_training_does_not_import_torchs_compiler(tmp_path):
    """It takes two seconds; torch's own optimisers import it when they are made."""
    words = ["train", "-a", "PRODEN", "-d", "Digits_USS", "--steps", "3", "--output_dir", str(tmp_path)]
    code = (
        "import sys; from plench.cli import main; status = main(sys.argv[1:]);"
        "sys.exit('torch._dynamo' in sys.modules or status)"
    )
    subprocess.run([sys.executable, "-c", code, *words], check=True)


def test_two_dashes_are_no_value(capsys):
    assert main(["list", "algorithms", "--family=--"]) == 2
    assert "--family must be followed by a value, not by --" in capsys.readouterr().err


def test_bad_usage_prints_no_escapes(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["list", "algorithms", "--no-such\x1b[2J"])
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert "unrecognized arguments: --no-such" in told
    assert "\x1b" not in told


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"plench {__version__}\n"


def test_help_has_examples_and_exit_codes(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "plench train -a PRODEN -d Digits_FPS" in text
    assert "1 a run failed, 2 bad usage" in text


def test_dashes_and_underscores_are_the_same_option():
    words = ["--data_dir=a_b", "-a", "x_y", "--", "--c_d"]
    assert spell_flags(words) == ["--data-dir=a_b", "-a", "x_y", "--", "--c_d"]


def test_the_help_shows_few_commands_and_flags_with_dashes():
    assert len(COMMANDS) <= 16
    flags = {name for parser in build_parser().walk() for name in parser._option_string_actions}
    assert [name for name in flags if "_" in name] == []
    assert [new for new in FLAG_ALIASES.values() if new not in flags] == []


@pytest.mark.parametrize("alias", COMMAND_ALIASES)
def test_earlier_spellings_of_commands_are_the_same_commands(alias, capsys):
    pages = []
    for words in ([alias], COMMAND_ALIASES[alias]):
        with pytest.raises(SystemExit) as stop:
            main([*words, "--help"])
        assert stop.value.code == 0
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1]


def test_unknown_option_is_bad_usage(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "-a", "CC", "-d", "Digits_FPS", "--no-such-option", "1"])
    assert stop.value.code == 2
    assert "no-such-option" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-a", "PRODEM", "-d", "Digits_FPS"], "unknown algorithm 'PRODEM'; did you mean PRODEN"),
        (["-a", "CC", "-d", "Digit_FPS"], "did you mean"),
        (["-a", "CC", "-d", "Digits_FPS", "--hparams", "{"], "--hparams is not JSON"),
        (["-a", "CC", "-d", "Digits_FPS", "--hparams", "[1]"], "must be a JSON object"),
        (["-a", "CC", "-d", "Digits_FPS", "--hparams", '{"beta": 1}'], "unknown hyperparameter 'beta'"),
        (["-a", "CC", "-d", "Digits_FPS", "--hparams", '{"lr": -1}'], "lr must be above 0"),
        (["-a", "CC", "-d", "Digits_FPS", "--hparams", '{"lr": "a"}'], "lr must be of type float"),
        (["-a", "CC", "-d", "Digits_FPS", "--hparams", '{"max_steps": 7}'], "set it with --steps"),
        (["-a", "CC", "-d", "Digits_FPS", "--hparams", '{"model": "MLQ"}'], "unknown model 'MLQ'"),
        (["-a", "CC", "-d", "Digits_FPS", "--steps", "0"], "steps must be a whole number of at least 1"),
        (["-a", "CC", "-d", "Digits_FPS", "--trial_seed", "-1"], "trial_seed must be"),
        (["-a", "CC", "-d", "Digits_USS", "--fps_rate", "0.2"], "fps_rate is only for pl_type fps"),
        (["-a", "CC", "-d", "Digits_FPS", "--device", "tpu"], "unknown device 'tpu'"),
        (["-a", "CC", "-d", "Digits_FPS", "--threads", "0"], "threads must be a whole number of at least 1"),
        (
            ["-a", "CC", "-d", "Digits_FPS", "--save_steps", "0"],
            "save_steps must be a whole number of at least 1",
        ),
        (["-a", "CC", "-d", "Digits_FPS", "--save_seconds", "nan"], "save_seconds must be a number above 0"),
        (["-a", "CC", "-d", "Digits_FPS", "--holdout_fraction", "1"], "holdout_fraction"),
        (["-a", "no/such.py:X", "-d", "Digits_FPS"], "cannot read the algorithm's file"),
        (["-a", "no_such_module:X", "-d", "Digits_FPS"], "fails to import"),
        (["-a", "json:JSONDecoder", "-d", "Digits_FPS"], "is not a subclass of"),
        (["-a", "json:Nothing", "-d", "Digits_FPS"], "has no algorithm 'Nothing'"),
        (["-a", __file__, "-d", "Digits_FPS"], ": a name is missing; it has nothing of this kind"),
        (["-a", ":X", "-d", "Digits_FPS"], "expected path/to/file.py:NAME"),
        (["-a", "CC", "-d", "Lost"], "--data-dir"),
        (
            ["-a", "CC", "-d", "Digits_FPS", "--skip_model_save", "--save_model_every_checkpoint"],
            "contradict each other",
        ),
    ],
)
def test_bad_input_names_what_is_allowed_and_writes_nothing(arguments, message, tmp_path, capsys):
    output = tmp_path / "runs"
    assert main(["train", *arguments, "--output_dir", str(output)]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_train_prints_its_outcome_as_json(tmp_path, capsys):
    arguments = ["train", "-a", "cc", "-d", "digits-uss", "--steps", "3", "--checkpoint-freq", "2", "--json"]
    assert main([*arguments, "--output_dir", str(tmp_path)]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["status"] == "done"
    assert outcome["updates_made"] == 3
    assert main([*arguments, "--output_dir", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["updates_made"] == 0


def test_a_run_in_one_call_is_that_of_the_command(tmp_path, capsys):
    outcome = train("cc", "digits-uss", tmp_path, steps=3, checkpoint_freq=2, hparams={"lr": 0.01})
    assert outcome.status == "done"
    arguments = ["-a", "CC", "-d", "Digits_USS", "--steps", "3", "--checkpoint_freq", "2"]
    assert (
        main(["train", *arguments, "--hparams", '{"lr": 0.01}', "--output_dir", str(tmp_path), "--json"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["folder"], told["updates_made"]) == (str(outcome.folder), 0)
    with pytest.raises(UsageError, match="unknown setting 'trial_sed'; did you mean trial_seed"):
        train("CC", "Digits_USS", tmp_path, trial_sed=1)


def test_list_filters_by_pattern(capsys):
    assert main(["list", "algorithms", "scl_*", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["SCL_EXP", "SCL_NL"]
    assert [row.pop("hyperparameters")[0]["name"] for row in rows] == ["lr", "lr"]
    assert rows[0] == {
        "name": "SCL_EXP",
        "family": "vanilla CLL",
        "answers": False,
        "idea": rows[0]["idea"],
        "venue": "ICML 2020",
        "views": ["weak"],
        "passes": "1",
        "state": "none",
    }
    assert main(["list", "algorithms", "pico+", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["PiCO_plus"]


def test_json_lists_hold_data_and_tables_hold_text(capsys):
    assert main(["list", "datasets", "lost", "digits_fps", "--json"]) == 0
    digits, lost = json.loads(capsys.readouterr().out)
    assert lost == {
        "name": "Lost",
        "kind": "tabular",
        "data": "download",
        "examples": 1122,
        "classes": 16,
        "candidates": "real",
        "mean_size": 2.23,
        "noise_rate": 0.0,
        "test_set": "drawn",
        "answers": None,
        "steps": 10_000,
        "task": "automatic face naming",
    }
    assert (digits["data"], digits["examples"], digits["noise_rate"]) == ("built in", 1797, None)
    assert main(["list", "datasets", "music*", "plcifar10_v*", "mnist", "--json"]) == 0
    rows = {row["name"]: (row["test_set"], row["answers"]) for row in json.loads(capsys.readouterr().out)}
    assert rows == {
        "MNIST": ("own", None),
        "Music_Crowd": ("own", "kept"),
        "PLCIFAR10_Vaguest": ("own", "combined"),
    }
    assert main(["list", "datasets"]) == 0
    text = capsys.readouterr().out
    assert "1,122" in text
    assert "17.56%" in text
    assert "also path/to/file.npz" in text
    assert main(["list", "criteria", "--json"]) == 0
    assert {row["name"]: row["needs_labels"] for row in json.loads(capsys.readouterr().out)} == {
        "CR": False,
        "AA": False,
        "OA": True,
        "OA_ES": True,
    }


def test_a_narrow_window_has_whole_words_and_names_what_is_left_out():
    cells = [{"name": "x" * 20, "kind": "tabular", "steps": "10,000", "task": "a long sentence of words"}]
    assert choose_columns(cells, 200) == ["name", "kind", "steps", "task"]
    assert choose_columns(cells, 54) == ["name", "kind", "steps", "task"]
    assert choose_columns(cells, 53) == ["name", "kind", "steps"]
    assert choose_columns(cells, 30) == ["name"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_examples(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"\n  plench {command} " in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["list", "datasets", "--js"], ["data", "info", "Digits_FPS", "--trial", "1"]]
)
def test_options_are_known_by_their_full_names_only(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err


def test_the_paper_s_command_takes_every_flag_of_the_protocol(tmp_path):
    flags = {
        "data_dir": str(tmp_path),
        "algorithm": "PRODEN",
        "dataset": "Digits_FPS",
        "output_dir": str(tmp_path / "runs"),
        "steps": "2",
        "checkpoint_freq": "1",
        "hparams": '{"lr": 0.01}',
        "hparams_seed": "1",
        "trial_seed": "1",
        "seed": "1",
        "holdout_fraction": "0.2",
        "tabular_test_fraction": "0.2",
        "pl_type": "fps",
        "fps_rate": "0.2",
        "drop_true_rate": "0.1",
    }
    command = [sys.executable, "-m", "plench.train", *(f"--{name}={value}" for name, value in flags.items())]
    done = subprocess.run([*command, "--skip_model_save"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (record,) = [json.loads(line) for line in next(tmp_path.glob("runs/*/results.jsonl")).open()][1:]
    expected = {name: flags[name] for name in ("algorithm", "dataset", "pl_type")} | {
        "steps": 2,
        "checkpoint_freq": 1,
        "hparams_seed": 1,
        "trial_seed": 1,
        "seed": 1,
        "holdout_fraction": 0.2,
        "tabular_test_fraction": 0.2,
        "fps_rate": 0.2,
        "drop_true_rate": 0.1,
    }
    assert {name: record["args"][name] for name in expected} == expected
    assert record["hparams"]["lr"] == 0.01
    assert not list(tmp_path.glob("runs/*/model_*"))


@pytest.mark.parametrize("what", ["algorithms", "datasets", "criteria", "models"])
def test_every_list_prints(what, capsys):
    assert main(["list", what]) == 0
    assert "name" in capsys.readouterr().out


def test_a_named_algorithm_shows_its_hyperparameters(capsys):
    assert main(["list", "algorithms", "abs gce", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    by_name = {parameter["name"]: parameter for parameter in row["hyperparameters"]}
    assert by_name["lr"] == {
        "name": "lr",
        "default": 0.001,
        "search": "10^U(-4.5, -2.5)",
        "range": "> 0",
        "meaning": "learning rate of Adam",
        "image_default": None,
        "image_search": None,
    }
    assert by_name["batch_size"]["image_default"] == 256
    assert main(["list", "algorithms", "abs gce"]) == 0
    text = capsys.readouterr().out
    assert "hyperparameters of ABS_GCE" in text
    assert "10^U(-4.5, -2.5)" in text
    assert "Average the generalised cross entropy" in text


def test_algorithms_are_listed_as_their_cards_say():
    from plench.algorithms import algorithms, describe_algorithms

    cards = {name: entry.card for name, entry in algorithms().items()}
    rows = {row["name"]: row for row in describe_algorithms()}
    assert set(rows) == set(cards)
    for name, row in rows.items():
        card = cards[name]
        assert row == {
            "name": name,
            "family": card.family,
            "answers": card.answers,
            "idea": card.idea,
            "venue": card.venue,
            "views": list(card.views),
            "passes": card.passes,
            "state": card.state,
        }
