"""State that algorithms share: the ring queue, the prototypes and the momentum copy."""

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from plench.algorithms.base import device_with_doubles
from plench.algorithms.parts.contrast import (
    RingQueue,
    copy_without_gradient,
    draw_empty_features,
    follow,
    update_prototypes,
)


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


def test_queue_is_saved_with_its_position() -> None:
    first, second = (RingQueue(numbers=torch.full((5,), -1)) for _ in range(2))
    first.push(numbers=torch.arange(7))
    second.load_state_dict(first.state_dict())
    for queue in (first, second):
        queue.push(numbers=torch.arange(10, 12))
    assert torch.equal(first["numbers"], second["numbers"])


def test_empty_features_are_unit_along_one_axis() -> None:
    columns, rows = draw_empty_features(512, 16, axis=0), draw_empty_features(512, 16, axis=1)
    torch.testing.assert_close(columns.norm(dim=0), torch.ones(16))
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(512))
    assert columns.norm(dim=1).mean().item() == pytest.approx((16 / 512) ** 0.5, rel=0.05)


@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.99, 1.0])
def test_prototypes_follow_example_by_example(momentum: float) -> None:
    generator = torch.Generator().manual_seed(1)
    prototypes = normalize(torch.randn(5, 3, generator=generator, dtype=torch.float64), dim=-1)
    prototypes[4] = 0
    features = normalize(torch.randn(20, 3, generator=generator, dtype=torch.float64), dim=-1)
    labels = torch.randint(4, (20,), generator=generator)
    used = torch.rand(20, generator=generator) < 0.7
    for mask in (None, used, torch.zeros(20, dtype=torch.bool)):
        expected = prototypes.clone()
        for i, label in enumerate(labels):
            if mask is None or mask[i]:
                expected[label] = momentum * expected[label] + (1 - momentum) * features[i]
        moved = update_prototypes(prototypes, features, labels, momentum, mask)
        torch.testing.assert_close(moved, normalize(expected, dim=-1, eps=1e-12))
        assert not moved[4].any(), "a class that no example has had stays 0"


def test_copy_follows_parameters_only() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    copy = copy_without_gradient(network)
    assert not any(parameter.requires_grad for parameter in copy.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())
    for own, other in zip(network.state_dict().values(), copy.state_dict().values(), strict=True):
        assert torch.equal(own, other)
        assert own.data_ptr() != other.data_ptr()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    network(torch.randn(8, 3))
    before = [parameter.clone() for parameter in copy.parameters()]
    follow(copy, network, 0.9)
    for old, new, target in zip(before, copy.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(new, 0.9 * old + 0.1 * target)
    assert not copy[1].running_mean.any(), "running statistics are not averaged"
    assert network[1].running_mean.any()


@pytest.mark.parametrize(("device", "place"), [("cpu", "cpu"), ("cuda:1", "cuda:1"), ("mps", "cpu")])
def test_doubles_are_on_the_device_that_has_them(device: str, place: str) -> None:
    assert device_with_doubles(torch.device(device)) == torch.device(place)
