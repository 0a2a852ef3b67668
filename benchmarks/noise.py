"""The noisy methods where the true label is often missing: Digits, flip rate 0.4, true labels dropped.

    python benchmarks/noise.py                      5 splits, 3,000 steps; about an hour on two cores
    python benchmarks/noise.py --report_only        the page from the records that are there

Settings are those of the specification's functional check: each mechanism on and off, true noise rate given,
schedules reached within the run. The runs lie in runs/noise.
"""

import argparse
import statistics
from collections.abc import Mapping

import torch

from experiments import (
    Figures,
    Setting,
    add_options,
    carry_out,
    name_diverged,
    render_command,
    render_table,
    summarise,
    summarise_accuracy,
    write_page,
)
from plench.data import CandidateSpec, draw_candidates, split_dataset
from plench.training.run import TrainingRun

DROPPED = 0.29
STEPS = 3000
CANDIDATES = CandidateSpec("fps", fps_rate=0.4, drop_true_rate=DROPPED)
NEVER = 10**6

FREDIS = {"change_size": 100, "times": 2, "inc": 0.01, "dec": 0.01}
PICO_PLUS = {"prot_start": 100, "knn_start": 500}
# Label, algorithm, what differs from the defaults.
ROWS = [
    ("PRODEN", "PRODEN", {}),
    ("PiCO", "PiCO", {}),
    ("FREDIS, no correction", "FREDIS", {**FREDIS, "update_interval": NEVER}),
    ("FREDIS", "FREDIS", {**FREDIS, "update_interval": 20}),
    ("ALIM, noise_rate 0", "ALIM", {"noise_rate": 0.0}),
    ("ALIM, true noise_rate", "ALIM", {"noise_rate": DROPPED, "start_epoch": 40}),
    ("PiCO_plus, pure_ratio 1", "PiCO_plus", {**PICO_PLUS, "pure_ratio": 1.0}),
    ("PiCO_plus, pure_ratio 0.6", "PiCO_plus", {**PICO_PLUS, "pure_ratio": 0.6}),
]


def inspect(run: TrainingRun) -> Mapping[str, float]:
    """Compare the candidate sets and flags that the algorithm ends with with the true labels."""
    config = run.config
    dataset = draw_candidates(run.dataset, config.candidates, config.trial_seed)
    index = split_dataset(dataset, config.trial_seed).train
    assert dataset.labels is not None
    labels = torch.from_numpy(dataset.labels[index])
    rows = torch.arange(len(labels))
    given = torch.from_numpy(dataset.candidates[index])[rows, labels]
    found = {"noise": 1 - given.float().mean().item()}
    state = dict(run.algorithm.named_buffers())
    if "candidates" in state:
        found["noise_after"] = 1 - state["candidates"][rows, labels].float().mean().item()
    if "reliable" in state:
        reliable = state["reliable"]
        for name, chosen in (("right_reliable", reliable), ("right_unreliable", ~reliable)):
            if chosen.any():
                found[name] = given[chosen].float().mean().item()
    return found


def compare(figures: list[Figures | None], baseline: list[Figures | None]) -> str:
    """Say how far a row is above the first one, split by split."""
    pairs = zip(figures, baseline, strict=True)
    gains = [
        each.accuracy - other.accuracy for each, other in pairs if each is not None and other is not None
    ]
    if not gains or figures is baseline:
        return "–"
    won = sum(gain > 0 for gain in gains)
    return f"{statistics.mean(gains):+.1f}, above on {won} of {len(gains)} splits"


def describe(figures: list[Figures | None]) -> str:
    """Say in words what was seen beside the accuracy."""
    done = [each for each in figures if each is not None]

    def mean_of(name: str, where: str) -> str | None:
        values = [100 * getattr(each, where)[name] for each in done if name in getattr(each, where)]
        return summarise(values) if values else None

    parts = []
    if (noise := mean_of("noise_after", "inspected")) is not None:
        parts.append(f"noise of the sets at the end {noise} %")
    if (share := mean_of("right_reliable", "inspected")) is not None:
        parts.append(f"sets of reliable examples right: {share} %")
    if (share := mean_of("right_unreliable", "inspected")) is not None:
        parts.append(f"of the others {share} %")
    importance = [each.logged["importance"] for each in done if "importance" in each.logged]
    if importance:
        parts.append(f"λ at the end {summarise(importance, 2)}")
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, "noise", trials=5)
    options = parser.parse_args()
    settings = [
        Setting(label, algorithm, "Digits_FPS", STEPS, hparams, CANDIDATES)
        for label, algorithm, hparams in ROWS
    ]
    figures = carry_out(settings, options, inspect)
    rows = [
        [setting.label, summarise_accuracy(found), compare(found, figures[0]), describe(found)]
        for setting, found in zip(settings, figures, strict=True)
    ]
    noise = [100 * each.inspected["noise"] for each in figures[0] if each and "noise" in each.inspected]
    write_page(
        "noise",
        [
            "# Where the true label is often missing",
            render_command("noise", parser, options),
            f"Digits_FPS with flip rate 0.4 and true labels dropped at rate {DROPPED} (measured on the "
            f"training splits: {summarise(noise)} %), {STEPS:,} steps, batch 128, MLP, {options.trials} "
            "splits, other hyperparameters at their defaults. Percent of the test split after the last step, "
            "mean ± sample standard deviation. Within each pair of rows only the named switch differs. The "
            "digits are tabular here: all views are one tensor.",
            "The first row of each pair is the method without its answer to noise (FREDIS uncorrected, "
            "the others with noise rate 0); the second row is the method. Why FREDIS gains "
            "little here: [fredis_views.md](fredis_views.md).",
            name_diverged(settings, options),
            render_table(["run", "test accuracy", "gain over PRODEN", "at the end of training"], rows),
        ],
    )


if __name__ == "__main__":
    main()
