"""Parts that several algorithms share: contrasts, queue, copies, networks, passes, schedules, targets."""

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from plench.algorithms.base import device_with_doubles, epoch_of, first_step_of, starts_epoch
from plench.algorithms.parts import contrast
from plench.algorithms.parts.contrast import (
    RingQueue,
    TwoHeadedNetwork,
    compare,
    log_mass,
    parse_range,
    sum_by_label,
    to_unit_rows,
    update_prototypes,
)
from plench.algorithms.parts.views import one_pass_serves, pass_views
from plench.errors import UsageError


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def draw_unit(generator: torch.Generator, rows: int, width: int = 4) -> Tensor:
    return normalize(torch.randn(rows, width, generator=generator, dtype=torch.float64), dim=-1)


# Contrasts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3, contrast.PIECE - 1, contrast.PIECE, 2 * contrast.PIECE + 5])
def test_log_mass_is_a_logsumexp(generator: torch.Generator, rows: int) -> None:
    """It is computed in pieces, with a gradient written by hand."""
    queries = draw_unit(generator, 3).requires_grad_()
    contrasts = draw_unit(generator, rows)
    mass = log_mass(queries, contrasts, 0.07)
    expected = (queries @ contrasts.T / 0.07).logsumexp(-1)
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    (got,) = torch.autograd.grad((weights * mass).sum(), queries)
    (wanted,) = torch.autograd.grad((weights * expected).sum(), queries)
    torch.testing.assert_close(mass, expected)
    torch.testing.assert_close(got, wanted)


def test_long_rows_do_not_overflow() -> None:
    """The first rows of a queue shorter than the projection are long; the running maximum holds them."""
    queries = torch.eye(2, 4).requires_grad_()
    rows = torch.cat([torch.eye(4), 40 * torch.eye(4)])
    mass = log_mass(queries, rows, 0.03)
    mass.sum().backward()
    torch.testing.assert_close(mass, torch.full((2,), 40 / 0.03))
    assert queries.grad.isfinite().all()


def test_guard_counts_where_all_others_are_opposite() -> None:
    """With nothing but opposite contrasts at a low temperature, 1e-12 outweighs the sum."""
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    found = compare(query, -query, -query, 0.03).log_denominator
    assert found.item() == pytest.approx(1 / 0.03 - 27.631021, rel=1e-6)


def test_empty_slots_belong_to_no_class() -> None:
    sums = sum_by_label(torch.ones(4, 2), torch.full((4,), -1), 3)
    assert not sums.counts.any()
    assert not sums.features.any()


# State ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "sizes"), [(6, [3, 3, 3]), (7, [3, 3, 3, 3]), (5, [2, 4, 1, 3]), (3, [5, 7, 1])]
)
def test_queue_holds_the_newest_entries(length: int, sizes: list[int]) -> None:
    """Slots follow the rule of one entry after the other, also where the batch does not divide the length."""
    queue = RingQueue(numbers=torch.full((length,), -1), twice=torch.full((length, 2), -2.0))
    slots, written = [-1] * length, 0
    for size in sizes:
        batch = torch.arange(written, written + size)
        queue.push(numbers=batch, twice=2.0 * batch[:, None].expand(-1, 2))
        for number in batch.tolist():
            slots[number % length] = number
        written += size
        assert queue["numbers"].tolist() == slots
        assert torch.equal(queue["twice"], 2.0 * queue["numbers"][:, None].expand(-1, 2))
        assert queue["position"].item() == written % length


def test_prototypes_of_absent_classes_and_unused_examples_stay(generator: torch.Generator) -> None:
    prototypes = draw_unit(generator, 4)
    prototypes[3] = 0
    features, labels = draw_unit(generator, 6), torch.tensor([0, 1, 0, 1, 0, 1])
    used = labels == 0
    moved = update_prototypes(prototypes, features, labels, 0.9, used)
    torch.testing.assert_close(moved[1:], prototypes[1:])
    torch.testing.assert_close(moved[0], update_prototypes(prototypes, features[used], labels[used], 0.9)[0])
    assert not torch.equal(moved[0], prototypes[0])


@pytest.mark.parametrize(("device", "place"), [("cpu", "cpu"), ("cuda:1", "cuda:1"), ("mps", "cpu")])
def test_doubles_are_on_the_device_that_has_them(device: str, place: str) -> None:
    assert device_with_doubles(torch.device(device)) == torch.device(place)


# Networks and passes --------------------------------------------------------------------------------------


def test_outputs_keep_full_precision() -> None:
    """Layers answer in half precision under autocast; hooks stand in for it, since not every CPU has it."""
    network = TwoHeadedNetwork((10, 6), 4, {"model": "MLP", "feat_dim": 32})
    for head in (network.classifier, network.projector):
        head.register_forward_hook(lambda module, inputs, output: output.bfloat16())
    logits, features = network(torch.randn(5, 6))
    assert logits.dtype == features.dtype == torch.float32


def test_zero_rows_stay_zero() -> None:
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    torch.testing.assert_close(to_unit_rows(rows), torch.tensor([[0.0, 0.0], [0.6, 0.8]]))


@pytest.mark.parametrize(
    ("layer", "passes"), [(nn.Identity(), 1), (nn.BatchNorm1d(3), 3), (nn.Dropout(0.5), 3)]
)
def test_equal_views_take_one_pass_unless_rows_or_draws_count(layer: nn.Module, passes: int) -> None:
    network = nn.Sequential(nn.Linear(3, 3), layer)
    calls: list[int] = []
    network.register_forward_hook(lambda *_: calls.append(1))
    x = torch.randn(4, 3)
    shared = pass_views(network, x, x, x)
    assert len(calls) == passes
    assert one_pass_serves(network, x, x) == (passes == 1)
    if passes == 1:
        apart = pass_views(network, x, x.clone(), x.clone())
        (from_one,) = torch.autograd.grad(shared.square().sum(), network[0].weight)
        (from_three,) = torch.autograd.grad(apart.square().sum(), network[0].weight)
        torch.testing.assert_close(shared, apart)
        torch.testing.assert_close(from_one, from_three)


# Schedules, mixing, targets -------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "batch_size"), [(45000, 256), (909, 128), (100, 25), (7, 7), (5, 8), (3, 128)])
def test_epochs_are_exact(n: int, batch_size: int) -> None:
    """As in rational arithmetic; with fewer examples than a batch every later step starts an epoch."""
    spe = Fraction(n, batch_size)
    begun = []
    for step in range(800):
        assert epoch_of(step, n, batch_size) == math.floor(step / spe)
        expected = step >= 1 and math.floor(step / spe) != math.floor((step - 1) / spe)
        assert starts_epoch(step, n, batch_size) == expected
        begun += [step] if expected else []
    if spe < 1:
        assert begun == list(range(1, 800))
    else:
        assert begun == [first_step_of(epoch, n, batch_size) for epoch in range(1, len(begun) + 1)]


def test_range_is_read_and_bad_ones_are_refused() -> None:
    assert parse_range("conf_ema_range", "0.95, 0.8") == (0.95, 0.8)
    for text in ("", "0.9", "0.9,0.8,0.7", "a,b", "0.9,1.1", "-0.1,0.5", "nan,0.5"):
        with pytest.raises(UsageError, match="conf_ema_range"):
            parse_range("conf_ema_range", text)
