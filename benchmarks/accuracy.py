"""Every algorithm with default hyperparameters on Digits_FPS, Lost, MSRCv2 and Birdsong; writes docs/results.

    python benchmarks/accuracy.py                      about two hours on two cores
    python benchmarks/accuracy.py --report_only        the page from the records that are there

Algorithms whose runs are trained as one have 10 splits × 5 seeds, the others 3 splits of one seed. The runs
lie in runs/accuracy; the same command continues after an interruption. Finished runs are also kept beside the
page, in accuracy.parquet, and are not made again on another machine.
"""

import argparse
import statistics
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from experiments import (
    Setting,
    add_options,
    find_store,
    keep_finished,
    load,
    pair_up,
    read_kept,
    render_command,
    render_table,
    write_page,
)
from plench.algorithms import AlgorithmEntry, algorithms, find_algorithm
from plench.algorithms.base import FAMILIES
from plench.runs import Run
from plench.training.callbacks import NoCallback
from plench.training.data import prepare_data
from plench.training.environment import choose_device
from plench.training.outcome import RunOutcome
from plench.training.stack_loop import FleetTask, run_fleet

DATASETS = ("Digits_FPS", "Lost", "MSRCv2", "Birdsong")
SEEDS = 5
FEWER_SPLITS = 3  # of algorithms that are trained one run at a time
# Two modes: both groups have this share of the runs or more, their means lie so many points apart, and more
# of the variance is between them than among normal numbers but once in a thousand times.
SHARE, POINTS, CHANCE, DRAWS = 0.15, 2.0, 0.001, 20_000
FEWEST = 20  # runs, to speak of modes
BESIDE = "PRODEN"  # what the others are compared with
WIDE = 3.0  # points of standard deviation by the seed, to be named


@dataclass(frozen=True)
class Place:
    """One run: where it is drawn from."""

    setting: Setting
    split: int
    seed: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, "accuracy", trials=10)
    parser.add_argument("-d", "--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--steps", type=int, default=2000, help="updates of each run (default 2000)")
    options = parser.parse_args()
    trained = [entry for entry in algorithms().values() if entry.card.shared]
    entries = sorted(trained, key=lambda entry: FAMILIES.index(entry.card.family))
    if not options.report_only:
        fleets = plan(entries, options)
        with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
            kept = frozenset(read_kept("accuracy"))
            work = partial(perform, kept=kept, output_dir=options.output_dir, data_dir=options.data_dir)
            for number, said in enumerate(pool.map(work, fleets), 1):
                print(f"{number}/{len(fleets)} {said}", flush=True)
    kept = keep_finished("accuracy", options.output_dir, partial(belongs, steps=parser.get_default("steps")))
    write_report(entries, kept, parser, options)


def belongs(run: Run, steps: int) -> bool:
    """Say whether a run is one of the page: those of a trial with fewer steps are not kept."""
    return run.experiment.details.get("steps") == steps


def count_runs(entry: AlgorithmEntry, options: argparse.Namespace) -> tuple[int, int]:
    """Return how many splits and seeds an algorithm has."""
    return (options.trials, SEEDS) if entry.card.stacked else (min(FEWER_SPLITS, options.trials), 1)


def plan(entries: Sequence[AlgorithmEntry], options: argparse.Namespace) -> list[list[Place]]:
    """Return the runs in fleets, two splits in each, in the order in which an unfinished page says most."""
    fleets = []
    for first in range(0, options.trials, 2):
        for name, entry in product(options.datasets, entries):
            splits, seeds = count_runs(entry, options)
            setting = Setting(entry.name, entry.name, name, options.steps)
            pair = range(first, min(first + 2, splits))
            places = [Place(setting, split, seed) for split, seed in product(pair, range(seeds))]
            fleets += [places] if entry.card.stacked else [[place] for place in places]
    return [fleet for fleet in fleets if fleet]


def perform(places: Sequence[Place], kept: Collection[str], output_dir: Path, data_dir: Path | None) -> str:
    """Carry out runs as one in this process, but for those that are finished or kept."""
    setting = places[0].setting
    entry, dataset = find_algorithm(setting.algorithm), load(setting.dataset, data_dir)
    ended: list[RunOutcome | Exception] = []
    prepared = {}
    tasks = []
    for place in places:
        config = setting.configure(place.split, place.seed)
        store = find_store(config, dataset, output_dir)
        if store.finished or config.run_id(dataset.fingerprint) in kept:
            continue
        if place.split not in prepared:
            prepared[place.split] = prepare_data(dataset, config, choose_device("cpu"))
        data = prepared[place.split]
        tasks.append(FleetTask(config, entry, store, NoCallback(), lambda data=data: data, ended.append))
    if tasks:
        run_fleet(tasks, dataset)
    for outcome in ended:
        if isinstance(outcome, Exception):
            raise outcome
    return f"{setting.label} on {setting.dataset}: {len(tasks)} of {len(places)} trained"


def read_accuracies(
    setting: Setting,
    splits: int,
    seeds: int,
    kept: Mapping[str, Run],
    data_dir: Path | None,
    beyond: set[str],
) -> np.ndarray:
    """Return the test accuracies in percent (splits, seeds) after the last step; NaN where there is none.

    Phases that runs do not reach are added to `beyond`.
    """
    fingerprint = load(setting.dataset, data_dir).fingerprint
    found = np.full((splits, seeds), np.nan)
    for split, seed in product(range(splits), range(seeds)):
        run = kept.get(setting.configure(split, seed).run_id(fingerprint))
        if run is not None and run.status == "done" and run.last_record is not None:
            accuracy = run.last_record.get("test_acc")
            found[split, seed] = np.nan if accuracy is None else 100 * accuracy
            beyond |= {f"{setting.label}: {each}" for each in run.info["notices"] if "would begin" in each}
    return found


def whole_splits(found: np.ndarray) -> np.ndarray:
    """Return the rows whose runs are all there."""
    return found[~np.isnan(found).any(1)]


def show_accuracy(found: np.ndarray) -> str:
    """Return mean ± standard deviation over splits of their means over seeds."""
    means = [float(mean) for mean in whole_splits(found).mean(1)]
    if not means:
        return "–"
    return f"{statistics.mean(means):.1f}" + (f" ± {statistics.stdev(means):.1f}" if len(means) > 1 else "")


def show_parts(found: np.ndarray) -> str:
    """Return the standard deviations that splits and seeds make, from the variances within and between."""
    rows = whole_splits(found)
    if len(rows) < 2 or rows.shape[1] < 2:
        return "–"
    within = variance_by_seed(rows)
    between = max(0.0, float(rows.mean(1).var(ddof=1)) - within / rows.shape[1])
    return f"{between**0.5:.1f} / {within**0.5:.1f}" + (" **two modes**" if find_modes(rows) else "")


def show_difference(found: np.ndarray, beside: np.ndarray) -> str:
    """Return the mean difference over the splits that both have, in pairs, with its 95 % interval."""
    both = min(len(found), len(beside))
    apart = found[:both].mean(1) - beside[:both].mean(1)
    apart = apart[~np.isnan(apart)]
    if len(apart) < 2:
        return "–"
    middle, half = pair_up([float(each) for each in apart])
    # No −0.0: a zero is added to what is rounded.
    mean, low, high = (f"{round(each, 1) + 0.0:+.1f}" for each in (middle, middle - half, middle + half))
    shown = f"{mean} ({low} to {high})".replace("-", "−")
    return f"**{shown}**" if abs(middle) > half else shown


def variance_by_seed(rows: np.ndarray) -> float:
    """Return the mean variance within splits."""
    return float(rows.var(1, ddof=1).mean())


def describe_wide(rows: np.ndarray) -> str | None:
    """Say how far apart runs lie that differ in their seed alone, None where that is little or not known."""
    if len(rows) < 2 or rows.shape[1] < 2 or variance_by_seed(rows) ** 0.5 < WIDE:
        return None
    split = max(rows, key=np.ptp)
    return f"{variance_by_seed(rows) ** 0.5:.1f}; on one split from {split.min():.1f} to {split.max():.1f}"


def find_modes(rows: np.ndarray) -> tuple[float, float] | None:
    """Return the means of two groups of runs if they lie apart, None otherwise.

    The groups are those that leave the least variance within. A split that is easier or harder than the
    others makes no mode: runs are taken relative to their split.
    """
    if rows.size < FEWEST:
        return None
    found = [(*cut_in_two(centred), centred) for centred in centre(rows[None])]
    share, cut, centred = max(found, key=lambda each: float(each[0][0]))
    values = np.sort(centred.ravel()) + float(rows.mean() - centred.mean())
    low, high = (float(part.mean()) for part in np.split(values, cut))
    return (low, high) if high - low > POINTS and share[0] > usual_share(*rows.shape) else None


def centre(rows: np.ndarray) -> list[np.ndarray]:
    """Return tables (T, splits, seeds) less the median of their splits, and less their worst and best run.

    The median of five seeds is of either mode by chance; the extremes of a split nearly always are of one.
    """
    return [rows - of_split(rows, axis=2, keepdims=True) for of_split in (np.median, np.min, np.max)]


def cut_in_two(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, of tables (T, splits, seeds), the share of variance between the best two groups; the cuts."""
    values = np.sort(rows.reshape(len(rows), -1))
    number = values.shape[1]
    least = max(2, round(SHARE * number))
    low = np.arange(least, number - least + 1)
    sums = values.cumsum(1)
    total, below = sums[:, -1:], sums[:, low - 1]
    between = below**2 / low + (total - below) ** 2 / (number - low) - total**2 / number
    whole = (values**2).sum(1) - total[:, 0] ** 2 / number
    return between.max(1) / np.maximum(whole, 1e-12), low[between.argmax(1)]


@cache
def usual_share(splits: int, seeds: int) -> float:
    """Return the share of variance between two groups that normal numbers reach once in a thousand times."""
    drawn = np.random.default_rng(0).normal(size=(DRAWS, splits, seeds))
    shares = [cut_in_two(centred)[0] for centred in centre(drawn)]
    return float(np.quantile(np.max(shares, 0), 1 - CHANCE))


def write_report(
    entries: Sequence[AlgorithmEntry],
    kept: Mapping[str, Run],
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
) -> None:
    """Write the page."""
    rows, parts, modes, wide, fewer = [], [], [], [], []
    tables: dict[str, list[np.ndarray]] = {}
    beyond: set[str] = set()
    for entry in entries:
        splits, seeds = count_runs(entry, options)
        found = [
            read_accuracies(setting, splits, seeds, kept, options.data_dir, beyond)
            for setting in (Setting(entry.name, entry.name, name, options.steps) for name in options.datasets)
        ]
        tables[entry.name] = found
        head = [entry.card.family, entry.name]
        runs = f"{splits} × {seeds}"
        missing = sorted({len(whole_splits(each)) for each in found} - {splits})
        rows.append([*head, runs, *map(show_accuracy, found)])
        if missing:
            fewer.append(f"{entry.name} ({', '.join(map(str, missing))})")
        if seeds > 1:
            parts.append([entry.name, *map(show_parts, found)])
        for name, each in zip(options.datasets, found, strict=True):
            both = find_modes(whole_splits(each))
            if both:
                modes.append(f"{entry.name} on {name} ({both[0]:.1f} and {both[1]:.1f})")
            told = describe_wide(whole_splits(each))
            if told:
                wide.append(f"{entry.name} on {name} ({told})")
    write_page(
        "accuracy",
        [
            "# Test accuracy with default hyperparameters",
            render_command("accuracy", parser, options)
            + " The records are in [accuracy.parquet](accuracy.parquet).",
            "Percent of the test split after the last step: mean ± sample standard deviation over splits, "
            "of means over seeds; no early stopping, no search. "
            f"Each run makes {options.steps:,} steps. Algorithms whose runs can be trained as one, and were, "
            f"have {options.trials} splits × {SEEDS} seeds; the others {FEWER_SPLITS} splits of one seed.",
            "These are defaults, not tuned configurations, and the test splits are small: differences within "
            "a standard deviation or two mean nothing. On tabular data there is no augmentation, so methods "
            "that contrast or compare views see one view several times.",
            "GA and NN assume uniform complementary labels. Real candidate sets are far from that, and GA "
            "then takes nearly every step uphill, which its specification foresees: see their pages.",
            "Phases that runs of this length do not reach: " + ("; ".join(sorted(beyond)) or "none") + ".",
            "Splits with a run that diverged or is not there yet are left out. Fewer splits than planned, on "
            f"some dataset: {'; '.join(fewer) or 'none'}.",
            render_table(["family", "algorithm", "splits × seeds", *options.datasets], rows),
            f"## Beside {BESIDE}",
            f"Difference to {BESIDE} in points over the same splits in pairs, of means over seeds, with its "
            "95 % interval as if splits were independent, which they are not quite; bold where it does not "
            "hold 0. One in twenty of such intervals misses by chance, and those of three splits are wide.",
            render_table(
                [f"less {BESIDE}", *options.datasets],
                [
                    [name, *map(show_difference, found, tables[BESIDE])]
                    for name, found in tables.items()
                    if name != BESIDE
                ],
            ),
            "## Where the spread comes from",
            "Standard deviation in points that the split makes, and that the seed makes (initial weights and "
            "the order of examples): split / seed, from the variances between and within splits.",
            "*Two modes*: relative to their split, the runs fall into two groups, each of "
            f"{SHARE:.0%} of them or more, whose means lie more than {POINTS:.0f} points apart, and more of "
            "the variance is between the groups than normal numbers have but once in a thousand times: "
            f"{'; '.join(modes) or 'none'}.",
            f"One seed tells little where the seed makes {WIDE:.0f} points or more: "
            f"{'; '.join(wide) or 'none'}.",
            render_table(["split / seed", *options.datasets], parts),
        ],
    )


if __name__ == "__main__":
    main()
