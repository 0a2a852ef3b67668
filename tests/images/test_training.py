"""Training on images: every algorithm, exact resuming, precision and compilation."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import plench
from plench.algorithms import find_algorithm
from plench.algorithms.registry import algorithms
from plench.data import Dataset, DatasetCard, TestSet, load_dataset
from plench.errors import UsageError
from plench.networks import Featurizer
from plench.training import configure_run, run_training
from tests.training.harness import (
    Crash,
    CrashAt,
    assert_same_run,
    read_description,
    read_model,
    read_records,
)

NAMES = sorted(name for name, entry in algorithms().items() if entry.card.shared)
STEPS = 12


@cache
def coloured_patches(n: int = 96) -> Dataset:
    """Images of 3×32×32 whose colour tells the class, with a test set of their own."""
    random = np.random.RandomState(0)
    colours = np.array([[200, 60, 60], [60, 200, 60], [60, 60, 200], [180, 180, 40]])

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = random.randint(0, 4, count)
        images = colours[labels][:, :, None, None] + random.randint(-50, 51, (count, 3, 32, 32))
        return images.clip(0, 255).astype(np.uint8), labels

    images, labels = draw(n)
    candidates = random.rand(n, 4) < 0.3
    candidates[np.arange(n), labels] = True
    card = DatasetCard("Patches", "image", "none", "made up", "none", "none", default_steps=100)
    return Dataset(images, candidates, labels, card, TestSet(*draw(n // 3)))


def train(folder: Path, name: str, dataset: Dataset, callback: Any = None, **changes: Any) -> Any:
    entry = find_algorithm(name)
    hparams = {"batch_size": 8, **changes.pop("hparams", {})}
    config = configure_run(
        entry,
        dataset.card,
        hparams=hparams,
        **{"steps": STEPS, "checkpoint_freq": 5, "device": "cpu", "save_steps": 2, **changes},
    )
    return run_training(config, dataset, entry, folder, callback)


# When phases begin: all of them within 12 updates of 5 an epoch. The queue is short, for speed.
EARLY = {
    "prot_start": 2,
    "knn_start": 7,
    "warm_up": 1,
    "k": 1,
    "warm_up_epoch": 1,
    "rollWindow": 1,
    "start_epoch": 1,
    "update_interval": 1,
    "theta": 0.2,
    "pure_ratio": 0.6,
    "moco_queue": 100,
}


def few_digits() -> Dataset:
    """Return 200 digits as images: epochs of five batches of 32."""
    dataset = load_dataset("DigitImages")
    return Dataset(dataset.features[:200], dataset.candidates[:200], dataset.labels[:200], dataset.card)  # type: ignore[index]


def reach_all_phases(name: str) -> dict[str, Any]:
    """Return hyperparameters with which 12 updates on few digits reach every phase."""
    declared = {parameter.name for parameter in find_algorithm(name).card.hyperparameters}
    early = {key: value for key, value in EARLY.items() if key in declared}
    return {**early, "model": "CNN", "batch_size": 32}


def resume(folder: Path, name: str, dataset: Dataset, at: int = 5, **settings: Any) -> Any:
    """Train a run, and again one that is cut at an update and resumed; demand that they are the same."""
    whole = train(folder / "whole", name, dataset, **settings)
    assert whole.status == "done", whole.message
    with pytest.raises(Crash):
        train(folder / "cut", name, dataset, CrashAt(at), **settings)
    resumed = train(folder / "cut", name, dataset, **settings)
    assert 0 < resumed.updates_made < settings.get("steps", STEPS)
    assert_same_run(whole.folder, resumed.folder)
    return whole


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_in_bf16(name: str, tmp_path: Path) -> None:
    """Networks compute in bfloat16; losses and state stay float32, in every phase."""
    outcome = train(tmp_path, name, few_digits(), hparams=reach_all_phases(name), precision="bf16")
    assert outcome.status == "done", outcome.message
    assert all(np.isfinite(record["loss"]) for record in read_records(outcome.folder))
    assert not [text for text in read_description(outcome.folder)["notices"] if "would begin" in text]
    kept = [value for value in read_model(outcome.folder).values() if isinstance(value, torch.Tensor)]
    assert len(kept) > 4
    assert not any(value.dtype == torch.bfloat16 for value in kept)


def test_a_deep_network_learns(tmp_path: Path) -> None:
    hparams = {"model": "ResNet", "batch_size": 16}
    outcome = train(tmp_path, "PRODEN", coloured_patches(), steps=20, checkpoint_freq=20, hparams=hparams)
    assert read_records(outcome.folder)[-1]["test_acc"] > 0.6


def test_bf16_learns_and_is_another_run(tmp_path: Path) -> None:
    dataset = coloured_patches()
    hparams = {"model": "CNN", "batch_size": 16}
    plain = train(tmp_path, "PRODEN", dataset, steps=40, hparams=hparams)
    half = train(tmp_path, "PRODEN", dataset, steps=40, hparams=hparams, precision="bf16")
    assert half.folder != plain.folder
    records, plain_records = read_records(half.folder), read_records(plain.folder)
    assert records[-1]["test_acc"] > 0.6
    assert records[-1]["loss"] != plain_records[-1]["loss"]
    assert records[0]["loss"] == pytest.approx(plain_records[0]["loss"], rel=0.05)
    run = read_description(half.folder)
    assert run["config"]["precision"] == run["experiment"]["precision"] == "bf16"
    model = plench.load(half.folder)
    again = model.predict(dataset.test.features)  # type: ignore[union-attr]
    assert np.mean(again == dataset.test.labels) == records[-1]["test_acc"]  # type: ignore[union-attr]


def test_linear_layers_stay_float32_on_a_cpu() -> None:
    network = Featurizer((1, 64), {"model": "MLP"})
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))
    plain = network(x)
    network.precision = "bf16"
    assert torch.equal(network(x), plain)


@pytest.mark.parametrize("model", ["ResNet", "DenseNet", "CNN", "LeNet"])
def test_bf16_features_are_float32(model: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Featurizer((1, 3, 32, 32), {"model": model})
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    plain = network(x)
    network.precision = "bf16"
    half = network(x)
    half.sum().backward()
    assert half.dtype == torch.float32
    assert not torch.equal(half, plain)
    assert (half - plain).norm() < 0.05 * plain.norm()
    for parameter in network.parameters():
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()


def test_resuming_in_bf16_is_exact(tmp_path: Path) -> None:
    resume(tmp_path, "PiCO", coloured_patches(), hparams={"model": "CNN"}, precision="bf16")


def test_unknown_precision() -> None:
    entry = find_algorithm("PRODEN")
    with pytest.raises(UsageError, match="precision must be one of float32, bf16, not 'fp8'"):
        configure_run(entry, coloured_patches().card, precision="fp8")


@pytest.mark.real
def test_compiled_learns_and_resumes(tmp_path: Path) -> None:
    dataset = coloured_patches()
    settings = {"hparams": {"model": "CNN", "batch_size": 16}, "compile": True, "steps": 40}
    whole = resume(tmp_path, "PRODEN", dataset, at=20, **settings)
    assert read_records(whole.folder)[-1]["test_acc"] > 0.6
    assert read_description(whole.folder)["config"]["compile"] is True
    plain = train(tmp_path, "PRODEN", dataset, **{**settings, "compile": False})
    assert read_records(plain.folder)[0]["loss"] == pytest.approx(
        read_records(whole.folder)[0]["loss"], rel=1e-4
    )


def test_images_are_not_copied() -> None:
    from plench.training.data import prepare_data

    dataset = coloured_patches()
    assert dataset.test is not None
    images, test_images = dataset.features.copy(), dataset.test.features.copy()  # type: ignore[union-attr]
    shared = replace(dataset, features=images, test=TestSet(test_images, dataset.test.labels))
    data = prepare_data(shared, configure_run(find_algorithm("PRODEN"), dataset.card), torch.device("cpu"))
    images[:], test_images[:] = 7, 9
    assert (data.train[:87] == 7).all()
    assert (data.validation.stored[:9] == 7).all()
    assert (data.test.stored[:] == 9).all()
    assert data.input_shape == (87, 3, 32, 32)


def test_a_model_without_our_networks_cannot_be_compiled() -> None:
    from plench.algorithms import Algorithm
    from plench.training.environment import set_execution

    class Bare(Algorithm):
        pass

    bare = Bare((4, 3, 8, 8), np.ones((4, 2), np.float32), {})
    set_execution(bare, "float32", False)
    with pytest.raises(UsageError, match=r"Bare has no network made by plench\.networks\.Featurizer"):
        set_execution(bare, "bf16", False)


def test_card_kind_decides_the_default_network() -> None:
    config = configure_run(find_algorithm("PRODEN"), replace(coloured_patches().card, name="Other"))
    assert (config.hparams["model"], config.hparams["batch_size"]) == ("ResNet", 256)
