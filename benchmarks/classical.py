"""Classical methods beside four deep ones under the whole protocol; writes docs/results/classical.md.

    python benchmarks/classical.py                  20 configurations × 5 splits; most of a day on one core
    python benchmarks/classical.py --report_only    the page from the records that are there

The runs are a sweep in runs/classical: the same command continues it, and `plench sweep status` and `plench
sweep plan --output_dir runs/classical` tell how far it is and what the rest will take. Finished runs are also
kept beside the page, in classical.parquet: what is complete there is not run again on another machine. Deep
methods are trained as fleets. The order is that in which the page of an unfinished sweep says most: see
STAGES. A split counts for a method once all of its configurations are there.
"""

import argparse
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import (
    RESULTS,
    keep_finished,
    pair_up,
    read_kept,
    real_data_dir,
    render_table,
    summarise,
    write_page,
)
from plench.bench.fleet import time_alone
from plench.bench.step import build_run
from plench.criteria import criteria
from plench.errors import DataError
from plench.report.results import Results, read_results
from plench.runs import Run
from plench.runs.select import Cell
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.sweeps.engines.local import LocalEngine
from plench.sweeps.launch import launch_sweep
from plench.sweeps.progress import watch_sweep
from plench.training.environment import compute_threads, flush_denormals
from plench.version import PROTOCOL_VERSION

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

CHEAP = ("CLPL", "PL_KNN", "IPAL", "PL_ECOC", *ANSWERS, "ET_AVG")  # seconds a run at most
DEAR = ("LR_EM", "RF_AVG", "ET_EM", "RF_EM")
BY_COST = ("Lost", "Music_Crowd", "MSRCv2", "Birdsong", "LabelMe_Crowd")
# What is run after what: what is cheap, everywhere; then, dataset by dataset, the deep methods, which are
# most of the cost, and the dear ones, one after another, so that some are complete as early as can be.
STAGES = (
    *((dataset, CHEAP) for dataset in BY_COST),
    *((dataset, methods) for dataset in BY_COST for methods in (DEEP, *((name,) for name in DEAR))),
)


def plan(kept: Iterable[Run]) -> SweepSpec | None:
    """Return what is to be run, in the order in which unfinished results are of most use; None if nothing."""
    places = {
        (run.experiment.dataset, run.experiment.algorithm, run.trial_seed, run.hparams_seed)
        for run in kept
        if run.info["protocol"] == PROTOCOL_VERSION
    }
    there = Counter(place[:2] for place in places)
    complete = {pair for pair, runs in there.items() if runs == N_CONFIGURATIONS * N_SPLITS}
    grids = []
    for dataset, methods in STAGES:
        given = [name for name in methods if name in (*DATASETS[dataset], *DEEP)]
        left = tuple(name for name in given if (dataset, name) not in complete)
        if left:
            grids.append(
                Grid(
                    left,
                    (dataset,),
                    n_hparams=N_CONFIGURATIONS,
                    n_trials=N_SPLITS,
                    steps=STEPS,
                    skip_model_save=True,
                )
            )
    return SweepSpec(tuple(grids)) if grids else None


@dataclass(frozen=True)
class Row:
    """What is there of a method on a dataset: its cells by criterion, and the splits that are complete."""

    algorithm: str
    cells: Mapping[str, Cell]
    runs: Sequence[Run]
    splits: frozenset[int]

    def by_split(self, criterion: str, splits: Iterable[int]) -> dict[int, float]:
        """Return the test accuracy in percent of what a criterion chooses on each of these splits."""
        chosen = {choice.trial_seed: choice.test_acc for choice in self.cells[criterion].choices}
        there = ((split, chosen.get(split)) for split in sorted(splits))
        return {split: 100 * accuracy for split, accuracy in there if accuracy is not None}

    def accuracies(self, criterion: str, splits: Iterable[int]) -> list[float]:
        """Return the same without the splits."""
        return list(self.by_split(criterion, splits).values())

    def seconds(self) -> str:
        """Return the median over configurations of the seconds that the least disturbed split took.

        Only where a split is complete: the first few configurations are no fair sample.
        """
        taken: dict[int, list[float]] = {}
        for run in self.runs:
            if run.fleet_size == 1:
                times = run.info["timings"]
                taken.setdefault(run.hparams_seed, []).append(
                    times["training_seconds"] + times["evaluation_seconds"]
                )
        return f"{statistics.median(map(min, taken.values())):.1f}" if taken and self.splits else "–"


def time_deep(algorithm: str, dataset: str, data_dir: Path | None) -> str:
    """Return the seconds that a single run with defaults would take, from the least of some stretches.

    The runs of the page are trained as one, and their own times say nothing of a run.
    """
    with compute_threads(1), flush_denormals():
        try:
            run = build_run(algorithm, dataset, data_dir, {})
        except DataError:  # the records are there, the data need not be
            return "–"
        run.choose_step()
        milliseconds = min(time_alone(run, 200) for _ in range(10))
    return f"{STEPS * milliseconds / 1000:.1f}"


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
            name = experiment.algorithm  # that of the row may say more
            rows[setting.dataset][name] = Row(name, found, runs, splits)
    return rows


def say_what_came_out(rows: Mapping[str, Mapping[str, Row]]) -> str:
    """Return what is known: the best classical method beside the best deep one, dataset by dataset."""
    beside, alone = [], []
    verdicts: dict[str, list[str]] = {"ahead of": [], "level with": [], "behind": []}
    for dataset, classical in DATASETS.items():
        there = {name: row for name, row in rows[dataset].items() if row.splits and name not in ANSWERS}
        simple = [name for name in classical if name in there]
        deep = [name for name in DEEP if name in there]
        if len(deep) < len(DEEP):
            deep = []
        parts = [there[name].splits for name in deep or simple]
        splits = frozenset.intersection(*parts) if parts else frozenset()
        simple = [name for name in simple if there[name].splits >= splits]
        if not simple or not splits:
            continue
        first, others = lead(there, simple, splits)
        without = [name for name in classical if name not in (*simple, *ANSWERS)]
        lacking = f", not yet there: {', '.join(without)}" if without else ""
        about = f"{count(len(splits), 'split')}{lacking}"
        if deep:
            best, of_deep = (rank(there, names, splits)[0] for names in (simple, deep))
            middle, half = compare_by_cr(there[best], there[of_deep], splits)
            verdict = "level with" if not abs(middle) > half else "ahead of" if middle > 0 else "behind"
            verdicts[verdict].append(dataset)
            apart = show_interval(middle, half)
            beside.append(f"{first} against {lead(there, deep, splits)[0]} on {dataset} ({apart}; {about})")
        else:
            alone.append(f"{first}{f' before {others}' if others else ''} on {dataset} ({about})")
    outcomes = [f"{verdict} it on {join_names(names)}" for verdict, names in verdicts.items() if names]
    against = (
        "Beside the best of four deep methods the best classical one, both tuned and chosen by CR without "
        f"true labels, is {', '.join(outcomes)}; level means that the noise of the splits hides any "
        "difference. Test accuracy of the one against the other (in brackets their difference over the "
        "splits in pairs, with its 95 % interval as if splits were independent): "
        f"{'; '.join(beside)}."
    )
    among = f"Among classical methods alone, chosen by CR, without true labels: {'; '.join(alone)}."
    unknown = "No dataset has yet a split that all four deep methods have completed: nothing is said on them."
    return " ".join(
        [*([against] if beside else []), *([among] if alone else []), *([] if beside else [unknown])]
    )


def mean_by_cr(row: Row, splits: Iterable[int]) -> float:
    """Return the mean accuracy on these splits of what CR chooses."""
    return statistics.mean(row.accuracies("CR", splits))


def rank(rows: Mapping[str, Row], names: Sequence[str], splits: Iterable[int]) -> list[str]:
    """Return methods by their mean accuracy by CR on these splits, the best first."""
    return sorted(names, key=lambda name: mean_by_cr(rows[name], splits), reverse=True)


def lead(rows: Mapping[str, Row], names: Sequence[str], splits: Iterable[int]) -> tuple[str, str]:
    """Return the best method with its mean accuracy by CR on these splits, and the second if there is one."""
    said = [f"{mean_by_cr(rows[name], splits):.1f} ({name})" for name in rank(rows, names, splits)]
    return said[0], said[1] if len(said) > 1 else ""


def compare_by_cr(row: Row, other: Row, splits: Iterable[int]) -> tuple[float, float]:
    """Return the mean difference by CR over splits in pairs, and half of its interval (infinite of one)."""
    mine, theirs = (each.by_split("CR", splits) for each in (row, other))
    apart = [mine[split] - theirs[split] for split in mine.keys() & theirs.keys()]
    middle, half = pair_up(apart)
    return middle, half if len(apart) > 1 else math.inf


def show_interval(middle: float, half: float) -> str:
    """Return a mean with its interval, where it has one."""
    if not math.isfinite(half):
        return f"{middle:+.1f}".replace("-", "−")
    return f"{middle:+.1f}, {middle - half:+.1f} to {middle + half:+.1f}".replace("-", "−")


def join_names(names: Sequence[str]) -> str:
    """Return names as a sentence lists them."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


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


def name_commits(rows: Mapping[str, Mapping[str, Row]]) -> str:
    """Return the commits at which the runs were made, with their numbers."""
    runs = [run for methods in rows.values() for row in methods.values() for run in row.runs]
    made = Counter(str(run.info.get("commit") or "no commit")[:7] for run in runs)
    return ", ".join(f"{commit} ({count(number, 'run')})" for commit, number in sorted(made.items()))


def render_dataset(dataset: str, rows: Mapping[str, Row], data_dir: Path | None) -> str:
    """Return the table of a dataset: accuracies by criterion, complete splits, seconds of a run."""
    table = []
    for algorithm in (*DATASETS[dataset], *DEEP):
        row = rows.get(algorithm)
        if row is None:
            table.append([algorithm, "0", *["–"] * (len(criteria) + 1)])
            continue
        note = " (uses answers)" if algorithm in ANSWERS else ""
        table.append(
            [
                algorithm + note,
                str(len(row.splits)),
                *(summarise(row.accuracies(name, row.splits)) for name in criteria),
                time_deep(algorithm, dataset, data_dir)
                if algorithm in DEEP and row.splits
                else row.seconds(),
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
    spec = plan(read_kept("classical").values())
    if spec is not None and not options.report_only:
        with watch_sweep() as callback:
            launch_sweep(
                spec,
                options.output_dir,
                data_dir=options.data_dir,
                engine=LocalEngine(options.workers),
                callback=callback,
            )
    keep_finished("classical", options.output_dir)
    rows = read_rows(read_results(RESULTS / "classical.parquet"))
    write_page(
        "classical",
        [
            "# Classical methods under the paper's protocol",
            say_what_came_out(rows),
            say_how_much(rows),
            "Written by `python benchmarks/classical.py` from the records of its sweep, made at "
            f"{name_commits(rows)}; golden runs hold that their numbers are the same. The records are in "
            "[classical.parquet](classical.parquet): `plench collect docs/results/classical.parquet`.",
            "Percent of the test split: mean ± sample standard deviation over the splits on which all "
            f"{N_CONFIGURATIONS} configurations of the method are finished, of the checkpoint and "
            f"configuration that each criterion chooses. The deep methods train {STEPS:,} steps, the others "
            "have their rounds; s: seconds of a run, evaluations included, by the clock on the wall: median "
            "over the configurations of the split that took least, since the machine had much other work. "
            "Deep methods are trained as fleets, several runs as one, which tells nothing of the time of a "
            "run: theirs is that of as many steps of a single run with defaults, from the least of ten "
            "stretches, without evaluations. Which method is the best of its kind "
            "was seen on these very test splits, so that both sides of a comparison are a little "
            "optimistic; a figure of one split has no spread and decides nothing.",
            *(
                render_dataset(dataset, rows[dataset], options.data_dir)
                for dataset in DATASETS
                if rows[dataset]
            ),
        ],
    )


if __name__ == "__main__":
    main()
