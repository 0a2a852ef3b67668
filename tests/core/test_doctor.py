"""`plench doctor`: what is there, what is missing, how to get it."""

import json

import pytest

from plench.cli import doctor, main
from plench.settings import __version__
from tests.data.test_sources import write_mat


def test_findings_as_json(tmp_path, capsys):
    write_mat(tmp_path / "lost.mat")
    (tmp_path / "MSRCv2.mat").write_bytes(b"no MATLAB file")
    assert main(["doctor", "--data_dir", str(tmp_path), "--output_dir", str(tmp_path / "r"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plench"] == __version__
    assert found["packages"]["torch"]
    assert "cpu" in found["devices"]
    assert found["disk"] == {"folder": str(tmp_path), "free_gb": found["disk"]["free_gb"], "writable": True}
    data = {row["name"]: row for row in found["data"]}
    assert data["Digits_FPS"]["found"]
    assert data["Lost"]["found"]
    assert not data["MSRCv2"]["found"]
    assert "MSRCv2" in data["MSRCv2"]["problem"]
    assert not data["Birdsong"]["found"]
    assert data["Birdsong"]["problem"] is None
    assert data["English"]["how"] == "by hand"


def test_text_says_how_to_get_what_is_missing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "find_version", lambda name: None if name in ("ray", "torch") else "1.0")
    assert main(["doctor", "--data_dir", str(tmp_path)]) == 1  # nothing runs without torch
    text = capsys.readouterr().out
    assert "torch MISSING" in text
    assert "missing: pip install ray (sweeps on a Ray cluster)" in text
    assert f"plench data download NAME … --data-dir {tmp_path}" in text
    assert "no public download: English" in text


@pytest.mark.parametrize("extra", doctor.EXTRAS)
def test_extras_are_those_of_the_package(extra):
    from importlib.metadata import requires

    declared = [text for text in requires("plench") or [] if f'extra == "{extra}"' in text.replace("'", '"')]
    if not declared:
        pytest.skip("plench is not installed")
    assert len(declared) == len(doctor.EXTRAS[extra])
    for package, _ in doctor.EXTRAS[extra]:
        assert any(text.startswith(package) for text in declared)
