"""What PaPi, GFWS, SCARCE, RECORDS and CroSel do beyond single formulas."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import plench
from plench.algorithms import find_algorithm
from plench.algorithms.parts.views import draw_share
from tests.algorithms.sessions import copy_of, start
from tests.probe import answer, batch_of, build


def test_glws_is_another_name_of_gfws() -> None:
    assert find_algorithm("GLWS").name == "GFWS"


@pytest.mark.parametrize("alpha", [0.05, 5.0, 8.0])
def test_shares_of_any_parameter_are_shares(alpha: float) -> None:
    torch.manual_seed(0)
    shares = torch.stack([draw_share(alpha) for _ in range(2000)])
    assert ((shares >= 0) & (shares <= 1)).all()
    assert (shares < 0.5).any(), "not replaced by the larger part"


def test_papi_keeps_the_similarity_term_in_the_graph_from_the_first_step_on() -> None:
    """Its weight is 0 there, but Adam must see the projector, on which weight decay then acts."""
    session = start("PaPi")
    algorithm: Any = session.algorithm
    before = copy_of(algorithm.network.projector[0].weight)
    session.update(1)
    assert {int(state["step"]) for state in algorithm.optimizer.state.values()} == {1}
    assert not torch.equal(algorithm.network.projector[0].weight, before)


def test_papi_confidence_keeps_its_support_and_sum() -> None:
    session = start("PaPi")
    session.update(12)
    confidence, candidates = session.algorithm.confidence, session.training_set.candidates
    torch.testing.assert_close(confidence.sum(-1), torch.ones(64))
    assert not confidence[~candidates].any()


def test_gfws_moves_like_cc_where_the_views_are_one() -> None:
    """On tables the gradient of its cross entropy is that of CC, with nothing outside and no spread."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    candidates = torch.rand(6, 4, generator=generator) < 0.5
    candidates[:, 0] = True
    views = logits.expand(2, 6, 4).clone().requires_grad_()
    losses = build("GFWS", candidates, entropy_weight=0.0).losses(views, batch_of(candidates, logits))
    (gradient,) = torch.autograd.grad(losses["loss_em"], views)
    leaf = logits.clone().requires_grad_()
    (expected,) = torch.autograd.grad(build("CC", candidates).loss(leaf, batch_of(candidates, leaf)), leaf)
    torch.testing.assert_close(gradient.sum(0), expected)


def test_scarce_prior_by_the_candidates() -> None:
    candidates = torch.tensor([[True, False, True], [True, False, False]])
    assert build("SCARCE", candidates).prior.tolist() == pytest.approx([1 / 3] * 3)
    assert build("SCARCE", candidates, prior="candidates").prior.tolist() == [0.75, 0.0, 0.25]


def test_records_takes_the_prior_out_of_predictions_of_a_loaded_model(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"steps": 30, "checkpoint_freq": 30, "progress": False}
    outcome = plench.train("RECORDS", "Digits_FPS", tmp_path, **settings)
    model = plench.load(outcome.folder)
    features = plench.Dataset.load("Digits_FPS").features[:5]
    algorithm: Any = model.algorithm
    assert algorithm.feature_mean.any()
    with torch.no_grad():
        x = model.inputs.original(model.inputs.store(features, torch.device("cpu")))
        plain = algorithm.network(x)
        prior = algorithm.network[1](algorithm.feature_mean).softmax(-1)
    expected = (plain - (prior + 1e-9).log()).double().numpy()
    np.testing.assert_allclose(model.predict_logits(features), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("base", ["CORR", "PRODEN"])
def test_records_revises_from_upd_start_on(base: str) -> None:
    """The feature mean moves from the first step on, the confidence from the second epoch on."""
    session = start("RECORDS", upd_start=1, base=base)
    algorithm: Any = session.algorithm
    initial, mean = copy_of(algorithm.confidence), copy_of(algorithm.feature_mean)
    session.update(4)
    assert torch.equal(algorithm.confidence, initial)
    assert not torch.equal(algorithm.feature_mean, mean)
    session.update(1)
    changed = (algorithm.confidence != initial).any(-1)
    assert 0 < changed.sum() <= 16
    assert not algorithm.confidence[~session.training_set.candidates].any()


def test_records_uses_the_classifier_from_before_the_step() -> None:
    """A huge learning rate would show if the prior came from the weights after it."""
    session = start("RECORDS", upd_start=0, lr=10.0)
    algorithm: Any = session.algorithm
    session.update(1)
    classifier = algorithm.network[1]
    weight, bias = copy_of(classifier.weight), copy_of(classifier.bias)
    batch = session.training_set.next_batch()
    with torch.no_grad():
        logits = algorithm.network(batch.weak)
    session.update_once(batch)
    prior = (nn.functional.linear(algorithm.feature_mean, weight, bias).softmax(-1) + 1e-9).log()
    expected = (logits - prior).masked_fill(~batch.candidates, -torch.inf).softmax(-1)
    torch.testing.assert_close(algorithm.confidence[batch.index], expected, rtol=1e-4, atol=1e-6)


def test_crosel_starts_its_networks_apart_and_trains_both() -> None:
    session = start("CroSel", warm_up=1)
    algorithm: Any = session.algorithm
    first, second = (network[0].hidden.weight for network in algorithm.network)
    assert not torch.equal(first, second)
    before = [copy_of(first), copy_of(second)]
    session.update(2)
    assert not torch.equal(first, before[0])
    assert not torch.equal(second, before[1])


def test_crosel_selects_by_the_epoch_and_learns_from_the_other_network() -> None:
    """Epochs of four updates: records before updates 4, 8, 12, selection before 8 and 12."""
    session = start("CroSel", warm_up=2, k=2, select_threshold=0.25)
    algorithm: Any = session.algorithm
    session.update(8)
    assert algorithm.records_made == 1
    assert not algorithm.selected.any()
    session.update(1)
    assert algorithm.records_made == 2
    selected, labels = copy_of(algorithm.selected), copy_of(algorithm.labels)
    assert selected.any()
    assert algorithm.ratio.tolist() == pytest.approx(selected.float().mean(0).tolist())
    candidates = session.training_set.candidates
    assert candidates.gather(-1, labels)[selected].all(), "labels are candidates"
    with torch.no_grad():
        algorithm.eval()
        inputs = session.training_set.original(0, 64)
        agreed = [network(inputs).argmax(-1) for network in algorithm.network]
        algorithm.train()
    assert (torch.stack(agreed, -1) == labels).float().mean() > 0.8, "of the networks just before the step"
    session.update(3)
    assert torch.equal(algorithm.selected, selected), "until the next selection"


def test_crosel_gives_zero_gradients_where_nothing_counts() -> None:
    """With nothing selected, or everything, the terms stay in the graph, so that Adam counts the step."""
    candidates = torch.ones(4, 3, dtype=torch.bool)
    views = torch.randn(4, 2, dtype=torch.float64)
    for ratio in (0.0, 1.0):
        algorithm = build("CroSel", candidates, warm_up=0, batch_size=4, lambda_cr=2.0)
        answer(algorithm)
        algorithm.ratio.fill_(ratio)
        algorithm.selected.fill_(bool(ratio))
        batch = batch_of(candidates, views, second=batch_of(candidates, views))
        logged = algorithm.update(batch)
        assert all(parameter.grad is not None for parameter in algorithm.network.parameters())
        assert (float(logged["loss_sel"]) == 0) == (ratio == 0)
        expected = logged["loss_sel"] if ratio else 2 * logged["loss_mix"]
        torch.testing.assert_close(logged["loss"], expected)


def test_crosel_says_what_it_lacks() -> None:
    candidates = torch.ones(4, 3, dtype=torch.bool)
    views = torch.zeros(4, 2, dtype=torch.float64)
    algorithm = build("CroSel", candidates, batch_size=4)
    algorithm.update(batch_of(candidates, views))
    with pytest.raises(RuntimeError, match="attach_inputs"):
        algorithm.update(batch_of(candidates, views))
    with pytest.raises(ValueError, match="second batch"):
        build("CroSel", candidates, warm_up=0).update(batch_of(candidates, views))
