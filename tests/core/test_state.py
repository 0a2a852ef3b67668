"""What a third party may put on an algorithm object, and that it comes back."""

import logging
import random
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from plench.errors import ResumeError
from plench.training.checkpoint import dump, list_state, parse, restore_snapshot, take_snapshot


class Helper:
    def __init__(self):
        self.momentum = 0.5
        self.memory = torch.zeros(2)


@dataclass(frozen=True)
class Settings:
    rate: float


class Pair(NamedTuple):
    mean: torch.Tensor
    count: int


class Everything(nn.Module):
    transient = ("scratch",)

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.optimizer = torch.optim.Adam(self.layer.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.register_buffer("hidden", torch.zeros(2), persistent=False)
        self.plain = torch.zeros(4, dtype=torch.float64)
        self.alias = self.plain
        self.array = np.zeros(3, dtype=np.int32)
        self.step = 0
        self.name = "a"
        self.flag = False
        self.history = [1.0]
        self.window = deque([1], maxlen=2)
        self.seen = {1}
        self.nested = {"rate": (0.1, [torch.zeros(1)]), 3: None}
        self.unregistered = [nn.Linear(1, 1)]
        self.helper = Helper()
        self.torch_generator = torch.Generator().manual_seed(0)
        self.numpy_state = np.random.RandomState(0)
        self.numpy_generator = np.random.default_rng(0)
        self.python_generator = random.Random(0)
        self.function = torch.relu
        self.later = None
        self.settings = Settings(0.1)
        self.pair = Pair(torch.zeros(2), 0)
        self.log = logging.getLogger("anything")
        self.scratch = torch.zeros(5)

    def advance(self):
        self.optimizer.zero_grad()
        noise = torch.rand(1, generator=self.torch_generator) + float(self.numpy_state.rand())
        noise = noise + self.numpy_generator.random() + self.python_generator.random()
        (self.layer(torch.ones(1, 3)).sum() * noise).backward()
        self.optimizer.step()
        self.scheduler.step()
        self.hidden += 1
        self.plain[self.step % 4] += 1
        self.array = self.array + 1
        self.step += 1
        self.name += "b"
        self.flag = not self.flag
        self.history.append(float(noise))
        self.window.append(self.step)
        self.seen.add(self.step + 10)
        self.nested["rate"][1][0].add_(1)
        self.nested[f"key{self.step}"] = self.step
        with torch.no_grad():
            self.unregistered[0].weight.add_(1)
        self.helper.momentum *= 0.9
        self.helper.memory = torch.full((3,), float(self.step))
        self.later = torch.ones(2) * self.step
        self.settings = Settings(self.settings.rate / 2)
        self.pair = Pair(self.pair.mean + 1, self.step)
        self.layer.bias.requires_grad_(self.step < 2)
        self.scratch += 1


def describe(owner):
    return str(take_snapshot(owner).tree)


@pytest.fixture(autouse=True)
def full_print():
    torch.set_printoptions(precision=17, threshold=10_000)
    yield
    torch.set_printoptions(profile="default")


def test_everything_comes_back_and_continues_bit_for_bit():
    owner = Everything()
    for _ in range(3):
        owner.advance()
    saved = parse(dump({"tree": take_snapshot(owner).tree}))["tree"]
    fresh = Everything()
    restore_snapshot(fresh, saved)
    assert describe(fresh) == describe(owner)
    assert fresh.alias is fresh.plain
    assert fresh.settings == owner.settings
    assert not fresh.layer.bias.requires_grad
    assert torch.equal(fresh.layer.weight.grad, owner.layer.weight.grad)
    assert fresh.optimizer.param_groups[0]["params"][0] is fresh.layer.weight
    for _ in range(3):
        owner.advance()
        fresh.advance()
    assert describe(fresh) == describe(owner)
    assert fresh.history == owner.history
    assert fresh.window.maxlen == 2


def test_a_snapshot_is_a_copy():
    owner = Everything()
    before = take_snapshot(owner).tree
    text = str(before)
    owner.advance()
    assert str(before) == text


def test_prediction_needs_no_optimiser_no_example_rows_and_no_module_for_training():
    owner = Everything()
    owner.per_example_names = ["hidden"]
    owner.training_only = ("decoder",)
    owner.decoder = nn.Linear(2, 2)
    owner.advance()
    tree = take_snapshot(owner, for_prediction=True).tree
    assert "hidden" not in tree["tensors"]
    assert "decoder" not in tree["modules"]
    assert "decoder" in take_snapshot(owner).tree["modules"]
    assert tree["attributes"]["optimizer"]["kind"] == "stateless"


def test_state_is_listed_with_its_memory():
    rows = {row["name"]: row for row in list_state(Everything())}
    assert rows["plain"] == {"name": "plain", "shape": [4], "dtype": "float64", "bytes": 32}
    assert "hidden" in rows
    assert "scratch" not in rows


@pytest.mark.parametrize(
    ("part", "kind"), [(nn.Linear(3, 2), "Linear"), (np.random.default_rng(0), "numpy generator")]
)
def test_a_part_made_after_init_is_refused_by_its_path(part, kind):
    owner = Everything()
    owner.teacher = None
    saved = take_snapshot(owner).tree
    owner.teacher = part
    later = take_snapshot(owner).tree
    fresh = Everything()
    fresh.teacher = None
    with pytest.raises(
        ResumeError, match=rf"Everything\.teacher holds a {kind} .* must make all its parts in __init__"
    ):
        restore_snapshot(fresh, later)
    restore_snapshot(fresh, saved)


def test_a_cycle_comes_back():
    owner = Everything()
    owner.helper.owner = owner
    owner.history.append(owner.history)
    fresh = Everything()
    restore_snapshot(fresh, parse(dump({"tree": take_snapshot(owner).tree}))["tree"])
    assert fresh.helper.owner is fresh
    assert fresh.history[-1] is fresh.history


def test_entries_under_odd_keys_are_reported():
    owner = Everything()
    owner.by_parameter = {owner.layer.weight: 1}
    assert take_snapshot(owner).unsaved == [
        "Everything.by_parameter (an entry under a key of type Parameter)"
    ]
