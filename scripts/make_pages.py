"""Writes docs/algorithms: a page per algorithm, from its card, its docstring and its notes/NAME.md.

Each page has a chart of accuracies (charts/NAME.svg), from the complete cells of results/study.parquet.
Also the tables of settings in docs/settings.md, of keys and criteria in docs/run-folder.md and of checks in
docs/checks.md.

python scripts/make_pages.py            write the pages
python scripts/make_pages.py --check    fail if a page is not what would be written
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from plench.algorithms import AlgorithmEntry, algorithms
from plench.algorithms.base import FAMILIES, AlgorithmCard
from plench.contract import format_checks
from plench.criteria import criteria, find_criterion, format_criteria
from plench.data import dataset_card, dataset_names
from plench.hparams import SHARED, DataTraits, Hyperparameter
from plench.report.leaderboard import build_leaderboard, group_by
from plench.report.results import read_results
from plench.runs.folder import format_keys
from plench.runs.records import Run
from plench.runs.sweep_spec import Grid, read_sweep
from plench.settings import format_table

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "algorithms"
NOTES = PAGES / "notes"
PUBLIC_CODE = ROOT / "docs" / "public-code.md"
RESULTS = ROOT / "docs" / "results"
DEFECTS = RESULTS / "defects.md"
STUDY = ROOT / "results"
CHARTS = PAGES / "charts"
VECTORS = ROOT / "tests" / "conformance" / "vectors"

CR, DEFAULT_STEPS = find_criterion("CR"), 2000  # the length of the runs with default hyperparameters

# Pages with tables that are written, each by a function.
TABLES = {
    "settings.md": (format_table,),
    "run-folder.md": (format_keys, format_criteria),
    "checks.md": (format_checks,),
}
WRITTEN_BY = "<!-- Written by scripts/make_pages.py from the class and from {source}: change those. -->"
KINDS = {"tabular": DataTraits("tabular"), "image": DataTraits("image")}
# Datasets whose noise rate the protocol gives to algorithms.
WITH_NOISE_RATE = {
    name: DataTraits(card.kind, card.protocol_noise_rate)
    for name, card in ((name, dataset_card(name)) for name in dataset_names())
    if card.protocol_noise_rate is not None
}


# When a method is worth a try, by what was measured (docs/which-algorithm.md).
WHEN_FAMILY = {
    "vanilla PLL": "Candidate sets that contain the true label.",
    "vanilla CLL": "Complementary labels; other candidate sets only if they arise as it assumes.",
    "holistic PLL": "Images, where its views differ, if you have time for its additional passes.",
    "noisy PLL": "Candidate sets that often miss the true label, if you can estimate how often.",
    "classical": "Few examples, or a quick and strong baseline without a network.",
    "third party": "",
}
WHEN = {
    "PRODEN": "The first method to try: it is cheap, and of the methods that our "
    "[study](../results/study.md) tuned without true labels none is detectably better in the mean over three "
    "tables.",
    "LR_EM": "The first classical method to try: on Lost its mean is above that of all networks without "
    "batch normalisation, within the noise of five splits.",
    "GA": "Complementary labels drawn uniformly, and nowhere else: on real candidate sets it fails.",
    "NN": "Complementary labels drawn uniformly: on real candidate sets it lags far behind.",
    "RECORDS": "Long-tailed training data and a balanced test: it removes the effect of the class prior.",
    "GFWS": "Tabular data and short training without tuning, if twice PRODEN's step is affordable: with "
    "defaults ahead of it on three of four tables after 2,000 steps. At the last of 10,000 steps, and with "
    "`MLP_BN`, no lead is detectable ([study](../results/study.md#without-tuning)). "
    "Long-tailed training data: far ahead on the rare classes in our one split.",
    "VIPLL": "Small tables and long runs: after 2,000 steps, a third of them pre-training, ahead of PRODEN "
    "on Lost and behind it by eight points or more on MSRCv2 and Birdsong, at eight to ten times its step. "
    "Raw images are untried.",
    "CEL": "Candidates that depend on the instance: on three tables within a point of PRODEN, at seven to "
    "twelve times its step.",
    "PL_AKNN": "A vote of neighbours without training: its local geometry is worth about 20 points on Lost "
    "and 8 on MSRCv2 over the plain one, nothing on Birdsong.",
}


def main() -> int:
    """Write the pages, or compare them with what is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    options = parser.parse_args()
    pages = render_pages()
    stale = find_stale(pages)
    if options.check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run python scripts/make_pages.py")
        return 1 if stale else 0
    for path in stale:
        if path in pages:
            path.parent.mkdir(exist_ok=True)
            path.write_text(pages[path], encoding="utf-8")
        else:
            path.unlink()
        print(f"{'wrote' if path in pages else 'removed'} {path.relative_to(ROOT)}")
    return 0


def render_pages() -> dict[Path, str]:
    """Return every page by its path."""
    entries = own_entries()
    pages = {PAGES / f"{entry.name}.md": render_page(entry) for entry in entries}
    for entry in entries:
        own = find_measured(entry.name)
        if own is not None:
            pages[CHARTS / f"{entry.name}.svg"] = draw_chart(entry.name, own)
    pages[PAGES / "README.md"] = render_index(entries)
    pages[PUBLIC_CODE] = render_public_code(entries)
    for name, tables in TABLES.items():
        path = ROOT / "docs" / name
        pages[path] = path.read_text(encoding="utf-8")
        for table in (make() for make in tables):
            # The table of the page that has the same header.
            old = re.escape("\n".join(table.splitlines()[:2])) + r"(\n\|.*)*"
            assert len(re.findall(old, pages[path])) == 1, f"{path} has no table like {table[:60]}"
            pages[path] = re.sub(old, table.replace("\\", "\\\\"), pages[path])
    return pages


def render_public_code(entries: list[AlgorithmEntry]) -> str:
    """Return the page on faults of the public code: what cards say, and the measured effects."""
    found = [entry for entry in entries if entry.card.public_fault]
    table = DEFECTS.read_text(encoding="utf-8")
    columns, rows = read_table(table)
    parts = [
        WRITTEN_BY.format(source="docs/results/defects.md"),
        "# What the public code gets wrong",
        "The public benchmark's code has faults that affect figures of the paper. plench implements every "
        "algorithm from its specification and tests it against reference values; the page of an algorithm "
        "lists all departures. `plench results compare-paper` marks the figures that are affected.",
    ]
    for entry in found:
        card = entry.card
        where = f" (on {', '.join(card.public_fault_on)})" if card.public_fault_on else ""
        text = card.public_fault[:1].upper() + card.public_fault[1:]
        parts += [f"## {entry.name}", f"{text}{where}. [Its page](algorithms/{entry.name}.md)."]
        for row in rows:
            if row[0] == entry.name:
                facts = dict(zip(columns, row, strict=True))
                changes = [
                    f"from {facts[f'ours, {data}']} to {facts[f'with the defect, {data}']} on {data}"
                    for data in ("noisy digits", "MSRCv2")
                ]
                parts.append(f"In percent, the fault changes test accuracy {' and '.join(changes)}.")
    parts += [
        "## Criteria",
        *(
            f"- {criterion.title}: {criterion.public_defect}."
            for criterion in criteria.values()
            if criterion.public_defect
        ),
        "## How it was measured",
        "Each algorithm was compared with itself with the fault put in, on three splits "
        "([results/defects.md](results/defects.md)). A fault that helps on some data is still a fault: the "
        "figures are then those of another method.",
    ]
    return "\n\n".join(parts) + "\n"


def read_table(page: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a page's first table."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"
    ]
    return lines[0], lines[2:]


def find_stale(pages: dict[Path, str]) -> list[Path]:
    """Return the pages that are missing, differ, or belong to no algorithm."""
    differing = [
        path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    there = [*sorted(PAGES.glob("*.md")), *sorted(CHARTS.glob("*.svg"))]
    return differing + [path for path in there if path not in pages]


def own_entries() -> list[AlgorithmEntry]:
    """Return the package's own algorithms, by family and name."""
    own = [entry for entry in algorithms().values() if entry.source is None]
    return sorted(own, key=lambda entry: (FAMILIES.index(entry.card.family), entry.name.lower()))


def render_index(entries: list[AlgorithmEntry]) -> str:
    """Return the list of all algorithms."""
    lines = [
        WRITTEN_BY.format(source="its card"),
        "",
        "# Algorithms",
        "",
        "N examples, B in a batch, K classes. `plench list citations NAME` prints the BibTeX of a method's "
        "paper. Accuracy and cost of all of them are [measured](../results/README.md).",
    ]
    for family in FAMILIES:
        members = [entry for entry in entries if entry.card.family == family]
        if members:
            lines += ["", f"## {family[0].upper()}{family[1:]}", ""]
            lines += ["| algorithm | venue | views | passes | state | idea |", "|---|---|---|---|---|---|"]
            lines += [index_row(entry.card) for entry in members]
    return "\n".join(lines) + "\n"


def index_row(card: AlgorithmCard) -> str:
    """Return an algorithm's row of the index."""
    views = ", ".join(card.views) or "none"
    return (
        f"| [{card.name}]({card.name}.md) | {card.venue} | {views} | {card.passes} | {card.state} "
        f"| {escape(card.idea)} |"
    )


def render_page(entry: AlgorithmEntry) -> str:
    """Return an algorithm's page."""
    card = entry.card
    idea, objective, departures = split_docstring(entry.cls)
    equation, notes = read_notes(NOTES / f"{card.name}.md")
    if not notes and departures:
        notes = "\n\n".join(["## Departures", *departures])
    # Departures come first, with what a fault of the public code was measured to cost.
    # Edge cases stay in the notes.
    sections = [text for text in re.split(r"\n+(?=## )", notes) if not text.startswith("## Edge cases")]
    sections.sort(key=lambda section: not section.startswith("## Departures"))
    sections[0] += describe_fault(card.name)
    parts = [
        WRITTEN_BY.format(source=f"notes/{card.name}.md"),
        f"# {card.name}",
        f"{paper_title(card)} ({card.venue}).",
        *idea,
        "## Objective",
        *([equation] if equation else objective),
        "## When to use it",
        f"{WHEN.get(card.name, WHEN_FAMILY[card.family])} "
        "[Which algorithm should I use?](../which-algorithm.md)",
        "## Results",
        *describe_results(card.name),
        "## Hyperparameters",
        describe_hyperparameters(card),
        *sections,
        "## In short",
        describe_card(card),
        *describe_logs(card),
        "## Conformance",
        describe_conformance(card),
        "## Reference",
        f"```bibtex\n{card.bibtex}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def describe_fault(name: str) -> str:
    """Return what the fault of the public code was measured to cost, if it was."""
    for row in read_table(DEFECTS.read_text(encoding="utf-8"))[1]:
        if row[0] == name:
            _, fault, digits, digits_fault, _, msrc, msrc_fault, _ = row
            return (
                f"\n\nWith the public code's fault ({fault}) put in, test accuracy in percent changes from "
                f"{digits} to {digits_fault} on noisy digits and from {msrc} to {msrc_fault} on MSRCv2 "
                "([how it was measured](../results/defects.md))."
            )
    return ""


def read_notes(path: Path) -> tuple[str, str]:
    """Return the equation of an algorithm's notes, which is its objective, and the rest of them."""
    text = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    found = re.search(r"^## The equation\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        return "", text
    return found[1].strip(), (text[: found.start()] + text[found.end() :]).strip()


def read_rows(page: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Yield (header, row) of every row of every table of a page."""
    header: list[str] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not header:
            header = cells
        elif not set(cells[0]) <= set("-: "):
            yield header, cells


class Measured(NamedTuple):
    """Test accuracies of one setting, by dataset and algorithm, and words on how they were made."""

    what: str
    accuracies: dict[str, dict[str, float]]
    network: str = "MLP"


@cache
def read_study() -> list[Measured]:
    """Return the complete cells of the study: by the grids of its sweep files, and at defaults.

    Tuned cells need every planned run of one algorithm on one dataset; the checkpoint and the configuration
    are chosen by CR. Settings with more configurations come first. At defaults it is the last step, as in
    docs/results/accuracy.md.
    """
    runs = [run for run in read_results(STUDY / "study.parquet", criteria=["CR"]).runs if run.finished]
    cells = group_by(runs, lambda run: (run.experiment.algorithm, run.experiment.dataset))
    found = []
    grids = [grid for path in sorted(STUDY.glob("study-*.toml")) for grid in read_sweep(path).grids]
    grids.sort(key=lambda grid: -len(grid.hparams_seeds))
    seen = set()
    for grid in grids:
        network = str(grid.hparams.get("model", "MLP"))
        plan = (len(grid.hparams_seeds), len(grid.trial_seeds), grid.steps, network)
        if plan not in seen:
            seen.add(plan)
            kept = [run for own in cells.values() for run in planned_runs(own, grid)]
            board = build_leaderboard(kept, (CR,))
            # A leaderboard adds "(answers)" to the names of methods that learn from answers.
            means = {
                dataset: {name.removesuffix(" (answers)"): mean for name, mean in own.items()}
                for dataset in sorted(board.datasets)
                for own in [board.dataset_means(dataset, CR)]
            }
            what = (
                f"tuned without true labels: {plan[0]} configurations on each of {plan[1]} splits, chosen by "
                f"CR, {plan[2]:,} steps with a network"
            )
            found.append(Measured(what, means, network))
    defaults: dict[str, dict[str, float]] = {}
    for (name, dataset), own in sorted(cells.items()):
        short = [run for run in own if run.hparams_seed == 0 and run.experiment.steps == DEFAULT_STEPS]
        by_split = group_by(short, lambda run: run.trial_seed).values()
        last = [[run.records[-1].get("test_acc") for run in group] for group in by_split]
        known = [[value for value in group if value is not None] for group in last]
        if known and all(known):
            defaults.setdefault(dataset, {})[name] = fmean(map(fmean, known))
    return [*found, Measured(f"default hyperparameters, after {DEFAULT_STEPS:,} steps", defaults)]


def planned_runs(own: list[Run], grid: Grid) -> list[Run]:
    """Return the runs of one algorithm on one dataset that a grid plans; none if one is missing."""
    places = {(t, h) for t in grid.trial_seeds for h in grid.hparams_seeds}
    by_place: dict[tuple[int, int], Run] = {}
    network = grid.hparams.get("model", "MLP")
    for run in own:
        experiment = run.experiment
        same = (experiment.model, experiment.steps) == (network, grid.steps)
        same = same or (experiment.fitted and network == "MLP")
        if same and (run.trial_seed, run.hparams_seed) in places:
            by_place.setdefault((run.trial_seed, run.hparams_seed), run)
    return list(by_place.values()) if len(by_place) == len(places) else []


def find_measured(name: str) -> Measured | None:
    """Return an algorithm's first setting with the paper's network, and the datasets where it has figures."""
    for setting in read_study():
        own = {data: means for data, means in setting.accuracies.items() if name in means}
        if own and setting.network == "MLP":
            return Measured(setting.what, own)
    return None


def describe_results(name: str) -> list[str]:
    """Return an algorithm's chart with its caption, figures on other datasets, and the cost of a step."""
    own = find_measured(name)
    measured = set(own.accuracies) if own is not None else set()
    lines = []
    if own is not None:
        shown = ", ".join(f"{data} {100 * means[name]:.1f}" for data, means in own.accuracies.items())
        n_others = max(len(means) for means in own.accuracies.values()) - 1
        lines += [
            f"![Test accuracy of {name} in percent: {shown}; other methods as grey dots](charts/{name}.svg)",
            f"Test accuracy in percent, {own.what}: {shown}. Grey: up to {n_others} other methods in "
            "the same setting ([study](../results/study.md)).",
        ]
    for setting in read_study():
        other = setting.network != "MLP"
        rest = {
            d: means[name]
            for d, means in setting.accuracies.items()
            if name in means and (other or d not in measured)
        }
        if rest:
            shown = ", ".join(f"{data} {100 * value:.1f}" for data, value in rest.items())
            where = f"With {setting.network}" if other else "Other datasets"
            lines.append(f"{where}, {setting.what}: {shown}.")
            measured.update(rest)
    for header, row in read_rows(RESULTS / "frontier.md"):
        cells = zip(header, row, strict=False)
        others = [f"{k} {cell}" for k, cell in cells if k[:1].isupper() and k not in measured]
        if row[0] == name and "Lost" in header and others:
            where = "Other datasets" if lines else "Test accuracy in percent"
            lines.append(
                f"{where}, default hyperparameters ([frontier](../results/frontier.md)): {', '.join(others)}."
            )
            break
    if not lines:
        lines.append("Not yet in the [study](../results/study.md).")
    for _, row in read_rows(RESULTS / "step.md"):
        if row[0] == name:
            lines.append(
                f"A step on Lost takes {row[1]} ms, {row[2]} times that of the bare network "
                "([step](../results/step.md))."
            )
    return lines


def draw_chart(name: str, own: Measured) -> str:
    """Return a chart as SVG: a row per dataset, a grey dot per other method, and this one with its value."""
    left, width, row, bottom = 110, 420, 30, 34
    height = row * len(own.accuracies) + bottom
    shown = ", ".join(f"{data} {100 * means[name]:.1f}" for data, means in own.accuracies.items())
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 30} {height}" '
        f'width="{left + width + 30}" height="{height}" role="img" font-family="sans-serif" font-size="12">',
        f"<title>Test accuracy of {name} in percent: {shown}</title>",
        '<rect width="100%" height="100%" rx="6" fill="#fff"/>',
    ]
    for tick in range(0, 101, 20):
        x = left + width * tick / 100
        lines.append(f'<path d="M{x:g} 8V{height - bottom + 4}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:g}" y="{height - 14}" text-anchor="middle" fill="#555">{tick}</text>')
    for number, (data, means) in enumerate(own.accuracies.items()):
        y = row * number + 24
        lines.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end" fill="#222">{data}</text>')
        lines += [
            f'<circle cx="{left + width * value:.1f}" cy="{y}" r="3" fill="#999" fill-opacity=".5"/>'
            for other, value in means.items()
            if other != name
        ]
        x, value = left + width * means[name], f"{100 * means[name]:.1f}"
        lines.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="#0b5cad"/>')
        lines.append(f'<text x="{x:.1f}" y="{y - 8}" text-anchor="middle" fill="#0b5cad">{value}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def split_docstring(cls: type) -> tuple[list[str], list[str], list[str]]:
    """Return the paragraphs of a docstring: the idea, the objective, the departures.

    What begins with a word about departures, or about there being none, is of the last kind.
    """
    parts: dict[str, list[str]] = {"Idea": [], "Objective": [], "Departures": []}
    current = "Idea"
    for paragraph in inspect.cleandoc(cls.__doc__ or "").split("\n\n"):
        heading, colon, rest = paragraph.partition(":")
        if colon and heading in parts:
            current, paragraph = heading, rest.strip()
            paragraph = paragraph[:1].upper() + paragraph[1:] if heading == "Departures" else paragraph
        elif re.match("(No d|D)eparture", paragraph):
            current = "Departures"
        parts[current].append(paragraph)
    return parts["Idea"], parts["Objective"], parts["Departures"]


def paper_title(card: AlgorithmCard) -> str:
    """Return the title of the method's paper, from its BibTeX."""
    found = re.search(r"\btitle\s*=\s*\{(.*?)\},?[ \t]*$", card.bibtex, re.MULTILINE | re.DOTALL)
    return f"*{' '.join(found[1].replace('{', '').replace('}', '').split())}*" if found else card.name


def describe_card(card: AlgorithmCard) -> str:
    """Return the table of what a step, or a fit, needs."""
    steps = {
        "views of a batch": ", ".join(card.views),
        "second batch": "yes" if card.second_batch else "no",
        "passes per step": card.passes,
        "in a stack": "stackable" if card.stacked else f"not stackable: {card.not_stackable}",
    }
    rounds = {"fitted": card.passes, "uses annotators' answers": "yes" if card.answers else "no"}
    rows = {
        "family": card.family,
        **(steps if card.shared else rounds),
        "state": card.state,
        "other names": ", ".join(card.aliases) or "none",
    }
    shown = {key: value for key, value in rows.items() if value not in ("no", "none", "")}
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in shown.items())])


def describe_hyperparameters(card: AlgorithmCard) -> str:
    """Return the table of an algorithm's own hyperparameters."""
    shared = ", ".join(f"`{parameter.name}`" for parameter in SHARED)
    also = f"The shared ones ({shared}) apply as well." if card.shared else "Those of networks do not apply."
    if not card.hyperparameters:
        return f"None of its own; the shared ones ({shared}) apply."
    rows = [
        f"| `{parameter.name}` | {default_text(parameter)} | {search_text(parameter)} | {parameter.meaning} |"
        for parameter in card.hyperparameters
    ]
    return "\n".join(
        [
            "| name | default | random search | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            also,
        ]
    )


def default_text(parameter: Hyperparameter) -> str:
    """Return a default, by kind of data where it depends on it."""
    return by_kind(lambda traits: str(parameter.default_for(traits)))


def search_text(parameter: Hyperparameter) -> str:
    """Return a search distribution, by kind of data where it depends on it."""
    text = by_kind(lambda traits: str(parameter.search_for(traits)))
    return "fixed" if re.fullmatch(r"[^;]* \(not searched\)", text) else text


def by_kind(describe: Callable[[DataTraits], str]) -> str:
    """Return one text if all kinds of data agree, else each with its kind, and what some datasets have."""
    texts = {kind: describe(traits) for kind, traits in KINDS.items()}
    if len(set(texts.values())) == 1:
        parts = [texts["image"]]
    else:
        parts = [f"{text} ({kind})" for kind, text in texts.items()]
    for name, traits in WITH_NOISE_RATE.items():
        if describe(traits) != texts[traits.kind]:
            parts.append(f"{describe(traits).removesuffix(' (not searched)')} ({name})")
    return escape(re.sub(r"\d+\.\d{12,}", lambda found: f"{float(found[0]):.10g}", "; ".join(parts)))


def describe_logs(card: AlgorithmCard) -> list[str]:
    """Return the section on logged numbers, if there are any in addition to the loss."""
    if not card.logs:
        return []
    rows = [f"| `{name}` | {escape(meaning)} |" for name, meaning in card.logs.items()]
    return ["## Logged numbers", "\n".join(["| name | meaning |", "|---|---|", *rows])]


def describe_conformance(card: AlgorithmCard) -> str:
    """Return which vectors the algorithm is tested against."""
    name = "classical" if card.family == "classical" else card.name
    vectors = VECTORS / f"{name}.json"
    if not vectors.exists():
        return "No vectors."
    cases = json.loads(vectors.read_text(encoding="utf-8"))["cases"]
    if card.family == "classical":
        method = "CROWD" if card.answers else re.sub("_(AVG|EM)$", "", card.name).replace("RF", "ET")
        wanted = (card.name, method, "CONTRACT")
        # Draws are checked of the methods that a case names.
        cases = [
            case
            for case in cases
            if case["method"] in wanted and card.name in case["inputs"].get("space", [card.name])
        ]
    return (
        f"`make test` compares the code that training runs with {len(cases)} cases of "
        f"`tests/conformance/vectors/{name}.json` in float64, each at its own tolerance. Edge cases: "
        f"`docs/algorithms/notes/{card.name}.md`."
    )


def escape(text: str) -> str:
    """Return text that may stand in a table's cell."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
