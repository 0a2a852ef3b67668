"""Third parties' losses, written for one run: mapped over the runs of a fleet, or trained alone."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from plench.algorithms import Algorithm, AlgorithmEntry, LossAlgorithm, register
from plench.algorithms.proden import PRODEN
from plench.algorithms.registry import load_third_party, third_party_entry
from plench.batch import Batch
from plench.contract import AlgorithmUnderTest, checks, run_check
from plench.contract.under_test import make_examples
from plench.hparams import Hyperparameter
from plench.training import configure_run
from plench.training.run import TrainingRun
from plench.training.stack import StackedBatches, StackError, choose_form, stack_runs
from plench.training.step import find_step
from tests.training.test_fleet import RunStore

README = Path(__file__).parents[2] / "README.md"
CHECK = checks()["trains_in_a_stack"]


def start(entry: AlgorithmEntry, seed: int, **hparams: Any) -> TrainingRun:
    """Build a run on the examples of the contract."""
    dataset = make_examples()
    config = configure_run(
        entry, dataset.card, hparams={"batch_size": 16, **hparams}, steps=50, seed=seed, pl_type="real"
    )
    run = TrainingRun(config, dataset, entry, RunStore(Path("nowhere")))
    run.build()
    return run


def test_the_example_of_the_readme_is_mapped(tmp_path: Path) -> None:
    """Its loss ends in `.mean()`, which means the rows of one run."""
    code = next(
        text for text in re.findall(r"```python\n(.*?)```", README.read_text(), re.S) if "register" in text
    )
    assert ".mean()" in code
    (tmp_path / "mine.py").write_text(code)
    entry = load_third_party(f"{tmp_path / 'mine.py'}:MeanCandidate")
    assert choose_form(entry.cls) == "mapped"
    outcome = run_check(CHECK, AlgorithmUnderTest(entry))
    assert (outcome.status, outcome.detail) == ("passed", "stacked: its loss is mapped over runs")
    compare(entry, [{"lr": 1e-2}, {"lr": 1e-3}])


@register("Tempered", hyperparameters=(Hyperparameter("heat", 1.0, "temperature", above=0),))
class Tempered(LossAlgorithm):
    """A loss with a hyperparameter, state that it reads, and the time."""

    prior: Tensor

    def setup(self, candidates: Tensor) -> None:
        self.per_example("share", candidates / candidates.sum(-1, keepdim=True))
        self.register_buffer("prior", candidates.float().mean(0))

    def losses(self, logits: Tensor, batch: Batch) -> dict[str, Any]:
        logs = (logits / self.hparams["heat"]).log_softmax(-1) - self.prior * (self.steps_done > 3)
        loss = -(self.rows("share", batch.index) * logs).sum(-1).mean()
        return {"loss": loss, "steps": float(self.steps_done), "largest": logits.detach().max()}


def compare(entry: AlgorithmEntry, hparams: list[dict[str, Any]]) -> None:
    """Twelve updates of runs as one are those of each alone."""
    alone = [start(entry, seed, **own) for seed, own in enumerate(hparams)]
    members = [start(entry, seed, **own) for seed, own in enumerate(hparams)]
    algorithms: list[Any] = [member.algorithm for member in members]
    together = stack_runs(algorithms, [member.streams for member in members])
    batches = StackedBatches([member.training_set for member in members])
    for _ in range(12):
        logged = together.update(batches.next())
        for r, run in enumerate(alone):
            expected = run.algorithm.update(run.training_set.next_batch())
            for name, value in expected.items():
                torch.testing.assert_close(
                    torch.as_tensor(logged[name])[r].double(),
                    torch.as_tensor(value).double(),
                    rtol=1e-4,
                    atol=1e-5,
                )
    together.sync_members()
    for one, other in zip(alone, members, strict=True):
        found = other.algorithm.state_dict()
        for name, value in one.algorithm.state_dict().items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_hyperparameters_state_and_time_are_each_runs_own() -> None:
    entry = third_party_entry("Tempered", Tempered, "tests:Tempered")
    compare(entry, [{"heat": 0.5, "lr": 1e-2}, {"heat": 2.0}, {"heat": 1.0}])
    assert find_step(start(entry, 0).algorithm) is None, "alone it takes its own step"


def loss_of(logits: Tensor, batch: Batch) -> Tensor:
    return -(batch.candidates * logits.log_softmax(-1)).sum(-1).mean()


@register("Looking")
class Looking(LossAlgorithm):
    """A loss with a penalty on weights."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return loss_of(logits, batch) + sum(weight.square().sum() for weight in self.network.parameters())


@register("Rolling")
class Rolling(LossAlgorithm):
    """A loss that draws."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return loss_of(logits + torch.randn_like(logits), batch)


@register("Dicing")
class Dicing(LossAlgorithm):
    """A loss that draws elsewhere."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return loss_of(logits, batch) * np.random.rand()  # noqa: NPY002


@register("Counting")
class Counting(LossAlgorithm):
    """A loss that counts."""

    def setup(self, candidates: Tensor) -> None:
        self.calls = 0

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        self.calls += 1
        return loss_of(logits, batch) / self.calls


@register("Waiting")
class Waiting(LossAlgorithm):
    """A loss that looks at numbers."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        loss = loss_of(logits, batch)
        return loss if float(loss) > 0.5 else 2 * loss


@register("Writing")
class Writing(LossAlgorithm):
    """A loss that writes state."""

    def setup(self, candidates: Tensor) -> None:
        self.per_example("seen", torch.zeros(len(candidates)))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        self.write_rows("seen", batch.index, torch.ones(len(batch.index)))
        return loss_of(logits, batch)


class Revising(PRODEN):
    """A descendant of ours with another loss, which says nothing of stacks."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return loss_of(logits, batch)


@register("Caching")
class Caching(LossAlgorithm):
    """A loss that keeps a tensor from its first call."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        if not hasattr(self, "first"):
            self.first = logits.detach().mean()
        return loss_of(logits - self.first, batch)


@register("Adding")
class Adding(LossAlgorithm):
    """A loss that adds state in its first call."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        if "first" not in self._buffers:
            self.register_buffer("first", torch.zeros(()))
        return loss_of(logits, batch)


HEAT = Hyperparameter("heat", 4.0, "temperature", above=0)


@register("Annealing", hyperparameters=(HEAT,))
class Annealing(LossAlgorithm):
    """A loss that changes a hyperparameter."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        self.hparams["heat"] = self.hparams["heat"] * 0.9
        return loss_of(logits / self.hparams["heat"], batch)


@register("Cooling", hyperparameters=(HEAT,))
class Cooling(Annealing):
    """A loss that puts other hyperparameters in the place of its own."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        self.hparams = {**self.hparams, "heat": self.hparams["heat"] * 0.9}
        return loss_of(logits / self.hparams["heat"], batch)


CALLS = [0]


@register("Outside")
class Outside(LossAlgorithm):
    """A loss that counts its calls where nobody looks: it is called once for all runs of a stack."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        CALLS[0] += 1
        return loss_of(logits, batch) * (CALLS[0] % 7)


@register("Empty")
class Empty(LossAlgorithm):
    """State that is not there yet."""

    def setup(self, candidates: Tensor) -> None:
        self.register_buffer("later", None)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return loss_of(logits, batch)


@pytest.mark.parametrize(
    "cls",
    [
        Looking,
        Rolling,
        Dicing,
        Counting,
        Waiting,
        Writing,
        Revising,
        Caching,
        Adding,
        Annealing,
        Cooling,
        Empty,
    ],
)
def test_what_cannot_be_mapped_is_trained_alone_and_told(cls: type[Algorithm]) -> None:
    entry = third_party_entry(cls.__name__, cls, f"tests:{cls.__name__}")
    outcome = run_check(CHECK, AlgorithmUnderTest(entry))
    assert outcome.status == "skipped"
    assert outcome.detail.startswith("its runs are not stacked: ")


@pytest.mark.parametrize("heats", [[4.0, 4.0], [4.0, 2.0]])
@pytest.mark.parametrize("cls", [Annealing, Cooling])
def test_a_loss_that_changes_hyperparameters_is_not_mapped(cls: type[Algorithm], heats: list[float]) -> None:
    entry = third_party_entry(cls.__name__, cls, f"tests:{cls.__name__}")
    with pytest.raises(StackError, match="its loss changes hyperparameters"):
        compare(entry, [{"heat": heat} for heat in heats])


def test_a_mapped_loss_that_goes_wrong_is_told_what_helps() -> None:
    outcome = run_check(CHECK, AlgorithmUnderTest(third_party_entry("Outside", Outside, "tests:Outside")))
    assert outcome.status == "advice"
    assert "A loss that is mapped over runs may depend on" in outcome.detail
    assert 'with not_stackable="the reason"' in outcome.detail


def test_a_descendant_of_ours_and_the_papers_form_are_refused_with_reasons() -> None:
    with pytest.raises(StackError, match="also revise"):
        choose_form(Revising)
    with pytest.raises(StackError, match="not a LossAlgorithm"):
        choose_form(Algorithm)


@register(
    "Keeping",
    hyperparameters=(
        Hyperparameter("heat", 1.0, "temperature", above=0),
        Hyperparameter("form", "all", "which labels", one_of=("all", "most")),
    ),
)
class Keeping(LossAlgorithm):
    """Keeps a hyperparameter as an attribute, and reads a word in its loss."""

    def setup(self, candidates: Tensor) -> None:
        self.heat = self.hparams["heat"]

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return loss_of(logits / self.heat, batch) * (2 if self.hparams.get("form") == "most" else 1)


def test_attributes_and_words_that_differ_are_not_mapped() -> None:
    """With as many runs as classes a tensor of all runs would fit where the number of one run stands."""
    entry = third_party_entry("Keeping", Keeping, "tests:Keeping")
    count = start(entry, 0).algorithm.num_classes
    for name, values in (("heat", [1.0 + run for run in range(count)]), ("form", ["most", *["all"] * 9])):
        runs = [start(entry, run, **{name: values[run]}) for run in range(count)]
        members: list[Any] = [run.algorithm for run in runs]
        with pytest.raises(StackError, match=f"differ in {name}"):
            stack_runs(members, [run.streams for run in runs])
    compare(entry, [{"heat": 2.0, "form": "most", "lr": 10.0 ** (-2 - run)} for run in range(count)])


@register("Slowing", stacked=True)
class Slowing(LossAlgorithm):
    """Changes the rates of its optimiser as it goes."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return -(batch.candidates * logits.log_softmax(-1)).sum(-1).mean(-1)

    def revise(self, outputs: Any, batch: Batch) -> None:
        for run in self.runs_due(lambda run: run.steps_done % 2 == 1):
            group = run.optimizer.param_groups[0]
            group["lr"] *= 0.5
            group["weight_decay"] += 0.01


@register("Leafy", stacked=True)
class Leafy(LossAlgorithm):
    """A loss that is another, by little, where the network's pass is written by hand."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        loss = -(batch.candidates * logits.log_softmax(-1)).sum(-1).mean(-1)
        return loss + 1e-4 * logits.square().mean((-1, -2)) if logits.is_leaf else loss


def stacked_loss(logits: Tensor, batch: Batch) -> Tensor:
    return -(batch.candidates * logits.log_softmax(-1)).sum(-1).mean(-1)


@register("Numbering", stacked=True)
class Numbering(LossAlgorithm):
    """Counts its steps in an attribute, and keeps another from its first one."""

    def setup(self, candidates: Tensor) -> None:
        self.calls = 0

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return stacked_loss(logits / (1 + self.calls), batch)

    def revise(self, outputs: Any, batch: Batch) -> None:
        self.calls += 1
        self.begun = True


@register("Warming", stacked=True, hyperparameters=(HEAT,))
class Warming(LossAlgorithm):
    """Changes an attribute in which runs differ."""

    def setup(self, candidates: Tensor) -> None:
        self.heat = self.hparams["heat"]

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return stacked_loss(logits, batch) * self.heat

    def revise(self, outputs: Any, batch: Batch) -> None:
        self.heat *= 1.5


@register("Remembering", stacked=True)
class Remembering(Warming):
    """Keeps a tensor of its last step."""

    def setup(self, candidates: Tensor) -> None:
        self.heat = 1.0

    def revise(self, outputs: Any, batch: Batch) -> None:
        self.last = outputs.mean((-1, -2))


@register("Tuning", stacked=True, hyperparameters=(HEAT,))
class Tuning(Warming):
    """Changes a hyperparameter."""

    def revise(self, outputs: Any, batch: Batch) -> None:
        self.hparams["heat"] = self.hparams["heat"] * 1.5


@register("Dropping", stacked=True)
class Dropping(Remembering):
    """Removes an attribute."""

    def revise(self, outputs: Any, batch: Batch) -> None:
        vars(self).pop("spare", None)


@register("Each", stacked=True)
class Each(LossAlgorithm):
    """Says that each run counts for itself, and does not let it."""

    per_run_state = ("seen",)
    seen: int

    def setup(self, candidates: Tensor) -> None:
        self.seen = 0

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return stacked_loss(logits, batch)

    def revise(self, outputs: Any, batch: Batch) -> None:
        if not hasattr(self, "members"):
            self.seen += 1


def test_attributes_that_a_stack_changes_are_handed_out() -> None:
    """A run that is saved, or stacked anew, has them as it has them alone."""
    entry = third_party_entry("Numbering", Numbering, "tests:Numbering")
    alone, members = ([start(entry, seed) for seed in range(2)] for _ in range(2))
    for _ in range(2):
        together = stack_runs([run.algorithm for run in members], [run.streams for run in members])
        batches = StackedBatches([run.training_set for run in members])
        for _ in range(6):
            together.update(batches.next())
        together.sync_members()
    for one, other in zip(alone, members, strict=True):
        for _ in range(12):
            one.algorithm.update(one.training_set.next_batch())
        assert vars(other.algorithm)["calls"] == 12
        assert vars(other.algorithm)["begun"] is True
        found = other.algorithm.state_dict()
        for name, value in one.algorithm.state_dict().items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
    assert run_check(CHECK, AlgorithmUnderTest(entry)).status == "passed"


@pytest.mark.parametrize(
    ("cls", "name"),
    [(Warming, "heat"), (Remembering, "last"), (Tuning, "hparams['heat']"), (Dropping, "spare")],
)
def test_a_changed_attribute_that_cannot_be_handed_out_is_refused(cls: type[Any], name: str) -> None:
    entry = third_party_entry(cls.__name__, cls, f"tests:{cls.__name__}")
    runs = [start(entry, seed, **({"heat": 2.0 + seed} if "heat" in name else {})) for seed in range(2)]
    members: list[Any] = [run.algorithm for run in runs]
    for member in members:
        member.spare = 1
    together = stack_runs(members, [run.streams for run in runs])
    together.sync_members()
    together.update(StackedBatches([run.training_set for run in runs]).next())
    with pytest.raises(StackError, match=re.escape(f"its {name} changes but is not a buffer")):
        together.sync_members()


def test_the_contract_tells_of_attributes() -> None:
    outcome = run_check(
        CHECK, AlgorithmUnderTest(third_party_entry("Remembering", Remembering, "tests:Remembering"))
    )
    assert outcome.status == "advice"
    assert outcome.detail.startswith("its runs are not stacked, though it says stacked=True: its last")
    outcome = run_check(CHECK, AlgorithmUnderTest(third_party_entry("Each", Each, "tests:Each")))
    assert outcome.status == "advice"
    assert "updates Each.seen of a stacked run is not that of the run alone" in outcome.detail


def test_rates_that_a_method_changes_are_kept() -> None:
    entry = third_party_entry("Slowing", Slowing, "tests:Slowing")
    compare(entry, [{"lr": 1e-2}, {"lr": 1e-3}])
    plain, by_hand = start(entry, 0, lr=1e-2), start(entry, 0, lr=1e-2)
    step = find_step(by_hand.algorithm)
    assert step is not None
    for _ in range(12):
        plain.algorithm.update(plain.training_set.next_batch())
        step.update(by_hand.training_set.next_batch())
    assert plain.algorithm.optimizer.param_groups[0]["lr"] == pytest.approx(1e-2 * 0.5**6)
    found = by_hand.algorithm.state_dict()
    assert all(torch.equal(found[name], value) for name, value in plain.algorithm.state_dict().items())
    assert run_check(CHECK, AlgorithmUnderTest(entry)).status == "passed"


def test_the_contract_compares_the_step_written_by_hand() -> None:
    outcome = run_check(CHECK, AlgorithmUnderTest(third_party_entry("Leafy", Leafy, "tests:Leafy")))
    assert outcome.status == "advice"
    assert "written by hand" in outcome.detail
