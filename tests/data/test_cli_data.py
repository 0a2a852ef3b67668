import json

import pytest

from plench.cli import build_parser, spell_flags
from plench.data import CandidateSpec, dataset_card, draw_candidates, load_dataset
from plench.data.sources import find_source
from plench.errors import DataError, UsageError


def run(*words):
    arguments = build_parser().parse_args(spell_flags(["data", *words]))
    return arguments.run(arguments)


def test_info_as_json_has_the_figures_of_the_drawn_dataset(capsys):
    options = ["--pl_type", "fps", "--fps_rate", "0.5", "--drop_true_rate", "0.2", "--trial_seed", "3"]
    assert run("info", "digits uss", "--json", *options) == 0
    info = json.loads(capsys.readouterr().out)
    loaded = load_dataset("Digits_USS")
    drawn = draw_candidates(loaded, CandidateSpec("fps", fps_rate=0.5, drop_true_rate=0.2), 3)
    assert info["card"]["name"] == "Digits_USS"
    assert info["mean_candidates"] == drawn.mean_candidates
    assert info["noise_rate"] == drawn.noise_rate
    assert sum(info["set_sizes"].values()) == info["examples"] == 1797
    assert info["fingerprint"] == loaded.fingerprint
    assert info["candidates"] == {"pl_type": "fps", "fps_rate": 0.5, "id_rate": None, "drop_true_rate": 0.2}


def test_info_as_text_shows_card_sizes_histogram_and_warnings(capsys, tmp_path):
    from tests.data.test_sources import write_mat

    write_mat(tmp_path / "lost.mat")
    assert run("info", "Lost", "--data_dir", str(tmp_path)) == 0
    text = capsys.readouterr().out
    assert dataset_card("Lost").citation in text
    assert "examples      20\n" in text
    assert "1       20 ####" in text
    assert "warning: Lost has 20 examples; published are 1,122" in text


def test_info_without_files_shows_the_card_and_how_to_get_them(capsys):
    assert run("info", "PLCIFAR10 Vaguest") == 0
    text = capsys.readouterr().out
    assert dataset_card("PLCIFAR10_Vaguest").terms in text
    assert "given noise   17.556%" in text
    assert "examples      50,000\n" in text
    assert "noise rate    17.56%\n" in text
    assert "name their folder with --data-dir" in text
    assert run("info", "MNIST", "--json") == 0
    info = json.loads(capsys.readouterr().out)
    assert info["card"]["sizes"] == {"examples": 60_000, "features": 784, "classes": 10}
    assert info["obtain"] == find_source("MNIST").obtain
    with pytest.raises(DataError, match="No such file"):
        run("info", "absent.npz")


def test_download_prints_the_paths(capsys, monkeypatch, tmp_path):
    from plench.cli import data

    monkeypatch.setattr(data, "download_dataset", lambda name, folder: [tmp_path / f"{name} in {folder}"])
    assert run("download", "Lost", "--data_dir", "here") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'Lost in here'}\n"


def test_several_datasets_and_suites_are_downloaded(capsys, tmp_path, monkeypatch):
    asked = []

    def fetch(name, data_dir):
        asked.append(name)
        if name in ("English", "MSRCv2"):
            raise DataError(f"{name} cannot be downloaded")
        return [tmp_path / name]

    monkeypatch.setattr("plench.cli.data.download_dataset", fetch)
    assert run("download", "lost", "Birdsong", "--data_dir", str(tmp_path)) == 0
    assert asked == ["Lost", "Birdsong"]
    asked.clear()
    with pytest.raises(DataError, match=r"2 of 9 failed:\nEnglish.*\nMSRCv2"):
        run("download", "--suite", "tabular", "--data_dir", str(tmp_path))
    assert len(asked) == 9  # those after a failure too
    with pytest.raises(UsageError, match="say which datasets"):
        run("download", "--data_dir", str(tmp_path))
