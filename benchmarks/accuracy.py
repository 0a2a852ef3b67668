"""Every algorithm with default hyperparameters on Digits_FPS, Lost, MSRCv2 and Birdsong; writes docs/results.

    python benchmarks/accuracy.py                      3 splits, 2,000 steps; about half an hour on two cores
    python benchmarks/accuracy.py --report_only        the page from the records that are there

The runs lie in runs/accuracy; the same command continues after an interruption.
"""

import argparse
import statistics

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
from plench.algorithms import algorithms
from plench.algorithms.base import FAMILIES

DATASETS = ("Digits_FPS", "Lost", "MSRCv2", "Birdsong")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, "accuracy", trials=3)
    parser.add_argument("-d", "--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--steps", type=int, default=2000, help="updates of each run (default 2000)")
    options = parser.parse_args()
    trained = [entry for entry in algorithms().values() if entry.card.shared]
    entries = sorted(trained, key=lambda entry: FAMILIES.index(entry.card.family))
    settings = [
        Setting(entry.name, entry.name, name, options.steps) for name in options.datasets for entry in entries
    ]
    figures = dict(zip([(s.label, s.dataset) for s in settings], carry_out(settings, options), strict=True))
    beyond = {
        f"{name}: {notice}"
        for (name, _), found in figures.items()
        for each in found
        if each is not None
        for notice in each.notices
        if "would begin" in notice
    }
    rows = []
    for entry in entries:
        cells = [entry.card.family, entry.name]
        for name in options.datasets:
            found = figures[entry.name, name]
            seconds = [each.seconds for each in found if each is not None]
            cells.append(summarise_accuracy(found))
            cells.append(f"{statistics.mean(seconds):.0f}" if seconds else "–")
        rows.append(cells)
    columns = [part for name in options.datasets for part in (name, "s")]
    write_page(
        "accuracy",
        [
            "# Test accuracy with default hyperparameters",
            render_command("accuracy", parser, options),
            f"Percent of the test split after the last step: mean ± sample standard deviation over the first "
            f"{options.trials} splits; no early stopping, no search. s: mean seconds of training of a run. "
            f"Each run makes {options.steps:,} steps.",
            "These are defaults, not tuned configurations, and the test splits are small: differences within "
            "a standard deviation or two mean nothing. On tabular data there is no augmentation, so methods "
            "that contrast or compare views see one view several times.",
            "GA and NN assume uniform complementary labels. Real candidate sets are far from that, and GA "
            "then takes nearly every step uphill, which its specification foresees: see their pages.",
            "Phases that runs of this length do not reach: " + ("; ".join(sorted(beyond)) or "none") + ".",
            name_diverged(settings, options),
            render_table(["family", "algorithm", *columns], rows),
        ],
    )


if __name__ == "__main__":
    main()
