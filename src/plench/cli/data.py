"""Check, describe, download or draw a dataset, or turn an annotation tool's export into tables.

examples:
  plench data check animals.csv
  plench data info Digits_USS --trial-seed 1
  plench data download Lost MSRCv2 --data-dir data
  plench data download --suite tabular --data-dir data
  plench data info Lost --data-dir data --pl-type fps --fps-rate 0.5 --json
  plench data views DigitImages -o sheet.png
  plench data stats Lost --data-dir data --output lost.svg
  plench data import export.json -o items.csv --from-name sentiment
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from plench.cli import add_command
from plench.cli.options import (
    CANDIDATE_SETTINGS,
    add_encoder_options,
    add_settings,
    add_width_option,
    check_outputs,
    given_encoders,
    given_settings,
)
from plench.data import (
    CandidateSpec,
    Dataset,
    choose_candidates,
    download_dataset,
    draw_candidates,
    load_dataset,
)
from plench.data.answers import describe_answers
from plench.data.check import Finding, check_dataset, describe_columns
from plench.data.dataset import OWN_TASK
from plench.data.sources import add_encoders, find_source, split_encoders
from plench.data.sources.exports import IMPORTERS, Export, read_export
from plench.data.tables import Table, is_table_file
from plench.errors import DataError, UsageError
from plench.files import write_through
from plench.report.dataset_stats import (
    describe_candidates,
    draw_dataset,
    measure_annotator_noise,
    measure_noise_by_answers,
)
from plench.report.drawing import check_figure, figure_style, save_figure
from plench.settings import Settings
from plench.text import check_local, clean, clean_text, list_some

COLUMNS_SHOWN = 40
CLASSES_SHOWN = 10
ANNOTATORS_SHOWN = 10
COUNTS_SHOWN = 10
BAR_WIDTH = 40
WARNINGS = "notices"  # in the JSON of `data info`
CHECK_PAGE = """Find what is probably wrong with your own data, before training.

Prints each column with its role, kind, gaps and number of different values, and what is suspicious, the worst
first, with the remedy. `fit`, `train` and `data info` show the same warnings.

examples:
  plench data check animals.csv
  plench data check 'animals.csv?candidates=tags&separator=;' --json

exit codes: 0 also with warnings, 2 the data cannot be read, or training would be meaningless
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    commands = parser.add_subparsers(dest="data_command", required=True, metavar="COMMAND")
    text = "find what is probably wrong with your own data, before training"
    check = add_command(commands, "check", text, run_check)
    check.set_page(CHECK_PAGE)
    info = add_command(commands, "info", "card, sizes, candidate sets and warnings of a dataset", show_info)
    text = "set sizes, noise, flipping probabilities, ambiguity degree"
    stats = add_command(commands, "stats", text, show_stats)
    views = add_command(commands, "views", "draw every view and every operation of a few images", draw_views)
    check.add_argument("name", metavar="DATA", help="table, arrays, folder of images, export, or a name")
    for command in (info, stats, views):
        text = "a dataset, in any spelling (`plench list datasets`)"
        command.add_argument("name", metavar="NAME", help=text)
    for command in (check, info, stats, views):
        text = "folder of the data files; built-in datasets need none"
        command.add_argument("--data-dir", metavar="DIR", help=text)
    for command in (check, info, stats):
        command.add_argument("--json", action="store_true", help="print JSON")
    for command in (info, stats):
        add_settings(command, ("trial_seed", *CANDIDATE_SETTINGS))
    add_encoder_options(info)
    text = "also draw: FILE.svg, FILE.pdf or FILE.png"
    stats.add_argument("--output", type=Path, metavar="FILE", help=text)
    add_width_option(stats)
    views.add_argument("-o", "--output", required=True, metavar="FILE.png", help="where to write the sheet")
    views.add_argument("--count", type=int, default=8, metavar="N", help="images on the sheet (default: 8)")
    views.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the draws (default: 0)")
    text = "download public datasets and verify their checksums"
    download = add_command(commands, "download", text, run_download)
    download.add_argument("names", nargs="*", metavar="NAME", help="datasets, in any spelling")
    download.add_argument("--suite", metavar="NAME", help="the datasets of a suite: tabular, image or full")
    download.add_argument("--data-dir", required=True, metavar="DIR", help="folder to put the files into")

    text = "write an annotation tool's export as tables of items and of answers"
    importing = add_command(commands, "import", text, run_import)
    importing.add_argument("export", metavar="EXPORT", help=".json, .jsonl, .csv or .zip file, or a folder")
    importing.add_argument(
        "-o", "--output", required=True, metavar="FILE.csv", help="items; answers go to FILE-answers.csv"
    )
    importing.add_argument("--tool", help=f"{', '.join(IMPORTERS)} (default: recognised)")
    importing.add_argument("--from-name", metavar="NAME", help="the question to read, if there are several")
    importing.add_argument("--no-predictions", action="store_true", help="leave predictions of models out")
    importing.add_argument("--force", action="store_true", help="replace files that are there")


def run_download(arguments: argparse.Namespace) -> int:
    """Fetch datasets' files and print where they are; one that fails does not stop the others."""
    check_local(arguments.data_dir)
    from plench.sweeps.plan import make_suite

    names = list(arguments.names)
    if arguments.suite is not None:
        suite = [name for grid in make_suite(arguments.suite) for name in grid.datasets]
        names += [name for name in suite if find_source(name).obtain is not None]
    if not names:
        raise UsageError("say which datasets to download, by name or with --suite tabular, image or full")
    names = list(dict.fromkeys(find_source(name).card.name for name in names))
    failures = []
    for name in names:
        try:
            for path in download_dataset(name, arguments.data_dir):
                print(path, flush=True)
        except DataError as error:
            failures.append(str(error))
    if failures:
        count = [f"{len(failures)} of {len(names)} failed:"] if len(failures) > 1 else []
        raise DataError("\n".join([*count, *failures]))
    return 0


def run_import(args: argparse.Namespace) -> int:
    """Write items and answers of an export, and print what was found and how to use it."""
    items = Path(args.output)
    if items.suffix.lower() != ".csv":
        raise UsageError(f"--output must be a file ending in .csv, not {args.output}")
    answers = items.with_name(f"{items.stem}-answers.csv")
    for path in (items, answers):
        check_outputs({"--output": str(path)}, {"the export": args.export})
        if path.exists() and not args.force:
            raise UsageError(f"{path} is already there; replace it with --force or name another file")
    export = read_export(Path(args.export), args.tool, args.from_name, not args.no_predictions)
    *contents, options = export.to_tables()
    for path, content in zip((answers, items), reversed(contents), strict=True):
        write_through(path, partial(Path.write_bytes, data=content))
    query = urlencode({"answers": answers.name, **options}, safe=",;/|")
    reference = shlex.quote(f"{items}?{query}")
    print(clean_text("\n".join([*format_export(export), f"wrote {items} and {answers}; next:"])))
    print(f"  plench data info {reference}\n  plench fit {reference} -o model.plench")
    return 0


def format_export(export: Export) -> list[str]:
    """Return what was found in an export, as lines."""
    given = Counter(annotator for _, annotator in export.answers)
    people = {name: count for name, count in given.items() if name not in export.models}
    unsure = sum(not answer.labels for (_, name), answer in export.answers.items() if name in people)
    silent = len(export.items) - len({item for item, _ in export.answers})
    models = [f"{clean(name)} {given[name]:,}" for name in sorted(export.models)]
    shown = [f"{clean(name)} {count:,}" for name, count in people.items()]
    rows = {
        "items": f"{len(export.items):,}" + (f", {silent:,} of them without an answer" if silent else ""),
        "data fields": ", ".join(map(clean, export.columns)),
        "annotators": f"{len(people):,}: {list_some(shown, ANNOTATORS_SHOWN)}",
        "answers": f"{sum(people.values()):,}, {unsure:,} of them unsure",
        "predictions": ", ".join(models) or "0",
        "gold labels": f"{len(export.truth):,}",
        "skipped": ", ".join(f"{count:,} {reason}" for reason, count in export.skipped.items()) or "0",
    }
    lines = [f"{export.name} ({export.tool})", *(f"  {key:<14}{value}" for key, value in rows.items())]
    return lines + [f"  warning: {warning}" for warning in export.warnings]


def draw_views(arguments: argparse.Namespace) -> int:
    """Write the contact sheet of what the networks see of a few images, and print its path."""
    from plench.data.views import draw_sheet

    if arguments.count < 1:
        raise UsageError(f"--count must be at least 1, not {arguments.count}")
    if not arguments.output.lower().endswith(".png"):
        raise UsageError(f"--output must be a file ending in .png, not {arguments.output}")
    dataset = load_dataset(arguments.name, arguments.data_dir)
    if dataset.card.kind != "image":
        raise UsageError(f"{dataset.card.name} is {dataset.card.kind} data: all its views are the same")
    assert not isinstance(dataset.features, Table)  # a table is tabular data
    draw_sheet(dataset.features[: arguments.count], arguments.seed, Path(arguments.output))
    print(arguments.output)
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Print columns and findings; return 2 if the data cannot be learned from."""
    content: dict[str, Any] = {"data": args.name, "examples": None, "classes": None, "columns": []}
    try:
        name = args.name
        if is_table_file(name.partition("?")[0]) and not split_encoders(name)[1]:
            name = add_encoders(name, image_encoder="files")  # images are listed, not read
        source = find_source(name)
        dataset = source.load(None if args.data_dir is None else Path(args.data_dir))
        findings = [Finding("warning", "reading", text) for text in dataset.warnings] + check_dataset(dataset)
        content |= {
            "examples": dataset.n_examples,
            "classes": list(dataset.class_names or range(dataset.n_classes)),
            "mean_candidates": dataset.mean_candidates,
            "columns": describe_columns(dataset, *(source.raw or ())),
        }
    except DataError as error:
        findings = [Finding("error", "reading", str(error))]
    findings.sort(key=lambda finding: finding.severity != "error")
    content["findings"] = [asdict(finding) for finding in findings]
    print(json.dumps(content, indent=2, ensure_ascii=False) if args.json else format_check(content))
    return 2 if any(finding.severity == "error" for finding in findings) else 0


def format_check(content: dict[str, Any]) -> str:
    """Return the content of `data check` as text."""
    lines = [clean_text(content["data"])]
    if content["examples"] is not None:
        names = list_some(map(clean, map(str, content["classes"])), CLASSES_SHOWN)
        lines.append(
            f"  {content['examples']:,} examples, {len(content['classes']):,} classes ({names}), "
            f"{content['mean_candidates']:.2f} candidates on average"
        )
    if content["columns"]:
        lines.append(f"  {'column':<24}{'role':<12}{'kind':<10}{'gaps':>8}{'values':>9}")
        for row in content["columns"]:
            start = f"  {clean(row['name'], 23):<24}{row['role']:<12}{row['kind'] or '':<10}"
            lines.append(f"{start}{row['gaps']:>8,}{row['values']:>9,}")
    lines += [f"{row['severity']}: {clean_text(row['message'])}" for row in content["findings"]]
    return "\n".join(lines if content["findings"] else [*lines, "nothing suspicious was found"])


def show_info(arguments: argparse.Namespace) -> int:
    """Print what is known of a dataset, as text or JSON: of its files, if they are there, else its card."""
    source = find_source(add_encoders(arguments.name, **given_encoders(arguments)))
    folder = None if arguments.data_dir is None else Path(arguments.data_dir)
    if folder is None and source.obtain is not None:
        info: dict[str, Any] = {"card": asdict(source.card), "obtain": source.obtain}
    else:
        loaded = source.load(folder)  # not load_dataset: warnings are part of the output
        settings = Settings(**given_settings(arguments))
        spec = choose_candidates(loaded.card.candidates, settings)
        if loaded.card.task == OWN_TASK:
            loaded = loaded.with_warnings(finding.message for finding in check_dataset(loaded))
        dataset = draw_candidates(loaded, spec, settings.trial_seed)
        info = describe_data(dataset, spec, settings.trial_seed, loaded.fingerprint)
    print(json.dumps(info, indent=2, ensure_ascii=False) if arguments.json else format_info(info))
    return 0


def describe_data(dataset: Dataset, spec: CandidateSpec, trial_seed: int, fingerprint: str) -> dict[str, Any]:
    """Return all that `data info` shows, as data. The fingerprint is that of the data as loaded."""
    sizes, counts = np.unique(dataset.candidates.sum(axis=1), return_counts=True)
    info = {
        "card": asdict(dataset.card),
        "examples": dataset.n_examples,
        "test_examples": None if dataset.test is None else len(dataset.test.labels),
        "input_shape": list(dataset.input_shape),
        "classes": dataset.n_classes,
        "has_labels": dataset.labels is not None,
        "candidates": asdict(spec),
        "trial_seed": trial_seed,
        "mean_candidates": dataset.mean_candidates,
        "noise_rate": dataset.noise_rate,
        "set_sizes": {int(size): int(count) for size, count in zip(sizes, counts, strict=True)},
        "fingerprint": fingerprint,
        WARNINGS: list(dataset.warnings),
    }
    if dataset.class_names is not None:
        info["class_names"] = list(dataset.class_names)
    if isinstance(dataset.features, Table):
        info["columns"] = [
            {"name": column.name, "kind": column.kind, "categories": len(column.categories)}
            | ({} if column.encoder is None else {"encoder": column.encoder.name})
            for column in dataset.features.columns
        ]
    if (answers := dataset.answers) is not None:
        stats, labels = describe_answers(answers) | {"noise_by_annotators": None}, dataset.labels
        sure = answers.sets.any(1)
        if labels is not None and sure.any():
            contains = answers.sets[sure][np.arange(sure.sum()), labels[answers.item[sure]]]
            stats["noise_by_annotators"] = [
                {"annotators": number, "items": items, "noise_rate": rate}
                for number, items, rate in measure_noise_by_answers(answers.item[sure], contains)
            ]
        info["answers"] = stats
    return info


def format_info(info: dict[str, Any]) -> str:
    """Return what `data info` shows as text: the card, and what the files hold or how to get them."""
    card = info["card"]
    rows = {
        "task": card["task"],
        "source": card["source"],
        "terms": card["terms"],
        "reference": card["citation"],
        "steps": f"{card['default_steps']:,} by default",
    }
    if card["protocol_noise_rate"] is not None:
        rows["given noise"] = f"{card['protocol_noise_rate']:.3%}, given to noise-aware methods"
    lines = []
    if "obtain" in info:
        sizes = card["published"] or card["sizes"]
        if sizes is not None:
            rows |= {name: f"{sizes[name]:,}" for name in ("examples", "features", "classes")}
        if card["published"] is not None:
            rows["mean set size"] = f"{card['published']['mean_candidates']:.2f}"
            rows["noise rate"] = f"{card['published']['noise_rate']:.2%}"
        rows["the files"] = f"{info['obtain']}, and name their folder with --data-dir"
    else:
        rows |= list_data_rows(info)
        lines = ["  set sizes", *format_histogram(info["set_sizes"])]
        if info.get("answers"):
            lines += format_answers(info["answers"])
        lines += [f"  warning: {warning}" for warning in info[WARNINGS]]
    shown = (f"  {key:<14}{value}" for key, value in rows.items())
    return "\n".join([f"{card['name']} ({card['kind']})", *shown, *lines])


def list_data_rows(info: dict[str, Any]) -> dict[str, str]:
    """Return the rows about loaded data."""
    spec = info["candidates"]
    rates = ", ".join(f"{key} {value}" for key, value in spec.items() if key != "pl_type" and value)
    noise = "unknown (no true labels)" if info["noise_rate"] is None else f"{info['noise_rate']:.2%}"
    own_test = "" if info["test_examples"] is None else f", and {info['test_examples']:,} in its own test set"
    rows = {
        "examples": f"{info['examples']:,}{own_test}",
        "features": " × ".join(f"{size:,}" for size in info["input_shape"][1:]),
        "classes": f"{info['classes']:,}",
        "candidates": spec["pl_type"] + (f" ({rates})" if rates else ""),
        "mean set size": f"{info['mean_candidates']:.2f}",
        "noise rate": noise,
        "fingerprint": info["fingerprint"][:16],
    }
    if info.get("class_names"):
        rows["classes"] += f": {list_some(map(clean, info['class_names']), CLASSES_SHOWN)}"
    parts = []
    for kind, title in (
        ("number", "numbers"),
        ("boolean", "truth values"),
        ("category", "categories"),
        ("text", "texts"),
        ("image", "images"),
    ):
        found = [column for column in info.get("columns", ()) if column["kind"] == kind]
        names = [
            clean(column["name"])
            + (f" ({column['categories']:,})" if kind in ("category", "text", "image") else "")
            + (f" by {column['encoder']}" if "encoder" in column else "")
            for column in found
        ]
        parts += [f"{title} {list_some(names, COLUMNS_SHOWN)}"] * bool(found)
    if parts:
        rows["features"] += f": {'; '.join(parts)}"
    return rows


def format_histogram(set_sizes: dict[int, int]) -> list[str]:
    """Return one line per set size: the size, how many sets have it, and a bar."""
    largest = max(set_sizes.values())
    return [
        f"  {size:>6} {count:>8,} {'#' * max(1, round(BAR_WIDTH * count / largest))}"
        for size, count in set_sizes.items()
    ]


def format_answers(stats: dict[str, Any]) -> list[str]:
    """Return what `describe_data` says of answers as lines."""
    unsure = f", {stats['n_unsure']:,} of them unsure" if stats["n_unsure"] else ""
    known = f"{stats['n_annotators']:,}" if stats["n_annotators"] else "unknown"
    lines = [f"  answers       {stats['n_answers']:,} of {known} annotators{unsure}"]
    if stats["agreement"] is not None:
        lines += [
            f"  agreement     {stats['agreement']:.1%} of the pairs of answers to one item are equal",
            f"                {stats['unanimous']:.1%} of the items have equal answers only, "
            f"{stats['common']:.1%} a class that is in all",
        ]
    sizes = [f"{number} answers: {count:,} items" for number, count in stats["answers_per_item"].items()]
    lines.append(f"  an item has   {list_some(sizes, COUNTS_SHOWN)}")
    sizes = [f"{number} labels: {count:,} answers" for number, count in stats["set_sizes"].items()]
    lines.append(f"  an answer has {list_some(sizes, COUNTS_SHOWN)}")
    by_annotator = sorted(stats["answers_per_annotator"].items(), key=lambda entry: -entry[1])
    shown = [f"{clean(name)} {count:,}" for name, count in by_annotator]
    if shown:
        lines.append(f"  annotators    {list_some(shown, ANNOTATORS_SHOWN)}")
    if stats["noise_by_annotators"]:
        lines.append("  noise of the union of 1, 2, … annotators")
        lines += [
            f"  {row['annotators']:>6} {row['noise_rate']:>8.2%}  ({row['items']:,} items)"
            for row in stats["noise_by_annotators"]
        ]
    return lines


def show_stats(args: argparse.Namespace) -> int:
    """Print the statistics of a dataset's candidate sets, and draw them if a file is named."""
    source = find_source(args.name)
    loaded = load_dataset(args.name, args.data_dir)
    settings = Settings(**given_settings(args))
    dataset = draw_candidates(
        loaded, choose_candidates(loaded.card.candidates, settings), settings.trial_seed
    )
    stats = describe_candidates(dataset.candidates, dataset.labels, dataset.class_names)
    noise = None
    answers = dataset.answers
    if answers is None and source.annotations is not None:
        folder = None if args.data_dir is None else Path(args.data_dir)
        answers = source.annotations(folder, dataset.n_examples)
    if answers is not None and dataset.labels is not None:
        contains = answers.sets[range(len(answers.sets)), dataset.labels[answers.item]]
        noise = measure_annotator_noise(answers.item, contains)
    if args.output is not None:
        check_figure(args.output, args.width)
        with figure_style():
            save_figure(draw_dataset(dataset.card.name, stats, noise, args.width), args.output)
    flipping = stats.flipping  # a row without examples is null
    content: dict[str, Any] = {
        "dataset": dataset.card.name,
        "examples": stats.n_examples,
        "classes": stats.n_classes,
        "mean_set_size": stats.mean_size,
        "set_sizes": {size: int(count) for size, count in enumerate(stats.size_counts) if count},
        "noise_rate": stats.noise_rate,
        "ambiguity_degree": stats.ambiguity_degree,
        "ambiguous_pair": None if stats.ambiguous_pair is None else list(stats.ambiguous_pair),
        "candidates_by_class": stats.candidate_counts.tolist(),
        "labels_by_class": None if stats.label_counts is None else stats.label_counts.tolist(),
        "flipping": None
        if flipping is None
        else [None if row[0] != row[0] else row for row in flipping.tolist()],
        "noise_by_annotators": None if noise is None else noise.tolist(),
    }
    if dataset.class_names is not None:
        content["class_names"] = list(dataset.class_names)
    print(json.dumps(content, indent=2) if args.json else format_stats(content))
    return 0


def format_stats(content: dict[str, Any]) -> str:
    """Return the statistics as text."""
    noise = "unknown (no true labels)" if content["noise_rate"] is None else f"{content['noise_rate']:.2%}"
    labels, names = content["labels_by_class"], content.get("class_names")
    lines = [
        f"{content['dataset']}: {content['examples']:,} examples, {content['classes']:,} classes",
        f"  mean set size     {content['mean_set_size']:.2f}",
        f"  noise rate        {noise}",
    ]
    if content["ambiguous_pair"] is not None:
        first, second = content["ambiguous_pair"]
        lines.append(
            f"  ambiguity degree  {content['ambiguity_degree']:.4f}: the largest p(j ∈ S | y = i) off the "
            f"diagonal, at i = {first} ({labels[first]:,} examples), j = {second}"
        )
    if content["noise_by_annotators"]:
        rates = ", ".join(f"{rate:.2%}" for rate in content["noise_by_annotators"])
        lines.append(f"  noise rate of 1, 2, … annotators' sets joined: {rates}")
    lines += ["  set sizes", *format_histogram(content["set_sizes"])]
    lines.append("  class   candidates" + ("" if labels is None else "   true labels"))
    for number, count in enumerate(content["candidates_by_class"]):
        truth = "" if labels is None else f" {labels[number]:>13,}"
        named = "" if names is None else f"   {clean(names[number])}"
        lines.append(f"  {number:>5} {count:>12,}{truth}{named}")
    return "\n".join(lines)
