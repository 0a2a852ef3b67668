"""Contrastive parts against their definitions, written out with full matrices."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from plench.algorithms.parts import contrast
from plench.algorithms.parts.contrast import (
    BASE_TEMPERATURE,
    compare,
    instance_contrast,
    log_mass,
    mean_similarity_by_label,
    sum_by_label,
    supervised_contrast,
)

CLASSES = 3


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def draw_unit(generator: torch.Generator, rows: int, width: int = 4) -> Tensor:
    return normalize(torch.randn(rows, width, generator=generator, dtype=torch.float64), dim=-1)


def log_probs_by_definition(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Return lp_ij of the specification over all columns of [queries; keys; queue]."""
    similarities = queries @ torch.cat([queries, keys, queue]).T / temperature
    shifted = similarities - similarities.amax(-1, keepdim=True).detach()
    own = torch.eye(len(queries), shifted.shape[1], dtype=torch.bool)
    total = shifted.exp().masked_fill(own, 0).sum(-1, keepdim=True)
    return shifted - (total + 1e-12).log()


@pytest.mark.parametrize("rows", [1, 3, contrast.PIECE - 1, contrast.PIECE, 2 * contrast.PIECE + 5])
def test_log_mass_is_a_logsumexp(generator: torch.Generator, rows: int) -> None:
    queries = draw_unit(generator, 3).requires_grad_()
    contrasts = draw_unit(generator, rows)
    mass = log_mass(queries, contrasts, 0.07)
    expected = (queries @ contrasts.T / 0.07).logsumexp(-1)
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    (got,) = torch.autograd.grad((weights * mass).sum(), queries)
    (wanted,) = torch.autograd.grad((weights * expected).sum(), queries)
    torch.testing.assert_close(mass, expected)
    torch.testing.assert_close(got, wanted)


def test_gradient_of_log_mass_by_differences(generator: torch.Generator) -> None:
    queries, contrasts = draw_unit(generator, 3).requires_grad_(), draw_unit(generator, 7)
    assert torch.autograd.gradcheck(lambda q: log_mass(q, contrasts, 0.5), queries)


def test_long_rows_do_not_overflow() -> None:
    """The first rows of a queue shorter than the projection are long; the running maximum holds them."""
    queries = torch.eye(2, 4).requires_grad_()
    rows = torch.cat([torch.eye(4), 40 * torch.eye(4)])
    mass = log_mass(queries, rows, 0.03)
    mass.sum().backward()
    torch.testing.assert_close(mass, torch.full((2,), 40 / 0.03))
    assert queries.grad.isfinite().all()


def test_instance_contrast_is_a_cross_entropy(generator: torch.Generator) -> None:
    queries, keys, queue = (draw_unit(generator, rows) for rows in (5, 5, 11))
    own = (queries * keys).sum(-1, keepdim=True)
    logits = torch.cat([own, queries @ queue.T], dim=-1) / 0.07
    expected = cross_entropy(logits, torch.zeros(5, dtype=torch.int64))
    torch.testing.assert_close(instance_contrast(queries, keys, queue, 0.07), expected)


@pytest.mark.parametrize("size", [1, 2, 6])
@pytest.mark.parametrize("temperature", [0.03, 0.07, 0.5])
def test_supervised_contrast_by_definition(
    generator: torch.Generator, size: int, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contrast, "BASE_TEMPERATURE", temperature)
    queries = draw_unit(generator, size).requires_grad_()
    keys, queue = draw_unit(generator, size), draw_unit(generator, 9)
    labels = torch.randint(CLASSES, (size,), generator=generator)
    queue_labels = torch.randint(-1, CLASSES, (9,), generator=generator)
    loss = supervised_contrast(queries, keys, labels, queue, queue_labels, CLASSES)

    positives = torch.cat([labels, labels, queue_labels]) == labels[:, None]
    positives[:, :size].fill_diagonal_(False)
    log_probs = log_probs_by_definition(queries, keys, queue, temperature)
    expected = -((positives * log_probs).sum(-1) / positives.sum(-1)).mean()
    torch.testing.assert_close(loss, expected)
    (got,) = torch.autograd.grad(loss, queries, retain_graph=True)
    (wanted,) = torch.autograd.grad(expected, queries)
    torch.testing.assert_close(got, wanted)


def test_guard_counts_where_all_others_are_opposite() -> None:
    """With nothing but opposite contrasts at a low temperature, 1e-12 outweighs the sum."""
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    opposite = -query
    similarities = compare(query, opposite, opposite, 0.03)
    expected = -log_probs_by_definition(query, opposite, opposite, 0.03)[:, 1] + similarities.keys[:, 0]
    torch.testing.assert_close(similarities.log_denominator, expected)
    assert similarities.log_denominator.item() == pytest.approx(1 / 0.03 - 27.631021, rel=1e-6)


def test_only_used_examples_are_positives(generator: torch.Generator) -> None:
    queries, keys, queue = (draw_unit(generator, rows) for rows in (4, 4, 6))
    labels, queue_labels = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1, 2, -1])
    used, queue_used = torch.tensor([1, 0, 0, 0]) == 1, torch.tensor([0, 1, 0, 0, 1, 1]) == 1
    similarities = compare(queries, keys, queue, BASE_TEMPERATURE)
    sums = sum_by_label(queue, queue_labels, CLASSES, queue_used)
    mean = mean_similarity_by_label(similarities, queries, labels, sums, BASE_TEMPERATURE, used)
    to_queue = queries @ queue.T / BASE_TEMPERATURE
    # Anchor 0: its own key and queue entry 1. Anchor 1: query and key 0, queue entry 1. The others: nothing.
    expected = [
        (similarities.keys[0, 0] + to_queue[0, 1]) / 2,
        (similarities.queries[1, 0] + similarities.keys[1, 0] + to_queue[1, 1]) / 3,
        torch.zeros(()),
        torch.zeros(()),
    ]
    torch.testing.assert_close(mean, torch.stack([value.double() for value in expected]))


def test_empty_slots_belong_to_no_class() -> None:
    sums = sum_by_label(torch.ones(4, 2), torch.full((4,), -1), CLASSES)
    assert not sums.counts.any()
    assert not sums.features.any()


def test_queue_carries_no_gradient(generator: torch.Generator) -> None:
    """Gradients reach the queries as anchors and as contrasts, and nothing else."""
    queries = draw_unit(generator, 3).requires_grad_()
    keys, queue = draw_unit(generator, 3), draw_unit(generator, 5)
    labels = torch.zeros(3, dtype=torch.int64)
    supervised_contrast(queries, keys, labels, queue, torch.zeros(5, dtype=torch.int64), 1).backward()
    assert queries.grad.abs().sum() > 0
    assert not keys.requires_grad
    assert not queue.requires_grad
