"""What defects of the public benchmark's code cost: ours beside ours with one defect put in.

    python benchmarks/defects.py                      3 splits; about half an hour on two cores
    python benchmarks/defects.py --report_only        the page from the records that are there

The variants are in benchmarks/defective.py. The runs lie in runs/defects.
"""

import argparse
import statistics
from pathlib import Path

from experiments import (
    Setting,
    add_options,
    carry_out,
    name_diverged,
    render_command,
    render_table,
    summarise_accuracy,
    write_page,
)
from plench.data import CandidateSpec

VARIANTS = Path(__file__).parent / "defective.py"
NOISY = CandidateSpec("fps", fps_rate=0.4, drop_true_rate=0.29)
CORRECTING = {"change_size": 100, "inc": 0.01, "dec": 0.01}
SELECTING = {"prot_start": 100, "knn_start": 500, "pure_ratio": 0.6}
# Sound algorithm, variant, the defect, hyperparameters on noisy digits other than the defaults.
DEFECTS = [
    ("ALIM", "StoppedALIM", "the step counter never moves", {"noise_rate": 0.29}),
    ("PiCO_plus", "StoppedPiCOPlus", "the step counter never moves", SELECTING),
    ("FREDIS", "UnusedFREDIS", "corrected sets are read by nothing", CORRECTING),
    ("VALEN", "FrozenVALEN", "the encoder is not trained", {}),
    ("ABLE", "MisreadABLE", "weights from other examples' confidences", {}),
    ("MCL_GCE", "ReversedMCLGCE", "complementary term reversed", {}),
    ("MCL_MSE", "ReversedMCLMSE", "complementary term reversed", {}),
    ("POP", "UndonePOP", "removed candidates come back", {}),
]
# Heading, dataset, candidates (None: the dataset's own), steps.
DATA = [
    ("noisy digits", "Digits_FPS", NOISY, 1500),
    ("MSRCv2", "MSRCv2", None, 1500),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, "defects", trials=3)
    options = parser.parse_args()
    settings = [
        Setting(name, name, dataset, steps, hparams if candidates is NOISY else {}, candidates, sound)
        for _, dataset, candidates, steps in DATA
        for sound, variant, _, hparams in DEFECTS
        for name in (sound, f"{VARIANTS}:{variant}")
    ]
    figures = iter(carry_out(settings, options))
    cells: dict[str, list[str]] = {variant: [] for _, variant, _, _ in DEFECTS}
    for _ in DATA:
        for _, variant, _, _ in DEFECTS:
            ours, theirs = next(figures), next(figures)
            pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a and b]
            cost = statistics.mean(a.accuracy - b.accuracy for a, b in pairs) if pairs else None
            cells[variant] += [summarise_accuracy(ours), summarise_accuracy(theirs)]
            cells[variant].append("–" if cost is None else f"{cost:+.1f}")
    columns = [f"{part}, {heading}" for heading, *_ in DATA for part in ("ours", "with the defect", "gain")]
    rows = [[sound, defect, *cells[variant]] for sound, variant, defect, _ in DEFECTS]
    write_page(
        "defects",
        [
            "# What defects of the public code cost",
            render_command("defects", parser, options),
            "Each algorithm of this package beside the same one with one defect of the public benchmark's "
            "code put in (`benchmarks/defective.py`), all else equal, seeds too. Percent of the test split "
            f"after the last step, mean ± sample standard deviation over {options.trials} splits; gain: mean "
            "difference split by split. A defect may also help on some data. Noisy digits: flip rate 0.4, "
            "true labels dropped at rate 0.29, schedules set so that they are reached; elsewhere default "
            "hyperparameters.",
            name_diverged(settings, options),
            render_table(["algorithm", "defect", *columns], rows),
        ],
    )


if __name__ == "__main__":
    main()
