"""What `plench data info` says of annotators' answers."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plench.data.answers import Answers, describe_answers
from plench.report.dataset_stats import measure_noise_by_answers
from plench.text import clean

LISTED_ANNOTATORS = 10


def summarise_answers(answers: Answers, labels: NDArray[np.int64] | None) -> dict[str, Any]:
    """Return counts, agreement and, with true labels, noise by the number of annotators, as data."""
    stats = asdict(describe_answers(answers))
    names = answers.annotator_names or tuple(
        str(number) for number in range(len(stats["answers_per_annotator"]))
    )
    stats["answers_per_annotator"] = dict(zip(names, stats["answers_per_annotator"], strict=True))
    stats["noise_by_annotators"] = None
    sure = answers.sets.any(1)
    if labels is not None and sure.any():
        contains = answers.sets[sure][np.arange(sure.sum()), labels[answers.item[sure]]]
        rows = measure_noise_by_answers(answers.item[sure], contains)
        stats["noise_by_annotators"] = [
            {"annotators": number, "items": items, "noise_rate": rate} for number, items, rate in rows
        ]
    return stats


def format_answers(stats: dict[str, Any]) -> list[str]:
    """Return the lines of `data info`."""
    unsure = f", {stats['n_unsure']:,} of them unsure" if stats["n_unsure"] else ""
    lines = [f"  answers       {stats['n_answers']:,} of {stats['n_annotators']:,} annotators{unsure}"]
    if stats["agreement"] is not None:
        lines += [
            f"  agreement     {stats['agreement']:.1%} of the pairs of answers to one item are equal",
            f"                {stats['unanimous']:.1%} of the items have equal answers only, "
            f"{stats['common']:.1%} a "
            "class that is in all",
        ]
    lines.append(f"  an item has   {list_counts(stats['answers_per_item'], 'answers', 'items')}")
    lines.append(f"  an answer has {list_counts(stats['set_sizes'], 'labels', 'answers')}")
    by_annotator = sorted(stats["answers_per_annotator"].items(), key=lambda entry: -entry[1])
    shown = ", ".join(f"{clean(name)} {count:,}" for name, count in by_annotator[:LISTED_ANNOTATORS])
    rest = len(by_annotator) - LISTED_ANNOTATORS
    lines.append(f"  annotators    {shown}" + (f" and {rest} more" if rest > 0 else ""))
    if stats["noise_by_annotators"]:
        lines.append("  noise of the union of 1, 2, … annotators")
        lines += [
            f"  {row['annotators']:>6} {row['noise_rate']:>8.2%}  ({row['items']:,} items)"
            for row in stats["noise_by_annotators"]
        ]
    return lines


def list_counts(counts: dict[int, int], what: str, of: str) -> str:
    """Return `1 answers: 3 items, 2 answers: 5 items`, at most ten of them."""
    parts = [f"{number} {what}: {count:,} {of}" for number, count in list(counts.items())[:10]]
    return ", ".join(parts) + (" …" if len(counts) > 10 else "")
