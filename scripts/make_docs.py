"""Build the documentation's site, offline: the Markdown of the repository, and references made from the code.

    python scripts/make_docs.py [--output build/docs]

The pages of docs/ (index.md is the first), CONTRIBUTING.md, CHANGELOG.md and examples/README.md are taken
as they are; links between them are turned into links of the site, and one that leads nowhere is an error.
Made from the code are the reference of the commands (from their parsers), of the functions (from docstrings)
and a page for each dataset, criterion and network. Sphinx does the rest, with warnings as errors; what it
wrote is then checked for dead links, requests to other hosts and pictures without alternative text.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import plench
from plench.algorithms.base import FAMILIES
from plench.algorithms.registry import own_cards
from plench.cli import build_parser
from plench.criteria import criteria
from plench.data.sources import dataset_names, describe_datasets, find_source
from plench.networks import networks

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
OWN = ("CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")
# Terms that are linked to the glossary where a page first uses them, by the first word of their row there.
TERMS = {
    "candidates": r"[Cc]andidates?(?: sets?| labels?)?",
    "complementary-label": r"[Cc]omplementary labels?",
    "configuration": r"configurations?",
    "split": r"splits",
    "seed": r"trial seed",
    "run": r"(?<=\b[Aa] )run|(?<=\bof )runs|(?<=[Ee]ach )run|(?<=[Ee]very )run|(?<=[Ss]ingle )runs?",
    "round": r"rounds",
    "record": r"[Rr]ecords",
    "checkpoint": r"checkpoints?",
    "criterion": r"criterion|[Cc]riteria",
    "CR": r"CR|[Cc]overing rate",
    "AA": r"AA|[Aa]pproximated accuracy",
    "OA": r"OA(?! w/)|[Oo]racle accuracy",
    "suite": r"(?<![Tt]est )suites?",
    "engine": r"[Ee]ngines?",
    "fingerprint": r"[Ff]ingerprints?",
    "diverged": r"[Dd]iverged",
    "noise": r"noise rate",
    "distractor": r"[Dd]istractors?",
    "reserved": r"[Rr]eserved rows",
    "regret": r"[Rr]egret",
    "stack": r"[Ss]tacks?",
    "departure": r"[Dd]epartures?",
}
# What is not prose: code, headings, tables, comments, formulas, links, markup.
NOT_PROSE = re.compile(
    r"```.*?```|^ {4,}[^\n]*|^[#|][^\n]*|<!--.*?-->"
    r"|\$\$.*?\$\$|\$[^$]+\$|`[^`]+`|\[[^\]]*\]\([^)]*\)|<[^>\n]+>",
    re.DOTALL | re.MULTILINE,
)
# The order of the first page's list; what is not named here follows by name.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Get started": ("start", "which-algorithm", "faq", "glossary"),
    "Tutorials": ("tutorial", "examples/README"),
    "How-to guides": (
        "how-to",
        "data",
        "annotators",
        "annotation-tools",
        "arrays",
        "images",
        "encoders",
        "estimator",
        "quality",
        "runs",
        "sweeps",
        "engines",
        "cluster",
        "callbacks",
        "results",
        "statistics",
        "figures",
        "report",
        "results-file",
        "submit",
        "add-an-algorithm",
        "classical",
    ),
    "Gallery": ("gallery/index",),
    "Concepts": (
        "theory",
        "theory-estimates",
        "theory-probabilities",
        "trust",
        "candidates",
        "stacks",
        "public-code",
    ),
    "Reference": (
        "cli",
        "api",
        "algorithms/README",
        "datasets",
        "named-datasets",
        "criteria",
        "networks",
        "settings",
        "run-folder",
        "checks",
    ),
    "Results": ("results/README",),
    "For contributors": (
        "CONTRIBUTING",
        "develop",
        "architecture",
        "modules",
        "internals",
        "bench",
        "CHANGELOG",
    ),
}


class DeadLinkError(Exception):
    """A link that leads nowhere."""


def site_path(path: Path) -> str | None:
    """Return where a file of the repository is in the site; None if it is not part of it."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    if path.is_dir():
        return site_path(path / "README.md") if (path / "README.md").exists() else None
    if name == "README.md":  # is not part of the site, whose first page says the same
        return "index.md"
    if name in OWN:
        return name
    if name.startswith("docs/") and name.endswith((".md", ".png", ".svg")) and "/notes/" not in name:
        return name.removeprefix("docs/")
    return None


def turn_links(text: str, source: Path, target: str) -> str:
    """Return a page with the links of the repository turned into links of the site."""

    def turn(found: re.Match[str]) -> str:
        words, link = found[1], found[2]
        if link.startswith(("#", "http://", "https://", "mailto:")):
            return found[0]
        place, hash_sign, anchor = link.partition("#")
        meant = Path(os.path.normpath(source.parent / unquote(place)))
        if not meant.exists():
            raise DeadLinkError(f"{source.relative_to(ROOT)} links to {link}, which is not there")
        there = site_path(meant)
        if there is None:  # a file that only the repository has
            return f"{words} (`{meant.relative_to(ROOT).as_posix()}`)"
        return f"[{words}]({os.path.relpath(there, Path(target).parent)}{hash_sign}{anchor})"

    return LINK.sub(turn, text)


def link_terms(text: str, target: str) -> str:
    """Return a page with the first use of each term in its prose linked to the glossary."""
    glossary = os.path.relpath("glossary.html", Path(target).parent)
    for name, pattern in TERMS.items():
        if re.search(rf"\[[^\]]*(?:{pattern})[^\]]*\]\([./]*glossary\.md\)", text):
            continue
        prose = NOT_PROSE.sub(lambda found: " " * len(found[0]), text)
        found = re.search(rf"(?<![\w-])(?:{pattern})(?![\w-])", prose)
        if found:
            start, end = found.span()
            link = f'<a class="term" href="{glossary}#term-{name}">{found[0]}</a>'
            text = text[:start] + link + text[end:]
    return text


def mark_terms(text: str) -> str:
    """Return the glossary with an anchor in each row."""
    return re.sub(
        r"^\| (?!word |-|OA w)(([\w-]+)[^|]*)", r'| <span id="term-\2"></span>\1', text, flags=re.MULTILINE
    )


def copy_pages(folder: Path) -> None:
    """Put the repository's Markdown and pictures into the folder that the site is made from."""
    pages = [*(ROOT / name for name in OWN), *(ROOT / "docs").rglob("*.md")]
    pictures = [path for kind in ("*.png", "*.svg") for path in (ROOT / "docs").rglob(kind)]
    for path in (*pages, *pictures):
        target = site_path(path)
        if target is None:
            continue
        place = folder / target
        place.parent.mkdir(parents=True, exist_ok=True)
        if path in pictures:
            shutil.copyfile(path, place)
            continue
        text = turn_links(path.read_text(encoding="utf-8"), path, target)
        if target == "glossary.md":
            text = mark_terms(text)
        elif target not in OWN:
            text = link_terms(text, target)
        text = text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")  # one figure, one line
        place.write_text(text, encoding="utf-8")


def write_page(folder: Path, name: str, lines: list[str]) -> None:
    """Write a page that is made from the code."""
    path = folder / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def toctree(pages: list[str], caption: str = "", *, hidden: bool = False) -> list[str]:
    """Return a list of pages as Sphinx wants it."""
    options = [f":caption: {caption}"] if caption else []
    options += [":hidden:"] if hidden else []
    return ["", "```{toctree}", ":maxdepth: 1", *options, "", *pages, "```"]


def write_commands(folder: Path) -> None:
    """Write the reference of the commands, from their parsers."""
    os.environ["COLUMNS"] = "90"  # what fits the column of text
    lines = [
        "# Command line",
        "",
        "Made from the commands themselves: `plench COMMAND --help` prints the same.",
        "",
    ]
    for parser in [*build_parser().walk()][1:]:
        depth = len(parser.prog.split())
        lines += [f"{'#' * depth} {parser.prog}", "", "```text", parser.format_help().rstrip(), "```", ""]
    write_page(folder, "cli", lines)


def write_functions(folder: Path) -> None:
    """Write the reference of `import plench`, from docstrings."""
    lines = ["# Python API", "", "What `import plench` offers, and what authors of algorithms use.", ""]
    for name in sorted(plench.__all__):
        value = getattr(plench, name)
        if inspect.ismodule(value) or not (inspect.isfunction(value) or inspect.isclass(value)):
            continue
        kind = "autoclass" if inspect.isclass(value) else "autofunction"
        lines += [f"## plench.{name}", "", "```{eval-rst}", f".. {kind}:: plench.{name}", "```", ""]
    lines += ["## plench.algorithms", ""]
    for name in ("Algorithm", "LossAlgorithm", "FittedAlgorithm", "register", "Hyperparameter"):
        kind = "autofunction" if name == "register" else "autoclass"
        lines += [f"### {name}", "", "```{eval-rst}", f".. {kind}:: plench.algorithms.{name}", "```", ""]
    write_page(folder, "api", lines)


def write_datasets(folder: Path) -> None:
    """Write a page for each dataset, from its card."""
    rows = {row["name"]: row for row in describe_datasets()}
    names = dataset_names(own_only=True)
    lines = ["# Datasets", "", "| name | kind | examples | classes | task |", "|---|---|---|---|---|"]
    for name in names:
        source, row = find_source(name), rows[name]
        card = source.card
        shown = [str(row.get(key) or "") for key in ("examples", "classes")]
        lines.append(
            f"| [{name}](datasets/{name}.md) | {card.kind} | {shown[0]} | {shown[1]} | {card.task} |"
        )
        facts = {
            key.replace("_", " "): value
            for key, value in row.items()
            if key not in ("name", "task", "steps") and value is not None
        }
        facts |= {"source": card.source, "terms": card.terms, "reference": card.citation}
        facts["steps"] = f"{card.default_steps:,}"
        facts["how to get it"] = source.obtain or "built in: nothing to download"
        table = [f"| {key} | {break_long(str(value).replace('|', '/'))} |" for key, value in facts.items()]
        train = f"plench train -a PRODEN -d {name}" + ("" if source.obtain is None else " --data-dir data")
        get = [] if source.how != "download" else [f"    plench data download {name} --data-dir data"]
        text = [f"# {name}", "", card.task, "", "| | |", "|---|---|", *table, "", *get, f"    {train}"]
        write_page(folder, f"datasets/{name}", text)
    write_page(folder, "datasets", [*lines, *toctree([f"datasets/{name}" for name in names], hidden=True)])


def break_long(text: str) -> str:
    """Return a text whose hashes and addresses a browser may break, so that tables fit."""
    return re.sub(r"\w{16}(?=\w)|(?<=\w)/(?=\w)", r"\g<0><wbr>", text)


def write_criteria(folder: Path) -> None:
    """Write a page for each criterion."""
    lines = [
        "# Criteria",
        "",
        "What chooses a checkpoint and a configuration. [Theory](theory.md) says what each guarantees.",
        "",
    ]
    lines += ["| name | needs true labels | early stopping | meaning |", "|---|---|---|---|"]
    for name, criterion in criteria.items():
        yes = {True: "yes", False: "no"}
        labels, early = yes[criterion.needs_labels], yes[criterion.early_stopping]
        lines.append(
            f"| [{criterion.title}](criteria/{name}.md) | {labels} | {early} | {criterion.meaning} |"
        )
        text = [f"# {criterion.title}", "", criterion.meaning, "", "| | |", "|---|---|"]
        text += [f"| name | {name} |", f"| key in records | `{criterion.record_key}` |"]
        text += [f"| needs true labels | {labels} |", f"| early stopping | {early} |", ""]
        text += [f"    plench collect runs --criteria {name}", ""]
        defect = criterion.public_defect
        text += [f"In the public benchmark's code: {defect}.", ""] if defect else []
        write_page(folder, f"criteria/{name}", text)
    write_page(folder, "criteria", [*lines, *toctree([f"criteria/{name}" for name in criteria], hidden=True)])


def write_networks(folder: Path) -> None:
    """Write a page for each network."""
    lines = ["# Networks", "", "Chosen by the hyperparameter `model`.", ""]
    names = list(networks())
    for name, network in networks().items():
        lines.append(f"- [{name}](networks/{name}.md): {network.meaning}")
        command = f"""    plench train -a PRODEN -d Digits_FPS --hparams '{{"model": "{name}"}}'"""
        write_page(
            folder,
            f"networks/{name}",
            [f"# {name}", "", "| | |", "|---|---|", f"| meaning | {network.meaning} |", "", command],
        )
    write_page(folder, "networks", [*lines, *toctree([f"networks/{name}" for name in names], hidden=True)])


def add_lists(folder: Path) -> None:
    """Add the list of all pages to the first one, and the lists of algorithms and results to theirs."""
    listed = {name for names in SECTIONS.values() for name in names}
    lines: list[str] = []
    for caption, names in SECTIONS.items():
        lines += toctree([name for name in names if (folder / f"{name}.md").exists()], caption, hidden=True)
    other = sorted(p.stem for p in folder.glob("*.md") if p.stem not in listed and p.stem != "index")
    lines += toctree(other, "More", hidden=True) if other else []
    append(folder / "index.md", lines)
    by_family = sorted(own_cards().values(), key=lambda d: (FAMILIES.index(d.family), d.name.lower()))
    append(folder / "algorithms/README.md", toctree([card.name for card in by_family], hidden=True))
    results = sorted(p.stem for p in (folder / "results").glob("*.md") if p.stem != "README")
    append(folder / "results/README.md", toctree(results, hidden=True))
    examples = sorted(p.stem for p in (folder / "gallery").glob("*.md") if p.stem != "index")
    append(folder / "gallery/index.md", toctree(examples, hidden=True))


def append(path: Path, lines: list[str]) -> None:
    """Add lines to a page."""
    path.write_text(path.read_text(encoding="utf-8") + "\n".join(lines) + "\n", encoding="utf-8")


def mend_markup(folder: Path) -> None:
    """Make the theme's markup pass axe: levels of headings, names of landmarks, scrolling by keyboard."""
    changes = {
        '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
        '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
        '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="On this page">',
        '<th class="head"><p></p></th>': "<td></td>",
        "<pre>": '<pre tabindex="0">',
        '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    }
    for path in folder.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for old, new in changes.items():
            text = text.replace(old, new)
        if path.name == "search.html":
            text = re.sub(r'<article role="main"[^>]*>', r"\g<0><h1>Search</h1>", text)
        path.write_text(text, encoding="utf-8")


def check_site(folder: Path) -> list[str]:
    """Return what is wrong with the site: dead links, requests to other hosts, pictures without a text."""
    wrong = []
    pages = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        shown = path.relative_to(folder)
        for loaded in re.findall(
            r'<(?:script|img|link|iframe)\b[^>]*?(?:src|href)="(https?:)?//[^"]*"', text
        ):
            wrong.append(f"{shown} loads something from another host ({loaded})")
        for picture in re.findall(r"<img\b[^>]*>", text):
            if not re.search(r'\balt="[^"]*\w[^"]*"', picture):
                wrong.append(f"{shown} has a picture without alternative text: {picture}")
        for link in map(unescape, re.findall(r'(?:href|src)="([^"]+)"', text)):
            if re.match(r"[a-z]+:|//", link) or link == "#":
                continue
            place, _, anchor = link.partition("#")
            place = unquote(place.partition("?")[0])
            meant = Path(os.path.normpath(path.parent / place)) if place else path
            if not meant.exists():
                wrong.append(f"{shown} links to {link}, which is not there")
            elif anchor and meant in anchors and unquote(anchor) not in anchors[meant]:
                wrong.append(f"{shown} links to {link}, whose anchor is not there")
    return wrong


def build(output: Path) -> int:
    """Build the site; return the exit code."""
    source, html = output / "source", output / "html"
    for old in (source, html):
        shutil.rmtree(old, ignore_errors=True)
    source.mkdir(parents=True)
    try:
        copy_pages(source)
    except DeadLinkError as error:
        print(error, file=sys.stderr)
        return 1
    for write in (write_commands, write_functions, write_datasets, write_criteria, write_networks):
        write(source)
    add_lists(source)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", str(ROOT / "docs")]
    code = subprocess.run([*command, str(source), str(html)], check=False).returncode
    mend_markup(html)
    wrong = check_site(html) if code == 0 else []
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    if code == 0 and not wrong:
        print(f"{html / 'index.html'}: {sum(1 for _ in html.rglob('*.html'))} pages, no dead link")
    return code or int(bool(wrong))


def main() -> int:
    """Build the site that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "docs")
    return build(parser.parse_args().output.absolute())


if __name__ == "__main__":
    sys.exit(main())
