"""What a run leaves behind: records, description, models, and a record of what went wrong."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

import plench
from plench.cli import main
from plench.criteria import measure_all
from plench.data import draw_candidates, split_dataset
from plench.errors import DataError, UsageError
from plench.training.config import Status
from plench.training.run import measure
from tests.conftest import ROOT
from tests.training.harness import (
    LISTING,
    MISBEHAVED,
    STEPS,
    load_digits,
    only_folder,
    read_description,
    read_records,
    run,
    short_name,
)


def test_the_loss_of_a_record_is_the_mean_since_the_record_before(tmp_path: Path) -> None:
    every = read_records(run(tmp_path, checkpoint_freq=1).folder)
    some = read_records(run(tmp_path, checkpoint_freq=20).folder)
    losses = [record["loss"] for record in every]
    assert len(losses) == STEPS
    for record, window in zip(some, ([0, 1], [1, 21], [21, 41], [41, 60]), strict=True):
        assert record["loss"] == pytest.approx(np.mean(losses[slice(*window)]), rel=1e-5)


@pytest.mark.parametrize("spec", ["PRODEN", LISTING], ids=short_name)
def test_a_loaded_model_predicts_what_the_records_say(spec: str, tmp_path: Path) -> None:
    folder = run(tmp_path, spec).folder
    dataset = draw_candidates(load_digits(), load_digits().card.candidates, 0)
    assert dataset.labels is not None
    split = split_dataset(dataset, 0)
    records = [record for record in read_records(folder) if record["step"] > 0]
    best = {
        "last": records[-1],
        "CR": max(records, key=lambda record: record["val_covering_rate"]),
        "AA": max(records, key=lambda record: record["val_approximated_acc"]),
    }
    for criterion, record in best.items():
        model = plench.load(folder, criterion)
        assert model.updates == record["step"] + 1
        on_test = model.predict(dataset.features[split.test]) == dataset.labels[split.test]
        assert on_test.mean() == record["test_acc"]
        validation = model.predict(dataset.features[split.validation])
        assert (validation == dataset.labels[split.validation]).mean() == record["val_accuracy"]
        logits = model.predict_logits(dataset.features[split.validation])
        candidates = dataset.candidates[split.validation]
        figures = measure_all(logits, candidates, dataset.labels[split.validation])
        assert figures == {key: record[key] for key in figures}
        assert set(figures) >= {"val_accuracy", "val_covering_rate", "val_approximated_acc"}
        probs = model.predict_proba(dataset.features[split.test])
        np.testing.assert_allclose(probs.sum(1), 1)


def test_models_are_kept_as_asked_for(tmp_path: Path) -> None:
    none = run(tmp_path / "none", skip_model_save=True).folder
    assert not list(none.glob("model_*"))
    with pytest.raises(UsageError, match="it has no model"):
        plench.load(none)
    every = run(tmp_path / "every", save_model_every_checkpoint=True).folder
    names = {path.stem for path in every.glob("model_*")}
    steps = (0, 10, 20, 30, 40, 50, 59)
    assert names == {"model_last", "model_CR", "model_AA", *(f"model_step{step}" for step in steps)}
    assert [plench.load(every, f"step{step}").updates for step in steps] == [step + 1 for step in steps]
    with pytest.raises(UsageError, match="no model for 'step7'; it has AA, CR, last, step0, step10, step20"):
        plench.load(every, "step7")


def test_a_model_refuses_what_it_cannot_predict(tmp_path: Path) -> None:
    model = plench.load(run(tmp_path, steps=2).folder)
    for features, message in (
        (np.full((2, 64), np.nan), "feature 0 of example 0 is nan"),
        (np.zeros((0, 64)), "must be N×D and not empty"),
        (np.zeros(64), "must be N×D"),
        ([["a"] * 64], "must be real numbers"),
    ):
        with pytest.raises(DataError, match=message):
            model.predict(features)
    with pytest.raises(UsageError, match=r"expected \(n, 64\)"):
        model.predict(np.zeros((2, 63)))
    assert model.predict([[0.5] * 64]).shape == (1,)


def test_load_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no readable run\.json"):
        plench.load(tmp_path)
    (tmp_path / "run.json").write_text('{"dataset": {}}')
    with pytest.raises(DataError, match=r"its run\.json has no 'config'"):
        plench.load(tmp_path)
    folder = run(tmp_path).folder
    with pytest.raises(UsageError, match="it has AA, CR, last"):
        plench.load(folder, "OA")
    description = read_description(folder)
    data, config = description["dataset"], description["config"]
    for changes in (
        {"dataset": {**data, "input_shape": [1, 2**40]}},
        {"config": {**config, "hparams": {}}},
        {"run_id": "other"},
    ):
        (folder / "run.json").write_text(json.dumps({**description, **changes}))
        with pytest.raises(DataError, match="cannot be used"):
            plench.load(folder)
    (folder / "run.json").write_text(json.dumps(description))
    other = run(tmp_path / "other", seed=1).folder
    for content, reason in (
        ((other / "model_last.pt").read_bytes(), "the model of another run"),
        (b"damaged", "cannot be used"),
    ):
        (folder / "model_last.pt").write_bytes(content)
        with pytest.raises(DataError, match=reason):
            plench.load(folder)


def test_without_labels_oracle_figures_are_absent(tmp_path: Path) -> None:
    outcome = run(tmp_path, dataset=load_digits(without_labels=True))
    assert outcome.status == "done"
    for record in read_records(outcome.folder):
        assert record["val_accuracy"] is None
        assert record["test_acc"] is None
        assert 0 <= record["val_approximated_acc"] <= record["val_covering_rate"] <= 1
    assert read_description(outcome.folder)["dataset"]["train_noise_rate"] is None
    assert (outcome.folder / "model_CR.pt").exists()


def test_accuracy_by_third() -> None:
    labels, thirds = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])
    logits = np.eye(4)[[0, 1, 1, 0]]
    held_out = SimpleNamespace(candidates=np.ones((4, 4), bool), labels=labels)
    data: Any = SimpleNamespace(validation=held_out, test=SimpleNamespace(labels=labels, thirds=thirds))
    figures = measure(logits, logits, data)
    assert figures is not None
    assert [figures[f"test_acc_{part}"] for part in ("many", "medium", "few")] == [0.5, 0.5, None]


def train(spec: str, output: Path, *others: str) -> int:
    """Call the command `plench train` for a short run."""
    options = ["-a", spec, "-d", "Digits_FPS", "--output_dir", str(output), "--steps", str(STEPS)]
    return main(["train", *options, "--checkpoint_freq", "10", "--device", "cpu", *others])


def test_a_run_that_turns_nan_is_diverged_and_keeps_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(f"{MISBEHAVED}:Diverging", tmp_path, "--json") == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["status"] == "diverged"
    folder = only_folder(tmp_path)
    description = read_description(folder)
    assert description["status"] == "diverged"
    assert description["diverged_after_step"] == 20
    records = read_records(folder)
    assert [record["step"] for record in records] == [0, 10, 20]
    assert all(math.isfinite(record["loss"]) for record in records)
    assert (folder / "done").exists()
    assert not (folder / "model_last.pt").exists()
    assert (folder / "model_CR.pt").exists()
    assert train(f"{MISBEHAVED}:Diverging", tmp_path, "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["status"], again["updates_made"]) == ("diverged", 0)


def test_a_run_that_fails_is_recorded_with_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(f"{MISBEHAVED}:Failing", tmp_path) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("failed (ArithmeticError: the moon is full)")
    assert "Traceback" not in captured.err
    folder = only_folder(tmp_path)
    description = read_description(folder)
    assert description["status"] == "failed"
    assert description["error"]["type"] == "ArithmeticError"
    assert "the moon is full" in description["error"]["traceback"]
    assert [record["step"] for record in read_records(folder)] == [0, 10, 20]
    assert not (folder / "done").exists()
    assert train(f"{MISBEHAVED}:Unbuildable", tmp_path / "unbuilt") == 1
    description = read_description(only_folder(tmp_path / "unbuilt"))
    assert (description["status"], description["error"]["type"]) == ("failed", "LookupError")


def test_a_logged_number_that_is_not_finite_is_null(tmp_path: Path) -> None:
    outcome = run(tmp_path, f"{MISBEHAVED}:Pathological")
    assert outcome.status == "done"
    assert all(record["logged"] == {"odds": None} for record in read_records(outcome.folder))


def test_the_page_on_runs_names_every_file_and_key(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "run-folder.md").read_text(encoding="utf-8")
    folder = run(tmp_path, LISTING).folder
    missing = [path.name for path in folder.iterdir() if f"`{path.name}`" not in page]
    assert [name for name in missing if name != ".lock"] == []
    keys = [key for key in read_records(folder)[-1] if f"`{key}`" not in page]
    assert keys == [], "run python scripts/make_pages.py for keys of criteria"
    assert [name for name in get_args(Status) if f"`{name}`" not in page] == []


def test_a_usage_error_in_the_middle_of_a_run_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "late.py"
    path.write_text(
        "from plench.algorithms.cc import CC\nfrom plench.errors import UsageError\n\n\n"
        "class Late(CC):\n"
        "    def update(self, minibatches):\n"
        "        if self.steps_done == 12:\n"
        "            raise UsageError('not on these data')\n"
        "        return super().update(minibatches)\n",
        encoding="utf-8",
    )
    with pytest.raises(UsageError, match="not on these data"):
        run(tmp_path / "runs", f"{path}:Late")
    described = read_description(only_folder(tmp_path / "runs"))
    assert described["status"] == "failed"
    assert described["error"]["message"] == "not on these data"
    assert described["updates"] == 12


def test_a_failed_command_shows_the_last_frames(tmp_path: Path, cli) -> None:
    path = tmp_path / "broken.py"
    path.write_text(
        "from plench.algorithms.cc import CC\n\n\n"
        "class Broken(CC):\n"
        "    def loss(self, logits, batch):\n"
        "        return self.weights_of(batch)\n",
        encoding="utf-8",
    )
    options = ["-d", "Digits_FPS", "--steps", "5", "--output_dir", str(tmp_path / "runs")]
    said = cli("train", "-a", f"{path}:Broken", *options, code=1).err
    assert "in loss\n    return self.weights_of(batch)" in said
    assert "AttributeError: 'Broken' object has no attribute 'weights_of'" in said
    assert said.count('  File "') == 3


def test_the_outcome_as_json_has_metrics(tmp_path: Path, cli) -> None:
    options = ["--steps", "21", "--checkpoint_freq", "10", "--output_dir", str(tmp_path), "--json"]
    content = json.loads(cli("train", "-a", "CC", "-d", "Digits_FPS", *options).out)
    records = read_records(Path(content["folder"]))
    kept = {key: value for key, value in records[-1].items() if key not in ("args", "hparams")}
    assert {key: content["last_record"][key] for key in kept} == kept
    best = max(records[1:], key=lambda record: record["val_covering_rate"])
    assert content["chosen"]["CR"] == {
        "step": best["step"],
        "value": best["val_covering_rate"],
        "test_acc": best["test_acc"],
    }
