"""Random streams and denormal numbers: inside a block they are the run's, outside they are as they were."""

import random

import numpy as np
import pytest
import torch

from plench.training.environment import Streams, flush_denormals

TINY = 1e-40


def draw_everything():
    return (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random())  # noqa: NPY002


def test_ambient_streams_repeat_and_leave_the_global_generators_alone():
    before = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())  # noqa: NPY002
    drawn = []
    for _ in range(2):
        with Streams(7, torch.device("cpu")).ambient("init"):
            drawn.append(draw_everything())
    assert drawn[0] == drawn[1]
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert random.getstate() == before[2]


def is_flushed() -> bool:
    return float(torch.tensor(TINY) * 1) == 0


def test_denormals_are_flushed_inside_only() -> None:
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor does not flush denormal numbers")
    with flush_denormals():
        assert is_flushed()
        with flush_denormals():
            assert is_flushed()
        assert is_flushed()
    assert not is_flushed()
    with pytest.raises(ValueError, match="stop"), flush_denormals():
        raise ValueError("stop")
    assert not is_flushed()
