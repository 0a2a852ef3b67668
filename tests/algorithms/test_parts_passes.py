"""The two-headed network, and passes over several views."""

import pytest
import torch
from torch import Tensor, nn

from plench.algorithms.parts.contrast import TwoHeadedNetwork, to_unit_rows
from plench.algorithms.parts.views import one_pass_serves, pass_views


@pytest.mark.parametrize("feat_dim", [64, 128, 256])
def test_heads_alone_answer_as_together(feat_dim: int) -> None:
    network = TwoHeadedNetwork((10, 6), 4, {"model": "MLP", "feat_dim": feat_dim})
    x = torch.randn(5, 6)
    logits, features = network(x)
    assert logits.shape == (5, 4)
    assert features.shape == (5, feat_dim)
    torch.testing.assert_close(network.classify(x), logits)
    torch.testing.assert_close(network.project(x), features)
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(5))


def test_head_has_the_widths_of_the_specification() -> None:
    network = TwoHeadedNetwork((10, 6), 4, {"model": "MLP", "feat_dim": 32})
    shapes = [tuple(layer.weight.shape) for layer in network.projector if isinstance(layer, nn.Linear)]
    assert shapes == [(500, 500), (32, 500)]
    assert tuple(network.classifier.weight.shape) == (4, 500)


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


class Counting(nn.Module):
    """A network that counts its passes."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        return self.layers(x)


def test_equal_views_take_one_pass_with_the_same_gradient() -> None:
    network = Counting(nn.Linear(3, 2))
    x = torch.randn(4, 3)
    shared = pass_views(network, x, x, x)
    assert network.passes == 1
    (from_one,) = torch.autograd.grad(shared.square().sum(), network.layers[0].weight)
    apart = pass_views(network, x, x.clone(), x.clone())
    assert network.passes == 4
    (from_three,) = torch.autograd.grad(apart.square().sum(), network.layers[0].weight)
    torch.testing.assert_close(shared, apart)
    torch.testing.assert_close(from_one, from_three)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.Dropout(0.5)])
def test_passes_stay_apart_where_rows_or_draws_count(layer: nn.Module) -> None:
    network = Counting(nn.Linear(3, 3), layer)
    x = torch.randn(4, 3)
    assert not one_pass_serves(network, x, x)
    pass_views(network, x, x)
    assert network.passes == 2
