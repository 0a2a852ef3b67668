"""Folders of ours are read by the public benchmark's collector, which knows only results.jsonl."""

import json

import pytest

from plench.criteria import criteria
from plench.runs import read_runs
from plench.runs.select import select


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three short real runs: one split, three configurations."""
    from plench.algorithms import find_algorithm
    from plench.data import load_dataset
    from plench.training import configure_run, run_training

    root = tmp_path_factory.mktemp("trained")
    dataset, entry = load_dataset("Digits_FPS"), find_algorithm("CC")
    for configuration in range(3):
        config = configure_run(
            entry, dataset.card, device="cpu", steps=25, checkpoint_freq=10, hparams_seed=configuration
        )
        assert run_training(config, dataset, entry, root).status == "done"
    return root


def load_as_the_public_collector(root):
    """Read every line of every folder's results.jsonl, nothing else."""
    lines = [
        line for folder in root.iterdir() for line in (folder / "results.jsonl").read_text().splitlines()
    ]
    return [json.loads(line) for line in lines]


def test_selection_from_public_keys_alone_equals_ours(trained):
    records = [record for record in load_as_the_public_collector(trained) if record["step"] > 0]
    for criterion in criteria.values():
        offered = [r for r in records if criterion.early_stopping or r["step"] == r["args"]["steps"] - 1]
        best = max(r[criterion.record_key] for r in offered)
        tied = [r for r in offered if r[criterion.record_key] == best]
        chosen = min(tied, key=lambda r: (r["args"]["hparams_seed"], r["step"]))
        (cell,) = select(read_runs(trained), criterion)
        assert cell.mean == chosen["test_acc"]


def test_ours_without_run_json_give_the_same_numbers(trained, tmp_path):
    """What the public benchmark's format has is enough, but such folders are not taken for public ones."""
    for folder in trained.iterdir():
        target = tmp_path / folder.name
        target.mkdir()
        for name in ("results.jsonl", "done"):
            (target / name).write_bytes((folder / name).read_bytes())
    for criterion in criteria.values():
        (ours,), (bare,) = (select(read_runs(root), criterion) for root in (trained, tmp_path))
        assert bare.accuracies == ours.accuracies
        assert bare.experiment.origin == "plench"
        assert bare.experiment.steps == 25
    assert all("run.json: missing" in run.warnings[0] for run in read_runs(tmp_path))
