"""Several runs of one algorithm as a stack: weights, state and batches with a leading axis of runs.

Each run is built, and restored, as it is alone; then its weights and state become slices of the stack, so
that whatever saves, evaluates or describes a single run sees its own. The losses and revisions are the
algorithm's own, on (R, B, K).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from plench.algorithms.base import Algorithm, LossAlgorithm
from plench.algorithms.registry import own_card
from plench.batch import Batch
from plench.training.checkpoint import MODULE_INTERNALS
from plench.training.data import TrainingSet
from plench.training.evaluate import choose_chunk
from plench.training.inputs import Stored, TableInputs, TabularInputs
from plench.training.run import TrainingRun
from plench.training.step import FusedAdam, HandwrittenMLP, is_plain_adam, layers_of
from plench.training.streams import Streams

# Attributes of an algorithm that a stack deals with itself.
KNOWN = ("hparams", "num_data", "num_classes", "per_example_names", "steps_done")
# Those that it has beside these.
OF_STACK = ("members", "streams", "adam", "offsets", "synced")


class StackError(Exception):
    """Runs that cannot be trained as one; the text says why."""


class StackedLinear(nn.Module):
    """A linear layer of each run, on (…, R, B, inputs); autograd sees the stacked weights."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.used = False

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs (…, R, B, outputs)."""
        self.used = self.used or torch.is_grad_enabled()
        return inputs @ self.weight.mT + self.bias[:, None]


class StackedFeaturizer(nn.Module):
    """The featurizer of each run."""

    def __init__(self, hidden: StackedLinear) -> None:
        super().__init__()
        self.hidden = hidden

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (R, B, H)."""
        features: Tensor = self.hidden(inputs).relu()
        return features


class StackedNetwork(nn.Sequential):
    """The MLPs of R runs as one network; the weights of each become a slice of its own.

    A pass with gradient through the whole is written by hand, one a step; its two parts can be called by
    themselves, which autograd follows.
    """

    def __init__(self, networks: Sequence[nn.Sequential]) -> None:
        own = [list(network.parameters()) for network in networks]
        stacked = [torch.stack([weight.detach() for weight in weights]) for weights in zip(*own, strict=True)]
        for run, weights in enumerate(own):
            for weight, place in zip(weights, stacked, strict=True):
                weight.data = place[run]
        hidden = StackedLinear(stacked[0], stacked[1])
        classifier = StackedLinear(stacked[2], stacked[3])
        super().__init__(StackedFeaturizer(hidden), classifier)
        self.layers: tuple[StackedLinear, ...] = (hidden, classifier)
        self.by_hand = HandwrittenMLP(stacked)
        self.logits: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits (R, B, K) of inputs (R, B, D)."""
        if not torch.is_grad_enabled():
            return self.by_hand.predict(inputs)
        if self.logits is not None:
            raise StackError("a step passes its network twice with gradient")
        self.logits = self.by_hand.forward(inputs).requires_grad_()
        return self.logits

    def leaves(self) -> list[Tensor]:
        """Return what the gradient of a step is wanted at: logits made by hand, or the stacked weights."""
        made = [] if self.logits is None else [self.logits]
        return made + (list(self.parameters()) if any(layer.used for layer in self.layers) else [])

    def receive(self, gradients: Sequence[Tensor | None]) -> None:
        """Take the gradients at the leaves, and make those of the weights of them."""
        gradients = list(gradients)
        if self.logits is not None:
            gradient = gradients.pop(0)
            assert gradient is not None
            self.by_hand.backward(gradient)
            if any(given is not None for given in gradients):
                raise StackError("a step passes its network and parts of it, both with gradient")
        else:
            for place, gradient in zip(self.by_hand.gradients, gradients, strict=True):
                if gradient is None:
                    raise StackError("a step leaves a part of its network without gradient")
                place.copy_(gradient)
        self.logits = None
        for layer in self.layers:
            layer.used = False


class StackedRuns(LossAlgorithm):
    """What a stack does in another way than a single run; it stands before the algorithm's own class."""

    # Whether the method is written for numbers that differ between runs as tensors (R,).
    takes_tensors: ClassVar[bool] = True

    members: list[LossAlgorithm]
    streams: list[Streams]
    adam: FusedAdam
    offsets: Tensor
    synced: dict[str, Any]

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Return each run's rows `index` (R, B) of the per-example state `name`."""
        state = self.get_buffer(name).flatten(0, 1)
        rows: Tensor = state.index_select(0, self.flat(index)).unflatten(0, index.shape)
        return rows

    def write_rows(self, name: str, index: Tensor, rows: Tensor) -> None:
        """Replace each run's rows `index` (R, B), in place."""
        state = self.get_buffer(name).flatten(0, 1)
        state.index_copy_(0, self.flat(index), rows.to(state.dtype).flatten(0, 1))

    def flat(self, index: Tensor) -> Tensor:
        """Return indices (R, B) into each run's rows as indices (R·B,) into the rows of all."""
        return (index + self.offsets).flatten()

    def runs_due(self, due: Callable[[Any], bool]) -> Iterator[Any]:
        """Yield the members that something is due for, each while the global generators are its own."""
        for member, streams in zip(self.members, self.streams, strict=True):
            member.steps_done = self.steps_done
            if due(member):
                with streams.ambient("algorithm"):
                    yield member

    def descend(self, loss: Tensor) -> None:
        """Take a step of every run on its own loss (R,)."""
        if loss.shape != (len(self.members),):
            raise StackError(f"the loss of {len(self.members)} runs has the shape {tuple(loss.shape)}")
        networks = [module for module in self.children() if isinstance(module, StackedNetwork)]
        leaves = [network.leaves() for network in networks]
        wanted = [leaf for own in leaves for leaf in own]
        gradients = iter(torch.autograd.grad(loss.sum(), wanted, allow_unused=True))
        for network, own in zip(networks, leaves, strict=True):
            network.receive([next(gradients) for _ in own])
        self.adam.step()

    def more_to_log(self) -> Mapping[str, Tensor | float]:
        """Return further numbers (R,) to log; those that each run keeps for itself are asked of it."""
        if not self.per_run_state:
            return super().more_to_log()
        rows = [member.more_to_log() for member in self.members]
        return {
            name: torch.tensor([float(row[name]) for row in rows], dtype=torch.float64) for name in rows[0]
        }

    def sync_members(self) -> None:
        """Let every member have its slice of the state as it is now, the time, and changed attributes.

        A plain value that is the same for all runs is every run's. What else has changed and is no buffer
        cannot be given back, so that a run which is saved or stacked anew would have the old value.
        """
        now = self.list_attributes()
        for name in list_changed(self.synced, now):
            if name not in vars(self) or not is_plain_value(vars(self)[name]):
                raise StackError(f"its {name} changes, and is no buffer that each run could have a slice of")
            for member in self.members:
                setattr(member, name, vars(self)[name])
        self.synced = now
        for run, member in enumerate(self.members):
            member.steps_done = self.steps_done
            for name, state in self._buffers.items():
                assert state is not None
                member._buffers[name] = state[run]

    def list_attributes(self) -> dict[str, Any]:
        """Return the method's own attributes and its hyperparameters, tensors as the numbers they hold."""
        known = {*MODULE_INTERNALS, *KNOWN, *OF_STACK}
        own = {name: value for name, value in vars(self).items() if name not in known}
        own |= {f"hparams[{name!r}]": value for name, value in self.hparams.items()}
        return {
            name: tuple(value.flatten().tolist()) if isinstance(value, Tensor) else value
            for name, value in own.items()
        }


def stack_runs(runs: Sequence[Algorithm], streams: Sequence[Streams]) -> StackedRuns:
    """Return one algorithm that stands for several runs at the same step; StackError where that cannot be."""
    members = [run for run in runs if isinstance(run, LossAlgorithm)]
    together = object.__new__(stacked_class(type(runs[0])))
    first = members[0]
    assert isinstance(together, StackedRuns)
    vars(together).update({name: value for name, value in vars(first).items() if name in MODULE_INTERNALS})
    for name in ("_parameters", "_buffers", "_modules"):
        vars(together)[name] = {}
    together.members, together.streams = list(members), list(streams)
    together.hparams, together.synced = {}, {}
    together.per_example_names = list(first.per_example_names)
    together.num_data, together.num_classes = first.num_data, first.num_classes
    together.steps_done = first.steps_done
    if any(member.steps_done != first.steps_done for member in members):
        raise StackError("they are not at the same step")
    stack_networks(together)
    stack_buffers(together)
    device = next(first.parameters()).device
    together.offsets = torch.arange(len(members), device=device)[:, None] * first.num_data
    together.hparams = merge_hparams(together, device)
    merge_attributes(together, device)
    together.join(together.members)
    together.synced = together.list_attributes()
    return together


def choose_form(cls: type[Algorithm]) -> str:
    """Return how runs of a class are trained as one: `stacked` or `mapped`; StackError if they are not.

    Stacked are methods that say that they are written for it; the loss of others is mapped over runs if it
    is all that they have of their own.
    """
    card = own_card(cls)
    if card is not None and card.stacked:
        return "stacked"
    obstacle = (card and card.not_stackable) or find_obstacle(cls)
    if obstacle:
        raise StackError(obstacle)
    return "mapped"


def stacked_class(cls: type[Algorithm]) -> type[Algorithm]:
    """Return the class of stacks of an algorithm."""
    base = StackedRuns if choose_form(cls) == "stacked" else MappedRuns
    return type(f"Stacked{cls.__name__}", (base, cls), {})


def stack_networks(together: StackedRuns) -> None:
    """Put a stacked network in the place of each, and find the optimisers that belong to them."""
    members = together.members
    names = list(members[0]._modules)
    if any(layers_of(member._modules[name]) is None for member in members for name in names):
        raise StackError("one of its networks is not the benchmark's MLP")
    if any(member._parameters for member in members):
        raise StackError("it has parameters beside its networks")
    optimizers: list[torch.optim.Adam] = []
    gradients: list[list[Tensor]] = []
    for name in names:
        networks = [getattr(member, name) for member in members]
        shapes = {tuple(weight.shape for weight in network.parameters()) for network in networks}
        if len(shapes) > 1:
            raise StackError("their networks are of different sizes")
        own = [find_optimizer(member, network) for member, network in zip(members, networks, strict=True)]
        stacked = StackedNetwork(networks)
        setattr(together, name, stacked)
        optimizers += own
        gradients += [list(of_run) for of_run in zip(*stacked.by_hand.gradients, strict=True)]
    together.adam = FusedAdam(optimizers, gradients)


def find_optimizer(member: LossAlgorithm, network: nn.Module) -> torch.optim.Adam:
    """Return the Adam of a run's network."""
    parameters = list(network.parameters())
    for value in vars(member).values():
        if is_plain_adam(value, parameters):
            assert isinstance(value, torch.optim.Adam)
            return value
    raise StackError("a network has no Adam of its own")


def stack_buffers(together: StackedRuns) -> None:
    """Stack the state of the runs; each has its slice."""
    for name in together.members[0]._buffers:
        own = [member._buffers.get(name) for member in together.members]
        there = [state for state in own if state is not None]
        if len(there) < len(own):
            raise StackError(f"its {name} is None")
        if len({(state.shape, state.dtype) for state in there}) > 1:
            raise StackError(f"their {name} differ in shape")
        together.register_buffer(name, torch.stack(there))
    together.sync_members()


def merge_hparams(together: StackedRuns, device: torch.device) -> dict[str, Any]:
    """Return the runs' hyperparameters: numbers that differ as tensors (R,).

    Words that differ are left out: what they decide is in the state, and nothing may read them. A method
    that is not written for stacks may do so, and is refused.
    """
    members = together.members
    merged = {}
    for name, value in members[0].hparams.items():
        values = [member.hparams[name] for member in members]
        if all(other == value for other in values):
            merged[name] = value
        elif name in together.must_match:
            raise StackError(f"they differ in {name}")
        elif all(isinstance(other, float | int) for other in values):
            merged[name] = tensor_of(values, members[0], device)
        elif not together.takes_tensors:
            raise StackError(f"they differ in {name}")
    return merged


def tensor_of(values: Sequence[Any], member: LossAlgorithm, device: torch.device) -> Tensor:
    """Return numbers of the runs as a tensor (R,): whole ones as such, others in the type of the weights."""
    whole = all(isinstance(value, int) for value in values)
    dtype = torch.int64 if whole else next(member.parameters()).dtype
    return torch.tensor(values, dtype=dtype, device=device)


def is_plain_value(value: object) -> bool:
    """Say whether an attribute cannot change but by being replaced."""
    if isinstance(value, tuple):
        return all(is_plain_value(part) for part in value)
    return value is None or type(value) in (bool, int, float, str)


def list_changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Name what was added, removed or replaced by another; equal plain values are the same."""
    return [
        name
        for name in {**before, **now}
        if name not in before or name not in now or not is_same(before[name], now[name])
    ]


def is_same(one: object, other: object) -> bool:
    """Say whether two values are one, or plain and equal."""
    return one is other or (is_plain_value(one) and is_plain_value(other) and one == other)


def merge_attributes(together: StackedRuns, device: torch.device) -> None:
    """Take over plain attributes: equal ones as they are, numbers that differ as tensors (R,).

    Of a mapped loss only hyperparameters and state are mapped, so that its attributes must be equal.
    """
    members = together.members
    for name, value in vars(members[0]).items():
        if name in MODULE_INTERNALS or name in KNOWN or name in together.per_run_state:
            continue
        if isinstance(value, torch.optim.Optimizer):
            continue
        values = [vars(member).get(name) for member in members]
        if not is_plain_value(value) or not all(type(other) is type(value) for other in values):
            raise StackError(f"its attribute {name} cannot be stacked")
        if all(other == value for other in values):
            setattr(together, name, value)
        elif type(value) in (int, float) and together.takes_tensors:
            setattr(together, name, tensor_of(values, members[0], device))
        else:
            raise StackError(f"they differ in {name}")


# What a method whose loss is mapped leaves to the base class.
LEFT = (
    "update",
    "passes",
    "descend",
    "revise",
    "more_to_log",
    "rows",
    "write_rows",
    "predict",
    "build_networks",
    "build_optimizers",
    "runs_due",
    "attach_inputs",
)


def find_obstacle(cls: type[Algorithm]) -> str | None:
    """Say why the loss of a class cannot be mapped over runs; None if it can be tried."""
    if not issubclass(cls, LossAlgorithm):
        return "it is no LossAlgorithm, so that only it knows the order of its step"
    own = [name for name in LEFT if getattr(cls, name) is not getattr(LossAlgorithm, name)]
    if own:
        return f"beside its loss it has its own {', '.join(own)}"
    return None


def read_generators() -> tuple[object, ...]:
    """Return the positions of the global generators of Python and numpy; torch's is refused by vmap."""
    state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - the global one is meant
    return random.getstate(), state["key"].tobytes(), state["pos"]


class MappedRuns(StackedRuns):
    """A stack whose loss is written for one run and mapped over all of them by `vmap`."""

    takes_tensors: ClassVar[bool] = False

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Return rows of the state of the run that is being mapped."""
        return Algorithm.rows(self, name, index)

    def write_rows(self, name: str, index: Tensor, rows: Tensor) -> None:
        """Refuse: a loss that changes state cannot be mapped."""
        raise StackError("its loss writes state")

    def losses(self, outputs: Tensor, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return the losses (R,) of all runs."""
        size = len(self.members)
        many = {name: value for name, value in self.hparams.items() if isinstance(value, Tensor)}
        state = {name: value for name, value in self._buffers.items() if value is not None}
        views = batch._views
        inputs = next(iter(views.values()))
        weights = 0 if batch.weights is not None else None
        before = read_generators()
        held = dict(vars(self))

        def of_one(
            logits: Tensor,
            index: Tensor,
            candidates: Tensor,
            own_inputs: Tensor,
            own_weights: Tensor | None,
            own_hparams: dict[str, Tensor],
            own_state: dict[str, Tensor],
        ) -> dict[str, Tensor]:
            given = Batch(index, candidates, dict.fromkeys(views, own_inputs), None, own_weights)
            return self.lose(logits, given, own_hparams, own_state)

        losses = torch.func.vmap(of_one, in_dims=(0, 0, 0, 0, weights, 0, 0))(
            outputs, batch.index, batch.candidates, inputs, batch.weights, many, state
        )
        if before != read_generators():
            raise StackError("its loss draws random numbers")
        if list_changed(held, vars(self)):
            raise StackError("its loss changes attributes")
        return {name: value.expand(size) if value.dim() == 0 else value for name, value in losses.items()}

    def lose(
        self, logits: Tensor, batch: Batch, hparams: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the losses of one run, with its hyperparameters and state in their places.

        The network is out of reach meanwhile: a loss that looks at weights would see those of all runs.
        """
        outside, buffers, modules = self.hparams, dict(self._buffers), dict(self._modules)
        given = {**outside, **hparams}
        self.hparams = dict(given)
        self._buffers.update(state)
        self._modules.clear()
        try:
            losses = super().losses(logits, batch)
            if self._modules or self._parameters or list_changed(state, self._buffers):
                raise StackError("its loss replaces or adds state")
            if list_changed(given, self.hparams):
                raise StackError("its loss changes hyperparameters")
            return {name: torch.as_tensor(value) for name, value in losses.items()}
        finally:
            self.hparams = outside
            self._buffers.clear()
            self._buffers.update(buffers)
            self._modules.clear()
            self._modules.update(modules)


class StackedBatches:
    """Hands out the next batch of every run; each run's place in its data moves on as if it were alone."""

    def __init__(self, sets: Sequence[TrainingSet]) -> None:
        check_sets(sets)
        first = sets[0]
        self.orders = [each.order for each in sets]
        self.views = first.views
        # Runs on one split share its rows.
        splits = {id(each.stored): each for each in sets}
        places = {key: place for place, key in enumerate(splits)}
        starts = [places[id(each.stored)] * len(first) for each in sets]
        device = first.candidates.device
        self.offsets = torch.tensor(starts, device=device)[:, None]
        self.inputs = join([as_tensor(each) for each in splits.values()])
        self.candidates = join([each.candidates for each in splits.values()])
        weights = [each.weights for each in splits.values() if each.weights is not None]
        self.weights = join(weights) if weights else None
        self.shape = (len(sets), first.order.batch_size)
        self.room = self.inputs.new_empty(self.shape[0] * self.shape[1], self.inputs.shape[1])

    def next(self) -> Batch:
        """Return the next batch: `index` (R, B), candidates (R, B, K), inputs (R, B, D) as every view."""
        index = torch.stack([order.next() for order in self.orders])
        flat = (index + self.offsets).flatten()
        torch.index_select(self.inputs, 0, flat, out=self.room)
        inputs = self.room.unflatten(0, self.shape)
        weights = None if self.weights is None else self.take(self.weights, flat)
        return Batch(
            index, self.take(self.candidates, flat), dict.fromkeys(self.views, inputs), None, weights
        )

    def take(self, rows: Tensor, flat: Tensor) -> Tensor:
        """Return rows of all runs (R, B, …)."""
        taken: Tensor = rows.index_select(0, flat).unflatten(0, self.shape)
        return taken


def check_sets(sets: Sequence[TrainingSet]) -> None:
    """Raise StackError for training sets whose batches cannot be gathered together."""
    for each in sets:
        if not isinstance(each.inputs, TabularInputs | TableInputs) or not isinstance(each.stored, Tensor):
            raise StackError("their inputs are not a table in memory")
        if each.second_order is not None:
            raise StackError("its steps take a second batch")
    if len({(len(each), each.order.batch_size, each.views, each.weights is None) for each in sets}) > 1:
        raise StackError("their training splits or batches differ in size")


def as_tensor(training_set: TrainingSet) -> Tensor:
    """Return the stored inputs of a set that has been checked."""
    assert isinstance(training_set.stored, Tensor)
    return training_set.stored


def join(parts: Sequence[Tensor]) -> Tensor:
    """Return parts as one tensor; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


class StackedStep:
    """The updates and predictions of several runs as a stack."""

    def __init__(self, runs: Sequence[TrainingRun]) -> None:
        self.stack = stack_runs([run.algorithm for run in runs], [run.streams for run in runs])
        self.batches = StackedBatches([run.training_set for run in runs])
        self.data = [run.data for run in runs]

    def ambient(self) -> AbstractContextManager[None]:
        """Return a block that does nothing: each run's generators are set where it draws."""
        return nullcontext()

    def update(self) -> Mapping[str, Tensor | float]:
        """Make the next update of every run; what is logged has the shape (R,)."""
        return self.stack.update(self.batches.next())

    def sync(self) -> None:
        """Give every run its part of the stack."""
        self.stack.sync_members()

    def predict(self, after_batch: Callable[[int], None]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the logits of the validation and the test set of each run."""
        validation = self.predict_part([data.validation.stored for data in self.data], after_batch)
        test = self.predict_part([data.test.stored for data in self.data], after_batch)
        return list(zip(validation, test, strict=True))

    def predict_part(self, stored: Sequence[Stored], after_batch: Callable[[int], None]) -> list[np.ndarray]:
        """Return the logits (n, K) of each run on its own examples, all runs in one pass."""
        tensors = [rows for rows in stored if isinstance(rows, Tensor)]
        sizes = {len(rows) for rows in stored}
        if len(sizes) > 1 or len(tensors) < len(stored):
            raise StackError("their evaluation sets differ in size")
        (size,) = sizes
        if size == 0:  # the runs leave this part out
            return [np.empty((0, self.stack.num_classes))] * len(tensors)
        shared = all(rows is tensors[0] for rows in tensors)
        chunk = max(1, choose_chunk(tensors[0]) // len(tensors))
        parts = []
        with torch.no_grad():
            for start in range(0, size, chunk):
                rows = [each[start : start + chunk] for each in (tensors[:1] if shared else tensors)]
                inputs = rows[0].expand(len(tensors), *rows[0].shape) if shared else torch.stack(rows)
                parts.append(self.stack.predict(inputs))
                after_batch(len(rows[0]))
            return list(torch.cat(parts, 1).cpu().double().numpy())
