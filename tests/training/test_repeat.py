"""The same configuration gives the same numbers; what is not part of it changes nothing."""

from pathlib import Path

import pytest

from plench.contract.training import find_difference
from plench.training import RunConfig
from tests.training.harness import (
    LISTING,
    RESUMED,
    assert_same_run,
    describe,
    load_digits,
    only_folder,
    read_model,
    read_records,
    run,
    short_name,
)


@pytest.mark.parametrize("spec", RESUMED, ids=short_name)
def test_evaluating_more_often_does_not_change_training(spec: str, tmp_path: Path) -> None:
    often = run(tmp_path, spec, checkpoint_freq=10)
    seldom = run(tmp_path, spec, checkpoint_freq=1000)
    assert [record["step"] for record in read_records(often.folder)] == [0, 10, 20, 30, 40, 50, 59]
    assert [record["step"] for record in read_records(seldom.folder)] == [0, 59]
    assert find_difference(read_model(often.folder), read_model(seldom.folder)) is None


def test_how_often_checkpoints_are_written_changes_nothing(tmp_path: Path) -> None:
    often = run(tmp_path / "a", save_steps=1)
    never = run(tmp_path / "b", save_steps=None)
    assert_same_run(often.folder, never.folder)


def test_identity_depends_on_all_that_determines_the_numbers() -> None:
    base = describe()
    # One change at least for every field of the configuration; the data's name goes with its fingerprint.
    others = [
        describe("CC"),
        describe(LISTING),
        describe(steps=61),
        describe(checkpoint_freq=11),
        describe(trial_seed=1),
        describe(seed=1),
        describe(hparams_seed=1),
        describe(hparams={"lr": 0.01}),
        describe(hparams={"model": "MLP", "batch_size": 64}),
        describe(holdout_fraction=0.2),
        describe(tabular_test_fraction=0.2),
        describe(precision="bf16"),
        describe(compile=True),
        describe(pl_type="fps", fps_rate=0.5),
        describe(pl_type="uss"),
        describe(pl_type="fps", drop_true_rate=0.1),
    ]
    changed = {
        key for config in others for key, value in config.to_json().items() if value != base.to_json()[key]
    }
    assert changed == set(base.to_json()) - {"dataset"}
    identities = [config.run_id("data") for config in (base, *others)] + [base.run_id("other data")]
    assert len(set(identities)) == len(identities)
    folders = {config.folder_name("data") for config in (base, *others)}
    assert len(folders) == len(others) + 1


def test_identity_depends_on_nothing_else(tmp_path: Path) -> None:
    config = describe()
    assert config.run_id("data") == describe("proden").run_id("data")
    assert config.run_id("data") == RunConfig.from_json(config.to_json()).run_id("data")
    one = run(tmp_path / "a", threads=1, steps=2)
    two = run(tmp_path / "elsewhere", threads=2, skip_model_save=True, steps=2)
    assert one.folder.name == two.folder.name == describe(steps=2).folder_name(load_digits().fingerprint)


def test_a_run_leaves_no_path_in_its_records(tmp_path: Path) -> None:
    run(tmp_path / "out", LISTING)
    folder = only_folder(tmp_path / "out")
    for name in ("results.jsonl", "run.json"):
        text = (folder / name).read_text(encoding="utf-8")
        assert str(tmp_path) not in text
        assert "fixtures" not in text
