"""A stack of runs is its runs: the same weights, state and logs as each has alone, past every phase."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from plench.algorithms import algorithms, find_algorithm
from plench.hparams import DataTraits, draw_hparams
from plench.training.data import TabularInputs, TrainingSet
from plench.training.environment import Streams
from plench.training.stack import StackedBatches, StackError, stack_runs
from plench.training.step import HandwrittenMLP, find_step, is_better_turned

N, D, K, B, UPDATES = 70, 6, 5, 16, 120
STACKED = [name for name, entry in algorithms().items() if entry.card.stacked]
# What the runs differ in besides learning rate, weight decay, split and seed; phases begin early.
DIFFERING: dict[str, dict[str, list[Any]]] = {
    "ABS_GCE": {"q": [0.1, 0.7, 1.0, 0.35]},
    "LWS": {"lw_weight": [1.0, 2.0, 0.5, 0.0]},
    "NN": {"beta": [0.0, 0.5, 0.01, 1.2]},
    "POP": {
        "rollWindow": [1, 2, 3, 5],
        "warm_up": [0, 4, 9, 0],
        "theta": [0.01, 0.3, 0.1, 1.0],
        "inc": [0.0, 0.5, 0.01, 1.2],
    },
    "IDGP": {"warm_up_epoch": [1, 5, 20, 3]},
    "GFWS": {"entropy_weight": [0.0, 0.1, 0.5, 1.3]},
    "SCARCE": {"prior": ["uniform", "candidates", "candidates", "uniform"]},
    "RECORDS": {"upd_start": [0, 2, 20, 0], "m": [0.9, 0.5, 0.99, 0.0]},
    "CEL": {
        "alpha": [0.1, 0.5, 0.3, 0.0],
        "gamma1": [1.0, 2.0, 0.5, 1.0],
        "beta": [0.5, 1.0, 2.0, 1.0],
        "gamma2": [5.0, 1.0, 2.0, 0.0],
    },
    "FREDIS": {
        "lam": [1.0, 10.0, 2.0, 0.0],
        "alpha": [1.0, 0.1, 0.01, 0.5],
        "theta": [0.01, 0.3, 0.1, 0.2],
        "delta": [0.9, 0.5, 0.7, 0.6],
        "update_interval": [1, 2, 5, 3],
        "change_size": [3, 50, 8, 20],
    },
}
RATES = {"lr": [1e-3, 3e-3, 1e-4, 1e-3], "weight_decay": [0.0, 1e-3, 1e-5, 0.0]}


class Made:
    """One run: an algorithm, its batches and its random streams; runs 0 and 1 are on one split.

    All sets of run 3 hold every label, so that none of its batches has a pair.
    """

    def __init__(self, name: str, run: int, dtype: torch.dtype, model: str = "MLP") -> None:
        entry = find_algorithm(name)
        own = {key: values[run] for key, values in {**RATES, **DIFFERING.get(name, {})}.items()}
        values = draw_hparams(
            entry.card.hyperparameters, DataTraits("tabular"), 0, 0, {**own, "batch_size": B, "model": model}
        )
        hparams = {**values, "max_steps": UPDATES}
        features, candidates = SPLITS[max(run - 1, 0)]
        self.streams = Streams(run, torch.device("cpu"))
        with self.streams.ambient("init"):
            self.algorithm: Any = entry.cls((N, D), candidates.numpy().astype(np.float32), hparams).to(dtype)
        self.training_set = TrainingSet(
            TabularInputs(np.zeros(D), np.ones(D)),
            features if dtype == torch.float32 else DOUBLES[max(run - 1, 0)],
            candidates,
            B,
            entry.cls.choose_views(entry.card.views, hparams),
            False,
            self.streams,
        )

    def update(self) -> Mapping[str, Any]:
        with self.streams.ambient("algorithm"):
            return self.algorithm.update(self.training_set.next_batch())


def draw_split(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.rand(N, K, generator=generator) < 0.4
    candidates[torch.arange(N), torch.randint(K, (N,), generator=generator)] = True
    candidates[0] = True
    return torch.randn(N, D, generator=generator), candidates


SPLITS = [draw_split(0), draw_split(1), (draw_split(2)[0], torch.ones(N, K, dtype=torch.bool))]
DOUBLES = [features.double() for features, _ in SPLITS]


def compare(together: Any, runs: Sequence[Made], members: Sequence[Made], **tolerance: float) -> None:
    together.sync_members()
    for run, member in zip(runs, members, strict=True):
        assert member.algorithm.steps_done == run.algorithm.steps_done
        own = dict(member.algorithm.named_parameters()) | dict(member.algorithm.named_buffers())
        for place, value in [*run.algorithm.named_parameters(), *run.algorithm.named_buffers()]:
            torch.testing.assert_close(
                own[place], value, **tolerance, msg=lambda text, at=place: f"{at}: {text}"
            )


@pytest.mark.parametrize("name", STACKED)
@pytest.mark.parametrize(
    ("model", "dtype", "updates"),
    [("MLP", torch.float64, UPDATES), ("MLP", torch.float32, 20), ("MLP_BN", torch.float64, 20)],
)
def test_a_stack_is_its_runs(name: str, model: str, dtype: torch.dtype, updates: int) -> None:
    tolerance = {"rtol": 1e-6, "atol": 1e-8} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    alone, members = ([Made(name, run, dtype, model) for run in range(4)] for _ in range(2))
    before = [parameter.detach().clone() for parameter in alone[0].algorithm.parameters()]
    together = stack_runs([each.algorithm for each in members], [each.streams for each in members])
    batches = StackedBatches([each.training_set for each in members])
    for _ in range(updates):
        logged = together.update(batches.next())
        for r, run in enumerate(alone):
            for key, value in run.update().items():
                given = torch.as_tensor(logged[key])
                own = given[r] if given.dim() else given
                torch.testing.assert_close(own, torch.as_tensor(value), check_dtype=False, **tolerance)
    compare(together, alone, members, **tolerance)
    changed = zip(before, alone[0].algorithm.parameters(), strict=True)
    assert all(not torch.equal(one, other) for one, other in changed)
    for run, member in zip(alone, members, strict=True):
        assert torch.equal(run.training_set.order.order, member.training_set.order.order)
        for extra in type(run.algorithm).per_run_state:
            assert getattr(member.algorithm, extra) == pytest.approx(getattr(run.algorithm, extra))


@pytest.mark.parametrize("model", ["MLP", "MLP_BN"])
@pytest.mark.parametrize("name", STACKED)
def test_a_step_written_by_hand_has_the_same_bits(name: str, model: str) -> None:
    plain, by_hand = (Made(name, 1, torch.float32, model) for _ in range(2))
    step = find_step(by_hand.algorithm)
    if name in ("CRDPLL", "FREDIS", "GFWS", "RECORDS", "IDGP", "CEL"):
        assert step is None, "its passes are not one pass of the network"
        return
    assert step is not None
    for _ in range(60):
        logged, expected = step.update(by_hand.training_set.next_batch()), plain.update()
        assert logged.keys() == expected.keys()
        assert all(torch.equal(logged[key], expected[key]) for key in expected)
    own = by_hand.algorithm.state_dict()
    assert all(torch.equal(own[key], value) for key, value in plain.algorithm.state_dict().items())
    states = [made.algorithm.optimizer.state_dict()["state"] for made in (plain, by_hand)]
    for number, state in states[0].items():
        assert all(torch.equal(states[1][number][key], value) for key, value in state.items())
    assert all(
        torch.equal(one.grad, other.grad)
        for one, other in zip(plain.algorithm.parameters(), by_hand.algorithm.parameters(), strict=True)
    )


@pytest.mark.parametrize(
    ("rows", "classes", "turned"),
    [(16, 5, False), (16, 12, True), (16, 16, False), (16, 23, True), (11, 23, False), (16, 32, False)],
)
def test_a_stacked_network_is_that_of_autograd_whatever_its_sizes(
    rows: int, classes: int, turned: bool
) -> None:
    """Some sizes make logits in a turned product."""
    assert is_better_turned(rows, classes) == turned
    random = torch.Generator().manual_seed(classes)
    shapes = ((2, 7, D), (2, 7), (2, classes, 7), (2, classes))
    weights = [torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]
    inputs = torch.randn(2, rows, D, generator=random, dtype=torch.float64)
    wanted = torch.randn(2, rows, classes, generator=random, dtype=torch.float64)
    by_hand = HandwrittenMLP(weights)
    logits = by_hand.forward(inputs)
    assert logits.is_contiguous()
    torch.testing.assert_close(by_hand.predict(inputs), logits, rtol=0, atol=0)
    by_hand.backward(wanted)
    for run in range(2):
        own = [weight[run].clone().requires_grad_() for weight in weights]
        expected = torch.relu(inputs[run] @ own[0].mT + own[1]) @ own[2].mT + own[3]
        torch.testing.assert_close(logits[run], expected, rtol=1e-12, atol=1e-12)
        gradients = torch.autograd.grad((expected * wanted[run]).sum(), own)
        for gradient, of_stack in zip(gradients, by_hand.gradients, strict=True):
            torch.testing.assert_close(of_stack[run], gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("model", ["MLP", "MLP_BN"])
def test_a_run_that_leaves_does_not_change_the_others(model: str) -> None:
    """Members stacked anew, without one of them, go on as they were."""
    alone = [Made("POP", run, torch.float64, model) for run in range(3)]
    members = [Made("POP", run, torch.float64, model) for run in range(3)]
    left = [*members]
    for updates in (30, 30):
        together = stack_runs([each.algorithm for each in left], [each.streams for each in left])
        batches = StackedBatches([each.training_set for each in left])
        for _ in range(updates):
            together.update(batches.next())
        together.sync_members()
        left = left[1:]
    for run, times in zip(alone, (30, 60, 60), strict=True):
        for _ in range(times):
            run.update()
    tolerance = {"rtol": 1e-6, "atol": 1e-8}
    compare(together, alone[1:], members[1:], **tolerance)
    left_first = stack_runs([members[0].algorithm], [members[0].streams])
    compare(left_first, alone[:1], members[:1], **tolerance)


def test_normalising_a_batch_of_one_is_refused() -> None:
    made = Made("CC", 0, torch.float32, "MLP_BN")
    step = find_step(made.algorithm)
    assert step is not None
    with pytest.raises(ValueError, match="at least two examples"):
        step.network.forward(torch.zeros(1, D))


def test_what_cannot_be_stacked_is_refused() -> None:
    runs = [Made("FREDIS", run, torch.float32) for run in range(2)]
    runs[0].algorithm.hparams["views"] = 1
    with pytest.raises(StackError, match="differ in views"):
        stack_runs([run.algorithm for run in runs], [run.streams for run in runs])
    runs = [Made("CC", run, torch.float32) for run in range(2)]
    runs[0].algorithm.steps_done = 3
    with pytest.raises(StackError, match="same step"):
        stack_runs([run.algorithm for run in runs], [run.streams for run in runs])
    runs = [Made("CC", run, torch.float32) for run in range(2)]
    runs[1].algorithm.network = torch.nn.Sequential(torch.nn.Linear(D, K))
    with pytest.raises(StackError, match="MLP"):
        stack_runs([run.algorithm for run in runs], [run.streams for run in runs])


def test_our_algorithms_are_stacked_or_say_why_not() -> None:
    networks = {name: entry.card for name, entry in algorithms().items() if entry.card.shared}
    assert all(card.stacked != bool(card.not_stackable) for card in networks.values())
    vanilla = {name for name, card in networks.items() if card.family.startswith("vanilla")}
    assert vanilla | {"CRDPLL", "FREDIS"} <= set(STACKED)
