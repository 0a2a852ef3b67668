"""Learning curves on images, from the records of finished runs; writes docs/results/image_curves.md.

    for a in PRODEN CC PiCO PaPi GFWS; do
      plench train -a $a -d PLCIFAR10_Aggregate --data_dir DIR --output_dir runs/images --steps 1500 \
        --checkpoint_freq 250 --hparams '{"batch_size": 128}'
    done
    python benchmarks/image_curves.py runs/images

Where time is short, a smaller network and fewer steps (--hparams '{"batch_size": 128, "model": "CNN"}') on a
page of their own (--page image_curves_short).

With CIFAR-10N's three human labels per image in the format of PLCIFAR10, the sets are their unions.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments import render_table, write_page
from plench.runs import Run, read_runs

COLUMNS = {
    "test accuracy": "test_acc",
    "CR": "val_covering_rate",
    "AA": "val_approximated_acc",
    "OA": "val_accuracy",
}

# For data that are not the public ones.
SUBSTITUTE = (
    "The candidate sets are not those of PLCIFAR10's release but, in its format, the union of the three "
    "human labels that CIFAR-10N has for each image."
)


def describe(run: Run) -> str:
    """Return the heading of a run and the table of its records."""
    info = run.info
    seconds, data = info["timings"], info["dataset"]
    rows = [
        [str(record.step), *(f"{100 * (record.get(key) or 0):.1f}" for key in COLUMNS.values())]
        for record in run.records
    ]
    facts = (
        f"{data['name']} ({data['train_mean_candidates']:.2f} candidates, "
        f"{data['train_noise_rate']:.2%} noise), {run.hparams['model']}, batch {run.hparams['batch_size']}, "
        f"seed {run.seed}: training {seconds['training_seconds']:.0f} s, "
        f"evaluation {seconds['evaluation_seconds']:.0f} s."
    )
    return "\n\n".join([f"## {run.experiment.algorithm}", facts, render_table(["step", *COLUMNS], rows)])


def say_how_short(runs: Sequence[Run]) -> str:
    """Say how much of the protocol's training the runs have."""
    steps = sorted({int(run.info["config"]["steps"]) for run in runs})
    whole = max(int(run.info["dataset"]["default_steps"]) for run in runs)
    made = " and ".join(f"{number:,}" for number in steps)
    return (
        f"These are short runs: {made} steps of the protocol's {whole:,}, so that they show how learning "
        "begins, and not what the methods reach."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--page", default="image_curves", help="name of the page in docs/results")
    options = parser.parse_args()
    folders = options.folders
    runs = [run for folder in folders for run in read_runs(folder) if run.finished]
    write_page(
        options.page,
        [
            "# Learning curves on CIFAR-10 images",
            "Written by `python benchmarks/image_curves.py` from the records of its runs (its text has the "
            "commands). Percent; CR, AA and OA are on the validation split. One split, one seed.",
            say_how_short(runs),
            *([] if all(run.info["dataset"]["verified"] for run in runs) else [SUBSTITUTE]),
            *(describe(run) for run in sorted(runs, key=lambda run: run.experiment.algorithm)),
        ],
    )


if __name__ == "__main__":
    main()
