"""Edge cases of the algorithms: odd sizes and rates, missing inputs, devices, views that a run needs."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from plench.algorithms import algorithms, find_algorithm
from plench.contract import AlgorithmUnderTest
from plench.contract.speed import OperatorCounter
from plench.contract.training import find_not_finite
from plench.contract.under_test import Session, make_examples
from plench.training import configure_run, run_training
from tests import formulas
from tests.probe import answer, batch_of, build, set_state, start
from tests.training.harness import read_description

# Schedules that reach every phase within 12 updates or those of a session.
REACH: dict[str, dict[str, Any]] = {
    "VALEN": {"warm_up": 3},
    "PiCO": {"prot_start": 3},
    "ABLE": {},
    "CRDPLL": {},
    "PaPi": {},
    "GFWS": {},
    "RECORDS": {},
    "VIPLL": {},
    "CEL": {},
    "CroSel": {"warm_up": 1, "k": 1, "select_threshold": 0.2},
    "DIRK": {"prot_start": 3},
    "FREDIS": {"update_interval": 1, "theta": 0.2},
    "ALIM": {"prot_start": 3, "start_epoch": 1},
    "PiCO_plus": {"prot_start": 3, "knn_start": 5, "pure_ratio": 0.6},
}
WITH_QUEUE = ["PiCO", "DIRK", "ALIM", "PiCO_plus"]


def run_finite(session: Session, updates: int = 12) -> None:
    """Make updates and demand finite losses and state."""
    losses = session.update(updates)
    assert np.isfinite(losses).all()
    assert find_not_finite(session.algorithm) is None


@pytest.mark.parametrize("name", WITH_QUEUE)
@pytest.mark.parametrize("length", [1, 7, 16, 37])
def test_queues_of_any_length(name: str, length: int) -> None:
    """Batches of 16: a queue shorter than the batch, one that it does not divide, one of its size."""
    session = start(name, moco_queue=length, **REACH[name])
    run_finite(session)
    algorithm: Any = session.algorithm
    assert algorithm.queue["position"].item() == 12 * 16 % length
    norms = algorithm.queue["features"].norm(dim=-1)
    torch.testing.assert_close(norms, torch.ones(length))


@pytest.mark.parametrize("pure_ratio", [0.0, 0.01, 1.0])
def test_reliable_sets_empty_and_full(pure_ratio: float) -> None:
    session = start("PiCO_plus", prot_start=2, knn_start=5, pure_ratio=pure_ratio)
    run_finite(session)
    algorithm: Any = session.algorithm
    assert algorithm.reliable.sum() == int(64 * pure_ratio)


def test_more_neighbours_than_contrasts() -> None:
    hparams = {**REACH["PiCO_plus"], "chosen_neighbors": 1000, "moco_queue": 5}
    run_finite(start("PiCO_plus", **hparams))


def refuse(*_: Any) -> None:
    raise AssertionError("not needed")


def test_plain_dirk_needs_neither_queue_nor_projection() -> None:
    session = start("DIRK", weight=0.0)
    algorithm: Any = session.algorithm
    before = algorithm.queue["features"].clone()
    algorithm.network.projector.register_forward_pre_hook(refuse)
    algorithm.teacher.projector.register_forward_pre_hook(refuse)
    run_finite(session)
    assert torch.equal(algorithm.queue["features"], before)
    assert not algorithm.phases()


def test_valen_has_no_gradient_where_the_concentration_is_clamped() -> None:
    logits = torch.tensor([[500.0, -500.0, 0.0]], requires_grad=True)
    formulas.valen_kl(logits).backward()
    assert logits.grad[0, :2].tolist() == [0, 0]
    assert logits.grad[0, 2].isfinite()


def test_alim_without_mixup_makes_no_third_pass() -> None:
    session = start("ALIM", loss_weight_mixup=0.0)
    passes: list[int] = []
    network: Any = session.algorithm.network
    network.featurizer.register_forward_pre_hook(lambda *_: passes.append(1))
    run_finite(session)
    assert len(passes) == 12


def correct(
    posterior: Tensor, candidates: Tensor, visited: Tensor | None = None, **hparams: float
) -> tuple[Any, Any]:
    """Correct these candidates by FREDIS; return the algorithm and what the correction tells."""
    algorithm = build("FREDIS", candidates, **hparams)
    everyone = torch.ones(len(candidates))
    set_state(algorithm, posterior=posterior, visited=everyone if visited is None else visited)
    return algorithm, algorithm.correct()


def test_fredis_lowers_delta_to_zero_at_most() -> None:
    """With a `dec` larger than δ the arg-max itself would be far, for the rest of the run."""
    posterior, everything = torch.tensor([[0.5, 0.3, 0.2]]), torch.ones(1, 3, dtype=torch.bool)
    algorithm, _ = correct(posterior, everything, theta=1e-6, delta=0.6, dec=0.9, times=1, change_size=100)
    assert algorithm.delta == 0


def test_fredis_adds_only_labels_nearer_than_theta() -> None:
    """A label whose gap is θ itself is not added; all numbers here are exact."""
    posterior, only = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[True, False, False]])
    algorithm, correction = correct(posterior, only, theta=0.25, delta=0.9, times=0)
    assert correction.added == 0
    assert algorithm.candidates.tolist() == [[True, False, False]]
    algorithm, correction = correct(posterior, only, theta=0.375, delta=0.9, times=0)
    assert correction.added == 2
    assert algorithm.candidates.all()


@pytest.mark.parametrize("dec", [1e-9, 1e-300])
@pytest.mark.parametrize("needed_gap", [0.25, 0.0, -math.inf, math.inf])
def test_fredis_finds_delta_in_steps_however_small(dec: float, needed_gap: float) -> None:
    """Steps that vanish compared with δ would never end; the result is what ever smaller steps tend to."""
    expected = 1.0 if needed_gap > 1 else max(needed_gap, 0.0)
    assert formulas.fredis_delta(1.0, dec, needed_gap) == pytest.approx(expected, abs=1e-8)


def test_fredis_leaves_unvisited_examples_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    posterior = torch.rand(6, 4, generator=generator).softmax(-1)
    candidates = torch.tensor([[1, 1, 0, 0]] * 6) == 1
    visited = torch.tensor([1, 1, 1, 0, 0, 0]) == 1
    algorithm, correction = correct(posterior, candidates, visited, theta=1.0, times=0, change_size=100)
    assert algorithm.candidates[:3].all()
    assert torch.equal(algorithm.candidates[3:], candidates[3:])
    assert torch.equal(algorithm.targets[3:], build("FREDIS", candidates).targets[3:])
    assert correction.added == 6


def test_fredis_draws_without_replacement() -> None:
    """As many entries are added as the cap allows, each once; of ten near ones none is a candidate."""
    posterior, only = torch.tensor([[0.6, 0.2, 0.2]] * 5), torch.tensor([[True, False, False]] * 5)
    seen = set()
    for seed in range(20):
        torch.manual_seed(seed)
        algorithm, correction = correct(posterior, only, theta=0.5, delta=0.9, times=0, change_size=6)
        assert correction.added == 6
        assert algorithm.changed == int(algorithm.candidates[:, 1:].sum()) <= 6
        seen.add(tuple(algorithm.candidates.flatten().tolist()))
    assert len(seen) > 10


def test_fredis_falls_back_to_uniform_where_nothing_is_left() -> None:
    posterior, outside = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[False, True, True]])
    algorithm, _ = correct(posterior, outside, theta=0.0, delta=2.0)
    assert algorithm.targets.tolist() == [[0.0, 0.5, 0.5]]


class LargestTensor(TorchDispatchMode):
    """Notes the number of entries of the largest tensor that any operation returns."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, Tensor):
                self.largest = max(self.largest, value.numel())
        return result


@pytest.mark.parametrize("rows", [1, 2, 3, 300, 1000])
def test_graph_equals_the_dense_one(rows: int) -> None:
    features = torch.randn(rows, 5, generator=torch.Generator().manual_seed(rows))
    features[rows // 2] = features[0]
    exact = "donot_use_mm_for_euclid_dist"
    distances = torch.cdist(features.double(), features.double(), compute_mode=exact)
    distances.fill_diagonal_(torch.inf)
    k = min(3, rows - 1)
    expected = distances.argsort(dim=-1, stable=True)[:, :k]
    found = formulas.valen_neighbours(features, 3)
    assert found.shape == (rows, k)
    assert torch.equal(found.sort(-1).values, expected.sort(-1).values)


def test_graph_never_holds_a_square_matrix() -> None:
    rows = 2000
    features = torch.randn(rows, 5)
    with LargestTensor() as seen:
        formulas.valen_neighbours(features, 3)
    assert seen.largest < rows * rows / 4


def test_graph_of_all_others_when_there_are_few() -> None:
    session = start("VALEN", warm_up=1, knn=20, train_size=9, batch_size=3)
    run_finite(session, 4)
    algorithm: Any = session.algorithm
    assert algorithm.neighbours.shape == (9, 8)
    block = formulas.valen_graph_block(algorithm.neighbours, torch.arange(9))
    torch.testing.assert_close(block, torch.full((9, 9), 1 / 9))


@pytest.mark.parametrize(
    "name", ["VALEN", "PiCO", "DIRK", "FREDIS", "ALIM", "PiCO_plus", "RECORDS", "CroSel", "IDGP"]
)
def test_phases_beyond_the_run_are_warned_about(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Default schedules are longer than three steps: the run says so, also in run.json, and goes on."""
    entry, dataset = find_algorithm(name), make_examples(64)
    config = configure_run(entry, dataset.card, hparams={"batch_size": 16}, steps=3, pl_type="real")
    outcome = run_training(config, dataset, entry, tmp_path)
    assert outcome.status == "done"
    assert "after the last of this run's 3" in caplog.text
    (warning, *_) = read_description(outcome.folder)["notices"]
    assert re.match(r".+ would begin at update \d+, after the last", warning)


def test_valen_without_warm_up_or_without_end() -> None:
    at_once: Any = start("VALEN", warm_up=0)
    at_once.update(1)
    assert at_once.algorithm.optimizer.state
    never: Any = start("VALEN", warm_up=1000)
    never.update(3)
    assert not never.algorithm.optimizer.state


def test_glws_is_another_name_of_gfws() -> None:
    assert find_algorithm("GLWS").name == "GFWS"


def test_scarce_prior_by_the_candidates() -> None:
    candidates = torch.tensor([[True, False, True], [True, False, False]])
    assert build("SCARCE", candidates).prior.tolist() == pytest.approx([1 / 3] * 3)
    assert build("SCARCE", candidates, prior="candidates").prior.tolist() == [0.75, 0.0, 0.25]


def test_crosel_gives_zero_gradients_where_nothing_counts() -> None:
    """With nothing selected, or everything, the terms stay in the graph, so that Adam counts the step."""
    candidates = torch.ones(4, 3, dtype=torch.bool)
    views = torch.randn(4, 2, dtype=torch.float64)
    for ratio in (0.0, 1.0):
        algorithm = build("CroSel", candidates, warm_up=0, batch_size=4, lambda_cr=2.0)
        answer(algorithm)
        algorithm.ratio.fill_(ratio)
        algorithm.selected.fill_(bool(ratio))
        logged = algorithm.update(batch_of(candidates, views, second=batch_of(candidates, views)))
        assert all(parameter.grad is not None for parameter in algorithm.network.parameters())
        assert (float(logged["loss_sel"]) == 0) == (ratio == 0)
        expected = logged["loss_sel"] if ratio else 2 * logged["loss_mix"]
        torch.testing.assert_close(logged["loss"], expected)


@pytest.mark.parametrize("name", ["VALEN", "CroSel", "VIPLL"])
def test_methods_of_all_inputs_say_that_they_lack_them(name: str) -> None:
    candidates, views = torch.ones(4, 3, dtype=torch.bool), torch.zeros(4, 2, dtype=torch.float64)
    algorithm = build(name, candidates, batch_size=4, **({"warm_up": 0} if name == "VALEN" else {}))
    batch = batch_of(candidates, views)
    if name == "CroSel":  # which needs them from the second epoch on
        algorithm.update(batch)
    with pytest.raises(RuntimeError, match="attach_inputs"):
        algorithm.update(batch)


def test_crosel_asks_for_a_second_batch() -> None:
    candidates, views = torch.ones(4, 3, dtype=torch.bool), torch.zeros(4, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="second batch"):
        build("CroSel", candidates, warm_up=0).update(batch_of(candidates, views))


@pytest.mark.parametrize(
    ("name", "hparams", "made"),
    [
        ("PRODEN", {}, {"weak"}),
        ("PiCO", {"moco_queue": 64}, {"weak", "strong"}),
        ("FREDIS", {}, {"weak", "strong", "distill"}),
        ("FREDIS", {"views": 1}, {"weak"}),
        ("DIRK", {"moco_queue": 64}, {"weak", "strong", "distill"}),
        ("DIRK", {"weight": 0.0}, {"distill"}),
        ("RECORDS", {}, {"weak", "strong"}),
        ("RECORDS", {"base": "PRODEN"}, {"weak"}),
        ("CroSel", {}, {"original", "weak", "strong"}),
        ("VIPLL", {}, {"original", "weak"}),
    ],
)
def test_only_the_views_that_a_run_needs_are_made(name: str, hparams: dict[str, Any], made: set[str]) -> None:
    session = start(name, images=True, **hparams)
    batch = session.training_set.next_batch()
    for view in ("original", "weak", "strong", "distill"):
        if view in made:
            assert batch.view(view).shape == (16, 3, 8, 8)
        else:
            with pytest.raises(AttributeError, match="did not declare"):
                batch.view(view)
    with session.run.streams.ambient("algorithm"):
        assert session.update_once(batch) > 0


@pytest.mark.parametrize("name", [name for name, entry in algorithms().items() if entry.card.shared])
def test_no_phase_needs_an_operator_that_mps_lacks(name: str) -> None:
    """Torch has had it on MPS only lately, or not at all."""
    tested = AlgorithmUnderTest(find_algorithm(name))
    with OperatorCounter(None) as counter:
        tested.train()
    assert counter.calls.total() > 0
    assert "aten::kthvalue" not in counter.calls
