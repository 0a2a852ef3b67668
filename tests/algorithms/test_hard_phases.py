"""Phases and schedules shown by running across each boundary, also interrupted and resumed around it."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from plench.algorithms import find_algorithm
from plench.algorithms.parts.targets import uniform_over
from plench.batch import Batch
from plench.contract import AlgorithmUnderTest
from plench.contract.training import find_difference, snapshot
from plench.contract.under_test import Session, make_examples
from plench.runs.folder import RunStore
from tests import formulas
from tests.algorithms.sessions import copy_of, resume, save, start

# Short schedules on epochs of four updates, and every update at which something changes.
SCHEDULES: dict[str, tuple[dict[str, Any], set[int]]] = {
    "VALEN": ({"warm_up": 5}, {5}),
    "PiCO": ({"prot_start": 5}, {5}),
    "ABLE": ({}, {4}),
    "CRDPLL": ({}, {20}),
    "PaPi": ({}, {2}),
    "GFWS": ({}, {4}),
    "RECORDS": ({"upd_start": 2}, {8}),
    "CroSel": ({"warm_up": 2, "k": 2, "select_threshold": 0.2}, {4, 8, 12}),
    "DIRK": ({"prot_start": 5}, {5}),
    "FREDIS": ({"update_interval": 1, "theta": 0.3, "dec": 0.05, "inc": 0.05, "change_size": 7}, {4, 8}),
    "ALIM": ({"prot_start": 3, "start_epoch": 2}, {3, 8, 12}),
    "PiCO_plus": ({"prot_start": 2, "knn_start": 7, "pure_ratio": 0.6}, {2, 4, 7, 8}),
}


@pytest.mark.parametrize("images", [False, True], ids=["tabular", "images"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_resumed_at_and_around_each_boundary(name: str, images: bool, tmp_path: Path) -> None:
    """A run cut before, at or after a boundary ends in the same bits as one left alone.

    On images there are also batch norm's statistics, and the stream of the views.
    """
    hparams, boundaries = SCHEDULES[name]
    hparams = {**hparams, "images": images}
    updates = max(boundaries) + 3
    cuts = sorted({at + offset for at in boundaries for offset in (-1, 0, 1)})
    session = start(name, **hparams)
    losses = []
    for done in range(updates):
        if done in cuts:
            save(session, RunStore(tmp_path / str(done)))
        losses += session.update(1)
    final = snapshot(session.algorithm)
    for cut in cuts:
        resumed = resume(name, RunStore(tmp_path / str(cut)), **hparams)
        assert resumed.update(updates - cut) == losses[cut:]
        assert find_difference(final, snapshot(resumed.algorithm)) is None


@pytest.mark.parametrize("name", SCHEDULES)
def test_algorithms_with_a_schedule_declare_its_phases(name: str) -> None:
    hparams, _ = SCHEDULES[name]
    begins = start(name, **hparams).algorithm.phases()
    assert all(first < 20 for first in begins.values())
    assert all(first >= 0 for first in begins.values())
    assert bool(begins) == (name not in ("ABLE", "CRDPLL", "PaPi", "GFWS"))


def confidence_of(session: Session) -> torch.Tensor:
    return copy_of(session.algorithm.confidence)


@pytest.mark.parametrize("name", ["PiCO", "ALIM", "PiCO_plus"])
def test_confidence_moves_from_prot_start_on(name: str) -> None:
    session = start(name, prot_start=3)
    initial = uniform_over(session.training_set.candidates)
    session.update(3)
    assert torch.equal(confidence_of(session), initial)
    session.update(1)
    moved = confidence_of(session)
    changed = (moved != initial).any(-1)
    # Step 3 of 40 has φ = 0.95 − 0.15 · 2/40; every row of the batch keeps that share of its old confidence.
    phi = 0.95 - 0.15 * 2 / 40
    target = (moved[changed] - phi * initial[changed]) / (1 - phi)
    torch.testing.assert_close(target, torch.nn.functional.one_hot(target.argmax(-1), 5).float())
    assert 0 < changed.sum() <= 16
    torch.testing.assert_close(moved.sum(-1), torch.ones(64))


def update_both(session: Session, change: Callable[[Any], None]) -> tuple[dict[str, float], dict[str, float]]:
    """Make the next update twice, as it is and on a copy with a change; return what each logs."""
    batch = session.training_set.next_batch()
    changed: Any = copy.deepcopy(session.algorithm)
    change(changed)
    with session.run.streams.ambient("algorithm"):
        state = torch.get_rng_state()
        logged = changed.update(batch)
        torch.set_rng_state(state)
        own = session.algorithm.update(batch)
    return tuple({key: float(value) for key, value in numbers.items()} for numbers in (own, logged))


def relabel_queue(algorithm: Any) -> None:
    """Let every entry of the queue be a positive of each label's anchors, or of one label's."""
    if "candidates" in dict(algorithm.queue.named_buffers()):
        algorithm.queue["candidates"].fill_(1)
        algorithm.queue["distributions"].copy_(torch.eye(5)[0])
    else:
        algorithm.queue["labels"].fill_(1)
        if "reliable" in dict(algorithm.queue.named_buffers()):
            algorithm.queue["reliable"].fill_(True)


@pytest.mark.parametrize(("name", "first"), [("PiCO", 3), ("DIRK", 3), ("PiCO_plus", 3), ("ALIM", 0)])
def test_contrast_uses_labels_from_prot_start_on(name: str, first: int) -> None:
    """Before it the contrast is by instance, whatever the queue says of labels; ALIM's is never so."""
    session = start(name, prot_start=3)
    for step in range(5):
        own, changed = update_both(session, relabel_queue)
        assert (own["loss_cont"] != changed["loss_cont"]) == (step >= first), step


def test_valen_trains_its_encoder_after_the_warm_up() -> None:
    """The public benchmark's encoder never trains; ours starts as a copy of the network and moves."""
    session = start("VALEN", warm_up=4)
    algorithm: Any = session.algorithm
    before = copy_of(algorithm.encoder[0].hidden.weight)
    session.update(4)
    assert torch.equal(algorithm.encoder[0].hidden.weight, before), "untouched in warm-up"
    assert not algorithm.neighbours.any(), "no graph yet"
    assert not algorithm.optimizer.state, "Adam has not stepped"
    end_warm_up = algorithm.end_warm_up
    copied = []

    def end_and_look() -> None:
        end_warm_up()
        copied.append(torch.equal(algorithm.encoder[0].hidden.weight, algorithm.network[0].hidden.weight))
        copied.append(copy_of(algorithm.encoder[0].hidden.weight))
        copied.append(copy_of(algorithm.sampled_targets))

    learned = copy_of(algorithm.targets)
    with patch.object(algorithm, "end_warm_up", end_and_look):
        session.update(1)
    assert copied[0]
    assert torch.equal(copied[2], learned), "the samples' targets start from what the warm-up learned"
    assert not torch.equal(learned, uniform_over(session.training_set.candidates))
    assert not torch.equal(algorithm.encoder[0].hidden.weight, copied[1]), "trained from the first step on"
    own = torch.arange(64)[:, None]
    assert (algorithm.neighbours != own).all()
    graph = copy_of(algorithm.neighbours)
    session.update(3)
    assert torch.equal(algorithm.neighbours, graph), "the graph is built once"
    assert {int(state["step"]) for state in algorithm.optimizer.state.values()} == {4}


def test_valen_takes_the_graph_from_original_views_in_evaluation_mode() -> None:
    """With batch norm a feature must not depend on its batch, and the pass must leave no trace."""
    session = AlgorithmUnderTest(find_algorithm("VALEN")).start(
        make_examples(40, images=True), batch_size=8, hparams={"warm_up": 3, "model": "CNN"}
    )
    algorithm: Any = session.algorithm
    session.update(3)
    network = copy.deepcopy(algorithm.network).eval()
    with torch.no_grad():
        expected = network[0](session.training_set.original(0, len(session.training_set)))
    algorithm.end_warm_up()
    assert torch.equal(algorithm.neighbours, formulas.valen_neighbours(expected, 3))
    assert algorithm.network.training
    for name, buffer in algorithm.network.named_buffers():
        assert torch.equal(buffer, network.get_buffer(name))


@pytest.mark.parametrize(
    ("name", "average", "momentum", "after_the_step"),
    [
        ("PiCO", "key_network", "moco_m", False),
        ("ALIM", "key_network", "moco_m", False),
        ("PiCO_plus", "key_network", "moco_m", False),
        ("DIRK", "teacher", "momentum", True),
    ],
)
def test_averages_follow_before_or_after_the_step(
    name: str, average: str, momentum: str, after_the_step: bool
) -> None:
    """The key network follows the query network from before the step, the teacher the stepped student."""
    session = start(name, **{momentum: 0.9})
    algorithm: Any = session.algorithm
    session.update(2)
    old = [copy_of(parameter) for parameter in getattr(algorithm, average).parameters()]
    before = [copy_of(parameter) for parameter in algorithm.network.parameters()]
    session.update(1)
    after = [copy_of(parameter) for parameter in algorithm.network.parameters()]
    followed = after if after_the_step else before
    expected = [0.9 * mean + 0.1 * new for mean, new in zip(old, followed, strict=True)]
    found = list(getattr(algorithm, average).parameters())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    assert max((a - b).abs().max().item() for a, b in zip(before, after, strict=True)) > 1e-4


def test_valen_without_warm_up_or_without_end() -> None:
    at_once: Any = start("VALEN", warm_up=0)
    at_once.update(1)
    assert at_once.algorithm.optimizer.state
    never: Any = start("VALEN", warm_up=1000)
    never.update(3)
    assert not never.algorithm.optimizer.state


def test_alim_chooses_importance_from_the_finished_epoch() -> None:
    """Epochs of four updates: λ is chosen at updates 8, 12, …, each time from 64 margins."""
    session = start("ALIM", start_epoch=2, noise_rate=0.3)
    algorithm: Any = session.algorithm
    session.update(8)
    assert algorithm.importance == 0.0
    for update in range(8, 14):
        before = algorithm.importance
        counted, margins = algorithm.margin_count, copy_of(algorithm.margins)
        session.update(1)
        if update % 4 == 0:
            assert counted == 64
            assert algorithm.importance == formulas.alim_lambda(margins, 0.3) > 0
        else:
            assert algorithm.importance == before
    assert algorithm.margin_count == 32


def test_alim_importance_opens_the_set() -> None:
    """With λ = 0 pseudo-labels are candidates; with λ = 1 they are the model's own choice."""
    for importance, inside in ((0.0, True), (1.0, False)):
        session = start("ALIM", prot_start=0)
        algorithm: Any = session.algorithm
        algorithm.importance = importance
        session.update(2)
        labels = algorithm.queue["labels"][:32]
        rows = session.training_set.order.order[:32]
        in_set = session.training_set.candidates[rows, labels]
        assert bool(in_set.all()) == inside


def test_pico_plus_selects_by_the_epoch() -> None:
    """The first selection waits for a whole epoch; from then on each epoch has its reliable examples."""
    session = start("PiCO_plus", prot_start=1, pure_ratio=0.6)
    algorithm: Any = session.algorithm
    for update in range(13):
        before, distances = copy_of(algorithm.reliable), copy_of(algorithm.distances)
        session.update(1)
        selected = formulas.pico_plus_reliable(distances, 0.6)
        expected = selected if update in (4, 8, 12) else before
        assert torch.equal(algorithm.reliable, expected), update
        assert update < 4 or not torch.equal(selected, torch.ones_like(selected))
    assert algorithm.reliable.sum() == int(64 * 0.6)


def test_pico_plus_uses_neighbours_from_knn_start_on() -> None:
    """How many neighbours are asked for matters from then on."""
    session = start("PiCO_plus", prot_start=1, knn_start=6, pure_ratio=0.5)
    session.update(4)
    for step in range(4, 8):
        own, changed = update_both(session, lambda other: other.hparams.update(chosen_neighbors=3))
        assert (own["loss_cont_rel"] != changed["loss_cont_rel"]) == (step >= 6), step


def test_fredis_corrects_and_reads_the_corrected_sets() -> None:
    """The public benchmark computes corrected sets and goes on reading the original ones."""
    session = start("FREDIS", update_interval=1, theta=0.5, delta=0.6)
    algorithm: Any = session.algorithm
    original = copy_of(session.training_set.candidates)
    session.update(4)
    assert torch.equal(algorithm.candidates, original), "step 4 is the first with a correction, at its end"
    session.update(1)
    corrected = copy_of(algorithm.candidates)
    assert (corrected & ~original).any(), "labels were added"
    assert corrected.any(-1).all()
    batch = session.training_set.next_batch()
    given = Batch(batch.index, torch.ones_like(batch.candidates), {})
    original_again = copy.deepcopy(algorithm)
    original_again.candidates.copy_(original)
    outputs = algorithm.passes(batch)
    loss = algorithm.losses(outputs, batch)["loss_comp"]
    assert algorithm.losses(outputs, given)["loss_comp"] == loss, "the batch's own sets are not read"
    assert original_again.losses(outputs, batch)["loss_comp"] != loss
    with session.run.streams.ambient("algorithm"):
        session.update_once(batch)
    targets = algorithm.targets[batch.index]
    assert torch.equal(targets > 0, corrected[batch.index]), "targets live on the corrected sets"


def test_crdpll_brings_consistency_in_slowly() -> None:
    """At step 0 the consistency has no weight, from half of the 40 steps on it has weight 1."""
    session = start("CRDPLL")
    weights = []
    for _ in range(24):
        with session.run.streams.ambient("algorithm"):
            logged = session.algorithm.update(session.training_set.next_batch())
        weights.append(((logged["loss"] - logged["loss_sup"]) / logged["loss_cons"]).item())
    expected = [min(2 * step / 40, 1.0) for step in range(24)]
    assert weights == pytest.approx(expected, abs=1e-3)
