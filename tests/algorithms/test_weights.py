"""Weights of candidates: CC's loss, PRODEN's prior, equal weights give back the unweighted method."""

import json

import numpy as np
import torch

from plench.algorithms import find_algorithm
from plench.algorithms.cc import weighted_nll
from plench.algorithms.parts.targets import candidate_nll, uniform_over
from plench.batch import Batch
from tests.conformance.harness import VECTORS

HPARAMS = {"lr": 1e-3, "weight_decay": 0.0, "model": "MLP", "batch_size": 7, "max_steps": 1}


def read_case(name: str):
    path = VECTORS / "classical.json"
    case = next(case for case in json.loads(path.read_text())["cases"] if case["name"] == name)
    given = {key: torch.tensor(value, dtype=torch.float64) for key, value in case["inputs"].items()}
    expected = {key: torch.tensor(value, dtype=torch.float64) for key, value in case["expected"].items()}
    return given, expected


def test_weighted_cc_is_that_of_the_vectors():
    given, expected = read_case("weighted_cc")
    logits = given["z"].requires_grad_()
    weights = given["V"] / given["V"].sum(1, keepdim=True)
    loss = weighted_nll(logits, weights).mean()
    loss.backward()
    assert torch.allclose(loss.detach(), expected["loss"], rtol=1e-9)
    gradient = next(value for key, value in expected.items() if "grad" in key or "dz" in key)
    assert torch.allclose(logits.grad, gradient, rtol=1e-7, atol=1e-10)


def test_weighted_proden_is_that_of_the_vectors():
    given, expected = read_case("weighted_proden")
    weights = given["V"] / given["V"].sum(1, keepdim=True)
    algorithm = build("PRODEN", weights)
    batch = make_batch(weights)
    assert torch.allclose(algorithm.confidence.double(), expected["c0"], atol=1e-6)
    assert torch.allclose(algorithm.loss(given["z"], batch).double(), expected["loss"], atol=1e-5)
    algorithm.revise(given["z"], batch)
    prior = next(value for key, value in expected.items() if "prior" in key)
    assert torch.allclose(algorithm.confidence.double(), prior, atol=1e-6)


def build(name: str, weights: torch.Tensor):
    candidates = (weights > 0).numpy().astype(np.float32)
    algorithm = find_algorithm(name).cls((len(weights), 3), candidates, HPARAMS)
    algorithm.weigh_candidates(weights.float())
    return algorithm


def make_batch(weights: torch.Tensor) -> Batch:
    return Batch(torch.arange(len(weights)), weights > 0, {}, weights=weights)


def test_equal_weights_give_back_the_unweighted_method():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 5, generator=generator, dtype=torch.float64)
    candidates = torch.rand(20, 5, generator=generator) < 0.5
    candidates[:, 2] = True
    equal = uniform_over(candidates).double()
    sizes = candidates.sum(1).log().double()
    assert torch.allclose(weighted_nll(logits, equal), candidate_nll(logits, candidates) + sizes)
    weighted = build("PRODEN", equal)
    plain = find_algorithm("PRODEN").cls((20, 3), candidates.numpy().astype(np.float32), HPARAMS)
    assert torch.allclose(weighted.confidence, plain.confidence)
    weighted.revise(logits, make_batch(equal))
    plain.revise(logits, Batch(torch.arange(20), candidates, {}))
    assert torch.allclose(weighted.confidence, plain.confidence, atol=1e-6)


def test_a_label_without_weight_has_no_gradient_and_none_is_nan():
    logits = torch.zeros(1, 3, requires_grad=True)
    weighted_nll(logits, torch.tensor([[0.25, 0.75, 0.0]])).sum().backward()
    # p − q with q ∝ w·p: equal probabilities leave q = w.
    assert torch.allclose(logits.grad, torch.tensor([[1 / 3 - 0.25, 1 / 3 - 0.75, 1 / 3]]))
