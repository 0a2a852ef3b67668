"""Why FREDIS corrects little on digits without augmentation; writes docs/results/fredis_views.md.

    python benchmarks/fredis_views.py                      5 splits, two or three minutes on one core

The setting is that of noise.py. The second row adds Gaussian noise to the inputs of every view, each view
on its own, as the specification's functional check did.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments import RunStore, load, render_table, summarise, write_page
from noise import CANDIDATES, FREDIS, STEPS, Setting, inspect
from plench.algorithms import find_algorithm
from plench.training.callbacks import NoCallback
from plench.training.environment import compute_threads, flush_denormals
from plench.training.evaluate import evaluate
from plench.training.run import TrainingRun

SIGMAS = (0.0, 0.5)
SETTING = Setting("FREDIS", "FREDIS", "Digits_FPS", STEPS, {**FREDIS, "update_interval": 20}, CANDIDATES)


def add_noise(run: TrainingRun, sigma: float) -> None:
    """Let every view of the run's batches carry Gaussian noise of its own."""
    plain = run.training_set.inputs.views

    def views(
        stored: Any, index: Tensor, names: Sequence[str], generator: torch.Generator
    ) -> dict[str, Tensor]:
        made = plain(stored, index, names, generator)
        return {name: x + sigma * torch.randn(x.shape, generator=generator) for name, x in made.items()}

    run.training_set.inputs.views = views  # type: ignore[method-assign]


def perform(trial: int, sigma: float) -> tuple[list[float], float, float]:
    """Train once; return the shares of arg maxima outside the sets, the noise left, and the test accuracy."""
    config, dataset = SETTING.configure(trial), load(SETTING.dataset, None)
    with tempfile.TemporaryDirectory() as folder, compute_threads(1), flush_denormals():
        store = RunStore(Path(folder))
        run = TrainingRun(config, dataset, find_algorithm("FREDIS"), store, NoCallback(), None)
        run.build()
        if sigma:
            add_noise(run, sigma)
        state = dict(run.algorithm.named_buffers())
        rows = torch.arange(len(run.training_set))
        outside = []
        with run.streams.ambient("algorithm"):
            for step in range(STEPS):
                if step in (STEPS // 10, STEPS // 2, STEPS - 1):
                    top = state["posterior"].argmax(-1)
                    outside.append(100 * (~state["candidates"][rows, top]).float().mean().item())
                run.algorithm.update(run.training_set.next_batch())
        figures = evaluate(run.algorithm, run.data)
        assert figures is not None
        return outside, 100 * inspect(run)["noise_after"], 100 * (figures["test_acc"] or 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5)
    trials = parser.parse_args().trials
    rows = []
    for sigma in SIGMAS:
        found = [perform(trial, sigma) for trial in range(trials)]
        shares = [summarise([outside[i] for outside, _, _ in found]) for i in range(3)]
        noise, accuracy = (summarise([each[i] for each in found]) for i in (1, 2))
        rows.append([f"{sigma:g}", *shares, noise, accuracy])
    head = ["σ of the inputs", *(f"outside at {step}" for step in (STEPS // 10, STEPS // 2, STEPS))]
    write_page(
        "fredis_views",
        [
            "# FREDIS with and without augmentation",
            "Written by `python benchmarks/fredis_views.py`. Noisy digits as in [noise.md](noise.md).",
            "FREDIS adds a label where the most probable class lies outside the set. Without augmentation "
            "the network soon fits its own sets: hardly any training example's most probable class is "
            "outside, so there is nothing left to correct. With noise on the inputs, as in the "
            "specification's functional check, the same code keeps finding such examples and corrects about "
            "half of the missing labels.",
            f"Percent, mean ± sample standard deviation over {trials} splits. Outside: training examples "
            "whose most probable class is not in their set, after so many steps.",
            render_table([*head, "noise of the sets at the end", "test accuracy"], rows),
        ],
    )


if __name__ == "__main__":
    main()
