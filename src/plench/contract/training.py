"""Checks of what the loop calls (build, update, predict), on ordinary and odd data, and of declarations."""

from __future__ import annotations

import copy
import io
import json
import math
from collections import UserDict
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plench.algorithms import FittedAlgorithm
from plench.algorithms.base import Batch
from plench.algorithms.fitted import UnfitError
from plench.contract.under_test import (
    BATCH_SIZE,
    AlgorithmUnderTest,
    ContractViolation,
    NotChecked,
    Session,
    advised,
    ensure,
    make_examples,
    only_for,
    required,
)
from plench.data import Dataset, dataset_card, draw_candidates, load_dataset
from plench.errors import UsageError
from plench.hparams import DataTraits
from plench.settings import seed_hash
from plench.training.checkpoint import saved_values, take_snapshot

BUILT_IN = ("Digits_USS", "Digits_FPS", "Digits_ID")
BEFORE_PREDICTION = 3
DRAWS = 20
HUGE = 200.0
FAR = 1e6


def snapshot(owner: nn.Module) -> dict[str, Any]:
    """Return all values that an algorithm holds, by path."""
    return dict(saved_values(take_snapshot(owner).tree, type(owner).__name__))


def find_difference(
    first: dict[str, Any], second: dict[str, Any], rtol: float = 0.0, atol: float = 0.0
) -> str | None:
    """Return the first path at which two snapshots differ (by default: in any bit), or None."""
    for path in first | second:
        if path not in first or path not in second or not same(first[path], second[path], rtol, atol):
            return path
    return None


def same(first: Any, second: Any, rtol: float, atol: float) -> bool:
    """Whether two saved values are the same, bit for bit or within a tolerance."""
    if isinstance(first, dict) and isinstance(second, dict):
        return find_difference(first, second, rtol, atol) is None
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        if first.dtype != second.dtype or first.shape != second.shape:
            return False
        if rtol == 0:
            return torch.equal(first.nan_to_num(), second.nan_to_num())
        return torch.allclose(first.double(), second.double(), rtol=rtol, atol=atol, equal_nan=True)
    if isinstance(first, float) and isinstance(second, float):
        both_nan = math.isnan(first) and math.isnan(second)
        return both_nan or math.isclose(first, second, rel_tol=rtol, abs_tol=atol)
    return type(first) is type(second) and bool(first == second)


def find_not_finite(owner: nn.Module) -> str | None:
    """Return the path of a tensor or array with a value that is NaN or infinite, or None."""
    for path, value in snapshot(owner).items():
        if isinstance(value, Tensor) and value.is_floating_point() and not value.isfinite().all():
            return path
    return None


def train_and_predict(session: Session, updates: int, hint: str = "") -> None:
    """Make updates and a prediction; demand finite numbers and logits of the right shape."""
    hint = f". {hint}" if hint else ""
    cause = hint or ". Is it a log of 0, a division by 0 or an overflow? log_softmax and logsumexp avoid them"
    for count, loss in enumerate(session.update(updates)):
        ensure(math.isfinite(loss), f"the loss of update {count} (counted from 0) is {loss}{cause}")
    broken = find_not_finite(session.algorithm)
    ensure(broken is None, f"after {updates} updates {broken} holds NaN or infinite values{cause}")
    logits = session.predict()
    wanted = (len(session.test_inputs), session.training_set.candidates.shape[1])
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    ensure(shape == wanted, f"predict(x) must return logits of shape (B, K) = {wanted}, not {shape}{hint}")
    ensure(
        logits.isfinite().all(), f"after {updates} updates predict(x) returns NaN or infinite logits{cause}"
    )


@required
def trains_and_predicts(tested: AlgorithmUnderTest) -> None:
    """`update(minibatches)` returns a mapping with a finite `loss`, through every phase of the schedule, and
    `predict(x)` returns logits (B, K)."""
    session = tested.start()
    train_and_predict(session, session.updates)


@required
def learns_weights(tested: AlgorithmUnderTest) -> None:
    """Updates change what `predict` returns."""
    session = tested.start()
    before = session.predict()
    session.update(session.updates)
    ensure(
        not torch.equal(before, session.predict()),
        "predictions are the same after training: does the optimiser hold the parameters of the network that "
        "predict uses, and does update call backward and step?",
    )


@required
def predicts_each_example_alone(tested: AlgorithmUnderTest) -> None:
    """In evaluation mode `predict` gives the same logits twice, for an example alone as among others, and
    changes no state."""
    session = tested.start()
    session.update(min(BEFORE_PREDICTION, session.run.config.steps))
    before = snapshot(session.algorithm)
    together = session.predict()
    ensure(torch.equal(together, session.predict()), "two calls of predict(x) in evaluation mode differ")
    changed = find_difference(before, snapshot(session.algorithm))
    ensure(changed is None, f"predict(x) in evaluation mode changed {changed}")
    x = session.test_inputs
    alone = torch.cat([session.predict(x[:1]), session.predict(x[1:])])
    close = torch.allclose(alone, together, rtol=1e-4, atol=1e-4)
    ensure(close, "the prediction for an example depends on the others it is predicted with")


@cache
def load_built_in(name: str) -> Dataset:
    """Return built-in data with candidates drawn."""
    return draw_candidates(load_dataset(name), dataset_card(name).candidates, 0)


@required
def trains_on_built_in_data(tested: AlgorithmUnderTest) -> None:
    """It trains and predicts on the built-in datasets, in their default configuration."""
    for name in BUILT_IN:
        session = tested.start(load_built_in(name), hparams={}, batch_size=32)
        train_and_predict(session, min(3, session.run.config.steps))


@only_for("batches")
@advised
def trains_on_images(tested: AlgorithmUnderTest) -> None:
    """It trains and predicts on images too; `networks.Featurizer` builds a network that suits the data."""
    session = tested.start(make_examples(32, images=True), batch_size=8)
    train_and_predict(session, session.updates)


# Odd data ------------------------------------------------------------------------------------------------


def train_on(tested: AlgorithmUnderTest, dataset: Dataset, hint: str = "") -> None:
    """Train through every phase on a dataset; add a hint to what goes wrong."""
    session = tested.start(dataset)
    try:
        train_and_predict(session, session.updates, hint)
    except UnfitError as refused:  # refusing with a reason is allowed
        raise NotChecked(f"it refuses such data: {refused}") from None


@required
def trains_on_single_candidates(tested: AlgorithmUnderTest) -> None:
    """It trains where every candidate set holds one label only."""
    hint = "A set of one label has no wrong candidate: a mean over those divides by zero"
    train_on(tested, make_examples(sets="single"), hint)


@required
def trains_on_full_sets(tested: AlgorithmUnderTest) -> None:
    """It trains where every candidate set holds all labels."""
    hint = "A full set has no other labels: a mean over those divides by 0, the log of an empty sum is −∞"
    train_on(tested, make_examples(sets="full"), hint)


@required
def trains_without_a_candidate(tested: AlgorithmUnderTest) -> None:
    """It trains where a class is in no candidate set and no example's label."""
    hint = "A quantity per class needs a value for a class that no set contains"
    train_on(tested, make_examples(without_candidate=2), hint)


@required
def trains_without_a_label(tested: AlgorithmUnderTest) -> None:
    """It trains where a class is a candidate but never the true label."""
    train_on(tested, make_examples(without_label=0))


@required
def trains_on_two_classes(tested: AlgorithmUnderTest) -> None:
    """It trains with two classes, where every set holds one label or all."""
    hint = "With K = 2 a set that is not full has one label: mind |S| − 1"
    train_on(tested, make_examples(num_classes=2), hint)


@required
def trains_on_fewer_examples_than_a_batch(tested: AlgorithmUnderTest) -> None:
    """It trains with fewer examples than a batch; each batch is then all of them."""
    hint = "Use the number of rows of the batch, and for schedules min(batch_size, num_data)"
    train_on(tested, make_examples(BATCH_SIZE // 2 + 1), hint)


@only_for("batches")
@required
def trains_on_short_batches(tested: AlgorithmUnderTest) -> None:
    """It trains when batches have fewer rows than `hparams["batch_size"]`, down to one."""
    session = tested.start()
    for size in (BATCH_SIZE - 3, 2, 1):
        session.update(2)
        session.update(2, session.run.build_training_set(size))
        train_and_predict(session, 2, "Take the number of rows from the batch, not from hparams")


@only_for("batches")
@required
def survives_huge_logits(tested: AlgorithmUnderTest) -> None:
    """Loss, weights and state stay finite in float32 when logits reach ±200."""
    session = tested.start()
    for done in (1, session.updates - 2):
        session.update(done)
        reached = enlarge_logits(session)
        hint = (
            f"Logits had been scaled to ±{reached:.0f}. In float32 softmax is exactly 0 from a gap of 104: "
            "compute in log space (log_softmax, logsumexp over the candidates), not log(softmax(x)) or ratios"
        )
        train_and_predict(session, 2, hint)


def enlarge_logits(session: Session) -> float:
    """Scale the last layers so that logits reach ±200; return what predictions for training inputs reach.

    Every linear layer with K outputs, in any network of the algorithm, is scaled by its own outputs in an
    update and in a prediction; then all of them by one factor, as a prediction may be a mean of several. If
    the logits do not come from such a layer, the inputs are scaled.
    """
    training_set = session.training_set
    num_classes = training_set.candidates.shape[1]
    peaks: dict[nn.Linear, float] = {}

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if isinstance(layer, nn.Linear):
            peaks[layer] = max(peaks.get(layer, 0.0), float(output.detach().abs().max()))

    def find_peak() -> float:
        return float(session.predict(training_set.original(0, len(training_set))).abs().max())

    @torch.no_grad()
    def scale(factors: dict[nn.Linear, float]) -> None:
        for layer, factor in factors.items():
            for parameter in layer.parameters():
                parameter.mul_(factor)

    layers = [layer for layer in session.algorithm.modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(note) for layer in layers if layer.out_features == num_classes]
    session.update(1)
    find_peak()
    for hook in hooks:
        hook.remove()
    scale({layer: HUGE / max(peak, 1e-3) for layer, peak in peaks.items()})
    reached = find_peak()
    if reached >= HUGE:
        return reached
    if reached >= HUGE / 2:
        scale(dict.fromkeys(peaks, HUGE / reached))
    else:
        training_set.stored[:].mul_(HUGE / max(reached, 1e-3))
    return find_peak()


# Methods fitted in rounds --------------------------------------------------------------------------------


def start_fitted(tested: AlgorithmUnderTest) -> tuple[Session, FittedAlgorithm]:
    """Start a run of a fitted method."""
    session = tested.start()
    algorithm = session.algorithm
    if not isinstance(algorithm, FittedAlgorithm):
        raise ContractViolation("a card without shared hyperparameters is for subclasses of FittedAlgorithm")
    return session, algorithm


@only_for("rounds")
@required
def leaves_single_candidates_alone(tested: AlgorithmUnderTest) -> None:
    """Soft targets stay within the candidates, sum to 1, and never change where there is one candidate."""
    session, algorithm = start_fitted(tested)
    candidates = torch.from_numpy(algorithm.candidates)
    single = candidates.sum(1) == 1
    for number in range(session.updates):
        session.update(1)
        targets = algorithm.targets
        kept = torch.equal(targets[single], candidates[single].double())
        ensure(kept, f"update {number} changed the targets of examples with one candidate")
        sums = torch.allclose(targets.sum(1), torch.ones_like(targets[:, 0]))
        within = sums and not targets[~candidates].any()
        ensure(within, f"update {number}: targets outside the candidates, or not summing to 1")


@only_for("rounds")
@required
def predicts_any_input(tested: AlgorithmUnderTest) -> None:
    """After every update `predict` is finite for any input, zeros and distant ones too; before the first
    round all inputs have the same logits."""
    session, _ = start_fitted(tested)
    x = session.test_inputs
    odd = torch.cat([x, torch.zeros_like(x[:1]), torch.full_like(x[:1], FAR), -FAR * x[:1]])
    for number in range(session.updates):
        session.update(1)
        logits = session.predict(odd)
        ensure(logits.isfinite().all(), f"after update {number} predict(x) returns NaN or infinite logits")
        same = number > 0 or torch.equal(logits, logits[:1].expand_as(logits))
        ensure(same, "before the first round predict(x) must be the candidate prior everywhere")


@only_for("rounds")
@required
def repeats_every_round(tested: AlgorithmUnderTest) -> None:
    """A round depends on the seed and the round before alone: whatever else draws random numbers in between
    changes nothing."""
    session, _ = start_fitted(tested)
    other, _ = start_fitted(tested)
    for number in range(session.updates):
        session.update(1)
        with other.run.streams.ambient("algorithm"):
            torch.rand(7 + number)
        other.update(1)
        same = torch.equal(session.predict(), other.predict())
        ensure(same, f"update {number} depends on a running stream: draw by self.seed_for(...)")


# Declarations --------------------------------------------------------------------------------------------


@required
def declares_hyperparameters(tested: AlgorithmUnderTest) -> None:
    """Declared hyperparameters have a meaning, a default within their own bounds, and draws that are allowed
    values and plain JSON."""
    names: set[str] = set()
    for parameter in tested.entry.card.hyperparameters:
        name = parameter.name
        ensure(name not in names, f"hyperparameter {name} is declared twice")
        names.add(name)
        ensure(parameter.meaning.strip(), f"hyperparameter {name} has no meaning: describe what it does")
        for kind, noise_rate in product(("tabular", "image"), (None, 0.2)):
            traits = DataTraits(kind, noise_rate)
            try:
                search = parameter.search_for(traits)
                seeds = (np.random.RandomState(seed_hash(seed, name)) for seed in range(DRAWS))
                values = [parameter.default_for(traits), *(parameter.convert(search.draw(s)) for s in seeds)]
            except UsageError as error:
                text = f"its default or a value drawn by its search is refused: {error}"
                raise ContractViolation(text) from error
            for value in values:
                plain = type(json.loads(json.dumps(value))) is type(value)
                ensure(plain, f"hyperparameter {name}: {value!r} is not a plain JSON value")


def list_tensors(batch: Batch) -> dict[str, Any]:
    """Return the tensors of a batch by the name of the attribute."""
    own = {"index": batch.index, "candidates": batch.candidates, "weights": batch.weights, **batch._views}
    second = {} if batch.second is None else list_tensors(batch.second)
    return {**own, **{f"second.{name}": value for name, value in second.items()}}


@required
def leaves_arguments_alone(tested: AlgorithmUnderTest) -> None:
    """Building and updating change neither the `hparams` nor the `train_givenY` that were passed in, nor the
    tensors of a batch: its views, candidates, weights and index, and those of `batch.second`."""
    session = tested.start()
    run, training_set = session.run, session.training_set
    hparams = dict(run.config.hparams)
    candidates = run.data.train_candidates.astype(np.float32)
    old_hparams, old_candidates = copy.deepcopy((hparams, candidates))
    with run.streams.ambient("init"):
        algorithm = tested.entry.cls(run.data.input_shape, candidates, hparams).to(run.device).train()
    run.attach(algorithm)
    run.algorithm = algorithm
    stored, sets = training_set.stored[:].clone(), training_set.candidates.clone()
    with run.streams.ambient("algorithm"):
        for _ in range(session.updates):
            batch = training_set.next_batch()
            batch._views = {name: view.clone() for name, view in batch._views.items()}  # one tensor on tables
            before = copy.deepcopy(batch)
            session.update_once(batch)
            changed = find_difference(list_tensors(before), list_tensors(batch))
            ensure(
                changed is None,
                f"update changed batch.{changed} in place; views may share their memory: write to a clone",
            )
    ensure(hparams == old_hparams, "the hparams given to __init__ were changed; self.hparams is a copy")
    same = np.array_equal(candidates, old_candidates)
    ensure(same, "train_givenY was changed; torch.from_numpy shares its memory, so clone before writing")
    same = stored.equal(training_set.stored[:]) and sets.equal(training_set.candidates)
    ensure(same, "the training data behind the batches was changed")


@required
def prints_nothing(tested: AlgorithmUnderTest) -> None:
    """Nothing is printed; `update` returns what is to be logged."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        tested.train()
    printed = output.getvalue()
    ensure(not printed, f"printed: {printed[:200]!r}; return numbers from update instead")


class RecordedViews(UserDict[str, Tensor]):
    """Views that record which of them were read."""

    def __init__(self, views: dict[str, Tensor], read: set[str]) -> None:
        super().__init__(views)
        self.read = read

    def __getitem__(self, name: str) -> Tensor:
        self.read.add(name)
        return super().__getitem__(name)


@only_for("batches")
@advised
def uses_declared_views(tested: AlgorithmUnderTest) -> None:
    """Every view that is declared is used; making one that is not wastes time on images."""
    session = tested.start()
    read: set[str] = set()
    views = tested.entry.card.views
    with session.run.streams.ambient("algorithm"):
        for _ in range(session.updates):
            batch = session.training_set.next_batch()
            recorded = RecordedViews({name: batch.view(name) for name in views}, read)
            session.update_once(Batch(batch.index, batch.candidates, recorded, batch.second))
    unused = ", ".join(name for name in views if name not in read)
    ensure(not unused, f"declared but never used: {unused}; take them out of register(views=…)")
