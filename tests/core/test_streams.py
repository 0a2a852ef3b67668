import random

import numpy as np
import torch

from plench.training.checkpoint import dump, parse
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


def test_streams_differ_by_name_and_seed():
    def first(seed, name):
        with Streams(seed, CPU).ambient(name):
            return draw_everything()

    assert len({str(first(seed, name)) for seed in (0, 1) for name in ("init", "algorithm")}) == 4


def test_a_nested_stream_does_not_move_the_outer_one():
    plain, nested = Streams(0, CPU), Streams(0, CPU)
    with plain.ambient("algorithm"):
        expected = [draw_everything(), draw_everything()]
    with nested.ambient("algorithm"):
        first = draw_everything()
        with nested.ambient("evaluation"):
            draw_everything()
        assert [first, draw_everything()] == expected


def test_a_block_continues_where_the_last_one_of_its_name_ended():
    one, two = Streams(0, CPU), Streams(0, CPU)
    with one.ambient("algorithm"):
        expected = [draw_everything(), draw_everything()]
    with two.ambient("algorithm"):
        first = draw_everything()
    with two.ambient("algorithm"):
        assert [first, draw_everything()] == expected


def test_state_taken_inside_a_block_continues_exactly_through_a_file():
    streams = Streams(3, CPU)
    with streams.ambient("algorithm"):
        draw_everything()
        torch.rand(2, generator=streams.generator("batches"))
        saved = parse(dump({"streams": streams.state()}))["streams"]
        expected = (draw_everything(), torch.rand(2, generator=streams.generator("batches")).tolist())
    fresh = Streams(3, CPU)
    with fresh.ambient("algorithm"):
        fresh.load_state(saved)
        assert (draw_everything(), torch.rand(2, generator=fresh.generator("batches")).tolist()) == expected
