"""Image networks: sizes and widths by the protocol, initialisation, memory format, odd inputs."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from plench.errors import UsageError
from plench.networks import Featurizer


@pytest.fixture(autouse=True)
def own_stream() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("model", "width", "parameters"),
    [("ResNet", 64, 466_256), ("DenseNet", 69, 70_986), ("CNN", 128, None)],
)
def test_sizes(model: str, width: int, parameters: int | None) -> None:
    network = Featurizer((10, 3, 32, 32), {"model": model})
    assert network.n_outputs == width
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, width)
    if parameters is not None:
        assert count_parameters(network) == parameters


def test_lenet() -> None:
    """With a classifier of 10 classes on colour images, LeNet-5 has its well-known 62,006 parameters."""
    network = Featurizer((1, 3, 32, 32), {"model": "lenet"})
    assert count_parameters(network) + 84 * 10 + 10 == 62_006
    for shape in ((3, 32, 32), (1, 28, 28), (2, 17, 33), (1, 16, 16)):
        network = Featurizer((1, *shape), {"model": "LeNet"})
        features = network(torch.randn(3, *shape).to(memory_format=torch.channels_last))
        assert features.shape == (3, network.n_outputs) == (3, 84)
        features.sum().backward()
        assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize("model", ["ResNet", "DenseNet", "CNN"])
def test_weights_and_maps_are_channels_last(model: str) -> None:
    network = Featurizer((1, 3, 32, 32), {"model": model})
    maps: list[torch.Tensor] = []
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            assert layer.weight.is_contiguous(memory_format=torch.channels_last)
            layer.register_forward_hook(lambda _, __, out: maps.append(out))
    network(torch.zeros(2, 3, 32, 32).to(memory_format=torch.channels_last))
    assert all(out.is_contiguous(memory_format=torch.channels_last) for out in maps)


@pytest.mark.parametrize("model", ["ResNet", "DenseNet", "CNN"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (2, 7, 9), (4, 33, 31), (3, 64, 64), (1, 4, 5)])
def test_odd_shapes(model: str, shape: tuple[int, int, int]) -> None:
    network = Featurizer((10, *shape), {"model": model})
    features = network(torch.randn(3, *shape))
    assert features.shape == (3, network.n_outputs)
    assert features.isfinite().all()
    features.sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        *((model, (64,), "it takes images") for model in ("ResNet", "DenseNet", "CNN")),
        *((model, (1, 3, 8), "at least 4×4 pixels") for model in ("DenseNet", "CNN")),
        ("LeNet", (1, 15, 40), "at least 16×16 pixels"),
    ],
)
def test_other_inputs_are_refused(model: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Featurizer((10, *shape), {"model": model})


@pytest.mark.parametrize("model", ["ResNet", "DenseNet", "CNN"])
def test_gradient_is_that_of_the_functional_form(model: str) -> None:
    """In-place operations must not spoil the gradient: compare with a finite difference."""
    network = Featurizer((1, 2, 8, 8), {"model": model}).double()
    x = torch.randn(4, 2, 8, 8, dtype=torch.float64)
    weights = torch.randn(network.n_outputs, dtype=torch.float64)

    def value() -> torch.Tensor:
        return (network(x) @ weights).pow(2).sum()

    parameters = list(network.parameters())
    gradient = torch.autograd.grad(value(), parameters)
    direction = [torch.randn_like(p) for p in parameters]
    slope = sum((g * d).sum() for g, d in zip(gradient, direction, strict=True))
    step = 1e-7
    with torch.no_grad():
        ends = []
        for sign in (1, -2):
            for parameter, d in zip(parameters, direction, strict=True):
                parameter.add_(d, alpha=sign * step)
            ends.append(value())
    assert slope.item() == pytest.approx((ends[0] - ends[1]).item() / (2 * step), rel=1e-3)


def test_mlp_bn_is_the_mlp_with_batch_norm_behind_relu() -> None:
    featurizer = Featurizer((90, 7), {"model": "MLP_BN"})
    assert count_parameters(featurizer) == 7 * 500 + 500 + 2 * 500
    x = torch.randn(16, 7)
    hidden = featurizer.hidden(x).relu()
    expected = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(featurizer(x), expected)
    torch.testing.assert_close(featurizer.norm.running_mean, 0.1 * hidden.mean(0))
    featurizer.eval()
    running = featurizer.norm
    torch.testing.assert_close(
        featurizer(x), (hidden - running.running_mean) / (running.running_var + 1e-5).sqrt()
    )
