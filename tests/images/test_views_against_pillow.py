"""Every operation and the resized crop against Pillow, bit for bit, on real images."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from plench.data.views import OPERATIONS, apply_operations, draw_crop, place_crop, resample
from tests.images.samples import real_images

VALUES_PER_IMAGE = 8


def affine(image: Image.Image, *coefficients: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients)


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "AutoContrast": lambda image, v: ImageOps.autocontrast(image),
    "Brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "Color": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "Contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "Equalize": lambda image, v: ImageOps.equalize(image),
    "Identity": lambda image, v: image,
    "Posterize": lambda image, v: ImageOps.posterize(image, int(v)),
    "Rotate": lambda image, v: image.rotate(v),
    "Sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "ShearX": lambda image, v: affine(image, 1, v, 0, 0, 1, 0),
    "ShearY": lambda image, v: affine(image, 1, 0, 0, v, 1, 0),
    "Solarize": lambda image, v: ImageOps.solarize(image, v),  # type: ignore[arg-type]
    "TranslateX": lambda image, v: affine(image, 1, 0, v * image.size[0], 0, 1, 0),
    "TranslateY": lambda image, v: affine(image, 1, 0, 0, 0, 1, v * image.size[1]),
}


def to_pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))


def from_pillow(image: Image.Image) -> np.ndarray:
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def images_of(kind: str) -> np.ndarray:
    """Real images in the sizes and channel counts that datasets come in, and a few extreme ones."""
    colour = real_images()
    if kind == "cifar":
        dark = np.zeros((1, 3, 32, 32), np.uint8)
        return np.concatenate([colour, dark, dark + 255, colour[:4] // 64, colour[:4] // 2 + 127])
    if kind == "gray 28×28":
        return np.ascontiguousarray(colour[:, 1:2, 2:30, 2:30])
    assert kind == "colour 24×32"
    return np.ascontiguousarray(colour[:, :, :24])


@pytest.mark.parametrize("kind", ["cifar", "gray 28×28", "colour 24×32"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_operation(operation: Any, kind: str) -> None:
    images = np.repeat(images_of(kind), VALUES_PER_IMAGE, axis=0)
    generator = torch.Generator().manual_seed(0)
    values = operation.low + (operation.high - operation.low) * torch.rand(len(images), generator=generator)
    got = operation.apply(torch.from_numpy(images), values)
    expected = np.stack(
        [
            from_pillow(PILLOW[operation.name](to_pillow(image), value))
            for image, value in zip(images, values.tolist(), strict=True)
        ]
    )
    assert np.array_equal(got.numpy(), expected)


@pytest.mark.parametrize(("kind", "exact"), [("cifar", True), ("gray 28×28", False), ("colour 24×32", False)])
def test_resized_crop(kind: str, exact: bool) -> None:
    images = np.repeat(images_of(kind), VALUES_PER_IMAGE, axis=0)
    height, width = images.shape[2:]
    generator = torch.Generator().manual_seed(0)
    box = draw_crop(torch.rand(len(images), 22, generator=generator), height, width)
    flip = torch.rand(len(images), generator=generator) < 0.5
    got = resample(torch.from_numpy(images), *place_crop(box, flip, height, width)).numpy()
    expected = []
    for image, (top, left, h, w), reverse in zip(images, box.int().tolist(), flip.tolist(), strict=True):
        crop = to_pillow(image).crop((left, top, left + w, top + h))
        resized = crop.resize((width, height), Image.Resampling.BILINEAR)
        expected.append(from_pillow(ImageOps.mirror(resized) if reverse else resized))
    difference = np.abs(got - np.stack(expected))
    if exact:
        assert difference.max() == 0
    else:  # where the side is no power of two Pillow's fixed-point weights decide ties by chance
        assert difference.max() <= 1
        assert (difference > 0).mean() < 0.02


def test_three_operations_in_a_row() -> None:
    images = np.repeat(real_images(), 4, axis=0)
    generator = torch.Generator().manual_seed(1)
    kinds = torch.randint(0, len(OPERATIONS), (3, len(images)), generator=generator)
    low, high = (torch.tensor([getattr(o, end) for o in OPERATIONS])[kinds] for end in ("low", "high"))
    values = low + (high - low) * torch.rand(kinds.shape, generator=generator)
    got: Tensor = torch.from_numpy(images)
    for kind, value in zip(kinds, values, strict=True):
        got = apply_operations(got, kind, value)
    for row, image in enumerate(images):
        expected = to_pillow(image)
        for kind, value in zip(kinds[:, row].tolist(), values[:, row].tolist(), strict=True):
            expected = PILLOW[OPERATIONS[kind].name](expected, value)
        assert np.array_equal(got[row].numpy(), from_pillow(expected))
