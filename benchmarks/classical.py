"""Classical methods beside four deep ones under the whole protocol; writes docs/results/classical.md.

    python benchmarks/classical.py                  20 configurations × 5 splits; most of a day on one core
    python benchmarks/classical.py --report_only    the page from the records that are there

The runs are a sweep in runs/classical: the same command continues it, and `plench sweep status` and `plench
sweep plan --output_dir runs/classical` tell how far it is and what the rest will take. Deep methods are
trained as fleets. The order is that in which the page of an unfinished sweep says most: see STAGES. A split
counts for a method once all of its configurations are there.
"""

import argparse
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import real_data_dir, render_table, summarise, write_page
from plench.criteria import criteria
from plench.report.results import Results, read_results
from plench.selection import Cell
from plench.storage import Run
from plench.sweeps import Grid, LocalEngine, SweepSpec, launch_sweep, read_fleet, watch_sweep

CLASSICAL = ("LR_EM", "CLPL", "PL_KNN", "IPAL", "PL_ECOC", "ET_AVG", "RF_AVG", "ET_EM", "RF_EM")
ANSWERS = ("MV_LR", "DS_LR")
DEEP = ("PRODEN", "CC", "POP", "CRDPLL")
DATASETS: Mapping[str, tuple[str, ...]] = {
    "Lost": CLASSICAL,
    "MSRCv2": CLASSICAL,
    "Birdsong": CLASSICAL,
    "LabelMe_Crowd": (*CLASSICAL, *ANSWERS),
    "Music_Crowd": (*CLASSICAL, *ANSWERS),
}
N_CONFIGURATIONS, N_SPLITS = 20, 5
STEPS = 10_000  # the paper's for tables; fitted methods have their rounds instead

CHEAP = ("CLPL", "PL_KNN", "IPAL", "PL_ECOC", *ANSWERS, "LR_EM", "ET_AVG")  # seconds a run
DEAR = ("RF_AVG", "ET_EM", "RF_EM")
FIRST, *OTHERS = DATASETS
# What is run after what: one dataset with the deep methods, what is cheap on the others, then the rest.
STAGES = (
    ((FIRST,), CHEAP),
    ((FIRST,), DEEP),
    (OTHERS, CHEAP),
    ((FIRST,), DEAR),
    *(((dataset,), methods) for dataset in OTHERS for methods in (DEEP, DEAR)),
)


def plan() -> SweepSpec:
    """Return what is to be run, in the order in which unfinished results are of most use."""
    return SweepSpec(
        tuple(
            Grid(
                group,
                (dataset,),
                n_hparams=N_CONFIGURATIONS,
                n_trials=N_SPLITS,
                steps=STEPS,
                skip_model_save=True,
            )
            for datasets, methods in STAGES
            for dataset in datasets
            # Dear methods one after another, so that some are complete as early as can be.
            for group in (
                [(name,) for name in methods] if methods == DEAR else [methods_of(dataset, methods)]
            )
        )
    )


def methods_of(dataset: str, methods: Sequence[str]) -> tuple[str, ...]:
    """Return those of some methods that a dataset is given to."""
    return tuple(name for name in methods if name in (*DATASETS[dataset], *DEEP))


@dataclass(frozen=True)
class Row:
    """What is there of a method on a dataset: its cells by criterion, and the splits that are complete."""

    algorithm: str
    cells: Mapping[str, Cell]
    runs: Sequence[Run]
    splits: frozenset[int]

    def accuracies(self, criterion: str, splits: Iterable[int]) -> list[float]:
        """Return the test accuracies in percent of what a criterion chooses on these splits."""
        chosen = {choice.trial_seed: choice.test_acc for choice in self.cells[criterion].choices}
        return [100 * accuracy for split in sorted(splits) if (accuracy := chosen.get(split)) is not None]


def read_rows(results: Results) -> dict[str, dict[str, Row]]:
    """Return what there is, by dataset and algorithm."""
    board = results.board
    rows: dict[str, dict[str, Row]] = {dataset: {} for dataset in DATASETS}
    for setting in board.settings:
        for algorithm in board.algorithms:
            cells = {c.name: board.cell(setting, algorithm, c) for c in board.criteria}
            found = {name: cell for name, cell in cells.items() if cell is not None}
            if not found:
                continue
            experiment = next(iter(found.values())).experiment
            runs = [run for run in results.runs if run.experiment == experiment and run.finished]
            done = [run.trial_seed for run in runs]
            splits = frozenset(split for split in set(done) if done.count(split) == N_CONFIGURATIONS)
            rows[setting.dataset][algorithm] = Row(algorithm, found, runs, splits)
    return rows


def say_what_came_out(rows: Mapping[str, Mapping[str, Row]]) -> str:
    """Return the sentence on the best classical method beside the best deep one, dataset by dataset."""
    parts = []
    for dataset, classical in DATASETS.items():
        there = rows[dataset]
        ranked = [name for name in (*classical, *DEEP) if name not in ANSWERS]
        shared = frozenset.intersection(
            *(there[name].splits if name in there else frozenset() for name in ranked)
        )
        if not shared:
            continue
        means = {name: statistics.mean(there[name].accuracies("CR", shared)) for name in ranked}
        simple = max((name for name in ranked if name not in DEEP), key=means.__getitem__)
        deep = max(DEEP, key=means.__getitem__)
        parts.append(
            f"{means[simple]:.1f} ({simple}) against {means[deep]:.1f} ({deep}) on {dataset} "
            f"({count(len(shared), 'split')})"
        )
    if not parts:
        return "No dataset has yet a split that all methods have completed, so that nothing is compared."
    return (
        "Chosen by CR, without true labels, the best of nine classical methods reaches, beside the best of "
        f"four deep ones: {'; '.join(parts)}."
    )


def count(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def say_how_much(rows: Mapping[str, Mapping[str, Row]]) -> str:
    """Say how many of the planned runs are there, and what is missing of which method."""
    planned = found = 0
    missing = []
    for dataset, classical in DATASETS.items():
        lacking = []
        for algorithm in (*classical, *DEEP):
            n = len(rows[dataset][algorithm].runs) if algorithm in rows[dataset] else 0
            planned += N_CONFIGURATIONS * N_SPLITS
            found += n
            if n < N_CONFIGURATIONS * N_SPLITS:
                lacking.append(f"{algorithm} {N_CONFIGURATIONS * N_SPLITS - n}")
        if lacking:
            missing.append(
                f"- {dataset}: {', '.join(lacking) if rows[dataset] else 'all runs of all methods'}"
            )
    if not missing:
        return f"The plan is complete: {count(planned, 'run')}."
    return (
        f"**Unfinished**: {found:,} of the {planned:,} planned runs are there ({found / planned:.0%}). "
        "Runs that are missing:\n\n" + "\n".join(missing)
    )


def render_dataset(dataset: str, rows: Mapping[str, Row]) -> str:
    """Return the table of a dataset: accuracies by criterion, complete splits, seconds of a run."""
    table = []
    for algorithm in (*DATASETS[dataset], *DEEP):
        row = rows.get(algorithm)
        if row is None:
            table.append([algorithm, "0", *["–"] * (len(criteria) + 1)])
            continue
        seconds = [run.info["timings"]["training_seconds"] for run in row.runs]
        note = " (uses answers)" if algorithm in ANSWERS else ""
        table.append(
            [
                algorithm + note,
                str(len(row.splits)),
                *(summarise(row.accuracies(name, row.splits)) for name in criteria),
                f"{statistics.median(seconds):.1f}" if seconds else "–",
            ]
        )
    head = ["method", f"splits of {N_SPLITS}", *(c.title for c in criteria.values()), "s"]
    return f"## {dataset}\n\n" + render_table(head, table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output_dir", type=Path, default=Path("runs") / "classical")
    parser.add_argument("--data_dir", type=Path, default=real_data_dir())
    parser.add_argument("--workers", type=int, default=1, help="processes, one thread each (default 1)")
    parser.add_argument("--report_only", action="store_true", help="run nothing; write the page from records")
    options = parser.parse_args()
    if not options.report_only:
        with watch_sweep() as callback:
            launch_sweep(
                plan(),
                options.output_dir,
                data_dir=options.data_dir,
                engine=LocalEngine(options.workers),
                fleet=read_fleet("auto"),
                callback=callback,
            )
    rows = read_rows(read_results(options.output_dir))
    write_page(
        "classical",
        [
            "# Classical methods under the paper's protocol",
            say_what_came_out(rows),
            say_how_much(rows),
            "Written by `python benchmarks/classical.py` from the records of its sweep.",
            "Percent of the test split: mean ± sample standard deviation over the splits on which all "
            f"{N_CONFIGURATIONS} configurations of the method are finished, of the checkpoint and "
            f"configuration that each criterion chooses. The deep methods train {STEPS:,} steps, the others "
            "have their rounds; s: median seconds of training or fitting of a run by the clock on the wall, "
            "many times what it needs where the machine has other work. Which method is the best of its kind "
            "was seen on these very test splits, so that both sides of a comparison are a little "
            "optimistic; a figure of one split has no spread and decides nothing.",
            *(render_dataset(dataset, rows[dataset]) for dataset in DATASETS if rows[dataset]),
        ],
    )


if __name__ == "__main__":
    main()
