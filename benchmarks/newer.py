"""The algorithms after the paper with default hyperparameters, beside PRODEN; writes docs/results/newer.md.

    python benchmarks/newer.py                  3 splits, 2,000 steps; about half an hour on two idle cores
    python benchmarks/newer.py --report_only    the page from the records that are there

On tables, and on digits whose training splits were made long-tailed. The runs lie in runs/newer; the same
command continues after an interruption.
"""

import argparse
from collections.abc import Sequence

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

DATASETS = ("Lost", "MSRCv2", "Birdsong")
ALGORITHMS = ("PRODEN", "GFWS", "PaPi", "RECORDS", "SCARCE", "CroSel")
LONG_TAILED = ("PRODEN", "CRDPLL", "GFWS", "RECORDS")
LONG_TAIL_DATA = "Digits_FPS"


def on_tables(datasets: Sequence[str], steps: int) -> list[Setting]:
    """Return the settings of the first table; SCARCE has both of its priors."""
    settings = [Setting(name, name, data, steps) for name in ALGORITHMS for data in datasets]
    prior = {"prior": "candidates"}
    return settings + [
        Setting("SCARCE, prior by candidates", "SCARCE", data, steps, prior) for data in datasets
    ]


def on_long_tails(ratios: Sequence[float], steps: int) -> list[Setting]:
    """Return the settings of the second table."""
    return [
        Setting(name, name, LONG_TAIL_DATA, steps, imbalance=ratio)
        for ratio in ratios
        for name in LONG_TAILED
    ]


def summarise_thirds(figures: Sequence[Figures | None]) -> list[str]:
    """Return the accuracy on many, medium and few."""
    found = [each.thirds for each in figures if each is not None and each.thirds]
    return [summarise([thirds[place] for thirds in found]) for place in range(3)]


def name_splits(trials: int) -> str:
    """Say over which splits figures are taken."""
    if trials == 1:
        return "one split, one run: differences of a few percent mean nothing"
    return f"mean ± sample standard deviation over the first {trials} splits"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, "newer", trials=3)
    parser.add_argument("-d", "--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--ratios", nargs="+", type=float, default=[10.0, 50.0], help="of the long tails")
    parser.add_argument("--steps", type=int, default=2000, help="updates of each run (default 2000)")
    options = parser.parse_args()
    tables, tails = on_tables(options.datasets, options.steps), on_long_tails(options.ratios, options.steps)
    settings = [*tails, *tables]
    figures = dict(zip(settings_keys(settings), carry_out(settings, options), strict=True))
    labels = dict.fromkeys(setting.label for setting in tables)
    table_rows = [
        [label, *(summarise_accuracy(figures[label, data, None]) for data in options.datasets)]
        for label in labels
    ]
    tail_rows = [
        [f"{s.imbalance:g}", s.label, summarise_accuracy(found), *summarise_thirds(found)]
        for s, found in ((s, figures[s.label, s.dataset, s.imbalance]) for s in tails)
    ]
    write_page(
        "newer",
        [
            "# Algorithms after the paper, with default hyperparameters",
            render_command("newer", parser, options),
            f"Percent of the test split after the last of {options.steps:,} steps, "
            f"{name_splits(options.trials)}; no early stopping, no search.",
            "## Tables",
            "RECORDS takes the class prior out of its predictions, and loses where test has the skew of "
            "training, as here. SCARCE's default prior, 1/K, is impossible for rare classes of these data; "
            "its other prior is not. See their pages.",
            render_table(["algorithm", *options.datasets], table_rows),
            "## Long tails",
            f"{LONG_TAIL_DATA} with `--imbalance R`: the training split is long-tailed, test is about "
            "balanced. Many, medium and few are thirds of the classes by number of training examples.",
            render_table(["R", "algorithm", "test accuracy", "many", "medium", "few"], tail_rows),
            name_diverged(settings, options),
        ],
    )


def settings_keys(settings: Sequence[Setting]) -> list[tuple[str, str, float | None]]:
    """Return what tells the settings apart."""
    return [(setting.label, setting.dataset, setting.imbalance) for setting in settings]


if __name__ == "__main__":
    main()
