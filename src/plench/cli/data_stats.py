"""`plench data stats`: what the candidate sets of a dataset are like, in numbers and as a figure."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plench.cli.options import (
    CANDIDATE_SETTINGS,
    add_settings,
    add_width_option,
    read_candidates,
    settings_of,
)
from plench.data import draw_candidates
from plench.data.sources import find_source, load_dataset
from plench.report.dataset_stats import (
    CandidateStats,
    describe_candidates,
    draw_dataset,
    measure_annotator_noise,
)
from plench.report.drawing import check_figure, figure_style, save_figure
from plench.text import clean

if TYPE_CHECKING:
    import numpy as np

BAR_WIDTH = 40


def add_stats_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `stats` to the commands of `plench data`."""
    parser = commands.add_parser("stats", help="set sizes, noise, flipping probabilities, ambiguity degree")
    parser.add_argument("name", metavar="NAME", help="a dataset, in any spelling (`plench list datasets`)")
    parser.add_argument("--data-dir", help="folder of the data files; built-in datasets need none")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="also draw: FILE.svg, FILE.pdf or FILE.png"
    )
    add_width_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser, ("trial_seed", *CANDIDATE_SETTINGS))
    parser.set_defaults(run=show_stats)


def show_stats(args: argparse.Namespace) -> int:
    """Print the statistics of a dataset's candidate sets and draw them where a file is named."""
    source = find_source(args.name)
    loaded = load_dataset(args.name, args.data_dir)
    dataset = draw_candidates(loaded, read_candidates(args, loaded.card), settings_of(args).trial_seed)
    stats = describe_candidates(dataset.candidates, dataset.labels, dataset.class_names)
    noise = None
    single = dataset.answers
    if single is None and source.annotations is not None:
        folder = None if args.data_dir is None else Path(args.data_dir)
        single = source.annotations(folder, dataset.n_examples)
    if single is not None and dataset.labels is not None:
        contains = single.sets[range(len(single.sets)), dataset.labels[single.item]]
        noise = measure_annotator_noise(single.item, contains)
    if args.output is not None:
        _draw(args, dataset.card.name, stats, noise)
    content = as_json(dataset.card.name, stats, noise)
    if dataset.class_names is not None:
        content["class_names"] = list(dataset.class_names)
    print(json.dumps(content, indent=2) if args.json else format_stats(content))
    return 0


def _draw(args: argparse.Namespace, name: str, stats: CandidateStats, noise: "np.ndarray | None") -> None:
    check_figure(args.output, args.width)
    with figure_style():
        save_figure(draw_dataset(name, stats, noise, args.width), args.output)


def as_json(name: str, stats: CandidateStats, noise: "np.ndarray | None") -> dict[str, Any]:
    """Return the statistics as plain values. A flipping row without examples is null."""
    flipping = None
    if stats.flipping is not None:
        flipping = [None if row[0] != row[0] else [float(p) for p in row] for row in stats.flipping]
    return {
        "dataset": name,
        "examples": stats.n_examples,
        "classes": stats.n_classes,
        "mean_set_size": stats.mean_size,
        "set_sizes": {size: int(count) for size, count in enumerate(stats.size_counts) if count},
        "noise_rate": stats.noise_rate,
        "ambiguity_degree": stats.ambiguity_degree,
        "ambiguous_pair": None if stats.ambiguous_pair is None else list(stats.ambiguous_pair),
        "candidates_by_class": [int(count) for count in stats.candidate_counts],
        "labels_by_class": None if stats.label_counts is None else [int(n) for n in stats.label_counts],
        "flipping": flipping,
        "noise_by_annotators": None if noise is None else [float(rate) for rate in noise],
    }


def format_stats(content: dict[str, Any]) -> str:
    """Return the statistics as text."""
    lines = [
        f"{content['dataset']}: {content['examples']:,} examples, {content['classes']:,} classes",
        f"  mean set size     {content['mean_set_size']:.2f}",
    ]
    if content["noise_rate"] is None:
        lines.append("  noise rate        unknown (no true labels)")
    else:
        lines.append(f"  noise rate        {content['noise_rate']:.2%}")
    if content["ambiguous_pair"] is not None:
        first, second = content["ambiguous_pair"]
        number = content["labels_by_class"][first]
        lines.append(
            f"  ambiguity degree  {content['ambiguity_degree']:.4f}: the largest p(j ∈ S | y = i) off the "
            f"diagonal, at i = {first} ({number:,} examples), j = {second}"
        )
    if content["noise_by_annotators"]:
        shown = ", ".join(f"{rate:.2%}" for rate in content["noise_by_annotators"])
        lines.append(f"  noise rate of 1, 2, … annotators' sets joined: {shown}")
    lines += ["  set sizes", *format_histogram(content["set_sizes"])]
    labels = content["labels_by_class"]
    header = "  class   candidates" + ("" if labels is None else "   true labels")
    lines.append(header)
    names = content.get("class_names")
    for number, count in enumerate(content["candidates_by_class"]):
        truth = "" if labels is None else f" {labels[number]:>13,}"
        named = "" if names is None else f"   {clean(names[number])}"
        lines.append(f"  {number:>5} {count:>12,}{truth}{named}")
    return "\n".join(lines)


def format_histogram(set_sizes: dict[int, int]) -> list[str]:
    """Return one line per set size: the size, how many sets have it, and a bar."""
    largest = max(set_sizes.values())
    return [
        f"  {size:>6} {count:>8,} {'#' * max(1, round(BAR_WIDTH * count / largest))}"
        for size, count in set_sizes.items()
    ]
