"""Losses and revisions on (…, R, B, K) equal those of R separate runs, each with its own hyperparameters."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plench.algorithms import algorithms
from tests.conformance.harness import linear
from tests.probe import at_step, batch_of, build, evaluate, stack

R, N, B, K = 4, 14, 7, 5
VIEWS = {"CRDPLL": 2, "FREDIS": 3, "GFWS": 2, "RECORDS": 2, "CEL": 2}
STACKED = [
    *(name for name, entry in algorithms().items() if entry.card.family.startswith("vanilla")),
    *VIEWS,
]
# Hyperparameters that differ among the runs.
DIFFERING: dict[str, dict[str, list[Any]]] = {
    "ABS_GCE": {"q": [0.1, 0.35, 0.7, 1.0]},
    "LWS": {"lw_weight": [1.0, 2.0, 0.0, 0.5]},
    "NN": {"beta": [0.0, 0.5, 0.01, 1.2]},
    "POP": {
        "rollWindow": [1, 2, 3, 5],
        "warm_up": [0, 1, 7, 0],
        "theta": [0.1, 0.35, 0.7, 1.0],
        "inc": [0.0, 0.5, 0.01, 1.2],
    },
    "GFWS": {"entropy_weight": [0.0, 0.1, 0.5, 1.3]},
    "SCARCE": {"prior": ["uniform", "candidates", "candidates", "uniform"]},
    "RECORDS": {"upd_start": [0, 1, 2, 0], "m": [0.9, 0.5, 0.0, 1.0]},
    "FREDIS": {"lam": [1.0, 10.0, 2.0, 0.0], "alpha": [1.0, 0.1, 0.01, 0.5]},
    "CEL": {
        "alpha": [0.1, 0.5, 0.3, 0.0],
        "gamma1": [1.0, 2.0, 0.5, 1.0],
        "beta": [0.5, 1.0, 2.0, 1.0],
        "gamma2": [5.0, 1.0, 2.0, 0.0],
        "embed_dim": [3, 3, 3, 3],
    },
}
# Steps at which revisions do most; with two updates an epoch, epoch 6 ends with step 13.
STEPS = {"POP": (12, 13), "IDGP": (0, 900), "CRDPLL": (0, 700), "RECORDS": (0, 2), "CEL": (0, 700)}


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw_candidates() -> Tensor:
    candidates = draw(R, N, K, seed=1) < 0
    candidates[..., 0] |= ~candidates.any(-1)
    candidates[0, 1] = True  # a row with every label,
    candidates[1, :B] = True  # a run whose batch has nothing else,
    candidates[2, 0] = torch.arange(K) == 2  # and a single candidate
    return candidates


def draw_outputs(name: str, seed: int) -> Any:
    """Return what the passes of R runs give: logits, of several views or of two networks where it is so."""
    if name == "IDGP":
        return 3 * draw(R, B, K, seed=seed), draw(R, B, K, seed=seed + 1)
    if name == "RECORDS":
        return 3 * draw(VIEWS[name], R, B, K, seed=seed), draw(R, 1, K, seed=seed + 1).log_softmax(-1)
    columns = 4 * K if name == "CEL" else K  # logits, and three numbers of each class
    shape = (VIEWS[name], R, B, columns) if name in VIEWS else (R, B, K)
    return 3 * draw(*shape, seed=seed)


def of_run(outputs: Any, r: int) -> Any:
    return (
        tuple(part[..., r, :, :] for part in outputs) if isinstance(outputs, tuple) else outputs[..., r, :, :]
    )


def build_runs(name: str, candidates: Tensor) -> list[Any]:
    runs = []
    for r in range(R):
        own = {key: values[r] for key, values in DIFFERING.get(name, {}).items()}
        run = build(name, candidates[r], batch_size=B, **own)
        run.network = nn.Sequential()  # inputs are logits
        if name == "PC":
            run.most_candidates = K  # a bound that the runs of a stack share
        runs.append(run)
    return runs


@pytest.mark.parametrize("name", STACKED)
def test_stacked_runs_equal_separate_runs(name: str) -> None:
    candidates = draw_candidates()
    runs = build_runs(name, candidates)
    together = stack(runs)
    index = torch.stack([torch.arange(B) + r for r in range(R)])
    index[1] = torch.arange(B)
    given = candidates[torch.arange(R)[:, None], index]
    for seed, step in enumerate(STEPS.get(name, (0, 1))):
        outputs = draw_outputs(name, 10 * seed)
        logits = outputs[0] if name in (*VIEWS, "IDGP") else outputs
        at_step(together, step)
        batch = batch_of(given, logits, index)
        losses, gradient = evaluate(together, outputs, batch)
        together.revise(outputs, batch)
        for r, run in enumerate(runs):
            at_step(run, step)
            alone_batch = batch_of(given[r], of_run(logits, r), index[r])
            alone, alone_gradient = evaluate(run, of_run(outputs, r), alone_batch)
            for key, value in alone.items():
                assert losses[key].shape == (R,)
                torch.testing.assert_close(losses[key][r], value, rtol=1e-12, atol=1e-13)
            if name == "RECORDS":  # no gradient reaches the prior
                assert gradient[1] is alone_gradient[1] is None
                of_logits, alone_gradient = gradient[0], alone_gradient[0]
            else:
                of_logits = gradient
            torch.testing.assert_close(of_run(of_logits, r), alone_gradient, rtol=1e-12, atol=1e-13)
            run.revise(of_run(outputs, r), alone_batch)
            for place, state in run.named_buffers(recurse=False):
                torch.testing.assert_close(getattr(together, place)[r], state, rtol=1e-12, atol=1e-13)
        assert len(losses["loss"].unique()) > 1


def test_the_revisions_compared_do_something() -> None:
    """The runs of POP differ in what the epoch's end does to them."""
    candidates = draw_candidates()
    runs = build_runs("POP", candidates)
    for run, sets in zip(runs, candidates, strict=True):
        at_step(run, 13)
        logits = 3 * draw(B, K, seed=5)
        run.revise(logits, batch_of(sets[:B], logits))
    removed = [int(run.removed) for run in runs]
    assert removed[2] == removed[3] == 0, "before warm_up, and within a window"
    assert removed[0] < removed[1], "by threshold"


class StackedLinear(nn.Module):
    """The linear classifiers of R runs, on features (…, R, B, F)."""

    def __init__(self, weights: Tensor, biases: Tensor) -> None:
        super().__init__()
        self.weights, self.biases = weights, biases

    def forward(self, features: Tensor) -> Tensor:
        return features @ self.weights.mT + self.biases[:, None]


def test_records_moves_the_feature_means_of_stacked_runs() -> None:
    """Each run has its momentum, its mean and its classifier; passes give logits and prior of each."""
    candidates, width = draw_candidates(), 3
    weights, biases = draw(R, K, width, seed=3), draw(R, K, seed=4)
    runs = build_runs("RECORDS", candidates)
    for r, run in enumerate(runs):
        run.network = nn.Sequential(nn.Identity(), linear(weights[r], biases[r]))
        run.feature_mean = draw(width, seed=r)
    together = stack(runs)
    together.network = nn.Sequential(nn.Identity(), StackedLinear(weights, biases))
    features = draw(R, B, width, seed=5)
    logits, prior = together.passes(batch_of(candidates[:, :B], features))
    assert (logits.shape, prior.shape) == ((2, R, B, K), (R, 1, K))
    for r, run in enumerate(runs):
        alone, alone_prior = run.passes(batch_of(candidates[r, :B], features[r]))
        torch.testing.assert_close(logits[:, r], alone, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(prior[r], alone_prior, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(together.feature_mean[r], run.feature_mean, rtol=1e-12, atol=1e-13)
    assert len(together.feature_mean[:, 0].unique()) == R
