"""The contract of an algorithm, and the base class that ours are written in.

`Algorithm` is the contract of the paper: built from `(input_shape, train_givenY, hparams)`, it has
`update(minibatches)` and `predict(x)`. `LossAlgorithm` adds network, Adam, step counter and the order of a
step: a method then says how it is set up, what its losses are, and what it revises after a step.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from plench.errors import PlenchError, UsageError
from plench.hparams import Hyperparameter
from plench.networks import Classifier, Featurizer
from plench.text import short_repr

VIEWS = ("original", "weak", "strong", "distill")
FAMILIES = ("vanilla PLL", "vanilla CLL", "holistic PLL", "noisy PLL", "classical", "third party")


class Batch:
    """The examples of one step: `index` (B,) into the training split, `candidates` (B, K) bool, and views.

    `weights` (B, K) are those of the candidates, None where all of a set count the same.

    The views an algorithm declares are attributes (`batch.weak`, …). A batch unpacks into the paper's six:
    original, weak and strong view (None where not declared), candidates as floats, None in place of the
    public benchmark's true labels, and index. `second` is the second, independent batch of an algorithm that
    declares one.
    """

    __slots__ = ("_views", "candidates", "index", "second", "weights")

    def __init__(
        self,
        index: Tensor,
        candidates: Tensor,
        views: Mapping[str, Tensor],
        second: Batch | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self.index = index
        self.candidates = candidates
        self.second = second
        self.weights = weights
        self._views = views

    def view(self, name: str) -> Tensor:
        """Return a view by name."""
        try:
            return self._views[name]
        except KeyError:
            declared = ", ".join(self._views) or "none"
            raise AttributeError(
                f"the algorithm did not declare the view {name!r} (declared: {declared})"
            ) from None

    @property
    def original(self) -> Tensor:
        """The inputs as they are."""
        return self.view("original")

    @property
    def weak(self) -> Tensor:
        """The weakly augmented inputs."""
        return self.view("weak")

    @property
    def strong(self) -> Tensor:
        """The strongly augmented inputs."""
        return self.view("strong")

    @property
    def distill(self) -> Tensor:
        """The inputs augmented for distillation."""
        return self.view("distill")

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Tensor | None]:
        views = self._views
        yield views.get("original")
        yield views.get("weak")
        yield views.get("strong")
        yield self.candidates.float()
        yield None
        yield self.index


@dataclass(frozen=True)
class AlgorithmCard:
    """What is known of an algorithm without running it. Lists, pages, records and reports read it.

    `idea` and `objective` are paragraphs of the class's docstring: the first one, and "Objective: …".
    `public_fault` is a fault of the public benchmark's code that the paper's published figures of the method
    carry, on the datasets `public_fault_on` (none named: on all). It is not part of records.

    `shared` says that it has the hyperparameters of networks (lr, weight_decay, batch_size, model); a method
    without them is fitted in rounds. `answers` says that it learns from annotators' answers,
    `annotators` that it must know whose they are.

    `stacked` says that its runs can be stacked (docs/internals.md, Stacks), `not_stackable` why they
    cannot. For a card that says neither, the class itself decides.
    """

    name: str
    family: str
    venue: str = ""
    bibtex: str = ""
    views: tuple[str, ...] = ("weak",)
    second_batch: bool = False
    passes: str = "1"
    state: str = "none"
    hyperparameters: tuple[Hyperparameter, ...] = ()
    aliases: tuple[str, ...] = ()
    logs: Mapping[str, str] | None = None
    idea: str = ""
    objective: str = ""
    public_fault: str = ""
    public_fault_on: tuple[str, ...] = ()
    shared: bool = True
    answers: bool = False
    annotators: bool = False
    stacked: bool = False
    not_stackable: str = ""


AnyAlgorithm = TypeVar("AnyAlgorithm", bound="type[Algorithm]")


def register(
    name: str,
    *,
    family: str = "third party",
    venue: str = "",
    cite: str = "",
    bibtex: str = "",
    views: Sequence[str] = ("weak",),
    second_batch: bool = False,
    passes: str = "1",
    state: str = "none",
    hyperparameters: Sequence[Hyperparameter] = (),
    aliases: Sequence[str] = (),
    logs: Mapping[str, str] | None = None,
    public_fault: str = "",
    public_fault_on: Sequence[str] = (),
    answers: bool = False,
    annotators: bool = False,
    stacked: bool = False,
    not_stackable: str = "",
) -> Callable[[AnyAlgorithm], AnyAlgorithm]:
    """Attach a card to an algorithm class; the registry finds classes with a card automatically.

    `cite` is the key of its paper in references.bib; a third party gives the entry itself as `bibtex`.
    `views` are the views its batches carry, `second_batch` asks for a second, independent batch per step,
    `passes` and `state` say in words what a step costs and keeps, `aliases` are other names, used with a
    warning, `logs` explains the numbers that `update` returns in addition to the loss, `answers` asks for
    those of annotators, `annotators` refuses votes of which nobody knows whose they are.
    `stacked` says that losses and revisions keep to what `LossAlgorithm` asks of them, so that runs can be
    stacked; `not_stackable` says why not.
    """
    if cite and cite not in references():
        raise PlenchError(f"references.bib has no entry {cite!r}; it has {', '.join(sorted(references()))}")
    for view in views:
        if view not in VIEWS:
            raise UsageError(f"algorithm {name}: unknown view {view!r}; expected one of {', '.join(VIEWS)}")
    if family not in FAMILIES:
        raise UsageError(
            f"algorithm {name}: unknown family {family!r}; expected one of {', '.join(FAMILIES)}"
        )

    def attach(cls: AnyAlgorithm) -> AnyAlgorithm:
        paragraphs = [" ".join(text.split()) for text in (cls.__doc__ or "").split("\n\n")]
        objectives = (text for text in paragraphs if text.startswith("Objective:"))
        cls.card = AlgorithmCard(
            name=name,
            family=family,
            venue=venue,
            bibtex=references()[cite] if cite else bibtex.strip(),
            views=tuple(views) if cls.shared else (),
            second_batch=second_batch,
            passes=passes,
            state=state,
            hyperparameters=(*cls.base_hyperparameters, *hyperparameters),
            aliases=tuple(aliases),
            logs=logs,
            idea=paragraphs[0],
            objective=next(objectives, "").removeprefix("Objective:").strip(),
            public_fault=public_fault,
            public_fault_on=tuple(public_fault_on),
            shared=cls.shared,
            answers=answers,
            annotators=annotators,
            stacked=stacked,
            not_stackable=not_stackable,
        )
        return cls

    return attach


@cache
def references() -> dict[str, str]:
    """Return the entries of references.bib by key."""
    text = (files("plench") / "algorithms" / "references.bib").read_text(encoding="utf-8")
    entries = re.finditer(r"^@\w+\{([^,\s]+),.*?^\}", text, re.MULTILINE | re.DOTALL)
    return {entry[1]: entry[0] for entry in entries}


class TrainingInputs(Protocol):
    """All training inputs in order, without labels."""

    def __len__(self) -> int: ...

    def original(self, start: int, stop: int) -> Tensor:
        """Return the original view of the rows start … stop−1."""


class Algorithm(nn.Module):
    """The contract that the training loop relies on, as the paper shows it.

    `input_shape` is the shape (N, …) of the training features, `train_givenY` the candidate matrix (N, K) of
    the training split, `hparams` the configuration, which also holds `max_steps`. True labels never get here.
    """

    card: ClassVar[AlgorithmCard]
    transient: ClassVar[tuple[str, ...]] = ()
    # Modules that models saved for prediction leave out.
    training_only: ClassVar[tuple[str, ...]] = ()
    # Whether the hyperparameters that networks share are declared, and what else a class declares for those
    # that build on it.
    shared: ClassVar[bool] = True
    base_hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = ()
    uses_weights: ClassVar[bool] = False

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.hparams = dict(hparams)
        self.num_data = int(input_shape[0])
        self.num_classes = int(train_givenY.shape[1])
        self.per_example_names: list[str] = []

    def per_example(self, name: str, values: Tensor) -> None:
        """Keep state with one row per training example as the attribute `name`.

        It is a buffer: it moves with the module and is in the checkpoint and in the memory figure. Models
        saved for prediction leave it out.
        """
        if values.shape[0] != self.num_data:
            raise ValueError(f"per-example state needs {self.num_data} rows, not {values.shape[0]}")
        self.register_buffer(name, values)
        self.per_example_names.append(name)

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Return the rows `index` (B,) of the per-example state `name`."""
        state: Tensor = getattr(self, name)
        return state.index_select(0, index)

    def write_rows(self, name: str, index: Tensor, rows: Tensor) -> None:
        """Replace the rows `index` (B,), all different, of the per-example state `name`, in place."""
        state: Tensor = getattr(self, name)
        state.index_copy_(0, index, rows.to(state.dtype))

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch; return what to log, with the key `loss` among it."""
        raise NotImplementedError(f"{type(self).__name__} has no update(minibatches)")

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K) for network inputs x."""
        raise NotImplementedError(f"{type(self).__name__} has no predict(x)")

    @classmethod
    def choose_views(cls, declared: tuple[str, ...], hparams: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the declared views that a run with these hyperparameters needs: all, unless overridden."""
        return declared

    def weigh_candidates(self, weights: Tensor) -> None:
        """Receive the weights (N, K) of the candidates, right after `__init__`, where the data has any.

        They are positive on the candidates, 0 elsewhere, and sum to 1; batches carry them as well
        (`batch.weights`). A class that uses them says so with `uses_weights = True`.
        """

    def attach_inputs(self, inputs: TrainingInputs) -> None:
        """Receive access to the training inputs, before the first update of a new or resumed run.

        Only for a method that needs a pass over all of them. Keep it under an attribute named in the class's
        `transient`, which checkpoints leave out.
        """

    def attach_answers(self, answers: Any) -> None:
        """Receive the annotators' answers to the training examples, if the card asks for them.

        They have `item` and `annotator` (M,), `sets` (M, K) of the classes named, and `n_items`.
        """

    def phases(self) -> Mapping[str, int]:
        """Return, by name, the update at which each later phase of the schedule starts (for warnings)."""
        return {}


class LossAlgorithm(Algorithm):
    """Network, Adam, step counter and order of a step; a subclass defines the loss.

    A step is: `passes`, `losses`, backward, Adam, then `revise` with the outputs of the same passes.
    A method with one network and one loss defines only `loss` and, if it keeps targets, `setup` and
    `revise`. `steps_done` is t in step t, counted from 0.

    Losses and revisions act on the last axes (…, B, K). Hyperparameters are read from `self.hparams`, rows of
    per-example state by `rows` and `write_rows`, time by `steps_done`, and nowhere else: a stack of R runs
    puts tensors (R,) and its own rows in their place.

    `must_match` names the hyperparameters that all runs of a stack must share. `per_run_state` names
    attributes that change only in code which reaches each run through `runs_due`.
    """

    network: Any
    must_match: ClassVar[tuple[str, ...]] = ()
    per_run_state: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        self.steps_done = 0
        self.build_networks(input_shape)
        self.setup(torch.from_numpy(np.asarray(train_givenY) != 0))
        self.build_optimizers()

    def build_networks(self, input_shape: Sequence[int]) -> None:
        """Build `network`, from inputs to logits (B, K), and others if there are any; all are trained."""
        self.network = build_network(input_shape, self.num_classes, self.hparams)

    def setup(self, candidates: Tensor) -> None:
        """Make the state, from the candidates (N, K) of the training split."""

    def build_optimizers(self) -> None:
        """Build `optimizer`, an Adam on every parameter that requires a gradient, and others if needed.

        This comes after `build_networks` and `setup`. Freeze there what must not be trained, such as a slow
        copy of the network: `copy.deepcopy(self.network).requires_grad_(False)`.
        """
        trained = (parameter for parameter in self.parameters() if parameter.requires_grad)
        self.optimizer = build_adam(trained, self.hparams)

    def passes(self, batch: Batch) -> Any:
        """Return a tensor or several: the logits (B, K) of the weak view, unless overridden."""
        return self.network(batch.weak)

    def losses(self, outputs: Any, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return what is logged, given the outputs of `passes`: `loss`, and other numbers by name.

        The step minimises `objective` if there is one, else `loss`. By default `loss` is all there is.
        """
        return {"loss": self.loss(outputs, batch)}

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the scalar that the step minimises."""
        raise NotImplementedError(f"{type(self).__name__} has no loss(logits, batch)")

    def descend(self, loss: Tensor) -> None:
        """Take the optimiser's step on a loss."""
        descend(self.optimizer, loss)

    def revise(self, outputs: Any, batch: Batch) -> None:
        """Revise the state after the step; `outputs` are those from before it, detached."""

    def runs_due(self, due: Callable[[Self], bool]) -> Iterator[Self]:
        """Yield itself if something rare is due; a stack yields those of its runs for which it is."""
        if due(self):
            yield self

    def join(self, runs: Sequence[Any]) -> None:
        """Settle, in a stack that has just been made of runs, what is neither a tensor nor a number."""

    def more_to_log(self) -> Mapping[str, Tensor | float]:
        """Return further numbers to log, as they are after the step."""
        return {}

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch."""
        outputs = self.passes(minibatches)
        losses = self.losses(outputs, minibatches)
        if not isinstance(losses, Mapping) or "loss" not in losses:
            given = f"the keys {', '.join(losses)}" if isinstance(losses, Mapping) else short_repr(losses)
            raise TypeError(f"losses must return a mapping with the key 'loss', not {given}")
        logged = dict(losses)
        objective: Any = logged.pop("objective", logged["loss"])
        self.descend(objective)
        self.revise(detach(outputs), minibatches)
        self.steps_done += 1
        return {**{name: detach(value) for name, value in logged.items()}, **self.more_to_log()}

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K) for network inputs x."""
        logits: Tensor = self.network(x)
        return logits


def detach(outputs: Any) -> Any:
    """Return a tensor, or each of several, without its gradient; numbers and None stay as they are."""
    if isinstance(outputs, tuple):
        return tuple(detach(part) for part in outputs)
    return outputs.detach() if isinstance(outputs, Tensor) else outputs


def build_network(input_shape: Sequence[int], num_classes: int, hparams: Mapping[str, Any]) -> nn.Sequential:
    """Build the featurizer that `hparams["model"]` names, with a linear classifier on top."""
    featurizer = Featurizer(input_shape, hparams)
    return nn.Sequential(featurizer, Classifier(featurizer.n_outputs, num_classes))


def device_with_doubles(device: torch.device) -> torch.device:
    """Return the device itself, or the CPU if it has no float64 (MPS)."""
    return torch.device("cpu") if device.type == "mps" else device


class Adam(torch.optim.Adam):
    """Adam with the weight decay added to the gradient.

    torch wraps these methods to keep its compiler out of them, and imports the compiler to do so: two
    seconds of every process. Nobody compiles an optimiser here, so the methods within the wraps are taken.
    """

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


def build_adam(parameters: Iterable[nn.Parameter], hparams: Mapping[str, Any]) -> Adam:
    """Build the optimiser of a run."""
    return Adam(parameters, lr=hparams["lr"], weight_decay=hparams["weight_decay"], fused=True)


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one optimiser step on a loss. Raises TypeError if that is not one number with a gradient."""
    if not isinstance(loss, Tensor) or loss.dim() or not loss.requires_grad:
        given = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else short_repr(loss)
        given += "" if getattr(loss, "requires_grad", True) else " without gradient"
        raise TypeError(f"the loss must be one number with a gradient (a mean over the batch), not {given}")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


# Epochs by step number alone, in exact integers, so that a resumed run needs only the step counter. An epoch
# has n/B steps, which need not be a whole number.


def epoch_of(step: int, num_data: int, batch_size: int) -> int:
    """Return the epoch of a step: floor(t·B/n)."""
    return step * batch_size // num_data


def starts_epoch(step: int, num_data: int, batch_size: int) -> bool:
    """Whether the step is the first of a new epoch; step 0 is not."""
    return step >= 1 and epoch_of(step, num_data, batch_size) != epoch_of(step - 1, num_data, batch_size)


def first_step_of(epoch: int, num_data: int, batch_size: int) -> int:
    """Return the first step of an epoch: ceil(e·n/B)."""
    return -(-epoch * num_data // batch_size)
