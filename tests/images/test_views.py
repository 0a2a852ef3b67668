"""The image views: the published vectors, Pillow on real or made images, distributions and batching."""

import math
import re

import pytest
import torch
from torch import Tensor

from plench.data.views import (
    OPERATIONS,
    VIEW_MAKERS,
    cut_gray,
    draw_crop,
    draw_gray_box,
    make_strong,
    make_weak,
    place_crop,
    place_shift,
    resample,
    square_box,
)
from plench.errors import DataError
from tests.conformance.harness import Case, Kind, list_cases, run_adapter

BY_NAME = {operation.name: operation for operation in OPERATIONS}


def formula_image(size: int) -> Tensor:
    c, y, x = torch.meshgrid(torch.arange(3), torch.arange(size), torch.arange(size), indexing="ij")
    values = (7 * x**2 + 13 * y**2 + 5 * x * y + 40 * c + x * c) % 97 + 60 + 10 * c
    return values.to(torch.uint8)[None]


def read_number(case: Case, pattern: str, otherwise: int) -> int:
    """Return a number that stands only in the case's words, or the usual one if they leave it out."""
    found = re.search(pattern, case.text)
    return int(found[1]) if found else otherwise


def side_of(case: Case) -> int:
    """Return the side of the case's square image."""
    return case.inputs.get("size") or read_number(case, r"(\d+)x\d+", 32)


def check_operation(case: Case) -> None:
    image = formula_image(case.inputs["size"])
    got = BY_NAME[case.inputs["op"]].apply(image, torch.tensor([case.inputs["value"]]))
    assert got.dtype == torch.uint8
    case.check(image=got[0])


def check_equalized_values(case: Case) -> None:
    image = formula_image(case.inputs["size"])
    got = BY_NAME["Equalize"].apply(image, torch.zeros(1))
    for before, after, present, expected in zip(
        image[0], got[0], case.inputs["values_present"], case.expected["mapped"], strict=True
    ):
        values = before.unique()
        assert values.tolist() == present
        assert [after[before == value].unique().tolist() for value in values] == [[new] for new in expected]
    case.checked.add("mapped")


def check_equalize_changes(case: Case) -> None:
    image = formula_image(case.inputs["size"])
    case.check(unchanged=torch.equal(BY_NAME["Equalize"].apply(image, torch.zeros(1)), image))


def check_constant_channel(case: Case) -> None:
    """Which channel is constant, and which row of it is listed, only the words tell."""
    channel = read_number(case, r"channel (\d+) set to", 1)
    image = formula_image(case.inputs["size"])
    image[:, channel] = read_number(case, r"set to (\d+)", 77)
    got = BY_NAME["AutoContrast"].apply(image, torch.zeros(1))
    case.check(row=got[0, channel, read_number(case, r"row (\d+)", 0)])


def check_crop(case: Case) -> None:
    box = torch.tensor([[case.inputs[key] for key in ("top", "left", "height", "width")]])
    size = case.inputs["size"]
    case.check(image=resample(formula_image(size), *place_crop(box, torch.tensor([False]), size, size))[0])


def check_gray_box(case: Case) -> None:
    draws = torch.tensor([case.inputs[key] for key in ("u", "ux", "uy")]).T
    side = side_of(case)
    case.check(box=draw_gray_box(draws, side, side) - torch.tensor([0, 1, 0, 1]))  # the last ones inclusive


def check_square_box(case: Case) -> None:
    y, x = torch.tensor(case.inputs["centre"], dtype=torch.float32).T
    side = side_of(case)
    case.check(box=square_box(y, x, side, side))


def check_weak(case: Case) -> None:
    inputs = case.inputs
    corner = inputs["corner"]
    image = formula_image(inputs["size"])[..., :corner, :corner]
    top, left = torch.tensor([float(inputs["top"])]), torch.tensor([float(inputs["left"])])
    got = resample(image, *place_shift(top, left, torch.tensor([inputs["flip"]]), corner, corner))
    mean, std = (case[key].view(3, 1, 1) for key in ("mean", "std"))
    case.check(image=(got[0].double() / 255 - mean) / std)


KINDS = [
    Kind(check_operation, "size op value", "image"),
    Kind(check_equalized_values, "size values_present", "mapped"),
    Kind(check_equalize_changes, "size", "unchanged"),
    Kind(check_constant_channel, "size", "row"),
    Kind(check_crop, "size top left height width", "image"),
    Kind(check_gray_box, "u ux uy", "box"),
    Kind(check_square_box, "centre", "box"),
    Kind(check_weak, "size corner flip top left mean std", "image"),
]


@pytest.mark.parametrize("case", list_cases(["VIEWS"]))
def test_vector(case: Case) -> None:
    run_adapter(KINDS, case)


def uniform(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed))


def random_images(count: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)


def test_crop_falls_back_to_the_whole_image() -> None:
    draws = torch.zeros(1, 22)
    draws[:, :10] = 0.999  # nearly the whole area at the extreme ratio never fits
    assert draw_crop(draws, 32, 32).tolist() == [[0, 0, 32, 32]]
    draws[:, 9] = 0.0  # only the tenth attempt fits
    top, left, height, width = draw_crop(draws, 32, 32)[0].tolist()
    assert (height, width) == (round(math.sqrt(1024 * 0.2 * 4 / 3)), round(math.sqrt(1024 * 0.2 * 3 / 4)))
    assert (top, left) == (0, 0)


def test_crop_of_any_side_follows_the_rounding_rule() -> None:
    """Exact fractions against float32, on a side that is no power of two, where ties are common."""
    size, (top, left, h, w) = 28, (3, 5, 21, 14)
    image = random_images(1, 1, size, size)
    got = resample(image, *place_crop(torch.tensor([[top, left, h, w]]), torch.tensor([False]), size, size))

    def stretch(values: list[int], length: int) -> list[int]:
        out = []
        for x in range(size):
            # everything times 2·size, so that whole numbers are exact
            t = (2 * x + 1) * length - size
            low, fraction = t // (2 * size), t % (2 * size)
            a, b = (values[min(max(i, 0), length - 1)] for i in (low, low + 1))
            out.append(((2 * size - fraction) * a + fraction * b + size) // (2 * size))
        return out

    crop = image[0, 0, top : top + h, left : left + w].tolist()
    wide = [stretch(row, w) for row in crop]
    full = [stretch([row[x] for row in wide], h) for x in range(size)]
    assert got[0, 0].T.tolist() == full


def test_strong_hole_moves_inside_and_is_cut() -> None:
    box = draw_gray_box(uniform(20_000, 3), 32, 32)
    top, bottom, left, right = box.unbind(1)
    for first, last in ((top, bottom), (left, right)):
        assert first.min() == 0
        assert last.max() == 32
        assert (last - first).min() >= 1
        assert (last - first).max() == 16
    none = draw_gray_box(torch.tensor([[0.0, 0.5, 0.5]]), 32, 32)
    images = torch.zeros(1, 3, 32, 32)
    assert torch.equal(cut_gray(images, none), images)


@pytest.mark.parametrize("name", list(VIEW_MAKERS))
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8), (3, 17, 40), (1, 1, 1)])
def test_views_keep_shape_and_range(name: str, shape: tuple[int, ...]) -> None:
    images = random_images(40, *shape)
    before = images.clone()
    view = VIEW_MAKERS[name](images, torch.Generator().manual_seed(0))
    assert view.shape == images.shape
    assert view.dtype == torch.float32
    assert torch.equal(view, view.round())
    assert view.min() >= 0
    assert view.max() <= 255
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", ["weak", "strong", "distill"])
def test_views_come_from_the_generator_alone(name: str) -> None:
    images = random_images(16, 3, 32, 32)
    make = VIEW_MAKERS[name]
    state = torch.get_rng_state()
    generator = torch.Generator().manual_seed(0)
    first, second = make(images, generator), make(images, generator)
    assert torch.equal(make(images, torch.Generator().manual_seed(0)), first)
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)
    same = images[:1].expand(16, -1, -1, -1)
    assert len(make(same, torch.Generator().manual_seed(0)).unique(dim=0)) > 10


def test_strong_refuses_other_channel_counts() -> None:
    with pytest.raises(DataError, match="1 or 3 channels, not 2"):
        make_strong(random_images(4, 2, 16, 16), torch.Generator())
    assert make_weak(random_images(4, 2, 16, 16), torch.Generator()).shape == (4, 2, 16, 16)
