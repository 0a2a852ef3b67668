import random

import numpy as np
import torch

from plench.training.environment import Streams

CPU = torch.device("cpu")


def draw_everything():
    return (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random())  # noqa: NPY002


def test_ambient_streams_repeat_and_leave_the_global_generators_alone():
    before = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())  # noqa: NPY002
    drawn = []
    for _ in range(2):
        with Streams(7, CPU).ambient("init"):
            drawn.append(draw_everything())
    assert drawn[0] == drawn[1]
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert random.getstate() == before[2]
