"""Several runs of one algorithm as a stack: weights, state and batches with a leading axis of runs.

Each run is built and restored as a single run is. Then its weights and state become slices of the stack, so
whatever saves, evaluates or describes a single run sees its own. The losses and revisions are the
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
from torch.nn.functional import batch_norm

from plench.algorithms.base import Algorithm, Batch, LossAlgorithm
from plench.algorithms.parts.views import evaluating
from plench.algorithms.registry import own_card
from plench.training.checkpoint import MODULE_INTERNALS
from plench.training.data import Stored, TableInputs, TabularInputs, TrainingSet
from plench.training.environment import Streams
from plench.training.run import TrainingRun, choose_chunk
from plench.training.step import FusedAdam, HandwrittenMLP, is_plain_adam, is_plain_mlp

# Attributes of an algorithm that a stack deals with itself.
KNOWN = ("hparams", "num_data", "num_classes", "per_example_names", "steps_done")
# Those that only a stack has.
OF_STACK = ("members", "streams", "adam", "offsets", "synced")


class StackError(Exception):
    """Runs that cannot be stacked; the text says why."""


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


class StackedNorm(nn.BatchNorm1d):
    """The batch normalisation of each run, on (R, B, C): that of R·C channels, side by side."""

    def __init__(self, weight: Tensor, bias: Tensor, *statistics: Tensor) -> None:
        nn.Module.__init__(self)
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.statistics = statistics

    def forward(self, inputs: Tensor) -> Tensor:
        """Return inputs (R, B, C) normalised by the batch, in evaluation by the running statistics."""
        mean, variance, batches = self.statistics
        if self.training:
            batches.add_(1)
        normed: Tensor = batch_norm(
            inputs.transpose(0, 1).flatten(1),
            mean.flatten(),
            variance.flatten(),
            self.weight.flatten(),
            self.bias.flatten(),
            self.training,
        )
        return normed.view(-1, *mean.shape).transpose(0, 1)


class StackedNetwork(nn.Sequential):
    """The MLPs of R runs in one network; weights and statistics of each become a slice of its own.

    A pass with gradient through the whole network is written by hand, one per step. Its two parts can also be
    called separately; then autograd follows. With batch normalisation it always follows if a step may have
    several passes.
    """

    def __init__(self, networks: Sequence[nn.Sequential], one_pass: bool) -> None:
        def stack_own(kind: str) -> list[Tensor]:
            own = [list(getattr(network, kind)()) for network in networks]
            stacked = [torch.stack([each.detach() for each in tensors]) for tensors in zip(*own, strict=True)]
            for run, tensors in enumerate(own):
                for tensor, place in zip(tensors, stacked, strict=True):
                    tensor.data = place[run]
            return stacked

        stacked, statistics = stack_own("parameters"), stack_own("buffers")
        hidden, classifier = StackedLinear(*stacked[:2]), StackedLinear(*stacked[-2:])
        norm = [StackedNorm(*stacked[2:4], *statistics)] if statistics else []
        featurizer: Any = nn.Sequential(hidden, nn.ReLU(), *norm)
        super().__init__(featurizer, classifier)
        self.row_axis = featurizer.row_axis = 1
        self.layers: tuple[StackedLinear, ...] = (hidden, classifier)
        self.normalises, self.one_pass = bool(statistics), one_pass
        self.by_hand = HandwrittenMLP(stacked, statistics)
        self.logits: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits (R, B, K) of inputs (R, B, D)."""
        if self.normalises and not (self.one_pass and self.training and torch.is_grad_enabled()):
            logits: Tensor = self[1](self[0](inputs))
            return logits
        if not torch.is_grad_enabled():
            return self.by_hand.predict(inputs)
        if self.logits is not None:
            raise StackError("a step passes its network twice with gradient")
        self.logits = self.by_hand.forward(inputs).requires_grad_()
        return self.logits

    def leaves(self) -> list[Tensor]:
        """Return where a step needs its gradient: at logits made by hand, or at the stacked weights."""
        made = [] if self.logits is None else [self.logits]
        return made + (list(self.parameters()) if any(layer.used for layer in self.layers) else [])

    def receive(self, gradients: Sequence[Tensor | None]) -> None:
        """Turn the gradients at the leaves into those of the weights."""
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
    """What a stack does differently from a single run; it precedes the algorithm's own class."""

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
        """Yield the members for which something is due, each while the global generators are its own."""
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
        """Return further numbers (R,) to log; per-run state is read from each run."""
        if not self.per_run_state:
            return super().more_to_log()
        rows = [member.more_to_log() for member in self.members]
        return {
            name: torch.tensor([float(row[name]) for row in rows], dtype=torch.float64) for name in rows[0]
        }

    def sync_members(self) -> None:
        """Give every member its slice of the state, the step number and changed attributes.

        A plain value that is the same for all runs is set on each. Other changes outside of buffers cannot be
        given back: a run that is saved or stacked again would have the old value.
        """
        now = self.list_attributes()
        for name in list_changed(self.synced, now):
            if name not in vars(self) or not is_plain_value(vars(self)[name]):
                raise StackError(
                    f"its {name} changes but is not a buffer, of which each run could have a slice"
                )
            for member in self.members:
                setattr(member, name, vars(self)[name])
        self.synced = now
        for run, member in enumerate(self.members):
            member.steps_done = self.steps_done
            for name, state in self._buffers.items():
                assert state is not None
                member._buffers[name] = state[run]

    def list_attributes(self) -> dict[str, Any]:
        """Return the method's own attributes and its hyperparameters, tensors as their numbers."""
        known = {*MODULE_INTERNALS, *KNOWN, *OF_STACK}
        own = {name: value for name, value in vars(self).items() if name not in known}
        own |= {f"hparams[{name!r}]": value for name, value in self.hparams.items()}
        return {
            name: tuple(value.flatten().tolist()) if isinstance(value, Tensor) else value
            for name, value in own.items()
        }


# What a method whose loss is mapped leaves to the base class.
LEFT_TO_BASE = (
    *("update", "passes", "descend", "revise", "more_to_log", "rows", "write_rows", "predict"),
    *("build_networks", "build_optimizers", "runs_due", "attach_inputs"),
)


def choose_form(cls: type[Algorithm]) -> str:
    """Return how runs of a class are stacked: `stacked` or `mapped`. Raises StackError if they cannot be.

    Stacked are methods that say that they are written for it. The loss of others is mapped over runs if they
    define nothing else.
    """
    card = own_card(cls)
    if card is not None and card.stacked:
        return "stacked"
    if card is not None and card.not_stackable:
        raise StackError(card.not_stackable)
    if not issubclass(cls, LossAlgorithm):
        raise StackError("it is not a LossAlgorithm, so only it knows the order of its step")
    own = [name for name in LEFT_TO_BASE if getattr(cls, name) is not getattr(LossAlgorithm, name)]
    if own:
        raise StackError(f"it defines not only its loss but also {', '.join(own)}")
    return "mapped"


def stack_runs(runs: Sequence[Algorithm], streams: Sequence[Streams]) -> StackedRuns:
    """Return one algorithm that stands for several runs at the same step. Raises StackError if impossible."""
    cls = type(runs[0])
    base = StackedRuns if choose_form(cls) == "stacked" else MappedRuns
    stack: StackedRuns = object.__new__(type(f"Stacked{cls.__name__}", (base, cls), {}))
    members = [run for run in runs if isinstance(run, LossAlgorithm)]
    first = members[0]
    vars(stack).update({name: value for name, value in vars(first).items() if name in MODULE_INTERNALS})
    for name in ("_parameters", "_buffers", "_modules"):
        vars(stack)[name] = {}
    stack.members, stack.streams = members, list(streams)
    stack.hparams, stack.synced = {}, {}
    stack.per_example_names = list(first.per_example_names)
    stack.num_data, stack.num_classes = first.num_data, first.num_classes
    stack.steps_done = first.steps_done
    if any(member.steps_done != first.steps_done for member in members):
        raise StackError("they are not at the same step")
    stack_networks(stack)
    for name in first._buffers:
        states = [state for member in members if (state := member._buffers.get(name)) is not None]
        if len(states) < len(members):
            raise StackError(f"its {name} is None")
        if len({(state.shape, state.dtype) for state in states}) > 1:
            raise StackError(f"their {name} differ in shape")
        stack.register_buffer(name, torch.stack(states))
    stack.sync_members()
    device = next(first.parameters()).device
    stack.offsets = torch.arange(len(members), device=device)[:, None] * first.num_data
    merge_values(stack, device)
    stack.join(stack.members)
    stack.synced = stack.list_attributes()
    return stack


def stack_networks(stack: StackedRuns) -> None:
    """Put a stacked network in the place of each, and find the optimisers that belong to them."""
    members = stack.members
    names = list(members[0]._modules)
    on_cpu = all(parameter.device.type == "cpu" for parameter in members[0].parameters())
    one_pass = on_cpu and type(members[0]).passes is LossAlgorithm.passes
    if not all(is_plain_mlp(member._modules[name]) for member in members for name in names):
        raise StackError("one of its networks is not the benchmark's MLP")
    if any(member._parameters for member in members):
        raise StackError("it has parameters outside its networks")
    optimizers: list[torch.optim.Adam] = []
    gradients: list[list[Tensor]] = []
    for name in names:
        networks = [getattr(member, name) for member in members]
        if len({tuple(weight.shape for weight in network.parameters()) for network in networks}) > 1:
            raise StackError("their networks are of different sizes")
        for member, network in zip(members, networks, strict=True):
            parameters = list(network.parameters())
            own = [value for value in vars(member).values() if is_plain_adam(value, parameters)]
            if not own:
                raise StackError("a network has no Adam of its own")
            optimizers.append(own[0])
        stacked = StackedNetwork(networks, one_pass)
        setattr(stack, name, stacked)
        gradients += [list(of_run) for of_run in zip(*stacked.by_hand.gradients, strict=True)]
    stack.adam = FusedAdam(optimizers, gradients)


def merge_values(stack: StackedRuns, device: torch.device) -> None:
    """Set the hyperparameters and plain attributes of a stack: numbers that differ become tensors (R,).

    Words among the hyperparameters that differ are left out: what they decide is in the state, and nothing
    may read them. A method that is not written for stacks might, and is refused. Its attributes must be equal
    too, since only hyperparameters and state are mapped.
    """
    members = stack.members
    dtype = next(members[0].parameters()).dtype

    def is_equal(values: Sequence[Any]) -> bool:
        return all(other == values[0] for other in values)

    def as_tensor(values: Sequence[Any]) -> Tensor:
        whole = all(isinstance(value, int) for value in values)
        return torch.tensor(values, dtype=torch.int64 if whole else dtype, device=device)

    for name in members[0].hparams:
        values = [member.hparams[name] for member in members]
        numbers = all(isinstance(value, float | int) for value in values)
        if is_equal(values):
            stack.hparams[name] = values[0]
        elif name in stack.must_match or not (numbers or stack.takes_tensors):
            raise StackError(f"they differ in {name}")
        elif numbers:
            stack.hparams[name] = as_tensor(values)
    for name, value in vars(members[0]).items():
        known = name in MODULE_INTERNALS or name in KNOWN or name in stack.per_run_state
        if known or isinstance(value, torch.optim.Optimizer):
            continue
        values = [vars(member).get(name) for member in members]
        if not is_plain_value(value) or any(type(other) is not type(value) for other in values):
            raise StackError(f"its attribute {name} cannot be stacked")
        if not is_equal(values) and not (type(value) in (int, float) and stack.takes_tensors):
            raise StackError(f"they differ in {name}")
        setattr(stack, name, value if is_equal(values) else as_tensor(values))


def is_plain_value(value: object) -> bool:
    """Return True if an attribute can only change by being replaced."""
    if isinstance(value, tuple):
        return all(is_plain_value(part) for part in value)
    return value is None or type(value) in (bool, int, float, str)


def list_changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of what was added, removed or replaced; equal plain values count as the same."""
    kept = {
        name
        for name in before.keys() & now.keys()
        if before[name] is now[name]
        or (is_plain_value(before[name]) and is_plain_value(now[name]) and before[name] == now[name])
    }
    return [name for name in {**before, **now} if name not in kept]


class MappedRuns(StackedRuns):
    """A stack whose loss is written for one run and mapped over all of them by `vmap`.

    It is for a method that defines nothing but its loss, as third-party methods often do: state, passes and
    the order of a step are the base class's, so only the loss has to be mapped.
    """

    takes_tensors: ClassVar[bool] = False

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Return rows of the state of the run that is being mapped."""
        return Algorithm.rows(self, name, index)

    def write_rows(self, name: str, index: Tensor, rows: Tensor) -> None:
        """Raise StackError: a loss that changes state cannot be mapped."""
        raise StackError("its loss writes state")

    def losses(self, outputs: Tensor, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return the losses (R,) of all runs."""
        views = batch._views
        given: dict[str, Any] = {
            "logits": outputs,
            "index": batch.index,
            "candidates": batch.candidates,
            "inputs": next(iter(views.values())),
            **({} if batch.weights is None else {"weights": batch.weights}),
            "hparams": {name: value for name, value in self.hparams.items() if isinstance(value, Tensor)},
            "state": {name: value for name, value in self._buffers.items() if value is not None},
        }

        def lose(own: dict[str, Any]) -> dict[str, Tensor]:
            inputs = dict.fromkeys(views, own["inputs"])
            own_batch = Batch(own["index"], own["candidates"], inputs, None, own.get("weights"))
            return self.lose(own["logits"], own_batch, own["hparams"], own["state"])

        def read_generators() -> tuple[object, ...]:  # torch's is refused by vmap
            state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - the global one is meant
            return random.getstate(), state["key"].tobytes(), state["pos"]

        before, held = read_generators(), dict(vars(self))
        losses = torch.func.vmap(lose)(given)
        if before != read_generators():
            raise StackError("its loss draws random numbers")
        if list_changed(held, vars(self)):
            raise StackError("its loss changes attributes")
        size = len(self.members)
        return {name: value.expand(size) if value.dim() == 0 else value for name, value in losses.items()}

    def lose(
        self, logits: Tensor, batch: Batch, hparams: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the losses of one run, with its hyperparameters and state in their places.

        The network cannot be reached: a loss that reads weights would see those of all runs.
        """
        outside, buffers, modules = self.hparams, self._buffers, self._modules
        given = {**outside, **hparams}
        self.hparams = dict(given)
        vars(self).update(_buffers={**buffers, **state}, _modules={})
        try:
            losses = super().losses(logits, batch)
            if self._modules or self._parameters or list_changed(state, self._buffers):
                raise StackError("its loss replaces or adds state")
            if list_changed(given, self.hparams):
                raise StackError("its loss changes hyperparameters")
            return {name: torch.as_tensor(value) for name, value in losses.items()}
        finally:
            self.hparams = outside
            vars(self).update(_buffers=buffers, _modules=modules)


class StackedBatches:
    """Returns the next batch of every run; each run's place in its data advances as if it were single."""

    def __init__(self, sets: Sequence[TrainingSet]) -> None:
        first = sets[0]
        # Runs on one split share its rows.
        splits = list({id(each.stored): each for each in sets}.values())
        stored = [each.stored for each in splits if isinstance(each.stored, Tensor)]
        if len(stored) < len(splits) or not isinstance(first.inputs, TabularInputs | TableInputs):
            raise StackError("their inputs are not a table in memory")
        if first.second_order is not None:
            raise StackError("its steps take a second batch")
        if len({(len(each), each.order.batch_size, each.views, each.weights is None) for each in sets}) > 1:
            raise StackError("their training splits or batches differ in size")
        places = {id(each.stored): place for place, each in enumerate(splits)}
        starts = [places[id(each.stored)] * len(first) for each in sets]
        self.orders = [each.order for each in sets]
        self.views = first.views
        self.offsets = torch.tensor(starts, device=first.candidates.device)[:, None]
        weights = [each.weights for each in splits if each.weights is not None]

        def join(parts: Sequence[Tensor]) -> Tensor:
            return parts[0] if len(parts) == 1 else torch.cat(list(parts))

        self.inputs, self.candidates = join(stored), join([each.candidates for each in splits])
        self.weights = join(weights) if weights else None
        self.shape = (len(sets), first.order.batch_size)
        self.room = stored[0].new_empty(self.shape[0] * self.shape[1], stored[0].shape[1])

    def next(self) -> Batch:
        """Return the next batch: `index` (R, B), candidates (R, B, K), inputs (R, B, D) as every view."""
        index = torch.stack([order.next() for order in self.orders])
        flat = (index + self.offsets).flatten()
        torch.index_select(self.inputs, 0, flat, out=self.room)
        candidates, weights = self.candidates.index_select(0, flat).unflatten(0, self.shape), None
        if self.weights is not None:
            weights = self.weights.index_select(0, flat).unflatten(0, self.shape)
        views = dict.fromkeys(self.views, self.room.unflatten(0, self.shape))
        return Batch(index, candidates, views, None, weights)


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
        with torch.no_grad(), evaluating(self.stack):
            for start in range(0, size, chunk):
                rows = [each[start : start + chunk] for each in (tensors[:1] if shared else tensors)]
                inputs = rows[0].expand(len(tensors), *rows[0].shape) if shared else torch.stack(rows)
                parts.append(self.stack.predict(inputs))
                after_batch(len(rows[0]))
            return list(torch.cat(parts, 1).cpu().double().numpy())
