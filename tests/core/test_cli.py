import json
import subprocess
import sys

import pytest

from plench.cli import main, with_underscores
from plench.version import __version__


def test_import_is_light():
    code = "import sys, plench; sys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
    assert with_underscores(["--data-dir=a-b", "-a", "x-y", "--", "--c-d"]) == [
        "--data_dir=a-b",
        "-a",
        "x-y",
        "--",
        "--c-d",
    ]


def test_unknown_option_is_bad_usage(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "-a", "CC", "-d", "Digits_FPS", "--no_such_option", "1"])
    assert stop.value.code == 2
    assert "no_such_option" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-a", "PRODEM", "-d", "Digits_FPS"], "unknown algorithm 'PRODEM': the nearest are PRODEN"),
        (["-a", "CC", "-d", "Digit_FPS"], "the nearest are Digits_FPS"),
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
        (["-a", "CC", "-d", "Digits_FPS", "--threads", "0"], "threads must be at least 1"),
        (["-a", "CC", "-d", "Digits_FPS", "--save_steps", "0"], "save_steps must be at least 1"),
        (["-a", "CC", "-d", "Digits_FPS", "--save_seconds", "nan"], "save_seconds must be above 0"),
        (["-a", "CC", "-d", "Digits_FPS", "--holdout_fraction", "0"], "holdout_fraction"),
        (["-a", "no/such.py:X", "-d", "Digits_FPS"], "cannot read the algorithm's file"),
        (["-a", "no_such_module:X", "-d", "Digits_FPS"], "fails to import"),
        (["-a", "json:JSONDecoder", "-d", "Digits_FPS"], "is not a subclass of"),
        (["-a", "json:Nothing", "-d", "Digits_FPS"], "has no class 'Nothing'"),
        (["-a", "CC", "-d", "Lost"], "--data_dir"),
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


def test_list_filters_by_pattern(capsys):
    assert main(["list", "algorithms", "scl_*", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["SCL_EXP", "SCL_NL"]
    assert rows[0]["family"] == "vanilla CLL"


@pytest.mark.parametrize("what", ["algorithms", "datasets", "criteria", "models"])
def test_every_list_prints(what, capsys):
    assert main(["list", what]) == 0
    assert "name" in capsys.readouterr().out
