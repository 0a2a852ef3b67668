"""Third-party methods in stacks: a loss written for one run is mapped over runs, or the reason is given."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from plench.algorithms import Algorithm, AlgorithmEntry, Batch, Hyperparameter, LossAlgorithm, register
from plench.algorithms.proden import PRODEN
from plench.algorithms.registry import load_third_party
from plench.contract import AlgorithmUnderTest, Outcome, checks, run_check
from plench.contract.under_test import make_examples
from plench.runs.folder import RunStore
from plench.training import configure_run
from plench.training.run import TrainingRun
from plench.training.stack import StackedStep, StackError, choose_form
from plench.training.step import SingleStep
from tests.conftest import ROOT
from tests.probe import entry_of

HEAT = Hyperparameter("heat", 4.0, "temperature", above=0)
FORM = Hyperparameter("form", "all", "which labels", one_of=("all", "most"))
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
Loss = Callable[[Any, Tensor, Batch], Any]


def mean_loss(logits: Tensor, batch: Batch) -> Tensor:
    """The loss of one run."""
    return -(batch.candidates * logits.log_softmax(-1)).sum(-1).mean()


def stacked_loss(self: Any, logits: Tensor, batch: Batch) -> Tensor:
    """The losses of one run or of a stack."""
    return -(batch.candidates * logits.log_softmax(-1)).sum(-1).mean(-1)


def method(
    loss: Loss = lambda self, logits, batch: mean_loss(logits, batch), stacked: bool = False, **parts: Any
) -> AlgorithmEntry:
    """Make an algorithm of a loss and other methods and attributes."""
    cls = register("Mine", stacked=stacked, hyperparameters=(HEAT, FORM))(
        type("Mine", (LossAlgorithm,), {"loss": loss, **parts})
    )
    return entry_of(cls)


def check(entry: AlgorithmEntry) -> Outcome:
    return run_check(checks()["trains_in_a_stack"], AlgorithmUnderTest(entry))


def start(entry: AlgorithmEntry, seed: int, **hparams: Any) -> TrainingRun:
    """Build a run on the examples of the contract."""
    dataset = make_examples()
    given = {"batch_size": 16, **hparams}
    config = configure_run(entry, dataset.card, hparams=given, steps=50, seed=seed, pl_type="real")
    run = TrainingRun(config, dataset, entry, RunStore(ROOT / "nowhere"))
    run.build()
    return run


def compare(entry: AlgorithmEntry, *hparams: dict[str, Any], restack: bool = False) -> list[Any]:
    """Twelve updates of stacked runs are those of the single runs; return the stacked algorithms."""
    single, runs = ([start(entry, seed, **own) for seed, own in enumerate(hparams)] for _ in range(2))
    step = StackedStep(runs)
    for number in range(12):
        if restack and number == 6:
            step.sync()
            step = StackedStep(runs)
        logged = step.update()
        for r, run in enumerate(single):
            for name, value in run.algorithm.update(run.training_set.next_batch()).items():
                found = torch.as_tensor(logged[name])[r].double()
                torch.testing.assert_close(found, torch.as_tensor(value).double(), **CLOSE)
    step.sync()
    for one, other in zip(single, runs, strict=True):
        found = other.algorithm.state_dict()
        for name, value in one.algorithm.state_dict().items():
            torch.testing.assert_close(found[name], value, **CLOSE)
    return [run.algorithm for run in runs]


def test_the_example_of_the_readme_is_mapped(tmp_path: Any) -> None:
    """Its loss ends in `.mean()`, which means the rows of one run."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    code = next(text for text in blocks if "register" in text)
    assert ".mean()" in code
    (tmp_path / "mine.py").write_text(code)
    entry = load_third_party(f"{tmp_path / 'mine.py'}:MeanCandidate")
    assert choose_form(entry.cls) == "mapped"
    outcome = check(entry)
    assert (outcome.status, outcome.detail) == ("passed", "stacked: its loss is mapped over runs")
    compare(entry, {"lr": 1e-2}, {"lr": 1e-3})


def keep_shares(self: Any, candidates: Tensor) -> None:
    self.per_example("share", candidates / candidates.sum(-1, keepdim=True))
    self.register_buffer("prior", candidates.float().mean(0))


def temper(self: Any, logits: Tensor, batch: Batch) -> dict[str, Any]:
    logs = (logits / self.hparams["heat"]).log_softmax(-1) - self.prior * (self.steps_done > 3)
    loss = -(self.rows("share", batch.index) * logs).sum(-1).mean()
    return {"loss": loss, "steps": float(self.steps_done), "largest": logits.detach().max()}


def test_hyperparameters_state_and_time_are_each_runs_own() -> None:
    entry = method(setup=keep_shares, losses=temper)
    compare(entry, {"heat": 0.5, "lr": 1e-2}, {"heat": 2.0}, {"heat": 1.0})
    assert SingleStep(start(entry, 0)).by_hand is None, "a single run takes its own step"


def penalise(self: Any, logits: Tensor, batch: Batch) -> Tensor:
    return mean_loss(logits, batch) + sum(weight.square().sum() for weight in self.network.parameters())


def count(self: Any, logits: Tensor, batch: Batch) -> Tensor:
    self.calls = getattr(self, "calls", 0) + 1
    return mean_loss(logits, batch) / self.calls


def branch(self: Any, logits: Tensor, batch: Batch) -> Tensor:
    loss = mean_loss(logits, batch)
    return loss if float(loss) > 0.5 else 2 * loss


def write(self: Any, logits: Tensor, batch: Batch) -> Tensor:
    self.write_rows("seen", batch.index, torch.ones(len(batch.index)))
    return mean_loss(logits, batch)


def keep_first(self: Any, logits: Tensor, batch: Batch) -> Tensor:
    if not hasattr(self, "first"):
        self.first = logits.detach().mean()
    return mean_loss(logits - self.first, batch)


def add_state(self: Any, logits: Tensor, batch: Batch) -> Tensor:
    if "first" not in self._buffers:
        self.register_buffer("first", torch.zeros(()))
    return mean_loss(logits, batch)


def anneal(self: Any, logits: Tensor, batch: Batch) -> Tensor:
    self.hparams["heat"] = self.hparams["heat"] * 0.9
    return mean_loss(logits / self.hparams["heat"], batch)


def replace_hparams(self: Any, logits: Tensor, batch: Batch) -> Tensor:
    self.hparams = {**self.hparams, "heat": self.hparams["heat"] * 0.9}
    return mean_loss(logits / self.hparams["heat"], batch)


class Revising(PRODEN):
    """A descendant of ours with another loss, which says nothing of stacks."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return mean_loss(logits, batch)


NOT_MAPPED: dict[str, AlgorithmEntry] = {
    "reads weights": method(penalise),
    "draws": method(lambda self, logits, batch: mean_loss(logits + torch.randn_like(logits), batch)),
    "draws elsewhere": method(lambda self, logits, batch: mean_loss(logits, batch) * np.random.rand()),  # noqa: NPY002
    "counts": method(count),
    "reads numbers": method(branch),
    "writes rows": method(write, setup=lambda self, c: self.per_example("seen", torch.zeros(len(c)))),
    "keeps a tensor": method(keep_first),
    "adds state": method(add_state),
    "has state that is None": method(setup=lambda self, c: self.register_buffer("later", None)),
    "inherits revise": entry_of(Revising),
}


@pytest.mark.parametrize("name", NOT_MAPPED)
def test_what_cannot_be_mapped_is_not_stacked_and_the_reason_is_given(name: str) -> None:
    outcome = check(NOT_MAPPED[name])
    assert outcome.status == "skipped"
    assert outcome.detail.startswith("its runs are not stacked: ")


@pytest.mark.parametrize("heats", [(4.0, 4.0), (4.0, 2.0)])
@pytest.mark.parametrize("loss", [anneal, replace_hparams])
def test_a_loss_that_changes_hyperparameters_is_not_mapped(loss: Loss, heats: tuple[float, float]) -> None:
    with pytest.raises(StackError, match="its loss changes hyperparameters"):
        compare(method(loss), *({"heat": heat} for heat in heats))


def test_a_mapped_loss_that_goes_wrong_gets_advice() -> None:
    """It counts its calls where nobody looks, and is called once for all runs of a stack."""
    calls = [0]

    def loss(self: Any, logits: Tensor, batch: Batch) -> Tensor:
        calls[0] += 1
        return mean_loss(logits, batch) * (calls[0] % 7)

    outcome = check(method(loss))
    assert outcome.status == "advice"
    assert "A loss that is mapped over runs may depend on" in outcome.detail
    assert 'with not_stackable="the reason"' in outcome.detail


def test_a_descendant_of_ours_and_the_papers_form_are_refused_with_reasons() -> None:
    with pytest.raises(StackError, match="also revise"):
        choose_form(Revising)
    with pytest.raises(StackError, match="not a LossAlgorithm"):
        choose_form(Algorithm)


def test_attributes_and_words_that_differ_are_not_mapped() -> None:
    """With as many runs as classes a tensor of all runs would fit where the number of one run stands."""

    def keep_heat(self: Any, candidates: Tensor) -> None:
        self.heat = self.hparams["heat"]

    def loss(self: Any, logits: Tensor, batch: Batch) -> Tensor:
        return mean_loss(logits / self.heat, batch) * (2 if self.hparams.get("form") == "most" else 1)

    entry = method(loss, setup=keep_heat)
    runs = start(entry, 0).algorithm.num_classes
    for name, values in (("heat", [1.0 + run for run in range(runs)]), ("form", ["most", *["all"] * 9])):
        with pytest.raises(StackError, match=f"differ in {name}"):
            StackedStep([start(entry, run, **{name: values[run]}) for run in range(runs)])
    compare(entry, *({"heat": 2.0, "form": "most", "lr": 10.0 ** (-2 - run)} for run in range(runs)))


# Methods that say stacked=True.


def test_attributes_that_a_stack_changes_are_given_to_its_runs() -> None:
    """A run that is saved, or stacked again, has them as a single run has."""

    def loss(self: Any, logits: Tensor, batch: Batch) -> Tensor:
        return stacked_loss(self, logits / (1 + self.calls), batch)

    def revise(self: Any, outputs: Any, batch: Batch) -> None:
        self.calls += 1
        self.begun = True

    entry = method(loss, stacked=True, setup=lambda self, c: setattr(self, "calls", 0), revise=revise)
    for algorithm in compare(entry, {}, {}, restack=True):
        assert vars(algorithm)["calls"] == 12
        assert vars(algorithm)["begun"] is True
    assert check(entry).status == "passed"


def warm(self: Any, outputs: Any, batch: Batch) -> None:
    self.heat *= 1.5


def keep_last(self: Any, outputs: Any, batch: Batch) -> None:
    self.last = outputs.mean((-1, -2))


def tune(self: Any, outputs: Any, batch: Batch) -> None:
    self.hparams["heat"] = self.hparams["heat"] * 1.5


def drop(self: Any, outputs: Any, batch: Batch) -> None:
    vars(self).pop("spare", None)


def keep_values(self: Any, candidates: Tensor) -> None:
    self.heat, self.spare = self.hparams["heat"], 1


@pytest.mark.parametrize(
    ("revise", "name"),
    [(warm, "heat"), (keep_last, "last"), (tune, "hparams['heat']"), (drop, "spare")],
)
def test_a_changed_attribute_that_cannot_be_given_back_is_refused(revise: Any, name: str) -> None:
    entry = method(stacked_loss, stacked=True, setup=keep_values, revise=revise)
    step = StackedStep([start(entry, seed, heat=2.0 + seed) for seed in range(2)])
    step.sync()
    step.update()
    with pytest.raises(StackError, match=re.escape(f"its {name} changes but is not a buffer")):
        step.sync()


def test_the_contract_reports_attributes() -> None:
    outcome = check(method(stacked_loss, stacked=True, revise=keep_last))
    assert outcome.status == "advice"
    assert outcome.detail.startswith("its runs are not stacked, though it says stacked=True: its last")

    def count_single(self: Any, outputs: Any, batch: Batch) -> None:
        if not hasattr(self, "members"):
            self.seen += 1

    parts: dict[str, Any] = {"per_run_state": ("seen",), "setup": lambda self, c: setattr(self, "seen", 0)}
    outcome = check(method(stacked_loss, stacked=True, revise=count_single, **parts))
    assert outcome.status == "advice"
    assert "updates Mine.seen of a stacked run is not that of the run alone" in outcome.detail


def test_rates_that_a_method_changes_are_kept() -> None:
    def slow(self: Any, outputs: Any, batch: Batch) -> None:
        for run in self.runs_due(lambda run: run.steps_done % 2 == 1):
            group = run.optimizer.param_groups[0]
            group["lr"] *= 0.5
            group["weight_decay"] += 0.01

    entry = method(stacked_loss, stacked=True, revise=slow)
    compare(entry, {"lr": 1e-2}, {"lr": 1e-3})
    plain, by_hand = start(entry, 0, lr=1e-2), start(entry, 0, lr=1e-2)
    step = SingleStep(by_hand)
    assert step.by_hand is not None
    for _ in range(12):
        plain.algorithm.update(plain.training_set.next_batch())
        step.update()
    assert plain.algorithm.optimizer.param_groups[0]["lr"] == pytest.approx(1e-2 * 0.5**6)
    found = by_hand.algorithm.state_dict()
    assert all(torch.equal(found[name], value) for name, value in plain.algorithm.state_dict().items())
    assert check(entry).status == "passed"


def test_the_contract_compares_the_handwritten_step() -> None:
    """A loss that differs by little where the network's pass is written by hand."""

    def loss(self: Any, logits: Tensor, batch: Batch) -> Tensor:
        own = stacked_loss(self, logits, batch)
        return own + 1e-4 * logits.square().mean((-1, -2)) if logits.is_leaf else own

    outcome = check(method(loss, stacked=True))
    assert outcome.status == "advice"
    assert "written by hand" in outcome.detail
