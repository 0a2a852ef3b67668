"""Image inputs of a run, and the contact sheet."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from plench.cli import main
from plench.errors import UsageError
from plench.training.data import BENCHMARK_MEAN, BENCHMARK_STD, ImageInputs, inputs_for

CPU = torch.device("cpu")


def pixels(*shape: int) -> np.ndarray:
    return np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8)


def test_colour_images_use_the_benchmarks_constants() -> None:
    images = pixels(5, 3, 32, 32)
    inputs = inputs_for("image").fit(images)
    got = inputs.original(inputs.store(images, CPU)).double().numpy()
    mean, std = (np.array(values)[:, None, None] for values in (BENCHMARK_MEAN, BENCHMARK_STD))
    np.testing.assert_allclose(got, (images / 255 - mean) / std, rtol=1e-6, atol=1e-6)
    assert (BENCHMARK_MEAN, BENCHMARK_STD) == ((0.4922, 0.4832, 0.4486), (0.2456, 0.2419, 0.2605))


def test_black_padding_is_black_after_normalisation() -> None:
    images = np.full((64, 3, 32, 32), 200, np.uint8)
    inputs = ImageInputs.fit(images)
    stored = inputs.store(images, CPU)
    weak = inputs.views(stored, torch.arange(64), ("weak",), torch.Generator().manual_seed(0))["weak"]
    for channel, (mean, std) in enumerate(zip(BENCHMARK_MEAN, BENCHMARK_STD, strict=True)):
        values = weak[:, channel].unique()
        assert values.tolist() == pytest.approx([-mean / std, (200 / 255 - mean) / std], rel=1e-5)


def test_other_images_are_standardised_by_their_training_split() -> None:
    images = pixels(50, 1, 8, 8) // 2
    inputs = ImageInputs.fit(images)
    got = inputs.original(inputs.store(images, CPU))
    assert got.mean().item() == pytest.approx(0, abs=1e-5)
    assert got.std(correction=0).item() == pytest.approx(1, abs=1e-4)
    constant = ImageInputs.fit(np.full((4, 2, 5, 5), 9, np.uint8))
    assert constant.original(constant.store(np.full((1, 2, 5, 5), 9, np.uint8), CPU)).abs().max() < 1


def test_only_the_named_views_are_made_in_channels_last() -> None:
    images = pixels(30, 3, 16, 16)
    inputs = ImageInputs.fit(images)
    stored = inputs.store(images, CPU)
    index = torch.tensor([3, 3, 29, 0])
    views = inputs.views(stored, index, ("original", "weak", "strong"), torch.Generator().manual_seed(0))
    assert list(views) == ["original", "weak", "strong"]
    for view in views.values():
        assert view.shape == (4, 3, 16, 16)
        assert view.dtype == torch.float32
        assert view.is_contiguous(memory_format=torch.channels_last)
        assert not view.requires_grad
    assert torch.equal(views["original"], inputs.original(stored[index]))
    assert not torch.equal(views["weak"][0], views["weak"][1])


@pytest.mark.parametrize(("side", "warnings"), [(8, 1), (9, 0)])
def test_black_distill_views_are_told_once(
    side: int, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A square of 16 about any pixel covers 8 pixels to each side of it."""
    images = np.full((20, 3, side, side), 200, np.uint8)
    inputs = ImageInputs.fit(images)
    stored, generator = inputs.store(images, CPU), torch.Generator().manual_seed(0)
    for names in (("weak",), ("weak", "distill"), ("distill",)):
        views = inputs.views(stored, torch.arange(20), names, generator)
    assert (views["distill"].amax() < 0) == bool(warnings)
    assert caplog.text.count("all black in the distill view") == warnings


@pytest.mark.parametrize("bad", [pixels(4, 3, 8), pixels(4, 1, 8, 8), pixels(4, 3, 8, 8).astype(np.float32)])
def test_other_arrays_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(UsageError, match="expected uint8 of shape"):
        ImageInputs(BENCHMARK_MEAN, BENCHMARK_STD).store(bad, CPU)


def test_contact_sheet(tmp_path: Path, cli) -> None:
    sheet = tmp_path / "sheet.png"
    assert cli("data", "views", "DigitImages", "-o", sheet, "--count", "3").out.strip() == str(sheet)
    with Image.open(sheet) as image:
        assert image.size == (190 + 3 * 100, 4 + (1 + 3 * 3 + 14) * 100)
    first = sheet.read_bytes()
    main(["data", "views", "DigitImages", "-o", str(sheet), "--count", "3"])
    assert sheet.read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Digits_USS", "-o", "x.png"], "all its views are the same"),
        (["DigitImages", "-o", "x.jpg"], "ending in .png"),
        (["DigitImages", "-o", "x.png", "--count", "0"], "at least 1"),
        (["DigitImages", "-o", "absent/x.png"], "cannot be written"),
    ],
)
def test_contact_sheet_refuses(
    arguments: list[str],
    message: str,
    cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in cli("data", "views", *arguments, code=2).err
    assert list(tmp_path.iterdir()) == []
